package s3api_test

import (
	"encoding/xml"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/s3api"
)

var (
	queries = flag.Int("queries", 40, "listings asked of each bucket of the model test")
)

// model is S3 as its documents have it, in the dumbest way: a map of keys.
type model map[string]string

// modelQuery is a listing asked of both.
type modelQuery struct {
	prefix, delimiter, startAfter, from, to string
	reverse                                 bool
}

// line is a key, or a common prefix.
type line struct {
	text   string
	prefix bool
}

// list returns everything that a query lists, in order.
func (m model) list(q modelQuery) []line {
	set := map[line]bool{}
	for key := range m {
		beyond := key > q.startAfter
		if q.reverse {
			beyond = key < q.startAfter
		}
		if !strings.HasPrefix(key, q.prefix) || (q.startAfter != "" && !beyond) || key < q.from ||
			(q.to != "" && key >= q.to) {
			continue
		}
		l := line{text: key}
		if q.delimiter != "" {
			if head, _, found := strings.Cut(key[len(q.prefix):], q.delimiter); found {
				l = line{q.prefix + head + q.delimiter, true}
			}
		}
		set[l] = true
	}
	var lines []line
	for l := range set {
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b line) int { return strings.Compare(a.text, b.text) })
	if q.reverse {
		slices.Reverse(lines)
	}
	return lines
}

var reference = regexp.MustCompile(`&(#x[0-9A-F]+|[a-z]+);`)

// lenient reads text as parsers do that accept every character reference.
func lenient(s string) string {
	return reference.ReplaceAllStringFunc(s, func(ref string) string {
		if hex, ok := strings.CutPrefix(ref, "&#x"); ok {
			n, _ := strconv.ParseUint(strings.TrimSuffix(hex, ";"), 16, 32)
			return string(rune(n))
		}
		return map[string]string{"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": `"`, "&apos;": "'"}[ref]
	})
}

var keyElement = regexp.MustCompile(`<Key>([^<]*)</Key>|<CommonPrefixes><Prefix>([^<]*)</Prefix>`)

// TestListObjectsV2AgainstAModel asks random queries of a server with many
// ranges, page by page, and compares every page with the model's.
func TestListObjectsV2AgainstAModel(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			rnd := seed.New(t)
			s := serveStore(t, open(t))
			for round := range 4 {
				bucket := fmt.Sprintf("bucket-%d", round)
				raw := round%2 == 1 // keys that XML can't hold, too
				m := fillBucket(s, rnd, bucket, raw)
				for range race.Fewer(*queries) {
					s.checkListing(rnd, bucket, m, randomQuery(rnd, raw), raw)
				}
			}
		})
	}
}

// randomKey is short and made of few parts, so that keys are prefixes of each
// other, share common prefixes and meet all that needs escapes.
func randomKey(rnd *rand.Rand, raw bool) string {
	parts := []string{"a", "b", "/", "/", "//", "+", " ", "%", "%2F", "&", "<", "ü", "世", "..", ".", "\n", "\t", "\r",
		"'",
		`"`, "=", "?", "#", "~", "*"}
	if raw {
		parts = append(parts, "\x00", "\x01", "\x7f", "\xff", "\xfe", "\ufffe", "\uffff", "\U0010ffff")
	}
	var b strings.Builder
	for range 1 + rnd.IntN(5) {
		b.WriteString(parts[rnd.IntN(len(parts))])
	}
	return b.String()
}

// fillBucket makes a bucket with random cuts and keys, some of them deleted
// again.
func fillBucket(s *server, rnd *rand.Rand, bucket string, raw bool) model {
	s.t.Helper()
	set := map[string]bool{}
	for range rnd.IntN(30) {
		set[randomKey(rnd, raw)] = true
	}
	var cuts [][]byte
	for _, cut := range slices.Sorted(mapKeys(set)) {
		cuts = append(cuts, []byte(cut))
	}
	require.NoError(s.t, s.buckets.CreateBucket(s.t.Context(), bucket, cuts...))
	m := model{}
	for i := range 120 {
		key, body := randomKey(rnd, raw), strconv.Itoa(i)
		s.want(200, "", "PUT", "/"+bucket+"/"+url.PathEscape(key), body, "x-evenkeel-key-bytes", "any")
		m[key] = body
		if rnd.IntN(4) == 0 {
			s.want(204, "", "DELETE", "/"+bucket+"/"+url.PathEscape(key), "")
			delete(m, key)
		}
	}
	return m
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func randomQuery(rnd *rand.Rand, raw bool) (q modelQuery) {
	pick := func(odds int) string {
		if rnd.IntN(odds) > 0 {
			return ""
		}
		k := randomKey(rnd, raw)
		return k[:1+rnd.IntN(len(k))]
	}
	q.prefix, q.startAfter = pick(2), pick(3)
	if rnd.IntN(2) == 0 {
		q.delimiter = []string{"/", "/", "/", "a", "//", "ü", "%", "+", " "}[rnd.IntN(9)]
	}
	if rnd.IntN(4) == 0 {
		q.from, q.to, q.reverse = pick(2), pick(2), rnd.IntN(2) == 0
	}
	return q
}

// checkListing asks one query, page by page.
func (s *server) checkListing(rnd *rand.Rand, bucket string, m model, q modelQuery, raw bool) {
	t := s.t
	t.Helper()
	encoded := rnd.IntN(2) == 0
	maxKeys := []int{1, 2, 3, 7, 50, 1000, 5000}[rnd.IntN(7)]
	v := url.Values{"list-type": {"2"}, "max-keys": {strconv.Itoa(maxKeys)}}
	for name, value := range map[string]string{"prefix": q.prefix, "delimiter": q.delimiter,
		"start-after":   q.startAfter,
		"evenkeel-from": q.from, "evenkeel-to": q.to} {
		if value != "" || rnd.IntN(2) == 0 { // an empty parameter is an absent one
			v.Set(name, value)
		}
	}
	if q.reverse {
		v.Set("evenkeel-reverse", "true")
	}
	if encoded {
		v.Set("encoding-type", "url")
	}
	wantPage := min(maxKeys, 1000)
	rest := m.list(q)
	for token := ""; ; {
		if token != "" {
			v.Set("continuation-token", token)
		}
		context := fmt.Sprintf("%s?%s", bucket, v.Encode())
		want := rest[:min(wantPage, len(rest))]
		// What XML can't hold is refused unless it is percent-encoded.
		sayable := utf8.ValidString(q.prefix + "a" + q.delimiter + "a" + q.startAfter)
		for _, l := range want {
			sayable = sayable && utf8.ValidString(l.text)
		}
		if !encoded && !sayable {
			s.want(400, "InvalidArgument", "GET", "/"+context, "")
			return
		}
		doc := s.want(200, "", "GET", "/"+context, "").body
		d := listBucketResult{}
		if !raw || encoded {
			require.NoError(t, xml.Unmarshal([]byte(doc), &d), "%s: %s", context, doc)
			plain := func(s string) string {
				if encoded {
					s, _ = url.PathUnescape(s)
				}
				return s
			}
			require.Equal(t, []string{bucket, q.prefix, q.delimiter, q.startAfter, token},
				[]string{d.Name, plain(d.Prefix), plain(d.Delimiter), plain(d.StartAfter),
					d.ContinuationToken}, context)
			for _, c := range d.Contents {
				o := s3api.Object{Body: []byte(m[plain(c.Key)])}
				o, err := s3api.ParseRecord(o.AppendRecord(nil))
				require.NoError(t, err)
				require.Equal(t, `"`+o.ETag+`"`, c.ETag, context)
				require.Equal(t, o.Size, c.Size, context)
			}
		}
		got := linesOf(doc, encoded, q.reverse)
		require.Equal(t, len(want), len(got), "%s\nwant %q\n got %q", context, want, got)
		for i := range want {
			require.Equal(t, want[i], got[i], context)
		}
		require.Contains(t, doc, fmt.Sprintf("<KeyCount>%d</KeyCount><MaxKeys>%d</MaxKeys>", len(want), wantPage),
			context)
		rest = rest[len(want):]
		truncated := strings.Contains(doc, "<IsTruncated>true</IsTruncated>")
		require.Equal(t, len(rest) > 0, truncated, "%s: IsTruncated\nrest %q", context, rest)
		_, after, _ := strings.Cut(doc, "<NextContinuationToken>")
		token, _, _ = strings.Cut(after, "<")
		require.Equal(t, truncated, token != "", context)
		if !truncated {
			return
		}
	}
}

// linesOf reads the keys and common prefixes of a document into one order.
func linesOf(doc string, encoded, reverse bool) (lines []line) {
	for _, match := range keyElement.FindAllStringSubmatch(doc, -1) {
		l := line{lenient(match[1]), false}
		if strings.HasPrefix(match[0], "<Common") {
			l = line{lenient(match[2]), true}
		}
		if encoded {
			l.text, _ = url.PathUnescape(l.text)
		}
		lines = append(lines, l)
	}
	slices.SortStableFunc(lines, func(a, b line) int {
		if reverse {
			a, b = b, a
		}
		return strings.Compare(a.text, b.text)
	})
	return lines
}

func TestListParameters(t *testing.T) {
	s := serveStore(t, stores["memstore"](t))
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abd", "")
	for _, k := range []string{"a", "b", "c/1", "c/2"} {
		s.want(200, "", "PUT", "/abc/"+k, "v")
	}
	for _, bad := range []string{
		"max-keys=-1", "max-keys=x", "max-keys=1.5", "max-keys=2147483648", "max-keys=99999999999999999999",
		"max-keys=1%201",
		"max-keys=0x10",
		"encoding-type=base64", "continuation-token=garbage", "continuation-token=%00",
		"fetch-owner=maybe", "evenkeel-reverse=1", "allow-unordered=true&delimiter=/",
		"continuation-token=" + strings.Repeat("A", 20_000),
	} {
		s.want(400, "InvalidArgument", "GET", "/abc?list-type=2&"+bad, "")
		s.want(400, "InvalidArgument", "GET", "/abc?list-type=2&max-keys=0&"+bad+"&continuation-token=x", "")
	}
	s.want(200, "", "GET", "/abc?list-type=2&allow-unordered=true", "")
	zero := s.want(200, "", "GET", "/abc?list-type=2&max-keys=0", "").body
	require.Contains(t, zero,
		"<KeyCount>0</KeyCount><MaxKeys>0</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>")
	require.Contains(t, s.want(200, "", "GET", "/abc?list-type=2&max-keys=2147483647", "").body,
		"<MaxKeys>1000</MaxKeys>")
	require.Contains(t, s.want(200, "", "GET", "/abc?list-type=2&max-keys=", "").body, "<MaxKeys>1000</MaxKeys>")
	require.Contains(t, s.want(200, "", "GET", "/abc?list-type=2&fetch-owner=true", "").body, "</Size><Owner><ID>")
	require.NotContains(t, zero+s.want(200, "", "GET", "/abc?list-type=2", "").body, "Owner")

	// The order of elements is S3's.
	page := s.want(200, "", "GET", "/abc?list-type=2&max-keys=2&delimiter=/&start-after=A&encoding-type=url&prefix=",
		"").body
	at := 0
	for _, element := range []string{"<Name>abc</Name>", "<Prefix></Prefix>", "<StartAfter>A</StartAfter>",
		"<NextContinuationToken>", "<KeyCount>2</KeyCount>", "<MaxKeys>2</MaxKeys>", "<Delimiter>/</Delimiter>",
		"<EncodingType>url</EncodingType>", "<IsTruncated>true</IsTruncated>", "<Contents><Key>a</Key><LastModified>",
		"<ETag>&quot;", "<Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>"} {
		next := strings.Index(page[at:], element)
		require.GreaterOrEqual(t, next, 0, "%s after byte %d of %s", element, at, page)
		at += next
	}

	// Tokens: of this bucket and query only, unaltered; exact pages end.
	_, rest, _ := strings.Cut(page, "<NextContinuationToken>")
	token, _, _ := strings.Cut(rest, "<")
	last := s.want(200, "", "GET", "/abc?list-type=2&max-keys=1&delimiter=/&continuation-token="+token, "").body
	require.Contains(t, last, "<KeyCount>1</KeyCount>")
	require.Contains(t, last, "<IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>")
	s.want(400, "InvalidArgument", "GET", "/abc?list-type=2&delimiter=/&prefix=c&continuation-token="+token, "")
	s.want(400, "InvalidArgument", "GET", "/abc?list-type=2&continuation-token="+token, "")
	s.want(400, "InvalidArgument", "GET", "/abd?list-type=2&delimiter=/&continuation-token="+token, "")
	for i := range token {
		altered := []byte(token)
		altered[i] ^= 1
		s.want(400, "InvalidArgument", "GET", "/abc?list-type=2&delimiter=/&continuation-token="+
			url.QueryEscape(string(altered)), "")
	}
}
