package growing

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// oracle knows all keys that are ever put, and which are there.
type oracle struct {
	keys [][]byte // sorted
	ack  []atomic.Bool
	tree []atomic.Int32 // a Fenwick tree of how many are there
	n    atomic.Int64
}

func newOracle(keys [][]byte) *oracle {
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	return &oracle{keys: keys, ack: make([]atomic.Bool, len(keys)), tree: make([]atomic.Int32, len(keys)+1)}
}

func (o *oracle) rank(key []byte) int {
	i, _ := slices.BinarySearchFunc(o.keys, key, bytes.Compare)
	return i
}

// put notes that a key is there.
func (o *oracle) put(key []byte) {
	i := o.rank(key)
	if o.ack[i].Swap(true) {
		return
	}
	o.n.Add(1)
	for i++; i < len(o.tree); i += i & -i {
		o.tree[i].Add(1)
	}
}

// below is how many keys below the rank are there.
func (o *oracle) below(rank int) (n int64) {
	for i := rank; i > 0; i -= i & -i {
		n += int64(o.tree[i].Load())
	}
	return n
}

// within is how many keys of [start, end) are there; an empty end is plus infinity.
func (o *oracle) within(start, end []byte) int64 {
	to := len(o.keys)
	if len(end) > 0 {
		to = o.rank(end)
	}
	return o.below(to) - o.below(o.rank(start))
}

// watch is what was seen of the sizes of ranges while a bucket grew.
type watch struct {
	w     *world
	o     *oracle
	limit int64

	mu sync.Mutex
	// over is since when a range has more rows than the limit, by its start; longest is the longest that one had.
	over    map[string]time.Time
	longest time.Duration
	largest int64 // the most rows of a range
	looks   int
	failed  error
}

func newWatch(w *world, o *oracle, limit int64) *watch {
	return &watch{w: w, o: o, limit: limit, over: map[string]time.Time{}}
}

// run looks at all ranges each half second until done is closed.
func (x *watch) run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(500 * time.Millisecond):
		}
		ranges, err := x.w.ranges()
		now := time.Now()
		x.mu.Lock()
		if err != nil {
			x.failed = err
			x.mu.Unlock()
			continue
		}
		x.looks++
		over := map[string]time.Time{}
		for i := range ranges {
			rg := &ranges[i]
			n := x.o.within(rg.Start, rg.End)
			x.largest = max(x.largest, n)
			if n <= x.limit {
				continue
			}
			since, ok := x.over[string(rg.Start)]
			if !ok {
				since = now
			}
			over[string(rg.Start)] = since
			x.longest = max(x.longest, now.Sub(since))
		}
		x.over = over
		x.mu.Unlock()
	}
}

// listings reads pages from anywhere until done is closed, and compares them with what
// was there before they began.
func (x *watch) listings(done <-chan struct{}) {
	const page = 500
	at := 0
	for {
		select {
		case <-done:
			return
		case <-time.After(200 * time.Millisecond):
		}
		at = (at + len(x.o.keys)*377/1000 + 1) % len(x.o.keys)
		to := min(len(x.o.keys), at+4*page)
		before := make([]bool, to-at)
		for i := range before {
			before[i] = x.o.ack[at+i].Load()
		}
		got, err := x.w.bucket.List(x.w.Context(), listing.Query{After: x.o.keys[at], Limit: page})
		if err != nil {
			select {
			case <-done: // the test has ended
			default:
				x.fail(err)
			}
			return
		}
		there := map[string]bool{}
		var last []byte
		for i := range got.Items {
			k := got.Items[i].Key
			if bytes.Compare(k, last) <= 0 {
				x.fail(store.Errorf(store.Corrupt, "listed %q after %q", k, last))
			}
			there[string(k)] = true
			last = k
		}
		for i := at + 1; i < to; i++ {
			k := x.o.keys[i]
			if len(got.Next) > 0 && bytes.Compare(k, last) > 0 {
				break
			}
			if before[i-at] && !there[string(k)] {
				x.fail(store.Errorf(store.Corrupt, "%q was there and is not listed", k))
			}
		}
	}
}

func (x *watch) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed == nil {
		x.failed = err
	}
}

// sizes are the rows of all ranges now.
func (x *watch) sizes() (out []int64) {
	ranges, err := x.w.ranges()
	require.NoError(x.w, err)
	for i := range ranges {
		out = append(out, x.o.within(ranges[i].Start, ranges[i].End))
	}
	return out
}

// complete compares the whole listing with the oracle.
func (x *watch) complete() {
	i := 0
	for e, err := range x.w.bucket.All(x.w.Context(), listing.Query{}) {
		require.NoError(x.w, err)
		require.Less(x.w, i, len(x.o.keys), "too many keys")
		if !bytes.Equal(x.o.keys[i], e.Key) {
			require.Equal(x.w, string(x.o.keys[i]), string(e.Key))
		}
		i++
	}
	require.Equal(x.w, len(x.o.keys), i)
}
