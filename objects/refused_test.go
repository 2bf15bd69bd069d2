package objects_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestWhatIsRefused: each operation refuses what it can't hold before it reads or writes anything, and takes the most
// that it can.
func TestWhatIsRefused(t *testing.T) {
	k := stock(t, memstore.New(), objects.Enabled)
	type call func(ctx context.Context, key []byte, m objects.Meta) error
	body := func() *strings.Reader { return strings.NewReader("body") }
	calls := map[string]call{
		"put": func(ctx context.Context, key []byte, m objects.Meta) error {
			_, err := k.Put(ctx, key, body(), m)
			return err
		},
		"create an upload": func(ctx context.Context, key []byte, m objects.Meta) error {
			_, err := k.CreateUpload(ctx, key, m)
			return err
		},
	}
	keyed := map[string]call{
		"delete": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, err := k.Delete(ctx, key)
			return err
		},
		"head": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, err := k.Head(ctx, key, objects.Latest)
			return err
		},
		"head of a version": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, err := k.Head(ctx, key, k.old)
			return err
		},
		"delete of a version": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, err := k.DeleteVersion(ctx, key, k.old)
			return err
		},
		"upload": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, err := k.Upload(ctx, key, k.open.ID)
			return err
		},
		"abort": func(ctx context.Context, key []byte, _ objects.Meta) error { return k.Abort(ctx, key, k.open.ID) },
		"parts": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, _, err := k.ListParts(ctx, key, k.open.ID, 0, 0)
			return err
		},
		"part": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, err := k.PutPart(ctx, key, k.open.ID, 1, body(), objects.Meta{Size: -1})
			return err
		},
		"complete": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, err := k.Complete(ctx, key, k.open.ID, k.named, nil)
			return err
		},
		"tags": func(ctx context.Context, key []byte, _ objects.Meta) error {
			_, err := k.SetTags(ctx, key, objects.Latest, nil)
			return err
		},
	}
	before := k.state(t)
	ctx := t.Context()
	longest := []byte(strings.Repeat("k", care.MaxKeyBytes))
	for name, do := range calls {
		keyed[name] = do
		pairs := func(n, size int) []objects.Pair {
			p := make([]objects.Pair, n)
			p[0].Name = strings.Repeat("n", size)
			return p
		}
		for what, m := range map[string]objects.Meta{
			"a longer type":  {ContentType: strings.Repeat("t", 1025)},
			"more sums":      {Sums: pairs(257, 1)},
			"longer sums":    {Sums: pairs(1, 8<<10+1)},
			"more headers":   {Headers: pairs(257, 1)},
			"longer headers": {Headers: pairs(1, 8<<10+1)},
			"more tags":      {Tags: pairs(257, 1)},
			"longer tags":    {Tags: pairs(1, 16<<10+1)},
		} {
			m.Size = -1
			require.ErrorIs(t, do(ctx, []byte("k"), m), store.InvalidArgument, "%s with %s", name, what)
		}
	}
	err := calls["put"](ctx, []byte("k"), objects.Meta{Size: -1, MD5: make([]byte, 15)})
	require.ErrorIs(t, err, store.InvalidArgument)
	for name, do := range keyed {
		for _, key := range [][]byte{nil, append(longest, 'k')} {
			err := do(ctx, key, objects.Meta{Size: -1})
			require.ErrorIs(t, err, store.InvalidArgument, "%s of a key of %d bytes", name, len(key))
		}
	}
	require.Equal(t, before, k.state(t))
	for name, do := range keyed {
		err := do(ctx, longest, objects.Meta{Size: -1})
		require.True(t, err == nil || store.KindOf(err) == store.NotFound, "%s: %v", name, err)
	}

	// Of uploads and their parts.
	for _, number := range []int{-1, 0, care.MaxParts + 1} {
		_, err := k.PutPart(ctx, k.open.Key, k.open.ID, number, body(), objects.Meta{Size: -1})
		require.ErrorIs(t, err, store.InvalidArgument, "part %d", number)
	}
	_, err = k.PutPart(ctx, k.open.Key, k.open.ID, 1, body(), objects.Meta{Size: -1, MD5: []byte("short")})
	require.ErrorIs(t, err, store.InvalidArgument)
	for what, named := range map[string][]objects.Part{
		"none": nil, "too many": make([]objects.Part, care.MaxParts+1),
	} {
		_, err := k.Complete(ctx, k.open.Key, k.open.ID, named, nil)
		require.ErrorIs(t, err, store.InvalidArgument, what)
		require.NotErrorIs(t, err, objects.ErrPartOrder, what)
	}
	none := objects.UploadID{}
	_, err = k.Upload(ctx, k.open.Key, none)
	require.ErrorIs(t, err, objects.ErrNoSuchUpload)
	_, err = k.Complete(ctx, k.done.Key, k.done.ID, []objects.Part{{Number: 1, ETag: "no hex"}}, nil)
	require.ErrorIs(t, err, objects.ErrInvalidPart)
	long := func(objects.Upload, []objects.Part) ([]objects.Pair, error) {
		return []objects.Pair{{Name: strings.Repeat("n", 8<<10+1)}}, nil
	}
	_, err = k.Complete(ctx, k.open.Key, k.open.ID, k.named, long)
	require.ErrorIs(t, err, store.InvalidArgument)
	for after, want := range map[int][]int{
		-1: {1, 2}, 0: {1, 2}, 1: {2}, 2: nil, care.MaxParts: nil, care.MaxParts + 1: nil,
	} {
		parts, more, err := k.ListParts(ctx, k.open.Key, k.open.ID, after, 5)
		require.NoError(t, err)
		require.False(t, more)
		var got []int
		for _, p := range parts {
			got = append(got, p.Number)
		}
		require.Equal(t, want, got, "after %d", after)
	}
	_, err = k.SetTags(ctx, []byte("hidden"), objects.Latest, nil)
	require.ErrorIs(t, err, objects.ErrDeleted)
	hidden, _ := k.Head(ctx, []byte("hidden"), objects.Latest)
	require.True(t, hidden.Marker)
	_, err = k.Get(ctx, []byte("hidden"), hidden.ID, objects.All)
	require.ErrorIs(t, err, objects.ErrDeleted)
	_, err = k.SetTags(ctx, []byte("hidden"), hidden.ID, nil)
	require.ErrorIs(t, err, objects.ErrDeleted)
	_, _, err = k.Parts(ctx, []byte("hidden"), hidden.ID)
	require.ErrorIs(t, err, objects.ErrDeleted)
	_, err = k.List(ctx, objects.Query{After: []byte("k"), AfterID: k.old})
	require.ErrorIs(t, err, store.InvalidArgument)
	for _, r := range []objects.Range{{Offset: -1, N: 1}, {Offset: 6, N: 1}} {
		_, err = k.Get(ctx, []byte("inline"), objects.Latest, r)
		require.ErrorIs(t, err, store.InvalidArgument)
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	c, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	blobs := &blobsInMemory{m: map[string][]byte{}}
	for _, o := range []objects.Options{{InlineBytes: 8<<10 + 1}, {MaxBytes: -1}, {PutTimeout: -1}} {
		_, err := objects.New(c, blobs, o)
		require.ErrorIs(t, err, store.InvalidArgument, "%+v", o)
	}
	_, err = objects.New(c, blobs, objects.Options{InlineBytes: 8 << 10, MaxBytes: 1, PutTimeout: 1})
	require.NoError(t, err)

	// A put may take an hour, and a minute more until its row is there.
	p := newPlace(t, memstore.New(), objects.Never)
	const least = time.Hour + time.Minute
	for _, o := range []care.CleanOptions{{Grace: least - 1}, {Settled: least - 1}} {
		_, err := care.OfBucket(p.Bucket).Cleaner(o)
		require.ErrorIs(t, err, store.InvalidArgument, "%+v", o)
	}
	_, err = care.OfBucket(p.Bucket).Cleaner(care.CleanOptions{Grace: least, Settled: least})
	require.NoError(t, err)
	for _, from := range []string{"x", "00", "0001", "0001ff"} {
		_, err = p.cleaner(t, care.CleanOptions{}).PassFrom(t.Context(), from)
		require.ErrorIs(t, err, store.InvalidArgument, from)
	}
	_, err = p.cleaner(t, care.CleanOptions{}).PassFrom(t.Context(), "0002")
	require.NoError(t, err)
}

// TestClaims: bodies have one owner, and a mark that can't be read is nobody's leave to delete.
func TestClaims(t *testing.T) {
	ctx, blobs := t.Context(), &blobsInMemory{m: map[string][]byte{}}
	owner, err := care.Owner(ctx, blobs)
	require.NoError(t, err)
	require.Empty(t, owner)
	require.NoError(t, care.Claim(ctx, blobs, "one"))
	require.NoError(t, care.Claim(ctx, blobs, "one"), "again")
	err = care.Claim(ctx, blobs, "other")
	require.ErrorIs(t, err, care.ErrOthersBodies)
	require.ErrorIs(t, err, store.InvalidArgument)
	owner, err = care.Owner(ctx, blobs)
	require.NoError(t, err)
	require.Equal(t, "one", owner)
	for _, mark := range []string{"", "one", "\n", "\none", strings.Repeat("a", 1<<10) + "\n"} {
		blobs.m["_owner"] = []byte(mark)
		_, err := care.Owner(ctx, blobs)
		require.ErrorIs(t, err, store.Corrupt, "%q", mark)
		require.ErrorIs(t, care.Claim(ctx, blobs, mark), store.Corrupt, "%q", mark)
	}
	blobs.m["_owner"] = []byte(strings.Repeat("a", 1<<10-1) + "\nmore")
	owner, err = care.Owner(ctx, blobs)
	require.NoError(t, err)
	require.Len(t, owner, 1<<10-1)
}

// TestRulesByAge are those for which all rows are passed over.
func TestRulesByAge(t *testing.T) {
	for _, c := range []struct {
		rule objects.Rule
		want bool
	}{
		{objects.Rule{}, false},
		{objects.Rule{AbandonDays: 1}, false},
		{objects.Rule{Days: 1}, true},
		{objects.Rule{Date: time.Unix(86400, 0)}, true},
		{objects.Rule{Unmark: true}, true},
		{objects.Rule{NoncurrentDays: 1}, true},
		{objects.Rule{Days: 1, Date: time.Unix(86400, 0), Unmark: true, NoncurrentDays: 1, Disabled: true}, false},
	} {
		require.Equal(t, c.want, objects.Lifecycle{{}, c.rule}.ByAge(), "%+v", c.rule)
	}
	require.False(t, objects.Lifecycle(nil).ByAge())
}
