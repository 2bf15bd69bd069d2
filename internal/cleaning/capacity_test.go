package cleaning_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// memoryBlobs keeps bodies in memory, and tells of those that are deleted.
type memoryBlobs struct {
	mu      sync.Mutex
	m       map[string][]byte
	deleted func(name string)
	broken  atomic.Bool // none can be deleted
}

func (b *memoryBlobs) Create(_ context.Context, name string, body io.Reader, _ int64) error {
	text, err := io.ReadAll(body)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.m[name] = text
	}
	return err
}

func (b *memoryBlobs) Open(_ context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, there := b.m[name]
	if !there {
		return nil, 0, store.Errorf(store.NotFound, "no such blob")
	}
	return io.NopCloser(io.NewSectionReader(bytes.NewReader(text), offset, n)), int64(len(text)), nil
}

func (b *memoryBlobs) Delete(_ context.Context, name string) error {
	if b.broken.Load() {
		return store.Errorf(store.Unavailable, "broken")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, there := b.m[name]
	delete(b.m, name)
	if there && b.deleted != nil {
		b.deleted(name)
	}
	return nil
}

func (b *memoryBlobs) List(_ context.Context, prefix, after string, each func(string, int64) error) error {
	b.mu.Lock()
	var names []string
	for name := range b.m {
		if strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	b.mu.Unlock()
	for _, name := range names {
		if err := each(name, 1); err != nil {
			return err
		}
	}
	return nil
}

// A day's deletes are freed the next day, in the last bucket by name as soon as in the first, although the process that
// cleans ends every hour. EVENKEEL_DELETES is how many there are: 1000000 take some minutes.
func TestADaysDeletesAreFreedTheNextDay(t *testing.T) {
	race.Skip(t)
	t.Run("in rounds over all rows", func(t *testing.T) { freedTheNextDay(t, false) })
	t.Run("by hints", func(t *testing.T) { freedTheNextDay(t, true) })
}

func freedTheNextDay(t *testing.T, byHints bool) {
	deletes := 12_000
	if n, err := strconv.Atoi(os.Getenv("EVENKEEL_DELETES")); err == nil {
		deletes = n
	}
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t), t.Context()
		options, most := objects.Options{InlineBytes: -1}, 49*time.Hour
		if byHints {
			w.hints, most = hints.New(w.s, w.log), 50*time.Hour
			defer w.hints.Close()
			options.Hints = w.hints
		}
		last := map[string]time.Time{}
		blobs := &memoryBlobs{m: map[string][]byte{}, deleted: func(name string) { last[name[:1]] = time.Now() }}
		var err error
		w.o, err = objects.New(w.c, blobs, options)
		require.NoError(t, err)
		w.every = time.Hour
		for _, name := range []string{"aaa", "zzz"} {
			require.NoError(t, w.o.CreateBucket(ctx, name))
		}
		begun := time.Now()
		for hour := range int(most.Hours()) {
			if hour < 24 {
				for i := range deletes / 24 {
					name := "aaa"
					if i%20 == 0 {
						name = "zzz"
					}
					b, key := w.o.Bucket(name, objects.Never), fmt.Appendf(nil, "%d/%d", i, hour)
					info, err := b.Put(ctx, key, strings.NewReader("b"), objects.Meta{Size: 1})
					require.NoError(t, err)
					if i%2 == 0 {
						_, err = b.Delete(ctx, key)
					} else {
						_, err = b.DeleteVersion(ctx, key, info.ID)
					}
					require.NoError(t, err)
				}
			}
			_, stop := w.run(nil)
			time.Sleep(time.Hour - time.Minute)
			stop()
			time.Sleep(time.Minute)
		}
		require.Empty(t, blobs.m, "bodies that are left after two days")
		require.Less(t, last["a"].Sub(begun), most)
		require.InDelta(t, last["a"].Sub(begun).Hours(), last["z"].Sub(begun).Hours(), 1)
	})
}

// An upload that has ended is freed as well, although no process cleans for a day.
func TestUploadsAreFreedAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t), t.Context()
		b := w.o.Bucket("photos", objects.Never)
		for _, key := range []string{"aborted", "completed"} {
			u, err := b.CreateUpload(ctx, []byte(key), objects.Meta{})
			require.NoError(t, err)
			var named []objects.Part
			for range 2 { // the first is not listed
				part, err := b.PutPart(ctx, u.Key, u.ID, 1, strings.NewReader("part"), objects.Meta{Size: 4})
				require.NoError(t, err)
				named = []objects.Part{{Number: 1, ETag: part.ETag}}
			}
			if key == "aborted" {
				err = b.Abort(ctx, u.Key, u.ID)
			} else {
				_, err = b.Complete(ctx, u.Key, u.ID, named, nil)
			}
			require.NoError(t, err)
		}
		for range 75 {
			_, stop := w.run(nil)
			time.Sleep(time.Hour)
			stop()
		}
		require.Len(t, w.bodies("photos"), 2, "the object, and the part that the version lists")
		body, err := b.Get(ctx, []byte("completed"), objects.Latest, objects.Range{N: 4})
		require.NoError(t, err)
		text, err := io.ReadAll(body.Body)
		require.NoError(t, err)
		require.Equal(t, "part", string(text))
	})
}

// A round that takes longer than the processes live goes on where the last one was: also the last bucket has its turn.
func TestARoundGoesOnInTheNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ctx := newWorld(t), t.Context()
		blobs := &memoryBlobs{m: map[string][]byte{}}
		var err error
		w.o, err = objects.New(w.c, blobs, objects.Options{InlineBytes: -1})
		require.NoError(t, err)
		require.NoError(t, w.o.CreateBucket(ctx, "aaa"))
		for i := range 4000 {
			_, err := w.o.Bucket("aaa", objects.Never).
				Put(ctx, fmt.Appendf(nil, "%04d", i), strings.NewReader("b"), objects.Meta{Size: 1})
			require.NoError(t, err)
		}
		w.rate = 1 // rows a second
		for range 3 {
			_, stop := w.run(nil)
			time.Sleep(time.Hour)
			stop()
		}
		require.Equal(t, burned, w.ranks("videos"))
	})
}
