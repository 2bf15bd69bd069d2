package cassandrastore

import (
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

const (
	// mostFailedReads is the most failed reads of one slice. The next slice begins with the cuts that this slice has
	// found.
	mostFailedReads = 400
	// mostDoubts is how often in a row a part is halved without a read, because the part from which it was cut could
	// not be read.
	mostDoubts = 3
)

// partPage is what one request has read: a page of rows, and the rest, which is the interval of keys behind the page.
type partPage struct {
	store.Page
	rest store.Bounds
}

// part is an interval of keys that a slice has still to read.
type part struct {
	store.Bounds
	// suspect is the number of halvings since a read of a larger interval around this part failed. It counts only while
	// all later reads within that interval were empty: then the dead rows are most likely in this part. 0: nothing is
	// known.
	suspect int
}

// sliceInParts returns a page of rows within the bounds b. The function read makes one request for an interval of keys.
// If replicas refuse the request for b, sliceInParts makes several requests for smaller intervals.
//
// Replicas refuse a read that meets more than tombstone_failure_threshold dead rows (100,000). Then the interval is
// halved, and halved again, until its parts can be read. The cuts are kept in known, so that the next slice reads in
// parts from the start. An empty part is read again each time, since a row may have been put there meanwhile. The page
// is that of the first part that has rows, so all its rows are still from one request.
func sliceInParts(
	known *partitionMemory, b store.Bounds, o store.SliceOptions, read func(store.Bounds) (partPage, error),
) (store.Page, error) {
	// parts is a stack: the last part is read next.
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
		case err == nil && page.More: // the rows so far are all foreign, and more rows follow
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

// push adds two neighbouring intervals of keys, low and high, to the stack of the parts that are still to be read. The
// part to be read first comes on top; suspect is its number of halvings since a read failed. push also stores the key
// between the two, so that later reads are cut there, too. It returns the longer stack.
func (k *partitionMemory) push(parts []part, o store.SliceOptions, low, high store.Bounds, suspect int) []part {
	k.cut(high.Start)
	if o.Reverse {
		low, high = high, low
	}
	return append(parts, part{high, suspect}, part{low, 0})
}
