package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/store"
)

// checkEvery is the number of stored rows after which a scan checks whether its context has ended.
const checkEvery = 1 << 12

// Slice returns one page of the rows of the partition p within the interval of keys b. It reads a snapshot of the
// partition, so the page shows each write as a whole or not at all. It implements store.Rows.
func (s *directory) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if err := s.enter(ctx, storekit.CheckSlice(b, o)); err != nil {
		return store.Page{}, s.wrap("slice", p, err)
	}
	defer s.leave()
	page, err := s.slice(ctx, p, b, o)
	if err == nil && s.locks.partition(p).unsynced.Load() != 0 {
		err = s.settle(ctx)
	}
	if err != nil {
		return store.Page{}, s.wrap("slice", p, err)
	}
	return page, nil
}

func (s *directory) slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (page store.Page, err error) {
	var short [512]byte
	lower, upper := boundKeys(short[:0], p, b)
	if string(lower) >= string(upper) {
		return page, nil
	}
	jump := jumper{p: p}
	if o.Sift != nil && !o.Reverse && hasGroups(s.format) {
		upper = jump.byGroups(upper)
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return page, err
	}
	jump.it = it
	defer func() {
		err = errors.Join(err, it.Close())
		s.jumped(jump.jumps)
	}()

	var more bool
	if o.Reverse {
		more = it.Last()
	} else {
		more = it.First()
	}
	var a arena
	limit := storekit.PageBytes(&o)
	for seen := 1; more && !jump.atEnd(); seen++ {
		if seen%checkEvery == 0 && ctx.Err() != nil {
			return page, ctx.Err()
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return page, err
		}
		var passed []byte
		if r, ok := decodeStored(v); !ok {
			return page, corruptRow(p, it.Key()[prefixBytes:])
		} else if r.kind == rowLive {
			if page.Rows == nil {
				if page.Rows = o.Into[:0]; cap(page.Rows) == 0 {
					page.Rows = make([]store.Row, 0, min(o.Limit, 1024))
				}
				a.free = make([]byte, 0, s.expectedBytes(&o))
			}
			pass := 0
			if o.Sift != nil && !o.Reverse {
				var keep int
				pass, keep = o.Sift(it.Key()[prefixBytes:], r.cell)
				r.cell = r.cell[:min(keep, len(r.cell))]
			}
			n := len(page.Rows)
			page.Rows = slices.Grow(page.Rows, 1)[:n+1]
			row := &page.Rows[n]
			row.Key, row.Value = a.keep(it.Key()[prefixBytes:], r.cell)
			row.Timestamp = 0 // o.Into may hold anything
			if o.Timestamps {
				row.Timestamp = r.ts
			}
			if n+1 == o.Limit || a.used >= limit {
				page.More = true
				break
			}
			if pass > 0 {
				passed = row.Key[:pass]
			}
		}
		switch {
		case o.Reverse:
			more = it.Prev()
		case passed == nil:
			more = it.Next()
		default:
			more = jump.over(passed)
		}
	}
	if err := it.Error(); err != nil {
		return page, err
	}
	if n := len(page.Rows); n >= 64 {
		s.rowBytes.Store(int64(a.used / n))
	}
	return page, nil
}

// A jumper skips runs of rows that a listing does not show, whose keys share a prefix. It first reads a few rows
// singly, in case the run is short. Then it searches for the first row behind the run or, if the run is a group (the
// versions of one object), takes Pebble's step to the next group.
//
// A jump costs as much as reading some rows. After a long run the jumper expects more long runs, and reads rows first
// only in one of every tryAgain runs. Jumps in sequence are also faster: Pebble searches from the position of the last
// search.
type jumper struct {
	it    *pebble.Iterator
	p     store.Partition
	key   []byte
	group bool   // Pebble knows groups in this directory
	end   []byte // the end of the rows, within the last group of the iterator; nil if the iterator's bound is the end
	first int    // the number of the run in which the jumper reads a few rows first again
	n     int    // runs passed over until now
	jumps int    // jumps until now
}

const (
	// fewNexts is the number of rows that take no longer to read singly than a search takes.
	fewNexts = 16
	// tryAgain is the number of runs after which the jumper reads a few rows singly again before it jumps.
	tryAgain = 16
)

// byGroups makes the jumper go from one group of rows (the versions of one object) to the next by Pebble's own step.
// The parameter upper is the stored key at which the rows to read end. The iterator needs another upper bound instead,
// which divides no group; byGroups returns it.
func (j *jumper) byGroups(upper []byte) []byte {
	j.group = true
	n := groupLen(upper)
	if n == len(upper) {
		return upper
	}
	j.end = upper
	return appendNextGroup(nil, upper[:n])
}

// atEnd reports whether the iterator has reached the end of the rows to read. The end may come before the upper bound
// of the iterator, which must not divide a group of rows.
func (j *jumper) atEnd() bool { return j.end != nil && string(j.it.Key()) >= string(j.end) }

// over skips the rows whose keys begin with prefix, which a listing does not show. It moves the iterator from the first
// of these rows to the first row behind them. It returns false if no row is behind them.
func (j *jumper) over(prefix []byte) bool {
	nexts, group := fewNexts, j.group && endsGroup(prefix)
	if group {
		nexts = 1
	}
	if j.n++; j.n < j.first {
		nexts = 0
	}
	for range nexts {
		if !j.it.Next() {
			return false
		}
		if !bytes.HasPrefix(j.it.Key()[prefixBytes:], prefix) {
			return true
		}
	}
	if j.jumps++; nexts > 0 {
		j.first = j.n + tryAgain
	}
	if group && groupLen(j.it.Key()) == prefixBytes+len(prefix) {
		return j.it.NextPrefix()
	}
	// prefix may lie in the memory of the row, so it is not changed here.
	end := len(prefix)
	for end > 0 && prefix[end-1] == 0xff { // bytes.TrimRight takes other bytes that are no UTF-8 for the same
		end--
	}
	if end == 0 {
		return false
	}
	j.key = appendRowKey(j.key[:0], j.p, prefix[:end])
	j.key[len(j.key)-1]++
	return j.it.SeekGE(j.key)
}

// expectedBytes returns an estimate of the bytes of a page that is read with the options o. It is based on the mean
// size of the rows in a recent page.
func (s *directory) expectedBytes(o *store.SliceOptions) int {
	each := int(s.rowBytes.Load())
	return min(o.Limit*(each+each/16)+256, storekit.PageBytes(o))
}

// An arena is memory for the keys and values of one page of rows, allocated in chunks. The bytes in an arena never
// move, so the rows of the page may refer to them.
type arena struct {
	free []byte
	used int
}

func (a *arena) keep(k, v []byte) (key, value []byte) {
	n := len(k) + len(v)
	a.used += n
	if cap(a.free)-len(a.free) < n {
		a.free = make([]byte, 0, max(n, cap(a.free)/2, 4096))
	}
	i := len(a.free)
	a.free = append(append(a.free, k...), v...)
	j := i + len(k)
	return a.free[i:j:j], a.free[j : i+n : i+n]
}

// Partitions returns at most limit partitions that have at least one live row, in the order of their addresses, after
// the partition after (zero: from the first). It implements store.PartitionLister.
func (s *directory) Partitions(ctx context.Context, after store.Partition, limit int) ([]store.Partition, error) {
	if err := s.enter(ctx, storekit.CheckLimit(limit)); err != nil {
		return nil, s.wrap("list partitions after", after, err)
	}
	defer s.leave()
	ps, err := s.partitions(ctx, after, limit)
	if err == nil {
		err = s.settleAll(ctx)
	}
	return ps, s.wrap("list partitions after", after, err)
}

func (s *directory) partitions(ctx context.Context, last store.Partition, limit int) (ps []store.Partition, err error) {
	lower := []byte{tableRows}
	if last != (store.Partition{}) {
		lower = store.PrefixEnd(appendPrefix(nil, tableRows, last))
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: []byte{tableRows + 1}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	more := it.First()
	for seen := 1; more && len(ps) < limit; seen++ {
		if seen%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if len(it.Key()) < prefixBytes {
			return nil, store.Errorf(store.Corrupt, "a stored row's key has %d bytes", len(it.Key()))
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		if len(v) > 0 && v[0] == rowLive {
			p := partitionOf(it.Key())
			ps = append(ps, p)
			more = it.SeekGE(store.PrefixEnd(appendPrefix(nil, tableRows, p)))
		} else {
			more = it.Next()
		}
	}
	return ps, it.Error()
}

// settleAll waits until everything in the store that was visible before the call is synced. It returns at once if all
// writes are synced.
func (s *directory) settleAll(ctx context.Context) error {
	if s.locks.unsynced.Load() == 0 {
		return nil
	}
	return s.settle(ctx)
}
