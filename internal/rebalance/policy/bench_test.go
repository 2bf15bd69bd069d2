package policy_test

import (
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// BenchmarkDecide decides about a bucket of 4,096 ranges, where nothing is to be done.
func BenchmarkDecide(b *testing.B) {
	var ranges []policy.Range
	for i := range 4096 {
		ranges = append(ranges, old(int64(300+i%600)))
	}
	in := layout(ranges...)
	in.Policy, in.Now = policy.Default(1000), now.Add(time.Hour)
	for b.Loop() {
		policy.Decide(*in)
	}
}
