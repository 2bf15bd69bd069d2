package harness

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var client = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// Answer is the answer to an HTTP request.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Request sends an HTTP request, and returns the answer. If there is no answer, Request fails the test.
func Request(t testing.TB, method, url, body string) Answer {
	t.Helper()
	a, err := RequestOf(t.Context(), method, url, body)
	require.NoError(t, err)
	return a
}

// RequestOf sends an HTTP request, and returns the answer. headers has pairs of a name and a value.
func RequestOf(ctx context.Context, method, url, body string, headers ...string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, string(text)}, err
}

// Page is one page of a listing, as the server has answered it.
type Page struct {
	Keys [][]byte
	Next string // empty after the last one
}

// GetPage requests one page of a listing with at most limit keys, and checks that the fields of the answer agree with
// each other. token is the token of the page before, or "" for the first page.
func GetPage(ctx context.Context, server, bucket, token string, limit int, reverse bool) (p Page, err error) {
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {strconv.Itoa(limit)}}
	if token != "" {
		query.Set("continuation-token", token)
	}
	if reverse {
		query.Set("evenkeel-reverse", "true")
	}
	got, err := RequestOf(ctx, http.MethodGet, server+"/"+bucket+"?"+query.Encode(), "")
	if err != nil {
		return p, err
	}
	if got.Status != http.StatusOK {
		return p, fmt.Errorf("%d: %s", got.Status, got.Body)
	}
	var page struct {
		Contents              []struct{ Key string }
		KeyCount              int
		IsTruncated           bool
		NextContinuationToken string
	}
	if err := xml.Unmarshal([]byte(got.Body), &page); err != nil {
		return p, err
	}
	if len(page.Contents) != page.KeyCount || page.KeyCount > limit ||
		page.IsTruncated != (page.NextContinuationToken != "") {
		return p, fmt.Errorf("the page does not hold together: %s", got.Body)
	}
	for _, entry := range page.Contents {
		key, err := url.PathUnescape(entry.Key)
		if err != nil {
			return p, err
		}
		p.Keys = append(p.Keys, []byte(key))
	}
	p.Next = page.NextContinuationToken
	return p, nil
}

// OverHTTP lists a bucket page by page, and returns all keys. limit is the largest number of keys of a page.
func OverHTTP(t testing.TB, server, bucket string, limit int, reverse bool) (found [][]byte) {
	t.Helper()
	for token := ""; ; {
		page, err := GetPage(t.Context(), server, bucket, token, limit, reverse)
		require.NoError(t, err)
		found = append(found, page.Keys...)
		if token = page.Next; token == "" {
			return found
		}
	}
}

// SortedBySort returns the keys sorted and without duplicates. It uses `LC_ALL=C sort -u`, which is independent of the
// code under test.
func SortedBySort(t testing.TB, keys [][]byte) [][]byte {
	t.Helper()
	cmd := exec.Command("sort", "-z", "-u")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = bytes.NewReader(append(bytes.Join(keys, []byte{0}), 0))
	out, err := cmd.Output()
	require.NoError(t, err)
	return bytes.Split(bytes.TrimSuffix(out, []byte{0}), []byte{0})
}

// Summary is a short description of a list of keys. Tests compare summaries instead of long lists, so that their
// messages stay short.
type Summary struct {
	Keys int
	MD5  string // of the keys with a zero byte between them, in hex
}

// Sum returns the summary of a list of keys.
func Sum(keys [][]byte) Summary {
	return Summary{len(keys), fmt.Sprintf("%x", md5.Sum(bytes.Join(keys, []byte{0})))}
}
