package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/cells"
	"github.com/evenkeel/evenkeel/store"
)

func (s *suite) runRows(t *testing.T) {
	t.Run("the highest timestamp wins in any order of arrival", s.anyOrder)
	t.Run("at a tie a delete beats a put and the larger value the smaller", s.ties)
	t.Run("a delete hides late puts up to its timestamp", s.deleteHides)
	t.Run("a removal hides late puts up to its timestamp", s.removalHides)
	t.Run("a copy under an older removal stays hidden", s.copyUnderRemoval)
	t.Run("of several rows with one key in a batch the winner is found", s.repeatedKeys)
	t.Run("keys and values are any bytes", s.anyBytes)
	t.Run("a slice obeys bounds, limit and direction", s.slices)
	t.Run("bounds without keys between them are empty", s.emptyBounds)
	t.Run("timestamps come only when asked for", s.timestamps)
	t.Run("a page ends at the row that reaches the byte limit", s.pageBytes)
	t.Run("pages may share the memory of their rows", s.into)
	t.Run("a slice leaves out only what its caller passes over", s.passing)
	t.Run("many tombstones hide nothing else", s.manyTombstones)
	t.Run("partitions know nothing of each other", s.isolation)
	t.Run("an unknown partition is empty", s.unknownPartition)
	t.Run("a put without rows does nothing", s.putNothing)
	t.Run("rows read stay as they were", s.rowsStay)
	t.Run("rows given are not kept", s.rowsGiven)
	t.Run("a batch is seen as a whole or not at all", s.batchAtomic)
	t.Run("what many write at once ends as in any order", s.hammer)
}

// try applies a sequence of operations (puts, deletions and removals) to new partitions. At the end, and after some of
// the operations, it compares the visible rows with the rows that a correct store shows. It returns an error if they
// differ. seed decides after which operations it compares.
func (s *suite) try(ctx context.Context, ops []operation, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	ps := make([]store.Partition, partitionsPerHistory)
	for i := range ps {
		ps[i] = newPartition()
	}
	for i, o := range ops {
		if err := o.apply(ctx, s.rows, ps); err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		if i < len(ops)-1 && r.IntN(4) > 0 {
			continue
		}
		for n, p := range ps {
			if err := s.checkPartition(ctx, s.rows, p, visible(ops[:i+1], n), trickyKeys, r); err != nil {
				return fmt.Errorf("partition %d after %d operations: %w", n, i+1, err)
			}
		}
	}
	return nil
}

func (s *suite) anyOrder(t *testing.T) {
	for round := range s.scale(300) {
		r := s.rand(t.Name(), round)
		ops := randomHistory(r)
		for range 3 {
			r.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
			seed := r.Uint64()
			err := s.try(t.Context(), ops, seed)
			if err == nil {
				continue
			}
			ops = shrink(ops, func(fewer []operation) bool { return s.try(t.Context(), fewer, seed) != nil })
			if shrunk := s.try(t.Context(), ops, seed); shrunk != nil {
				err = shrunk
			}
			require.FailNow(t, "the store differs from the oracle", "round %d: %v\nafter\n%s", round, err,
				formatHistory(ops))
		}
	}
}

// put returns an operation that writes one row. The functions del and remove below return an operation that deletes one
// key or an interval of keys. Tests with a fixed sequence of operations use these functions.
func put(key, value string, ts store.Timestamp) operation {
	return operation{rows: []store.Row{{Key: []byte(key), Value: []byte(value), Timestamp: ts}}}
}
func del(key string, ts store.Timestamp) operation { return operation{key: []byte(key), ts: ts} }
func remove(b store.Bounds, ts store.Timestamp) operation {
	return operation{bounds: b, ts: ts}
}

// requireRows applies the operations ops to a new partition, and then reads the partition. The test fails if the
// visible rows are not exactly those in want. Each row in want is written as key=value@timestamp.
func (s *suite) requireRows(t *testing.T, ops []operation, want ...string) {
	t.Helper()
	ps := []store.Partition{newPartition()}
	for _, o := range ops {
		require.NoError(t, o.apply(t.Context(), s.rows, ps))
	}
	s.requireContent(t, ps[0], want...)
}

func (s *suite) requireContent(t *testing.T, p store.Partition, want ...string) {
	t.Helper()
	got := []string{}
	for _, r := range s.all(t, s.rows, p) {
		got = append(got, fmt.Sprintf("%s=%s@%d", r.Key, r.Value, r.Timestamp))
	}
	require.Equal(t, append([]string{}, want...), got)
}

// all returns all rows of the partition p, which it reads page by page. The test fails if the store returns an error.
func (s *suite) all(t *testing.T, rows store.Rows, p store.Partition) (all []store.Row) {
	t.Helper()
	var b store.Bounds
	for {
		page, err := rows.Slice(t.Context(), p, b, store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true})
		require.NoError(t, err)
		all = append(all, page.Rows...)
		if !page.More {
			return all
		}
		require.NotEmpty(t, page.Rows)
		b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	}
}

// inEveryOrder applies a few operations (puts, deletions and removals) to new partitions, once in each possible order.
// The test fails if the visible rows after any order are not exactly those in want, each written as
// key=value@timestamp.
func (s *suite) inEveryOrder(t *testing.T, ops []operation, want ...string) {
	t.Helper()
	if len(ops) < 2 {
		s.requireRows(t, ops, want...)
		return
	}
	var permute func(done, left []operation)
	permute = func(done, left []operation) {
		if len(left) == 0 {
			s.requireRows(t, done, want...)
		}
		for i := range left {
			permute(append(slices.Clone(done), left[i]), slices.Delete(slices.Clone(left), i, i+1))
		}
	}
	permute(nil, ops)
}

func (s *suite) ties(t *testing.T) {
	s.inEveryOrder(t, []operation{put("k", "small", 5), put("k", "tall", 5)}, "k=tall@5")
	s.inEveryOrder(t, []operation{put("k", "v", 5), put("k", "v\x00", 5)}, "k=v\x00@5")
	s.inEveryOrder(t, []operation{put("k", "", 5), put("k", "\x00", 5)}, "k=\x00@5")
	s.inEveryOrder(t, []operation{put("k", "zzz", 4), put("k", "a", 5)}, "k=a@5")
	s.inEveryOrder(t, []operation{put("k", "v", 5), del("k", 5)})
	s.inEveryOrder(t, []operation{put("k", "v", 5), remove(store.Bounds{}, 5)})
	s.inEveryOrder(t, []operation{put("k", "v", 5), remove(store.Bounds{Start: []byte("k"), End: []byte("l")}, 5)})

	entry, marker := store.EntryCell([]byte{0xff}), cells.Marker()
	s.inEveryOrder(t, []operation{put("k", string(entry), 5), put("k", string(marker), 5)},
		fmt.Sprintf("k=%s@5", marker))
}

func (s *suite) deleteHides(t *testing.T) {
	s.inEveryOrder(t, []operation{put("k", "old", 4), del("k", 5), put("k", "same", 5)})
	s.inEveryOrder(t, []operation{put("k", "old", 4), del("k", 5), put("k", "new", 6)}, "k=new@6")
	s.inEveryOrder(t, []operation{del("k", 5), del("k", 3), put("k", "v", 4)})
	s.inEveryOrder(t, []operation{del("k", 5), put("kk", "v", 4), put("j", "v", 4)}, "j=v@4", "kk=v@4")
}

func (s *suite) removalHides(t *testing.T) {
	whole := store.Bounds{}
	middle := store.Bounds{Start: []byte("b"), End: []byte("d")}
	above := store.Bounds{Start: []byte("b"), StartExclusive: true}
	below := store.Bounds{End: []byte("b")}
	abcd := []operation{
		{rows: slices.Concat(put("a", "1", 4).rows, put("b", "2", 4).rows, put("c", "3", 4).rows, put("d", "4", 4).rows)},
	}

	s.inEveryOrder(t, append(abcd, remove(whole, 5)))
	s.inEveryOrder(t, append(abcd, remove(whole, 3)), "a=1@4", "b=2@4", "c=3@4", "d=4@4")
	s.inEveryOrder(t, append(abcd, remove(middle, 5)), "a=1@4", "d=4@4")
	s.inEveryOrder(t, append(abcd, remove(above, 5)), "a=1@4", "b=2@4")
	s.inEveryOrder(t, append(abcd, remove(below, 5)), "b=2@4", "c=3@4", "d=4@4")
	s.inEveryOrder(t, append(abcd, remove(middle, 5), put("c", "new", 6)), "a=1@4", "c=new@6", "d=4@4")
	s.inEveryOrder(t, append(abcd, remove(middle, 3), remove(whole, 2), remove(below, 4)), "b=2@4", "c=3@4", "d=4@4")
	opened := store.Bounds{Start: middle.Start, StartExclusive: true, End: middle.End}
	s.inEveryOrder(t, []operation{remove(middle, 5), remove(opened, 7), put("b", "v", 4), put("c", "v", 6)})
	s.inEveryOrder(
		t, []operation{remove(middle, 5), remove(opened, 7), put("b", "v", 6), put("c", "v", 8)}, "b=v@6", "c=v@8",
	)
	s.inEveryOrder(t, []operation{remove(middle, 7), remove(whole, 5), put("c", "v", 6), put("e", "v", 6)}, "e=v@6")
}

// copyUnderRemoval tests copying rows into a partition that was used before and then removed as a whole. Copies with a
// timestamp up to that of the removal must stay hidden. For this reason the id of a partition is never used again.
func (s *suite) copyUnderRemoval(t *testing.T) {
	ps := []store.Partition{newPartition(), newPartition()}
	ctx := t.Context()
	require.NoError(t, s.rows.Remove(ctx, ps[1], store.Bounds{}, 100))
	var rows []store.Row
	for i := range 50 {
		rows = append(rows, store.Row{
			Key: fmt.Appendf(nil, "%02d", i), Value: []byte{1}, Timestamp: store.Timestamp(76 + i),
		})
	}
	require.NoError(t, s.rows.Put(ctx, ps[0], rows...))
	require.NoError(t, s.rows.Put(ctx, ps[1], s.all(t, s.rows, ps[0])...))
	require.Len(t, s.all(t, s.rows, ps[0]), 50)
	got := s.all(t, s.rows, ps[1])
	require.Len(t, got, 25, "rows newer than the removal, and only those, are visible")
	require.Equal(t, rows[25:], got)
}

func (s *suite) repeatedKeys(t *testing.T) {
	row := func(v string, ts store.Timestamp) store.Row {
		return store.Row{Key: []byte("k"), Value: []byte(v), Timestamp: ts}
	}
	batch := func(rows ...store.Row) []operation { return []operation{{rows: rows}} }
	s.requireRows(t, batch(row("a", 1), row("b", 3), row("c", 2)), "k=b@3")
	s.requireRows(t, batch(row("b", 3), row("c", 3), row("a", 3)), "k=c@3")
	s.requireRows(t, append([]operation{del("k", 3)}, batch(row("b", 3), row("a", 4), row("c", 2))...), "k=a@4")
	s.requireRows(t, append([]operation{put("k", "z", 9)}, batch(row("b", 3), row("a", 4))...), "k=z@9")
}

func (s *suite) anyBytes(t *testing.T) {
	keys := slices.Clone(trickyKeys)
	for _, c := range []byte{0, 'a', 0xff} {
		for _, n := range []int{255, 256, 257, 4096, store.MaxKeyBytes - 1, store.MaxKeyBytes} {
			keys = append(keys, bytes.Repeat([]byte{c}, n))
		}
	}
	for i := range 256 {
		keys = append(keys, []byte{'x', byte(i)}, []byte{'x', byte(i), 0}, []byte{'x', byte(i), 0xff})
	}
	r := s.rand(t.Name(), 0)
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	p, ops := newPartition(), []operation{}
	for part := range slices.Chunk(keys, 100) {
		o := operation{}
		for _, key := range part {
			o.rows = append(o.rows, store.Row{Key: key, Value: pick(r, trickyValues), Timestamp: 1})
		}
		ops = append(ops, o)
		require.NoError(t, o.apply(t.Context(), s.rows, []store.Partition{p}))
	}
	require.NoError(t, s.checkPartition(t.Context(), s.rows, p, visible(ops, 0), keys, r))
}

func (s *suite) isolation(t *testing.T) {
	bucket, id := newBucket(), newPartition().ID
	id[15], bucket[15] = 0x7f, 0x7f
	above, below, bucketAbove, bucketBelow := id, id, bucket, bucket
	above[15], below[15], bucketAbove[15], bucketBelow[15] = 0x80, 0x7e, 0x80, 0x7e
	ps := []store.Partition{
		{Bucket: bucket, ID: id}, {Bucket: bucket, ID: above}, {Bucket: bucket, ID: below}, {Bucket: bucketAbove, ID: id},
		{Bucket: bucketBelow, ID: id}, {Bucket: bucketBelow, ID: above},
		{Bucket: store.BucketID(id), ID: store.PartitionID(bucket)},
	}
	r := s.rand(t.Name(), 0)
	var ops []operation
	step := func(o operation) {
		ops = append(ops, o)
		require.NoError(t, o.apply(t.Context(), s.rows, ps))
		for n, p := range ps {
			require.NoError(
				t, s.checkPartition(t.Context(), s.rows, p, visible(ops, n), trickyKeys, r), "partition %d, after\n%s", n,
				formatHistory(ops),
			)
		}
	}
	for n := range ps {
		o := operation{partition: n}
		for i, key := range trickyKeys {
			o.rows = append(o.rows, store.Row{Key: key, Value: []byte{byte(n), byte(i)}, Timestamp: 5})
		}
		step(o)
	}
	step(operation{partition: 0, key: []byte("a"), ts: 6})
	step(operation{partition: 0, bounds: store.Bounds{Start: []byte("a\xff")}, ts: 6})
	step(operation{partition: 0, bounds: store.Bounds{End: []byte("a\x01")}, ts: 6})
	step(operation{partition: 0, ts: 7})
	step(operation{partition: 4, ts: 7})
	step(operation{partition: 0, rows: []store.Row{{Key: []byte("a"), Value: []byte{9}, Timestamp: 8}}})
}

func (s *suite) unknownPartition(t *testing.T) {
	p := newPartition()
	require.NoError(t, s.checkPartition(t.Context(), s.rows, p, nil, trickyKeys, s.rand(t.Name(), 0)))
	require.NoError(t, s.rows.Delete(t.Context(), p, []byte("k"), 5))
	require.NoError(t, s.rows.Remove(t.Context(), p, store.Bounds{Start: []byte("m")}, 5))
	require.NoError(t, s.checkPartition(t.Context(), s.rows, p, nil, trickyKeys, s.rand(t.Name(), 0)))
}

func (s *suite) putNothing(t *testing.T) {
	s.requireRows(t, []operation{put("k", "v", 5), {rows: []store.Row{}}}, "k=v@5")
}

func (s *suite) rowsStay(t *testing.T) {
	ctx, p := t.Context(), newPartition()
	for i := range 10 {
		require.NoError(t, put(fmt.Sprint("k", i), "first", 1).apply(ctx, s.rows, []store.Partition{p}))
	}
	rows := s.all(t, s.rows, p)
	got, _, err := s.rows.Get(ctx, p, []byte("k3"))
	require.NoError(t, err)
	rows = append(rows, got)
	before := formatRows(rows)
	for i := range 10 {
		require.NoError(t, put(fmt.Sprint("k", i), "later", 2).apply(ctx, s.rows, []store.Partition{p}))
	}
	s.all(t, s.rows, p)
	require.NoError(t, s.rows.Remove(ctx, p, store.Bounds{}, 3))
	s.all(t, s.rows, p)
	require.Equal(t, before, formatRows(rows))
}

func (s *suite) rowsGiven(t *testing.T) {
	ctx, p := t.Context(), newPartition()
	scribble := func(bs ...[]byte) {
		for _, b := range bs {
			for i := range b {
				b[i] = '#'
			}
		}
	}
	row := store.Row{Key: []byte("key"), Value: []byte("value"), Timestamp: 1}
	doomed := store.Row{Key: []byte("l"), Value: []byte("doomed"), Timestamp: 1}
	require.NoError(t, s.rows.Put(ctx, p, row, doomed))
	require.Equal(t, "key=value", string(row.Key)+"="+string(row.Value), "a put changed its rows")
	scribble(row.Key, row.Value, doomed.Key, doomed.Value)
	gone := []byte("gone")
	require.NoError(t, s.rows.Delete(ctx, p, gone, 5))
	scribble(gone)
	start, end := []byte("l"), []byte("m")
	require.NoError(t, s.rows.Remove(ctx, p, store.Bounds{Start: start, End: end}, 5))
	scribble(start, end)
	late := func(key string) store.Row { return store.Row{Key: []byte(key), Value: []byte("late"), Timestamp: 4} }
	require.NoError(t, s.rows.Put(ctx, p, late("gone"), late("####"), late("l"), late("lz"), late("#z")))
	s.requireContent(t, p, "####=late@4", "#z=late@4", "key=value@1")
}
