package countbook

import (
	"fmt"
	"testing"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// BenchmarkMicroSum brings up to date what a sample of many keys says, as each flush of its partition does.
func BenchmarkMicroSum(b *testing.B) {
	s := keysample.New()
	for i := range 250 {
		key := fmt.Appendf(nil, "photos/2024/%02d/%02d/IMG_%08d.jpg", i%12, i%28, i*7919)
		s.Write(keysample.Hash(key), key, store.Timestamp(1+i*7919%250), 150, keysample.Present)
	}
	st := NewState()
	st.sample = s
	b.ReportAllocs()
	for b.Loop() {
		st.sum()
	}
}
