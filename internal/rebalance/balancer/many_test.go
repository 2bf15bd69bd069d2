package balancer_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// program is what servers have of a store of many buckets: a client whose leases end by time, counters, a scheduler and
// a balancer, all but the size of ranges with their defaults.
type program struct {
	maps     *mapclient.Client
	c        *listing.Client
	counts   *flaky
	recorder *counter.Recorder
	m        *scheduler.Scheduler
	b        *balancer.Balancer
	stop     func()
}

const (
	manyMaxRows = 1000
	manyEvery   = 10 * time.Second
)

func newProgram(t *testing.T, s store.Store) *program {
	p := &program{counts: &flaky{b: countbook.NewMemory(nil)}}
	var err error
	p.maps, err = mapclient.Join(t.Context(), s, mapclient.Options{}, false)
	require.NoError(t, err)
	p.recorder = counter.NewRecorder(p.counts, counter.RecorderOptions{})
	p.c, err = listing.New(mapclient.With(s, p.maps), listing.Options{Recorder: p.recorder})
	require.NoError(t, err)
	const rate, leaseAndSkew = 20_000, 3300 * time.Millisecond
	p.m = scheduler.New(s, p.maps, scheduler.Options{RowsPerSecond: rate})
	p.b = balancer.New(s, p.maps, p.m, p.counts, balancer.For(manyMaxRows, rate, manyEvery, leaseAndSkew))
	ctx, end := context.WithCancel(context.Background())
	var work sync.WaitGroup
	p.stop = func() {
		end()
		work.Wait()
		_ = p.recorder.Close(context.Background())
		p.maps.Close()
	}
	work.Go(func() { _ = p.m.Run(ctx) })
	work.Go(func() { _ = p.b.Run(ctx) })
	return p
}

// filler is a busy bucket and the keys that it has.
type filler struct {
	b         *listing.Bucket
	id        store.BucketID
	keys      []string // ascending
	perSecond int
	appends   bool
}

func (f *filler) put(t *testing.T, r interface{ IntN(int) int }) {
	key := string(number(r.IntN(1_000_000_000)))
	if f.appends {
		key = string(number(len(f.keys)))
	}
	require.NoError(t, f.b.Put(t.Context(), []byte(key), nil))
	if at, there := slices.BinarySearch(f.keys, key); !there {
		f.keys = slices.Insert(f.keys, at, key)
	}
}

// largest returns how many rows the largest of the bucket's ranges has.
func (f *filler) largest(t *testing.T, maps *mapclient.Client) (n int) {
	root, err := maps.Load(t.Context(), f.id)
	require.NoError(t, err)
	for rg, err := range maps.Ranges(t.Context(), root, nil) {
		require.NoError(t, err)
		end := len(f.keys)
		if len(rg.End) > 0 {
			end = sort.SearchStrings(f.keys, string(rg.End))
		}
		n = max(n, end-sort.SearchStrings(f.keys, string(rg.Start)))
	}
	return n
}

// weigh stops a program and logs how much memory each of its parts had, per bucket.
func (p *program) weigh(t *testing.T, kind string, all []*filler, buckets int) {
	p.stop()
	before := heap()
	drop := func(what string, f func()) {
		f()
		now := heap()
		t.Logf("%s: %s have %d bytes a bucket", kind, what, (before-now)/int64(buckets))
		before = now
	}
	drop("balancer and scheduler", func() { p.b, p.m = nil, nil })
	drop("maps", func() {
		p.c, p.maps = nil, nil
		for _, f := range all {
			f.b = nil
		}
	})
	drop("counters", func() { p.counts, p.recorder = nil, nil })
	runtime.KeepAlive(all)
}

// Of very many buckets in one store some are written to, at random places or at the end: none of their ranges has more
// than 1.2 times the limit for longer than two looks.
func TestManyBusyBucketsBesideIdleOnes(t *testing.T) {
	race.Skip(t)
	buckets, busy, seconds := 2500, 100, 300
	if os.Getenv("EVENKEEL_SCALE") != "" {
		buckets, busy, seconds = 25_000, 1000, 240
	}
	r := seed.New(t)
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		all := make([]*filler, buckets)
		p := newProgram(t, s)
		name := func(i int) string { return "bucket-" + string(number(i)) }
		for i := range all {
			require.NoError(t, p.c.CreateBucket(t.Context(), name(i)))
			id, err := p.c.BucketID(t.Context(), name(i))
			require.NoError(t, err)
			all[i] = &filler{b: p.c.Bucket(name(i)), id: id, perSecond: 1 + i%4, appends: i%5 == 0}
			all[i].put(t, r)
		}
		time.Sleep(2 * time.Hour) // a look at everything is among them
		require.GreaterOrEqual(t, p.b.Status().Sizes.Rows, int64(buckets))
		p.weigh(t, "idle", all, len(all))
		p = newProgram(t, s)
		for i, f := range all {
			f.b = p.c.Bucket(name(i))
		}
		for _, f := range all[:busy] {
			for range r.IntN(9 * manyMaxRows / 10) {
				f.put(t, r)
			}
		}
		time.Sleep(20 * time.Minute) // that they were filled at once is forgotten
		began, cpuBegan := time.Now(), cpu()
		over := make([]int, busy)
		longest, worst, late, looks := 0, 0, time.Duration(0), 0
		var round time.Time
		for i := range seconds {
			for _, f := range all[:busy] {
				for range f.perSecond {
					f.put(t, r)
				}
			}
			time.Sleep(time.Second)
			for k, f := range all[:busy] {
				n := f.largest(t, p.maps)
				worst = max(worst, n)
				if over[k]++; n <= manyMaxRows*12/10 {
					over[k] = 0
				}
				longest = max(longest, over[k])
			}
			st := p.b.Status()
			late = max(late, st.Late)
			if st.Round.Began.After(round) {
				round, looks = st.Round.Began, looks+st.Round.Buckets
			}
			if i%60 == 59 {
				moves, rows := p.m.InFlight()
				t.Logf("%v: longest %d s, worst %d, late %v, in flight %d moves, %d rows; %v", time.Since(began), longest, worst, late, moves, rows, st.Decided)
			}
		}
		t.Logf("largest range: %d rows; over 1.2 x the limit for %d s at the longest; looks late by up to %v; %d buckets looked at; %v of CPU",
			worst, longest, late, looks, cpu()-cpuBegan)
		p.weigh(t, "busy", all, busy)
		require.LessOrEqual(t, longest, int(2*manyEvery/time.Second), "two looks")
	})
}

// heap is how much memory is in use after a collection of garbage.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
