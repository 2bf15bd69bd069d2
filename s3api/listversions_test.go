package s3api

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// slowReads takes three seconds for each read of rows: more than a page of a listing goes on for.
type slowReads struct{ store.Store }

func (s slowReads) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	time.Sleep(3 * time.Second)
	return s.Store.Slice(ctx, p, b, o)
}

// TestPagesOfObjectsThatComeSlowly: a page that takes too long is sent short, and the listing goes on
// from there: behind its last line, or, by a token, where it found nothing. Without tokens a page has
// a line. No line is lost.
func TestPagesOfObjectsThatComeSlowly(t *testing.T) {
	for name, c := range map[string]struct {
		status objects.Status
		first  string
		pages  int
		want   []string
	}{
		"by tokens":   {objects.Never, "list-type=2&max-keys=3", 4, []string{"a", "y", "z"}},
		"by markers":  {objects.Never, "max-keys=3", 2, []string{"a", "y", "z"}},
		"of versions": {objects.Suspended, "versions&max-keys=3&prefix=z", 3, []string{"z", "z1", "z2"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				defer func() { require.NoError(t, s.Close()) }()
				over := func(s store.Store) (*Handler, *objects.Objects) {
					// Each page of package listing is one read that finds nothing, at most.
					c, err := listing.New(s, listing.Options{MaxIdleReads: 1})
					require.NoError(t, err)
					o, err := objects.New(c, nil, objects.Options{})
					require.NoError(t, err)
					h, err := New(Over(c), Options{Objects: o, RequestTimeout: time.Hour})
					require.NoError(t, err)
					return h, o
				}
				_, o := over(s)
				ctx := t.Context()
				require.NoError(t, o.CreateBucket(ctx, "abc"))
				b := o.Bucket("abc", objects.Never)
				put := func(key string) {
					_, err := b.Put(ctx, []byte(key), strings.NewReader(""), objects.Meta{})
					require.NoError(t, err)
				}
				for i := range 150 {
					_, err := b.Delete(ctx, fmt.Appendf(nil, "k%03d", i))
					require.NoError(t, err)
				}
				for _, key := range []string{"a", "y", "z"} {
					put(key)
				}
				if c.status != objects.Never {
					require.NoError(t, o.SetStatus(ctx, "abc", c.status))
					for range 9 {
						put("z")
						put("z1")
					}
					put("z2")
				}
				h, _ := over(slowReads{s})
				var got []string
				pages := 0
				for next := c.first; next != ""; pages++ {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest("GET", "/abc?"+next, nil))
					require.Equal(t, 200, w.Code)
					body := w.Body.String()
					text := func(name string) (all []string) {
						for _, m := range regexp.MustCompile("<"+name+">([^<]*)</"+name+">").FindAllStringSubmatch(body, -1) {
							all = append(all, m[1])
						}
						return all
					}
					keys := text("Key")
					got, next = append(got, keys...), ""
					if slices.Equal(text("IsTruncated"), []string{"true"}) {
						next = c.first
						switch {
						case strings.HasPrefix(next, "list-type=2"):
							next += "&continuation-token=" + text("NextContinuationToken")[0]
						case strings.HasPrefix(next, "versions"):
							next += "&key-marker=" + text("NextKeyMarker")[0] + "&version-id-marker=" + text("NextVersionIdMarker")[0]
						default:
							next += "&marker=" + keys[len(keys)-1]
						}
					}
				}
				require.Equal(t, c.want, got)
				require.GreaterOrEqual(t, pages, c.pages)
			})
		})
	}
}

// TestTokensOfObjects: a token holds for its bucket and query only, and for keys that can be.
func TestTokensOfObjects(t *testing.T) {
	h := overBodies(t, &bodies{}, Options{})
	require.NoError(t, h.o.Objects.CreateBucket(t.Context(), "abd"))
	for _, key := range []string{"a", "p/1", "p/2", "q"} {
		_, err := h.o.Objects.Bucket("abc", objects.Never).Put(t.Context(), []byte(key), strings.NewReader("x"),
			objects.Meta{Size: 1})
		require.NoError(t, err)
	}
	list := func(bucket, query string, token listing.Token) (int, string) {
		w := httptest.NewRecorder()
		target := "/" + bucket + "?list-type=2" + query + "&continuation-token=" + url.QueryEscape(string(token))
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		var keys []string
		for _, m := range regexp.MustCompile("<Key>([^<]*)<").FindAllStringSubmatch(w.Body.String(), -1) {
			keys = append(keys, m[1])
		}
		return w.Code, strings.Join(keys, " ")
	}
	l := listQuery{}
	l.Prefix, l.Delimiter = []byte(""), []byte("")
	long := make([]byte, care.MaxKeyBytes+1)
	for i := range long {
		long[i] = 'a'
	}
	slash := l
	slash.Delimiter = []byte("/")
	for _, c := range []struct {
		bucket, query string
		token         listing.Token
		code          int
		keys          string
	}{
		{"abc", "", l.tokenOf("abc", tokenKey, []byte("a")), 200, "p/1 p/2 q"},
		{"abc", "", l.tokenOf("abc", tokenKey, []byte("p/1")), 200, "p/2 q"},
		{"abc", "", l.tokenOf("abc", tokenPrefix, []byte("p/")), 200, "q"},
		{"abc", "", l.tokenOf("abc", tokenKey, long[1:]), 200, "p/1 p/2 q"},
		{"abc", "", l.tokenOf("abc", tokenPrefix, long[1:]), 200, "p/1 p/2 q"},
		{"abc", "", l.tokenOf("abc", tokenKey, long), 400, ""},
		{"abc", "", l.tokenOf("abc", tokenPrefix, long), 400, ""},
		{"abc", "", l.tokenOf("abc", 'x', []byte("a")), 400, ""},
		{"abc", "", l.tokenOf("abc", tokenInner, []byte("a")), 400, ""},
		{"abc", "", l.tokenOf("abc", tokenKey, nil), 400, ""},
		{"abc", "", l.tokenOf("abc", tokenKey, []byte("a")) + "=", 400, ""},
		{"abc", "", "AAAA", 400, ""},
		{"abd", "", l.tokenOf("abd", tokenKey, []byte("a")), 200, ""},
		{"abd", "", l.tokenOf("abc", tokenKey, []byte("a")), 400, ""},
		{"abc", "&prefix=p", l.tokenOf("abc", tokenKey, []byte("a")), 400, ""},
		{"abc", "&delimiter=/", l.tokenOf("abc", tokenKey, []byte("a")), 400, ""},
		{"abc", "&delimiter=/", slash.tokenOf("abc", tokenPrefix, []byte("p/")), 200, "q"},
		{"abc", "&prefix=/", slash.tokenOf("abc", tokenKey, []byte("a")), 400, ""},
	} {
		code, keys := list(c.bucket, c.query, c.token)
		require.Equal(t, []any{c.code, c.keys}, []any{code, keys}, "%+v", c)
	}
}

// TestDocumentsOfObjects: a page ends with the line with which its document reaches a mebibyte, and the
// next one goes on behind it.
func TestDocumentsOfObjects(t *testing.T) {
	race.Skip(t)
	h := overBodies(t, &bodies{}, Options{})
	var want []string
	for i := range 450 {
		key := fmt.Sprintf("%03d", i) + strings.Repeat("ü", 500)
		want = append(want, key)
		_, err := h.o.Objects.Bucket("abc", objects.Never).Put(t.Context(), []byte(key), strings.NewReader("x"),
			objects.Meta{Size: 1})
		require.NoError(t, err)
	}
	for query, marker := range map[string]string{
		"list-type=2": "continuation-token=", "list-type=2&delimiter=%C3%BC": "continuation-token=",
		"versions": "key-marker=",
	} {
		var got []string
		for next, pages := query, 1; ; pages++ {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/abc?encoding-type=url&"+next, nil))
			body := w.Body.String()
			n := 0
			for _, m := range regexp.MustCompile("<(?:Key|Prefix)>([^<]+)<").FindAllStringSubmatch(body, -1) {
				key, err := url.PathUnescape(m[1])
				require.NoError(t, err)
				got = append(got, key)
				n++
			}
			at := regexp.MustCompile("<Next(?:ContinuationToken|KeyMarker)>([^<]+)<").FindStringSubmatch(body)
			if at == nil {
				require.Equal(t, map[bool]int{true: 2, false: 1}[!strings.Contains(query, "delimiter")], pages)
				break
			}
			line := len(body) / n
			require.Greater(t, len(body), 1<<20)
			require.Less(t, len(body), 1<<20+2*line)
			next = query + "&" + marker + at[1]
		}
		if strings.Contains(query, "delimiter") {
			require.Len(t, got, 450)
			continue
		}
		require.Equal(t, want, got)
	}
}
