package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// strictBlobs fails in the middle of a stream whose blob is deleted, and loses answers.
type strictBlobs struct {
	blobsInMemory
	r     *rand.Rand
	fails float64
}

func (s *strictBlobs) fail(op string) error {
	if s.r.Float64() < s.fails {
		return store.Errorf(store.Unavailable, "%s: injected", op)
	}
	return nil
}

func (s *strictBlobs) Create(ctx context.Context, name string, body io.Reader, size int64) error {
	if s.r.IntN(2) == 0 {
		if err := s.fail("create"); err != nil {
			return err
		}
		return s.blobsInMemory.Create(ctx, name, body, size)
	}
	if err := s.blobsInMemory.Create(ctx, name, body, size); err != nil {
		return err
	}
	return s.fail("create, whose answer is lost")
}

func (s *strictBlobs) Delete(ctx context.Context, name string) error {
	if err := s.fail("delete"); err != nil {
		return err
	}
	_ = s.blobsInMemory.Delete(ctx, name)
	return s.fail("delete, whose answer is lost")
}

func (s *strictBlobs) Open(ctx context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	body, size, err := s.blobsInMemory.Open(ctx, name, offset, n)
	if err != nil {
		return nil, 0, err
	}
	return &strictBody{ReadCloser: body, s: s, name: name}, size, nil
}

type strictBody struct {
	io.ReadCloser
	s    *strictBlobs
	name string
}

func (b *strictBody) Read(p []byte) (int, error) {
	b.s.mu.Lock()
	_, there := b.s.m[b.name]
	b.s.mu.Unlock()
	if !there {
		return 0, errors.New("the blob was deleted while it was read")
	}
	return b.ReadCloser.Read(p[:min(len(p), 16)])
}

const (
	grace   = 3 * time.Hour
	settled = 5 * time.Hour
	longest = 2 * time.Hour // of a stream
)

// try is a put or delete that was tried; its body names it.
type try struct {
	n       int
	key     string
	marker  bool
	null    bool
	acked   bool
	unknown bool // it may have been applied
	id      objects.ID
	body    string
	begun   time.Time
	deleted bool // by version: acknowledged, or perhaps
	aborted bool // an upload, for sure
}

// uploading is an upload under way, of a try.
type uploading struct {
	x      *try
	u      objects.Upload
	pieces []string
	named  []objects.Part // ETags of those that were acknowledged
	tries  []completion
}

// completion is a try to complete an upload. The stamps of what it draws are above its own.
type completion struct {
	n     int
	at    store.Timestamp
	begun time.Time
}

type stream struct {
	o     *objects.Object
	begun time.Time
	want  string
	got   bytes.Buffer
}

// TestCleanersDestroyNothingThatIsSeen runs writers, readers whose streams take their time, two
// cleaners that die and are made anew, and moves, over stores that refuse, lose answers and write
// late. What was acknowledged is seen, or something newer; streams end well. Audits find
// no lost body, ever. In the end only bodies of versions that are seen are left.
func TestCleanersDestroyNothingThatIsSeen(t *testing.T) {
	const steps = 700
	tags, seeds := 0, 0
	seed.Each(t, race.Fewer(40), func(seed uint64) bool {
		// Ends of uploads sleep between their tries.
		synctest.Test(t, func(t *testing.T) { tags += clean(t, seed, steps) })
		seeds++
		return true
	})
	if seeds > 1 {
		require.Positive(t, tags, "no version has tags")
	}
	t.Logf("%d operations, with %d seeds", seeds*steps, seeds)
}

func clean(t *testing.T, seed uint64, steps int) (seenTags int) {
	ctx, r := t.Context(), rand.New(rand.NewPCG(seed, 1))
	now := time.UnixMicro(1_800_000_000_000_000)
	pass := func(d time.Duration) { now = now.Add(d) }
	inner := memstore.New()
	s, faults := faultstore.New(inner, faultstore.Options{Seed: seed, MaxLate: 40,
		Rates: faultstore.Rates{Refuse: 0.01, Lose: 0.03, Late: 0.03, Repeat: 0.05, Short: 0.2}})
	faults.Enable(false)
	c, err := listing.New(s, listing.Options{
		Timestamps: timestamps.New(func() time.Time { return now }), WriteAttempts: 1, // so that many outcomes are unknown
	})
	require.NoError(t, err)
	blobs := &strictBlobs{blobsInMemory{m: map[string][]byte{}}, r, 0.02}
	begin := now
	o, err := objects.New(c, blobs, objects.Options{InlineBytes: 20, PutTimeout: 10 * time.Minute,
		Now: func() (time.Duration, time.Time) { return now.Sub(begin), now }})
	require.NoError(t, err)
	require.NoError(t, o.CreateBucket(ctx, "objects"))
	rules := objects.Lifecycle{{ID: "uploads", AbandonDays: 1}}
	if seed%4 == 0 {
		rules[0].NoncurrentDays, rules[0].Newer = 1, r.IntN(3)
	}
	require.NoError(t, o.SetLifecycle(ctx, "objects", rules))
	owner, err := door.Client(c).Owner(ctx, "objects")
	require.NoError(t, err)
	m := listtest.NewMover(&listtest.Env{Store: inner, Client: c, Maps: mapclient.Of(c), Clock: &listtest.Clock{}}, owner.ID, r)
	versioned := objects.Never
	if seed%2 == 0 {
		versioned = objects.Enabled
		require.NoError(t, o.SetStatus(ctx, "objects", versioned))
	}
	b := o.Bucket("objects", versioned)
	cleaner := func() care.Cleaner {
		c, err := care.OfBucket(b).Cleaner(care.CleanOptions{Grace: grace, Settled: settled})
		require.NoError(t, err)
		return c
	}
	cleaners := []care.Cleaner{cleaner(), cleaner()}
	faults.Enable(true)
	condemn := func(c care.Cleaner) {
		err := care.OfBucket(b).Audit(ctx, "", nil, func(a care.Audited) error {
			for _, f := range a.Findings {
				require.NotEqual(t, care.LostBody, f.Fault, "seed %d: %+v", seed, f)
				_ = c.Condemn(ctx, f) // it may be too young
			}
			return nil
		})
		if err != nil {
			require.Contains(t, []store.Kind{store.Unavailable, store.Timeout}, store.KindOf(err))
		}
	}

	tries := map[string]*try{} // by body
	byKey := map[string][]*try{}
	shown := map[string]*try{} // what was seen as the newest, and nothing came since
	// lapses reports whether a rule may have taken a version: one that began a day ago is newer.
	lapses := func(x *try) bool {
		return rules[0].NoncurrentDays > 0 && slices.ContainsFunc(byKey[x.key], func(y *try) bool {
			return y.n > x.n && (y.acked || y.unknown) && now.Sub(y.begun) >= 24*time.Hour
		})
	}
	var streams []*stream
	var done care.Cleaned
	order := 0
	newTry := func(key string, marker bool) *try {
		order++
		x := &try{n: order, key: key, marker: marker, null: versioned == objects.Never, begun: now}
		x.body = fmt.Sprintf("body %d of %q ", len(tries), key)
		x.body += strings.Repeat("x", r.IntN(60))
		tries[x.body] = x
		byKey[key] = append(byKey[key], x)
		delete(shown, key)
		return x
	}
	attempt := func(key string, marker bool, f func(x *try) (objects.Info, error)) {
		x := newTry(key, marker)
		info, err := f(x)
		x.acked, x.id = err == nil, info.ID
		x.unknown = errors.Is(err, listing.ErrOutcomeUnknown)
	}
	var uploads []*uploading
	begins := func(key string) {
		u, err := b.CreateUpload(ctx, []byte(key), objects.Meta{})
		if err != nil {
			return
		}
		x := newTry(key, false)
		w := &uploading{x: x, u: u}
		for at := 0; at < len(x.body); {
			n := min(1+r.IntN(len(x.body)), len(x.body)-at)
			w.pieces = append(w.pieces, x.body[at:at+n])
			at += n
		}
		w.named = make([]objects.Part, len(w.pieces))
		uploads = append(uploads, w)
	}
	goesOn := func(w *uploading) {
		i := r.IntN(len(w.pieces))
		done := !slices.ContainsFunc(w.named, func(p objects.Part) bool { return p.ETag == "" })
		switch n := r.IntN(10); {
		case n == 0:
			err := b.Abort(ctx, w.u.Key, w.u.ID)
			if w.x.aborted = w.x.aborted || err == nil; w.x.aborted {
				require.False(t, w.x.acked, "seed %d: aborted after it was completed", seed)
			}
		case n < 4 && done:
			delete(shown, string(w.u.Key))
			order++
			at, err := door.Client(c).Stamps(ctx, 1)
			require.NoError(t, err)
			w.tries = append(w.tries, completion{order, at, now})
			if !w.x.acked {
				w.x.n = order
			}
			info, err := b.Complete(ctx, w.u.Key, w.u.ID, w.named, nil)
			w.x.unknown = w.x.unknown || errors.Is(err, listing.ErrOutcomeUnknown)
			if err == nil {
				require.False(t, w.x.aborted, "seed %d: completed after it was aborted", seed)
				require.True(t, !w.x.acked || w.x.id == info.ID, "seed %d: two versions of an upload", seed)
				w.x.acked, w.x.id = true, info.ID
				for _, tried := range w.tries { // the last one that began before drew the stamp
					if tried.at < info.ID.Stamp {
						w.x.n, w.x.begun = tried.n, tried.begun
					}
				}
			}
		case n == 4: // what is not what it will be
			w.named[i] = objects.Part{}
			_, _ = b.PutPart(ctx, w.u.Key, w.u.ID, i+1, strings.NewReader("other"), objects.Meta{Size: -1})
		default:
			w.named[i] = objects.Part{}
			p, err := b.PutPart(ctx, w.u.Key, w.u.ID, i+1, strings.NewReader(w.pieces[i]), objects.Meta{Size: -1})
			if err == nil {
				w.named[i] = objects.Part{Number: i + 1, ETag: p.ETag}
			}
		}
	}
	// read checks what the newest version is. Stamps grow with the steps, so later tries are newer.
	read := func(key string) {
		got, err := b.Get(ctx, []byte(key), objects.Latest, objects.All)
		if store.KindOf(err) == store.Unavailable || store.KindOf(err) == store.Timeout {
			return
		}
		var must *try // the newest that must be seen
		for _, x := range byKey[key] {
			if x.acked && !x.deleted && !lapses(x) && (must == nil || x.n > must.n) {
				must = x
			}
		}
		if was := shown[key]; was != nil && !was.deleted && (must == nil || must.n < was.n) {
			must = was
		}
		may := func(x *try) bool { return (x.acked || x.unknown) && !x.aborted && (must == nil || x.n >= must.n) }
		if err != nil {
			require.ErrorIs(t, err, store.NotFound, "seed %d", seed)
			hides := must == nil || slices.ContainsFunc(byKey[key], func(x *try) bool { return may(x) && x.marker })
			require.True(t, hides, "seed %d: %q is not there, but %+v was acknowledged: %v", seed, key, must, err)
			return
		}
		w := &stream{o: got, begun: now}
		first := make([]byte, 4)
		n, err := io.ReadFull(got.Body, first)
		require.NoError(t, err, "seed %d: %+v", seed, got.Info)
		w.got.Write(first[:n])
		for body, x := range tries {
			if x.key == key && !x.marker && int64(len(body)) == got.Size && may(x) && (x.id == got.ID || x.unknown) {
				w.want = body
				if x.id == got.ID {
					break
				}
			}
		}
		if x := tries[w.want]; x != nil && x.acked {
			shown[key] = x
		}
		require.NotEmpty(t, w.want, "seed %d: %q shows %+v, must be at least %+v", seed, key, got.Info, must)
		streams = append(streams, w)
	}
	end := func(w *stream) {
		_, err := io.Copy(&w.got, w.o.Body)
		require.NoError(t, err, "seed %d: a stream of %v", seed, now.Sub(w.begun))
		x := tries[w.got.String()]
		require.NotNil(t, x, "seed %d: %q is no body of a put", seed, w.got.String())
		require.Equal(t, string(w.o.Key), x.key)
		if x.acked {
			require.Equal(t, x.id, w.o.ID)
		}
	}
	// tagged are the tags that somebody gave a try at last, or may have given.
	tagged, surely := map[*try][]string{}, map[*try]bool{}
	tags := func(key string) {
		x := byKey[key][r.IntN(len(byKey[key]))]
		if !x.acked || x.marker {
			return
		}
		value := fmt.Sprint(r.Int64())
		_, err := b.SetTags(ctx, []byte(key), x.id, []objects.Pair{{Name: "tag", Value: value}})
		switch {
		case err == nil:
			tagged[x], surely[x] = []string{value}, true
		case errors.Is(err, listing.ErrOutcomeUnknown):
			tagged[x] = append(tagged[x], value)
		}
	}
	for range steps {
		key := string(randomKey(r)[:1])
		switch r.IntN(20) {
		case 18, 19:
			if len(byKey[key]) > 0 {
				tags(key)
			}
		case 12:
			begins(key)
		case 13, 14, 15, 16, 17:
			if len(uploads) > 0 {
				goesOn(uploads[max(0, len(uploads)-1-r.IntN(6))])
			}
		case 0, 1, 2:
			attempt(key, false, func(x *try) (objects.Info, error) {
				return b.Put(ctx, []byte(key), strings.NewReader(x.body), objects.Meta{Size: -1})
			})
		case 3:
			attempt(key, true, func(*try) (objects.Info, error) { return b.Delete(ctx, []byte(key)) })
		case 4:
			if all := byKey[key]; len(all) > 0 && versioned == objects.Enabled {
				x := all[r.IntN(len(all))]
				if !x.acked {
					break
				}
				_, err := b.DeleteVersion(ctx, []byte(key), x.id)
				x.deleted = x.deleted || err == nil || errors.Is(err, listing.ErrOutcomeUnknown)
				if err != nil {
					delete(shown, key) // it may arrive late
				}
			}
		case 5, 6:
			read(key)
		case 7:
			if len(streams) > 0 {
				i := r.IntN(len(streams))
				end(streams[i])
				streams = slices.Delete(streams, i, i+1)
			}
		case 8:
			i := r.IntN(2)
			if r.IntN(5) == 0 {
				cleaners[i] = cleaner()
			}
			found, err := cleaners[i].Pass(ctx)
			if err != nil {
				require.Contains(t, []store.Kind{store.Unavailable, store.Timeout}, store.KindOf(err))
			}
			done.Superseded += found.Superseded
			done.Finished += found.Finished
			done.Unmarked += found.Unmarked
			done.Freed += found.Freed
			done.Lapsed += found.Lapsed
			require.Zero(t, found.Damaged)
			if r.IntN(4) == 0 {
				condemn(cleaners[i])
			}
		case 9:
			pass(time.Duration(r.IntN(40)) * time.Minute)
			if r.IntN(5) == 0 {
				pass(time.Duration(r.IntN(20)) * time.Hour)
			}
		default:
			faults.Enable(false) // the mover has no retries; what is late stays late
			require.NoError(t, m.Step(ctx, func() []byte { return randomCut(r) }))
			faults.Enable(true)
		}
		streams = slices.DeleteFunc(streams, func(w *stream) bool {
			late := now.Sub(w.begun) > longest
			return late && w.o.Body.Close() == nil
		})
	}
	faults.Enable(false)
	blobs.fails = 0
	require.NoError(t, faults.Flush(ctx))
	_, err = m.Finish(ctx)
	require.NoError(t, err)
	for range 6 {
		pass(grace + settled)
		condemn(cleaners[0])
		found, err := cleaners[0].Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, found.FirstFailure)
		done.Lapsed += found.Lapsed
		done.Finished += found.Finished
		done.Freed += found.Freed
	}
	open, err := b.ListUploads(ctx, objects.UploadQuery{})
	require.NoError(t, err)
	require.Empty(t, open.Items)
	for key := range byKey {
		read(key)
	}
	for _, w := range streams[max(0, len(streams)-len(byKey)):] {
		if now.Equal(w.begun) {
			end(w)
		}
	}
	// Tags are left beside versions only.
	for e, err := range c.Bucket("objects").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		if bytes.HasPrefix(e.Value, []byte("\x01\x01\x03tag")) {
			_, err := c.Bucket("objects").Get(ctx, e.Key[:len(e.Key)-1])
			require.NoError(t, err, "seed %d: tags without a version: %q", seed, e.Key)
		}
	}
	// What is left of bodies.
	left := maps.Clone(blobs.m)
	versions := map[string]int{}
	for _, item := range all(t, b) {
		if versions[string(item.Key)]++; rules[0].NoncurrentDays > 0 {
			require.LessOrEqual(t, versions[string(item.Key)], 1+rules[0].Newer, "seed %d: %q", seed, item.Key)
		}
		if x := tries[bodyOf(t, b, &item)]; !item.Marker {
			require.NotNil(t, x, "seed %d", seed)
			info, err := b.Head(ctx, item.Key, item.ID)
			require.NoError(t, err)
			may := tagged[x]
			if len(info.Meta().Tags) == 0 {
				require.False(t, len(may) > 0 && surely[x], "seed %d: the tags of %q are lost", seed, x.body)
			} else {
				require.Contains(t, may, info.Meta().Tags[0].Value, "seed %d", seed)
				seenTags++
			}
			require.True(t, versioned == objects.Enabled || item.Latest, "seed %d: %q has superseded versions", seed, item.Key)
		}
		size, parts, home := 0, 0, item.ID.String()
		for _, w := range uploads {
			if w.x.id == item.ID || item.Parts > 0 && w.x == tries[bodyOf(t, b, &item)] {
				home = w.u.ID.Version().String()
			}
		}
		for name, body := range left {
			below := strings.Contains(name, "/"+home+"/")
			// The name of a whole body is that of the beginning of its put. Each try has a body of its own.
			if below || item.Parts == 0 && !item.Marker && string(body) == bodyOf(t, b, &item) {
				size += len(body)
				delete(left, name)
			}
			if below {
				parts++
			}
		}
		require.EqualValues(t, item.Parts, parts, "seed %d: %+v", seed, item)
		if size > 0 || parts > 0 {
			require.Equal(t, int(item.Size), size)
		}
	}
	require.Empty(t, left, "seed %d: what no version has is left", seed)
	if rules[0].NoncurrentDays > 0 {
		require.Positive(t, done.Lapsed, "seed %d: no version has expired", seed)
	}
	require.Positive(t, done.Freed, "seed %d: no upload has ended", seed)
	require.Positive(t, done.Finished, "seed %d: nothing was deleted", seed)
	return seenTags
}

func all(t *testing.T, b *objects.Bucket) (items []objects.Item) {
	q := objects.Query{}
	for {
		page, err := b.ListVersions(t.Context(), q)
		require.NoError(t, err)
		items = append(items, page.Items...)
		if q.Token = page.Next; q.Token == "" {
			return items
		}
	}
}

func bodyOf(t *testing.T, b *objects.Bucket, item *objects.Item) string {
	if item.Marker {
		return ""
	}
	o, err := b.Get(t.Context(), item.Key, item.ID, objects.All)
	require.NoError(t, err)
	body, err := io.ReadAll(o.Body)
	require.NoError(t, err)
	return string(body)
}

// TestCleanersForgetWhatOthersFinish has two cleaners that know of the same versions, and uploads: what the
// one finishes must not fill the memory of the other one for good. One that is not used any more gives its
// share of a common memory back.
func TestCleanersForgetWhatOthersFinish(t *testing.T) {
	ctx, p := t.Context(), newPlace(t, memstore.New(), objects.Never)
	for _, key := range []string{"a", "a", "b", "b", "c"} {
		_, err := p.Put(ctx, []byte(key), strings.NewReader("body"), objects.Meta{Size: 4})
		require.NoError(t, err)
	}
	u, err := p.CreateUpload(ctx, []byte("upload"), objects.Meta{})
	require.NoError(t, err)
	require.NoError(t, p.Abort(ctx, u.Key, u.ID))
	one, two := p.cleaner(t, care.CleanOptions{}), p.cleaner(t, care.CleanOptions{})
	pass := func(c care.Cleaner) care.Cleaned {
		done, err := c.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		return done
	}
	require.EqualValues(t, 3, pass(one).Remembered)
	require.EqualValues(t, 3, pass(one).Remembered, "no time has passed")
	require.EqualValues(t, 3, pass(two).Remembered)
	require.EqualValues(t, 3, pass(two).Remembered, "what is still there")
	for range 4 {
		p.now = p.now.Add(25 * time.Hour)
		pass(one)
	}
	require.Zero(t, pass(one).Remembered)
	done := pass(two)
	require.Zero(t, done.Remembered)
	require.Zero(t, done.Finished+done.Freed, "the other one has done it")
	require.Zero(t, done.Failed)
}

// A grace does not end because a clock of the process is set forward while it is counted.
func TestAClockThatIsSetForwardEndsNoGrace(t *testing.T) {
	ctx, mono := t.Context(), time.Duration(0)
	p := newPlace(t, memstore.New(), objects.Never)
	b := p.o.Bucket("objects", objects.Never)
	slow, err := objects.New(p.c, p.blobs, objects.Options{InlineBytes: -1, Now: func() (time.Duration, time.Time) {
		return mono, p.now
	}})
	require.NoError(t, err)
	for range 2 {
		_, err := b.Put(ctx, []byte("k"), strings.NewReader("a body that is not in the row"), objects.Meta{Size: -1})
		require.NoError(t, err)
	}
	c, err := care.OfBucket(slow.Bucket("objects", objects.Never)).Cleaner(care.CleanOptions{})
	require.NoError(t, err)
	for range 3 {
		_, err = c.Pass(ctx)
		require.NoError(t, err)
		p.now = p.now.Add(48 * time.Hour)
	}
	require.Len(t, p.blobs.m, 2, "by one clock no time has passed")
	for range 2 {
		_, err = c.Pass(ctx)
		require.NoError(t, err)
		mono += 48 * time.Hour
		p.now = p.now.Add(48 * time.Hour)
	}
	_, err = c.Pass(ctx)
	require.NoError(t, err)
	require.Len(t, p.blobs.m, 1)
}

// Nothing is done with a version or an upload whose row can't be read, whatever stands beside it: a newer program may
// have written the row, and reads it.
func TestCleanersLeaveDamagedRowsAlone(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	p := newPlace(t, s, objects.Enabled)
	body := strings.Repeat("body", 100)
	tagged, err := p.Put(ctx, []byte("tagged"), strings.NewReader(body), objects.Meta{Size: -1})
	require.NoError(t, err)
	_, err = p.SetTags(ctx, []byte("tagged"), tagged.ID, []objects.Pair{{Name: "a", Value: "b"}})
	require.NoError(t, err)
	proven, err := p.Put(ctx, []byte("proven"), strings.NewReader(body), objects.Meta{Size: -1})
	require.NoError(t, err)
	_, err = p.DeleteVersion(ctx, []byte("proven"), proven.ID)
	require.NoError(t, err)
	_, err = p.Put(ctx, []byte("hidden"), strings.NewReader(body), objects.Meta{Size: -1})
	require.NoError(t, err)
	p.now = p.now.Add(time.Second)
	_, err = p.Delete(ctx, []byte("hidden"))
	require.NoError(t, err)
	up, err := p.CreateUpload(ctx, []byte("upload"), objects.Meta{})
	require.NoError(t, err)
	part(t, p.Bucket, up, 1, body)

	cleaner := p.cleaner(t, care.CleanOptions{})
	pass := func() care.Cleaned {
		done, err := cleaner.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		p.now = p.now.Add(25 * time.Hour)
		return done
	}
	pass() // proves the deletion

	// The rows become those of a newer program: at their timestamps, of a version of records that is not known here.
	owner, err := door.Client(p.c).Owner(ctx, "objects")
	require.NoError(t, err)
	root, err := mapclient.Of(p.c).Load(ctx, owner.ID)
	require.NoError(t, err)
	partition := store.Partition{Bucket: owner.ID, ID: root.Entries[0].Partition}
	slice := func() []store.Row {
		page, err := s.Slice(ctx, partition, store.Bounds{}, store.SliceOptions{Limit: 1000, Timestamps: true})
		require.NoError(t, err)
		return page.Rows
	}
	newer := 0
	for _, row := range slice() {
		name, rest, _ := bytes.Cut(bytes.TrimPrefix(row.Key, []byte("\x00\x01")), []byte("\x00\x01"))
		marker := string(name) == "hidden" && row.Value[3]&1 != 0
		if len(rest) != 14 || marker { // it stands beside another row
			continue
		}
		row.Value = bytes.Clone(row.Value)
		row.Value[2] = 99
		require.NoError(t, s.Put(ctx, partition, row))
		newer++
	}
	require.Equal(t, 4, newer)
	before, blobs := slice(), maps.Clone(p.blobs.m)
	for range 3 {
		require.EqualValues(t, 4, pass().Damaged)
	}
	require.Equal(t, before, slice())
	require.Equal(t, blobs, p.blobs.m)
}

// Null versions are compared with the newest one also where there are more than are looked at together: else one of
// each part would stay, and nothing would lead to it later.
func TestOfVeryManyNullVersionsOneStays(t *testing.T) {
	p, ctx := newPlace(t, memstore.New(), objects.Never), t.Context()
	const many = 20_050
	for range many {
		_, err := p.Put(ctx, []byte("key"), strings.NewReader("x"), objects.Meta{Size: 1})
		require.NoError(t, err)
	}
	c := p.cleaner(t, care.CleanOptions{})
	done, err := c.Pass(ctx)
	require.NoError(t, err)
	require.EqualValues(t, many-1, done.Superseded)
	require.EqualValues(t, many, done.Seen)
	p.now = p.now.Add(25 * time.Hour)
	done, err = c.Pass(ctx)
	require.NoError(t, err)
	require.EqualValues(t, many-1, done.Finished)
	require.EqualValues(t, 1, done.Seen)
}

// largestPage is a store that knows how large a page was at most.
type largestPage struct {
	memstore.Store
	bytes atomic.Int64
}

func (s *largestPage) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := s.Store.Slice(ctx, p, b, o)
	size := int64(0)
	for i := range page.Rows {
		size += int64(len(page.Rows[i].Key) + len(page.Rows[i].Value))
	}
	for was := s.bytes.Load(); size > was && !s.bytes.CompareAndSwap(was, size); was = s.bytes.Load() {
	}
	return page, err
}

// A pass over some objects decides of them, and of their neighbours, what a pass over all decides.
func TestPassOverDecidesLikeAPass(t *testing.T) {
	seed.Each(t, race.Fewer(20), func(n uint64) bool {
		r, ctx := rand.New(rand.NewPCG(n, 7)), t.Context()
		pages := &largestPage{Store: memstore.New()}
		p := newPlace(t, pages, objects.Never)
		long := []objects.Pair{{Name: "long", Value: strings.Repeat("x", r.IntN(2)*8000)}}
		key := func() string {
			b := make([]byte, 1+r.IntN(3))
			for i := range b {
				b[i] = []byte{0, 1, 'a', 'b', 0xFF}[r.IntN(5)]
			}
			return string(b)
		}
		keys := func(most int) (list []string) {
			for range r.IntN(most) {
				list = append(list, key())
			}
			slices.Sort(list)
			return slices.Compact(list)
		}
		var cuts [][]byte
		for _, cut := range keys(12) {
			cuts = append(cuts, []byte(cut))
		}
		require.NoError(t, p.o.CreateBucket(ctx, "ranges", cuts...))
		of := []*objects.Bucket{p.o.Bucket("ranges", objects.Never), p.o.Bucket("ranges", objects.Enabled)}
		for range r.IntN(400) {
			p.now = p.now.Add(time.Second)
			b, at := of[r.IntN(2)], []byte(key())
			if i, err := b.Head(ctx, at, objects.Latest); err == nil && r.IntN(4) == 0 {
				_, err = b.DeleteVersion(ctx, at, i.ID)
				require.NoError(t, err)
			}
			for range 1 + r.IntN(3)*r.IntN(6) {
				_, err := b.Put(ctx, at, strings.NewReader("x"), objects.Meta{Size: 1, Headers: long})
				require.NoError(t, err)
			}
		}
		steps := func(pass func(c care.Cleaner) (care.Cleaned, error)) map[string][]string {
			var mu sync.Mutex
			all := map[string][]string{}
			c, err := care.OfBucket(of[0]).Cleaner(care.CleanOptions{Before: func(d care.Deed) bool {
				mu.Lock()
				defer mu.Unlock()
				all[string(d.Key)] = append(all[string(d.Key)], d.Do+d.Version)
				return false
			}})
			require.NoError(t, err)
			_, err = pass(c)
			require.NoError(t, err)
			return all
		}
		want := steps(func(c care.Cleaner) (care.Cleaned, error) { return c.Pass(ctx) })
		some := keys(60)
		if r.IntN(4) == 0 {
			some = slices.Sorted(maps.Keys(want))
		}
		pages.bytes.Store(0)
		got := steps(func(c care.Cleaner) (care.Cleaned, error) { return c.PassOver(ctx, some) })
		for _, key := range slices.Concat(some, slices.Collect(maps.Keys(got))) {
			require.Equal(t, want[key], got[key], "%x", key)
		}
		require.LessOrEqual(t, pages.bytes.Load(), int64(256<<10+9000), "many pages are in memory at the same time")
		return true
	})
}

// partlyRead is a store in which what begins with bad can't be read.
type partlyRead struct {
	memstore.Store
	bad []byte
}

func (s *partlyRead) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := s.Store.Slice(ctx, p, b, o)
	for i := range page.Rows {
		if s.bad != nil && bytes.HasPrefix(page.Rows[i].Key, s.bad) {
			return store.Page{}, store.Errorf(store.Corrupt, "a block can't be read")
		}
	}
	return page, err
}

// Rows that can't be read keep a pass over some objects from these only.
func TestPassOverGoesOnBesideWhatCanNotBeRead(t *testing.T) {
	s := &partlyRead{Store: memstore.New()}
	p, ctx := newPlace(t, s, objects.Never), t.Context()
	const many = 200
	var keys []string
	for i := range many {
		keys = append(keys, fmt.Sprintf("%03d", i))
		for range 2 {
			_, err := p.Put(ctx, []byte(keys[i]), strings.NewReader("x"), objects.Meta{Size: 1})
			require.NoError(t, err)
		}
	}
	s.bad = []byte("05")
	done, err := p.cleaner(t, care.CleanOptions{}).PassOver(ctx, keys)
	require.Equal(t, store.Corrupt, store.KindOf(err))
	require.EqualValues(t, many-10, done.Superseded)
}
