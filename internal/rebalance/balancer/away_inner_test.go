package balancer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/store"
)

// The tail that is remembered for when the counters are away goes on through ranges of which counts tell too little:
// they are empty, or appends have reached them a second ago. It ends where rows of others begin.
func TestHowFarATailIsFollowed(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	appended := counter.Stats{Known: true, Rows: 900, Puts: 900, AppendShare: 1, AppendsPerS: 20, Top: []byte("b")}
	for name, c := range map[string]struct {
		next counter.Stats
		end  string
	}{
		"empty":               {counter.Stats{Known: true}, "e"},
		"just reached":        {counter.Stats{Known: true, Rows: 20, Puts: 20}, "e"},
		"reached before that": {counter.Stats{Known: true, Rows: 40, Puts: 40, AppendShare: 0.275, AppendsPerS: 5}, "e"},
		"rows of others":      {counter.Stats{Known: true, Rows: 600, Puts: 600, AppendShare: 0.1}, "c"},
		"rows of long ago":    {counter.Stats{Known: true, Rows: 40, Puts: 10}, "c"},
		"another tail":        {counter.Stats{Known: true, Rows: 40, Puts: 40, AppendShare: 1}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(nil, nil, nil, nil, Options{Policy: policy.Default(1000)})
			b.remember(store.BucketID{1}, &policy.Input{Now: at, Policy: b.o.Policy, Ranges: []policy.Range{
				{Start: []byte("a"), End: []byte("c"), Stats: appended},
				{Start: []byte("c"), End: []byte("d"), Stats: c.next},
				{Start: []byte("d"), End: []byte("e"), Stats: counter.Stats{Known: true}},
				{Start: []byte("e"), Stats: counter.Stats{Known: true, Rows: 5000, Puts: 5000}},
			}})
			tails, _ := b.tails.Get(store.BucketID{1})
			require.Len(t, tails, 1)
			require.Equal(t, c.end, string(tails[0].end))
		})
	}
}
