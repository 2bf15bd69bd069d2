package oncassandra

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

// adopting is a test of one adoption.
type adopting struct {
	*application
	t       *testing.T
	p       *harness.Programs
	site    harness.Site
	client  *listing.Client
	oracles []map[int]string // by writer: what is stored
	random  *rand.Rand
	maxRows int
	lease   time.Duration
}

// command returns a command for the present table.
func (a *adopting) command(more ...string) []string {
	flags := []string{"adopt", "cql", a.bucket.Name(), "--table", a.table, "--local-dc", "dc1"}
	flags = append(flags, "--lease", a.lease.String())
	return a.site.Flags(append(append(flags, a.in.flags...), more...)...)
}

type adoptSummary struct {
	Complete bool
	Summary  struct {
		Read, Put, Deleted, Refused, Different int64
		ReadAgain                              int64 `json:"read_again"`
		Seconds                                float64
	}
}

// run runs a command that has to succeed.
func (a *adopting) run(more ...string) (s adoptSummary) {
	a.t.Helper()
	out := a.p.Run("rebalancer", a.command(append(more, "--json")...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.NoError(a.t, json.Unmarshal([]byte(lines[len(lines)-1]), &s))
	require.True(a.t, s.Complete)
	a.t.Logf("%s: %+v, %.0f rows/s", more, s.Summary, float64(s.Summary.Read)/s.Summary.Seconds)
	return s
}

// load fills the table; its rows are an hour old.
func (a *adopting) load() {
	var g errgroup.Group
	g.SetLimit(8)
	const step = 200
	for first := 0; first < a.rows; first += step {
		for i := first; i < first+step; i++ {
			a.oracles[i%adoptWriters][i] = fmt.Sprint("old ", i)
		}
		g.Go(func() error {
			b := a.session.NewBatch(gocql.UnloggedBatch)
			for i := first; i < first+step; i++ {
				args := append(a.in.args(i), fmt.Sprint("old ", i), time.Now().Add(-time.Hour).UnixMicro())
				b.Query(fmt.Sprintf(a.in.insert, a.table), args...)
			}
			return a.session.ExecuteBatch(b)
		})
	}
	require.NoError(a.t, g.Wait())
}

// writing begins to write.
func (a *adopting) writing(w where) (end func()) {
	began, before := time.Now(), a.writes.Load()
	var writers []func(context.Context)
	for i := range a.oracles {
		mine := rand.New(rand.NewPCG(a.random.Uint64(), 1))
		writers = append(writers, func(ctx context.Context) {
			a.write(a.t.Context(), mine, i, ctx.Done(), a.oracles[i], w)
		})
	}
	stop := harness.Meanwhile(a.t, writers...)
	return sync.OnceFunc(func() {
		stop()
		a.t.Logf("the application wrote %.0f rows/s", float64(a.writes.Load()-before)/time.Since(began).Seconds())
	})
}

// want returns what has been acknowledged, by the bucket's keys.
func (a *adopting) want(value func(stored string) string) map[string]string {
	want := map[string]string{}
	for _, o := range a.oracles {
		for i, stored := range o {
			want[string(a.key(i))] = value(stored)
		}
	}
	return want
}

// same: the listing is what has been acknowledged.
func (a *adopting) same() {
	a.t.Helper()
	got, last := map[string]string{}, ""
	for item, err := range a.bucket.All(a.t.Context(), listing.Query{}) {
		require.NoError(a.t, err)
		require.Less(a.t, last, string(item.Key))
		last = string(item.Key)
		got[last] = string(item.Value)
	}
	requireEqual(a.t, a.want(a.value), got)
	a.bounded()
}

// bounded: no partition has more than 1.2 times the maximum.
func (a *adopting) bounded() {
	a.t.Helper()
	ctx := a.t.Context()
	id, err := a.client.BucketID(ctx, a.bucket.Name())
	require.NoError(a.t, err)
	root, err := mapclient.Of(a.client).Load(ctx, id)
	require.NoError(a.t, err)
	most, ranges := 0, 0
	for r, err := range mapclient.Of(a.client).Ranges(ctx, root, nil) {
		require.NoError(a.t, err)
		n := 0
		for _, err := range a.bucket.All(ctx, listing.Query{From: r.Start, To: r.End, KeysOnly: true}) {
			require.NoError(a.t, err)
			n++
		}
		most, ranges = max(most, n), ranges+1
	}
	a.t.Logf("the largest of %d ranges has %d rows", ranges, most)
	require.LessOrEqual(a.t, float64(most), 1.2*float64(a.maxRows))
}

// TestAdoptWhileTheApplicationWrites: whatever the application has acknowledged is in the bucket afterwards, and
// nothing else, though it wrote all the time, ranges moved, and the copy was killed. Then the same on the way back.
func TestAdoptWhileTheApplicationWrites(t *testing.T) {
	t.Parallel()
	p, rows := build(t), adoptRows(t)
	site := p.LaidOut(cassandra.Address(t))
	// Of a small table the ranges are made too large, so that they are split while rows come.
	served, cut := min(rows*3/20, 100_000), min(rows*2/5, 100_000)
	lease := time.Second
	if rows > 100_000 {
		lease = 3 * time.Second // the default: the machine is very busy
	}
	p.ServeSite(site, "--lease", lease.String(), "--max-rows", fmt.Sprint(served), "--rebalance-interval", "1s")
	store := harness.Open(t, harness.Patient(site.Options()))
	client := harness.Client(t, store, harness.Maps(t, store, lease), listing.Options{})
	for n, way := range adoptions() {
		t.Run(way.name, func(t *testing.T) {
			a := &adopting{
				application: &application{
					adoption: way, rows: rows, in: way.have, table: fmt.Sprintf("%s.app%d", site.Name, n),
					session: harness.Session(t, site.Host, site.Name), bucket: client.Bucket(fmt.Sprintf("adopted-%d", n)),
				},
				t: t, p: p, site: site, client: client, random: seed.New(t), maxRows: cut, lease: lease,
			}
			for range adoptWriters {
				a.oracles = append(a.oracles, map[int]string{})
			}
			require.NoError(t, a.session.Query(fmt.Sprintf(a.in.create, a.table)).Exec())
			a.load()
			if os.Getenv("EVENKEEL_ADOPT_ROWS") != "" {
				a.measures()
			}
			a.copies()
			a.catchesUp()
			a.comesBack()
		})
	}
}

// copies: the copy is killed three times, while the application writes to both, as soon as the bucket is there.
func (a *adopting) copies() {
	t, ctx, maxRows := a.t, a.t.Context(), fmt.Sprint(a.maxRows)
	out := a.p.Run("rebalancer", a.command("--dry-run", "--max-rows", maxRows)...)
	require.Contains(t, out, "the bucket would be made with")
	checkpoint := filepath.Join(t.TempDir(), "checkpoint.json")
	copying := []string{"--max-rows", maxRows, "--checkpoint", checkpoint}
	end := func() {}
	for kills := range 3 {
		before, _ := os.ReadFile(checkpoint)
		cmd := a.p.Command(ctx, "rebalancer", a.command(append(copying, "--rate", fmt.Sprint(a.rows/8))...)...)
		exited, err := child.Start(cmd)
		require.NoError(t, err)
		if kills == 0 {
			harness.Eventually(t, "the bucket is there", func() bool {
				_, err := a.client.BucketID(ctx, a.bucket.Name())
				return err == nil
			})
			end = a.writing(tableFirst)
		}
		harness.Eventually(t, "it has copied something", func() bool {
			now, err := os.ReadFile(checkpoint)
			begun := strings.Contains(string(now), `"last"`) || strings.Contains(string(now), `"ended"`)
			return err == nil && begun && string(now) != string(before)
		})
		require.NoError(t, cmd.Process.Kill())
		<-exited
		a.bounded()
	}
	s := a.run(copying...)
	end()
	require.Less(t, s.Summary.Read, int64(a.rows), "it went on where it was killed")
	a.same()
}

// catchesUp: what the application changes in the table alone, a catch-up finds, and a verification shows.
func (a *adopting) catchesUp() {
	t, ctx := a.t, a.t.Context()
	end := a.writing(tableAlone)
	time.Sleep(time.Second)
	a.run("--catch-up")
	end()
	a.run("--catch-up")
	a.same()
	end = a.writing(tableFirst)
	s := a.run("--verify")
	end()
	require.Zero(t, s.Summary.Different)

	require.NoError(t, a.bucket.Put(ctx, []byte("\xffstranger"), []byte("x")))
	require.NoError(t, a.bucket.Put(ctx, a.key(1), []byte("another")))
	require.NoError(t, a.bucket.Delete(ctx, a.key(2)))
	a.change(ctx, 1, "one", time.Now().Add(wrong(1, tableAlone)), tableAlone)
	a.change(ctx, 2, "two", time.Now().Add(wrong(2, tableAlone)), tableAlone)
	a.oracles[1][1], a.oracles[2][2] = "one", "two"
	code, out, _ := a.p.Try("rebalancer", a.command("--verify")...)
	require.Equal(t, 1, code)
	require.Equal(t, 1, strings.Count(out, "it is not in the source"), out)
	require.Equal(t, 1, strings.Count(out, "its value in the bucket is another one"), out)
	require.Equal(t, 1, strings.Count(out, "it is not in the bucket"), out)
	s = a.run("--catch-up")
	require.EqualValues(t, []int64{3, 2, 1}, []int64{s.Summary.Different, s.Summary.Put, s.Summary.Deleted})
	a.same()
}

// comesBack: after the cut-over the bucket comes back into a wide table: into that which was adopted, and into a fresh
// one, while the application writes to the bucket first.
func (a *adopting) comesBack() {
	t := a.t
	fresh := a.table + "_wide"
	require.NoError(t, a.session.Query(fmt.Sprintf(a.wide.create, fresh)).Exec())
	tables := []string{fresh}
	if a.have.create == a.wide.create {
		tables = []string{a.table, fresh}
	}
	a.in = a.wide
	stored := func(stored string) string { return stored }
	for _, a.table = range tables {
		end := a.writing(bucketAlone)
		time.Sleep(2 * time.Second)
		end()
		before := a.inTable(t)
		dry := a.run("--back", "--dry-run")
		require.Equal(t, before, a.inTable(t), "a dry run changes nothing")
		want, put, deleted := a.want(stored), int64(0), int64(0)
		for key, value := range want {
			if have, found := before[key]; !found || have != value {
				put++
			}
		}
		for key := range maps.Keys(before) {
			if _, found := want[key]; !found {
				deleted++
			}
		}
		require.Equal(t, []int64{put, deleted}, []int64{dry.Summary.Put, dry.Summary.Deleted})
		end = a.writing(bucketFirst)
		a.run("--back")
		end()
		requireEqual(t, a.want(stored), a.inTable(t))
		a.same()
		require.Zero(t, a.run("--verify").Summary.Different)
	}
}

// measures shows what a copy reaches beside bare reads and batches, while nobody writes.
func (a *adopting) measures() {
	t, bare := a.t, a.table+"_bare"
	require.NoError(t, a.session.Query("CREATE TABLE "+bare+" (bucket blob, partition blob, key blob, v blob, "+
		"PRIMARY KEY ((bucket, partition), key))").Exec())
	began := time.Now()
	var g errgroup.Group
	for part := range adoptSlices {
		g.Go(func() error {
			where, args := a.in.slice(part, a.rows)
			for i := range where {
				iter := a.session.Query("SELECT meta, WRITETIME(meta), TTL(meta) FROM "+a.table+" WHERE "+where[i], args[i]...).
					PageSize(1000).Iter()
				b, n, at, ttl, meta := a.session.NewBatch(gocql.UnloggedBatch), 0, int64(0), (*int)(nil), []byte(nil)
				for iter.Scan(&meta, &at, &ttl) {
					key := fmt.Appendf(nil, "photo/%03d/%07d.jpg", i, n)
					b.Query("INSERT INTO "+bare+" (bucket, partition, key, v) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
						[]byte("b"), []byte{byte(part)}, key, meta, at)
					if n++; n%200 == 0 {
						if err := a.session.ExecuteBatch(b); err != nil {
							return err
						}
						b = a.session.NewBatch(gocql.UnloggedBatch)
					}
				}
				if err := iter.Close(); err != nil {
					return err
				}
				if err := a.session.ExecuteBatch(b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	reached := float64(a.rows) / time.Since(began).Seconds()
	bucket := a.bucket
	a.bucket = a.client.Bucket(bucket.Name() + "-measured")
	s := a.run("--max-rows", fmt.Sprint(a.maxRows))
	require.EqualValues(t, a.rows, s.Summary.Put)
	rate := float64(a.rows) / s.Summary.Seconds
	t.Logf("%d rows: %.0f rows/s; bare reads and batches: %.0f rows/s; ratio %.2f", a.rows, rate, reached, rate/reached)
	a.bucket = bucket
}
