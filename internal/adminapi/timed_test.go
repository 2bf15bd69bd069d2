package adminapi_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// shared is a store of three servers with clocks, in data centres of which one may be away.
type shared struct {
	memstore.Store
	away, gone bool // the other data centre, all of them
	lists      int
}

// ahead is how far the clocks of a shared store's servers are ahead.
var ahead = map[string]time.Duration{"a": 0, "b": 30 * time.Millisecond, "c": -20 * time.Millisecond}

func (s *shared) Servers(context.Context) (all []store.Server, err error) {
	for name := range ahead {
		all = append(all, store.Server{Name: name, Near: true})
	}
	return all, nil
}

func (s *shared) Time(_ context.Context, server string) (time.Time, error) {
	time.Sleep(100 * time.Microsecond)
	return time.Now().Add(ahead[server]).Truncate(commontime.Resolution), nil
}

func (s *shared) EachQuorum() store.Rows { return everywhere{s} }

func (s *shared) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if s.gone && p.Bucket == processes.Bucket {
		return store.Page{}, store.Errorf(store.Unavailable, "all are away")
	}
	return s.Store.Slice(ctx, p, b, o)
}

type everywhere struct{ *shared }

func (s everywhere) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	if p.Bucket == processes.Bucket {
		s.lists++
	}
	if s.away {
		<-ctx.Done() // no answer comes
		return store.Page{}, store.Wrap("read everywhere", ctx.Err())
	}
	return s.shared.Slice(ctx, p, b, o)
}

// The page about the cluster shows the leases, the clocks and what the processes of a shared store have agreed on; it
// comes within some seconds while another data centre is away, with the reason for what may be missing.
func TestTheClusterOfASharedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), &shared{Store: memstore.New()}
		require.NoError(t, mapclient.InitClocks(ctx, s, 1))
		_, err := mapclient.AgreeOnLease(ctx, s, 2*time.Second, false)
		require.NoError(t, err)
		_, err = mapclient.AgreeOnClockSkew(ctx, s, 400*time.Millisecond, false)
		require.NoError(t, err)
		m, err := mapclient.NewNetwork(s, mapclient.Options{
			Clocks: 1, Lease: 2 * time.Second, MaxClockSkew: 400 * time.Millisecond,
		})
		require.NoError(t, err)
		defer m.Close()
		c, err := listing.New(mapclient.With(s, m), listing.Options{})
		require.NoError(t, err)
		require.NoError(t, c.CreateBucket(ctx, "b"))
		require.NoError(t, c.Bucket("b").Put(ctx, []byte("k"), []byte("v")))
		here, err := processes.Appear(ctx, s, processes.Process{Name: "here"}, nil)
		require.NoError(t, err)
		defer here.Close()
		other, err := processes.Appear(ctx, s, processes.Process{Name: "other"}, nil)
		require.NoError(t, err)
		defer other.Close()
		balance := balancer.For(1000, 0, time.Hour, time.Second)
		api := adminapi.New(engine.New(engine.Options{
			Store: s, Buckets: c, Balance: &balance, Presence: here,
		}))
		x := &console{T: t, api: api}
		get := func() (out adminapi.Cluster) {
			x.get("/v1/cluster", &out)
			return out
		}
		out := get()
		require.Equal(t, "timed", out.Leases.Kind)
		require.Equal(t, 2.0, out.Leases.LengthS)
		require.Positive(t, out.Leases.LeftS)
		require.LessOrEqual(t, out.Leases.LeftS, 2.0)
		require.Positive(t, out.Leases.MapClocks)
		require.Positive(t, out.Leases.RootReads)
		require.NotNil(t, out.Terms)
		require.Equal(t, 2.0, out.Terms.LeaseS)
		require.Equal(t, 0.4, out.Terms.MaxClockSkewS)
		require.Equal(t, "not said yet", out.Terms.Sizes)
		require.Empty(t, out.Terms.Error)
		require.NotNil(t, out.Clocks)
		require.True(t, out.Clocks.Known)
		require.InDelta(t, 0.05, out.Clocks.Apart, 0.005)
		require.Len(t, out.Clocks.Servers, 3)
		require.Len(t, out.Processes, 2)
		require.Empty(t, out.ProcessesError)
		_, err = mapclient.AgreeOnCounting(ctx, s, mapclient.ByLooks, false)
		require.NoError(t, err)
		require.Equal(t, mapclient.ByLooks.String(), get().Terms.Sizes)

		// The list of all data centres is asked for once in ten seconds.
		lists := s.lists
		require.Positive(t, lists)
		time.Sleep(9 * time.Second)
		get()
		require.Equal(t, lists, s.lists)
		time.Sleep(time.Second)
		get()
		require.Greater(t, s.lists, lists)

		s.away = true
		time.Sleep(10 * time.Second)
		began := time.Now()
		out = get()
		require.InDelta(t, 2, time.Since(began).Seconds(), 0.5)
		require.Len(t, out.Processes, 2, "the list of this data centre")
		require.NotEmpty(t, out.ProcessesError)
		lists = s.lists
		require.NotEmpty(t, get().ProcessesError)
		require.Equal(t, lists, s.lists, "not asked again at once")

		s.gone = true
		time.Sleep(10 * time.Second)
		out = get()
		require.Contains(t, out.ProcessesError, "all are away")
		require.Len(t, out.Processes, 1)
		lists = s.lists
		get()
		require.Greater(t, s.lists, lists, "asked again: the reason may be that of one request")
	})
}

// What was decided about a bucket is explained; of a bucket without decisions there is nothing to say.
func TestExplanations(t *testing.T) {
	inTime(t, func(x *console) {
		require.NoError(x, x.c.CreateBucket(x.Context(), "b"))
		x.load("b", 20, 60)
		require.NoError(x, x.c.CreateBucket(x.Context(), "fresh"))
		var e adminapi.Explanation
		x.get("/v1/explain?bucket=b", &e)
		require.Equal(x, "b", e.Bucket)
		require.NotEmpty(x, e.Looks)
		require.Equal(x, http.StatusNotFound, x.ask("GET", "/v1/explain?bucket=fresh", "", nil))
		require.Equal(x, http.StatusNotFound, x.ask("GET", "/v1/explain?bucket=none", "", nil))
		require.Equal(x, http.StatusBadRequest, x.ask("GET", "/v1/explain", "", nil))
	})
}

// While a backup goes on, its progress is told each second; a client that goes ends it.
func TestProgressOfABackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &backup{ill: ill{Store: memstore.New()}}
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		balance := balancer.For(1000, 0, time.Hour, time.Second)
		client, end := adminapi.Within(adminapi.New(engine.New(engine.Options{
			Store: s, Buckets: c, Balance: &balance,
		})))
		defer end()
		var seen []int
		size, err := client.Backup(t.Context(), "/d", func(s store.Size) { seen = append(seen, s.Files) })
		require.NoError(t, err)
		require.Equal(t, 5, size.Files)
		require.Equal(t, []int{1, 2, 3, 4, 5}, seen)
		ctx, stop := context.WithCancelCause(t.Context())
		enough := errors.New("enough of it")
		size, err = client.Backup(ctx, "/d", func(s store.Size) {
			if s.Files == 2 {
				stop(enough)
			}
		})
		require.ErrorIs(t, err, enough)
		require.Equal(t, 2, size.Files)
		synctest.Wait()
		require.Equal(t, 1, s.stopped)
	})
}

// backup takes a second for each of five files.
type backup struct {
	ill
	stopped int
}

func (b *backup) Backup(ctx context.Context, _ string, progress func(store.Size)) (size store.Size, err error) {
	time.Sleep(time.Millisecond)
	for size.Files < 5 {
		size.Files++
		progress(size)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			b.stopped++
			return size, store.Wrap("back up", ctx.Err())
		}
	}
	return size, nil
}
