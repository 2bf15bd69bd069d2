package counter

import "github.com/evenkeel/evenkeel/internal/keysample"

// init gives package keysample access to the keys in a Sample.
func init() { keysample.Of = func(sample any) *keysample.Sample { return &sample.(*Sample).keys } }
