package assembly_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// kept is a store that processes open one after the other.
type kept struct{ memstore.Store }

func (kept) Close() error { return nil }

// A process that would know sizes in another way than those before it does not start.
func TestAProcessThatCountsOtherwiseIsRefused(t *testing.T) {
	s := kept{memstore.New()}
	open := func(c mapclient.Counting, change bool) error {
		db, err := assembly.Open(t.Context(), s, assembly.Options{
			Shared: &mapclient.Options{Lease: time.Second}, Counting: c, ChangeTerms: change,
		})
		if err == nil {
			require.NotZero(t, db.Counting)
			require.NoError(t, db.Close())
		}
		return err
	}
	require.NoError(t, open(mapclient.InRedis, false))
	require.NoError(t, open(mapclient.InRedis, false))
	require.NoError(t, open(0, false), "one that neither writes nor leads")
	for _, other := range []mapclient.Counting{mapclient.NotCounted, mapclient.ByLooks, mapclient.Elsewhere} {
		err := open(other, false)
		require.ErrorIs(t, err, store.InvalidArgument)
		require.ErrorContains(t, err, "counted in Redis")
	}
	require.NoError(t, open(mapclient.ByLooks, true))
	require.NoError(t, open(mapclient.Elsewhere, false))
	require.ErrorIs(t, open(mapclient.InRedis, false), store.InvalidArgument)
}

// TestTermsChangeOnlyWithNobodyElse shows that terms are not changed below a process that goes by them, and that a
// process which asks for those that are in force is no change.
func TestTermsChangeOnlyWithNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := kept{memstore.New()}
		open := func(name string, lease time.Duration) (*assembly.DB, error) {
			return assembly.Open(t.Context(), s, assembly.Options{
				Shared: &mapclient.Options{Lease: lease, Clocks: 1}, Counting: mapclient.ByLooks, ChangeTerms: true,
				Self: processes.Process{Name: name},
			})
		}
		first, err := open("the first", time.Second)
		require.NoError(t, err)
		second, err := open("the second", time.Second)
		require.NoError(t, err)
		require.NoError(t, second.Close())
		_, err = open("another", 2*time.Second)
		require.ErrorIs(t, err, store.InvalidArgument)
		require.ErrorContains(t, err, "another one runs: the first said so 0s ago")
		require.NoError(t, first.Close())
		other, err := open("another", 2*time.Second)
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, mapclient.Of(other.Client).Leases().Length)
		require.NoError(t, other.Close())

		// One that was killed left its row.
		killed, err := processes.Appear(t.Context(), s, processes.Process{Name: "a dead one"}, nil)
		require.NoError(t, err)
		row, err := processes.List(t.Context(), s)
		require.NoError(t, err)
		require.Len(t, row, 1)
		self := killed.Self()
		killed.Close()
		value, err := json.Marshal(&self)
		require.NoError(t, err)
		require.NoError(t, s.Put(t.Context(), store.Partition{Bucket: processes.Bucket, ID: store.PartitionID(processes.Bucket)},
			store.Row{Key: self.ID[:], Value: store.EntryCell(value), Timestamp: store.Timestamp(self.Seen.UnixMicro()) + 1}))
		_, err = open("another", time.Second)
		require.ErrorContains(t, err, "another one runs: a dead one said so 0s ago")
		time.Sleep(processes.Silent + time.Second)
		last, err := open("another", time.Second)
		require.NoError(t, err)
		require.NoError(t, last.Close())
	})
}

// clocked is a store whose servers have clocks, as those have that processes share.
type clocked struct{ kept }

func (clocked) Servers(context.Context) ([]store.Server, error) { return nil, nil }

func (clocked) Time(context.Context, string) (time.Time, error) { return time.Now(), nil }

// TestASharedStoreIsNotOpenedAlone: who counts leases in a store that others use would move rows under their hands.
func TestASharedStoreIsNotOpenedAlone(t *testing.T) {
	_, err := assembly.Open(t.Context(), clocked{kept{memstore.New()}}, assembly.Options{})
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "other processes use this store, too")
}

// TestADamagedTerm stops all but a check that was told the terms.
func TestADamagedTerm(t *testing.T) {
	s, o := kept{memstore.New()}, assembly.Options{
		Shared: &mapclient.Options{Lease: time.Second, MaxClockSkew: time.Second, Clocks: 1},
	}
	open := func(o assembly.Options) error {
		db, err := assembly.Open(t.Context(), s, o)
		if err != nil {
			return err
		}
		return db.Close()
	}
	ways := o
	ways.Counting = mapclient.InRedis
	require.NoError(t, open(ways))
	for _, term := range []string{"counting", "lease", "clock skew"} {
		old, err := s.Read(t.Context(), store.Process, []byte(term), store.Serial)
		require.NoError(t, err)
		damaged := store.Record{Version: record.Next(old.Version), Blob: []byte("damaged")}
		require.NoError(t, s.Swap(t.Context(), store.Process, []byte(term), old.Version, damaged))
		require.ErrorIs(t, open(o), store.Corrupt)
		check := o
		check.Damaged = true
		require.NoError(t, open(check))
	}
}

// gone are counters that do not answer.
type gone struct{ counter.Backend }

func (gone) Written(_ context.Context, mark uint64) ([]store.Partition, uint64, error) {
	return nil, mark, store.Errorf(store.Unavailable, "gone")
}

// What is not looked after is in the log, in the metrics and in what the status says, with the reason.
func TestWhatIsNotLookedAfter(t *testing.T) {
	for name, c := range map[string]struct {
		shared   bool
		counting mapclient.Counting
		every    time.Duration
		counts   counter.Backend
		why      string
		warned   bool
	}{
		"counted":                    {true, mapclient.InRedis, time.Minute, countbook.NewMemory(nil), "", false},
		"by looks":                   {true, mapclient.ByLooks, time.Minute, nil, "", false},
		"not at all":                 {true, mapclient.NotCounted, 0, nil, "give every process the same --counter", true},
		"a directory":                {false, 0, time.Minute, countbook.NewMemory(nil), "", false},
		"a directory without checks": {false, 0, 0, nil, "--rebalance-interval above 0", true},
		"counters that are away": {
			false, 0, 10 * time.Millisecond, gone{countbook.NewMemory(nil)}, "the counters have not answered since 2", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := assembly.Options{Counting: c.counting, OpenCounter: func() (counter.Backend, error) { return c.counts, nil }}
			r := engine.Options{Balance: &balancer.Options{Policy: policy.Default(100), Every: c.every}}
			if c.shared {
				o.Shared, r.Leader = &mapclient.Options{Lease: time.Second}, &engine.Candidate{}
			}
			var log bytes.Buffer
			db, err := assembly.Open(t.Context(), memstore.New(), o)
			require.NoError(t, err)
			r.Log = slog.New(slog.NewTextHandler(&log, nil))
			k := db.Balance(t.Context(), r)
			if c.why != "" {
				require.Eventually(t, func() bool { return k.Unattended() != "" }, 10*time.Second, 5*time.Millisecond)
			}
			require.Contains(t, k.Unattended(), c.why)
			require.Equal(t, c.why == "", k.Unattended() == "")
			registry := prometheus.NewRegistry()
			require.NoError(t, registry.Register(engine.Metrics{Rebalancer: k}))
			got, err := registry.Gather()
			require.NoError(t, err)
			found := false
			for _, m := range got {
				if m.GetName() == "evenkeel_sizes_unattended" {
					found = true
					require.Equal(t, c.why != "", m.GetMetric()[0].GetGauge().GetValue() == 1)
				}
			}
			require.True(t, found)
			require.NoError(t, db.Close())
			require.Equal(t, c.warned, strings.Contains(log.String(), "the sizes of partitions are not looked after"),
				log.String())
		})
	}
}

// Calls of a store that several processes share say that it is closed, once it is. Nothing was written.
func TestWritesAfterClose(t *testing.T) {
	db, err := assembly.Open(t.Context(), memstore.New(), assembly.Options{Shared: &mapclient.Options{Lease: time.Minute}})
	require.NoError(t, err)
	require.NoError(t, db.CreateBucket(t.Context(), "photos"))
	photos := db.Bucket("photos")
	require.NoError(t, photos.Put(t.Context(), []byte("k"), nil))
	require.NoError(t, db.Close())
	for what, err := range map[string]error{
		"put":    photos.Put(t.Context(), []byte("k"), nil),
		"batch":  photos.PutBatch(t.Context(), []listing.Entry{{Key: []byte("k")}}),
		"delete": photos.Delete(t.Context(), []byte("k")),
		"create": db.CreateBucket(t.Context(), "more"),
	} {
		require.ErrorIs(t, err, store.Unavailable, what)
		require.NotErrorIs(t, err, listing.ErrOutcomeUnknown, what)
		require.ErrorContains(t, err, "closed", what)
	}
}
