package listtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// pages reads all pages of a listing. n is the number of pages.
func pages(t *testing.T, b *listing.Bucket, q listing.Query) (lines []line, n int) {
	for {
		page, err := b.List(context.Background(), q)
		require.NoError(t, err)
		n++
		for _, item := range page.Items {
			lines = append(lines, lineOf(item))
		}
		if page.Next == "" {
			return lines, n
		}
		q.Token = page.Next
	}
}

// equal compares two listings, and fails the test with the first difference.
func equal(t *testing.T, want, got []line, q listing.Query) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			t.Fatalf("%s: item %d is %s, want %s", show(q), i, clip(got[i]), clip(want[i]))
		}
	}
	if len(want) != len(got) {
		t.Fatalf("%s: %d items, want %d", show(q), len(got), len(want))
	}
}

// awkwardKeys tests listings of 5,000 awkward keys, such as prefixes of each other, in pages of 1, 7 and 1000 entries.
// The bucket is cut into ranges at random keys.
func awkwardKeys(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	u := newUniverse(r, 5000, 1024)
	cuts := make([][]byte, 20)
	for i := range cuts {
		cuts[i] = u.key()
	}
	require.NoError(t, e.Client.CreateBucket(ctx, "awkward", cuts...))
	b, want := e.Client.Bucket("awkward"), newOracle()
	var entries []listing.Entry
	for i, k := range u.keys {
		entries = append(entries, listing.Entry{Key: k, Value: fmt.Append(nil, i)})
		want.put(string(k), fmt.Sprint(i), 1)
	}
	require.NoError(t, b.PutBatch(ctx, entries))
	for _, limit := range []int{1, 7, 1000} {
		for _, q := range []listing.Query{
			{}, {Reverse: true}, {Delimiter: []byte("/")}, {Delimiter: []byte("/"), Reverse: true},
			{Prefix: []byte("a/"), Delimiter: []byte("/")}, {Delimiter: []byte{0xff}, Reverse: true},
			{Delimiter: []byte{0}},
		} {
			if limit == 1 && len(q.Delimiter) == 0 && q.Reverse {
				continue // 5,000 pages once are enough
			}
			q.Limit = limit
			got, n := pages(t, b, q)
			equal(t, want.list(q), got, q)
			require.LessOrEqual(t, n, len(got)/limit+1, "as few pages as there can be")
		}
	}
}

// emptiedRanges tests listings of a bucket most of whose ranges were filled once and are empty now. Pages may be short
// or empty, but read a bounded number of ranges, and lead on to the next page.
func emptiedRanges(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	cuts := make([][]byte, o.Ranges-1)
	for i := range cuts {
		cuts[i] = fmt.Appendf(nil, "%08d", i+1)
	}
	require.NoError(t, e.Client.CreateBucket(ctx, "emptied", cuts...))
	b, want := e.Client.Bucket("emptied"), newOracle()
	for range 5 {
		k := fmt.Sprintf("%08d/x", r.IntN(o.Ranges))
		require.NoError(t, b.Put(ctx, []byte(k), nil))
		want.put(k, "", 1)
	}
	for range 20 {
		k := fmt.Appendf(nil, "%08d/y", r.IntN(o.Ranges))
		require.NoError(t, b.Put(ctx, k, nil))
		require.NoError(t, b.Delete(ctx, k))
	}
	for _, q := range []listing.Query{{}, {Reverse: true}, {Delimiter: []byte("/")}} {
		got, n := pages(t, b, q)
		equal(t, want.list(q), got, q)
		require.GreaterOrEqual(t, n, o.Ranges/(256+8)-1, "a page reads a bounded number of ranges")
	}
	n := 0
	for _, err := range b.All(ctx, listing.Query{}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, len(want.sorted()), n)
	require.ErrorIs(t, e.Client.DeleteBucket(ctx, "emptied"), listing.ErrNotEmpty)
	for _, k := range want.sorted() {
		require.NoError(t, b.Delete(ctx, []byte(k)))
	}
	require.NoError(t, e.Client.DeleteBucket(ctx, "emptied"))
}

// tokens tests that a token of one listing is refused by every other listing, and so is an altered token.
func tokens(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	for _, name := range []string{"one", "two"} {
		require.NoError(t, e.Client.CreateBucket(ctx, name, []byte("b/5")))
		for i := range 10 {
			for _, dir := range []string{"a", "b", "c"} {
				require.NoError(t, e.Client.Bucket(name).Put(ctx, fmt.Appendf(nil, "%s/%d", dir, i), nil))
			}
		}
	}
	one, two := e.Client.Bucket("one"), e.Client.Bucket("two")
	shapes := []listing.Query{
		{}, {Reverse: true}, {Delimiter: []byte("/")}, {Delimiter: []byte("/"), Reverse: true}, {Prefix: []byte("b")},
		{Prefix: []byte("b"), Delimiter: []byte("/5")}, {To: []byte("c/7")}, {From: []byte("a/2"), Reverse: true},
		{Prefix: []byte("b/")},
	}
	for i, q := range shapes {
		q.Limit = 1
		page, err := one.List(ctx, q)
		require.NoError(t, err)
		require.NotEmpty(t, page.Next)
		require.Regexp(t, `^[A-Za-z0-9_-]+$`, string(page.Next))
		for j, other := range shapes {
			other.Token = page.Next
			_, err := one.List(ctx, other)
			if i == j {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, listing.ErrBadToken, "%s with the token of %s", show(other), show(q))
				require.ErrorIs(t, err, store.InvalidArgument)
			}
		}
		q.Token = page.Next
		_, err = two.List(ctx, q)
		require.ErrorIs(t, err, listing.ErrBadToken, "another bucket")
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		for at := range page.Next {
			bad := []byte(page.Next)
			for bad[at] == page.Next[at] {
				bad[at] = alphabet[r.IntN(len(alphabet))]
			}
			q.Token = listing.Token(bad)
			_, err := one.List(ctx, q)
			require.ErrorIs(t, err, listing.ErrBadToken, "altered at %d", at)
			q.Token = page.Next[:at]
			if at > 0 {
				_, err = one.List(ctx, q)
				require.ErrorIs(t, err, listing.ErrBadToken, "cut at %d", at)
			}
		}
	}
	for _, garbage := range []string{"x", "%%%", "AAAA", strings.Repeat("A", 200_000), "\x00", "é"} {
		_, err := one.List(ctx, listing.Query{Token: listing.Token(garbage)})
		require.ErrorIs(t, err, listing.ErrBadToken)
		for _, err := range one.All(ctx, listing.Query{Token: listing.Token(garbage)}) {
			require.ErrorIs(t, err, listing.ErrBadToken)
		}
	}
	// A bucket of the same name is another bucket.
	page, err := two.List(ctx, listing.Query{Limit: 1})
	require.NoError(t, err)
	for item, err := range two.All(ctx, listing.Query{}) {
		require.NoError(t, err)
		require.NoError(t, two.Delete(ctx, item.Key))
	}
	require.NoError(t, e.Client.DeleteBucket(ctx, "two"))
	require.NoError(t, e.Client.CreateBucket(ctx, "two"))
	_, err = two.List(ctx, listing.Query{Limit: 1, Token: page.Next})
	require.ErrorIs(t, err, listing.ErrBadToken)
}

// limits tests the largest allowed keys, values and other sizes, and that larger ones are refused.
func limits(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	require.NoError(t, e.Client.CreateBucket(ctx, "limits"))
	b := e.Client.Bucket("limits")
	key, value := bytes.Repeat([]byte("k"), store.MaxKeyBytes), bytes.Repeat([]byte("v"), 64<<10)
	require.NoError(t, b.Put(ctx, key, value))
	got, err := b.Get(ctx, key)
	require.NoError(t, err)
	require.Equal(t, value, got.Value)
	for _, bad := range [][]byte{nil, {}, append(key, 'k')} {
		require.ErrorIs(t, b.Put(ctx, bad, nil), store.InvalidArgument)
		require.ErrorIs(t, b.Delete(ctx, bad), store.InvalidArgument)
		_, err := b.Get(ctx, bad)
		require.ErrorIs(t, err, store.InvalidArgument)
	}
	require.ErrorIs(t, b.Put(ctx, []byte("k"), append(value, 'v')), store.InvalidArgument)
	_, err = b.Get(ctx, []byte("k"))
	require.ErrorIs(t, err, listing.ErrNotFound)
	require.ErrorIs(t, err, store.NotFound)
	_, err = b.List(ctx, listing.Query{Limit: -1})
	require.ErrorIs(t, err, store.InvalidArgument)
	for _, q := range []listing.Query{{Prefix: append(key, 'k')}, {From: append(key, 'k')}, {To: append(key, 'k')},
		{After: append(key, 'k')}, {Delimiter: append(key, 'k')}} {
		_, err = b.List(ctx, q)
		require.ErrorIs(t, err, store.InvalidArgument)
	}
	_, err = b.List(ctx, listing.Query{Limit: 1 << 40})
	require.NoError(t, err)
	for _, name := range []string{"", strings.Repeat("x", 256)} {
		require.ErrorIs(t, e.Client.CreateBucket(ctx, name), store.InvalidArgument)
		require.ErrorIs(t, e.Client.DeleteBucket(ctx, name), store.InvalidArgument)
		require.ErrorIs(t, e.Client.Bucket(name).Put(ctx, []byte("k"), nil), store.InvalidArgument)
	}
	require.ErrorIs(t, e.Client.CreateBucket(ctx, "cuts", []byte("a"), nil), store.InvalidArgument)
	// Large values end a page early, and nothing is lost.
	for i := range 200 {
		require.NoError(t, b.Put(ctx, fmt.Appendf(nil, "large %03d", i), value))
	}
	lines, n := pages(t, b, listing.Query{Prefix: []byte("large")})
	require.Len(t, lines, 200)
	require.Greater(t, n, 1)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, b.Put(ended, []byte("k"), nil), store.Timeout)
	_, err = b.List(ended, listing.Query{})
	require.ErrorIs(t, err, store.Timeout)
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.Get(ctx, []byte("k"))
	require.ErrorIs(t, err, listing.ErrNotFound, "an ended context writes nothing")
}

// batches tests batches of puts in which some puts fail, and some keys occur several times.
func batches(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	require.NoError(t, e.Client.CreateBucket(ctx, "batches", []byte("300"), []byte("500"), []byte("700")))
	b, want := e.Client.Bucket("batches"), newOracle()
	require.NoError(t, b.PutBatch(ctx, nil))
	var entries []listing.Entry
	bad := map[int]bool{}
	for i := range 3000 {
		switch r.IntN(100) {
		case 0:
			entries, bad[i] = append(entries, listing.Entry{Key: nil}), true
		case 1:
			entries, bad[i] = append(entries, listing.Entry{Key: []byte("500"), Value: make([]byte, 64<<10+1)}), true
		default:
			k, v := fmt.Sprintf("%03d", r.IntN(1000)), fmt.Sprint(i)
			entries = append(entries, listing.Entry{Key: []byte(k), Value: []byte(v)})
			want.put(k, v, 1)
		}
	}
	err := b.PutBatch(ctx, entries)
	var batch *listing.BatchError
	require.ErrorAs(t, err, &batch)
	require.ErrorIs(t, err, store.InvalidArgument)
	for i, outcome := range batch.Outcomes {
		require.Equal(t, bad[i], outcome != nil, "outcome %d: %v", i, outcome)
	}
	got, _ := pages(t, b, listing.Query{})
	equal(t, want.list(listing.Query{}), got, listing.Query{})
	err = e.Client.Bucket("no such bucket").PutBatch(ctx, entries[:3])
	require.ErrorIs(t, err, listing.ErrNoSuchBucket)
}

// all tests iteration over a listing: with a limit, with an early stop, and with an error in the middle.
func all(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	require.NoError(t, e.Client.CreateBucket(ctx, "all", []byte("1")))
	b, want := e.Client.Bucket("all"), newOracle()
	var entries []listing.Entry
	for i := range 3500 {
		k := fmt.Sprintf("%d/%d", i%7, i)
		entries = append(entries, listing.Entry{Key: []byte(k)})
		want.put(k, "", 1)
	}
	require.NoError(t, b.PutBatch(ctx, entries))
	for range 30 {
		q := listing.Query{Reverse: r.IntN(2) == 0, Limit: r.IntN(5000)}
		if r.IntN(2) == 0 {
			q.Delimiter = []byte("/")
		}
		if r.IntN(2) == 0 {
			q.Prefix = []byte{"0123456"[r.IntN(7)]}
		}
		expected := want.list(q)
		if q.Limit > 0 {
			expected = expected[:min(q.Limit, len(expected))]
		}
		stop := len(expected)
		if r.IntN(2) == 0 {
			stop = r.IntN(len(expected) + 1)
		}
		var got []line
		for item, err := range b.All(ctx, q) {
			require.NoError(t, err)
			if len(got) == stop {
				break
			}
			got = append(got, lineOf(item))
		}
		equal(t, expected[:stop], got, q)
	}
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	n, failed := 0, false
	for _, err := range b.All(ended, listing.Query{}) {
		require.False(t, failed, "nothing comes after an error")
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			failed = true
			continue
		}
		if n++; n == 500 {
			cancel()
		}
	}
	require.True(t, failed)
	for _, err := range e.Client.Bucket("none").All(ctx, listing.Query{}) {
		require.ErrorIs(t, err, listing.ErrNoSuchBucket)
	}
}

// splitPoints tests that queries which are cut at split points list the same entries as the whole query.
func splitPoints(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	u := newUniverse(r, 2000, 40)
	for name, cuts := range map[string]int{"split whole": 0, "split few": 3, "split many": 200} {
		at := make([][]byte, cuts)
		for i := range at {
			at[i] = u.key()
		}
		require.NoError(t, e.Client.CreateBucket(ctx, name, at...))
		b, want := e.Client.Bucket(name), newOracle()
		var entries []listing.Entry
		for _, k := range u.keys {
			entries = append(entries, listing.Entry{Key: k})
			want.put(string(k), "", 1)
		}
		require.NoError(t, b.PutBatch(ctx, entries))
		for range 20 {
			q := u.query()
			q.Delimiter, q.KeysOnly, q.Limit = nil, true, 0
			n := 1 + r.IntN(12)
			points, err := b.SplitPoints(ctx, q, n)
			require.NoError(t, err)
			require.LessOrEqual(t, len(points), n-1)
			require.True(t, slices.IsSortedFunc(points, bytes.Compare))
			expected := want.list(q)
			if q.Reverse {
				slices.Reverse(expected)
			}
			var got []line
			parts := append(append([][]byte{nil}, points...), nil)
			for i := range parts[1:] {
				part := q
				part.Reverse, part.From, part.To, part.After = false, q.From, q.To, nil
				if !q.Reverse {
					part.After = q.After
				} else if len(q.After) > 0 && (len(q.To) == 0 || bytes.Compare(q.After, q.To) < 0) {
					part.To = q.After
				}
				if i > 0 {
					require.Greater(t, string(parts[i]), string(q.From))
					part.From = parts[i]
				}
				if parts[i+1] != nil {
					part.To = parts[i+1]
				}
				lines, _ := pages(t, b, part)
				got = append(got, lines...)
			}
			equal(t, expected, got, q)
			require.False(t, len(expected) > 50*n && len(points) < n-1, "%s: %d points for %d parts of %d keys",
				show(q), len(points), n, len(expected))
		}
	}
}

// buckets tests random creations, deletions and lists of buckets, one after the other.
func buckets(t *testing.T, e *Env, r *rand.Rand, o Options) {
	ctx := context.Background()
	list := func(prefix, after string) (names []string) {
		for info, err := range e.Client.Buckets(ctx, prefix, after) {
			require.NoError(t, err)
			require.False(t, info.Created.IsZero())
			names = append(names, info.Name)
		}
		return names
	}
	require.Empty(t, list("", ""))
	exists := map[string]bool{}
	for range 300 {
		name := fmt.Sprintf("%c%d", 'a'+rune(r.IntN(3)), r.IntN(10))
		switch b := e.Client.Bucket(name); r.IntN(4) {
		case 0:
			err := e.Client.CreateBucket(ctx, name, []byte("k"))
			if exists[name] {
				require.ErrorIs(t, err, listing.ErrBucketExists)
			} else {
				require.NoError(t, err)
			}
			exists[name] = true
		case 1:
			err := e.Client.DeleteBucket(ctx, name)
			if exists[name] && !errors.Is(err, listing.ErrNotEmpty) {
				require.NoError(t, err)
				delete(exists, name)
			} else if !exists[name] {
				require.ErrorIs(t, err, listing.ErrNoSuchBucket)
			}
		default:
			var err error
			if r.IntN(2) == 0 {
				err = b.Put(ctx, []byte("key"), nil)
			} else {
				err = b.Delete(ctx, []byte("key"))
			}
			if exists[name] {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, listing.ErrNoSuchBucket)
			}
		}
		var want, some []string
		for name := range exists {
			want = append(want, name)
		}
		slices.Sort(want)
		require.Equal(t, want, list("", ""))
		for _, name := range want {
			if strings.HasPrefix(name, "b") && name > "b3" {
				some = append(some, name)
			}
		}
		require.Equal(t, some, list("b", "b3"))
	}
}

// interruptedBuckets tests creations and deletions of buckets over a store that fails in the middle, as if clients died
// at every step. A repeated call must complete whatever was left behind.
func interruptedBuckets(t *testing.T, e *Env, r *rand.Rand, o Options) {
	if e.Faults == nil {
		t.Skip("the store has no faults")
	}
	ctx := context.Background()
	failed := 0
	for round := range 150 {
		name := fmt.Sprint(r.IntN(5))
		b := e.Client.Bucket(name)
		e.Faults(true)
		for range 1 + r.IntN(3) {
			var err error
			if r.IntN(2) == 0 {
				err = e.Client.CreateBucket(ctx, name, []byte("cut"))
			} else {
				err = e.Client.DeleteBucket(ctx, name)
			}
			switch {
			case err == nil, errors.Is(err, listing.ErrBucketExists), errors.Is(err, listing.ErrNoSuchBucket),
				errors.Is(err, listing.ErrNotEmpty):
			default:
				require.Contains(t, []store.Kind{store.Unavailable, store.Timeout}, store.KindOf(err), "%v", err)
				failed++
			}
		}
		e.Faults(false)
		if r.IntN(2) == 0 {
			err := e.Client.CreateBucket(ctx, name)
			if errors.Is(err, listing.ErrBucketClosing) { // its deleter died
				if err = e.Client.DeleteBucket(ctx, name); errors.Is(err, listing.ErrNoSuchBucket) || err == nil {
					err = e.Client.CreateBucket(ctx, name)
				}
			}
			if err != nil && !errors.Is(err, listing.ErrBucketExists) {
				require.ErrorIs(t, err, listing.ErrNotEmpty, "round %d", round)
			}
			require.True(t, listed(t, e, name))
			require.NoError(t, b.Put(ctx, []byte("key"), nil))
			if r.IntN(2) == 0 {
				require.NoError(t, b.Delete(ctx, []byte("key")))
			}
		} else {
			err := b.Delete(ctx, []byte("key"))
			if !errors.Is(err, listing.ErrNoSuchBucket) && !errors.Is(err, listing.ErrBucketClosing) {
				require.NoError(t, err)
			}
			if err = e.Client.DeleteBucket(ctx, name); errors.Is(err, listing.ErrNotEmpty) {
				require.NoError(t, b.Delete(ctx, []byte("key"))) // it was closing
				err = e.Client.DeleteBucket(ctx, name)
			}
			if err != nil {
				require.ErrorIs(t, err, listing.ErrNoSuchBucket)
			}
			require.False(t, listed(t, e, name))
			require.ErrorIs(t, b.Put(ctx, []byte("key"), nil), listing.ErrNoSuchBucket)
		}
	}
	t.Logf("%d failed", failed)
}
