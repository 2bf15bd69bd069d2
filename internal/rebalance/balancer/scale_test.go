package balancer_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/counter/rediscounter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/redistest"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// idle is a mover that moves nothing.
type idle struct{ submitted int }

func (m *idle) Submit(store.BucketID, string, *scheduler.Plan) scheduler.Job {
	m.submitted++
	return scheduler.Job{ID: strconv.Itoa(m.submitted)}
}
func (*idle) Job(string) (scheduler.Job, bool) { return scheduler.Job{}, false }
func (*idle) Held(store.BucketID) bool         { return false }
func (*idle) InFlight() (int, int64)           { return 0, 0 }
func (*idle) KeepUp(store.BucketID, int)       {}
func (*idle) Pace(context.Context, int) error  { return nil }

// large is one bucket of many ranges that were counted, looked at in virtual time.
type large struct {
	testing.TB
	*balancer.Coroutines
	recorder *counter.Recorder
	b        *balancer.Balancer
	id       store.BucketID
	ranges   []partmap.Range
	mover    idle
	stop     func()
}

// newLarge makes ranges of so many rows each, 0.6 times the maximum, and looks at all of them.
func newLarge(t testing.TB, n int, counts counter.Backend) *large {
	x := &large{TB: t, Coroutines: balancer.NewCoroutines(time.Now())}
	x.recorder = counter.NewRecorder(counts, counter.RecorderOptions{Every: -1, MaxPartitions: n + 1, Now: x.Now})
	s := memstore.New()
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	t.Cleanup(mapclient.Of(c).Close)
	cuts := make([][]byte, n-1)
	for i := range cuts {
		cuts[i] = number(1000 * (i + 1))
	}
	x.id = store.BucketID{1}
	_, err = mapclient.Of(c).Create(t.Context(), x.id, cuts)
	require.NoError(t, err)
	root, err := mapclient.Of(c).Load(t.Context(), x.id)
	require.NoError(t, err)
	for rg, err := range mapclient.Of(c).Ranges(t.Context(), root, nil) {
		require.NoError(t, err)
		x.ranges = append(x.ranges, rg)
		require.NoError(t, counts.Correct(t.Context(), x.partition(len(x.ranges)-1), &counter.Count{
			Started: x.Now(), Start: rg.Start, End: rg.End, Rows: 60_000,
		}))
	}
	x.b = balancer.New(s, mapclient.Of(c), &x.mover, counts, balancer.Options{
		Policy: policy.Default(100_000), Every: 10 * time.Second, Now: x.Now, Threads: x,
	})
	x.stop = x.run()
	x.look()
	require.Equal(t, n, x.b.Status().Round.Ranges)
	return x
}

// run runs the balancer.
func (x *large) run() (stop func()) {
	ctx, cancel := context.WithCancel(x.Context())
	x.Go(func() { _ = x.b.Run(ctx) })
	stop = func() {
		cancel()
		x.Settle()
	}
	x.Cleanup(stop)
	return stop
}

func (x *large) partition(i int) store.Partition {
	return store.Partition{Bucket: x.id, ID: x.ranges[i].Partition}
}

// write has one row written to a range.
func (x *large) write(i, row int) {
	x.recorder.Put(x.partition(i), number(1000*i+row), 100, store.Timestamp(x.Now().UnixMicro()))
}

// look looks once at what is due ten seconds later.
func (x *large) look() {
	require.NoError(x, x.recorder.Flush(x.Context()))
	x.Pass(x.Now().Add(10 * time.Second))
	x.Settle()
	require.NoError(x, x.b.Status().Round.Err)
}

// The work of a look depends on what was written, not on how many ranges there are.
func TestALookCostsWhatHasChanged(t *testing.T) {
	const n = 12_000
	counts := &flaky{b: countbook.NewMemory(nil)}
	x := newLarge(t, n, counts)
	counts.asked()
	x.look()
	stats, quanta := counts.asked()
	require.Zero(t, stats, "nothing was written")
	require.Zero(t, quanta)

	x.write(7000, 1)
	x.look()
	stats, quanta = counts.asked()
	require.Positive(t, stats)
	require.LessOrEqual(t, stats, 32, "one range was written to")
	require.LessOrEqual(t, quanta, 1)

	for round := range 3 {
		for i := range n / 100 {
			x.write(100*i+round, 1)
		}
		x.look()
		stats, quanta = counts.asked()
		require.LessOrEqual(t, stats, 32*n/100)
		require.LessOrEqual(t, quanta, n/100)
		require.Equal(t, n/100, x.b.Status().Round.Ranges)
	}

	for i := range n {
		x.write(i, 2)
	}
	x.look()
	stats, quanta = counts.asked()
	require.LessOrEqual(t, stats, n*11/10, "all were written to")
	require.LessOrEqual(t, quanta, 256, "where rows lie is not asked for everywhere")
	x.Pass(x.Now().Add(time.Hour))
	x.look()
	stats, quanta = counts.asked()
	require.LessOrEqual(t, stats, n*11/10, "the hourly look at all")
	require.Zero(t, quanta)
	require.Zero(t, x.mover.submitted)
}

// What ends in the middle of its work, and runs again, works as before: it counts what may be too large.
func TestABalancerThatRunsAgain(t *testing.T) {
	x := newLarge(t, 2, countbook.NewMemory(nil))
	for run := range int64(3) {
		for row := range 110_000 {
			x.write(0, row)
		}
		x.look()
		x.look()
		require.Equal(t, run+1, x.b.Status().Recounts)
		x.stop()
		x.stop = x.run()
		x.Pass(x.Now().Add(time.Hour)) // a recount in vain is not repeated before
	}
}

// A range that has to wait for a time is looked at again when that has come, not before, and its bucket is not.
func TestWhatWaitsIsLookedAtInTime(t *testing.T) {
	counts := &flaky{b: countbook.NewMemory(nil)}
	x := newLarge(t, 2000, counts)
	few := &counter.Count{Start: x.ranges[1500].Start, End: x.ranges[1500].End, Started: x.Now(), Rows: 10}
	require.NoError(t, counts.Correct(t.Context(), x.partition(1500), few))
	low := &counter.Count{Start: x.ranges[1501].Start, End: x.ranges[1501].End, Started: x.Now(), Rows: 30_000}
	require.NoError(t, counts.Correct(t.Context(), x.partition(1501), low))
	x.write(1500, 1)
	x.look()
	require.Len(t, x.b.Status().Round.Why, 1)
	counts.asked()
	asked := 0
	for range 2 * 60 { // 20 minutes
		x.look()
		n, _ := counts.asked()
		asked += n
		require.Len(t, x.b.Status().Round.Why, 1, "the status still says so")
	}
	require.LessOrEqual(t, asked, 3*32)
	for range 4 * 60 { // 40 minutes
		x.look()
	}
	require.Positive(t, x.mover.submitted, "they were merged: %v", x.b.Status().Decided)
}

// Most buckets are not written to, and each read of a root takes 160 ms. That does not keep a busy one from being cut
// in time: a look is due each ten seconds.
func TestABusyBucketBesideManyOthers(t *testing.T) {
	race.Skip(t)
	others := 25_000
	if testing.Short() {
		others = 5_000
	}
	const maxRows, perSecond = 1000, 10
	lookedAfterAt(t, maxRows, 20_000, func(o *balancer.Options) { o.Logger = slog.New(slog.DiscardHandler) }, func(f *fixture) {
		for i := range others {
			_, err := mapclient.Of(f.c).Create(f.Context(), store.BucketID{0xff, byte(i >> 16), byte(i >> 8), byte(i)}, nil)
			require.NoError(f, err)
		}
		f.put([]byte("key-")) // it exists for a while
		time.Sleep(59 * time.Minute)
		f.s.mu.Lock()
		f.s.slow = 160 * time.Millisecond
		f.s.mu.Unlock()
		var keys []string
		over, longest, worst := 0, 0, 0
		late := time.Duration(0)
		for i := range 900 { // seconds, and the hourly look at all is among them
			for j := range perSecond {
				key := number((perSecond*i + j) * 7919 % 1_000_003)
				f.put(key)
				at, _ := slices.BinarySearch(keys, string(key))
				keys = slices.Insert(keys, at, string(key))
			}
			time.Sleep(time.Second)
			largest := 0
			for _, rg := range f.rangesOf(nil) {
				end := len(keys)
				if len(rg.End) > 0 {
					end, _ = slices.BinarySearch(keys, string(rg.End))
				}
				from, _ := slices.BinarySearch(keys, string(rg.Start))
				largest = max(largest, end-from)
			}
			worst = max(worst, largest)
			if over++; largest <= maxRows*12/10 {
				over = 0
			}
			longest, late = max(longest, over), max(late, f.b.Status().Late)
		}
		f.Logf("largest %d rows, over 1.2 x the maximum for %d s; looks were up to %v late", worst, longest, late)
		require.LessOrEqual(f, longest, 20, "two looks")
		require.LessOrEqual(f, late, 10*time.Second)
		if testing.Short() {
			return
		}
		time.Sleep(time.Hour)
		require.InEpsilon(f, len(keys)+1, f.b.Status().Sizes.Rows, 0.02, "the look at all has ended")
	})
}

// A look at everything, of buckets that are new to it and of such as it has looked at before, reads roots in its own
// data centre: 100,000 buckets take less than five minutes where a read there takes 2 ms, and one at Serial 160 ms.
func TestALookAtEverythingStaysInItsDataCentre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buckets, atMost = 2000, 5 * time.Minute * 2000 / 100_000
		s := &reads{Store: memstore.New(), slow: 2 * time.Millisecond, far: 158 * time.Millisecond}
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		defer mapclient.Of(c).Close()
		for i := range buckets {
			_, err := mapclient.Of(c).Create(t.Context(), store.BucketID{byte(i >> 8), byte(i)}, nil)
			require.NoError(t, err)
		}
		b := balancer.New(s, mapclient.Of(c), &idle{}, countbook.NewMemory(nil), balancer.Options{Policy: policy.Default(1000)})
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { _ = b.Run(ctx) })
		defer work.Wait()
		defer stop()
		for _, kind := range []string{"new", "known"} {
			s.mu.Lock()
			s.serial, s.local = 0, 0
			s.mu.Unlock()
			began, r := time.Now(), b.Status().Round
			for !r.Everything || r.Began.Before(began) || r.Ended.Before(r.Began) {
				time.Sleep(time.Second)
				r = b.Status().Round
			}
			require.NoError(t, r.Err)
			require.Equal(t, buckets, r.Buckets)
			s.mu.Lock()
			serial, local := s.serial, s.local
			s.mu.Unlock()
			t.Logf("%s: %v; %d reads at Serial, %d others", kind, r.Ended.Sub(r.Began), serial, local)
			require.Zero(t, serial, kind)
			require.LessOrEqual(t, local, 2*buckets, "one more where it is counted: %s", kind)
			require.Less(t, r.Ended.Sub(r.Began), atMost, kind)
		}
	})
}

// late is the maps of a data centre that has not heard of the newest root of a bucket.
type late struct {
	balancer.Maps
	bucket store.BucketID
	old    *partmap.Root
}

func (m late) Look(ctx context.Context, id store.BucketID) (*partmap.Root, error) {
	if id == m.bucket {
		return m.old, nil
	}
	return m.Maps.Look(ctx, id)
}

// planned is a mover that notes the epochs of plans.
type planned struct {
	idle
	epochs []uint64
}

func (m *planned) Submit(id store.BucketID, what string, p *scheduler.Plan) scheduler.Job {
	m.epochs = append(m.epochs, p.Epoch)
	return m.idle.Submit(id, what, p)
}

// What a look finds in a root that is not the newest one moves nothing: it is decided anew by the newest one.
func TestNothingMovesByAnOldRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		defer mapclient.Of(c).Close()
		require.NoError(t, c.CreateBucket(t.Context(), "bucket"))
		for i := range 1500 {
			require.NoError(t, c.Bucket("bucket").Put(t.Context(), number(i), nil))
		}
		id, err := c.BucketID(t.Context(), "bucket")
		require.NoError(t, err)
		old, err := mapclient.Of(c).Load(t.Context(), id)
		require.NoError(t, err)
		change, err := mapclient.WithSettings(old, []byte("another process was here"), mapclient.Of(c).Stamp())
		require.NoError(t, err)
		require.NoError(t, mapclient.Of(c).Swap(t.Context(), change))
		m := &planned{}
		b := balancer.New(s, late{mapclient.Of(c), id, old}, m, countbook.NewMemory(nil), balancer.Options{
			Policy: policy.Default(1000), Every: 10 * time.Second, Exact: true,
		})
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		_ = b.Run(ctx)
		require.NotEmpty(t, m.epochs)
		for _, epoch := range m.epochs {
			require.Equal(t, old.Epoch+1, epoch)
		}
	})
}

// Run ends in the middle of a look at everything, with buckets that nobody has begun to look at.
func TestRunEndsInTheMiddleOfALookAtAll(t *testing.T) {
	lookedAfterAt(t, 1000, 20_000, nil, func(f *fixture) {
		for i := range byte(12) {
			_, err := mapclient.Of(f.c).Create(f.Context(), store.BucketID{0xff, i}, nil)
			require.NoError(f, err)
		}
		time.Sleep(59 * time.Minute)
		f.s.mu.Lock()
		f.s.slow = time.Hour
		f.s.mu.Unlock()
		time.Sleep(5 * time.Minute)
	})
}

// rangesOf are the ranges of the bucket, read past the delays of the store.
func (f *fixture) rangesOf(from []byte) (out []partmap.Range) {
	l, err := mapclient.Of(f.c).Acquire(f.Context(), f.id())
	require.NoError(f, err)
	defer l.Release()
	for rg, err := range mapclient.Of(f.c).Ranges(f.Context(), l.Root(), from) {
		require.NoError(f, err)
		out = append(out, rg)
	}
	return out
}

// Ranges that lose their rows are merged, however many they are.
func TestEmptiedRangesAreMerged(t *testing.T) {
	race.Skip(t)
	for _, c := range []struct {
		ranges int
		within time.Duration
	}{{2000, 30 * time.Minute}, {8000, 30 * time.Minute}, {100_000, 3 * time.Hour}} {
		t.Run(strconv.Itoa(c.ranges), func(t *testing.T) {
			if c.ranges > 8000 && os.Getenv("EVENKEEL_SCALE") == "" {
				t.Skip("takes minutes: set EVENKEEL_SCALE")
			}
			lookedAfterAt(t, 1000, 20_000, func(o *balancer.Options) {
				o.Logger, o.Policy.Cool = slog.New(slog.DiscardHandler), 10*time.Minute
			}, func(f *fixture) {
				var cuts [][]byte
				for i := 1; i < c.ranges; i++ {
					cuts = append(cuts, number(i))
				}
				require.NoError(f, f.c.CreateBucket(f.Context(), "emptied", cuts...))
				b := f.c.Bucket("emptied")
				id, err := f.c.BucketID(f.Context(), "emptied")
				require.NoError(f, err)
				for i := range c.ranges {
					require.NoError(f, b.Put(f.Context(), number(i), nil))
				}
				time.Sleep(2 * time.Minute) // they were just made: none is merged
				for i := range c.ranges {
					require.NoError(f, b.Delete(f.Context(), number(i)))
				}
				begun, n := time.Now(), c.ranges
				for n > 1 && time.Since(begun) < 2*c.within {
					time.Sleep(10 * time.Second)
					root, err := mapclient.Of(f.c).Load(f.Context(), id)
					require.NoError(f, err)
					n = int(root.Ranges)
				}
				took := time.Since(begun)
				f.Logf("%d ranges: %d after %v; %d recounts; %v", c.ranges, n, took, f.b.Status().Recounts, f.b.Status().Decided)
				require.Equal(f, 1, n)
				require.LessOrEqual(f, took, c.within)
				require.LessOrEqual(f, f.b.Status().Recounts, int64(4*c.ranges))
			})
		})
	}
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// One look at a bucket of 100,000 ranges, of which one in a hundred was written to. ms/look is processor time of this
// process: of Redis it is what its client takes.
func BenchmarkLook(b *testing.B) {
	for _, c := range []struct {
		name   string
		counts func(testing.TB) counter.Backend
	}{
		{"memory", func(testing.TB) counter.Backend { return countbook.NewMemory(nil) }},
		{"redis", func(t testing.TB) counter.Backend {
			r, err := rediscounter.Open(rediscounter.Options{Addr: redistest.Start(t).Addr})
			require.NoError(t, err)
			t.Cleanup(func() { _ = r.Close() })
			return r
		}},
	} {
		for _, every := range []int{100, 1} {
			b.Run(fmt.Sprintf("%s/1 of %d written", c.name, every), func(b *testing.B) {
				const n = 100_000
				x := newLarge(b, n, c.counts(b))
				var took time.Duration
				b.ResetTimer()
				for i := range b.N {
					b.StopTimer()
					for k := range n / every {
						x.write(k*every+i%every, i)
					}
					require.NoError(b, x.recorder.Flush(b.Context()))
					b.StartTimer()
					from := cpu()
					x.look()
					took += cpu() - from
				}
				b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "ms/look")
			})
		}
	}
}
