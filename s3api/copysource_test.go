package s3api_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/s3api"
)

func TestCopySources(t *testing.T) {
	for source, want := range map[string][3]string{
		"abc/k":                       {"abc", "k"},
		"/abc/k":                      {"abc", "k"},
		"abc%2Fk":                     {"abc", "k"},
		"/abc%2Fk":                    {"abc", "k"},
		"%2Fabc%2Fk":                  {"abc", "k"},
		"%2fabc%2fd%2fk":              {"abc", "d/k"},
		"abc/d%2Fk":                   {"abc", "d/k"},
		"abc//k":                      {"abc", "/k"},
		"abc%2F%2Fk":                  {"abc", "/k"},
		"abc/k/":                      {"abc", "k/"},
		"abc/a%20b":                   {"abc", "a b"},
		"abc/a b":                     {"abc", "a b"},
		"abc/a+b":                     {"abc", "a b"},
		"abc%2Fa+b":                   {"abc", "a b"},
		"abc/a%2Bb":                   {"abc", "a+b"},
		"abc%2Fa%2Bb":                 {"abc", "a+b"},
		"abc/a%2520b":                 {"abc", "a%20b"}, // decoded once
		"abc/%252F":                   {"abc", "%2F"},
		"abc/{}":                      {"abc", "{}"},
		"abc/%7B%7D":                  {"abc", "{}"},
		"abc/ü":                       {"abc", "ü"},
		"abc/%C3%BC":                  {"abc", "ü"},
		"abc/a;b&c=d#e":               {"abc", "a;b&c=d#e"},
		"abc/k?versionId=null":        {"abc", "k"},
		"abc%2Fk?versionId=null":      {"abc", "k"},
		"/abc/k?versionId=%6Eull":     {"abc", "k"},
		"abc/k%3FversionId=7":         {"abc", "k?versionId=7"},
		"abc%2Fk%3FversionId%3D7":     {"abc", "k?versionId=7"},
		"abc/k%3Fv?versionId=null":    {"abc", "k?v"},
		"":                            {"", "", "InvalidArgument"},
		"/":                           {"", "", "InvalidArgument"},
		"abc":                         {"", "", "InvalidArgument"},
		"abc/":                        {"", "", "InvalidArgument"},
		"abc%2F":                      {"", "", "InvalidArgument"},
		"//abc/k":                     {"", "", "InvalidArgument"},
		"%2F%2Fabc/k":                 {"", "", "InvalidArgument"},
		"ABC/k":                       {"", "", "InvalidArgument"},
		"abc%252Fk":                   {"", "", "InvalidArgument"},
		"abc/100%":                    {"", "", "InvalidArgument"},
		"abc/%zz":                     {"", "", "InvalidArgument"},
		"abc/what?":                   {"", "", "InvalidArgument"},
		"abc/what?k":                  {"", "", "InvalidArgument"},
		"abc/k?versionId":             {"", "", "InvalidArgument"},
		"abc/k?versionId=":            {"", "", "InvalidArgument"},
		"abc/k?versionId=7":           {"", "", "InvalidArgument"}, // of a plain bucket
		"abc/k?VersionId=null":        {"", "", "InvalidArgument"},
		"abc/k?versionId=null&x=1":    {"", "", "InvalidArgument"},
		"abc/k?versionId=null?x":      {"", "", "InvalidArgument"},
		"abc/k?versionId=a&versionId": {"", "", "InvalidArgument"},
		"arn:aws:s3:::abc/k":          {"", "", "NotImplemented"},
		"arn%3Aaws%3As3%3A%3A%3Aabc":  {"", "", "NotImplemented"},
	} {
		bucket, key, code := s3api.CopySource(source)
		require.Equal(t, want, [3]string{bucket, key, code}, source)
	}
}

// segments encodes what is between slashes, as SDKs of AWS do.
func segments(source string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(source), "+", "%20"), "%2F", "/")
}

// TestCopySourcesOfAnyKey: a key is copied whatever it is made of, and in whichever way clients encode it; a key beside
// it, which another way to decode would find, is not.
func TestCopySourcesOfAnyKey(t *testing.T) {
	rnd := seed.New(t)
	g := newParameterGround(t)
	etag := plainObject{body: "that one"}.etag()
	pieces := []string{
		"/", "//", "+", " ", "%", "%2F", "%20", "%2B", "?", "?versionId=null", "&", "=", "#", ";", "{", "}", "ü", "€", "\U0001F600",
		"a", "B", "..", ".", "~", "\\", "\"", "'", "*", ":", "@", "x",
	}
	encodings := map[string]func(source string) string{
		"whole, as in a query": url.QueryEscape,
		"whole":                func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") },
		"whole, with a slash":  func(s string) string { return url.QueryEscape("/" + s) },
		"by segments":          segments,
		"by segments, with a slash": func(s string) string {
			return "/" + segments(s)
		},
		"not":               func(s string) string { return s },
		"not, with a slash": func(s string) string { return "/" + s },
	}
	for _, bucket := range []string{"plain", "kept"} {
		for range 60 {
			key := "k"
			for range 1 + rnd.IntN(5) {
				key += pieces[rnd.IntN(len(pieces))]
			}
			keys := map[string]string{key: "that one"}
			for _, other := range []string{
				strings.ReplaceAll(key, "+", " "), strings.ReplaceAll(key, " ", "+"), strings.ReplaceAll(key, "%2F", "/"),
				strings.ReplaceAll(key, "%20", " "), strings.ReplaceAll(key, "%2B", "+"), strings.TrimSuffix(key, "?versionId=null"),
			} {
				if keys[other] == "" {
					keys[other] = "another one"
				}
			}
			for k, body := range keys {
				require.Equal(t, 200, g.ask("PUT", "/"+bucket+"/"+segments(k), body, false).Code)
			}
			for name, encode := range encodings {
				if strings.HasPrefix(name, "not") && strings.ContainsAny(key, "%+?") {
					continue
				}
				source := encode(bucket + "/" + key)
				for _, target := range []string{"/kept/copy", "/plain/copy", "/kept/k?partNumber=2&uploadId=" + g.up} {
					for _, version := range []string{"", "?versionId=null"}[:map[string]int{"plain": 2, "kept": 1}[bucket]] {
						r := httptest.NewRequest("PUT", target, nil)
						r.Header.Set("x-amz-copy-source", source+version)
						w := httptest.NewRecorder()
						g.handler.ServeHTTP(w, r)
						require.Equal(t, 200, w.Code, "%q, encoded %s: %s: %s", key, name, source+version, w.Body)
						require.Contains(t, w.Body.String(), "<ETag>&quot;"+etag+"&quot;</ETag>",
							"%q, encoded %s: %s", key, name, source)
					}
				}
			}
		}
	}
}

// TestCopySourceWithoutAValue: it is no put of an empty object.
func TestCopySourceWithoutAValue(t *testing.T) {
	g := newParameterGround(t)
	for _, target := range []string{"/plain/k", "/kept/k", "/kept/k?partNumber=1&uploadId=" + g.up} {
		r := httptest.NewRequest("PUT", target, nil)
		r.Header["X-Amz-Copy-Source"] = []string{""}
		w := httptest.NewRecorder()
		g.handler.ServeHTTP(w, r)
		require.Equal(t, 400, w.Code, target)
		require.Contains(t, w.Body.String(), "Copy Source must mention")
	}
	require.Equal(t, g.before, g.all())
}
