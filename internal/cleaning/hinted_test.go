package cleaning_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	storerecord "github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// counting is a store that counts the rows that are read. Its hints may be away.
type counting struct {
	memstore.Store
	rows atomic.Int64
	away atomic.Bool
	late atomic.Int64 // a time.Duration, after which writes come whose outcome is not known
}

func (c *counting) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	late := time.Duration(c.late.Load())
	if late == 0 || p.Bucket == hints.Bucket {
		return c.Store.Put(ctx, p, rows...)
	}
	time.AfterFunc(late, func() { _ = c.Store.Put(context.Background(), p, rows...) })
	return store.Errorf(store.Timeout, "no answer")
}

func (c *counting) Get(ctx context.Context, p store.Partition, key []byte) (store.Row, bool, error) {
	row, there, err := c.Store.Get(ctx, p, key)
	if there {
		c.rows.Add(1)
	}
	return row, there, err
}

func (c *counting) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if p.Bucket == hints.Bucket && c.away.Load() {
		return store.Page{}, store.Errorf(store.Unavailable, "away")
	}
	page, err := c.Store.Slice(ctx, p, b, o)
	c.rows.Add(int64(len(page.Rows)))
	return page, err
}

// hinted is a world with one bucket, whose objects write hints.
type hinted struct {
	*world
	s     *counting
	blobs *memoryBlobs
	b     *objects.Bucket
}

func newHinted(t *testing.T) *hinted {
	s := &counting{Store: memstore.New()}
	h := &hinted{s: s, blobs: &memoryBlobs{m: map[string][]byte{}}}
	h.world = &world{t: t, regs: s, log: slog.New(slog.DiscardHandler), every: time.Hour}
	var err error
	h.c, err = listing.New(s, listing.Options{})
	require.NoError(t, err)
	h.world.hints = hints.New(s, h.log)
	t.Cleanup(h.world.hints.Close)
	h.o = h.objects(h.world.hints)
	require.NoError(t, h.o.CreateBucket(t.Context(), "photos"))
	h.b = h.o.Bucket("photos", objects.Never)
	return h
}

// objects returns the objects of a process; one that dies at once is told by a journal that is nil.
func (h *hinted) objects(j *hints.Journal) *objects.Objects {
	o := objects.Options{InlineBytes: -1}
	if j != nil {
		o.Hints = j
	}
	of, err := objects.New(h.c, h.blobs, o)
	require.NoError(h.t, err)
	return of
}

func (h *hinted) put(b *objects.Bucket, key string) objects.Info {
	h.t.Helper()
	info, err := b.Put(h.t.Context(), []byte(key), strings.NewReader("b"), objects.Meta{Size: 1})
	require.NoError(h.t, err)
	return info
}

// stored returns how many bodies there are.
func (h *hinted) stored() int {
	h.blobs.mu.Lock()
	defer h.blobs.mu.Unlock()
	return len(h.blobs.m)
}

// left returns how many partitions of hints have rows.
func (h *hinted) left() (n int) {
	all, err := h.s.Partitions(h.t.Context(), store.Partition{}, 10_000)
	require.NoError(h.t, err)
	for _, p := range all {
		if p.Bucket == hints.Bucket {
			n++
		}
	}
	return n
}

func metric(t *testing.T, c *cleaning.Cleaning, name string) (sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	all, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range all {
		if family.GetName() == name {
			for _, m := range family.Metric {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// TestWhatIsReplacedOrDeletedIsFoundWithoutReadingAllRows of a bucket, and nothing stays behind.
func TestWhatIsReplacedOrDeletedIsFoundWithoutReadingAllRows(t *testing.T) {
	race.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		const many, few = 100_000, 100
		h := newHinted(t)
		infos := make([]objects.Info, many)
		for i := range infos {
			infos[i] = h.put(h.b, fmt.Sprintf("%06d", i))
		}
		_, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour) // a round over all rows, and all puts were looked at
		for i := range few {
			h.put(h.b, fmt.Sprintf("%06d", i*many/few))
			at := i*many/few + many/few/2
			_, err := h.b.DeleteVersion(t.Context(), infos[at].Key, infos[at].ID)
			require.NoError(t, err)
		}
		h.s.rows.Store(0)
		time.Sleep(48 * time.Hour)
		require.Equal(t, many-few, h.stored())
		require.Less(t, h.s.rows.Load(), int64(2000))
		require.Zero(t, h.left(), "hints that were followed")
	})
}

// What a process noted last before it was killed is lost: a round over all rows finds it, and what waits behind it.
func TestARoundOverAllRowsFindsWhatHintsLack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		h.put(h.b, "key")
		c, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		h.put(h.objects(nil).Bucket("photos", objects.Never), "key")
		time.Sleep(4 * 24 * time.Hour)
		require.Equal(t, 2, h.stored())
		require.Zero(t, metric(t, c, "evenkeel_objects_cleaner_overdue_total"))
		time.Sleep(5 * 24 * time.Hour)
		require.Equal(t, 1, h.stored())
		require.EqualValues(t, 1, metric(t, c, "evenkeel_objects_cleaner_overdue_total"))
	})
}

// A hint is one for the very bucket: another bucket of the name has nothing to do with it.
func TestHintsOfADeletedBucketAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		info := h.put(h.b, "key")
		_, err := h.b.DeleteVersion(t.Context(), info.Key, info.ID)
		require.NoError(t, err)
		require.NoError(t, h.o.DeleteBucket(t.Context(), "photos"))
		require.NoError(t, h.o.CreateBucket(t.Context(), "photos"))
		h.put(h.objects(nil).Bucket("photos", objects.Never), "key")
		c, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		require.Zero(t, h.left())
		require.Zero(t, metric(t, c, "evenkeel_objects_cleaner_hinted_total"))
		require.Equal(t, 1, h.stored())
	})
}

// While it is not certain that all processes write hints each round looks at all rows; and one more does once they do.
func TestRoundsLookAtAllRowsUntilAllProcessesWriteHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		const many = 100
		for i := range many {
			h.put(h.objects(nil).Bucket("photos", objects.Never), fmt.Sprintf("%02d", i))
		}
		var noting atomic.Int64 // -1: not known
		h.noting = func(context.Context) (bool, error) {
			if noting.Load() < 0 {
				return false, store.Errorf(store.Unavailable, "away")
			}
			return noting.Load() > 0, nil
		}
		c, stop := h.run(nil)
		time.Sleep(10*time.Hour + 30*time.Minute)
		read := func() float64 { return metric(t, c, "evenkeel_objects_cleaner_rows_total") }
		rows := read()
		require.EqualValues(t, 11*many, rows)
		noting.Store(1)
		time.Sleep(10 * time.Hour)
		require.EqualValues(t, rows+many, read())
		noting.Store(-1) // what is known stays known
		time.Sleep(time.Hour)
		noting.Store(1)
		time.Sleep(10 * time.Hour)
		require.EqualValues(t, rows+2*many, read())
		stop()
		c, stop = h.run(nil) // the next process knows it, too
		time.Sleep(10 * time.Hour)
		require.Zero(t, read())
		noting.Store(0)
		time.Sleep(time.Hour)
		noting.Store(1)
		time.Sleep(10 * time.Hour)
		require.EqualValues(t, 2*many, read())
		stop()
	})
}

// Where hints are not followed for a day rounds look at all rows, and once they are again, no more.
func TestRoundsLookAtAllRowsWhileHintsAreNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		for range 2 {
			h.put(h.b, "key")
		}
		c, stop := h.run(nil)
		defer stop()
		rounds := func(hours int) int {
			before := metric(t, c, "evenkeel_objects_cleaner_rows_total")
			time.Sleep(time.Duration(hours) * time.Hour)
			return int(metric(t, c, "evenkeel_objects_cleaner_rows_total") - before)
		}
		require.NotZero(t, rounds(50))
		require.Zero(t, rounds(10))
		h.s.away.Store(true)
		require.Zero(t, rounds(20))
		require.InDelta(t, 10, rounds(14), 1, "an object in each round")
		require.Greater(t, metric(t, c, "evenkeel_objects_cleaner_round_age_seconds"), 33*3600.)
		h.s.away.Store(false)
		rounds(2)
		require.Zero(t, rounds(10))
	})
}

// Parts are deleted that no version lists, and those of a version that was replaced.
func TestPartsAreFreedByHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, ctx := newHinted(t), t.Context()
		h.allEvery = 1000 * time.Hour
		_, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		upload := func(key string, end func(u objects.UploadID, named []objects.Part)) {
			u, err := h.b.CreateUpload(ctx, []byte(key), objects.Meta{})
			require.NoError(t, err)
			var named []objects.Part
			for range 2 { // the first is not listed
				part, err := h.b.PutPart(ctx, u.Key, u.ID, 1, strings.NewReader("b"), objects.Meta{Size: 1})
				require.NoError(t, err)
				named = []objects.Part{{Number: 1, ETag: part.ETag}}
			}
			end(u.ID, named)
		}
		upload("aborted", func(u objects.UploadID, _ []objects.Part) {
			require.NoError(t, h.b.Abort(ctx, []byte("aborted"), u))
		})
		for range 2 {
			upload("completed", func(u objects.UploadID, named []objects.Part) {
				_, err := h.b.Complete(ctx, []byte("completed"), u, named, nil)
				require.NoError(t, err)
			})
		}
		time.Sleep(80 * time.Hour)
		require.Equal(t, 1, h.stored())
		// A step that is not yet due when its row is looked at is looked at again a day later: rows may go after
		// bodies.
		time.Sleep(20 * 24 * time.Hour)
		require.Equal(t, []byte{2}, h.ranks("photos"))
	})
}

// After random writes, whatever the status of the bucket, and steps that fail, hints leave nothing for a pass over all
// rows.
func TestHintsLeadToEverything(t *testing.T) {
	seed.Each(t, race.Fewer(10), func(n uint64) bool {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(n, 1))
			h, ctx := newHinted(t), t.Context()
			h.allEvery = 1000 * time.Hour
			_, stop := h.run(nil)
			defer stop()
			time.Sleep(3 * time.Hour)
			b, status := h.b, objects.Never
			var infos []objects.Info
			for range 300 {
				time.Sleep(time.Duration(r.IntN(60)) * time.Minute)
				key := []byte{byte(r.IntN(12)), byte(r.IntN(2))}[:1+r.IntN(2)]
				var info objects.Info
				var err error
				switch r.IntN(8) {
				case 0, 1, 2:
					info = h.put(b, string(key))
				case 3:
					info, err = b.Delete(ctx, key)
				case 4, 5:
					if len(infos) > 0 {
						old := infos[r.IntN(len(infos))]
						if _, err = b.DeleteVersion(ctx, old.Key, old.ID); errors.Is(err, listing.ErrNotFound) {
							err = nil
						}
					}
				case 6:
					u, failed := b.CreateUpload(ctx, key, objects.Meta{})
					require.NoError(t, failed)
					part, failed := b.PutPart(ctx, key, u.ID, 1, strings.NewReader("b"), objects.Meta{Size: 1})
					require.NoError(t, failed)
					if named := []objects.Part{{Number: 1, ETag: part.ETag}}; r.IntN(3) > 0 {
						info, err = b.Complete(ctx, key, u.ID, named, nil)
					} else {
						err = b.Abort(ctx, key, u.ID)
					}
				case 7:
					h.blobs.broken.Store(r.IntN(3) == 0)
					if status = (status + 1) % 3; r.IntN(10) == 0 && status != objects.Never {
						require.NoError(t, h.o.SetStatus(ctx, "photos", status))
						b, _, err = h.o.Open(ctx, "photos")
					}
				}
				require.NoError(t, err)
				if len(info.Key) > 0 {
					infos = append(infos, info)
				}
			}
			h.blobs.broken.Store(false)
			time.Sleep(15 * 24 * time.Hour)
			cleaner, err := care.OfBucket(b).Cleaner(care.CleanOptions{Before: func(d care.Deed) bool {
				t.Errorf("%s %x, version %s", d.Do, d.Key, d.Version)
				return false
			}})
			require.NoError(t, err)
			_, err = cleaner.Pass(ctx)
			require.NoError(t, err)
			require.Zero(t, h.left())
		})
		return !t.Failed()
	})
}

// What rules delete by age is found by rounds over all rows of their buckets.
func TestBucketsWithRulesByAgeAreReadInEachRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		h.put(h.b, "key")
		_, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		rules := objects.Lifecycle{{ID: "one", Days: 1}}
		require.NoError(t, h.o.SetLifecycle(t.Context(), "photos", rules))
		time.Sleep(4 * 24 * time.Hour)
		require.Zero(t, h.stored())
	})
}

// A delete leaves a marker, which goes when nothing older can come. A bucket whose moves are paused waits.
func TestHintsComeBackToAnObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		h.allEvery = 1000 * time.Hour
		h.put(h.b, "key")
		h.put(h.b, "other")
		_, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		id, err := h.c.BucketID(t.Context(), "photos")
		require.NoError(t, err)
		_, _, err = pause.Set(t.Context(), h.s, &id, pause.Pause{Since: time.Now()}, time.Now())
		require.NoError(t, err)
		_, err = h.b.Delete(t.Context(), []byte("key"))
		require.NoError(t, err)
		time.Sleep(50 * time.Hour)
		require.Equal(t, 2, h.stored())
		_, err = pause.Lift(t.Context(), h.s, &id)
		require.NoError(t, err)
		time.Sleep(30 * time.Hour)
		require.Equal(t, 1, h.stored())
		require.Equal(t, []byte{2, 1}, h.ranks("photos"), "the marker, and the other object")
		time.Sleep(9 * 24 * time.Hour)
		require.Equal(t, []byte{1}, h.ranks("photos"))
		require.Zero(t, h.left())
	})
}

// Once a bucket has no rules by age any more hints lead to what was deleted meanwhile, too.
func TestHintsLeadToWhatWasDeletedBesideRulesByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		h.allEvery = 1000 * time.Hour
		h.put(h.b, "key")
		c, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		require.NoError(t, h.o.SetLifecycle(t.Context(), "photos", objects.Lifecycle{{ID: "one", Days: 1000}}))
		h.put(h.b, "key")
		time.Sleep(3 * time.Hour)
		require.NoError(t, h.o.SetLifecycle(t.Context(), "photos", nil))
		time.Sleep(48 * time.Hour)
		require.Equal(t, 1, h.stored())
		rows := metric(t, c, "evenkeel_objects_cleaner_rows_total")
		time.Sleep(48 * time.Hour)
		require.Equal(t, rows, metric(t, c, "evenkeel_objects_cleaner_rows_total"))
	})
}

// A write whose outcome was not known may come when its first hint was followed.
func TestHintsLeadToWhatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		h.allEvery = 1000 * time.Hour
		h.put(h.b, "key")
		_, stop := h.run(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		h.s.late.Store(int64(3 * time.Hour))
		_, err := h.b.Put(t.Context(), []byte("key"), strings.NewReader("b"), objects.Meta{Size: 1})
		require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
		h.s.late.Store(0)
		time.Sleep(48 * time.Hour)
		require.Equal(t, 1, h.stored())
	})
}

// Where a clock was ahead when hints were followed, and when a round began, both begin anew.
func TestHintsAreFollowedBehindAClockThatWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		for range 2 {
			h.put(h.b, "key")
		}
		year := time.Now().AddDate(1, 0, 0)
		for key, value := range map[string]any{
			"cleaner's round over all rows": map[string]any{"began": year},
			"cleaner's hints":               map[string]any{"slot": year.Unix() / 900},
		} {
			payload, err := json.Marshal(value)
			require.NoError(t, err)
			sealed := storerecord.Seal(1, storerecord.Next(store.Version{}), payload)
			require.NoError(t, h.s.Swap(t.Context(), store.Process, []byte(key), store.Version{}, sealed))
		}
		c, stop := h.run(nil)
		defer stop()
		time.Sleep(48 * time.Hour)
		require.Equal(t, 1, h.stored())
		require.Zero(t, h.left(), "hints")
		rows := metric(t, c, "evenkeel_objects_cleaner_rows_total")
		time.Sleep(48 * time.Hour)
		require.Equal(t, rows, metric(t, c, "evenkeel_objects_cleaner_rows_total"))
	})
}

// Where all servers were of a version before for some hours, and have left no trace, one round looks at all rows.
func TestARoundOverAllRowsComesBehindHoursWithoutCleaners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHinted(t)
		h.allEvery = 1000 * time.Hour
		h.put(h.b, "key")
		_, stop := h.run(nil)
		time.Sleep(10 * time.Hour)
		stop()
		h.put(h.objects(nil).Bucket("photos", objects.Never), "key")
		time.Sleep(5 * time.Hour)
		_, stop = h.run(nil)
		time.Sleep(48 * time.Hour)
		require.Equal(t, 1, h.stored())
		stop()
		c, stop := h.run(nil)
		defer stop()
		time.Sleep(10 * time.Hour)
		require.Zero(t, metric(t, c, "evenkeel_objects_cleaner_rows_total"), "a restart alone is no reason")
	})
}
