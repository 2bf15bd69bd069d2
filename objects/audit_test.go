package objects_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/timestamps"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// longName are the names of folders that tests need not show.
var longName = regexp.MustCompile(`[0-9A-V/]{100,}`)

func lineOf(f care.Finding) string {
	name := longName.ReplaceAllString(f.Blob, "…")
	return fmt.Sprintf("%s: key %t, %s: %d, not %d", f.Fault, f.Key != nil, name, f.Size, f.Want)
}

func lost(name string, size, want int) string {
	return lineOf(care.Finding{
		Fault: care.LostBody, Key: []byte{}, Blob: name, Size: int64(size), Want: int64(want),
	})
}

// audit returns what an audit finds, as lines, and all places where it can be continued.
func audit(t *testing.T, p *place, from string) (lines, places []string, sum care.Audited) {
	require.NoError(t, care.OfBucket(p.Bucket).Audit(t.Context(), from, nil, func(a care.Audited) error {
		for _, f := range a.Findings {
			lines = append(lines, lineOf(f))
		}
		if a.Next != "" {
			places = append(places, a.Next)
		}
		sum.Rows += a.Rows
		sum.Blobs += a.Blobs
		sum.InUse += a.InUse
		sum.Young += a.Young
		sum.Waiting += a.Waiting
		sum.Unjudged += a.Unjudged
		return nil
	}))
	return lines, places, sum
}

// TestAuditsFindWhatIsWrong loses, cuts and adds blobs at random, among keys short and long, versions
// whole and in parts.
func TestAuditsFindWhatIsWrong(t *testing.T) {
	ctx, r := t.Context(), seed.New(t)
	p := newPlace(t, memstore.New(), objects.Enabled)
	long := strings.Repeat("long", 100)
	var keys []string
	for i := range 1200 {
		key := fmt.Sprintf("%03d/%s", r.IntN(400), parts[r.IntN(len(parts))])
		if i%10 == 0 {
			key = []string{long, long + "a", long + "b", long + "\x00", "a" + long, "a" + long + "z"}[r.IntN(6)]
		}
		keys = append(keys, key)
		body := strings.Repeat("x", r.IntN(60))
		if i%7 > 0 {
			_, err := p.Put(ctx, []byte(key), strings.NewReader(body), objects.Meta{Size: -1})
			require.NoError(t, err)
			continue
		}
		u, err := p.CreateUpload(ctx, []byte(key), objects.Meta{})
		require.NoError(t, err)
		named := []objects.Part{part(t, p.Bucket, u, 1, body), part(t, p.Bucket, u, 2, "the second")}
		part(t, p.Bucket, u, 3, "unlisted")
		if i%3 > 0 {
			_, err = p.Complete(ctx, u.Key, u.ID, named, nil)
			require.NoError(t, err)
		}
	}
	lines, _, sum := audit(t, p, "")
	require.Empty(t, lines)
	require.Positive(t, sum.Young)
	p.now = p.now.Add(3 * time.Hour)
	lines, places, sum := audit(t, p, "")
	require.Empty(t, lines)
	require.Positive(t, sum.InUse)
	require.Positive(t, sum.Rows)
	require.NotEmpty(t, places)
	require.Equal(t, int64(len(p.blobs.m)), sum.Blobs)

	var want []string
	names := make([]string, 0, len(p.blobs.m))
	for name := range p.blobs.m {
		names = append(names, name)
	}
	slices.Sort(names)
	ofUpload := map[string]bool{} // blobs of uploads that are open, and parts of others that are not listed
	uploads, err := p.ListUploads(ctx, objects.UploadQuery{Limit: 10000})
	require.NoError(t, err)
	for _, u := range uploads.Items {
		ofUpload[u.ID.Version().String()] = true
	}
	for _, name := range names {
		size := len(p.blobs.m[name])
		dir := name[:strings.LastIndexByte(name, '/')]
		inPart := len(name)-len(dir) > 1+28
		skip := inPart && (ofUpload[dir[strings.LastIndexByte(dir, '/')+1:]] || strings.Contains(name, "/00003-"))
		switch {
		case skip || r.IntN(8) > 0:
		case r.IntN(2) == 0:
			want = append(want, lost(name, -1, size))
			delete(p.blobs.m, name)
		default:
			want = append(want, lost(name, size+1, size))
			p.blobs.m[name] = append(p.blobs.m[name], 'x')
		}
		if r.IntN(8) > 0 {
			continue
		}
		id := strings.Repeat("f", 5) + "0000000000" + fmt.Sprintf("%013x", r.Uint64()>>12)
		if inPart {
			dir = dir[:strings.LastIndexByte(dir, '/')]
		}
		orphan := dir + "/" + id
		if r.IntN(2) == 0 {
			orphan += "/00007-" + id
		}
		p.blobs.m[orphan] = []byte("orphan")
		f := care.Finding{Fault: care.Orphan, Blob: orphan, Size: 6, Want: -1}
		if !strings.Contains(dir, "=") {
			f.Key = []byte{}
		}
		want = append(want, lineOf(f))
	}
	for _, name := range []string{"objects/zzz", "objects/00-/zz", "objects/00/00-/" + strings.Repeat("f", 28)} {
		p.blobs.m[name] = nil
		want = append(want, fmt.Sprintf("stranger: key false, %s: 0, not -1", name))
	}
	p.blobs.m["other/x"], p.blobs.m["objects-2/x"] = nil, nil
	slices.Sort(want)
	lines, places, _ = audit(t, p, "")
	slices.Sort(lines)
	require.Equal(t, want, lines)
	for _, from := range places {
		var before []string
		stop := errors.New("stop")
		require.ErrorIs(t, care.OfBucket(p.Bucket).Audit(ctx, "", nil, func(a care.Audited) error {
			for _, f := range a.Findings {
				before = append(before, lineOf(f))
			}
			if a.Next == from {
				return stop
			}
			return nil
		}), stop)
		rest, _, _ := audit(t, p, from)
		all := append(before, rest...)
		slices.Sort(all)
		require.Equal(t, want, all, "continued from %s", from)
	}
	require.ErrorIs(t, care.OfBucket(p.Bucket).Audit(ctx, "zz", nil, nil), store.InvalidArgument)

	// A cleaner deletes what is an orphan, and nothing else.
	for name := range p.blobs.m {
		if strings.HasPrefix(name, "objects/zzz") {
			delete(p.blobs.m, name)
		}
	}
	p.now = p.now.Add(25 * time.Hour)
	c := p.cleaner(t, care.CleanOptions{})
	for range 4 {
		require.NoError(t, care.OfBucket(p.Bucket).Audit(ctx, "", nil, func(a care.Audited) error {
			for _, f := range a.Findings {
				err := c.Condemn(ctx, f)
				if f.Fault != care.Orphan {
					require.ErrorIs(t, err, store.InvalidArgument)
					continue
				}
				require.NoError(t, err)
			}
			return nil
		}))
		done, err := c.Pass(ctx)
		require.NoError(t, err)
		require.NoError(t, done.FirstFailure)
		p.now = p.now.Add(25 * time.Hour)
	}
	lines, _, _ = audit(t, p, "")
	want = slices.DeleteFunc(want, func(line string) bool {
		return strings.HasPrefix(line, "orphan") || strings.Contains(line, "zzz")
	})
	slices.Sort(lines)
	require.Equal(t, want, lines)
	for _, key := range keys {
		_, err := p.Head(ctx, []byte(key), objects.Latest)
		if !errors.Is(err, listing.ErrNotFound) {
			require.NoError(t, err)
		}
	}
}

// TestOrphansOfLongKeys: the name of a blob does not tell a key above 400 bytes. Rows of it do, or of its uploads. With
// them or without them the blob is deleted when no row can come any more.
func TestOrphansOfLongKeys(t *testing.T) {
	ctx := t.Context()
	for _, known := range []string{"", "another version", "an upload", "a key like it"} {
		t.Run("known by "+known, func(t *testing.T) {
			p := newPlace(t, memstore.New(), objects.Enabled)
			key := []byte(strings.Repeat("long\x00", 100) + "er")
			body := strings.Repeat("x", 100)
			elsewhere := newPlace(t, memstore.New(), objects.Enabled)
			made, err := elsewhere.Put(ctx, key, strings.NewReader(body), objects.Meta{Size: -1})
			require.NoError(t, err)
			p.blobs.m = elsewhere.blobs.m // the row has never come
			other := key
			switch known {
			case "a key like it":
				other = append(bytes.Clone(key), 'z')
				fallthrough
			case "another version":
				_, err = p.Put(ctx, other, strings.NewReader("small"), objects.Meta{Size: -1})
			case "an upload":
				_, err = p.CreateUpload(ctx, other, objects.Meta{})
			}
			require.NoError(t, err)

			cleaner := p.cleaner(t, care.CleanOptions{})
			condemn := func() (outcomes []error) {
				require.NoError(t, care.OfBucket(p.Bucket).Audit(ctx, "", nil, func(a care.Audited) error {
					for _, f := range a.Findings {
						require.Equal(t, care.Orphan, f.Fault)
						outcomes = append(outcomes, cleaner.Condemn(ctx, f))
					}
					return nil
				}))
				return outcomes
			}
			p.now = p.now.Add(11*24*time.Hour - time.Minute)
			require.ErrorContains(t, condemn()[0], "has no row, but is younger than 264h0m0s: one may still come")
			require.Len(t, p.blobs.m, 1)
			p.now = p.now.Add(2 * time.Minute)
			require.Equal(t, []error{nil}, condemn())
			require.Empty(t, p.blobs.m)
			require.Empty(t, condemn())
			_, err = p.Head(ctx, key, made.ID)
			require.ErrorIs(t, err, listing.ErrNotFound)
		})
	}
}

// A row that can't be read is found, and its body is left alone: it may be the last that there is of the version.
func TestAuditsLeaveBodiesOfDamagedRowsAlone(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	p := newPlace(t, s, objects.Enabled)
	for _, key := range []string{"a", "b"} {
		_, err := p.Put(ctx, []byte(key), strings.NewReader(strings.Repeat(key, 100)), objects.Meta{Size: -1})
		require.NoError(t, err)
	}
	later := timestamps.New(func() time.Time { return p.now.Add(time.Hour) })
	rows, err := listing.New(s, listing.Options{Timestamps: later})
	require.NoError(t, err)
	defer mapclient.Of(rows).Close()
	page, err := rows.Bucket("objects").List(ctx, listing.Query{})
	require.NoError(t, err)
	require.Len(t, page.Items, 2)
	require.NoError(t, rows.Bucket("objects").Put(ctx, page.Items[0].Key, []byte("rubbish")))
	p.now = p.now.Add(25 * time.Hour)
	lines, _, sum := audit(t, p, "")
	require.Equal(t, []string{"damaged row: key true, : -1, not -1"}, lines)
	require.EqualValues(t, 2, sum.Blobs)
	require.EqualValues(t, 1, sum.Unjudged)
	require.Equal(t, strings.Repeat("b", 100), read(t, p.Bucket, []byte("b"), objects.All))
}

// A version that can't be read may have its body below the name of an upload: no audit condemns that.
func TestPartsOfDamagedVersionsStay(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	p, key := newPlace(t, s, objects.Enabled), []byte("key")
	u, err := p.CreateUpload(ctx, key, objects.Meta{})
	require.NoError(t, err)
	named := []objects.Part{part(t, p.Bucket, u, 1, "the whole body of it")}
	p.now = p.now.Add(time.Second)
	_, err = p.Complete(ctx, key, u.ID, named, nil)
	require.NoError(t, err)
	c := p.cleaner(t, care.CleanOptions{})
	pass := func() {
		for range 4 {
			_, err := c.Pass(ctx)
			require.NoError(t, err)
			p.now = p.now.Add(25 * time.Hour)
		}
	}
	pass() // nothing is left but the version
	owner, err := door.Client(p.c).Owner(ctx, "objects")
	require.NoError(t, err)
	root, err := mapclient.Of(p.c).Load(ctx, owner.ID)
	require.NoError(t, err)
	partition := store.Partition{Bucket: owner.ID, ID: root.Entries[0].Partition}
	page, err := s.Slice(ctx, partition, store.Bounds{}, store.SliceOptions{Limit: 1000, Timestamps: true})
	require.NoError(t, err)
	require.Len(t, page.Rows, 1)
	row := page.Rows[0]
	row.Value = bytes.Clone(row.Value)
	row.Value[2] = 99 // a newer program's record
	require.NoError(t, s.Put(ctx, partition, row))
	lines, _, sum := audit(t, p, "")
	require.Equal(t, []string{"damaged row: key true, : -1, not -1"}, lines)
	require.EqualValues(t, 1, sum.Unjudged)
	for name := range p.blobs.m {
		require.ErrorIs(t, c.Condemn(ctx, care.Finding{Fault: care.Orphan, Blob: name}), store.Corrupt)
	}
	pass()
	require.Len(t, p.blobs.m, 1)
	_, err = p.Complete(ctx, key, u.ID, named, nil)
	require.ErrorIs(t, err, store.Corrupt, "nobody knows whether it was completed")
}

// TestAuditsOfUploadsHaveParts, as others have, though the body of each version has the name of its upload.
func TestAuditsOfUploadsHaveParts(t *testing.T) {
	ctx, p := t.Context(), newPlace(t, memstore.New(), objects.Enabled)
	for i := range 2001 {
		u, err := p.CreateUpload(ctx, fmt.Appendf(nil, "%04d", i), objects.Meta{})
		require.NoError(t, err)
		_, err = p.Complete(ctx, u.Key, u.ID, []objects.Part{part(t, p.Bucket, u, 1, "one")}, nil)
		require.NoError(t, err)
	}
	lines, places, sum := audit(t, p, "")
	require.Empty(t, lines)
	require.Len(t, places, 2)
	require.EqualValues(t, 2001, sum.Rows)
	for i, from := range places {
		lines, _, sum := audit(t, p, from)
		require.Empty(t, lines)
		require.EqualValues(t, 1001-1000*i, sum.Rows)
		require.EqualValues(t, 1001-1000*i, sum.Blobs)
	}
}

func TestFindingsSayWhereTheyAre(t *testing.T) {
	id := objects.ID{Stamp: 1}
	for want, f := range map[string]care.Finding{
		"":         {Fault: care.Damaged, Want: -1, Size: -1},
		`key \x00`: {Fault: care.Damaged, Key: []byte{0}, Want: -1, Size: -1},
		"key a, version " + id.String() + ", body x/y is not there": {
			Fault: care.LostBody, Key: []byte("a"), Version: id.String(), Blob: "x/y", Want: 7, Size: -1},
		"version " + id.String() + ", body x/y has 6 bytes, not 7": {
			Fault: care.LostBody, Version: id.String(), Blob: "x/y", Want: 7, Size: 6},
		"body x/y of 6 bytes": {Fault: care.Stranger, Blob: "x/y", Want: -1, Size: 6},
	} {
		require.Equal(t, want, f.String())
	}
}
