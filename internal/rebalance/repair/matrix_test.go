package repair_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// table is what is copied at one moment: the rows, the list of buckets among them, whose partitions may lie on other
// nodes, the names, and the roots with all other registers.
type table uint8

const (
	theRows table = iota
	theList
	theNames
	theRoots
	allTables
)

func tableOf(o *op) table {
	switch {
	case o.kind == ofRow && o.bucket == door.ListOfBuckets:
		return theList
	case o.kind == ofRow:
		return theRows
	case o.kind == ofRegister && o.table == store.Directory:
		return theNames
	}
	return theRoots
}

// life is what happened to a bucket: another one that gets its name later has another life. The events are those of
// keys, and of uploads with keys like "upload 3".
type life struct {
	past
	name       string
	born, died event
	gone       bool
	objects    bool
}

// surely reports whether the bucket is in a copy of moments from the first to the last one, and never whether it can't
// be.
func (l *life) surely(first, last int) (surely, never bool) {
	surely = l.born.acked <= first && !(l.gone && l.died.begun < last)
	return surely, l.gone && l.died.acked <= first || l.born.begun >= last
}

// world is a store with a journal, and the lives of its buckets.
type world struct {
	t     *testing.T
	j     *journal
	c     *listing.Client
	o     *objects.Objects
	lives []*life
	n     int // of values
	blobs bodies
}

// bodies keeps all bodies, as a place does for a day.
type bodies struct {
	objects.Blobs
	all *sync.Map
}

// Create implements objects.Blobs.
func (b bodies) Create(_ context.Context, name string, body io.Reader, _ int64) error {
	text, err := io.ReadAll(body)
	b.all.Store(name, string(text))
	return err
}

// Open implements objects.Blobs.
func (b bodies) Open(_ context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	text, found := b.all.Load(name)
	if !found {
		return nil, 0, store.NotFound
	}
	return io.NopCloser(strings.NewReader(text.(string)[offset:][:n])), int64(len(text.(string))), nil
}

// Delete implements objects.Blobs.
func (b bodies) Delete(context.Context, string) error { return nil }

// List implements objects.Blobs.
func (b bodies) List(_ context.Context, prefix, after string, each func(name string, size int64) error) error {
	var names []string
	b.all.Range(func(name, _ any) bool {
		names = append(names, name.(string))
		return true
	})
	slices.Sort(names)
	for _, name := range names {
		if text, _ := b.all.Load(name); strings.HasPrefix(name, prefix) && name > after {
			if err := each(name, int64(len(text.(string)))); err != nil {
				return err
			}
		}
	}
	return nil
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, j: newJournal(memstore.New()), blobs: bodies{all: &sync.Map{}}}
	w.c, w.o = w.clients(t, w.j)
	return w
}

func (w *world) clients(t *testing.T, s store.Store) (*listing.Client, *objects.Objects) {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	o, err := objects.New(c, w.blobs, objects.Options{})
	require.NoError(t, err)
	return c, o
}

func (w *world) do(f func() error) (e event) {
	e.begun = w.j.now()
	require.NoError(w.t, f())
	e.acked = w.j.now()
	return e
}

func (w *world) create(name string, ofObjects bool) *life {
	l := &life{name: name, objects: ofObjects, past: past{events: map[string][]event{}}}
	l.born = w.do(func() error {
		if ofObjects {
			return w.o.CreateBucket(ctx, name)
		}
		return w.c.CreateBucket(ctx, name, key(10), key(20))
	})
	owner, err := door.Client(w.c).Owner(ctx, name)
	require.NoError(w.t, err)
	l.id = owner.ID
	w.lives = append(w.lives, l)
	return l
}

// write puts a key, with a value that no other has, or deletes it.
func (w *world) write(l *life, i int, deletes bool) {
	value := ""
	if !deletes {
		w.n++
		value = fmt.Sprintf("%s %d", l.id, w.n)
	}
	e := w.do(func() (err error) {
		switch b := w.o.Bucket(l.name, objects.Never); {
		case l.objects && deletes:
			_, err = b.Delete(ctx, key(i))
		case l.objects:
			_, err = b.Put(ctx, key(i), strings.NewReader(value), objects.Meta{Size: int64(len(value))})
		case deletes:
			err = w.c.Bucket(l.name).Delete(ctx, key(i))
		default:
			err = w.c.Bucket(l.name).Put(ctx, key(i), []byte(value))
		}
		return err
	})
	e.value = value
	l.events[string(key(i))] = append(l.events[string(key(i))], e)
}

func (w *world) fill(l *life, from, to, step int) {
	for i := from; i < to; i += step {
		w.write(l, i, false)
	}
}

// purge is a deletion of the keys from one up to another.
func (w *world) purge(l *life, from, to int, f func(b *listing.Bucket) error) {
	e := w.do(func() error { return f(w.c.Bucket(l.name)) })
	for i := from; i < to; i++ {
		l.events[string(key(i))] = append(l.events[string(key(i))], e)
	}
}

func (w *world) purgeAll(l *life) {
	w.purge(l, 0, keysOfLife, func(b *listing.Bucket) error { return b.DeletePrefix(ctx, nil) })
}

// upload begins one.
func (w *world) upload(l *life, i int) objects.Upload {
	var u objects.Upload
	b := w.o.Bucket(l.name, objects.Never)
	e := w.do(func() (err error) {
		u, err = b.CreateUpload(ctx, key(i), objects.Meta{})
		return err
	})
	e.value = "open"
	l.events["upload "+string(key(i))] = []event{e}
	return u
}

// end completes an upload, or aborts it.
func (w *world) end(l *life, i int, u objects.Upload, completes bool) {
	b := w.o.Bucket(l.name, objects.Never)
	w.n++
	value := fmt.Sprintf("%s %d", l.id, w.n)
	e := w.do(func() error {
		if !completes {
			return b.Abort(ctx, key(i), u.ID)
		}
		p, err := b.PutPart(ctx, key(i), u.ID, 1, strings.NewReader(value), objects.Meta{Size: int64(len(value))})
		if err == nil {
			_, err = b.Complete(ctx, key(i), u.ID, []objects.Part{{Number: 1, ETag: p.ETag}}, nil)
		}
		return err
	})
	l.events["upload "+string(key(i))] = append(l.events["upload "+string(key(i))], e)
	if completes {
		e.value = value
		l.events[string(key(i))] = append(l.events[string(key(i))], e)
	}
}

func (w *world) deleteAll(l *life) {
	for i := range keysOfLife {
		w.write(l, i, true)
	}
}

func (w *world) deleteBucket(l *life) {
	l.gone = true
	l.died = w.do(func() error {
		if l.objects {
			return w.o.DeleteBucket(ctx, l.name)
		}
		return w.c.DeleteBucket(ctx, l.name)
	})
}

// move splits all buckets, or merges what was split, and gives the list of buckets a fresh partition. It may break
// off.
func (w *world) move(stop string) {
	ids := []store.BucketID{door.ListOfBuckets}
	for _, l := range w.lives {
		if !l.gone {
			ids = append(ids, l.id)
		}
	}
	for _, id := range ids {
		failpoint := func(_ context.Context, at, _ string) error {
			if at == stop {
				return errKilled
			}
			return nil
		}
		x := executor.New(w.j, mapclient.Of(w.c), id, executor.Options{Failpoint: failpoint})
		root, err := mapclient.Of(w.c).Load(ctx, id)
		require.NoError(w.t, err)
		switch rg := (partmap.Range{Entry: root.Entries[0]}); {
		case len(root.Batches) > 0: // goes on
		case id == door.ListOfBuckets:
			x.Add(move.Refresh(&rg))
		case root.Ranges > 1:
			x.Add(move.Merge(nil, nil))
		default:
			x.Add(move.Split(nil, nil, -1, key(10), key(20)))
		}
		if err := x.Run(ctx); stop == "" {
			require.NoError(w.t, err)
		} else {
			require.ErrorIs(w.t, err, errKilled)
		}
	}
}

const keysOfLife = 25

// matrixEvents are what comes between two copies. Each has a bucket "b", of keys and uploads.
var matrixEvents = []struct {
	name    string
	objects bool
	do      func(w *world, b *life)
}{
	{"nothing", false, func(*world, *life) {}},
	{"keys are deleted", false, func(w *world, b *life) { w.deleteAll(b) }},
	{"a part is purged", false, func(w *world, b *life) {
		w.purge(b, 5, 15, func(l *listing.Bucket) error { return l.DeleteRange(ctx, key(5), key(15)) })
	}},
	{"all is purged", false, func(w *world, b *life) { w.purgeAll(b) }},
	{"all is purged, and put again", false, func(w *world, b *life) { w.purgeAll(b); w.fill(b, 0, keysOfLife, 2) }},
	{"retention", false, func(w *world, b *life) {
		time.Sleep(time.Millisecond) // all timestamps so far are over
		w.purge(b, 0, keysOfLife, func(l *listing.Bucket) error {
			_, err := door.Bucket(l).DeleteOlderUntil(ctx, nil, nil, now()-1, time.Time{})
			return err
		})
	}},
	{"the bucket is deleted", false, func(w *world, b *life) { w.deleteAll(b); w.deleteBucket(b) }},
	{"the bucket is purged and deleted", false, func(w *world, b *life) { w.purgeAll(b); w.deleteBucket(b) }},
	{"another bucket gets the name", false, func(w *world, b *life) {
		w.deleteAll(b)
		w.deleteBucket(b)
		w.fill(w.create("b", false), 0, keysOfLife, 2)
	}},
	{"a purged bucket's name goes to one of objects", false, func(w *world, b *life) {
		w.purgeAll(b)
		w.deleteBucket(b)
		w.fill(w.create("b", true), 0, keysOfLife, 2)
	}},
	{"a new bucket", false, func(w *world, _ *life) { w.fill(w.create("c", false), 0, keysOfLife, 2) }},
	{"objects and uploads", true, func(w *world, b *life) {
		completed, aborted := w.upload(b, 22), w.upload(b, 23)
		w.upload(b, 24)
		w.end(b, 22, completed, true)
		w.end(b, 23, aborted, false)
		w.deleteAll(b)
	}},
	{"a bucket with an upload is deleted", true, func(w *world, b *life) { w.deleteAll(b); w.deleteBucket(b) }},
	{"its name goes to a plain bucket", true, func(w *world, b *life) {
		w.deleteAll(b)
		w.deleteBucket(b)
		w.fill(w.create("b", false), 0, keysOfLife, 2)
	}},
	{"its name goes to a bucket of objects", true, func(w *world, b *life) {
		w.deleteAll(b)
		w.deleteBucket(b)
		n := w.create("b", true)
		w.fill(n, 0, keysOfLife, 2)
		w.end(n, 3, w.upload(n, 3), true)
	}},
}

// TestRestoreMatrix restores copies whose tables are of two moments, for each event between moves, each pair of moments
// around them, and of the choices of the tables that are older each third one, from another one on in each run.
func TestRestoreMatrix(t *testing.T) {
	for _, e := range matrixEvents {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			r := seed.New(t)
			w := newWorld(t)
			var moments []int
			moment := func() { moments = append(moments, w.j.now()) }
			other := w.create("a", false)
			w.fill(other, 0, keysOfLife, 1)
			b := w.create("b", e.objects)
			w.fill(b, 0, keysOfLife, 1)
			w.write(b, 3, true)
			if e.objects {
				w.end(b, 19, w.upload(b, 19), true)
				w.upload(b, 20)
				w.end(b, 21, w.upload(b, 21), false)
			}
			w.move("")
			moment()
			stops := []string{"", "before swap copying", "before swap verifying", "before swap draining"}
			stop := stops[r.IntN(len(stops))]
			w.move(stop)
			w.write(b, 4, true)
			moment()
			end := func() {
				if stop != "" {
					w.move("")
				}
			}
			late := r.IntN(2) == 0
			if late { // the event comes after the end of the move
				end()
				moment()
			}
			e.do(w, b)
			if !late {
				moment()
				end()
			}
			moment()
			w.fill(other, 1, keysOfLife, 3)
			w.move("")
			if last := w.lives[len(w.lives)-1]; !last.gone {
				w.fill(last, 1, keysOfLife, 5)
				w.write(last, 2, true)
			}
			w.move("")
			moment()
			stride := 15 / race.Fewer(5)
			cases := r.IntN(stride)
			for j := range moments {
				for i := range j {
					for older := 1; older < 1<<allTables-1; older++ { // some are, and some are not
						if cases++; cases%stride != 0 {
							continue
						}
						var m [allTables]int
						for k := range m {
							m[k] = moments[j]
							if older&(1<<k) != 0 {
								m[k] = moments[i]
							}
						}
						// Nothing is both copied and removed from its source between these.
						near := i > 0 && j < len(moments)-1 && stop != "before swap copying"
						apart := near && r.IntN(2) == 0
						ok := t.Run("", func(t *testing.T) { w.restored(t, r, m, moments[i], moments[j], apart) })
						if !ok {
							t.Fatalf("stopped %q; rows (apart: %v), list, names, roots of %d, of the moments %d", stop, apart, m, moments)
						}
					}
				}
			}
		})
	}
}

func (w *world) restored(t *testing.T, r *rand.Rand, m [allTables]int, first, last int, apart bool) {
	s := newJournal(memstore.New())
	later := map[store.PartitionID]bool{}
	w.j.copyApart(t, s.Store, func(o *op) int {
		if !apart || tableOf(o) != theRows {
			return m[tableOf(o)]
		}
		if _, drawn := later[o.at]; !drawn {
			later[o.at] = r.IntN(2) == 0
		}
		if later[o.at] {
			return last
		}
		return first
	})
	look := func(o repair.Options) ([]repair.Finding, repair.Summary) {
		o.Now = func() time.Time { return time.Now().Add(30 * time.Minute) } // nothing is young
		o.LostSettings = care.LostSettings
		found, sum, err := verify(t, s, o)
		require.NoError(t, err)
		for _, x := range found {
			if o.Repair || o.Adopt != repair.AdoptNone {
				t.Log(x)
			}
		}
		return found, sum
	}
	wanted := repair.Options{Adopt: repair.AdoptAll}
	if !apart && r.IntN(2) == 0 {
		look(repair.Options{Adopt: repair.AdoptNewer})
		w.check(t, s, first, last, false)
	}
	found, sum := look(wanted)
	w.check(t, s, first, last, true)
	open := 0
	for _, x := range found {
		kinds := []repair.Kind{repair.Orphan}
		if apart {
			kinds = append(kinds, repair.Uncopied, repair.Misplaced, repair.LeftMarker)
		}
		if x.Open() && slices.Contains(kinds, x.Kind) {
			wanted.Discard = append(wanted.Discard, x.Partition) // a purge hides what is in it
			open++
		}
	}
	lost := w.lost(t, found, first, last)
	require.EqualValues(t, open+lost, sum.Problems, "%v", found)
	if open > 0 {
		c, _ := w.clients(t, s)
		for _, l := range w.lives {
			if root, err := mapclient.Of(c).Load(ctx, l.id); err == nil && root.State != partmap.Deleted {
				require.NoError(t, executor.New(s, mapclient.Of(c), l.id, executor.Options{}).Run(ctx))
			}
		}
		_, sum = look(wanted)
		require.EqualValues(t, lost, sum.Problems)
	}
	before := s.now()
	found, sum = look(wanted)
	require.Equal(t, lost, w.lost(t, found, first, last))
	require.EqualValues(t, lost, sum.Problems+sum.Mended, "%v", found)
	if lost == 0 { // else it tries to delete them
		require.Equal(t, before, s.now(), "a second repair changes nothing")
	}
	w.check(t, s, first, last, true)
}

// lost counts the buckets whose names are not in the copy, as they were made or deleted between its moments.
func (w *world) lost(t *testing.T, found []repair.Finding, first, last int) (n int) {
	for _, x := range found {
		if !x.Open() || x.Kind != repair.NamelessBucket {
			continue
		}
		n++
		for _, l := range w.lives {
			if surely, never := l.surely(first, last); l.id == x.ID {
				require.False(t, surely || never, "%s", x)
			}
		}
	}
	return n
}

// check holds a restored store to what it was from one moment to another; one that is not whole only to what it can't
// have been.
func (w *world) check(t *testing.T, s store.Store, first, last int, whole bool) {
	c, o := w.clients(t, s)
	has := map[string]store.BucketID{}
	previous := ""
	for info, err := range c.Buckets(ctx, "", "") {
		require.NoError(t, err)
		require.Less(t, previous, info.Name)
		previous = info.Name
		has[info.Name] = info.ID
		owner, err := door.Client(c).Owner(ctx, info.Name)
		require.NoError(t, err)
		if whole {
			require.Equal(t, info.ID, owner.ID, "the list and the directory of %q", info.Name)
		}
	}
	for _, l := range w.lives {
		surely, never := l.surely(first, last)
		if whole && surely {
			require.Equal(t, l.id, has[l.name], "%s", l.name)
		}
		if never {
			require.NotEqual(t, l.id, has[l.name], "%s", l.name)
		}
		owner, err := door.Client(c).Owner(ctx, l.name)
		require.NoError(t, err)
		if owner.ID != l.id {
			continue
		}
		if whole {
			delete(has, l.name)
		}
		got, err := contents(o, c, l)
		if !whole && err != nil {
			continue
		}
		require.NoError(t, err)
		for k := range l.events {
			allowed := l.allowed(k, first, last)
			allowed[""] = allowed[""] || !whole
			require.Contains(t, allowed, got[k], "%s of %s", k, l.name)
			delete(got, k)
		}
		require.Empty(t, got, "of another bucket")
	}
	if whole {
		require.Empty(t, has, "nobody made them")
	}
}

// contents lists a bucket, in order.
func contents(o *objects.Objects, c *listing.Client, l *life) (map[string]string, error) {
	got := map[string]string{}
	var keys []string
	if !l.objects {
		for e, err := range c.Bucket(l.name).All(ctx, listing.Query{}) {
			if err != nil {
				return nil, err
			}
			got[string(e.Key)] = string(e.Value)
			keys = append(keys, string(e.Key))
		}
	} else {
		b := o.Bucket(l.name, objects.Never)
		page, err := b.List(ctx, objects.Query{})
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			object, err := b.Get(ctx, item.Key, item.ID, objects.All)
			if err != nil {
				return nil, err
			}
			body, err := io.ReadAll(object.Body)
			if err != nil {
				return nil, err
			}
			got[string(item.Key)] = string(body)
			keys = append(keys, string(item.Key))
		}
		uploads, err := b.ListUploads(ctx, objects.UploadQuery{})
		if err != nil {
			return nil, err
		}
		for _, u := range uploads.Items {
			got["upload "+string(u.Key)] = "open"
		}
	}
	if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		return nil, fmt.Errorf("not in order, or twice: %q", keys)
	}
	return got, nil
}
