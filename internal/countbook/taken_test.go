package countbook_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// TestWhatWasTakenInBetween: however the load of a partition changes, the differences of what it took add up to the
// requests that there were, and each is within what Since says.
func TestWhatWasTakenInBetween(t *testing.T) {
	r := seed.New(t)
	for range race.Fewer(30) {
		now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		m := countbook.NewMemory(func() time.Time { return now })
		rec := counter.NewRecorder(m, counter.RecorderOptions{Every: -1, Now: func() time.Time { return now }})
		p := store.Partition{ID: store.PartitionID{15: 1}}
		var before countbook.Taken
		var writes, reads, gotWrites, gotReads float64
		for range 60 {
			w, rd := 0, 0
			puts, gets := r.IntN(100), r.IntN(100)
			for s := range 10 {
				now = now.Add(time.Second)
				if s == 5 {
					puts, gets = r.IntN(100), r.IntN(100)
				}
				for i := range puts {
					rec.Put(p, fmt.Appendf(nil, "%d", i), 10, store.Timestamp(now.UnixMicro()))
				}
				for range gets {
					rec.Read(p, nil)
				}
				w, rd = w+puts, rd+gets
				require.NoError(t, rec.Flush(context.Background()))
			}
			all, err := m.Stats(context.Background(), []store.Partition{p})
			require.NoError(t, err)
			dw, dr := countbook.TakenOf(&all[0]).Since(before, 10*time.Second)
			require.InDelta(t, w, dw, 0.09*float64(w)+1)
			require.InDelta(t, rd, dr, 0.09*float64(rd)+1)
			before = countbook.TakenOf(&all[0])
			writes, reads, gotWrites, gotReads = writes+float64(w), reads+float64(rd), gotWrites+dw, gotReads+dr
		}
		require.InEpsilon(t, writes, gotWrites, 0.02)
		require.InEpsilon(t, reads, gotReads, 0.02)
	}
}
