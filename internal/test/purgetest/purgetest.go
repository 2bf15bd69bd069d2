// Package purgetest tests deletions of ranges of keys, by comparing listings with a record of what was put and deleted.
package purgetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

// purgeTime is a tick of a counter that counts the begins and ends of calls. The end of a call of unknown outcome is
// never.
type purgeTime = int64

const never = math.MaxInt64

// A purgedPut is a put of a key. Each key has only one writer.
type purgedPut struct{ begin, end purgeTime }

// A purgedRange is a deletion of the keys from <= key < to. The field done is true if the deletion has succeeded.
type purgedRange struct {
	from, to   int
	begin, end purgeTime
	done       bool
}

// A purgedList is a listing of the keys from <= key < to. seen has, by key, the begin of the put whose value the
// listing shows.
type purgedList struct {
	from, to   int
	begin, end purgeTime
	seen       map[int]purgeTime
}

// purgeOracle records everything that was done to a bucket.
type purgeOracle struct {
	now atomic.Int64
	// puts has the puts of each writer, by key. Key k belongs to the writer k % len(puts). Every third key, as loaded
	// says, also has an earlier put.
	puts    []map[int][]purgedPut
	deletes []purgedRange
	lists   []purgedList
	// stayed is the number of keys that were put during a deletion of them, and that a listing after the deletion
	// showed. gone is the number of puts that were deleted or replaced, and that listings did not show.
	stayed, gone int
}

// loaded reports whether a key exists from the beginning, with the value 1.
func loaded(k int) bool { return k%3 == 0 }

// of returns all puts of the key number k, in the order in which they began.
func (o *purgeOracle) of(k int) []purgedPut {
	puts := o.puts[k%len(o.puts)][k]
	if loaded(k) {
		puts = append([]purgedPut{{1, 2}}, puts...)
	}
	return puts
}

// check returns an error if a listing shows a put that it must not show, or lacks one that it must show.
func (o *purgeOracle) check(l *purgedList) error {
	for k := l.from; k < l.to; k++ {
		shown, seen := l.seen[k]
		known := false
		puts := o.of(k)
		for i, put := range puts {
			replaced := false // by a put that ended before the listing
			for _, later := range puts[i+1:] {
				replaced = replaced || later.end < l.begin
			}
			begun := replaced // something began that may hide the put
			hidden := replaced
			for _, later := range puts[i+1:] {
				begun = begun || later.begin < l.end
			}
			meanwhile := false
			for _, d := range o.deletes {
				if k < d.from || k >= d.to || d.begin > l.end || d.end < put.begin {
					continue
				}
				begun = true
				hidden = hidden || d.done && d.begin > put.end && d.end < l.begin
				meanwhile = meanwhile || d.done && d.begin < put.begin && d.end < l.begin
			}
			if seen && put.begin == shown {
				known = true
				if hidden {
					return fmt.Errorf("key %d is shown, but was deleted or replaced: %v, listed in %d to %d", k, put, l.begin, l.end)
				}
				if meanwhile {
					o.stayed++
				}
			}
			if put.end < l.begin && !begun && shown != put.begin {
				return fmt.Errorf("key %d is not shown, but was put: %v, listed in %d to %d", k, put, l.begin, l.end)
			}
			if hidden && !seen {
				o.gone++
			}
		}
		if seen && !known {
			return fmt.Errorf("key %d is shown with a value that nobody has put: %d", k, shown)
		}
	}
	return nil
}

// MaxRows returns the largest number of rows of a range, for a database with the given number of keys. If
// EVENKEEL_PURGE_KEYS sets the number of keys, Run begins with some 1,000 ranges.
func MaxRows(keys int) int64 { return max(1000, int64(keys/2500)) }

// Keys returns the number of keys: that of EVENKEEL_PURGE_KEYS, or 30,000. A third of the keys are rows at the
// beginning.
func Keys(t *testing.T) int { return harness.Setting(t, "EVENKEEL_PURGE_KEYS", preset) }

const preset = 30_000

// Run deletes ranges of keys in a bucket of many ranges, while a balancer works and other clients put and list. All
// listings must be right. failed is the number of listings that failed, which must be fewer than a tenth. On a busy
// node a listing may fail, but must not show a wrong answer. The database must keep ranges of MaxRows(keys) rows.
func Run(t *testing.T, db *evenkeel.DB, keys int) (failed int) {
	const writers, listers = 3, 2
	rounds := 12
	key := func(k int) []byte { return fmt.Appendf(nil, "k/%09d", k) }
	var cuts [][]byte
	if keys != preset {
		rounds = 100
		for k := keys / 1000; k < keys; k += keys / 1000 {
			cuts = append(cuts, key(k))
		}
	}
	number := seed.Number(t)
	ctx := t.Context()
	require.NoError(t, db.CreateBucket(ctx, "b", cuts...))
	b := db.Bucket("b")
	o := &purgeOracle{puts: make([]map[int][]purgedPut, writers)}
	for w := range o.puts {
		o.puts[w] = map[int][]purgedPut{}
	}
	r := rand.New(rand.NewPCG(number, 200))
	const batch = 10_000
	for _, first := range r.Perm((keys + batch - 1) / batch) { // not in order: cuts ahead of appends move nothing
		var load []listing.Entry
		for k := first * batch; k < min(keys, (first+1)*batch); k++ {
			if loaded(k) {
				load = append(load, listing.Entry{Key: key(k), Value: []byte("1")})
			}
		}
		r.Shuffle(len(load), func(i, j int) { load[i], load[j] = load[j], load[i] })
		require.NoError(t, b.PutBatch(ctx, load))
	}
	o.now.Store(2)
	ranges := func() (n int) {
		for _, err := range db.Sizes(ctx, "b", nil) {
			require.NoError(t, err)
			n++
		}
		return n
	}
	require.Eventually(t, func() bool { return ranges() > 3 }, time.Minute, time.Millisecond, "nothing is split")
	working, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			r := rand.New(rand.NewPCG(number, uint64(w)))
			for working.Err() == nil {
				k := r.IntN(keys/writers)*writers + w
				put := purgedPut{begin: o.now.Add(1), end: never}
				if b.Put(ctx, key(k), strconv.AppendInt(nil, put.begin, 10)) == nil {
					put.end = o.now.Add(1)
				}
				o.puts[w][k] = append(o.puts[w][k], put)
			}
		})
	}
	var mu sync.Mutex
	list := func(from, to int) {
		l := purgedList{from: from, to: to, begin: o.now.Add(1), seen: map[int]purgeTime{}}
		last := -1
		for item, err := range b.All(ctx, listing.Query{From: key(from), To: key(to)}) {
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed++
				t.Logf("a listing: %v", err)
				return
			}
			k, e1 := strconv.Atoi(string(item.Key[2:]))
			v, e2 := strconv.ParseInt(string(item.Value), 10, 64)
			if e1 != nil || e2 != nil || k <= last {
				t.Errorf("%q = %q after %d", item.Key, item.Value, last)
			}
			last, l.seen[k] = k, v
		}
		l.end = o.now.Add(1)
		mu.Lock()
		defer mu.Unlock()
		o.lists = append(o.lists, l)
	}
	for i := range listers {
		work.Go(func() {
			r := rand.New(rand.NewPCG(number, uint64(100+i)))
			for working.Err() == nil {
				from := r.IntN(keys)
				list(from, min(keys, from+1+r.IntN(3000)))
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	first, begun, deleted := ranges(), time.Now(), 0
	for range rounds {
		from := r.IntN(keys)
		d := purgedRange{from: from, to: min(keys, from+1+r.IntN(keys/6))}
		for !d.done {
			d.begin = o.now.Add(1)
			err := b.DeleteRange(ctx, key(d.from), key(d.to))
			d.end, d.done = o.now.Add(1), err == nil
			o.deletes = append(o.deletes, d)
			if err != nil {
				t.Log(err)
			}
		}
		deleted += d.to - d.from
	}
	took := time.Since(begun)
	stop()
	work.Wait()
	for before := len(o.lists); len(o.lists) == before; {
		list(0, keys)
	}
	for i := range o.lists {
		require.NoError(t, o.check(&o.lists[i]))
	}
	t.Logf("%d deletions of %d keys in %v, %d listings, %d ranges, then %d, %d keys gone, %d put meanwhile stayed",
		len(o.deletes), deleted, took.Round(time.Millisecond), len(o.lists), first, ranges(), o.gone, o.stayed)
	require.Positive(t, o.gone)
	require.Less(t, failed, len(o.lists)/10+1)
	require.Eventually(t, func() bool {
		err := b.DeletePrefix(ctx, nil)
		if err == nil {
			err = db.DeleteBucket(ctx, "b")
		}
		if err != nil {
			t.Log(err)
		}
		return err == nil
	}, 5*time.Minute, time.Second)
	return failed
}
