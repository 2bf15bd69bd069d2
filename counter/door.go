package counter

import "github.com/evenkeel/evenkeel/internal/keysample"

func init() { keysample.Of = func(sample any) *keysample.Sample { return &sample.(*Sample).keys } }
