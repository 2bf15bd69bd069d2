package countbook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// What came in between is what was taken less what is left of what had been: exactly, if it came at once or evenly.
func TestTakenSince(t *testing.T) {
	before := Taken{Writes: 100, Reads: 200}
	for _, over := range []time.Duration{-time.Second, 0} {
		writes, reads := Taken{Writes: 150, Reads: 250}.Since(before, over)
		require.Zero(t, writes)
		require.Zero(t, reads)
	}
	writes, reads := Taken{Writes: 150, Reads: 190}.Since(before, 1)
	require.InDelta(t, 50, writes, 1e-3)
	require.Zero(t, reads)
	writes, _ = before.Faded(time.Minute).Since(before, time.Minute)
	require.InDelta(t, 0, writes, 1e-3)
	require.InEpsilon(t, 100*0.3679, before.Faded(time.Minute).Writes, 1e-3)
	require.InEpsilon(t, 200*0.3679, before.Faded(time.Minute).Reads, 1e-3)
	require.Equal(t, before, before.Faded(-time.Minute))

	start := time.Unix(1_700_000_000, 0)
	s := NewState()
	s.Apply(&counter.Delta{Puts: 70, Deletes: 30, Reads: 200, Sample: noKeys()}, start, start)
	now := s.Stats(store.Partition{}, 1, start)
	require.Equal(t, before, TakenOf(&now))
	for _, later := range []time.Duration{-time.Hour, time.Second, time.Minute, time.Hour} {
		x := s.Stats(store.Partition{}, 1, start.Add(later))
		want := before.Faded(later)
		require.InDelta(t, want.Writes, TakenOf(&x).Writes, 1e-3)
		require.InDelta(t, want.Reads, TakenOf(&x).Reads, 1e-3)
	}
}

// What nothing is to be forgotten of stays as it lies in memory: most flushes change little.
func TestExpireLeavesWhatStays(t *testing.T) {
	s := NewState()
	for i := range 100 {
		s.sample.Set(uint64(i+1), []byte("k"), 1, 5, keysample.Present)
	}
	s.sample.Set(1000, []byte("k"), 1, 5, keysample.Counted)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.expire(time.Now()) }))
	require.Equal(t, 101, s.sample.N)
	s.sample.Set(1001, []byte("k"), 1, 5, keysample.Written)
	s.expire(time.Now())
	require.Equal(t, 101, s.sample.N)
}

// At rest a state keeps the keys with the lowest hashes: as many as take 2,800 bytes, each with 21 beside its own, but
// 32 however long they are; and no requests.
func TestAStateAtRest(t *testing.T) {
	draw := seed.New(t)
	for range race.Fewer(300) {
		s := NewState()
		length := []int{1, 60, 70, 90, 400}[draw.IntN(5)]
		type row struct {
			hash uint64
			size int
		}
		var all []row
		for i := range draw.IntN(256) {
			key := fmt.Appendf(nil, "%0*d", 1+draw.IntN(length), i)
			s.sample.Write(keysample.Hash(key), key, 1, 1, keysample.Present)
		}
		for _, key := range s.sample.Present() {
			all = append(all, row{keysample.Hash(key), len(key)})
		}
		slices.SortFunc(all, func(a, b row) int {
			if a.hash < b.hash {
				return -1
			}
			return 1
		})
		stays, used, below := len(all), 0, s.sample.Below
		for i, x := range all {
			if used += 21 + x.size; used > 2800 && i >= 32 {
				stays, below = i, x.hash
				break
			}
		}
		if draw.IntN(2) == 0 {
			s.asked = []asked{{}}
		}
		s.sum()
		require.Equal(t, stays < len(all) || len(s.asked) > 0, s.Thick())
		s.lean = true
		require.False(t, s.Thick())
		before := s.sample.N
		s.Thin()
		require.Equal(t, before, s.sample.N, "of a lean state nothing goes")
		s.lean = false
		s.Thin()
		require.False(t, s.Thick())
		require.Empty(t, s.asked)
		require.Equal(t, below, s.sample.Below)
		require.Equal(t, stays, s.sample.N)
		require.EqualValues(t, stays, s.now.there)
		for _, x := range all[:stays] {
			require.True(t, slices.ContainsFunc(s.sample.Slots, func(y keysample.Slot) bool { return y.Hash == x.hash }))
		}
	}
}

// The rows are spread over the sampled keys; the first quantum begins at the start, others have rows.
func TestQuantaOfAnyNumberOfRows(t *testing.T) {
	for keys := range 8 {
		for rows := range int64(20) {
			s := NewState()
			for i := range keys {
				key := []byte{byte(i)}
				s.sample.Write(keysample.Hash(key), key, 1, 1, keysample.Present)
			}
			s.now.rows = rows
			var want []counter.Quantum
			below := int64(0)
			for i := range keys {
				q := counter.Quantum{Key: []byte{byte(i)}, Rows: rows*int64(i+1)/int64(keys) - below}
				if i == 0 {
					q.Key = nil
				}
				if rows > 0 && (i == 0 || q.Rows > 0) {
					want = append(want, q)
				}
				below += q.Rows
			}
			require.Equal(t, want, s.Quanta(), "%d rows at %d keys", rows, keys)
		}
	}
}

// The last put is that of the newest delta with puts, however late others come.
func TestLastPut(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	s := NewState()
	apply := func(puts int64, after time.Duration) time.Time {
		s.Apply(&counter.Delta{Puts: puts, Reads: 1, Sample: noKeys()}, start, start.Add(after))
		return s.Stats(store.Partition{}, 1, start).LastPut
	}
	require.True(t, apply(0, 0).IsZero())
	for _, c := range []struct {
		puts        int64
		after, want time.Duration
	}{
		{1, time.Second, time.Second}, {0, time.Minute, time.Second}, {5, time.Hour, time.Hour}, {5, time.Minute, time.Hour},
	} {
		require.Equal(t, start.Add(c.want), apply(c.puts, c.after))
	}
}

// A book with no more states than Needs names makes of batches what a whole one makes of them, whichever are missing or
// come again; it changes no others, and has hints for what it has.
func TestNeedsOfBatches(t *testing.T) {
	draw := seed.New(t)
	now := time.Unix(1_700_000_000, 0)
	encoded := func(b *Book) map[store.PartitionID]string {
		all := map[store.PartitionID]string{}
		for id, s := range b.States {
			all[id] = string(must(s.AppendBinary(nil)))
		}
		return all
	}
	for range race.Fewer(300) {
		whole := NewBook()
		for i := range 12 {
			p := store.Partition{ID: store.PartitionID{byte(i)}}
			whole.State(p).Correct(&counter.Count{Started: now, Rows: int64(i)}, whole.Generation)
		}
		clients := [2]struct {
			id  uuid.UUID
			seq uint64
			had []store.PartitionID
		}{{id: uuid.New()}, {id: uuid.New()}}
		for range 4 {
			var batches []counter.Batch
			for range 1 + draw.IntN(4) {
				c := &clients[draw.IntN(2)]
				c.seq += []uint64{0, 1, 1, 1, 2, 3}[draw.IntN(6)] // again, next, or after some that are missing
				b := counter.Batch{Client: c.id, Seq: max(c.seq, 1), From: now, At: now, Before: c.had}
				c.had = nil
				for range 1 + draw.IntN(2) {
					p := store.Partition{ID: store.PartitionID{byte(draw.IntN(12))}}
					b.Deltas = append(b.Deltas, counter.Delta{Partition: p, Puts: 1, Sample: noKeys()})
					c.had = append(c.had, p.ID)
				}
				if draw.IntN(2) == 0 {
					c.had = append(c.had, store.PartitionID{byte(draw.IntN(12))})
				}
				batches = append(batches, b)
			}
			part, err := OpenBook(must(whole.AppendHead(nil)))
			require.NoError(t, err)
			before, needs := encoded(whole), whole.Needs(batches)
			for _, id := range needs {
				s := NewState()
				require.NoError(t, s.UnmarshalBinary([]byte(before[id])))
				part.States[id] = s
			}
			var used []store.PartitionID // and no others are read for nothing
			for i := range batches {
				if b := &batches[i]; !whole.Seen(b) {
					for _, d := range b.Deltas {
						used = append(used, d.Partition.ID)
					}
					if n := whole.missing(b); n > 0 {
						used = append(used, lost(b, n)...)
					}
				}
				whole.Apply(&batches[i], now)
				part.Apply(&batches[i], now)
			}
			require.ElementsMatch(t, used, needs)
			got := encoded(part)
			for id, want := range encoded(whole) {
				if slices.Contains(needs, id) {
					require.Equal(t, want, got[id])
				} else {
					require.Equal(t, want, before[id])
				}
			}
			var hints []counter.Hint
			for _, d := range batches[0].Deltas {
				hints = append(hints, whole.States[d.Partition.ID].Hint(d.Partition.ID))
			}
			require.Equal(t, hints, whole.Hints(&batches[0]))
		}
		require.Empty(t, NewBook().Hints(&counter.Batch{Deltas: []counter.Delta{{}}}))
	}
}

// What fails in the backend fails, and keeps and forgets nothing.
func TestKeepFailsLikeItsBackend(t *testing.T) {
	k := &noting{}
	b := Keep(failing{NewMemory(nil)}, k, KeepOptions{Step: 1})
	p := store.Partition{ID: store.PartitionID{1}}
	require.ErrorIs(t, b.Correct(t.Context(), p, &counter.Count{Started: time.Now()}), errAway)
	require.ErrorIs(t, b.Forget(t.Context(), p), errAway)
	_, err := b.Stats(t.Context(), []store.Partition{p})
	require.ErrorIs(t, err, errAway)
	require.Zero(t, k.calls)
}

// A process that has just begun keeps what differs by a step from the last recount, or from what it kept itself.
func TestAStepIsKept(t *testing.T) {
	m, k := NewMemory(nil), &noting{}
	p := store.Partition{ID: store.PartitionID{1}}
	start := time.Now()
	require.NoError(t, m.Correct(t.Context(), p, &counter.Count{Started: start, Rows: 1000}))
	b := Keep(m, k, KeepOptions{Step: 100})
	for i, c := range []struct {
		puts, deletes int64
		calls         int
	}{{0, 0, 0}, {99, 0, 0}, {1, 0, 1}, {99, 0, 1}, {1, 0, 2}, {0, 99, 2}, {0, 1, 3}} {
		d := counter.Delta{Partition: p, Puts: c.puts, Deletes: c.deletes, Blind: true, Sample: noKeys()}
		_, err := b.Flush(t.Context(), &counter.Batch{Seq: uint64(i + 1), At: start, Deltas: []counter.Delta{d}})
		require.NoError(t, err)
		_, err = b.Stats(t.Context(), []store.Partition{p})
		require.NoError(t, err)
		require.Equal(t, c.calls, k.calls, "%d", i)
	}
	again := Keep(NewMemory(nil), k, KeepOptions{Step: 100}) // over nothing
	all, err := again.Stats(t.Context(), []store.Partition{p})
	require.NoError(t, err)
	require.True(t, all[0].Known)
	require.EqualValues(t, 1100, all[0].Rows)
	k.err = errAway
	all, err = again.Stats(t.Context(), []store.Partition{{ID: store.PartitionID{2}}})
	require.NoError(t, err, "a keeper that fails fails nothing")
	require.False(t, all[0].Known)
}

var errAway = errors.New("away")

// failing is a Backend that fails.
type failing struct{ counter.Backend }

func (failing) Correct(context.Context, store.Partition, *counter.Count) error { return errAway }
func (failing) Forget(context.Context, ...store.Partition) error               { return errAway }
func (failing) Stats(context.Context, []store.Partition) ([]counter.Stats, error) {
	return nil, errAway
}

// noting is a Keeper that counts its calls, and has what was kept last.
type noting struct {
	calls int
	last  store.PartitionSize
	err   error
}

func (n *noting) KeepSize(_ context.Context, s store.PartitionSize) error {
	n.calls++
	n.last = s
	return n.err
}

func (n *noting) KeptSize(context.Context, store.Partition) (store.PartitionSize, error) {
	n.calls++
	if n.err != nil {
		return store.PartitionSize{}, n.err
	}
	return n.last, nil
}

func (n *noting) ForgetSize(context.Context, store.Partition) error {
	n.calls++
	return n.err
}
