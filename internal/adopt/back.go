package adopt

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Target is a source of rows, such as a Cassandra table, to which the bucket's rows can also be written back. It serves
// applications that must be able to return to their old store.
type Target interface {
	Source
	// Home returns the number of the part (e.g. a partition of a table) in which the row of a new entry is to be put.
	// If no part can be chosen, why is the reason.
	Home(key []byte) (part int, why Refusal)
	// Takes returns the reason why an entry cannot be a row of the target, or "" if it can.
	Takes(key, value []byte) Refusal
	// Write writes rows to a part of the target at their timestamps. A row without a value (nil) is deleted. Write is
	// not atomic.
	Write(ctx context.Context, part int, rows []store.Row) error
}

// These are the reasons why an entry of the bucket cannot be written back to the store that its rows came from.
const (
	NoRow    Refusal = "no row of the given partitions can have this key"
	NoHome   Refusal = "it is new, and only the application knows which of the partitions has its row"
	NoValues Refusal = "its value does not fit the columns"
)

// clockSlack is how far the application's clocks may be behind the common time, by which the bucket's writes are timed.
// With a clock further behind, a row that is written back to the table could replace a newer write of the application.
const clockSlack = time.Second

// Back makes the target like the bucket: it writes missing and different rows, and deletes others. The target must also
// be the source in the options. If dry is true, Back only counts the changes.
//
// The application may go on writing to both, under two conditions: it writes to the bucket first, and its clocks are at
// most a second (clockSlack) behind.
func (a *Adoption) Back(ctx context.Context, target Target, dry bool) error {
	// Only the application's clocks order its writes to the target. So each page of the bucket begins with a mark (a
	// moment), and rows are written at a time X, somewhat before the mark. Every change that the application makes
	// after the page was read is newer than X in the target.
	//
	// A row of the target that is newer than X may have come meanwhile, or from a clock that is ahead. In this case
	// both sides are read again, the target first. The application writes to the bucket first, so a row that still
	// differs is older in the target. It is written or deleted at the first time that wins over the time seen in the
	// target.
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(a.merges())
	for _, s := range a.o.Spans {
		b := back{Adoption: a, target: target, dry: dry, changes: map[int][]store.Row{}}
		g.Go(func() error { return b.span(ctx, s) })
	}
	return g.Wait()
}

// BackCuts returns at most n-1 keys that divide the bucket b into intervals of about equal size, for Options.Spans of
// Back. Each of them is the key of an entry of the bucket for which the target can have a row.
func BackCuts(ctx context.Context, b *listing.Bucket, target Target, n int) (cuts [][]byte, err error) {
	points, err := b.SplitPoints(ctx, listing.Query{}, n)
	if err != nil {
		return nil, err
	}
	for _, point := range points { // A point may lie between keys.
		for item, err := range b.All(ctx, listing.Query{From: point, Limit: 1, KeysOnly: true}) {
			if err != nil {
				return nil, err
			}
			_, why := target.Home(item.Key)
			if why != NoRow && (len(cuts) == 0 || bytes.Compare(item.Key, cuts[len(cuts)-1]) > 0) {
				cuts = append(cuts, item.Key)
			}
		}
	}
	return cuts, nil
}

// back writes changes of the bucket back to a table, for the keys in one interval. It holds changes that are not
// written yet, and keys in which the two seemed to differ, which are read again.
type back struct {
	*Adoption
	target  Target
	dry     bool
	changes map[int][]store.Row // changes to write, by part
	held    int                 // bytes of the changes
	found   []suspect
}

func beforeMark(m door.Mark) store.Timestamp {
	return m.At() - store.Timestamp(clockSlack.Microseconds())
}

func (b *back) span(ctx context.Context, s Span) error {
	nextRow, stopRows := iter.Pull2(b.merged(ctx, s))
	defer stopRows()
	nextItem, stopItems := iter.Pull2(b.items(ctx, s, true))
	defer stopItems()
	row, err, isRow := nextRow()
	item, ierr, _ := nextItem()
	for {
		if err != nil || ierr != nil {
			return cmp.Or(err, ierr)
		}
		order := 0
		switch {
		case !isRow && item.Item == nil:
			return cmp.Or(b.flush(ctx), b.settleBack(ctx))
		case !isRow:
			order = 1
		case item.Item == nil:
			order = -1
		default:
			order = bytes.Compare(row.Key, item.Key)
		}
		var failed error
		switch {
		case order > 0:
			failed = b.missing(ctx, item)
		case order < 0:
			failed = b.extra(ctx, row, item.at)
		case row.Refused == "" && b.o.Source.Same(row.Value, item.Value):
		default:
			failed = b.differs(ctx, row, item.Key, item.Value, item.at)
		}
		if failed != nil {
			return failed
		}
		if order <= 0 {
			row, err, isRow = nextRow()
		}
		if order >= 0 {
			item, ierr, _ = nextItem()
		}
	}
}

func (b *back) refuse(key []byte, why Refusal) {
	b.counts.Refused.Add(1)
	b.report(key, string(why))
}

// missing handles an entry of the bucket that the table lacks. It writes a row to the table, or reports why the table
// cannot have the row.
func (b *back) missing(ctx context.Context, item paged) error {
	part, why := b.target.Home(item.Key)
	if why == "" {
		why = b.target.Takes(item.Key, item.Value)
	}
	if why != "" {
		b.refuse(item.Key, why)
		return nil
	}
	return b.change(ctx, part, entry(item.Key, item.Value, item.at))
}

// extra handles a row of the table whose key the bucket does not have. It deletes the row from the table if the row is
// older than the time `at`. A row of a kind that cannot be copied into the bucket is reported and left alone.
func (b *back) extra(ctx context.Context, row placed, at store.Timestamp) error {
	if row.Refused != "" {
		b.refuse(row.Key, row.Refused)
		return nil
	}
	return b.differs(ctx, row, row.Key, nil, at)
}

// differs makes the table have the bucket's value of a key, for which the table has another value. It writes the value
// at the time `at`. If value is nil, the bucket has no entry, and differs deletes the row. If the row in the table is
// not older than `at`, nothing is written, and the key is read again later.
func (b *back) differs(ctx context.Context, row placed, key, value []byte, at store.Timestamp) error {
	if value != nil {
		if why := b.target.Takes(key, value); why != "" {
			b.refuse(key, why)
			return nil
		}
	}
	if row.Time < at {
		return b.change(ctx, row.part, store.Row{Key: bytes.Clone(key), Value: value, Timestamp: at})
	}
	b.found = append(b.found, suspect{key: bytes.Clone(key), part: row.part})
	if len(b.found) < mostSuspects {
		return nil
	}
	return b.settleBack(ctx)
}

// change records one row to write to the table, in the partition with the number part. A row with a nil value is to be
// deleted. Changes are written in batches. A dry run only counts them.
func (b *back) change(ctx context.Context, part int, row store.Row) error {
	b.counts.Different.Add(1)
	if row.Value == nil {
		b.counts.Deleted.Add(1)
	} else {
		b.counts.Put.Add(1)
	}
	if b.dry {
		return nil
	}
	b.changes[part] = append(b.changes[part], row)
	b.held += len(row.Key) + len(row.Value)
	if len(b.changes[part]) < backRows && b.held < backBytes {
		return nil
	}
	return b.flush(ctx)
}

// backRows and backBytes are the limits of a batch of changes that is written to a table: the number of rows of one
// partition, and about the number of bytes of keys and values for all partitions.
const (
	backRows  = 200
	backBytes = 32 << 10
)

func (b *back) flush(ctx context.Context) error {
	for part, rows := range b.changes {
		if err := b.write(ctx, part, rows); err != nil {
			return err
		}
		delete(b.changes, part)
	}
	b.held = 0
	return nil
}

// write writes rows to the partition of the table with the number part. If the table refuses the batch as invalid,
// write halves it again and again to find the rows that are refused, and reports these.
func (b *back) write(ctx context.Context, part int, rows []store.Row) error {
	err := b.patiently(ctx, func() error { return b.target.Write(ctx, part, rows) })
	if store.KindOf(err) != store.InvalidArgument {
		return err
	}
	if len(rows) == 1 && rows[0].Value != nil {
		b.counts.Different.Add(-1)
		b.counts.Put.Add(-1)
		b.refuse(rows[0].Key, NoValues+": "+Refusal(err.Error()))
		return nil
	}
	if len(rows) == 1 {
		return err
	}
	return cmp.Or(b.write(ctx, part, rows[:len(rows)/2]), b.write(ctx, part, rows[len(rows)/2:]))
}

// settleBack reads again the keys in which the table and the bucket seemed to differ, the table first. Where they still
// differ, it makes the row of the table like the bucket's entry.
func (b *back) settleBack(ctx context.Context) error {
	found := b.found
	if b.found = nil; len(found) == 0 {
		return nil
	}
	var all []both
	var at store.Timestamp
	err := b.patiently(ctx, func() error {
		m, err := door.Bucket(b.o.Bucket).Mark(ctx)
		if err == nil {
			at = beforeMark(m)
			all, err = b.readBoth(ctx, found, thereFirst)
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := range all {
		row, key := &all[i], found[i].key
		if !row.isThere && !row.isHere || row.isThere && row.isHere && b.o.Source.Same(row.here.Value, row.there.Value) {
			continue
		}
		change := store.Row{Key: key, Timestamp: max(at, row.there.Time)} // if the times are equal, a deletion wins
		if row.isHere {
			change = entry(key, row.here.Value, max(at, row.there.Time+1))
		}
		if err := b.change(ctx, found[i].part, change); err != nil {
			return err
		}
	}
	return b.flush(ctx)
}
