package listing_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestEach: Query.Each is given what Page.Items has otherwise, page by page, also where a page is read by
// several walks; its hint promises no more than the page may have, and its error ends the page.
func TestEach(t *testing.T) {
	r := seed.New(t)
	s := memstore.New()
	clients := map[string]*listing.Client{}
	for name, o := range map[string]listing.Options{
		"one read after the other": {},
		"ahead":                    {ReadAhead: 8, ReadAheadAfter: 2, RowsPerRead: 50},
	} {
		var err error
		clients[name], err = listing.New(s, o)
		require.NoError(t, err)
	}
	loader := clients["ahead"]
	keys := folders(600, counted, func(int) int { return 1 + r.IntN(8) })
	require.NoError(t, loader.CreateBucket(t.Context(), "b", []byte(keys[len(keys)/3]), []byte(keys[len(keys)/2])))
	for _, k := range keys {
		require.NoError(t, loader.Bucket("b").Put(t.Context(), []byte(k), []byte("value of "+k)))
	}
	folder := func(key []byte) int { return bytes.IndexByte(key, '/') + 1 }
	queries := map[string]listing.Query{
		"all":     {},
		"reverse": {Reverse: true, Limit: 70, KeysOnly: true},
		"bytes":   {Bytes: 3000},
		"folders": {Delimiter: []byte("/")},
		"the first of each folder": {
			Stretch: folder, Sift: func(e listing.Entry) listing.Sifted { return listing.Sifted{Pass: folder(e.Key)} },
		},
	}
	stop := errors.New("enough")
	for name, client := range clients {
		for kind, q := range queries {
			b, what := client.Bucket("b"), name+", "+kind
			for pages := 0; ; pages++ {
				q.Each = nil
				want, err := b.List(t.Context(), q)
				require.NoError(t, err, what)
				limit := 1000
				if q.Limit > 0 {
					limit = q.Limit
				}
				var items []listing.Item
				q.Each = func(item listing.Item, more int) error {
					items = append(items, item)
					require.GreaterOrEqual(t, more, 0, what)
					require.LessOrEqual(t, len(items)+more, limit, what)
					return nil
				}
				got, err := b.List(t.Context(), q)
				require.NoError(t, err, what)
				require.Equal(t, want.Items, items, what)
				require.Equal(t, want.Next, got.Next, what)
				require.Empty(t, got.Items, what)

				at := r.IntN(len(items))
				q.Each = func(listing.Item, int) error {
					if at--; at < 0 {
						return stop
					}
					return nil
				}
				_, err = b.List(t.Context(), q)
				require.ErrorIs(t, err, stop, what)
				require.Equal(t, -1, at, "%s: called again after its error", what)
				if q.Token = want.Next; q.Token == "" {
					require.NotZero(t, pages+len(items), what)
					break
				}
			}
		}
	}
	require.Greater(t, len(keys), 1000, fmt.Sprint("too few keys for two pages: ", len(keys)))
}

// TestEachReadsAheadAlike: what a page guesses from its items does not depend on who takes them.
func TestEachReadsAheadAlike(t *testing.T) {
	keys := folders(900, counted, func(int) int { return 40 })
	o := listing.Options{ReadAhead: 8}
	q := listing.Query{Delimiter: []byte("/")}
	want := costOf(t, keys, 3, q, o)[0]
	n := 0
	q.Each = func(listing.Item, int) error { n++; return nil }
	got := costOf(t, keys, 3, q, o)[0]
	require.Len(t, want.items, n)
	require.Less(t, got.rounds, 2*want.rounds, "reads that end at once come in any order, so that differs a little")
}
