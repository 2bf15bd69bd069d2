package pebblestore

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// An event is one write before it was begun (Acked false), and again after its
// acknowledgement; or what a read showed (Seen).
type event struct {
	Acked, Seen bool
	Op          string // put, delete, remove, swap
	Partition   int
	Keys        []string
	Value       string
	TS          store.Timestamp // of a write; of a swap, its epoch
	From, To    string          // of a remove
}

// A ledger is what a crash must not take back.
type ledger struct {
	acked, begun []event
}

func (l *ledger) add(e event) {
	if e.Acked || e.Seen {
		l.acked = append(l.acked, e)
	} else {
		l.begun = append(l.begun, e)
	}
}

const crashKeys, crashPartitions, crashWriters = 40, 3, 8

func crashPartition(i int) store.Partition {
	return store.Partition{Bucket: store.BucketID{1}, ID: store.PartitionID{byte(i + 1)}}
}

// workload writes and reads from many goroutines until the store fails or stop
// is closed. Every writer has timestamps of its own, shuffled a little, so that
// late and lost arrivals happen.
func workload(s *directory, seed uint64, base store.Timestamp, stop <-chan struct{}, report func(event)) {
	var g sync.WaitGroup
	for w := range crashWriters {
		g.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for n := store.Timestamp(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// Unique; rising, but out of order within each 16.
				ts := base + (n&^15+(n*7+3)&15)*crashWriters + store.Timestamp(w)
				if crashStep(s, r, w, ts, report) != nil {
					return
				}
			}
		})
	}
	g.Wait()
}

func crashStep(s *directory, r *rand.Rand, w int, ts store.Timestamp, report func(event)) error {
	ctx := context.Background()
	n := r.IntN(crashPartitions)
	p := crashPartition(n)
	key := func() string { return fmt.Sprintf("k%02d", r.IntN(crashKeys)) }
	e := event{Partition: n, TS: ts, Value: fmt.Sprintf("%d.%d", ts, w)}
	write := func(do func() error) error {
		report(e)
		if err := do(); err != nil {
			return err
		}
		e.Acked = true
		report(e)
		return nil
	}
	switch d := r.IntN(100); {
	case d < 55:
		e.Op = "put"
		var rows []store.Row
		count := 1 + r.IntN(3)
		if r.IntN(10) == 0 {
			count = wideRows + 5
		}
		for range count {
			k := key()
			e.Keys = append(e.Keys, k)
			rows = append(rows, row(k, e.Value, ts))
		}
		return write(func() error { return s.Put(ctx, p, rows...) })
	case d < 70:
		e.Op, e.Keys = "delete", []string{key()}
		return write(func() error { return s.Delete(ctx, p, []byte(e.Keys[0]), ts) })
	case d < 73:
		e.Op, e.From, e.To = "remove", key(), key()
		if e.From > e.To {
			e.From, e.To = e.To, e.From
		}
		return write(func() error {
			return s.Remove(ctx, p, store.Bounds{Start: []byte(e.From), End: []byte(e.To)}, ts)
		})
	case d < 83:
		// Each writer swaps a register of its own.
		e.Op, e.Keys = "swap", []string{fmt.Sprintf("register%d", w)}
		old, err := s.Read(ctx, store.Process, []byte(e.Keys[0]), store.Serial)
		if err != nil && store.KindOf(err) != store.NotFound {
			return err
		}
		e.TS = store.Timestamp(old.Epoch + 1)
		next := store.Record{
			Version: store.Version{Epoch: old.Epoch + 1, Token: storekit.NewToken()}, Blob: []byte(e.Value),
		}
		return write(func() error { return s.Swap(ctx, store.Process, []byte(e.Keys[0]), old.Version, next) })
	case d < 92:
		k := key()
		got, found, err := s.Get(ctx, p, []byte(k))
		if err == nil && found {
			report(event{
				Seen: true, Op: "put", Partition: n, Keys: []string{k}, Value: string(got.Value), TS: got.Timestamp,
			})
		}
		return err
	default:
		page, err := s.Slice(ctx, p, store.Bounds{}, store.SliceOptions{Limit: 100, Timestamps: true})
		if err == nil {
			for _, got := range page.Rows {
				report(
					event{
						Seen: true, Op: "put", Partition: n, Keys: []string{string(got.Key)},
						Value: string(got.Value), TS: got.Timestamp,
					},
				)
			}
		}
		return err
	}
}

// check holds what a reopened store shows against the ledger. Timestamps are
// unique per write, so for each key the newest acknowledged write must be there
// unless a newer one, of unknown outcome, is.
func (l *ledger) check(t *testing.T, s *directory) {
	t.Helper()
	epochs := map[string]store.Timestamp{}
	for _, e := range l.acked {
		if e.Op == "swap" {
			epochs[e.Keys[0]] = max(epochs[e.Keys[0]], e.TS)
		}
	}
	begun := map[string]store.Timestamp{}
	for _, e := range l.begun {
		if e.Op == "swap" {
			begun[e.Keys[0]] = max(begun[e.Keys[0]], e.TS)
		}
	}
	for k, epoch := range epochs {
		r, err := s.Read(t.Context(), store.Process, []byte(k), store.Serial)
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Epoch, uint64(epoch), "the swap of %s is lost", k)
		require.LessOrEqual(t, r.Epoch, uint64(begun[k]), "a swap of %s that nobody began", k)
	}
	type place struct {
		partition int
		key       string
	}
	shown := map[place]store.Row{}
	for n := range crashPartitions {
		for _, r := range content(t, s, crashPartition(n)) {
			shown[place{n, string(r.Key)}] = r
		}
	}
	touches := func(e event, at place) bool {
		if e.Partition != at.partition {
			return false
		}
		if e.Op == "remove" {
			return e.From <= at.key && at.key < e.To
		}
		for _, k := range e.Keys {
			if k == at.key && e.Op != "swap" {
				return true
			}
		}
		return false
	}
	for n := range crashPartitions {
		for i := range crashKeys {
			at := place{n, fmt.Sprintf("k%02d", i)}
			var newest event // acknowledged or shown
			for _, e := range l.acked {
				if touches(e, at) && (e.TS > newest.TS || e.TS == newest.TS && !e.Seen) {
					newest = e
				}
			}
			possible := []event{newest}
			for _, e := range l.begun {
				if touches(e, at) && e.TS > newest.TS {
					possible = append(possible, e)
				}
			}
			got, there := shown[at]
			ok := false
			for _, e := range possible {
				if e.Op == "put" {
					ok = ok || there && string(got.Value) == e.Value && got.Timestamp == e.TS
				} else { // a delete, a removal, or no write at all
					ok = ok || !there
				}
			}
			require.True(t, ok, "%v shows %q@%d (%v), acknowledged is %+v", at, got.Value, got.Timestamp, there, newest)
		}
	}
}

// TestPowerLoss lets the power fail at random moments under concurrent writes
// and reads: a random part of what was not synced is lost.
func TestPowerLoss(t *testing.T) {
	r := seed.New(t)
	for range 4 {
		fs := vfs.NewCrashableMem()
		var l ledger
		for lives := range 3 {
			s := openMem(t, fs, Options{MemTableBytes: 256 << 10})
			s.newest.step = 50
			l.check(t, s)
			var mu sync.Mutex
			var after *vfs.MemFS
			stop := make(chan struct{})
			last := 200 + r.IntN(1500)
			share := r.IntN(101)
			chance := rand.New(rand.NewPCG(r.Uint64(), 2))
			seen := 0
			workload(s, r.Uint64(), store.Timestamp(lives+1)*1_000_000, stop, func(e event) {
				mu.Lock()
				defer mu.Unlock()
				if after != nil {
					return
				}
				l.add(e)
				if seen++; seen == last {
					after = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: share, RNG: chance})
					close(stop)
				}
			})
			require.NoError(t, s.Close())
			fs = after
		}
		s := openMem(t, fs, Options{})
		l.check(t, s)
		require.NoError(t, s.Close())
	}
}

// crashDir names the directory of the child process of TestKill.
const crashDir = "EVENKEEL_CRASH_DIR"

// TestKill starts this test binary again as a child that writes to a real
// directory and prints what it does, and kills it (-9) at random moments.
func TestKill(t *testing.T) {
	if dir := os.Getenv(crashDir); dir != "" {
		crashChild(t, dir)
		return
	}
	r := seed.New(t)
	dir := t.TempDir()
	var l ledger
	for life := range 4 {
		c := exec.Command(os.Args[0], "-test.run=^TestKill$", "-test.v")
		c.Env = append(os.Environ(), crashDir+"="+dir, fmt.Sprintf("EVENKEEL_CRASH_LIFE=%d", life))
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		last, lines := 1+r.IntN(3000), 0
		for in := bufio.NewScanner(out); in.Scan(); {
			var e event
			if json.Unmarshal(in.Bytes(), &e) != nil {
				continue // the test framework's own lines, and a line cut short
			}
			l.add(e)
			if lines++; lines == last {
				require.NoError(t, c.Process.Kill())
			}
		}
		_ = c.Wait()
		require.GreaterOrEqual(t, lines, last, "the child ended by itself")
		s, err := openDirectory(dir, Options{})
		require.NoError(t, err)
		l.check(t, s)
		require.NoError(t, s.Close())
	}
	t.Logf("%d acknowledged or seen, %d begun", len(l.acked), len(l.begun))
}

func crashChild(t *testing.T, dir string) {
	var life int
	_, err := fmt.Sscan(os.Getenv("EVENKEEL_CRASH_LIFE"), &life)
	require.NoError(t, err)
	s, err := openDirectory(dir, Options{MemTableBytes: 256 << 10})
	require.NoError(t, err)
	var mu sync.Mutex
	time.AfterFunc(time.Minute, func() { os.Exit(3) }) // should the parent be gone
	workload(s, rand.Uint64(), store.Timestamp(life+1)*1_000_000_000, nil, func(e event) {
		line, _ := json.Marshal(e)
		mu.Lock()
		defer mu.Unlock()
		_, _ = os.Stdout.Write(append(line, '\n')) // one write: a line in the pipe is out
	})
}
