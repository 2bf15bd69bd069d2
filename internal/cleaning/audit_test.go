package cleaning_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// flaky are blobs whose listing can fail.
type flaky struct {
	objects.Blobs
	away atomic.Bool
	// beforeList, if there is one, comes before each listing.
	beforeList atomic.Pointer[func(prefix string)]
}

func (f *flaky) List(ctx context.Context, prefix, after string, each func(string, int64) error) error {
	if do := f.beforeList.Load(); do != nil {
		(*do)(prefix)
	}
	if f.away.Load() {
		return store.Errorf(store.Unavailable, "the bodies are away")
	}
	return f.Blobs.List(ctx, prefix, after, each)
}

func (f *flaky) Tops(ctx context.Context, each func(top string) error) error {
	if of, ok := f.Blobs.(objects.Tops); ok {
		return of.Tops(ctx, each)
	}
	return nil
}

// Written is long ago: files have the time of the machine, not that of the test.
func (f *flaky) Written(context.Context, string) (time.Time, error) { return time.Unix(0, 0), nil }

// bodies are the names of the blobs of a bucket.
func (w *world) bodies(bucket string) (names []string) {
	require.NoError(w.t, w.blobs.Blobs.List(w.t.Context(), bucket+"/", "", func(name string, _ int64) error {
		names = append(names, name)
		return nil
	}))
	return names
}

const idDigits = 28

// orphan adds the body of a put of twelve days ago, whose row was never written and can't come any more.
func (w *world) orphan(bucket string) (name string) { return w.orphanOf(bucket, 12*24*time.Hour) }

func (w *world) orphanOf(bucket string, age time.Duration) (name string) {
	return w.orphanPart(bucket, age, "")
}

// orphanPart adds the body of a part with a number of five digits and a hyphen, or a whole one without a number.
func (w *world) orphanPart(bucket string, age time.Duration, number string) (name string) {
	like := w.bodies(bucket)[0]
	id := objects.ID{Stamp: store.Timestamp(time.Now().Add(-age).UnixMicro())}
	if name = like[:len(like)-idDigits] + id.String(); number != "" {
		name += "/" + number + id.String()
	}
	require.NoError(w.t, w.blobs.Create(w.t.Context(), name, strings.NewReader("orphan"), 6))
	return name
}

// present returns the name of the body of the present version of a bucket's object: the newest that is not newer.
func (w *world) present(bucket string) string {
	info, err := w.o.Bucket(bucket, objects.Never).Head(w.t.Context(), []byte("key"), objects.Latest)
	require.NoError(w.t, err)
	for _, name := range w.bodies(bucket) {
		if name[len(name)-idDigits:] >= info.ID.String() {
			return name
		}
	}
	w.t.Fatal("there is no such body")
	return ""
}

// lose deletes the body of the present version of a bucket's object.
func (w *world) lose(bucket string) {
	require.NoError(w.t, w.blobs.Delete(w.t.Context(), w.present(bucket)))
}

// metrics are the values of the metrics of audits.
func metrics(t *testing.T, c *cleaning.Cleaning) map[string]float64 {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name, ofAudits := strings.CutPrefix(f.GetName(), "evenkeel_objects_audit_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			if ofAudits {
				all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return all
}

// settle lets an audit end that was due at this moment.
func settle() { time.Sleep(time.Second) }

// Without --condemn-orphans what is found is reported, and stays.
func TestAuditsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.every, w.auditEvery = 30*time.Minute, 24*time.Hour
		orphan := w.orphan("videos")
		c, stop := w.run(nil)
		time.Sleep(time.Hour - time.Second)
		require.Nil(t, c.Status(t.Context()).LastAudit)
		require.Equal(t, map[string]float64{"rows_total": 0, "bodies_total": 0}, metrics(t, c))
		time.Sleep(time.Second)
		settle()
		s := c.Status(t.Context())
		require.Nil(t, s.Audit)
		require.Equal(t, &cleaning.Audit{
			Began: s.LastAudit.Began, Ended: s.LastAudit.Ended, Faults: cleaning.Counts{care.Orphan: 1},
			Compared: cleaning.Compared{Buckets: 2, Rows: 4, Blobs: 5, Problems: 1, Waiting: 2},
			Found:    []cleaning.Found{{Bucket: "videos", Faults: cleaning.Counts{care.Orphan: 1}}},
		}, s.LastAudit)
		require.Equal(t, map[string]float64{
			"age_seconds": 1, "rows_total": 4, "bodies_total": 5, "findings lost body": 0, "findings orphan": 1,
			"findings unlisted part": 0, "findings stranger": 0, "findings damaged row": 0,
		}, metrics(t, c))
		time.Sleep(100 * time.Hour)
		require.EqualValues(t, 1, c.Status(t.Context()).LastAudit.Problems)
		stop()
		require.Contains(t, w.bodies("videos"), orphan)
		require.Contains(t, w.lines.String(), `level=INFO msg="an audit has found faults" bucket=videos fault=orphan `+
			`number=1 first="key key, version `+orphan[len(orphan)-idDigits:])
		require.NotContains(t, w.lines.String(), "level=WARN")
	})
}

// What is condemned is deleted once no row of it can come, and never found again.
func TestAuditsCondemn(t *testing.T) {
	race.Skip(t)
	for name, elect := range map[string]*leader.Options{"embedded": nil, "shared": {Name: "a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.auditEvery, w.condemn = 24*time.Hour, true
				orphan := w.orphan("videos")
				young := w.orphanOf("photos", 9*24*time.Hour)
				c, stop := w.run(elect)
				defer stop()
				if elect != nil {
					time.Sleep(leader.DefaultLease) // until it leads
				}
				time.Sleep(time.Hour)
				settle()
				s := c.Status(t.Context())
				require.EqualValues(t, 2, s.LastAudit.Problems)
				require.EqualValues(t, 1, s.LastAudit.Condemned, "a row of the other one may come")
				require.NotContains(t, w.bodies("videos"), orphan)
				time.Sleep(25 * time.Hour)
				s = c.Status(t.Context())
				require.EqualValues(t, 1, s.LastAudit.Problems)
				require.Zero(t, s.LastAudit.Condemned)
				require.Contains(t, w.bodies("photos"), young)
				time.Sleep(48 * time.Hour)
				require.NotContains(t, w.bodies("photos"), young)
				require.Zero(t, c.Status(t.Context()).LastAudit.Problems)
				require.Len(t, w.bodies("videos"), 1, "that of the object")
				require.Len(t, w.bodies("photos"), 1)
			})
		})
	}
}

// What failed puts have left of a deleted bucket is found, and goes once nothing can come any more that belongs to it.
func TestAuditsFindBodiesOfDeletedBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t), t.Context()
		w.auditEvery, w.condemn = 24*time.Hour, true
		require.NoError(t, care.Claim(ctx, w.blobs, "0123"))
		old, young := w.orphanOf("videos", 12*24*time.Hour), w.orphanOf("videos", 9*24*time.Hour)
		_, err := w.o.Bucket("videos", objects.Never).Delete(ctx, []byte("key"))
		require.NoError(t, err)
		require.NoError(t, w.o.DeleteBucket(ctx, "videos"))
		require.ElementsMatch(t, []string{old, young}, w.bodies("videos"))
		c, stop := w.run(nil)
		time.Sleep(time.Hour)
		settle()
		last := c.Status(ctx).LastAudit
		require.Equal(t, cleaning.Counts{care.Orphan: 2}, last.Faults)
		require.Equal(t, []cleaning.Found{{Bucket: "videos", Faults: last.Faults}}, last.Found)
		require.EqualValues(t, 1, last.Buckets)
		require.EqualValues(t, 1, last.Condemned)
		require.Equal(t, []string{young}, w.bodies("videos"))
		time.Sleep(3 * 24 * time.Hour)
		require.Empty(t, w.bodies("videos"))
		require.Zero(t, c.Status(ctx).LastAudit.Problems)
		stop()
		require.Contains(t, w.lines.String(), `level=INFO msg="an audit has found bodies of a bucket that is not there" `+
			`bucket=videos fault=orphan number=2 first="key key, version `)
	})
}

// While moves are paused no body of a deleted bucket is deleted, and an audit goes on behind the pause.
func TestBodiesOfDeletedBucketsStayDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t), t.Context()
		w.rate, w.every, w.auditEvery, w.condemn = 1, 2*time.Hour, 24*time.Hour, true
		require.NoError(t, care.Claim(ctx, w.blobs, "0123"))
		const orphans = 100
		for i := range time.Duration(orphans) {
			w.orphanOf("videos", 12*24*time.Hour+i*time.Second)
		}
		_, err := w.o.Bucket("videos", objects.Never).Delete(ctx, []byte("key"))
		require.NoError(t, err)
		require.NoError(t, w.o.DeleteBucket(ctx, "videos"))
		c, stop := w.run(nil)
		time.Sleep(time.Hour)
		for len(w.bodies("videos")) == orphans {
			time.Sleep(time.Second)
		}
		now := time.Now()
		_, _, err = pause.Set(ctx, w.s, nil, pause.Pause{Since: now, Until: now.Add(time.Hour)}, now)
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		left := len(w.bodies("videos"))
		require.Greater(t, left, orphans/2)
		time.Sleep(30 * time.Minute)
		require.Len(t, w.bodies("videos"), left)
		require.Equal(t, "moves are paused", c.Status(ctx).Audit.Error)
		time.Sleep(4 * time.Hour)
		require.Empty(t, w.bodies("videos"))
		require.Empty(t, c.Status(ctx).LastAudit.Error)
		stop()
		require.NotContains(t, w.lines.String(), "level=WARN", "a pause is no failure")
	})
}

// A name whose record is damaged keeps no audit from its end, and what is below it stays.
func TestAuditsPassOverDamagedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t), t.Context()
		w.auditEvery, w.condemn = 24*time.Hour, true
		require.NoError(t, care.Claim(ctx, w.blobs, "0123"))
		body := "hurt" + strings.TrimPrefix(w.orphan("videos"), "videos")
		require.NoError(t, w.blobs.Create(ctx, body, strings.NewReader("body"), 4))
		require.NoError(t, w.s.Swap(ctx, store.Directory, []byte("hurt"), store.Version{},
			record.Seal(1, record.Next(store.Version{}), []byte("no id"))))
		_, err := door.Client(w.c).Owner(ctx, "hurt")
		require.ErrorIs(t, err, store.Corrupt)
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(2 * time.Hour)
		require.NotNil(t, c.Status(ctx).LastAudit)
		require.Equal(t, []string{body}, w.bodies("hurt"))
	})
}

// Where a body is lost the others may be those of something else: nothing is condemned in this bucket.
func TestNothingIsCondemnedBesideALostBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auditEvery, w.condemn = 24*time.Hour, true
		photo, video := w.orphan("photos"), w.orphan("videos")
		w.lose("videos")
		c, stop := w.run(nil)
		time.Sleep(40 * time.Hour)
		s := c.Status(t.Context())
		require.Equal(t, cleaning.Counts{care.LostBody: 1, care.Orphan: 1}, s.LastAudit.Faults)
		require.Equal(t, []cleaning.Found{{Bucket: "videos", Faults: s.LastAudit.Faults}}, s.LastAudit.Found)
		require.Zero(t, s.LastAudit.Condemned)
		require.NotContains(t, w.bodies("photos"), photo)
		require.Contains(t, w.bodies("videos"), video)
		stop()
		require.Contains(t, w.lines.String(), `level=WARN msg="an audit has found faults" bucket=videos fault="lost body"`)
		require.Contains(t, w.lines.String(), `level=WARN msg="bodies without a version are not condemned" bucket=videos`)
	})
}

// A bucket that lacks something is named, however many others have orphans.
func TestLostBodiesAreNamedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auditEvery = time.Hour
		for i := range 20 {
			name := fmt.Sprintf("many-%02d", i)
			require.NoError(t, w.o.CreateBucket(t.Context(), name))
			_, err := w.o.Bucket(name, objects.Never).
				Put(t.Context(), []byte("key"), strings.NewReader("body"), objects.Meta{Size: 4})
			require.NoError(t, err)
			w.orphan(name)
		}
		w.lose("many-17")
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(time.Hour)
		settle()
		last := c.Status(t.Context()).LastAudit
		require.Equal(t, cleaning.Counts{care.LostBody: 1, care.Orphan: 20}, last.Faults)
		require.Len(t, last.Found, 10)
		require.Equal(t, "many-17", last.Found[0].Bucket)
	})
}

const small = 2500 // objects

// large adds objects to a bucket, in several pages, with bodies in their rows.
func (w *world) large(bucket string) {
	o, err := objects.New(w.c, w.blobs, objects.Options{})
	require.NoError(w.t, err)
	for i := range small {
		_, err := o.Bucket(bucket, objects.Never).
			Put(w.t.Context(), fmt.Appendf(nil, "row-%d", i), strings.NewReader("body"), objects.Meta{Size: 4})
		require.NoError(w.t, err)
	}
}

// interrupted is a cleaner whose audit of photos is interrupted by a pause, after two of three pages.
func interrupted(t *testing.T) (w *world, c *cleaning.Cleaning, stop func()) {
	w = newWorld(t)
	w.large("photos")
	w.rate, w.every, w.auditEvery, w.condemn = 100, 2*time.Hour, 24*time.Hour, true
	c, stop = w.run(nil)
	time.Sleep(time.Hour + 5*time.Second) // a page takes 10 s
	id, err := w.c.BucketID(t.Context(), "photos")
	require.NoError(t, err)
	_, _, err = pause.Set(t.Context(), w.s, &id, pause.Pause{Since: time.Now()}, time.Now())
	require.NoError(t, err)
	time.Sleep(10 * time.Minute)
	s := c.Status(t.Context())
	require.Nil(t, s.LastAudit)
	require.Equal(t, "moves are paused", s.Audit.Error)
	require.EqualValues(t, 1, s.Audit.Buckets, "the other one is done")
	require.EqualValues(t, 2001, s.Audit.Rows, "one row of the two pages is a proof")
	_, err = pause.Lift(t.Context(), w.s, &id)
	require.NoError(t, err)
	return w, c, stop
}

// An audit that was paused goes on where it was: it reads each row once, and remembers what it has found.
func TestAPausedAuditGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c, stop := interrupted(t)
		defer stop()
		orphan := w.orphan("photos") // in the part that was read
		time.Sleep(3 * time.Hour)
		s := c.Status(t.Context())
		require.Nil(t, s.Audit)
		require.Equal(t, cleaning.Compared{Buckets: 2, Rows: small + 4, Blobs: 4, Waiting: 2}, s.LastAudit.Compared)
		require.Empty(t, s.LastAudit.Error)
		require.EqualValues(t, small+4, metrics(t, c)["rows_total"], "each row was read once")
		require.Contains(t, w.bodies("photos"), orphan)
	})
}

// Findings of the part before a pause count behind it, a lost body, too.
func TestAPausedAuditRemembersWhatItFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.large("photos")
		orphan := w.orphan("photos")
		w.lose("photos")
		w.rate, w.every, w.auditEvery, w.condemn = 100, 2*time.Hour, 24*time.Hour, true
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(time.Hour + 5*time.Second)
		now := time.Now()
		_, _, err := pause.Set(t.Context(), w.s, nil, pause.Pause{Since: now, Until: now.Add(time.Minute)}, now)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		s := c.Status(t.Context())
		require.Equal(t, cleaning.Counts{care.LostBody: 1, care.Orphan: 1}, s.Audit.Faults)
		require.Zero(t, s.Audit.Buckets)
		time.Sleep(3 * time.Hour)
		s = c.Status(t.Context())
		require.Equal(t, cleaning.Counts{care.LostBody: 1, care.Orphan: 1}, s.LastAudit.Faults)
		require.EqualValues(t, 2, s.LastAudit.Problems)
		require.Zero(t, s.LastAudit.Condemned)
		time.Sleep(20 * time.Hour)
		require.Contains(t, w.bodies("photos"), orphan)
	})
}

// Buckets that are deleted during an audit do not keep it from its end.
func TestBucketsAreDeletedDuringAnAudit(t *testing.T) {
	remove := func(w *world, bucket string) {
		for more := true; more; {
			page, err := w.o.Bucket(bucket, objects.Never).ListVersions(w.t.Context(), objects.Query{Limit: 1000})
			require.NoError(w.t, err)
			for _, v := range page.Items {
				_, err := w.o.Bucket(bucket, objects.Never).DeleteVersion(w.t.Context(), v.Key, v.ID)
				require.NoError(w.t, err)
			}
			more = len(page.Items) > 0
		}
		require.NoError(w.t, w.o.DeleteBucket(w.t.Context(), bucket))
	}
	t.Run("while it is being read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.auditEvery = time.Hour
			once := func(prefix string) {
				if prefix == "photos/" {
					w.blobs.beforeList.Store(nil)
					remove(w, "photos")
				}
			}
			c, stop := w.run(nil)
			defer stop()
			time.Sleep(time.Hour - time.Second)
			w.blobs.beforeList.Store(&once)
			time.Sleep(time.Second)
			settle()
			s := c.Status(t.Context())
			require.Nil(t, s.Audit)
			require.EqualValues(t, 1, s.LastAudit.Buckets)
			require.Empty(t, s.LastAudit.Faults)
		})
	})
	t.Run("while it is paused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, c, stop := interrupted(t)
			defer stop()
			remove(w, "photos")
			require.NoError(t, w.o.CreateBucket(t.Context(), "photos"))
			time.Sleep(3 * time.Hour)
			s := c.Status(t.Context())
			require.Nil(t, s.Audit)
			require.Equal(t, cleaning.Compared{Buckets: 2, Rows: 2, Blobs: 2, Waiting: 1}, s.LastAudit.Compared)
		})
	})
}

// While the store of bodies is away nothing is known: neither that bodies are lost, nor that they are there.
func TestBodiesAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auditEvery, w.condemn = 24*time.Hour, true
		w.orphan("videos")
		w.blobs.away.Store(true)
		c, stop := w.run(nil)
		time.Sleep(3 * time.Hour)
		s := c.Status(t.Context())
		require.Nil(t, s.LastAudit)
		require.Contains(t, s.Audit.Error, "the bodies are away")
		require.Empty(t, s.Audit.Faults)
		w.blobs.away.Store(false)
		time.Sleep(time.Minute)
		settle()
		s = c.Status(t.Context())
		require.Nil(t, s.Audit)
		require.Equal(t, cleaning.Counts{care.Orphan: 1}, s.LastAudit.Faults)
		require.EqualValues(t, 1, s.LastAudit.Condemned)
		stop()
		require.Contains(t, w.lines.String(), "could not all be audited")
	})
}

// What fails while it is condemned is condemned later, by the same audit.
func TestADataCentreIsAwayWhileSomethingIsCondemned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auditEvery, w.condemn = 24*time.Hour, true
		w.orphanPart("videos", 48*time.Hour, "00001-") // what is condemned is burned
		c, stop := w.run(&leader.Options{Name: "a"})
		defer stop()
		time.Sleep(time.Hour - time.Second)
		w.s.away.Store(true)
		time.Sleep(10 * time.Minute)
		s := c.Status(t.Context())
		require.Nil(t, s.LastAudit)
		require.Contains(t, s.Audit.Error, "a data centre is away")
		require.EqualValues(t, 1, s.Audit.Problems)
		w.s.away.Store(false)
		time.Sleep(2 * time.Minute)
		s = c.Status(t.Context())
		require.EqualValues(t, 1, s.LastAudit.Problems)
		require.EqualValues(t, 1, s.LastAudit.Condemned)
		require.EqualValues(t, 4, metrics(t, c)["rows_total"], "nothing was read again")
	})
}

// A process that starts knows of the last audit, and makes the next one when it is due.
func TestAuditsAreRememberedAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.every, w.auditEvery = time.Hour, 100*time.Hour
		w.orphan("videos")
		_, stop := w.run(nil)
		time.Sleep(time.Hour)
		settle()
		stop()
		last := time.Now()
		for range 4 { // of servers that run for a day
			c, stop := w.run(nil)
			time.Sleep(24 * time.Hour)
			s := c.Status(t.Context())
			require.Less(t, s.LastAudit.Ended, last)
			require.Equal(t, cleaning.Counts{care.Orphan: 1}, s.LastAudit.Faults)
			require.EqualValues(t, 1, metrics(t, c)["findings orphan"])
			require.Zero(t, metrics(t, c)["rows_total"])
			stop()
		}
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(5 * time.Hour)
		require.Greater(t, c.Status(t.Context()).LastAudit.Ended, last)
	})
}

// Who has begun an audit, and leads again when another process has made one, leaves its own.
func TestAnotherProcessHasAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.every, w.auditEvery = 10*time.Minute, 24*time.Hour
		w.blobs.away.Store(true)
		first, stop := w.run(&leader.Options{Name: "first"})
		time.Sleep(2 * time.Hour)
		require.NotNil(t, first.Status(t.Context()).Audit)
		stop()
		w.blobs.away.Store(false)
		second, stop := w.run(&leader.Options{Name: "second"})
		time.Sleep(2 * time.Hour)
		last := second.Status(t.Context()).LastAudit
		require.NotNil(t, last)
		stop()
		stop = w.start(first)
		defer stop()
		time.Sleep(2 * time.Hour)
		s := first.Status(t.Context())
		require.True(t, s.Leading)
		require.Nil(t, s.Audit)
		require.True(t, last.Ended.Equal(s.LastAudit.Ended))
	})
}

func TestNoAudits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(30 * time.Hour)
		require.Nil(t, c.Status(t.Context()).LastAudit)
	})
}
