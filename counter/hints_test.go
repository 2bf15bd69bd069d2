package counter

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// A hint lowers the limit of a recorder's samples, and says what puts are above; it is of use until the partition is
// forgotten, and a lower one, told late, does not lower the highest key.
func TestHints(t *testing.T) {
	p := store.Partition{ID: store.PartitionID{1}}
	other := store.Partition{ID: store.PartitionID{2}}
	hint := func(below uint64, top string) []Hint {
		return []Hint{{Partition: other.ID, Below: 1}, {Partition: p.ID, Below: below, Top: []byte(top)}}
	}
	s := &hinting{hints: hint(1<<62, "m")}
	r := NewRecorder(s, RecorderOptions{Every: -1})
	round := func(keys ...string) Delta {
		for _, key := range keys {
			r.Put(p, []byte(key), 1, 1)
		}
		require.NoError(t, r.Flush(t.Context()))
		return s.got
	}
	d := round("a")
	require.Equal(t, keysample.New().Below, d.Sample.keys.Below)
	s.hints = hint(1<<61, "c")
	d = round("b", "n")
	require.Equal(t, uint64(1<<62), d.Sample.keys.Below)
	require.EqualValues(t, 1, d.Above)
	d = round("c", "m", "o")
	require.Equal(t, uint64(1<<61), d.Sample.keys.Below)
	require.EqualValues(t, 1, d.Above, "the highest key is still n")
}

// hinting gives hints.
type hinting struct {
	keeping
	hints []Hint
	got   Delta
}

func (h *hinting) Flush(_ context.Context, b *Batch) ([]Hint, error) {
	h.got = b.Deltas[0]
	h.got.Sample = Sample{h.got.Sample.keys.Clone()}
	return h.hints, nil
}

// What was deleted at once counts as 1,000 deletes.
func TestRemovedCountsAsDeletes(t *testing.T) {
	var k keeping
	r := NewRecorder(&k, RecorderOptions{Every: -1})
	r.Removed(store.Partition{})
	require.NoError(t, r.Flush(t.Context()))
	require.EqualValues(t, 1000, k.batches[0].Deltas[0].Deletes)
}

// The log says once that flushes fail, and once that they work again.
func TestFailuresAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	r := NewRecorder(&keeping{}, RecorderOptions{Every: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, err := range []error{nil, errAway, errAway, nil, nil, errAway} {
		r.report(err)
	}
	require.Equal(t, []string{"WARN", "INFO", "WARN"}, regexp.MustCompile("WARN|INFO").FindAllString(log.String(), -1))
}

var errAway = errors.New("away")
