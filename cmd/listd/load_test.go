package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// awkwardKeys are n distinct keys that hold everything that a line may: no line
// feed, and for -0 no NUL.
func awkwardKeys(rnd *rand.Rand, n int, without string) []string {
	parts := []string{"a", "b", "/", "//", " ", "%", "%41", "+", "ü", "世", "\xff", "\xfe\x00", "\\", `\x41`, "\t", "\r",
		"\n", ".", "..", "?", "#", "&", "<", "\x01", "key", strings.Repeat("l", 300)}
	set := map[string]bool{}
	for len(set) < n {
		var b strings.Builder
		for range 1 + rnd.IntN(6) {
			b.WriteString(parts[rnd.IntN(len(parts))])
		}
		key := b.String()
		if strings.ContainsAny(key, without) || len(key) > 1024 {
			continue
		}
		set[key] = true
	}
	var keys []string
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestLoadAndList(t *testing.T) {
	rnd := seed.New(t)
	server := memServer(t)
	keys := awkwardKeys(rnd, 400, "\x00")
	cuts := filepath.Join(t.TempDir(), "cuts")
	var lines []string
	for i := 15; i < len(keys); i += 15 {
		lines = append(lines, keytext.Format([]byte(keys[i])))
	}
	require.NoError(t, os.WriteFile(cuts, []byte(strings.Join(lines, "\n")), 0o600))
	shuffled := slices.Clone(keys)
	rnd.Shuffle(len(keys), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(shuffled, "\x00")), 0o600)) // the last one isn't ended

	out := ok(t, "", "load", "abc", file, "-0", "--create", "--cuts-file", cuts, "--server", server)
	require.Contains(t, out, "loaded 400 keys in ")
	o := listd(t, strings.Join(shuffled, "\x00")+"\x00", "load", "abc", "-0", "--create", "--cuts-file", cuts,
		"--server",
		server)
	require.Equal(t, 0, o.code, o.err) // again, from stdin
	require.Contains(t, o.err, "its cuts stay as they are")

	list := func(args ...string) []string {
		out := ok(t, "", append([]string{"ls", "abc", "--format", "null", "--server", server}, args...)...)
		if out == "" {
			return nil
		}
		return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	}
	reversed := slices.Clone(keys)
	slices.Reverse(reversed)
	require.Equal(t, keys, list())
	require.Equal(t, keys, list("--parallel", "4"))
	require.Equal(t, reversed, list("--reverse"))
	require.Equal(t, reversed, list("--reverse", "--parallel", "3"))
	require.Equal(t, keys[:7], list("--limit", "7"))
	require.Equal(t, keys[:333], list("--limit", "333", "--parallel", "5"))
	after := keytext.Format([]byte(keys[99]))
	require.Equal(t, keys[100:], list("--after", after))
	require.Equal(t, reversed[len(keys)-99:], list("--reverse", "--after", after))

	for range 8 {
		prefix, delimiter := keys[rnd.IntN(len(keys))], []string{"/", "a", "ü", "\xff", "\\"}[rnd.IntN(5)]
		prefix = prefix[:rnd.IntN(min(len(prefix), 3)+1)]
		var want []string
		for _, k := range keys {
			if !strings.HasPrefix(k, prefix) {
				continue
			}
			if head, _, found := strings.Cut(k[len(prefix):], delimiter); found {
				k = prefix + head + delimiter
			}
			want = append(want, k)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		args := []string{"--prefix", keytext.Format([]byte(prefix)), "--delimiter", keytext.Format([]byte(delimiter)),
			"--parallel", fmt.Sprint(1 + rnd.IntN(4))}
		require.Equal(t, want, list(args...), "%q", args)
		slices.Reverse(want)
		require.Equal(t, want, list(append(args, "--reverse")...), "%q", args)
	}

	// The text and JSON forms read back as the same keys.
	var fromText, fromJSON []string
	for line := range strings.Lines(ok(t, "", "ls", "abc", "--server", server)) {
		key, err := keytext.Parse(strings.TrimSuffix(line, "\n"))
		require.NoError(t, err)
		fromText = append(fromText, string(key))
	}
	for line := range strings.Lines(ok(t, "", "ls", "abc", "--format", "json", "--server", server)) {
		var item struct {
			Key      keytext.Key
			Size     *int64
			ETag     string
			Modified time.Time
		}
		require.NoError(t, json.Unmarshal([]byte(line), &item))
		require.Equal(t, "d41d8cd98f00b204e9800998ecf8427e", item.ETag)
		require.NotNil(t, item.Size)
		fromJSON = append(fromJSON, string(item.Key))
	}
	require.Equal(t, keys, fromText)
	require.Equal(t, keys, fromJSON)
}

func TestLoadTSV(t *testing.T) {
	server := memServer(t)
	ok(t, "k1\tv1\nk 2\tv\t2\nk3\t\n", "load", "abc", "--create", "--tsv", "--server", server)
	for key, want := range map[string]string{"k1": "v1", "k%202": "v\t2", "k3": ""} {
		status, body := get(t, server+"/abc/"+key)
		require.Equal(t, 200, status)
		require.Equal(t, want, body)
	}
	require.Equal(t, "{\"prefix\":\"k \"}\n", ok(t, "", "ls", "abc", "--delimiter", " ", "--limit", "1", "--format",
		"json", "--server", server))
}

func TestBadLinesAreReportedAndTheRestIsLoaded(t *testing.T) {
	server := memServer(t)
	long := strings.Repeat("x", 1025)
	o := listd(t, "good1\n\n"+long+"\n"+strings.Repeat("y", 100_000)+"\n"+long[:1024]+"\ngood2\r\nlast", "load", "abc",
		"--create", "--server", server)
	require.Equal(t, daemon.ExitRefused, o.code)
	require.Contains(t, o.err, "line 2 (): the key is empty")
	require.Contains(t, o.err, "line 3 ("+long[:64]+"): the key has more than 1024 bytes")
	require.Contains(t, o.err, "line 4 (): the line is too long")
	require.Contains(t, o.out, "loaded 4 keys in ")
	require.Contains(t, o.out, ", 3 lines not loaded")
	require.Equal(t, "good1\ngood2\\x0d\nlast\n"+long[:1024]+"\n", ok(t, "", "ls", "abc", "--server", server))

	o = listd(t, "k1\tv\nno tab\nk2\t"+strings.Repeat("v", 4097)+"\nk3\tv\n", "load", "tsv", "--create", "--tsv",
		"--server", server)
	require.Equal(t, daemon.ExitRefused, o.code)
	require.Contains(t, o.err, "line 2 (no tab): there is no TAB")
	require.Contains(t, o.err, "line 3 (k2): EntityTooLarge")
	require.Equal(t, "k1\nk3\n", ok(t, "", "ls", "tsv", "--server", server))

	o = listd(t, strings.Repeat("\n", 300), "load", "abc", "--server", server)
	require.Equal(t, daemon.ExitRefused, o.code)
	require.Equal(t, maxComplaints, strings.Count(o.err, "the key is empty"))
	require.Contains(t, o.out, "300 lines not loaded")
}

func TestRecordsAgainstSplit(t *testing.T) {
	rnd := seed.New(t)
	for range 300 {
		nul := rnd.IntN(2) == 0
		end := "\n"
		if nul {
			end = "\x00"
		}
		var in strings.Builder
		for range rnd.IntN(12) {
			in.WriteString([]string{end, "\n", "\x00", "a", "\t", strings.Repeat("b", 1000),
				strings.Repeat("c", 70_000)}[rnd.IntN(7)])
		}
		var want []string
		if in.Len() > 0 {
			want = strings.Split(strings.TrimSuffix(in.String(), end), end)
		}
		rs := newRecords(strings.NewReader(in.String()), nul, false)
		for i, line := range want {
			rec, err := rs.next()
			require.NoError(t, err)
			require.Equal(t, i+1, rec.line)
			require.Equal(t, len(line) > 0 && len(line) <= maxKeyBytes, rec.bad == nil)
			if rec.bad == nil {
				require.Equal(t, line, string(rec.key))
			}
		}
		_, err := rs.next()
		require.Error(t, err)
		n, err := countRecords(strings.NewReader(in.String()), nul)
		require.NoError(t, err)
		require.Equal(t, len(want), n)
	}
}

func TestLoadIsPatientWhileTheServerAsksToWait(t *testing.T) {
	var refused atomic.Int32
	var mu sync.Mutex
	tried := map[string]int{}
	server := memServer(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			tried[r.URL.Path]++
			first := tried[r.URL.Path] == 1
			mu.Unlock()
			if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/abc/") && first {
				refused.Add(1)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	out := ok(t, "a\nb\nc\n", "load", "abc", "--create", "--server", server)
	require.Contains(t, out, "loaded 3 keys")
	require.EqualValues(t, 3, refused.Load())
	require.Equal(t, "a\nb\nc\n", ok(t, "", "ls", "abc", "--server", server))
}

func TestLoadGivesUp(t *testing.T) {
	var puts atomic.Int32
	server := memServer(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/abc/") {
				puts.Add(1)
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	o := listd(t, "a\n", "load", "abc", "--create", "--server", server, "--patience", "1s")
	require.Equal(t, daemon.ExitFailed, o.code)
	require.Contains(t, o.err, "line 1: the server answered 503")
	require.EqualValues(t, 1, puts.Load(), "it must not ask again before the time it was told")
}

func TestServerIsAway(t *testing.T) {
	for _, args := range []string{"load abc --create", "load abc"} {
		o := listd(t, "a\n", append(strings.Fields(args), "--server", "http://127.0.0.1:1")...)
		require.Equal(t, daemon.ExitFailed, o.code)
		require.Contains(t, o.err, "is `listd serve` running?")
	}
	o := listd(t, "", "ls", "abc", "--server", "http://127.0.0.1:1", "--patience", "0s")
	require.Equal(t, daemon.ExitFailed, o.code)
	server := memServer(t)
	o = listd(t, "a\n", "load", "abc", "--server", server)
	require.Equal(t, daemon.ExitFailed, o.code)
	require.Contains(t, o.err, "there is no bucket abc: --create makes it")
	o = listd(t, "", "ls", "abc", "--server", server)
	require.Equal(t, daemon.ExitFailed, o.code)
	require.Contains(t, o.err, "NoSuchBucket")
	o = listd(t, "", "ls", "abc", "--server", server, "--parallel", "2")
	require.Contains(t, o.err, "NoSuchBucket")
}

// A listing that fails half-way fails as a whole: its output may be used.
func TestListThatBreaksOff(t *testing.T) {
	var pages atomic.Int32
	server := memServer(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("continuation-token") && pages.Add(1) > 1 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	var keys strings.Builder
	for i := range 2100 {
		fmt.Fprintf(&keys, "k%05d\n", i)
	}
	ok(t, keys.String(), "load", "abc", "--create", "--server", server)
	o := listd(t, "", "ls", "abc", "--server", server, "--patience", "0s")
	require.Equal(t, daemon.ExitFailed, o.code)
	require.Equal(t, 2000, strings.Count(o.out, "\n"))
}

func TestBucketCommands(t *testing.T) {
	server := memServer(t)
	cuts := filepath.Join(t.TempDir(), "cuts")
	require.NoError(t, os.WriteFile(cuts, []byte("b\n\\xff\n"), 0o600))
	ok(t, "", "bucket", "create", "abc", "--server", server, "--cuts-file", cuts)
	ok(t, "", "bucket", "create", "abd", "--server", server)
	require.Equal(t, "abc\nabd\n", ok(t, "", "bucket", "list", "--server", server))
	ok(t, "", "bucket", "create", "abc", "--server", server)
	for _, asks := range [][]string{{"--plain"}, {"--cuts-file", cuts}} {
		o := listd(t, "", append([]string{"bucket", "create", "abc", "--server", server}, asks...)...)
		require.Equal(t, daemon.ExitFailed, o.code)
		require.Contains(t, o.err, "BucketAlreadyOwnedByYou")
	}
	ok(t, "k\n", "load", "abc", "--server", server)
	require.Contains(t, listd(t, "", "bucket", "delete", "abc", "--server", server).err, "BucketNotEmpty")
	ok(t, "", "bucket", "delete", "abd", "--server", server)
	require.Equal(t, "abc\n", ok(t, "", "bucket", "list", "--server", server))
	require.Contains(t, listd(t, "", "bucket", "create", "No", "--server", server).err, "InvalidBucketName")
	require.NoError(t, os.WriteFile(cuts, []byte("b\na\n"), 0o600))
	o := listd(t, "", "bucket", "create", "abe", "--server", server, "--cuts-file", cuts)
	require.Equal(t, daemon.ExitUsage, o.code)
}

func TestProgress(t *testing.T) {
	require.Equal(t, "loaded 500 of 2000 keys (25 %), 100 keys/s, 15s left", progressLine("loaded", 500, 2000, 5*time.Second))
	require.Equal(t, "loaded 2000 of 2000 keys (100 %), 400 keys/s", progressLine("loaded", 2000, 2000, 5*time.Second))
	require.Equal(t, "loaded 500 keys, 100 keys/s", progressLine("loaded", 500, 0, 5*time.Second))
	server := memServer(t)
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte("a\nb\n"), 0o600))
	for _, kind := range []string{"auto", "bar", "plain", "none"} {
		o := listd(t, "", "load", "abc", file, "--create", "--server", server, "--progress", kind)
		require.Equal(t, 0, o.code)
		require.Equal(t, kind == "bar", strings.Contains(o.err, "2/2"), "%s: %q", kind, o.err)
	}
}
