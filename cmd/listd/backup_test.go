package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// fate is what is known of a key that one client puts and deletes, one call after the
// other.
type fate struct {
	mu sync.Mutex
	// there after the last call that was acknowledged; pending while one is under way.
	there, pending bool
	calls          int
}

// TestBackupAndRestore backs a server up while clients put and delete, and while ranges
// stay, are split or are merged. What is restored has everything that was acknowledged before
// the backup began, nothing that was deleted before, and is clean.
func TestBackupAndRestore(t *testing.T) {
	seed := seed.Number(t)
	top := t.TempDir()
	p := start(t, filepath.Join(top, "data"), "--move-rate", "2000", "--rebalance-interval", "0")
	var keys strings.Builder
	const settled = 1000
	for i := range settled {
		fmt.Fprintf(&keys, "k%04d\n", i)
	}
	ok(t, keys.String(), "load", "abc", "--create", "--server", p.s3)
	moves, err := adminapi.NewClient(p.admin, "")
	require.NoError(t, err)
	const clients, keysEach = 4, 60
	fates := make([][keysEach]fate, clients)
	key := func(c, i int) string { return fmt.Sprintf("k%04d/%d", i*settled/keysEach, c) }
	var work []func(context.Context)
	for c := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(c)))
		work = append(work, func(ctx context.Context) {
			for ctx.Err() == nil {
				// The last ones seldom: some are left alone however long a backup takes.
				i := r.IntN(1 + r.IntN(keysEach))
				f := &fates[c][i]
				put := r.IntN(2) == 0
				f.mu.Lock()
				f.pending = true
				f.calls++
				f.mu.Unlock()
				method, body := http.MethodDelete, []byte(nil)
				if put {
					method, body = http.MethodPut, []byte("v")
				}
				req, _ := http.NewRequest(method, p.s3+"/abc/"+key(c, i), bytes.NewReader(body))
				resp, err := http.DefaultClient.Do(req)
				if err != nil || resp.StatusCode >= 300 {
					t.Errorf("%s: %v %v", method, resp, err)
					return
				}
				resp.Body.Close()
				f.mu.Lock()
				f.there, f.pending = put, false
				f.mu.Unlock()
			}
		})
	}
	end := harness.Meanwhile(t, work...)
	cut := []byte("k0500")
	began := func(ask scheduler.Ask) {
		t.Helper()
		a, err := moves.Moves(t.Context(), adminapi.Moves{Bucket: "abc", Ask: ask})
		require.NoError(t, err)
		waitFor(t, func() bool {
			j, err := moves.Job(t.Context(), a.Job.ID)
			require.NoError(t, err)
			return j.Phase == "copying" || j.Phase == "verifying" || !j.Ended.IsZero()
		})
	}
	settle := func() {
		waitFor(t, func() bool {
			s, err := moves.Status(t.Context())
			require.NoError(t, err)
			return len(s.Buckets) == 0
		})
	}
	for _, x := range []struct {
		name string
		do   func()
	}{
		{"quiet", func() {}},
		{"split", func() { began(scheduler.Ask{Kind: scheduler.Split, Keys: [][]byte{cut}}) }},
		{"merge", func() { began(scheduler.Ask{Kind: scheduler.Merge, Spans: []keytext.Span{{}}, Force: true}) }},
	} {
		x.do()
		type known struct {
			there, pending bool
			calls          int
		}
		before := map[string]known{}
		for c := range fates {
			for i := range fates[c] {
				f := &fates[c][i]
				f.mu.Lock()
				before[key(c, i)] = known{f.there, f.pending, f.calls}
				f.mu.Unlock()
			}
		}
		backup := filepath.Join(top, x.name)
		out := ok(t, "", "backup", backup, "--admin", p.admin)
		require.Contains(t, out, "backed up ")
		// What no call touched from before the backup until now is known for sure.
		for c := range fates {
			for i := range fates[c] {
				f := &fates[c][i]
				f.mu.Lock()
				if was := before[key(c, i)]; was.pending || f.pending || was.calls != f.calls {
					delete(before, key(c, i))
				}
				f.mu.Unlock()
			}
		}
		data := filepath.Join(top, x.name+"-restored")
		out = ok(t, "", "restore", backup, "--data", data)
		require.Contains(t, out, ": 1 buckets\n")
		require.Contains(t, out, "listd serve --data "+data)

		q := start(t, data, "--rebalance-interval", "0")
		listed := ok(t, "", "ls", "abc", "--server", q.s3)
		require.Equal(t, 0, q.end(syscall.SIGTERM), q.errs)
		have := map[string]bool{}
		for _, k := range strings.Fields(listed) {
			have[k] = true
		}
		for i := range settled {
			require.True(t, have[fmt.Sprintf("k%04d", i)], "%s: row %d is lost", x.name, i)
		}
		require.NotEmpty(t, before)
		for k, was := range before {
			require.Equal(t, was.there, have[k], "%s: %s", x.name, k)
		}
		clean(t, data)
		settle()
	}
	end()
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}

// TestProgressOfCopies has a rate, and the time left where the total is known.
func TestProgressOfCopies(t *testing.T) {
	const mib = 1 << 20
	s := store.Size{Files: 3, Bytes: 100 * mib}
	require.Equal(t, "3 files, 100 MiB, 20 MiB/s", sizeLine(s, 0, 5*time.Second))
	require.Equal(t, "3 files, 100 MiB (25 %), 20 MiB/s, 15s left", sizeLine(s, 400*mib, 5*time.Second))
	require.Equal(t, "3 files, 100 MiB (100 %), 20 MiB/s", sizeLine(s, 100*mib, 5*time.Second))
	require.Equal(t, "0 files, 0 bytes (0 %), 0 MiB/s", sizeLine(store.Size{}, mib, time.Second))
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1000), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b", "c"), make([]byte, 24), 0o600))
	require.Equal(t, int64(1024), bytesBelow(dir))
	require.Zero(t, bytesBelow(filepath.Join(dir, "none")))
}

// clean checks a data directory.
func clean(t *testing.T, data string) {
	t.Helper()
	s, err := pebblestore.Open(data, pebblestore.Options{})
	require.NoError(t, err)
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	sum, err := repair.New(s, c, repair.Options{Report: func(f repair.Finding) { t.Log(f) }}).All(context.Background())
	require.NoError(t, err)
	require.Zero(t, sum.Problems)
	require.Zero(t, sum.Unchecked)
	mapclient.Of(c).Close()
	require.NoError(t, s.Close())
}

func TestBackupsThatAreRefused(t *testing.T) {
	top := t.TempDir()
	data := filepath.Join(top, "data")
	p := start(t, data)
	backup := filepath.Join(top, "backup")
	ok(t, "", "backup", backup, "--admin", p.admin, "--progress", "plain")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"backup " + backup + " --admin " + p.admin, daemon.ExitFailed, backup + " exists"},
		{"backup " + filepath.Join(data, "b") + " --admin " + p.admin, daemon.ExitFailed, "within the data directory"},
		{"backup " + filepath.Join(top, "no", "b") + " --admin " + p.admin, daemon.ExitFailed, "is no directory"},
		{"backup " + backup + "2 --admin nonsense", daemon.ExitUsage, "--admin"},
		{"backup " + backup + "2 --admin http://127.0.0.1:1", daemon.ExitFailed, "can't be reached"},
		{"backup", daemon.ExitUsage, "<dir>"},
		{"restore " + backup, daemon.ExitUsage, "--data"},
		{"restore " + data + " --data " + filepath.Join(top, "new"), daemon.ExitUnusable, "held by"},
		{"restore " + top + " --data " + filepath.Join(top, "new"), daemon.ExitUnusable, "no backup"},
		{"restore " + backup + " --data " + data, daemon.ExitUnusable, "not empty"},
	} {
		o := listd(t, "", strings.Fields(c.args)...)
		require.Equal(t, c.code, o.code, "%s: %s", c.args, o.err)
		require.Contains(t, o.err, c.says)
		require.Empty(t, o.out)
	}
	_, err := os.Stat(filepath.Join(top, "new"))
	require.ErrorIs(t, err, os.ErrNotExist)
	// A relative path is one of the client's directory.
	t.Chdir(top)
	require.Contains(t, ok(t, "", "backup", "relative", "--admin", p.admin), filepath.Join(top, "relative"))
	require.DirExists(t, filepath.Join(top, "relative"))
	require.Equal(t, 0, p.end(syscall.SIGTERM), p.errs)
}
