package repair_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

func key(i int) []byte { return fmt.Appendf(nil, "key-%05d", i) }

// rows of the bucket "b", in ranges that begin at every hundredth.
const (
	rows   = 500
	ranges = 5
)

// fixture is a store with three buckets in order: "b" with some rows and ranges,
// "empty", and "large", whose map has segments.
type fixture struct {
	t        testing.TB
	s        store.Store
	c        *listing.Client
	b, large store.BucketID
	o        repair.Options
}

func newFixture(t testing.TB, s store.Store) *fixture {
	ctx := context.Background()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	f := &fixture{t: t, s: s, c: c}
	var cuts [][]byte
	for i := 1; i < ranges; i++ {
		cuts = append(cuts, key(i*rows/ranges))
	}
	require.NoError(t, c.CreateBucket(ctx, "b", cuts...))
	require.NoError(t, c.CreateBucket(ctx, "empty"))
	cuts = cuts[:0]
	for i := range 300 {
		cuts = append(cuts, key(i))
	}
	require.NoError(t, c.CreateBucket(ctx, "large", cuts...))
	f.b, f.large = f.id("b"), f.id("large")
	for i := range rows {
		require.NoError(t, c.Bucket("b").Put(ctx, key(i), []byte("value")))
	}
	require.NoError(t, c.Bucket("large").Put(ctx, key(1), []byte("value")))
	f.o = repair.Options{Sleep: func(context.Context, time.Duration) error { return nil }}
	return f
}

func overStores(t *testing.T, f func(t *testing.T, s func(t testing.TB) store.Store)) {
	t.Run("Memory", func(t *testing.T) { f(t, func(testing.TB) store.Store { return memstore.New() }) })
	t.Run("Pebble", func(t *testing.T) {
		f(t, func(t testing.TB) store.Store {
			s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
			require.NoError(t, err)
			return s
		})
	})
}

func (f *fixture) id(name string) store.BucketID {
	owner, err := door.Client(f.c).Owner(context.Background(), name)
	require.NoError(f.t, err)
	require.NotZero(f.t, owner.ID)
	return owner.ID
}

// check runs a whole check with a client of its own: f's would not believe that a
// root can be damaged.
func (f *fixture) check(tune func(o *repair.Options)) ([]repair.Finding, repair.Summary) {
	c, err := listing.New(f.s, listing.Options{})
	require.NoError(f.t, err)
	o := f.o
	if tune != nil {
		tune(&o)
	}
	var mu sync.Mutex
	var found []repair.Finding
	o.Report = func(x repair.Finding) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, x)
	}
	sum, err := repair.New(f.s, c, o).All(context.Background())
	require.NoError(f.t, err)
	return found, sum
}

func mend(o *repair.Options) { o.Repair = true }

// later is a check that thinks that it is so much later.
func later(d time.Duration) func(o *repair.Options) {
	return func(o *repair.Options) { o.Now = func() time.Time { return time.Now().Add(d) } }
}

// swap replaces a register's record, whatever it was.
func (f *fixture) swap(t store.Table, k []byte, blob func(v store.Version, old []byte) []byte) {
	ctx := context.Background()
	old, err := f.s.Read(ctx, t, k, store.Serial)
	if store.KindOf(err) != store.NotFound {
		require.NoError(f.t, err)
	}
	next := store.Record{Version: store.Version{Epoch: old.Epoch + 1, Token: storekit.NewToken()}}
	next.Blob = blob(next.Version, old.Blob)
	require.NoError(f.t, f.s.Swap(ctx, t, k, old.Version, next))
}

// name makes a name lead to a bucket; to none, if id is zero.
func (f *fixture) name(name string, id store.BucketID) {
	f.swap(store.Directory, []byte(name), func(v store.Version, _ []byte) []byte {
		payload := binary.BigEndian.AppendUint64(append([]byte(nil), id[:]...), uint64(time.Now().UnixMicro()))
		return record.Seal(1, v, payload).Blob
	})
}

func (f *fixture) root(id store.BucketID) *partmap.Root {
	rec, err := f.s.Read(context.Background(), store.Roots, id[:], store.Serial)
	require.NoError(f.t, err)
	root, err := partmap.DecodeRoot(id, rec)
	require.NoError(f.t, err)
	return root
}

// change damages a root.
func (f *fixture) change(id store.BucketID, how func(r *partmap.Root)) {
	root := f.root(id)
	f.swap(store.Roots, id[:], func(v store.Version, _ []byte) []byte {
		root.Epoch, root.Token = v.Epoch, v.Token
		how(root)
		rec, err := partmap.EncodeRoot(root)
		require.NoError(f.t, err)
		return rec.Blob
	})
}

func (f *fixture) partition(id store.BucketID, i int) store.Partition {
	return store.Partition{Bucket: id, ID: f.root(id).Entries[i].Partition}
}

func (f *fixture) put(p store.Partition, k, cell []byte, ts store.Timestamp) {
	require.NoError(f.t, f.s.Put(context.Background(), p, store.Row{Key: k, Value: cell, Timestamp: ts}))
}

// list writes a line of the list of buckets.
func (f *fixture) list(name string, value []byte) {
	f.put(f.partition(door.ListOfBuckets, 0), []byte(name), store.EntryCell(value), now())
}

func line(id store.BucketID) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{1}, id[:]...), uint64(time.Now().UnixMicro()))
}

// now is after all that was written before, also where time stands still.
func now() store.Timestamp {
	time.Sleep(time.Millisecond)
	return store.Timestamp(time.Now().UnixMicro())
}

func fresh() store.PartitionID { return store.PartitionID(uuid.New()) }

func freshBucket() store.BucketID { return store.BucketID(uuid.New()) }
