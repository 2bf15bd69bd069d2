package oncassandra

import (
	"bytes"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/realkeys"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
)

// keysVariable sets how many real keys TestProgramsRealKeys loads.
const keysVariable = "EVENKEEL_REAL_KEYS"

// TestProgramsRealKeys loads real keys, half through each of two servers at the
// same time, and lists them through both, in every way; then deletes some through
// each, and the other one lists none of them.
func TestProgramsRealKeys(t *testing.T) {
	p := build(t)
	s := laidOut(p, cassandra.Address(t))
	count := 20_000
	if text := os.Getenv(keysVariable); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err, keysVariable)
	}
	a, b := p.serve(s), p.serve(s)
	keys := realkeys.Collect(count, 2)
	sorted := sortedBySort(t, keys)
	var cuts strings.Builder
	for _, cut := range realkeys.Cuts(keys, 24) {
		cuts.WriteString(keytext.Format(cut) + "\n")
	}
	cutsFile := filepath.Join(p.dir, "cuts")
	require.NoError(t, os.WriteFile(cutsFile, []byte(cuts.String()), 0o600))
	p.run("listd", "bucket", "create", "real", "--cuts-file", cutsFile, "--server", a.s3)
	r := rand.New(rand.NewPCG(11, 0))
	shuffled := slices.Clone(keys)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	p.loadHalves("real", shuffled, a, b)
	p.lists("real", sorted, []int{1000, 333}, a, b)

	var deletes errgroup.Group
	deletes.SetLimit(16)
	gone := map[string]bool{}
	for i, k := range shuffled[:count/50] {
		gone[string(k)] = true
		srv := []*server{a, b}[i%2]
		deletes.Go(func() error {
			got, err := requestOf("DELETE", srv.s3+"/real/"+url.PathEscape(string(k)), "")
			if err == nil && got.status != 204 {
				err = fmt.Errorf("DELETE %q: %d %s", k, got.status, got.body)
			}
			return err
		})
	}
	require.NoError(t, deletes.Wait())
	rest := slices.DeleteFunc(slices.Clone(sorted), func(k []byte) bool { return gone[string(k)] })
	p.lists("real", rest, []int{1000}, a, b)
	require.Equal(t, 0, a.end(syscall.SIGTERM), a.log)
	require.Equal(t, 0, b.end(syscall.SIGTERM), b.log)
}

// TestProgramsAwkwardKeys does the same with keys that break what is easily got
// wrong, bytes that are not UTF-8 among them: through two servers, and through two
// clients of the library.
func TestProgramsAwkwardKeys(t *testing.T) {
	t.Run("HTTP", func(t *testing.T) {
		p := build(t)
		s := laidOut(p, cassandra.Address(t))
		a, b := p.serve(s), p.serve(s)
		keys := realkeys.Awkward(5000, 3, true)
		p.run("listd", "bucket", "create", "awkward", "--server", b.s3)
		var puts errgroup.Group
		puts.SetLimit(32)
		for i, k := range keys {
			srv := []*server{a, b}[i%2]
			puts.Go(func() error {
				got, err := requestOf("PUT", srv.s3+"/awkward/"+url.PathEscape(string(k)), "", "x-evenkeel-key-bytes", "any")
				if err == nil && got.status != 200 {
					err = fmt.Errorf("PUT %q: %d %s", k, got.status, got.body)
				}
				return err
			})
		}
		require.NoError(t, puts.Wait())
		backwards := slices.Clone(keys)
		slices.Reverse(backwards)
		for i, srv := range []*server{a, b} {
			for _, limit := range []int{1000, 333} {
				require.Equal(t, sum(keys), sum(overHTTP(t, srv.s3, "awkward", limit, false)), "server %d, pages of %d", i, limit)
				require.Equal(t, sum(backwards), sum(overHTTP(t, srv.s3, "awkward", limit, true)), "server %d, pages of %d, reverse", i, limit)
			}
		}
	})
	t.Run("library", func(t *testing.T) {
		ctx := t.Context()
		keys := realkeys.Awkward(5000, 4, true)
		o := shared(t)
		var clients []*listing.Client
		for i := range 2 {
			st := open(t, o)
			if i == 0 {
				require.NoError(t, mapclient.InitClocks(ctx, st, 1))
			}
			m, err := mapclient.NewNetwork(st, mapclient.Options{Clocks: 1})
			require.NoError(t, err)
			t.Cleanup(m.Close)
			c, err := listing.New(st, m, listing.Options{})
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
			for _, q := range []listing.Query{{Limit: 1000}, {Limit: 333}, {Limit: 1000, Reverse: true}, {Limit: 333, Reverse: true}} {
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
				require.Equal(t, sum(want), sum(found), "pages of %d, reverse %v", q.Limit, q.Reverse)
			}
		}
	})
}

// loadHalves loads keys with the program, half through each of two servers, both
// at once.
func (p *programs) loadHalves(bucket string, keys [][]byte, servers ...*server) {
	p.t.Helper()
	var wg sync.WaitGroup
	for i, srv := range servers {
		var half bytes.Buffer
		for at := i; at < len(keys); at += len(servers) {
			half.Write(keys[at])
			half.WriteByte(0)
		}
		file := filepath.Join(p.dir, fmt.Sprintf("%s-%d", bucket, i))
		require.NoError(p.t, os.WriteFile(file, half.Bytes(), 0o600))
		wg.Go(func() {
			code, _, errs := p.try("listd", "load", bucket, file, "-0", "--progress", "none", "--server", srv.s3)
			if code != 0 {
				p.t.Errorf("load through %s: exit code %d: %s", srv.s3, code, errs)
			}
		})
	}
	wg.Wait()
	if p.t.Failed() {
		p.t.FailNow()
	}
}

// lists lists a bucket through each server: with the program, forwards, backwards
// and by several readers, and page by page as any client would.
func (p *programs) lists(bucket string, sorted [][]byte, limits []int, servers ...*server) {
	p.t.Helper()
	backwards := slices.Clone(sorted)
	slices.Reverse(backwards)
	for i, srv := range servers {
		ls := func(args ...string) [][]byte {
			out := p.run("listd", append([]string{"ls", bucket, "--format", "null", "--server", srv.s3}, args...)...)
			return bytes.Split(bytes.TrimSuffix([]byte(out), []byte{0}), []byte{0})
		}
		require.Equal(p.t, sum(sorted), sum(ls()), "server %d", i)
		require.Equal(p.t, sum(backwards), sum(ls("--reverse")), "server %d, reverse", i)
		require.Equal(p.t, sum(sorted), sum(ls("--parallel", "4")), "server %d, four readers", i)
		for _, limit := range limits {
			require.Equal(p.t, sum(sorted), sum(overHTTP(p.t, srv.s3, bucket, limit, false)), "server %d, pages of %d", i, limit)
			require.Equal(p.t, sum(backwards), sum(overHTTP(p.t, srv.s3, bucket, limit, true)), "server %d, pages of %d, reverse", i, limit)
		}
	}
}

// overHTTP lists a bucket page by page.
func overHTTP(t *testing.T, server, bucket string, limit int, reverse bool) (found [][]byte) {
	t.Helper()
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {strconv.Itoa(limit)}}
	if reverse {
		query.Set("evenkeel-reverse", "true")
	}
	for {
		got := request(t, "GET", server+"/"+bucket+"?"+query.Encode(), "")
		require.Equal(t, 200, got.status, got.body)
		var page struct {
			Contents              []struct{ Key string }
			IsTruncated           bool
			NextContinuationToken string
		}
		require.NoError(t, xml.Unmarshal([]byte(got.body), &page))
		require.LessOrEqual(t, len(page.Contents), limit)
		for _, entry := range page.Contents {
			key, err := url.PathUnescape(entry.Key)
			require.NoError(t, err)
			found = append(found, []byte(key))
		}
		if !page.IsTruncated {
			return found
		}
		query.Set("continuation-token", page.NextContinuationToken)
	}
}

// sortedBySort sorts keys with `LC_ALL=C sort -u`, and so by a stranger's hand.
func sortedBySort(t *testing.T, keys [][]byte) [][]byte {
	t.Helper()
	cmd := exec.Command("sort", "-z", "-u")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = bytes.NewReader(append(bytes.Join(keys, []byte{0}), 0))
	out, err := cmd.Output()
	require.NoError(t, err)
	return bytes.Split(bytes.TrimSuffix(out, []byte{0}), []byte{0})
}

// sum makes key lists comparable, with a message of bearable length.
func sum(keys [][]byte) string {
	return fmt.Sprintf("%d keys, md5 %x", len(keys), md5.Sum(bytes.Join(keys, []byte{0})))
}
