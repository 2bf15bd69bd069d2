package cassandrastore

import (
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

const (
	// mostFailedReads bounds the failed reads of one slice; the next one begins with the
	// cuts that it found.
	mostFailedReads = 400
	// mostDoubts is how often in a row a part is halved without a read, because the part
	// that it came from could not be read.
	mostDoubts = 3
)

// partPage is the result of one request: a page, and the bounds beyond it.
type partPage struct {
	store.Page
	rest store.Bounds
}

// part is an interval of keys still to be read.
type part struct {
	store.Bounds
	// suspect counts the halvings since a read of an interval around this one failed,
	// if all reads within that interval since were empty: its dead rows are then most
	// likely in this part. 0: nothing is known.
	suspect int
}

// sliceInParts reads a page by one request or, where replicas refuse that, by several for
// smaller intervals.
//
// Replicas refuse a read that meets more than tombstone_failure_threshold dead rows (100,000).
// Then the interval is halved, and halved again, until its parts can be read. The cuts are
// remembered, so that the next slice reads in parts from the start. An empty part is read again
// each time, since a row may have been put there meanwhile. The page is that of the first part
// with rows, so it is still of one request.
func sliceInParts(
	known *partitionMemory, b store.Bounds, o store.SliceOptions, read func(store.Bounds) (partPage, error),
) (store.Page, error) {
	// A stack: the last part is read next.
	var parts []part
	for _, bounds := range inParts(b, known.cuts()) {
		parts = append(parts, part{Bounds: bounds})
	}
	if !o.Reverse {
		slices.Reverse(parts)
	}
	failed := 0
	for len(parts) > 0 {
		last := len(parts) - 1
		next := parts[last]
		parts = parts[:last]
		if first, second, ok := halve(next.Bounds); ok && next.suspect > 0 && next.suspect <= mostDoubts {
			parts = known.push(parts, o, first, second, next.suspect+1)
			continue
		}
		page, err := read(next.Bounds)
		switch {
		case err == nil && len(page.Rows) > 0:
			page.More = page.More || len(parts) > 0
			return page.Page, nil
		case err == nil && page.More: // only foreign rows, and more behind them
			parts = append(parts, part{Bounds: page.rest})
		case err == nil:
		case readFailed(err):
			failed++
			first, second, ok := halve(next.Bounds)
			if !ok || failed > mostFailedReads {
				return store.Page{}, store.Errorf(store.TooMuchDeadData,
					"replicas can't read it even in small parts: too many tombstones (repair, then compact the table), "+
						"or a damaged sstable (see their logs): %w", err)
			}
			if last > 0 {
				parts[last-1].suspect = 0 // the dead rows are in this part
			}
			parts = known.push(parts, o, first, second, 1)
		default:
			return store.Page{}, err
		}
	}
	return store.Page{}, nil
}

// push remembers a cut and puts both sides of it on the stack.
func (k *partitionMemory) push(parts []part, o store.SliceOptions, low, high store.Bounds, suspect int) []part {
	k.cut(high.Start)
	if o.Reverse {
		low, high = high, low
	}
	return append(parts, part{high, suspect}, part{low, 0})
}
