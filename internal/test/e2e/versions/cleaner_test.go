package versions

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// cleanerVariable makes this program a process that cleans: it has a cleanerSetup as JSON.
const cleanerVariable = "EVENKEEL_TEST_CLEANER"

type cleanerSetup struct {
	Name, Bodies, Host, Keyspace string
}

const leaseOfCleaners = 3 * time.Second

// clean cleans until its standard input ends. Each line there takes its clock a day ahead, between two
// looks; it prints what it does as lines of JSON.
func clean(text string) error {
	var setup cleanerSetup
	if err := json.Unmarshal([]byte(text), &setup); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := cassandrastore.Open(ctx, harness.Patient(cassandrastore.Options{
		Hosts: []string{setup.Host}, DataCentre: "dc1", AllowSingleReplica: true, Keyspace: setup.Keyspace,
	}))
	if err != nil {
		return err
	}
	m, err := mapclient.NewNetwork(s, mapclient.Options{Clocks: harness.Clocks, Lease: leaseOfCleaners})
	if err != nil {
		return err
	}
	var ahead atomic.Int64
	c, err := listing.New(mapclient.With(s, m), listing.Options{Timestamps: later{m.Time(), &ahead}})
	if err != nil {
		return err
	}
	bodies, err := fileblobs.Open(setup.Bodies)
	if err != nil {
		return err
	}
	now := wait.Instants(nil, nil)
	o, err := objects.New(c, bodies, objects.Options{InlineBytes: 100, Now: func() (time.Duration, time.Time) {
		at := now()
		at.Mono += time.Duration(ahead.Load())
		at.Wall = at.Wall.Add(time.Duration(ahead.Load()))
		return at.Mono, at.Wall
	}})
	if err != nil {
		return err
	}
	k := cleaning.New(cleaning.Options{
		Buckets: c, Objects: o, Registers: s, Every: 20 * time.Millisecond,
		Leader: &leader.Options{Name: setup.Name, Lease: leaseOfCleaners, Skew: 200 * time.Millisecond},
		Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	go k.Run(ctx)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			ahead.Add(int64(25 * time.Hour))
		}
		stop()
	}()
	for out := json.NewEncoder(os.Stdout); wait.Sleep(ctx, 50*time.Millisecond) == nil; {
		if err := out.Encode(k.Status(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// later is a source of timestamps that is ahead of another one by a duration: rows tell since when versions are burned
// by timestamps, so these have to go ahead with the clock of the process.
type later struct {
	of    listing.Timestamps
	ahead *atomic.Int64
}

func (l later) micros() store.Timestamp {
	return store.Timestamp(time.Duration(l.ahead.Load()).Microseconds())
}

// Next implements listing.Timestamps.
func (l later) Next(ctx context.Context, n int) (store.Timestamp, error) {
	ts, err := l.of.Next(ctx, n)
	return ts + l.micros(), err
}

// Passed implements listing.Timestamps.
func (l later) Passed(ctx context.Context, ts store.Timestamp) error {
	return l.of.Passed(ctx, ts-l.micros())
}

// Seen implements listing.Timestamps.
func (l later) Seen(ts store.Timestamp) { l.of.Seen(ts - l.micros()) }

// cleanerProcess is a process that cleans.
type cleanerProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	ended  <-chan struct{}
	status atomic.Pointer[cleaning.Status]
}

// cleaners are processes of which one cleans at a time.
type cleaners struct {
	t     *testing.T
	setup cleanerSetup
	regs  store.Registers
	begun int
	each  map[string]*cleanerProcess
}

func (c *cleaners) start() {
	c.begun++
	setup := c.setup
	setup.Name = fmt.Sprintf("cleaner-%d", c.begun)
	text, err := json.Marshal(setup)
	require.NoError(c.t, err)
	p := &cleanerProcess{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), cleanerVariable+"="+string(text))
	p.in, err = p.cmd.StdinPipe()
	require.NoError(c.t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(c.t, err)
	p.cmd.Stderr = c.t.Output()
	p.ended, err = child.Start(p.cmd)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.ended }) // before its keyspace goes
	go func() {
		for lines := json.NewDecoder(out); ; {
			var s cleaning.Status
			if lines.Decode(&s) != nil {
				return
			}
			p.status.Store(&s)
		}
	}()
	c.each[setup.Name] = p
}

// leads waits until a process cleans that is not the one of that name, and returns it.
func (c *cleaners) leads(but string) (name string, p *cleanerProcess) {
	require.Eventually(c.t, func() bool {
		h, err := leader.Current(c.t.Context(), c.regs, leader.Cleaning)
		if err != nil || h.Name == but {
			return false
		}
		name, p = h.Name, c.each[h.Name]
		if p == nil {
			return false
		}
		s := p.status.Load()
		return s != nil && s.Leading
	}, 2*time.Minute, 50*time.Millisecond)
	return name, p
}

// disturb kills the process that cleans, or stops it until another one has cleaned for a while, beside
// which it goes on.
func (c *cleaners) disturb(kill bool) {
	name, p := c.leads("")
	if kill {
		require.NoError(c.t, p.cmd.Process.Kill())
		<-p.ended
		delete(c.each, name)
		c.start()
		c.leads(name)
		return
	}
	harness.Halt(c.t, p.cmd.Process)
	_, next := c.leads(name)
	c.rounds(next, 2)
	require.NoError(c.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// rounds waits until a process has ended so many more whole rounds.
func (c *cleaners) rounds(p *cleanerProcess, n int) {
	for range n {
		was := p.last()
		require.Eventually(c.t, func() bool { return p.last().After(was) }, 20*time.Minute, 20*time.Millisecond)
	}
}

// allRounds waits for n whole rounds of each process that cleans.
func (c *cleaners) allRounds(n int) {
	leading := func(p *cleanerProcess) bool { s := p.status.Load(); return s != nil && s.Leading }
	for _, p := range c.each {
		for range n {
			was := p.last()
			require.Eventually(c.t, func() bool { return !leading(p) || p.last().After(was) }, 20*time.Minute, 20*time.Millisecond)
		}
	}
}

// of returns the process that cleans the buckets of a shard; nil: none does at present.
func (c *cleaners) of(n int) *cleanerProcess {
	for _, p := range c.each {
		if s := p.status.Load(); s != nil && slices.Contains(s.Shards, n) {
			return p
		}
	}
	return nil
}

// last is when the last whole round of a process ended; zero: none has.
func (p *cleanerProcess) last() time.Time {
	if s := p.status.Load(); s != nil && s.Last != nil {
		return s.Last.Ended
	}
	return time.Time{}
}

// randomBody is a body that is never in memory as a whole.
type randomBody struct {
	number uint64
	size   int64
}

func (b randomBody) reader() io.Reader {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], b.number)
	return io.LimitReader(rand.NewChaCha8(key), b.size)
}

func sumOf(t require.TestingT, r io.Reader) [md5.Size]byte {
	h := md5.New()
	_, err := io.Copy(h, r)
	require.NoError(t, err)
	return [md5.Size]byte(h.Sum(nil))
}

// written is a version that a writer was told of.
type written struct {
	id     objects.ID
	marker bool
	parts  []randomBody
	copied bool // into one body
	tags   []objects.Pair
}

// blobs is how many it has.
func (w *written) blobs() int {
	size := int64(0)
	for _, p := range w.parts {
		size += p.size
	}
	switch {
	case len(w.parts) > 1 && !w.copied:
		return len(w.parts)
	case size > 100:
		return 1
	}
	return 0
}

func (w *written) sum(t require.TestingT) [md5.Size]byte {
	var readers []io.Reader
	for _, p := range w.parts {
		readers = append(readers, p.reader())
	}
	return sumOf(t, io.MultiReader(readers...))
}

// author writes keys that nobody else writes, to a bucket, and knows what it has to be.
type author struct {
	t    *testing.T
	b    *objects.Bucket
	v    objects.Status
	name string
	r    *rand.Rand
	most int64
	want map[string][]*written // newest first; without versions the newest only
}

func (a *author) body() randomBody {
	size := a.r.Int64N(300)
	switch n := a.r.IntN(1000); {
	case n == 0:
		size = a.r.Int64N(a.most)
	case n < 30:
		size = a.r.Int64N(a.most / 20)
	case n < 300:
		size = a.r.Int64N(min(a.most, 64<<10))
	}
	return randomBody{a.r.Uint64(), size}
}

func (a *author) add(key string, w *written) {
	if a.v == objects.Never {
		a.want[key] = []*written{w}
		return
	}
	at, _ := slices.BinarySearchFunc(a.want[key], w.id, func(w *written, id objects.ID) int {
		return strings.Compare(w.id.String(), id.String())
	})
	a.want[key] = slices.Insert(a.want[key], at, w)
}

// step does one operation.
func (a *author) step(ctx context.Context) {
	folder := fmt.Sprintf("k%d/%s/", a.r.IntN(9), a.name)
	key := fmt.Sprintf("%s%d", folder, a.r.IntN(5))
	vs := a.want[key]
	seen := len(vs) > 0 && !vs[0].marker
	switch n := a.r.IntN(25); {
	case n < 9:
		body := a.body()
		info, err := a.b.Put(ctx, []byte(key), body.reader(), objects.Meta{Size: body.size})
		require.NoError(a.t, err)
		a.add(key, &written{id: info.ID, parts: []randomBody{body}})
	case n < 11:
		info, err := a.b.Delete(ctx, []byte(key))
		require.NoError(a.t, err)
		a.add(key, &written{id: info.ID, marker: true})
	case n < 13 && a.v == objects.Enabled && len(vs) > 0:
		i := a.r.IntN(len(vs))
		_, err := a.b.DeleteVersion(ctx, []byte(key), vs[i].id)
		require.NoError(a.t, err)
		a.want[key] = slices.Delete(vs, i, i+1)
	case n < 15:
		u, err := a.b.CreateUpload(ctx, []byte(key), objects.Meta{})
		require.NoError(a.t, err)
		w := &written{}
		var named []objects.Part
		for i := range 3 {
			body := a.body()
			part, err := a.b.PutPart(ctx, u.Key, u.ID, i+1, body.reader(), objects.Meta{Size: body.size})
			require.NoError(a.t, err)
			if i < 2 { // the third one is not listed
				w.parts, named = append(w.parts, body), append(named, objects.Part{Number: i + 1, ETag: part.ETag})
			}
		}
		if a.r.IntN(4) == 0 {
			require.NoError(a.t, a.b.Abort(ctx, u.Key, u.ID))
			return
		}
		info, err := a.b.Complete(ctx, u.Key, u.ID, named, nil)
		require.NoError(a.t, err)
		w.id = info.ID
		a.add(key, w)
	case n < 17 && seen:
		to := fmt.Sprintf("%s%d", folder, a.r.IntN(5))
		from, err := a.b.Get(ctx, []byte(key), vs[0].id, objects.All)
		require.NoError(a.t, err)
		info, err := a.b.Put(ctx, []byte(to), from.Body, from.Meta())
		require.NoError(a.t, errors.Join(err, from.Body.Close()))
		a.add(to, &written{id: info.ID, parts: vs[0].parts, copied: true, tags: vs[0].tags})
	case n < 19 && seen:
		vs[0].tags = []objects.Pair{{Name: "n", Value: fmt.Sprint(a.r.IntN(100))}}
		_, err := a.b.SetTags(ctx, []byte(key), vs[0].id, vs[0].tags)
		require.NoError(a.t, err)
	case n < 20:
		a.list(ctx, folder)
	default:
		a.check(ctx, key)
	}
}

// list lists a folder of the author's, the latest and all versions.
func (a *author) list(ctx context.Context, folder string) {
	var latest, all []objects.ID
	for i := range 5 {
		for j, w := range a.want[fmt.Sprintf("%s%d", folder, i)] {
			if all = append(all, w.id); j == 0 && !w.marker {
				latest = append(latest, w.id)
			}
		}
	}
	for _, of := range []struct {
		want []objects.ID
		list func(context.Context, objects.Query) (objects.Page[objects.Item], error)
	}{{latest, a.b.List}, {all, a.b.ListVersions}} {
		var got []objects.ID
		for q := (objects.Query{Prefix: []byte(folder), Limit: 7}); ; {
			page, err := of.list(ctx, q)
			require.NoError(a.t, err)
			for i := range page.Items {
				got = append(got, page.Items[i].ID)
			}
			if q.Token = page.Next; page.Next == "" {
				break
			}
		}
		require.Equal(a.t, of.want, got)
	}
}

// check reads the newest version of a key.
func (a *author) check(ctx context.Context, key string) {
	vs := a.want[key]
	o, err := a.b.Get(ctx, []byte(key), objects.Latest, objects.All)
	if len(vs) == 0 || vs[0].marker {
		require.ErrorIs(a.t, err, store.NotFound)
		return
	}
	require.NoError(a.t, err, "%s of %s", vs[0].id, key)
	defer o.Body.Close()
	require.Equal(a.t, vs[0].id, o.ID)
	require.Equal(a.t, vs[0].sum(a.t), sumOf(a.t, o.Body))
}

// checkAll reads all versions of all keys, and returns how many blobs they have.
func (a *author) checkAll(ctx context.Context) (blobs int) {
	for key, vs := range a.want {
		a.check(ctx, key)
		for _, w := range vs {
			if w.marker {
				continue
			}
			o, err := a.b.Get(ctx, []byte(key), w.id, objects.All)
			require.NoError(a.t, err)
			require.Equal(a.t, w.sum(a.t), sumOf(a.t, o.Body))
			require.NoError(a.t, o.Body.Close())
			require.Equal(a.t, w.tags, o.Meta().Tags)
			blobs += w.blobs()
		}
	}
	return blobs
}

// TestOneProcessCleansForAll has three processes of which one cleans each bucket at a time, for writers of other
// processes. The one that cleans the buckets of shard 0 is killed, and stopped for longer than its lease, again and
// again, while versions are written and read, and while what was deleted goes for good. In the end all is as the
// writers were told, and there is no body beside. EVENKEEL_CLEANER_OPS is for a long form.
func TestOneProcessCleansForAll(t *testing.T) {
	ctx := t.Context()
	steps, most, atOnce := harness.Setting(t, "EVENKEEL_CLEANER_OPS", 200), int64(1<<20), 1
	if steps >= 100_000 {
		most, atOnce = 20<<20, 6
	}
	dir := t.TempDir()
	bodies, err := fileblobs.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bodies.Close()) })
	options := harness.Shared(t, &cassandra)
	var authors []*author
	var first *objects.Objects
	var rows *listing.Bucket
	var never store.BucketID
	k := &cleaners{t: t, setup: cleanerSetup{Bodies: dir, Host: options.Hosts[0], Keyspace: options.Keyspace},
		each: map[string]*cleanerProcess{}}
	for i := range 2 {
		s := harness.Open(t, options)
		if i == 0 {
			require.NoError(t, mapclient.InitClocks(ctx, s, harness.Clocks))
			k.regs = s
		}
		c := harness.Client(t, s, harness.Maps(t, s, leaseOfCleaners), listing.Options{})
		o, err := objects.New(c, bodies, objects.Options{InlineBytes: 100})
		require.NoError(t, err)
		if i == 0 {
			first, rows = o, c.Bucket("never")
			require.NoError(t, o.CreateBucket(ctx, "never", []byte("k3"), []byte("k6")))
			never, err = c.BucketID(ctx, "never")
			require.NoError(t, err)
			require.NoError(t, o.CreateBucket(ctx, "kept", []byte("k5")))
			require.NoError(t, o.SetStatus(ctx, "kept", objects.Enabled))
			require.NoError(t, c.CreateBucket(ctx, "plain"))
		}
		for name, v := range map[string]objects.Status{"never": objects.Never, "kept": objects.Enabled} {
			for j := range atOnce {
				authors = append(authors, &author{
					t: t, b: o.Bucket(name, v), v: v, name: fmt.Sprint(i, "-", j), r: seed.New(t), most: most,
					want: map[string][]*written{},
				})
			}
		}
	}
	for range 3 {
		k.start()
	}
	k.leads("")

	// Every disturbance takes its time, and so do the writers: both go on until both have had their share.
	var writers errgroup.Group
	var disturbed, written atomic.Bool
	var done atomic.Int64
	begun := time.Now()
	for _, a := range authors {
		writers.Go(func() error {
			for n := 0; n < steps/len(authors) || !disturbed.Load(); n++ {
				a.step(ctx)
				done.Add(1)
			}
			written.Store(true)
			return nil
		})
	}
	disturbances := 0
	for ; disturbances == 0 || !written.Load(); disturbances++ {
		k.disturb(true)
		k.disturb(false)
		disturbed.Store(true)
	}
	t.Logf("killed %d times, and stopped as often", disturbances)
	require.NoError(t, writers.Wait())
	t.Logf("%d operations in %v", done.Load(), time.Since(begun).Round(time.Second))
	for _, p := range k.each {
		if s := p.status.Load(); s != nil && s.Last != nil {
			require.Zero(t, s.Last.Failed, s.Last.Error)
		}
	}

	// Graces pass, and the one that cleans is stopped and killed meanwhile.
	for turn := range 6 {
		k.leads("")
		k.allRounds(2)
		for _, p := range k.each {
			_, err := io.WriteString(p.in, "a day\n")
			require.NoError(t, err)
		}
		k.allRounds(2)
		if turn == 1 {
			k.disturb(false)
			k.disturb(true)
		}
	}
	want := 0
	for _, a := range authors {
		want += a.checkAll(ctx)
	}
	found := 0
	require.NoError(t, bodies.List(ctx, "", "", func(string, int64) error { found++; return nil }))
	require.Equal(t, want, found, "bodies of versions that are seen, and others")
	for _, name := range []string{"never", "kept"} {
		b := care.Of(first).Everywhere().BucketOf(listing.BucketInfo{Name: name})
		require.NoError(t, b.Audit(ctx, "", nil, func(part care.Audited) error {
			require.Empty(t, part.Findings)
			require.Zero(t, part.Waiting+part.InUse)
			return nil
		}))
	}

	// Under a pause nothing is cleaned.
	_, _, err = pause.Set(ctx, k.regs, nil, pause.Pause{Why: "a snapshot", Since: time.Now()}, time.Now())
	require.NoError(t, err)
	var p *cleanerProcess
	require.Eventually(t, func() bool {
		p = k.of(shard.Of(never))
		return p != nil && p.status.Load().Paused
	}, time.Minute, 20*time.Millisecond)
	body := strings.Repeat("x", 200)
	key := []byte("beside")
	b := first.Bucket("never", objects.Never)
	for range 2 {
		_, err = b.Put(ctx, key, strings.NewReader(body), objects.Meta{Size: -1})
		require.NoError(t, err)
	}
	rounds := p.last()
	time.Sleep(time.Second)
	require.Equal(t, rounds, p.last(), "no whole round ends")
	ranks := func() (ranks []byte) {
		page, err := rows.List(ctx, listing.Query{Prefix: key})
		require.NoError(t, err)
		for _, item := range page.Items {
			ranks = append(ranks, item.Value[0])
		}
		return ranks
	}
	require.Equal(t, []byte{1, 1}, ranks(), "both live")
	_, err = pause.Lift(ctx, k.regs, nil)
	require.NoError(t, err)
	// Behind the burned one is the proof of that.
	require.Eventually(t, func() bool { return bytes.HasPrefix(ranks(), []byte{2, 3}) }, time.Minute, 20*time.Millisecond)
}
