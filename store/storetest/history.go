package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/store"
)

// An operation is one write to one partition, kept as data so that a test can repeat the write. It is
//   - a put if rows is not nil,
//   - the deletion of one key if key is not nil, or
//   - the removal of all rows within bounds if both are nil.
type operation struct {
	partition int
	rows      []store.Row
	key       []byte
	bounds    store.Bounds
	ts        store.Timestamp // the timestamp of a delete or a removal
}

func (o operation) apply(ctx context.Context, r store.Rows, ps []store.Partition) error {
	switch p := ps[o.partition]; {
	case o.rows != nil:
		return r.Put(ctx, p, o.rows...)
	case o.key != nil:
		return r.Delete(ctx, p, o.key, o.ts)
	default:
		return r.Remove(ctx, p, o.bounds, o.ts)
	}
}

func (o operation) String() string {
	switch {
	case o.rows != nil:
		return fmt.Sprintf("%d: put %s", o.partition, formatRows(o.rows))
	case o.key != nil:
		return fmt.Sprintf("%d: delete %q@%d", o.partition, o.key, o.ts)
	default:
		return fmt.Sprintf("%d: remove %s@%d", o.partition, formatBounds(o.bounds), o.ts)
	}
}

// hides reports whether the operation o deletes a row with the given key and timestamp. It does so if it deletes the
// key, or removes an interval that contains the key, with the same or a higher timestamp.
func (o operation) hides(key []byte, ts store.Timestamp) bool {
	if o.rows != nil || o.ts < ts {
		return false
	}
	if o.key != nil {
		return bytes.Equal(o.key, key)
	}
	return within(key, o.bounds)
}

// visible returns the rows that a reader of a partition must find after the operations ops, in the order of their keys.
// partition is the number of the partition. The tests compare a store with this function, which is the contract of
// store.Rows in its simplest form.
func visible(ops []operation, partition int) []store.Row {
	best := map[string]store.Row{}
	for _, o := range ops {
		if o.partition != partition {
			continue
		}
		for _, r := range o.rows {
			b, found := best[string(r.Key)]
			if !found || r.Timestamp > b.Timestamp || r.Timestamp == b.Timestamp &&
				bytes.Compare(r.Value, b.Value) > 0 {
				best[string(r.Key)] = r
			}
		}
	}
	var rows []store.Row
	for _, r := range best {
		hidden := slices.ContainsFunc(ops, func(o operation) bool {
			return o.partition == partition && o.hides(r.Key, r.Timestamp)
		})
		if !hidden {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b store.Row) int { return bytes.Compare(a.Key, b.Key) })
	return rows
}

func within(key []byte, b store.Bounds) bool {
	if len(b.Start) > 0 {
		c := bytes.Compare(key, b.Start)
		if c < 0 || c == 0 && b.StartExclusive {
			return false
		}
	}
	return len(b.End) == 0 || bytes.Compare(key, b.End) < 0
}

// trickyKeys are keys for tests. They differ only in bytes that a careless encoding of keys loses: zero bytes, 0xFF,
// and common prefixes.
var trickyKeys = [][]byte{
	{0}, {0, 0}, {0, 0xff}, {1}, []byte("a"), []byte("a\x00"), []byte("a\x00\x00"), []byte("a\x00b"),
	[]byte("a\x01"), []byte("aa"), []byte("a\xff"), []byte("a\xff\x00"), []byte("a\xff\xff"), []byte("b"),
	[]byte("é"), {0xfe, 0xff}, {0xff}, {0xff, 0}, {0xff, 0xff}, {0xff, 0xff, 0xff},
}

var trickyValues = [][]byte{
	{}, {0}, {0, 0}, {1}, {2}, []byte("v"), []byte("v\x00"), []byte("va"), []byte("w"), {0xff}, {0xff, 0xff},
}

const partitionsPerHistory = 2

// randomHistory returns a random sequence of writes and deletions. The keys, timestamps and values are drawn from small
// sets, so that many operations meet at the same key or have the same timestamp.
func randomHistory(r *rand.Rand) []operation {
	keys := make([][]byte, 1+r.IntN(8))
	for i := range keys {
		keys[i] = pick(r, trickyKeys)
	}
	ts := func() store.Timestamp { return store.Timestamp(1 + r.IntN(9)) }
	puts := 4 + r.IntN(10) // in 20; in some histories removals meet removals
	ops := make([]operation, 1+r.IntN(24))
	for i := range ops {
		o := operation{partition: r.IntN(partitionsPerHistory), ts: ts()}
		switch n := r.IntN(20); {
		case n < puts:
			o.rows = make([]store.Row, 1+r.IntN(1+r.IntN(6)))
			for j := range o.rows {
				o.rows[j] = store.Row{Key: pick(r, keys), Value: pick(r, trickyValues), Timestamp: ts()}
			}
		case n < puts+4:
			o.key = pick(r, keys)
		case n < 19:
			o.bounds = randomBounds(r, keys)
		}
		ops[i] = o
	}
	return ops
}

// randomBounds returns a random interval of keys, with ends drawn from keys. Some intervals have no lower or no upper
// end, some are empty, and some exclude their start.
func randomBounds(r *rand.Rand, keys [][]byte) (b store.Bounds) {
	if r.IntN(4) > 0 {
		b.Start = pick(r, keys)
	}
	if r.IntN(4) > 0 {
		b.End = pick(r, keys)
	}
	if len(b.End) > 0 && bytes.Compare(b.Start, b.End) > 0 {
		b.Start, b.End = b.End, b.Start
	}
	b.StartExclusive = r.IntN(2) == 0
	return b
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// shrink returns a shorter sequence of operations that still makes a test fail. It leaves out each operation that the
// failure does not need, so that a person can find the cause. The function fails runs the test with a sequence of
// operations, and returns true if the test fails.
func shrink(ops []operation, fails func([]operation) bool) []operation {
	for again := true; again; {
		again = false
		for i := len(ops) - 1; i >= 0; i-- {
			fewer := slices.Delete(slices.Clone(ops), i, i+1)
			if fails(fewer) {
				ops, again = fewer, true
			}
		}
	}
	return ops
}

func formatHistory(ops []operation) string {
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&b, "  %s\n", o)
	}
	return b.String()
}

func formatRows(rows []store.Row) string {
	parts := make([]string, len(rows))
	for i, r := range rows {
		parts[i] = fmt.Sprintf("%s=%s@%d", clip(r.Key), clip(r.Value), r.Timestamp)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func formatBounds(b store.Bounds) string {
	open := "["
	if b.StartExclusive {
		open = "("
	}
	return fmt.Sprintf("%s%s, %s)", open, clip(b.Start), clip(b.End))
}

func clip(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}
