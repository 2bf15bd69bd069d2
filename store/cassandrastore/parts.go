package cassandrastore

import (
	"slices"

	"github.com/evenkeel/evenkeel/store"
)

const (
	// mostFailedReads is the largest number of failed reads for one page of rows. After more, the page fails with
	// TooMuchDeadData. The read of the next page begins with the smaller intervals that were found so far.
	mostFailedReads = 400
	// mostDoubts is the largest number of times in a row that an interval of keys is halved without a read. An interval
	// is halved in this way if it comes from a larger interval that could not be read. After mostDoubts halvings a read
	// is tried.
	mostDoubts = 3
)

// partPage is the result of one request for rows: a page of rows, and the rest, which is the interval of keys behind
// the page.
type partPage struct {
	store.Page
	rest store.Bounds
}

// part is an interval of keys whose rows have still to be read for the present page.
type part struct {
	store.Bounds
	// suspect says whether the interval probably has too many tombstones to read. It is 0 if nothing is known.
	// Otherwise the read of a larger interval around it has failed, and suspect is the number of times that the larger
	// interval was halved since.
	suspect int
}

// sliceInParts returns a page of rows within the interval of keys b, even if the interval has many deleted rows. A
// replica refuses a read that meets more than 100,000 of them (tombstone_failure_threshold). After such a refusal,
// sliceInParts reads smaller intervals instead, and the page has the rows of the first interval that has any. The
// function read makes one request for an interval. The parameter known is what earlier reads have shown about the
// partition.
func sliceInParts(
	known *partitionMemory, b store.Bounds, o store.SliceOptions, read func(store.Bounds) (partPage, error),
) (store.Page, error) {
	// An interval that replicas refuse to read is halved, and halved again, until its parts can be read. The keys at
	// which it was cut are kept in known, so that the next page is read in smaller intervals from the start. An empty
	// interval is read again each time, since a row may have been put there meanwhile. All rows of a page are still
	// from one request.
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

// push adds two neighbouring intervals of keys, low and high, to parts, a stack of the intervals that are still to be
// read. It returns the longer stack, with the interval to be read first on top. The parameter suspect is how often the
// other interval was halved since a read failed. push also remembers the key between low and high, so that later reads
// are cut there, too.
func (k *partitionMemory) push(parts []part, o store.SliceOptions, low, high store.Bounds, suspect int) []part {
	k.cut(high.Start)
	if o.Reverse {
		low, high = high, low
	}
	return append(parts, part{high, suspect}, part{low, 0})
}
