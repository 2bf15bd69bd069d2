package attacks

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/e2e/siege"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

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
		fmt.Fprintf(&b, "- {id: %s, secret: %s, access: read-write, everything: true}\n", k.ID, k.Secret)
	}
	fmt.Fprintf(&b, "- {id: %s, secret: %s, access: read-write, only: [attacked", limited.ID, limited.Secret)
	for i := range attackedBuckets {
		fmt.Fprintf(&b, ", attacked-%d", i)
	}
	b.WriteString("]}\ncomplete: true\n")
	return b.String()
}

// ground is a server under attack.
type ground struct {
	*siege.Target
	server *harness.Server
	client *http.Client
	key    siege.Key // the attackers'
}

// adminToken is asked for where an attack is after it.
const adminToken = "a-token-of-many-letters"

// newGround starts a server with default flags, and as an attack needs it.
func newGround(t *testing.T, a *attack, args ...string) *ground {
	t.Helper()
	p := harness.Build(t)
	args = append([]string{"--data", filepath.Join(p.Dir, "data")}, args...)
	if !a.open {
		file := filepath.Join(p.Dir, "keys.yaml")
		require.NoError(t, os.WriteFile(file, []byte(keysFile()), 0o600))
		args = append(args, "--keys-file", file)
	}
	if a.token {
		p.Environment = append(p.Environment, "EVENKEEL_ADMIN_TOKEN="+adminToken)
	}
	if a.tls {
		cert, key := writeCertificate(t, p.Dir)
		args = append(args, "--https-cert-file", cert, "--https-key-file", key)
	}
	s := p.Serve(args...)
	g := &ground{siege.NewTarget(&siege.Target{
		Process: siege.Process{Pid: s.Cmd.Process.Pid, Admin: s.Admin}, S3: s.S3, Many: a.many,
	}), s, siege.NewClient(false), limited}
	if a.open {
		g.key = siege.Key{}
	}
	if a.token {
		g.Token = adminToken
	}
	return g
}

// writeCertificate makes a certificate that signs itself, for 127.0.0.1.
func writeCertificate(t *testing.T, dir string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		0o600))
	return certFile, keyFile
}

// remove deletes a bucket, and returns the status of the last answer: 503 asks to go on.
func (g *ground) remove(t *testing.T, bucket string) (status int) {
	t.Helper()
	harness.Eventually(t, "the bucket is deleted", func() bool {
		got, err := g.Ask(t.Context(), g.client, wide, http.MethodDelete, bucket, nil)
		require.NoError(t, err)
		status = got.Status
		return status != http.StatusServiceUnavailable
	})
	return status
}

// must does a request of the hostile key that is not limited, before the attack.
func (g *ground) must(ctx context.Context, method, target string, body string, header ...string) error {
	key := wide
	if g.key.ID == "" {
		key = g.key
	}
	return g.Must(ctx, g.client, key, method, target, []byte(body), header...)
}

// preparation is work before an attack.
type preparation struct {
	do func(ctx context.Context, g *ground) error
}

// attack is what hostile clients do until ctx ends.
type attack struct {
	name string
	// group is of attacks that are run at once, unless there is more time; none: alone.
	group string
	// open: the server has no keys file. tls: it speaks TLS. token: its admin address asks
	// for a token. many: the attackers have many addresses.
	open, tls, token, many bool
	// prepare is done before, by one of the attackers, once for all attacks that have it.
	prepare *preparation
	run     assault
	// check looks at what is left, afterwards.
	check func(t *testing.T, g *ground, s *score)
}

// What is demanded while and after a server is attacked.
const (
	maxMemory = 512 * siege.MiB // above idle
	// killMemory ends a server that would harm the machine that runs the test.
	killMemory = 3 << 30
	maxLatency = time.Second // of an honest client's operations, at the 99th percentile
	// maxLog is what may be logged, and maxLogRate for each second more.
	maxLog, maxLogRate = siege.MiB, siege.MiB
	// Afterwards there may be a little more than before: files of tables, blocks in the store's cache of 128 MiB, and
	// three memtables of 64 MiB: what a quick machine writes in a short attack fills several.
	moreHeap, moreFiles, moreGoroutines = (128 + 3*64) * siege.MiB, 64, 32
	// recovery is how long a server may take to be as before.
	recovery = 20 * time.Second
)

// outcome is what an attack led to.
type outcome struct {
	*siege.Report
	*score
	idle, after siege.Vitals
	peak        int64
	unready     error // while it was attacked
	logged      int64
	took        time.Duration
	recovered   time.Duration
	// late is how long this process, which has the honest client, could not go on: what
	// took as long was not the server's fault.
	late time.Duration
}

func (o *outcome) String() string {
	const form = "memory %d MiB, at most %d, then %d; heap %d MiB, then %d; %d KiB logged; recovered in %v; " +
		"this process was late by %v"
	return fmt.Sprintf(form,
		o.idle.Memory/siege.MiB, o.peak/siege.MiB, o.after.Memory/siege.MiB, o.idle.Heap/siege.MiB,
		o.after.Heap/siege.MiB,
		o.logged>>10, o.recovered.Round(time.Millisecond), o.late.Round(time.Millisecond))
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
	prepared := map[*preparation]bool{nil: true}
	for _, a := range attacks {
		if !prepared[a.prepare] {
			require.NoError(t, a.prepare.do(ctx, g), a.name)
			prepared[a.prepare] = true
		}
	}
	g.client.CloseIdleConnections()

	begun := time.Now()
	logged := g.server.Log.Written()
	whole, stop := context.WithTimeout(ctx, lasts)
	defer stop()
	var all sync.WaitGroup
	client := &siege.Honest{Target: g.Target, Key: key, Bucket: "honest", Rate: rate, Seed: seed.Number(t)}
	end, err := g.attackers(lasts, attacks)
	require.NoError(t, err)
	all.Go(func() { o.late = lateness(whole) })
	siege.Pause(ctx, lasts/5) // the honest client comes into the middle of it
	all.Go(func() { o.Report = client.Run(whole) })
	all.Go(func() { o.unready = g.probe(whole) })
	guarded, done := context.WithCancel(ctx)
	defer done()
	killed := make(chan struct{})
	go g.guard(guarded, o.idle.Memory+killMemory, killed)
	all.Wait()
	o.score, err = end()
	require.NoError(t, err)
	o.took = time.Since(begun)
	o.logged = g.server.Log.Written() - logged
	begun = time.Now()
	err = g.recover(&o)
	o.recovered = time.Since(begun)
	// With what was not yet done when the attack ended.
	if _, peak, merr := g.Memory(); merr == nil {
		o.peak = peak
	}
	t.Logf("seed %d; %v\n%v\nhonest: %v", client.Seed, o.score, &o, o.Report)
	for _, a := range attacks {
		if a.check != nil && err == nil {
			a.check(t, g, o.score)
		}
	}
	for i, wrong := range o.Wrong {
		if i < 5 {
			t.Errorf("a wrong answer, or none: %s", wrong)
		}
	}
	select {
	case <-killed:
		t.Fatalf("killed: it had more than %d MiB of memory", (o.idle.Memory+killMemory)/siege.MiB)
	default:
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
	if o.unready != nil {
		t.Errorf("it was not ready: %v", o.unready)
	}
	if o.Sent == 0 {
		t.Error("nothing was sent: this is no attack")
	}
}

// probe asks again and again whether the server is ready, and says why it was not.
func (g *ground) probe(ctx context.Context) (unready error) {
	for ctx.Err() == nil {
		if err := g.Ready(); err != nil && unready == nil {
			unready = err
		}
		siege.Pause(ctx, 200*time.Millisecond)
	}
	return unready
}

// guard kills a server that takes too much memory.
func (g *ground) guard(ctx context.Context, most int64, killed chan<- struct{}) {
	for ctx.Err() == nil {
		if now, _, err := g.Memory(); err == nil && now > most {
			close(killed)
			g.server.Kill()
			return
		}
		siege.Pause(ctx, 20*time.Millisecond)
	}
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
			before, after := &o.idle, &o.after
			if after.Heap <= before.Heap+moreHeap && after.Goroutines <= before.Goroutines+moreGoroutines &&
				after.Files <= before.Files+moreFiles {
				return nil
			}
			err = fmt.Errorf("before %+v, after %+v", o.idle, o.after)
		}
		if time.Since(begun) > recovery {
			return err
		}
	}
}

// within is how long an operation of an honest client may take where the duration of an attack was given: make test has
// no such limits, as in its two seconds a slow machine hardly gets through the first requests of the attackers.
func within(given bool, latency time.Duration) time.Duration {
	if given {
		return latency
	}
	return math.MaxInt64
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
