package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// keysBelow are lines of keys.
func keysBelow(prefix string, n int) string {
	var keys strings.Builder
	for i := range n {
		fmt.Fprintf(&keys, "%s%04d\n", prefix, i)
	}
	return keys.String()
}

// unable answers as a server without an operation, or one that has no time for some requests.
type unable struct {
	ranges  bool
	refused atomic.Int64 // requests that are refused yet
	deletes atomic.Int64
	http.Handler
}

func (u *unable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ranges := r.Method == http.MethodPost && r.URL.Query().Has("evenkeel-delete-range")
	if r.Method == http.MethodDelete {
		u.deletes.Add(1)
	}
	switch {
	case ranges && !u.ranges:
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprint(w, "<Error><Code>NotImplemented</Code></Error>")
	case (ranges || r.Method == http.MethodDelete) && u.refused.Add(-1) >= 0:
		http.Error(w, "not now", http.StatusServiceUnavailable)
	default:
		u.Handler.ServeHTTP(w, r)
	}
}

// TestPrefixesAreDeleted: by ranges or one by one over pages, after a question, and despite refused requests.
func TestPrefixesAreDeleted(t *testing.T) {
	for _, ranges := range []bool{true, false} {
		t.Run(fmt.Sprintf("by ranges %v", ranges), func(t *testing.T) {
			u := &unable{ranges: ranges}
			server := "--server=" + memServer(t, func(h http.Handler) http.Handler {
				u.Handler = h
				return u
			})
			ok(t, keysBelow("a/", 2500)+"a\nb\nc/1\nc/2\n", "load", "abc", "--create", "--progress", "none", server)
			terminal = func(any) bool { return true }
			defer func() { terminal = func(any) bool { return false } }()
			o := listd(t, "no\n", "rm", "abc", "--prefix", "a/", server)
			require.Equal(t, daemon.ExitFailed, o.code)
			require.Contains(t, o.err, `Delete all keys of abc that begin with "a/"? [y/N]`)
			require.Contains(t, o.err, "nothing was deleted")
			require.Contains(t, ok(t, "", "rm", "abc", "-r", "a/", "c/", "--dry-run", server),
				`would delete 2502 keys that begin with "a/" or "c/"`)
			u.refused.Store(3)
			out := ok(t, "y\n", "rm", "abc", "--prefix", "a/", "--concurrency", "1", "--progress", "none", server)
			require.Equal(t, "a\nb\nc/1\nc/2\n", ok(t, "", "ls", "abc", server))
			if ranges {
				require.Equal(t, "deleted all keys that begin with \"a/\"\n", out)
				require.Zero(t, u.deletes.Load())
			} else {
				require.Equal(t, "deleted 2500 keys\n", out)
			}
			var told purged
			require.NoError(t, json.Unmarshal([]byte(ok(t, "", "rm", "abc", "-r", "a", "c/", "--yes", "--json", server)), &told))
			require.Equal(t, ranges, told.Keys == nil)
			require.True(t, told.Complete && !told.DryRun && len(told.Prefixes) == 2)
			require.Equal(t, "b\n", ok(t, "", "ls", "abc", server))
			ok(t, "", "rm", "abc", "-r", "--yes", server)
			ok(t, "", "bucket", "delete", "abc", server)
		})
	}
}

func TestBucketsAreDeletedWithTheirKeys(t *testing.T) {
	server := "--server=" + memServer(t, func(h http.Handler) http.Handler { return h })
	ok(t, keysBelow("a/", 1500), "load", "abc", "--create", "--progress", "none", server)
	require.Equal(t, "would delete 1500 keys\n", ok(t, "", "bucket", "delete", "abc", "--purge", "--dry-run", server))
	require.Contains(t, listd(t, "", "bucket", "delete", "abc", server).err, "BucketNotEmpty")
	require.Equal(t, "deleted all keys\n", ok(t, "", "bucket", "delete", "abc", "--purge", "--yes", server))
	require.Empty(t, ok(t, "", "bucket", "list", server))
	ok(t, "", "bucket", "create", "abc", "--plain", server)
	require.Empty(t, ok(t, "", "ls", "abc", server), "keys of an earlier bucket with the name are gone")
}

// TestPurgesEndUnderWriters: they do not go on for ever, and say why.
func TestPurgesEndUnderWriters(t *testing.T) {
	var h http.Handler
	purges := 0
	server := memServer(t, func(below http.Handler) http.Handler {
		h = below
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete && strings.Count(r.URL.Path, "/") == 1 && purges < 100 {
				purges++
				put, err := http.NewRequest(http.MethodPut, "http://127.0.0.1/abc/new", strings.NewReader("v"))
				require.NoError(t, err)
				put.RequestURI = "/abc/new"
				below.ServeHTTP(&lost{}, put)
			}
			h.ServeHTTP(w, r)
		})
	})
	ok(t, keysBelow("a/", 10), "load", "abc", "--create", "--progress", "none", "--server", server)
	o := listd(t, "", "bucket", "delete", "abc", "--purge", "--yes", "--json", "--server", server)
	require.Equal(t, daemon.ExitFailed, o.code)
	require.Contains(t, o.err, "others put keys into the bucket while it is purged")
	require.Contains(t, o.out, `"complete": false`)
	require.Equal(t, mostRounds, purges)
	purges = 98
	ok(t, "", "bucket", "delete", "abc", "--purge", "--yes", "--server", server)
}

// lost is an answer that nobody reads.
type lost struct{ header http.Header }

func (l *lost) Header() http.Header {
	if l.header == nil {
		l.header = http.Header{}
	}
	return l.header
}
func (*lost) Write(b []byte) (int, error) { return len(b), nil }
func (*lost) WriteHeader(int)             {}

// TestBucketsOfObjectsAreDeletedWithTheirBodies: versions, delete markers and uploads too.
func TestBucketsOfObjectsAreDeletedWithTheirBodies(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	server := "--server=" + p.s3
	ok(t, "", "bucket", "create", "files", server)
	request := func(method, path, body string) {
		r, err := http.NewRequest(method, p.s3+path, strings.NewReader(body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.Less(t, resp.StatusCode, 300, path)
		require.NoError(t, resp.Body.Close())
	}
	bodies := func() (n int) {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if info, e := d.Info(); err == nil && e == nil && info.Size() == 100_000 {
				n++
			}
			return err
		}))
		return n
	}
	const key = "/files/a%20+%C3%BC/%26<" // what XML and URLs write differently
	request("PUT", key, strings.Repeat("1", 100_000))
	request("PUT", "/files?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	request("PUT", key, strings.Repeat("2", 100_000))
	request("PUT", "/files/b", strings.Repeat("3", 100_000))
	for i := range 1100 { // more than a page
		request("PUT", fmt.Sprintf("/files/c/%d", i), "small")
	}
	request("POST", "/files/up?uploads", "")
	require.Equal(t, "deleted 1102 keys\n", ok(t, "", "rm", "files", "-r", "--yes", server))
	require.Empty(t, ok(t, "", "ls", "files", server))
	require.Equal(t, 3, bodies(), "rm makes delete markers")
	require.Contains(t, listd(t, "", "bucket", "delete", "files", server).err, "BucketNotEmpty")
	require.Equal(t, "would delete 2205 keys\n", ok(t, "", "bucket", "delete", "files", "--purge", "--dry-run", server))
	require.Equal(t, "deleted 2205 keys\n", ok(t, "", "bucket", "delete", "files", "--purge", "--yes", server))
	require.Empty(t, ok(t, "", "bucket", "list", server))
	require.Zero(t, bodies())
}
