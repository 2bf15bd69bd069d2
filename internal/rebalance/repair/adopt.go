package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// The copy of a store is never of one moment: the map of a bucket may be older or newer than its rows. Call the moment
// of the rows M. In the map of M, each partition with rows was the home of ranges, or an end of moves in flight. So the
// rows of M are those of all partitions, named by the present map or not, if the newest row of each key counts and
// markers hide. The reason: in no phase is a row visible in a partition that readers ignore, if it was deleted in
// another one without a marker.
//
// Adopting brings all these rows under the present map. Each row keeps its timestamp. So nothing newer is hidden,
// tombstones at home still hide, and adopting again changes nothing.
//
// Adopting relies on one thing: sources are removed before the map forgets them. A removal can get lost, if its
// tombstone was collected, and a replica that had missed it came back. Then the source looks just like rows older than
// the map, and there is no trace of later deletions. So by default only partitions made after the map are adopted: they
// were never sources of a move whose end this map has seen.
//
// An older map would not help: which map fits the rows differs between partitions. Nor can orphans be named in the map:
// nobody knows where their ranges began and ended.
//
// If the rows of a home were moved away later, under a newer map, a removal covers the home: no row with an old
// timestamp is visible in it. So its range goes to a fresh partition first, if a note in the home proves the move (see
// note). A row that a removal without a note hides was deleted with a range of keys, or moved away by a program that is
// older than notes: it stays where it is.

// errGone is the error for a bucket that was deleted while it was checked. The check then leaves out the bucket.
var errGone = errors.New("the bucket is gone")

// lack is a row that readers do not find, because it is not in the partition where the bucket's partition map has its
// key. The field rg is the range of that key in the map.
type lack struct {
	bucket store.BucketID
	row    store.Row
	rg     partmap.Range
	to     store.PartitionID // the partition to which the row is copied: see places
}

// survey is what was found about a partition that has rows but no range in the bucket's partition map: how many rows it
// has, and how many of them readers do not find in another partition.
type survey struct {
	p             store.Partition
	rows, missing int64
	foreign       int64 // cells that are neither entries nor markers
	first         []byte
	newest        store.Timestamp
	lacks         []lack // some of the missing rows: the first of each range
}

// mostLacks is the maximum number of missing rows of one partition that are remembered, at most one of each range.
// Further ones are only counted. A missing row is one that readers do not find where the bucket's partition map says.
// The remembered rows help to prove when the partition was made.
const mostLacks = 64

// survey compares the rows of p, a partition that has no range in the bucket's partition map, with the partitions in
// which readers look for these rows. It counts the rows that readers do not find.
func (c *Checker) survey(ctx context.Context, p store.Partition) (*survey, error) {
	o := &survey{p: p}
	err := c.pages(ctx, p, func(rows []store.Row) error {
		if o.rows == 0 {
			o.first = bytes.Clone(rows[0].Key)
		}
		o.rows += int64(len(rows))
		for i := range rows {
			o.newest = max(o.newest, rows[i].Timestamp)
			if _, _, err := store.EntryValue(rows[i].Value); err != nil {
				o.foreign++
			}
		}
		missing, _, err := c.missing(ctx, p.Bucket, rows)
		o.missing += int64(len(missing))
		for _, l := range missing {
			if n := len(o.lacks); n == 0 || n < mostLacks && string(o.lacks[n-1].rg.Start) != string(l.rg.Start) {
				l.row.Key, l.row.Value = bytes.Clone(l.row.Key), bytes.Clone(l.row.Value)
				o.lacks = append(o.lacks, l)
			}
		}
		return err
	})
	return o, err
}

// missing returns those of the given rows of the bucket id that readers do not find. A reader looks for a row in the
// partition that has its key by the bucket's partition map, or in two partitions during some phases of a move. The row
// is missing if none of them has the row or a newer one. The rows must be in ascending order of keys. The second result
// is the root of the map. If rows are missing, this root was still the newest after the reads. The error is errGone if
// the bucket is deleted or has no root.
func (c *Checker) missing(ctx context.Context, id store.BucketID, rows []store.Row) ([]lack, *partmap.Root, error) {
	for {
		root, err := c.root(ctx, id)
		if notFound(err) || err == nil && root.State == partmap.Deleted {
			return nil, nil, errGone
		}
		if err != nil {
			return nil, nil, err
		}
		out, err := c.lacking(ctx, root, rows)
		if errors.Is(err, mapclient.ErrStale) {
			continue
		}
		if err != nil || len(out) == 0 {
			return out, root, err
		}
		// A row that is not where this root says may be where a newer root says.
		now, err := c.root(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		if now.Version() == root.Version() {
			return out, root, nil
		}
	}
}

func (c *Checker) lacking(ctx context.Context, root *partmap.Root, rows []store.Row) (out []lack, err error) {
	for len(rows) > 0 {
		rg, err := c.rangeOf(ctx, root, rows[0].Key)
		if err != nil {
			return nil, err
		}
		n := 1
		for n < len(rows) && rg.Contains(rows[n].Key) {
			n++
		}
		found := make([]bool, n)
		for _, id := range shown(&rg) {
			if err := c.find(ctx, store.Partition{Bucket: root.Bucket, ID: id}, rows[:n], found); err != nil {
				return nil, err
			}
		}
		for i := range n {
			if !found[i] {
				out = append(out, lack{bucket: root.Bucket, row: rows[i], rg: rg})
			}
		}
		rows = rows[n:]
	}
	return out, nil
}

// shown returns the ids of the partitions in which readers look for rows of the range rg: one partition, or two during
// some phases of a move.
func shown(rg *partmap.Range) (ids []store.PartitionID) {
	rules := rg.Phase.Rules()
	if rules.ReadSource {
		ids = append(ids, rg.Partition)
	}
	if rules.ReadDestination {
		ids = append(ids, rg.To)
	}
	return ids
}

// find looks for the given rows in the partition p. For each row i, it sets found[i] to true if p has this row, or a
// newer row with the same key. The rows must be in ascending order of keys.
func (c *Checker) find(ctx context.Context, p store.Partition, rows []store.Row, found []bool) error {
	return c.match(ctx, p, rows, func(i int, theirs *store.Row) error {
		found[i] = found[i] || !storekit.Newer(&rows[i], theirs)
		return nil
	})
}

// match calls f for each of the given rows whose key is also in the partition p. The arguments of f are the index of
// the row, and the row with the same key in p. The given rows must be in ascending order of keys.
func (c *Checker) match(
	ctx context.Context, p store.Partition, rows []store.Row, f func(i int, theirs *store.Row) error,
) error {
	const few = 16 // up to this number, rows are read one by one
	if len(rows) <= few {
		for i := range rows {
			theirs, there, err := c.get(ctx, p, rows[i].Key)
			if err == nil && there {
				err = f(i, &theirs)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	b := store.Bounds{Start: rows[0].Key}
	if last := rows[len(rows)-1].Key; len(last) < store.MaxKeyBytes {
		b.End = append(bytes.Clone(last), 0)
	}
	i := 0
	return c.pagesWithin(ctx, p, b, func(theirs []store.Row) error {
		for j := range theirs {
			for i < len(rows) && string(rows[i].Key) < string(theirs[j].Key) {
				i++
			}
			if i == len(rows) || string(rows[i].Key) != string(theirs[j].Key) {
				continue
			}
			if err := f(i, &theirs[j]); err != nil {
				return err
			}
		}
		return nil
	})
}

// origin says what is proven about a partition that has rows but no range in the bucket's partition map: whether the
// partition was made before or after the map. The proof comes from the map and its older versions.
type origin uint8

const (
	// unproven means that neither is proven.
	unproven origin = iota
	// madeBefore means that an older partition map named the partition, so the partition is the old partition of a
	// move. Either its rows are older than the map, or deleted rows came back.
	madeBefore
	// madeLater means that the partition was made after the partition map, so the map is older than the rows.
	madeLater
)

// todo returns advice for an operator about a partition that has rows but no range. o says when the partition was made,
// on which the advice depends.
func (o origin) todo() string {
	const all = "--adopt-all copies them to where the map says. If nothing was restored they are deleted rows that" +
		" came back" +
		" (see \"Repair\" in docs/damage.md): --discard PARTITION removes them"
	switch o {
	case madeLater:
		return "end all servers, then --adopt copies them to where the map says, with their own timestamps"
	case madeBefore:
		return "if the rows were restored from an older copy than the maps: end all servers, then " + all
	}
	return "if the store was restored from a copy: end all servers, then --adopt, which looks for proof that the" +
		" map is older, or without proof " + all
}

// origin finds out whether a partition that has rows but no range was made before or after the present partition map of
// the bucket. The parameter o describes the partition and its rows. The text among the results is the reason, for
// people.
func (c *Checker) origin(ctx context.Context, o *survey) (origin, string, error) {
	const later = "The map is older than this partition: "
	id, key := o.p.Bucket, o.lacks[0].row.Key
	if rg := &o.lacks[0].rg; rg.Batch == 0 {
		return madeLater, later + "their range never moved, as far as this map knows", nil
	}
	root, err := c.root(ctx, id)
	if err != nil {
		return unproven, "", err
	}
	oldest := root
	for rec, err := range c.history(ctx, id, root.Epoch) {
		if err != nil {
			return unproven, "", err
		}
		if rec.Epoch != oldest.Epoch-1 {
			break
		}
		old, err := partmap.DecodeRoot(id, rec)
		if err != nil {
			break // the partitions that it named are unknown
		}
		rg, err := firstRange(old, partmap.Ranges(old, c.reader(ctx, id), key, nil))
		if k := store.KindOf(err); err != nil && k != store.NotFound && k != store.Corrupt {
			return unproven, "", err
		}
		if err != nil {
			break
		}
		if rg.Partition == o.p.ID || rg.To == o.p.ID {
			return madeBefore, fmt.Sprintf("It is the old source of a move: the map named it until epoch %d, which"+
				" ended at %s",
				old.Epoch, inText(oldest.ChangedAt)), nil
		}
		oldest = old
	}
	if oldest.Epoch == 1 {
		return madeLater, later + "none since the bucket was made names it", nil
	}
	if int64(o.newest) > oldest.ChangedAt+c.o.Skew.Microseconds() {
		return madeLater, fmt.Sprintf("%srows were written to it at %s, though none names it since %s", later,
			inText(int64(o.newest)), inText(oldest.ChangedAt)), nil
	}
	return unproven, fmt.Sprintf("Whether it was made before or after the map can't be told: none names it since %s",
		inText(oldest.ChangedAt)), nil
}

func inText(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }

// orphan is a partition that no partition map names, with rows that readers find in no other partition. Such partitions
// appear when a store was restored from copies of different moments.
type orphan struct {
	finding Finding
	*survey
	proven bool // the orphan is adopted; if false, proof is looked for first
	kept   int  // number of rows that stay in the orphan, because it is unknown whether they were deleted
}

// adoptBucket copies the rows of the orphans of one bucket to the partitions where the bucket's partition map says.
// Orphans are partitions that have rows but no range. Once all these rows are copied, it removes the orphans. Orphans
// for which there is no proof that the map is older stay, unless all are to be adopted (Options.Adopt). So does an
// orphan with rows that can't be copied, since a removal would hide them.
func (c *Checker) adoptBucket(ctx context.Context, id store.BucketID, orphans []orphan) {
	// The reason for the order: ranges may get fresh partitions meanwhile, and deletion markers that came from the
	// first orphans are deleted there. But these markers must still hide rows of the other orphans.
	c.prove(orphans)
	var err error
	before := c.Progress().Adopted
	for round := 0; err == nil; round++ {
		renewed := false
		if renewed, err = c.adoptRound(ctx, id, orphans); !renewed {
			break
		}
		if round == mostRounds {
			err = store.Errorf(store.Unavailable,
				"its ranges got fresh partitions %d times, and rows are hidden there again: do servers run?", round)
		}
	}
	copied := c.Progress().Adopted - before
	for i := range orphans {
		o := &orphans[i]
		if !o.proven || o.kept > 0 || err != nil {
			c.keep(id, unnamed)
		}
		if o.kept > 0 && err == nil {
			o.finding.Todo = keptTodo
			o.finding.Text = fmt.Sprintf("it has %d rows, and no range; a removal hides %d of them where the map says",
				o.rows, o.kept)
			c.report(o.finding)
			continue
		}
		var mend func() (string, error)
		if o.proven || err != nil {
			mend = func() (string, error) {
				if err == nil {
					err = c.remove(ctx, o.p)
				}
				return fmt.Sprintf("its rows are where the map says, and it is removed (of the whole bucket %d"+
					" rows were copied)", copied), err
			}
		}
		c.problem(ctx, o.finding, mend)
	}
}

// mostRounds is how often a repair may move ranges of one bucket to fresh partitions; after that it fails. It moves a
// range if a removal of keys in the old partition would hide rows that it puts back. Usually two times are enough: one
// for the ranges at rest, and one for moves in flight.
const mostRounds = 8

// keptTodo is advice for an operator about rows that can't be copied back, since a removal of their keys would hide
// them. Nothing shows whether these rows were moved or deleted, so the operator has to decide.
const keptTodo = "was the bucket purged, or does a rule of retention apply to it? Then --discard PARTITION removes" +
	" them: they are deleted. If the copy was made under a version that leaves no notes where it has moved ranges, and" +
	" a listing lacks these rows, restore it with that version"

// prove finds those orphans (partitions with rows but no range) whose rows are provably newer than the bucket's
// partition map, and sets their field proven. The proof is a chain of moves that the map does not know, from a
// partition in the map to the orphan. Each move has left a note: a row that says to which partition the rows of a range
// went.
func (c *Checker) prove(orphans []orphan) {
	for i := range orphans {
		o := &orphans[i]
		for j := 0; j < len(o.lacks) && !o.proven; j++ {
			o.proven = c.leads(&o.lacks[j], o.p.ID)
		}
	}
}

// adoptRound copies the rows of the proven orphans of a bucket once to where the bucket's partition map says. An orphan
// is a partition with rows but no range. The result renewed is true if ranges were moved to fresh partitions meanwhile.
// The caller must then call adoptRound again.
func (c *Checker) adoptRound(ctx context.Context, id store.BucketID, orphans []orphan) (renewed bool, err error) {
	for i := range orphans {
		o := &orphans[i]
		if !o.proven {
			continue
		}
		o.kept = 0
		err := c.pages(ctx, o.p, func(rows []store.Row) error {
			again, kept, err := c.adopt(ctx, id, rows)
			renewed = renewed || again
			o.kept += kept
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return renewed, nil
}

// adopt copies the given rows of the bucket id to the partitions where the bucket's partition map says. A row is left
// out if that partition has the same or a newer version of it, or if it is deleted there. The rows must be in ascending
// order of keys. The results are:
//   - renewed: true if some ranges got fresh partitions
//   - kept: the number of rows that were not copied, because a removal of keys would hide them. It is unknown whether
//     the removal deleted or moved these rows.
func (c *Checker) adopt(
	ctx context.Context, id store.BucketID, rows []store.Row,
) (renewed bool, kept int, err error) {
	dead := map[string]bool{} // keys that are hidden at home
	put := map[string]bool{}
	defer func() { c.count(&c.sum.Adopted, len(put)-len(dead)) }()
	var tried store.Version // the root by which the rows were put
	for {
		missing, root, err := c.missing(ctx, id, rows)
		if err != nil {
			return renewed, kept, err
		}
		left := missing[:0]
		for _, l := range missing {
			if !dead[string(l.row.Key)] {
				left = append(left, l)
			}
		}
		if len(left) == 0 {
			return renewed, kept, nil
		}
		if c.places(left) {
			if err := c.renew(ctx, root, nil); err != nil {
				return renewed, kept, err
			}
			renewed = true
			continue
		}
		if tried != root.Version() {
			if err := c.bring(ctx, id, left); err != nil {
				return renewed, kept, err
			}
			for _, l := range left {
				put[string(l.row.Key)] = true
			}
			tried = root.Version()
			continue
		}
		// These rows were put where this root says but are not there. So they are hidden.
		var empty []partmap.Range
		for i := range left {
			l := &left[i]
			if n := len(empty); n > 0 && string(empty[n-1].Start) == string(l.rg.Start) {
				continue
			}
			home := store.Partition{Bucket: id, ID: l.to}
			if _, moved := c.movedTo(home, l.row.Key); moved {
				empty = append(empty, l.rg)
				continue
			}
			removed, err := retried(ctx, c, func() (bool, error) {
				within := store.Bounds{Start: l.rg.Start, End: l.rg.End}
				return executor.Removed(ctx, c.rows, home, within, l.row.Key, l.row.Timestamp)
			})
			if err != nil {
				return renewed, kept, err
			}
			if removed {
				kept++
			}
			dead[string(l.row.Key)] = true
		}
		if len(empty) > 0 {
			if err := c.renew(ctx, root, empty); err != nil {
				return renewed, kept, err
			}
			renewed = true
		}
	}
}

// errKept is the error for a row that can't be copied to where the bucket's partition map says, since a removal of keys
// would hide the row there.
var errKept = store.Errorf(store.InvalidArgument, "a removal hides the row where the map says: it was deleted with a "+
	"range of keys, or moved by a program that left no note of it, and which of both can't be told; "+
	"--discard PARTITION removes it")

// adoptOne copies one row of the bucket id to the partition where the bucket's partition map says. It returns errKept
// if the row must stay where it is.
func (c *Checker) adoptOne(ctx context.Context, id store.BucketID, row *store.Row) error {
	_, kept, err := c.adopt(ctx, id, []store.Row{*row})
	if err == nil && kept > 0 {
		err = errKept
	}
	return err
}

// places chooses the partition to which each missing row is copied, and stores it in the field `to`:
//   - If the range of the row does not move, the row goes to the range's partition.
//   - If the range moves, the row goes to the old partition, and the move copies it on.
//   - If readers already read only the new partition, the row goes to the new partition.
//
// The result `behind` is true if a range has already left a partition from which, by the partition map, it is still
// being copied. The caller must then end the moves in flight first.
func (c *Checker) places(lacks []lack) (behind bool) {
	// If such a move went on, a row put into the old partition might be visible, and its copy be hidden if the new
	// partition was emptied later.
	for i := range lacks {
		l := &lacks[i]
		l.to = l.rg.Partition
		switch {
		case l.rg.To.IsZero():
		case !l.rg.Phase.Rules().ReadSource:
			l.to = l.rg.To
		case !behind:
			_, behind = c.movedTo(store.Partition{Bucket: l.bucket, ID: l.to}, l.row.Key)
		}
	}
	return behind
}

// bring writes the missing rows in lacks to the partitions that the method places has chosen for them, in batches of
// limited size.
func (c *Checker) bring(ctx context.Context, id store.BucketID, lacks []lack) error {
	const most, mostBytes = 200, 1 << 20
	for len(lacks) > 0 {
		to := store.Partition{Bucket: id, ID: lacks[0].to}
		var batch []store.Row
		size := 0
		for len(lacks) > 0 && len(batch) < most && lacks[0].to == to.ID {
			row := &lacks[0].row
			size += len(row.Key) + len(row.Value)
			if len(batch) > 0 && size > mostBytes {
				break
			}
			value, live, err := store.EntryValue(row.Value)
			if err != nil {
				return err
			}
			here := store.Row{Key: row.Key, Value: row.Value, Timestamp: row.Timestamp}
			if live {
				here.Value = store.EntryCell(value) // the row is no longer a copy
			} else {
				c.mark(to, "")
			}
			batch, lacks = append(batch, here), lacks[1:]
		}
		if err := c.retry(ctx, func() error { return c.rows.Put(ctx, to, batch...) }); err != nil {
			return err
		}
	}
	return nil
}

// renew makes room for rows that would be hidden by an earlier removal of their keys. If moves of the bucket are in
// flight, it ends these moves. If none are, it moves the given ranges to fresh partitions, in which there are no
// removals. renew fails with InvalidArgument if the bucket has misplaced rows, which such a move would remove.
func (c *Checker) renew(ctx context.Context, root *partmap.Root, ranges []partmap.Range) error {
	if c.keeps(root.Bucket)&misplaced != 0 {
		return store.Errorf(store.InvalidArgument,
			"the bucket has misplaced rows, which a move of their partition would remove: --adopt-all copies them"+
				" first")
	}
	x := executor.New(c.s, c.maps, root.Bucket, executor.Options{Now: c.o.Now})
	if len(root.Batches) == 0 {
		for i := range ranges {
			x.Add(move.Refresh(&ranges[i]))
		}
	}
	return x.Run(ctx)
}
