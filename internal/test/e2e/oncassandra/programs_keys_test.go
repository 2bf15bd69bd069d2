package oncassandra

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
	"github.com/evenkeel/evenkeel/listing"
)

// TestProgramsRealKeys loads real keys, half through each of two servers at the
// same time, and lists them through both, in every way; then deletes some through
// each, and the other one lists none of them.
func TestProgramsRealKeys(t *testing.T) {
	t.Parallel()
	p := build(t)
	s := p.LaidOut(cassandra.Address(t))
	count := harness.Setting(t, harness.KeysVariable, 20_000)
	a, b := p.ServeSite(s), p.ServeSite(s)
	keys := realkeys.Collect(count, 2)
	sorted := harness.SortedBySort(t, keys)
	var cuts strings.Builder
	for _, cut := range realkeys.Cuts(keys, 24) {
		cuts.WriteString(keytext.Format(cut) + "\n")
	}
	cutsFile := filepath.Join(p.Dir, "cuts")
	require.NoError(t, os.WriteFile(cutsFile, []byte(cuts.String()), 0o600))
	p.Run("listd", "bucket", "create", "real", "--plain", "--cuts-file", cutsFile, "--server", a.S3)
	r := rand.New(rand.NewPCG(11, 0))
	shuffled := slices.Clone(keys)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	loadHalves(p, "real", shuffled, a, b)
	lists(p, "real", sorted, []int{1000, 333}, a, b)

	var deletes errgroup.Group
	deletes.SetLimit(16)
	gone := map[string]bool{}
	for i, k := range shuffled[:count/50] {
		gone[string(k)] = true
		srv := []*harness.Server{a, b}[i%2]
		deletes.Go(func() error {
			got, err := harness.RequestOf(t.Context(), "DELETE", srv.S3+"/real/"+url.PathEscape(string(k)), "")
			if err == nil && got.Status != 204 {
				err = fmt.Errorf("DELETE %q: %d %s", k, got.Status, got.Body)
			}
			return err
		})
	}
	require.NoError(t, deletes.Wait())
	rest := slices.DeleteFunc(slices.Clone(sorted), func(k []byte) bool { return gone[string(k)] })
	lists(p, "real", rest, []int{1000}, a, b)
	require.Equal(t, 0, a.End(syscall.SIGTERM), a.Log)
	require.Equal(t, 0, b.End(syscall.SIGTERM), b.Log)
}

// TestProgramsAwkwardKeys does the same with keys that break what is easily got
// wrong, bytes that are not UTF-8 among them: through two servers, and through two
// clients of the library.
func TestProgramsAwkwardKeys(t *testing.T) {
	t.Parallel()
	t.Run("HTTP", func(t *testing.T) {
		p := build(t)
		s := p.LaidOut(cassandra.Address(t))
		a, b := p.ServeSite(s), p.ServeSite(s)
		keys := realkeys.Awkward(5000, 3, true)
		p.Run("listd", "bucket", "create", "awkward", "--plain", "--server", b.S3)
		var puts errgroup.Group
		puts.SetLimit(32)
		for i, k := range keys {
			srv := []*harness.Server{a, b}[i%2]
			puts.Go(func() error {
				got, err := harness.RequestOf(t.Context(), "PUT", srv.S3+"/awkward/"+url.PathEscape(string(k)), "",
					"x-evenkeel-key-bytes", "any")
				if err == nil && got.Status != 200 {
					err = fmt.Errorf("PUT %q: %d %s", k, got.Status, got.Body)
				}
				return err
			})
		}
		require.NoError(t, puts.Wait())
		backwards := slices.Clone(keys)
		slices.Reverse(backwards)
		for i, srv := range []*harness.Server{a, b} {
			for _, limit := range []int{1000, 333} {
				require.Equal(t, harness.Sum(keys), harness.Sum(harness.OverHTTP(t, srv.S3, "awkward", limit, false)),
					"server %d, pages of %d", i, limit)
				require.Equal(t, harness.Sum(backwards),
					harness.Sum(harness.OverHTTP(t, srv.S3, "awkward", limit,
						true)), "server %d, pages of %d, reverse", i, limit)
			}
		}
	})
	t.Run("library", func(t *testing.T) {
		ctx := t.Context()
		keys := realkeys.Awkward(5000, 4, true)
		o := harness.Shared(t, &cassandra)
		var clients []*listing.Client
		for i := range 2 {
			st := harness.Open(t, o)
			if i == 0 {
				require.NoError(t, mapclient.InitClocks(ctx, st, 1))
			}
			m, err := mapclient.NewNetwork(st, mapclient.Options{Clocks: 1})
			require.NoError(t, err)
			t.Cleanup(m.Close)
			c, err := listing.New(mapclient.With(st, m), listing.Options{})
			require.NoError(t, err)
			clients = append(clients, c)
		}
		require.NoError(t, clients[0].CreateBucket(ctx, "awkward", realkeys.Cuts(keys, 7)...))
		var g errgroup.Group
		for i, c := range clients {
			var entries []listing.Entry
			for at := i; at < len(keys); at += 2 {
				entries = append(entries, listing.Entry{Key: keys[at], Value: keys[at]})
			}
			g.Go(func() error { return c.Bucket("awkward").PutBatch(ctx, entries) })
		}
		require.NoError(t, g.Wait())
		backwards := slices.Clone(keys)
		slices.Reverse(backwards)
		for _, c := range clients {
			for _, q := range []listing.Query{{Limit: 1000}, {Limit: 333}, {Limit: 1000, Reverse: true},
				{Limit: 333, Reverse: true}} {
				var found [][]byte
				for {
					page, err := c.Bucket("awkward").List(ctx, q)
					require.NoError(t, err)
					for _, item := range page.Items {
						require.Equal(t, string(item.Key), string(item.Value))
						found = append(found, item.Key)
					}
					if page.Next == "" {
						break
					}
					q.Token = page.Next
				}
				want := keys
				if q.Reverse {
					want = backwards
				}
				require.Equal(t, harness.Sum(want), harness.Sum(found), "pages of %d, reverse %v", q.Limit, q.Reverse)
			}
		}
	})
}

// loadHalves loads keys with the program, half through each of two servers, both
// at once.
func loadHalves(p *harness.Programs, bucket string, keys [][]byte, servers ...*harness.Server) {
	p.T.Helper()
	var wg sync.WaitGroup
	for i, srv := range servers {
		var half bytes.Buffer
		for at := i; at < len(keys); at += len(servers) {
			half.Write(keys[at])
			half.WriteByte(0)
		}
		file := filepath.Join(p.Dir, fmt.Sprintf("%s-%d", bucket, i))
		require.NoError(p.T, os.WriteFile(file, half.Bytes(), 0o600))
		wg.Go(func() {
			code, _, errs := p.Try("listd", "load", bucket, file, "-0", "--progress", "none", "--server", srv.S3)
			if code != 0 {
				p.T.Errorf("load through %s: exit code %d: %s", srv.S3, code, errs)
			}
		})
	}
	wg.Wait()
	if p.T.Failed() {
		p.T.FailNow()
	}
}

// lists lists a bucket through each server: with the program, forwards, backwards
// and by several readers, and page by page as any client would.
func lists(p *harness.Programs, bucket string, sorted [][]byte, limits []int, servers ...*harness.Server) {
	p.T.Helper()
	backwards := slices.Clone(sorted)
	slices.Reverse(backwards)
	for i, srv := range servers {
		ls := func(args ...string) [][]byte {
			out := p.Run("listd", append([]string{"ls", bucket, "--format", "null", "--server", srv.S3}, args...)...)
			return bytes.Split(bytes.TrimSuffix([]byte(out), []byte{0}), []byte{0})
		}
		require.Equal(p.T, harness.Sum(sorted), harness.Sum(ls()), "server %d", i)
		require.Equal(p.T, harness.Sum(backwards), harness.Sum(ls("--reverse")), "server %d, reverse", i)
		require.Equal(p.T, harness.Sum(sorted), harness.Sum(ls("--parallel", "4")), "server %d, four readers", i)
		for _, limit := range limits {
			require.Equal(p.T, harness.Sum(sorted), harness.Sum(harness.OverHTTP(p.T, srv.S3, bucket, limit, false)),
				"server %d, pages of %d", i, limit)
			require.Equal(p.T, harness.Sum(backwards), harness.Sum(harness.OverHTTP(p.T, srv.S3, bucket, limit, true)),
				"server %d, pages of %d, reverse", i, limit)
		}
	}
}
