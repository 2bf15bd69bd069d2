package objects_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Each call of the store of rows, and of that of bodies, fails in turn, under every operation. Who is told of no
// failure gets the answer, and leaves the state, that there are without one.

// failingBlobs fails at one of its calls; the reads of bodies are calls, too.
type failingBlobs struct {
	*blobsInMemory
	seen, at int
}

var errAway = store.Errorf(store.Unavailable, "the place of bodies is away")

func (f *failingBlobs) call() error {
	if f.seen++; f.seen == f.at {
		return errAway
	}
	return nil
}

func (f *failingBlobs) Create(ctx context.Context, name string, body io.Reader, size int64) error {
	return cmp.Or(f.call(), f.blobsInMemory.Create(ctx, name, body, size))
}

func (f *failingBlobs) Open(ctx context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	if err := f.call(); err != nil {
		return nil, 0, err
	}
	body, size, err := f.blobsInMemory.Open(ctx, name, offset, n)
	return &failingBody{body, f}, size, err
}

func (f *failingBlobs) Delete(ctx context.Context, name string) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.blobsInMemory.Delete(ctx, name)
}

func (f *failingBlobs) List(ctx context.Context, prefix, after string, each func(string, int64) error) error {
	return cmp.Or(f.call(), f.blobsInMemory.List(ctx, prefix, after, each))
}

func (f *failingBlobs) Tops(ctx context.Context, each func(top string) error) error {
	return cmp.Or(f.call(), f.blobsInMemory.Tops(ctx, each))
}

func (f *failingBlobs) Written(ctx context.Context, name string) (time.Time, error) {
	if err := f.call(); err != nil {
		return time.Time{}, err
	}
	return f.blobsInMemory.Written(ctx, name)
}

type failingBody struct {
	io.ReadCloser
	f *failingBlobs
}

func (b *failingBody) Read(p []byte) (int, error) {
	if err := b.f.call(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}

// stocked is a bucket that has one of each thing that operations meet.
type stocked struct {
	*place
	old     objects.ID     // of "k": it was put first, before a tagged one with a blob
	parted  objects.ID     // of "parts": it has two parts
	open    objects.Upload // of "up", with two parts
	done    objects.Upload // it has become parted
	named   []objects.Part
	long    []byte // a key that names of blobs do not tell
	strange string // a blob without a row
	rows    store.Store
}

func stock(t *testing.T, s store.Store, v objects.Status) *stocked {
	ctx, p := t.Context(), newPlace(t, s, v)
	k := &stocked{place: p, rows: s, long: []byte(strings.Repeat("long", 120))}
	put := func(key []byte, body string) objects.ID {
		info, err := p.Put(ctx, key, strings.NewReader(body), objects.Meta{Size: -1, ContentType: "text/plain",
			Headers: []objects.Pair{{Name: "a", Value: body[:1]}}})
		require.NoError(t, err)
		p.now = p.now.Add(time.Second)
		return info.ID
	}
	k.old = put([]byte("k"), "the first, with a blob of its own")
	newest := put([]byte("k"), "the second, with a blob of its own")
	_, err := p.SetTags(ctx, []byte("k"), newest, []objects.Pair{{Name: "tag", Value: "1"}})
	require.NoError(t, err)
	put([]byte("inline"), "small")
	put(k.long, "a body below a name that is cut")
	_, err = p.Delete(ctx, []byte("hidden"))
	require.NoError(t, err)
	upload := func(key string) (u objects.Upload) {
		u, err := p.CreateUpload(ctx, []byte(key), objects.Meta{ContentType: "parts"})
		require.NoError(t, err)
		k.named = []objects.Part{
			part(t, p.Bucket, u, 1, "the first part of it"), part(t, p.Bucket, u, 2, "the second"),
		}
		p.now = p.now.Add(time.Second)
		return u
	}
	k.open, k.done = upload("up"), upload("parts")
	info, err := p.Complete(ctx, k.done.Key, k.done.ID, k.named, nil)
	require.NoError(t, err)
	k.parted = info.ID
	p.now = p.now.Add(time.Second)
	return k
}

// reopen returns the place as another process sees it, which has read nothing, over other stores.
func (k *stocked) reopen(t *testing.T, s store.Store, blobs objects.Blobs) *stocked {
	begin, now := k.now, k.place
	c, err := listing.New(s, listing.Options{Timestamps: timestamps.New(func() time.Time { return now.now })})
	require.NoError(t, err)
	o, err := objects.New(c, blobs, objects.Options{InlineBytes: 20, Now: func() (time.Duration, time.Time) {
		return now.now.Sub(begin), now.now
	}})
	require.NoError(t, err)
	other, p := *k, *k.place
	status, err := k.o.Status(t.Context(), "objects")
	require.True(t, err == nil || errors.Is(err, listing.ErrNoSuchBucket), err)
	p.c, p.o, p.Bucket = c, o, o.Bucket("objects", status)
	other.place = &p
	return &other
}

func describe(i *objects.Info) string {
	return fmt.Sprintf("%.20q marker %v null %v: %d %s %s %v %v %v %d", i.Key, i.Marker, i.Null, i.Size, i.ContentType,
		i.ETag(), i.Meta().Sums, i.Meta().Headers, i.Meta().Tags, i.Parts)
}

// state is all that there is, but for ids.
func (k *stocked) state(t *testing.T) string {
	ctx, out := t.Context(), &strings.Builder{}
	var bodies []string
	for _, b := range k.blobs.m {
		bodies = append(bodies, string(b))
	}
	slices.Sort(bodies)
	fmt.Fprintf(out, "%q\n", bodies)
	s, err := k.o.Lifecycle(ctx, "objects")
	if fmt.Fprintln(out, s, err); err != nil {
		return out.String()
	}
	for e, err := range k.c.Bucket("objects").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		fmt.Fprintf(out, "%d bytes: %d\n", len(e.Key), e.Value[0]) // a rank, of versions
	}
	for _, item := range all(t, k.Bucket) {
		info, err := k.Head(ctx, item.Key, item.ID)
		fmt.Fprintln(out, describe(&info), item.Latest, item.Null, err)
	}
	page, err := k.ListUploads(ctx, objects.UploadQuery{})
	require.NoError(t, err)
	for _, u := range page.Items {
		parts, _, err := k.ListParts(ctx, u.Key, u.ID, 0, 0)
		require.NoError(t, err)
		for _, p := range parts {
			fmt.Fprintf(out, "%q %d: %d %s\n", u.Key, p.Number, p.Size, p.ETag)
		}
	}
	return out.String()
}

// operation is one that is done while a call fails. It returns what it answers, but for ids.
type operation struct {
	prepare func(t *testing.T, k *stocked) // nil: nothing
	do      func(ctx context.Context, k *stocked) (string, error)
	// told: rows that can't be read are a part of the answer, not a failure.
	told bool
	// leaves: it may leave to cleaners what follows from its success.
	leaves bool
	// null: in a bucket without versions it takes other steps.
	null bool
}

func infoOf(i objects.Info, err error) (string, error) { return describe(&i), err }

func bodyIn(o *objects.Object, err error) (string, error) {
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(o.Body)
	return describe(&o.Info) + string(body), errors.Join(err, o.Body.Close())
}

// cleanedOf is what a pass has done, and its first failure.
func cleanedOf(done care.Cleaned, err error) (string, error) {
	err = cmp.Or(err, done.FirstFailure)
	done.FirstFailure, done.Reasons, done.Next = nil, nil, ""
	return fmt.Sprintf("%+v", done), err
}

// passes lets days go by, with a pass in each.
func passes(n int) func(t *testing.T, k *stocked) {
	return func(t *testing.T, k *stocked) {
		c := k.cleaner(t, care.CleanOptions{})
		for range n {
			_, err := cleanedOf(c.Pass(t.Context()))
			require.NoError(t, err)
			k.now = k.now.Add(25 * time.Hour)
		}
	}
}

// then does one after the other.
func then(all ...func(t *testing.T, k *stocked)) func(t *testing.T, k *stocked) {
	return func(t *testing.T, k *stocked) {
		for _, f := range all {
			f(t, k)
		}
	}
}

func clearAll(t *testing.T, k *stocked) {
	for _, item := range all(t, k.Bucket) {
		_, err := k.DeleteVersion(t.Context(), item.Key, item.ID)
		require.NoError(t, err)
	}
}

func abortAll(t *testing.T, k *stocked) {
	require.NoError(t, k.Abort(t.Context(), k.open.Key, k.open.ID))
}

func expiring(t *testing.T, k *stocked) {
	k.rule(t, objects.Rule{Days: 1, NoncurrentDays: 1, Unmark: true, AbandonDays: 1})
	k.now = k.now.Add(50 * time.Hour)
}

func orphaned(t *testing.T, k *stocked) {
	require.NoError(t, care.Claim(t.Context(), k.blobs, "0123"))
	for name := range k.blobs.m {
		if at := strings.LastIndex(name, "-/"); at > 0 && strings.Contains(name, "=") {
			k.strange = name[:at+2] + objects.ID{Stamp: 1}.String()
		}
	}
	k.blobs.m[k.strange] = []byte("nobody has it")
}

func cleanerOf(k *stocked, o care.CleanOptions) care.Cleaner {
	c, err := care.OfBucket(k.Bucket).Cleaner(o)
	if err != nil {
		panic(err)
	}
	return c
}

func auditOf(audit func(each func(care.Audited) error) error) (string, error) {
	out := &strings.Builder{}
	err := audit(func(a care.Audited) error {
		a.Next = ""
		for i := range a.Findings {
			a.Findings[i].Version, a.Findings[i].Blob = "", ""
		}
		fmt.Fprintf(out, "%+v\n", a)
		return nil
	})
	return out.String(), err
}

func pass(ctx context.Context, k *stocked) (string, error) {
	return cleanedOf(cleanerOf(k, care.CleanOptions{}).Pass(ctx))
}

func operations() map[string]operation {
	k, up := []byte("k"), []byte("up")
	put := func(body string) func(context.Context, *stocked) (string, error) {
		return func(ctx context.Context, s *stocked) (string, error) {
			return infoOf(s.Put(ctx, k, strings.NewReader(body), objects.Meta{Size: -1}))
		}
	}
	get := func(key string, r objects.Range) func(context.Context, *stocked) (string, error) {
		return func(ctx context.Context, s *stocked) (string, error) {
			return bodyIn(s.Get(ctx, []byte(key), objects.Latest, r))
		}
	}
	copied := func(key string) func(context.Context, *stocked) (string, error) {
		return func(ctx context.Context, s *stocked) (string, error) {
			return infoOf(copyOf(ctx, s.Bucket, []byte("copy"), []byte(key), objects.Latest, nil))
		}
	}
	complete := func(ctx context.Context, s *stocked) (string, error) {
		return infoOf(s.Complete(ctx, up, s.open.ID, s.named, nil))
	}
	cut := func(n int) func(t *testing.T, s *stocked) { // a completion that ends after some writes
		return func(t *testing.T, s *stocked) {
			_, err := complete(t.Context(), s.reopen(t, &breaking{s.rows, n}, s.blobs))
			require.Error(t, err)
			s.now = s.now.Add(25 * time.Hour)
		}
	}
	return map[string]operation{
		"head": {do: func(ctx context.Context, s *stocked) (string, error) {
			return infoOf(s.Head(ctx, k, s.old))
		}},
		"get a blob":  {do: get("k", objects.All)},
		"get inline":  {do: get("inline", objects.All)},
		"get parts":   {do: get("parts", objects.All)},
		"get a range": {do: get("parts", objects.Range{Offset: 3, N: 22})},
		"put inline":  {do: put("small")},
		"put a blob":  {do: put("a body that is not small")},
		"copy inline": {do: copied("inline")},
		"copy a blob": {do: copied("k")},
		"copy parts":  {do: copied("parts")},
		"complete":    {do: complete, leaves: true},
		"complete again": {do: func(ctx context.Context, s *stocked) (string, error) {
			return infoOf(s.Complete(ctx, s.done.Key, s.done.ID, s.named, nil))
		}},
		"a pass":          {null: true, do: pass},
		"a second pass":   {prepare: passes(1), do: pass},
		"a third pass":    {prepare: passes(2), do: pass},
		"prove deletions": {null: true, prepare: then(clearAll, abortAll), do: pass},
		"finish":          {prepare: then(clearAll, abortAll, passes(1)), do: pass},
		"free":            {prepare: then(clearAll, abortAll, passes(2)), do: pass},
		"expire":          {null: true, prepare: then(expiring), do: pass},
		"lapse":           {prepare: then(expiring, passes(1)), do: pass},
		"lapse, later":    {prepare: then(expiring, passes(2)), do: pass},
		"settle a claim":  {prepare: cut(1), do: pass},
		"condemn a claim": {prepare: then(cut(1), passes(1)), do: pass},
		"delete": {do: func(ctx context.Context, s *stocked) (string, error) {
			return infoOf(s.Delete(ctx, k))
		}},
		"delete a version": {null: true, do: func(ctx context.Context, s *stocked) (string, error) {
			return infoOf(s.DeleteVersion(ctx, k, s.old))
		}},
		"delete the newest version": {null: true, prepare: expiring,
			do: func(ctx context.Context, s *stocked) (string, error) {
				i, err := s.Head(ctx, k, objects.Latest)
				if err != nil {
					return "", err
				}
				return infoOf(s.DeleteVersion(ctx, k, i.ID))
			}},
		"set tags": {do: func(ctx context.Context, s *stocked) (string, error) {
			return infoOf(s.SetTags(ctx, k, objects.Latest, []objects.Pair{{Name: "other", Value: "2"}}))
		}},
		"create an upload": {do: func(ctx context.Context, s *stocked) (string, error) {
			u, err := s.CreateUpload(ctx, up, objects.Meta{ContentType: "a"})
			return u.ContentType, err
		}},
		"put a part": {do: func(ctx context.Context, s *stocked) (string, error) {
			p, err := s.PutPart(ctx, up, s.open.ID, 3, strings.NewReader("the third"), objects.Meta{Size: -1})
			return p.ETag, err
		}},
		"abort": {do: func(ctx context.Context, s *stocked) (string, error) { return "", s.Abort(ctx, up, s.open.ID) }},
		"abort what was completed": {do: func(ctx context.Context, s *stocked) (string, error) {
			if err := s.Abort(ctx, s.done.Key, s.done.ID); !errors.Is(err, objects.ErrNoSuchUpload) {
				return "", cmp.Or(err, errors.New("it was aborted"))
			}
			return "none", nil
		}},
		"look at uploads": {do: func(ctx context.Context, s *stocked) (string, error) {
			page, err := s.ListUploads(ctx, objects.UploadQuery{})
			u, err1 := s.Upload(ctx, up, s.open.ID)
			parts, more, err2 := s.ListParts(ctx, up, s.open.ID, 0, 1)
			if err := cmp.Or(err, err1, err2); err != nil {
				return "", err
			}
			return fmt.Sprint(len(page.Items), u.ContentType, parts[0].ETag, more), nil
		}},
		"look at parts": {do: func(ctx context.Context, s *stocked) (string, error) {
			i, parts, err := s.Parts(ctx, s.done.Key, objects.Latest)
			return fmt.Sprint(describe(&i), len(parts)), err
		}},
		"list": {do: func(ctx context.Context, s *stocked) (string, error) {
			page, err := s.List(ctx, objects.Query{Delimiter: []byte("n")})
			out := ""
			for i := range page.Items {
				out += describe(&page.Items[i].Info)
			}
			return out, err
		}},
		"list versions behind one": {do: func(ctx context.Context, s *stocked) (string, error) {
			i, err := s.Head(ctx, k, objects.Latest)
			if err != nil {
				return "", err
			}
			page, err := s.ListVersions(ctx, objects.Query{After: k, AfterID: i.ID})
			out := ""
			for i := range page.Items {
				out += describe(&page.Items[i].Info) + fmt.Sprint(page.Items[i].Latest)
			}
			return out, err
		}},
		"settings": {do: func(ctx context.Context, s *stocked) (string, error) {
			_, settings, err := s.o.Open(ctx, "objects")
			status, err1 := s.o.Status(ctx, "objects")
			rules, err2 := s.o.Lifecycle(ctx, "objects")
			return fmt.Sprint(settings, status, rules), cmp.Or(err, err1, err2)
		}},
		"set a lifecycle": {do: func(ctx context.Context, s *stocked) (string, error) {
			return "", s.o.SetLifecycle(ctx, "objects", objects.Lifecycle{{ID: "1", Days: 1}})
		}},
		"a pass over uploads": {prepare: then(abortAll, passes(1)),
			do: func(ctx context.Context, s *stocked) (string, error) {
				return cleanedOf(cleanerOf(s, care.CleanOptions{}).PassUploads(ctx))
			}},
		"a pass over some": {prepare: then(clearAll), told: true,
			do: func(ctx context.Context, s *stocked) (string, error) {
				return cleanedOf(cleanerOf(s, care.CleanOptions{}).PassOver(ctx, []string{"inline", "k", "parts"}))
			}},
		"an audit": {prepare: then(orphaned, passes(3)), told: true,
			do: func(ctx context.Context, s *stocked) (string, error) {
				return auditOf(func(each func(care.Audited) error) error {
					return care.OfBucket(s.Bucket).Audit(ctx, "", nil, each)
				})
			}},
		"an audit of bodies": {told: true, do: func(ctx context.Context, s *stocked) (string, error) {
			free := func(context.Context, int64) error { return nil }
			return auditOf(func(each func(care.Audited) error) error {
				return care.OfBucket(s.Bucket).Audit(ctx, "", free, each)
			})
		}},
		"condemn": {prepare: then(orphaned, passes(12)), do: func(ctx context.Context, s *stocked) (string, error) {
			f := care.Finding{Fault: care.Orphan, Blob: s.strange}
			return "", cleanerOf(s, care.CleanOptions{}).Condemn(ctx, f)
		}},
		"delete a bucket": {null: true, prepare: then(clearAll),
			do: func(ctx context.Context, s *stocked) (string, error) {
				return "", s.o.DeleteBucket(ctx, "objects")
			}},
		"an audit of deleted buckets": {
			prepare: then(orphaned, clearAll, func(t *testing.T, s *stocked) {
				require.NoError(t, s.o.DeleteBucket(t.Context(), "objects"))
				s.blobs.m[s.strange] = []byte("nobody has it")
				s.now = s.now.Add(300 * time.Hour)
			}),
			do: func(ctx context.Context, s *stocked) (string, error) {
				out := ""
				for name, err := range care.Of(s.o).Unnamed(ctx) {
					if err != nil {
						return "", err
					}
					found, err := auditOf(func(each func(care.Audited) error) error {
						return care.Of(s.o).AuditUnnamed(ctx, name, each)
					})
					if err != nil {
						return "", err
					}
					out += name + found
				}
				f := care.Finding{Fault: care.Orphan, Blob: s.strange}
				return out, care.Of(s.o).CondemnUnnamed(ctx, "objects", f)
			},
			told: true,
		},
	}
}

// attempt does an operation while a call of the rows, or of the bodies, fails.
func (o *operation) attempt(t *testing.T, v objects.Status, fail faulttest.Case, blob int) (
	answer, state string, calls map[faultstore.Op]int, blobs int, err error,
) {
	inner := memstore.New()
	k := stock(t, inner, v)
	if o.prepare != nil {
		o.prepare(t, k)
	}
	k.now = k.now.Add(time.Second)
	s, faults := fail.Store(inner)
	bodies := &failingBlobs{blobsInMemory: k.blobs, at: blob}
	other := k.reopen(t, s, bodies)
	faults.Enable(true)
	answer, err = o.do(t.Context(), other)
	calls = faulttest.Calls(faults)
	faults.Enable(false)
	require.NoError(t, faults.Flush(t.Context()))
	return answer, k.state(t), calls, bodies.seen, err
}

func TestEachCallOfAnOperationFails(t *testing.T) {
	for name, o := range operations() {
		for _, v := range []objects.Status{objects.Enabled, objects.Never} {
			if v == objects.Never && !o.null {
				continue
			}
			t.Run(fmt.Sprintf("%s, versioned %v", name, v), func(t *testing.T) {
				var want, state string
				var calls map[faultstore.Op]int
				var blobs, failed int
				synctest.Test(t, func(t *testing.T) {
					var err error
					want, state, calls, blobs, err = o.attempt(t, v, faulttest.Case{}, 0)
					require.NoError(t, err)
				})
				compare := func(fail faulttest.Case, blob int) {
					if fail.Way != nil && fail.Way.Passing() {
						return // package listing tries again
					}
					synctest.Test(t, func(t *testing.T) {
						got, after, _, _, err := o.attempt(t, v, fail, blob)
						if err != nil {
							failed++
							why := errors.Is(err, faultstore.ErrInjected) || errors.Is(err, errAway)
							require.True(t, why, "it fails for another reason: %v", err)
							return
						}
						if corrupt := fail.Way != nil && fail.Way.Kind == store.Corrupt; corrupt && o.told {
							return
						}
						require.Equal(t, want, got, "call %d of bodies", blob)
						if !o.leaves {
							require.Equal(t, state, after, "call %d of bodies", blob)
						}
					})
				}
				faulttest.Each(t, calls, func(fail faulttest.Case) { compare(fail, 0) })
				for n := 1; n <= blobs; n++ {
					compare(faulttest.Case{}, n)
				}
				require.Positive(t, failed)
			})
		}
	}
}
