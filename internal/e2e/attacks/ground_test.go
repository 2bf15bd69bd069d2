package attacks

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/e2e/siege"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m, nil)) }

// Keys of the server under attack.
var (
	honest  = siege.Key{ID: "HONEST", Secret: "the secret of the honest"}
	limited = siege.Key{ID: "LIMITED", Secret: "the secret of the limited"} // to the buckets attacked and attacked-N
	wide    = siege.Key{ID: "WIDE", Secret: "the secret of the wide"}       // not limited, and hostile
)

// attackedBuckets are those of the limited key beside "attacked".
const attackedBuckets = 16

func keysFile() string {
	var b strings.Builder
	b.WriteString("keys:\n")
	for _, k := range []siege.Key{honest, wide} {
		fmt.Fprintf(&b, "- {id: %s, secret: %s, access: read-write}\n", k.ID, k.Secret)
	}
	fmt.Fprintf(&b, "- {id: %s, secret: %s, access: read-write, only: [attacked", limited.ID, limited.Secret)
	for i := range attackedBuckets {
		fmt.Fprintf(&b, ", attacked-%d", i)
	}
	b.WriteString("]}\n")
	return b.String()
}

// ground is a server under attack.
type ground struct {
	*siege.Target
	server *harness.Server
	client *http.Client
	key    siege.Key // the attackers'
}

// newGround starts a server with default flags, and with keys unless it is open.
func newGround(t *testing.T, open bool, args ...string) *ground {
	t.Helper()
	p := harness.Build(t)
	args = append([]string{"--data", filepath.Join(p.Dir, "data")}, args...)
	if !open {
		file := filepath.Join(p.Dir, "keys.yaml")
		require.NoError(t, os.WriteFile(file, []byte(keysFile()), 0o600))
		args = append(args, "--keys-file", file)
	}
	s := p.Serve(args...)
	g := &ground{siege.NewTarget(s.Cmd.Process.Pid, s.S3, s.Admin), s, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}, limited}
	if open {
		g.key = siege.Key{}
	}
	return g
}

// must does a request of the hostile key that is not limited, before the attack.
func (g *ground) must(ctx context.Context, method, target string, body string, header ...string) error {
	key := wide
	if g.key.ID == "" {
		key = g.key
	}
	return g.Must(ctx, g.client, key, method, target, []byte(body), header...)
}

// attack is what hostile clients do until ctx ends.
type attack struct {
	name string
	// group is of attacks that are run at once, unless there is more time; none: alone.
	group string
	// open: the server has no keys file.
	open bool
	// prepare is done before, by one of the attackers.
	prepare func(ctx context.Context, g *ground) error
	run     func(ctx context.Context, g *ground)
	// check looks at what is left, afterwards.
	check func(t *testing.T, g *ground)
}

// What is demanded while and after a server is attacked.
const (
	maxMemory = 512 * siege.MiB // above idle
	// killMemory ends a server that would harm the machine that runs the test.
	killMemory = 3 << 30
	maxLatency = time.Second // of an honest client's operations, at the 99th percentile
	// maxLog is what may be logged, and maxLogRate for each second more.
	maxLog, maxLogRate = 4 * siege.MiB, 2 * siege.MiB
	// Afterwards there may be a little more than before: files of tables, blocks in
	// the store's cache.
	moreHeap, moreFiles, moreGoroutines = 128 * siege.MiB, 64, 32
	// recovery is how long a server may take to be as before.
	recovery = 20 * time.Second
)

// outcome is what an attack led to.
type outcome struct {
	*siege.Report
	idle, after siege.Vitals
	peak        int64
	logged      int64
	took        time.Duration
	recovered   time.Duration
	killed      bool
	// late is how long this process, with attackers and the honest client, could not go
	// on: what took as long was not the server's fault.
	late time.Duration
}

// besiege lets attackers work for some time beside an honest client, and demands what has
// to hold in any case.
func (g *ground) besiege(t *testing.T, lasts time.Duration, rate int, latency time.Duration, attacks ...*attack) {
	t.Helper()
	ctx := t.Context()
	var o outcome
	var err error
	o.idle, err = g.Vitals()
	require.NoError(t, err)
	key := honest
	if g.key.ID == "" {
		key = g.key
	}
	for _, bucket := range []string{"honest", "attacked"} {
		require.NoError(t, g.Must(ctx, g.client, key, http.MethodPut, "/"+bucket, nil))
	}
	for _, a := range attacks {
		if a.prepare != nil {
			require.NoError(t, a.prepare(ctx, g), a.name)
		}
	}
	g.client.CloseIdleConnections()

	begun := time.Now()
	logged := g.server.Log.Written()
	whole, stop := context.WithTimeout(ctx, lasts)
	defer stop()
	var all sync.WaitGroup
	client := &siege.Honest{Target: g.Target, Key: key, Bucket: "honest", Rate: rate, Seed: uint64(begun.UnixNano())}
	for _, a := range attacks {
		all.Go(func() { a.run(whole, g) })
	}
	all.Go(func() { o.late = lateness(whole) })
	siege.Pause(ctx, lasts/5) // the honest client comes into the middle of it
	all.Go(func() { o.Report = client.Run(whole) })
	all.Go(func() { o.killed = g.guard(whole, o.idle.Memory+killMemory) })
	all.Wait()
	o.took = time.Since(begun)
	o.logged = g.server.Log.Written() - logged
	sent, answers := g.Shots()
	if !o.killed {
		begun = time.Now()
		err = g.recover(&o)
		o.recovered = time.Since(begun)
		var merr error
		_, o.peak, merr = g.Memory() // with what was not yet done when the attack ended
		require.NoError(t, merr, "the server has ended")
	}
	t.Logf("seed %d; %d shots, answers:%s; memory %d MiB, at most %d, then %d; heap %d, then %d; %d bytes logged; recovered in %v; this process was late by %v; honest: %v",
		client.Seed, sent, answers, o.idle.Memory/siege.MiB, o.peak/siege.MiB, o.after.Memory/siege.MiB, o.idle.Heap/siege.MiB, o.after.Heap/siege.MiB,
		o.logged, o.recovered.Round(time.Millisecond), o.late.Round(time.Millisecond), o.Report)
	for _, a := range attacks {
		if a.check != nil && !o.killed {
			a.check(t, g)
		}
	}
	for i, wrong := range o.Wrong {
		if i < 5 {
			t.Errorf("a wrong answer, or none: %s", wrong)
		}
	}
	if o.killed {
		t.Fatalf("more than %d MiB of memory: killed", (o.idle.Memory+killMemory)/siege.MiB)
	}
	if err != nil {
		t.Errorf("it is not as before: %v", err)
	}
	if o.peak > o.idle.Memory+maxMemory {
		t.Errorf("%d MiB of memory above idle", (o.peak-o.idle.Memory)/siege.MiB)
	}
	if p := o.Percentile(0.99); p >= latency {
		t.Errorf("honest operations took %v at the 99th percentile", p)
	}
	if len(o.Took) < rate*int(lasts/time.Second)/2 {
		t.Errorf("only %d honest operations: this process could not go on for %v", len(o.Took), o.late)
	}
	if limit := maxLog + maxLogRate*int64(o.took/time.Second); o.logged > limit {
		t.Errorf("%d bytes logged in %v, more than %d", o.logged, o.took, limit)
	}
	if sent == 0 {
		t.Error("nothing was sent: this is no attack")
	}
}

// guard kills a server that takes too much memory.
func (g *ground) guard(ctx context.Context, most int64) (killed bool) {
	for ctx.Err() == nil {
		if now, _, err := g.Memory(); err == nil && now > most {
			g.server.Kill()
			return true
		}
		siege.Pause(ctx, 20*time.Millisecond)
	}
	return false
}

// lateness is how long a short sleep took too long, at most.
func lateness(ctx context.Context) (late time.Duration) {
	const sleep = 10 * time.Millisecond
	for ctx.Err() == nil {
		begun := time.Now()
		siege.Pause(ctx, sleep)
		late = max(late, time.Since(begun)-sleep)
	}
	return late
}

// recover waits until a server is as it was before.
func (g *ground) recover(o *outcome) (err error) {
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		select {
		case <-g.server.Ended:
			return fmt.Errorf("the server has ended")
		default:
		}
		if err = g.Ready(); err == nil {
			o.after, err = g.Vitals()
		}
		if err == nil {
			more := siege.Vitals{Heap: o.after.Heap - o.idle.Heap, Goroutines: o.after.Goroutines - o.idle.Goroutines, Files: o.after.Files - o.idle.Files}
			if more.Heap <= moreHeap && more.Goroutines <= moreGoroutines && more.Files <= moreFiles {
				return nil
			}
			err = fmt.Errorf("before %+v, after %+v", o.idle, o.after)
		}
		if time.Since(begun) > recovery {
			return err
		}
	}
}

// setting is a duration from the environment; preset where there is none.
func setting(t *testing.T, name string, preset time.Duration) (d time.Duration, given bool) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return preset, false
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, name)
	return d, true
}
