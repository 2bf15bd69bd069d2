package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// kept is a store with all parts that keep its buckets in shape, in virtual time.
type kept struct {
	testing.TB
	*listing.Client
	store memstore.Store
	r     *engine.Rebalancer
}

// keep runs f over a store to whose buckets rules of retention apply.
func keep(t *testing.T, maxRows int64, rules []retention.Rule, f func(k *kept)) {
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, retention.Check(rules))
		s := memstore.New()
		counts := countbook.NewMemory(nil)
		rec := counter.NewRecorder(counts, counter.RecorderOptions{Every: 10 * time.Second})
		c, err := listing.New(s, listing.Options{Recorder: rec, Sizes: counts})
		require.NoError(t, err)
		balance := balancer.For(maxRows, 0, 5*time.Minute, engine.EmbeddedWait)
		r := engine.New(engine.Options{
			Store: s, Buckets: c, Balance: &balance, Counts: counts, Retention: rules,
		})
		ctx, stop := context.WithCancel(context.Background())
		var work sync.WaitGroup
		work.Go(func() { _ = r.Run(ctx) })
		defer func() {
			stop()
			work.Wait()
			_ = rec.Close(context.Background())
			mapclient.Of(c).Close()
		}()
		f(&kept{t, c, s, r})
	})
}

// space is how many ranges the bucket has, and how many partitions and rows the store, but for notes.
func (k *kept) space(bucket string) [3]int {
	partitions, rows := 0, 0
	id, err := k.BucketID(k.Context(), bucket)
	require.NoError(k, err)
	root, err := mapclient.Of(k.Client).Load(k.Context(), id)
	require.NoError(k, err)
	after := store.Partition{}
	for {
		all, err := k.store.Partitions(k.Context(), after, 1000)
		require.NoError(k, err)
		for _, p := range all {
			if after = p; p.Bucket != id {
				continue
			}
			counted := rows
			for o, bounds := (store.SliceOptions{Limit: 10_000}), (store.Bounds{}); ; {
				page, err := executor.WithoutNotes(k.store).Slice(k.Context(), p, bounds, o)
				require.NoError(k, err)
				if rows += len(page.Rows); !page.More {
					break
				}
				bounds.Start = append(page.Rows[len(page.Rows)-1].Key, 0)
			}
			if rows > counted {
				partitions++
			}
		}
		if len(all) == 0 {
			return [3]int{int(root.Ranges), partitions, rows}
		}
	}
}

// A month of appends, of which three days are kept: listings have what is not old, and in the last week there are no
// more ranges, partitions and rows than in the second one. The balancer splits and merges meanwhile. The race detector,
// which is seven times slower, gets six days.
func TestAMonthOfRetention(t *testing.T) {
	race.Skip(t)
	r := rand.New(rand.NewPCG(seed.Number(t), 1))
	const day, keepFor, maxRows, every = 24 * time.Hour, 72 * time.Hour, 500, 30 * time.Minute
	rule := retention.Rule{Bucket: "log*", Prefix: []byte("at/"), Keep: keepFor, Time: "2006/01/02/15"}
	const days = 30
	keep(t, maxRows, []retention.Rule{rule}, func(k *kept) {
		ctx := k.Context()
		require.NoError(k, k.CreateBucket(ctx, "logs"))
		b := k.Bucket("logs")
		for _, other := range []string{"about", "zebra"} { // beside the prefix
			require.NoError(k, b.Put(ctx, []byte(other), []byte("stays")))
		}
		begun := time.Now()
		all := 0
		oracle := map[string]time.Time{} // when each row is no longer kept
		var weeks [4][3]int              // sums of ranges, partitions and rows in each week, by looks twice a day
		for n := 1; time.Since(begun) < days*day; n++ {
			time.Sleep(every)
			now := time.Now()
			var rows []listing.Entry
			for range 10 + r.IntN(30) {
				at := now.Add(-time.Duration(r.Int64N(int64(every))))
				key := "at/" + at.UTC().Format("2006/01/02/15:04:05.000000")
				oracle[key] = at.Truncate(time.Hour).Add(time.Hour + keepFor)
				rows = append(rows, listing.Entry{Key: []byte(key), Value: []byte("v")})
			}
			all += len(rows)
			require.NoError(k, b.PutBatch(ctx, rows))
			if n%(int(12*time.Hour/every)) != 0 {
				continue
			}
			seen := map[string]bool{}
			for item, err := range b.All(ctx, listing.Query{}) {
				require.NoError(k, err)
				seen[string(item.Key)] = true
				until, known := oracle[string(item.Key)]
				require.True(k, known || string(item.Value) == "stays", "%s was dropped already, or never put", item.Key)
				require.True(k, !known || now.Before(until.Add(engine.RetentionEvery+2*time.Minute)), "%s is old", item.Key)
			}
			require.True(k, seen["about"] && seen["zebra"])
			for key, until := range oracle {
				if !seen[key] {
					require.False(k, now.Before(until), "%s is gone too early", key)
					delete(oracle, key)
				}
			}
			if week := int((time.Since(begun) - 2*day) / (7 * day)); time.Since(begun) > 2*day && week < len(weeks) {
				for i, n := range k.space("logs") {
					weeks[week][i] += n
				}
			}
		}
		s := k.r.Retention().Status()
		require.NotEmpty(k, s.Drops)
		require.Greater(k, all, 5*len(oracle))
		for i := range weeks[0] {
			require.LessOrEqual(k, weeks[3][i], weeks[1][i]+weeks[1][i]/4,
				"ranges, partitions and rows by weeks: %v", weeks)
		}
		require.Greater(k, weeks[0][0]/14, 5)
		require.Greater(k, len(s.Drops), 50)
		for _, d := range s.Drops {
			require.Empty(k, d.Error)
		}
		k.Logf("%d rows put, %d left; ranges, partitions and rows by weeks: %v; moved: %v", all, len(oracle), weeks,
			k.r.Balancer().Status().Moved)
	})
}

// While moves are paused nothing is dropped, and the status says so; after it everything that is old.
func TestRetentionObeysPauses(t *testing.T) {
	rule := retention.Rule{Bucket: "b", Keep: time.Hour, Time: "20060102T150405"}
	keep(t, 500, []retention.Rule{rule}, func(k *kept) {
		ctx := k.Context()
		require.NoError(k, k.CreateBucket(ctx, "b"))
		left := func() (n int) {
			for _, err := range k.Bucket("b").All(ctx, listing.Query{}) {
				require.NoError(k, err)
				n++
			}
			return n
		}
		for i := range 5 {
			at := time.Now().Add(time.Duration(i) - 3*time.Hour).UTC()
			require.NoError(k, k.Bucket("b").Put(ctx, at.AppendFormat(nil, "20060102T150405.000000000"), nil))
		}
		_, _, err := pause.Set(ctx, k.store, nil, pause.Pause{Why: "a backup", Since: time.Now()}, time.Now())
		require.NoError(k, err)
		time.Sleep(3 * time.Hour)
		require.Equal(k, 5, left())
		s := k.r.Retention().Status()
		require.True(k, s.Paused)
		require.NotNil(k, s.Last)
		require.Empty(k, s.Drops)
		_, err = pause.Lift(ctx, k.store, nil)
		require.NoError(k, err)
		time.Sleep(engine.RetentionEvery + time.Minute)
		require.Zero(k, left())
		s = k.r.Retention().Status()
		require.False(k, s.Paused)
		require.Len(k, s.Drops, 1)
		require.Empty(k, s.Drops[0].Error)
	})
}

// A rule that does not fit the keys, or the kind of a bucket, drops nothing of it, and says why; others go on.
func TestRulesThatDoNotFit(t *testing.T) {
	rules := []retention.Rule{
		{Bucket: "objects*", Keep: time.Hour, Time: "decimal-s"},
		{Bucket: "objects", Prefix: []byte("p"), Keep: time.Hour, Time: "decimal-s"},
		{Bucket: "words", Keep: time.Hour, Time: "2006-01-02"},
		{Bucket: "good", Keep: time.Hour, Time: "2006-01-02"},
	}
	rules[0].Prefix = []byte("q")
	keep(t, 500, rules, func(k *kept) {
		ctx := k.Context()
		require.NoError(k, door.Client(k.Client).CreateWith(ctx, "objects", []byte("settings of objects")))
		require.NoError(k, k.CreateBucket(ctx, "words"))
		require.NoError(k, k.CreateBucket(ctx, "good"))
		require.NoError(k, k.Bucket("words").Put(ctx, []byte("1 word"), nil))
		require.NoError(k, k.Bucket("words").Put(ctx, []byte("1999-01-01"), nil))
		require.NoError(k, k.Bucket("good").Put(ctx, []byte("1999-01-01"), nil))
		time.Sleep(2 * time.Minute)
		s := k.r.Retention().Status()
		require.EqualValues(k, 2, s.Last.Failed)
		errs := map[string]string{}
		for _, d := range s.Drops {
			errs[d.Bucket] = d.Error
		}
		require.Contains(k, errs["objects"], "lifecycle rule")
		require.Contains(k, errs["words"], `key 1 word has no time of the form 2006-01-02`)
		require.Contains(k, errs, "good")
		require.Empty(k, errs["good"])
		_, err := k.Bucket("words").Get(ctx, []byte("1999-01-01"))
		require.NoError(k, err)
		_, err = k.Bucket("good").Get(ctx, []byte("1999-01-01"))
		require.ErrorIs(k, err, store.NotFound)
	})
}

// What is old is judged by the common time of the store: a process whose clock is ahead drops nothing too early.
func TestRetentionByTheCommonTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := func() time.Time { return time.Now().Add(-48 * time.Hour) }
		s := memstore.New()
		c, err := listing.New(s, listing.Options{Timestamps: timestamps.New(behind)})
		require.NoError(t, err)
		defer mapclient.Of(c).Close()
		rule := retention.Rule{Bucket: "logs", Keep: 24 * time.Hour, Time: "2006-01-02T15"}
		require.NoError(t, retention.Check([]retention.Rule{rule}))
		r := engine.New(engine.Options{Store: s, Buckets: c})
		require.NoError(t, c.CreateBucket(t.Context(), "logs"))
		put := func(age time.Duration) {
			key := behind().Add(-age).UTC().Format("2006-01-02T15")
			require.NoError(t, c.Bucket("logs").Put(t.Context(), []byte(key), nil))
		}
		old := func() (drops int) {
			require.NoError(t, r.Retention().Look(t.Context(), "", []retention.Rule{rule},
				func(_ store.BucketID, d *engine.Drop) error {
					require.Empty(t, d.Error)
					drops++
					return nil
				}, nil))
			return drops
		}
		put(23 * time.Hour)
		require.Zero(t, old())
		put(26 * time.Hour)
		require.Equal(t, 1, old())
	})
}

// TestRetentionByTheTimeOfThePut: keys without a time, put again now and then, go once their last put is long ago, and
// a bucket into which as many are put each day stays as large as it is. The race detector gets three days.
func TestRetentionByTheTimeOfThePut(t *testing.T) {
	race.Skip(t)
	r := rand.New(rand.NewPCG(seed.Number(t), 1))
	const day, keepFor, maxRows, every = 24 * time.Hour, 24 * time.Hour, 100, time.Hour
	rule := retention.Rule{Bucket: "sessions", Prefix: []byte("s/"), Keep: keepFor, Time: retention.Written}
	keep(t, maxRows, []retention.Rule{rule}, func(k *kept) {
		ctx := k.Context()
		require.NoError(k, k.CreateBucket(ctx, "sessions"))
		b := k.Bucket("sessions")
		require.NoError(k, b.Put(ctx, []byte("other"), []byte("stays")))
		oracle := map[string]time.Time{} // when each key was put last
		var known []string
		const days = 8
		begun, all := time.Now(), 0
		var parts [3][3]int // sums of ranges, partitions and rows in two days each
		for n := 1; time.Since(begun) < days*day; n++ {
			time.Sleep(every)
			var rows []listing.Entry
			for range 10 + r.IntN(30) {
				key := fmt.Sprintf("s/%08x", r.Uint32())
				if len(known) > 0 && r.IntN(3) == 0 { // again, perhaps after it has gone
					key = known[r.IntN(len(known))]
				}
				known = append(known, key)
				rows = append(rows, listing.Entry{Key: []byte(key), Value: []byte("v")})
			}
			slices.SortFunc(rows, func(a, b listing.Entry) int { return bytes.Compare(a.Key, b.Key) })
			rows = slices.CompactFunc(rows, func(a, b listing.Entry) bool { return bytes.Equal(a.Key, b.Key) })
			known = known[max(0, len(known)-1000):]
			now := time.Now()
			require.NoError(k, b.PutBatch(ctx, rows))
			for i := range rows {
				oracle[string(rows[i].Key)] = now
			}
			if all += len(rows); n%6 != 0 {
				continue
			}
			seen := map[string]bool{}
			for item, err := range b.All(ctx, listing.Query{}) {
				require.NoError(k, err)
				seen[string(item.Key)] = true
				age := now.Sub(oracle[string(item.Key)])
				require.True(k, string(item.Value) == "stays" || age < keepFor+keepFor/24+engine.RetentionEvery+2*time.Minute,
					"%s is %v old", item.Key, age)
			}
			require.True(k, seen["other"])
			for key, at := range oracle {
				if !seen[key] {
					require.GreaterOrEqual(k, time.Since(at), keepFor, "%s is gone too early", key)
					delete(oracle, key)
				}
			}
			if part := int(time.Since(begun)/(2*day)) - 1; part >= 0 && part < len(parts) {
				for i, n := range k.space("sessions") {
					parts[part][i] += n
				}
			}
		}
		s := k.r.Retention().Status()
		require.NotEmpty(k, s.Drops)
		require.Greater(k, all, 5*len(oracle))
		// How many ranges the rows have depends on where splits fell, but those that have become empty are merged.
		ranges, partitions, rows := parts[2][0], parts[2][1], parts[2][2]
		require.LessOrEqual(k, rows, parts[0][2]+parts[0][2]/4, "ranges, partitions and rows: %v", parts)
		require.LessOrEqual(k, ranges, rows/(maxRows/4), "ranges, partitions and rows: %v", parts)
		require.LessOrEqual(k, partitions, ranges+ranges/4, "ranges, partitions and rows: %v", parts)
		require.Greater(k, parts[0][0]/8, 3)
		require.Greater(k, len(s.Drops), 20)
		for _, d := range s.Drops {
			require.Empty(k, d.Error)
			require.WithinDuration(k, d.Began.Add(-keepFor), d.PutBefore, time.Minute)
		}
		k.Logf("%d rows put, %d left; ranges, partitions and rows: %v", all, len(oracle), parts)
	})
}
