package countbook

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// A shared backend of counts, such as Redis, may lose everything at once. To know the sizes again, each row of a store
// would have to be read, which takes hours per 10^9 rows. So the sizes are also kept beside the rows: one small record
// per partition. A record is written at each recount, and whenever the estimate has changed by at least one step since
// the last record. An example, of a partition of at most 100,000 rows with a step of 6,250:
//
//	12:00  a recount has found 40,000 rows    kept: 40,000 rows as of 12:00
//	12:10  43,000 rows by estimate            not kept: less than a step
//	12:20  47,000 rows by estimate            kept: 47,000 rows as of 12:20
//	12:25  Redis is wiped; 500 rows are put   estimate: 500 rows, nothing is Known
//	12:26  the balancer asks for its Stats    Correct by the kept size: 47,500 rows, Known
//
// A restored size lacks the writes between the last call of Stats before the loss and the loss, and up to one step of
// changes. Like every size, it is confirmed by a recount later, in the background.

// A Keeper stores the sizes of partitions in the store itself, beside the rows, as a copy for a backend that may lose
// its counts. The stored sizes are hints: they may be lost, or come back after ForgetSize. The methods of a Keeper are
// safe for concurrent use, and fail with Unavailable or Timeout.
type Keeper interface {
	// KeepSize stores the size of a partition. It does nothing if a size with a later time At is stored.
	KeepSize(ctx context.Context, s store.PartitionSize) error
	// KeptSize returns the stored size of the partition p, without its time At. If no size is stored, Encoded is nil.
	KeptSize(ctx context.Context, p store.Partition) (store.PartitionSize, error)
	// ForgetSize deletes the stored size of the partition p.
	ForgetSize(ctx context.Context, p store.Partition) error
}

// KeepOptions are the options of Keep, which stores copies of the sizes of partitions: how often to store a size, and
// functions to call.
type KeepOptions struct {
	// Step is the number of rows by which the estimate for a partition must change before the size is stored anew. Step
	// is required.
	Step int64
	// Restored is called after sizes were restored from their copies, which is a sign that other counts may be lost,
	// too. It may be nil.
	Restored func()
	// Failed is called with the errors of the Keeper, which do not make other calls fail. If Failed is nil, the errors
	// are dropped.
	Failed func(error)
	// Now returns the wall clock; time.Now by default.
	Now func() time.Time
}

const (
	// keptAtOnce is the largest number of concurrent requests to a Keeper in one call.
	keptAtOnce = 32
	// keptKnown is the largest number of partitions whose last stored size is remembered, with about 100 bytes each.
	// Beyond it the size that was used the longest ago is forgotten.
	keptKnown = 1 << 17
)

// Keep returns a backend that counts in the backend b, and also stores a copy of each partition's size with the Keeper
// k. If b loses its counts, the sizes are restored from the copies.
//
// Sizes are copied when Stats is called. So Keep is for the one process that watches the sizes of all partitions.
func Keep(b counter.Backend, k Keeper, o KeepOptions) counter.Backend {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Restored == nil {
		o.Restored = func() {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	known, _ := lru.New[store.PartitionID, int64](keptKnown) // it fails only for a size that is not positive
	return &sizing{Backend: b, keeper: k, o: o, rows: known}
}

// sizing is the Backend that Keep returns. It passes all calls to another Backend, and stores copies of the sizes of
// partitions with a Keeper.
type sizing struct {
	counter.Backend
	keeper Keeper
	o      KeepOptions
	rows   *lru.Cache[store.PartitionID, int64] // the number of rows that was kept last
}

// Correct replaces the estimate for the partition p by the result c of a recount. It also stores a copy of the new size
// with the Keeper. It implements Backend.
func (k *sizing) Correct(ctx context.Context, p store.Partition, c *counter.Count) error {
	if err := k.Backend.Correct(ctx, p, c); err != nil {
		return err
	}
	// An estimate may have been kept while the rows were counted: the corrected one is newer.
	now := k.o.Now()
	all, err := k.Backend.Stats(ctx, []store.Partition{p})
	if err != nil {
		k.failed(ctx, err)
		return nil
	}
	if all[0].Known {
		k.keep(ctx, &all[0], now)
	}
	return nil
}

// Forget deletes the counts of partitions that no longer exist, and the copies of their sizes. It implements Backend.
func (k *sizing) Forget(ctx context.Context, partitions ...store.Partition) error {
	if err := k.Backend.Forget(ctx, partitions...); err != nil {
		return err
	}
	k.together(ctx, len(partitions), func(ctx context.Context, i int) error {
		k.rows.Remove(partitions[i].ID)
		return k.keeper.ForgetSize(ctx, partitions[i])
	})
	return nil
}

// Stats returns the estimates for the given partitions, in the same order. It stores copies of the sizes that have
// changed enough, and restores lost sizes from their copies. It implements Source.
func (k *sizing) Stats(ctx context.Context, partitions []store.Partition) ([]counter.Stats, error) {
	all, err := k.Backend.Stats(ctx, partitions)
	if err != nil {
		return all, err
	}
	var lost, changed []int
	for i := range all {
		switch s := &all[i]; {
		case s.Recounted.IsZero():
			lost = append(lost, i)
		case s.Known && k.differs(s):
			changed = append(changed, i)
		}
	}
	now := k.o.Now()
	k.together(ctx, len(changed), func(ctx context.Context, n int) error {
		k.keep(ctx, &all[changed[n]], now)
		return nil
	})
	return k.restore(ctx, all, lost)
}

// restore replaces counts that the backend has lost by the sizes that the Keeper has stored. The parameter `lost` has
// the indexes, in `all`, of the partitions that were never recounted. The result is `all` with new Stats for these
// partitions. A partition without a stored size stays as it is.
func (k *sizing) restore(ctx context.Context, all []counter.Stats, lost []int) ([]counter.Stats, error) {
	// The partitions are corrected one after the other, as all corrections change the same record in the backend.
	kept := make([]store.PartitionSize, len(lost))
	k.together(ctx, len(lost), func(ctx context.Context, n int) (err error) {
		kept[n], err = k.keeper.KeptSize(ctx, all[lost[n]].Partition)
		return err
	})
	var places []int
	var again []store.Partition
	for n, at := range lost {
		if kept[n].Encoded == nil {
			continue
		}
		p := all[at].Partition
		var s size
		if err := s.decode(kept[n].Encoded); err != nil {
			k.failed(ctx, store.Wrap("the size of "+p.String()+" that was kept", err))
			continue
		}
		if err := k.Backend.Correct(ctx, p, s.count()); err != nil {
			return all, err
		}
		k.rows.Add(p.ID, s.rows)
		places, again = append(places, at), append(again, p)
	}
	if len(again) == 0 {
		return all, nil
	}
	k.o.Restored()
	restored, err := k.Backend.Stats(ctx, again)
	for i := range restored {
		all[places[i]] = restored[i]
	}
	return all, err
}

// differs reports whether the size of a partition must be stored anew. It compares s.Rows, the estimated number of
// rows, with the number that was stored last. If that is not known, it compares with the result of the last recount.
// The result is true if the numbers differ by Step or more.
func (k *sizing) differs(s *counter.Stats) bool {
	kept, ok := k.rows.Get(s.Partition.ID)
	if !ok {
		kept = s.RecountedRows
	}
	return max(s.Rows-kept, kept-s.Rows) >= k.o.Step
}

// keep gives the size in the estimate s to the Keeper, which stores the size beside the rows of the partition. `at` is
// the time for which the size holds: about the time when the backend returned the estimate.
func (k *sizing) keep(ctx context.Context, s *counter.Stats, at time.Time) {
	kept := size{
		at: at, counted: s.Recounted, rows: s.Rows, bytes: s.Bytes, markers: s.Markers, from: s.From, to: s.To, top: s.Top,
	}
	encoded := store.PartitionSize{Partition: s.Partition, Encoded: kept.encode(), At: at}
	if err := k.keeper.KeepSize(ctx, encoded); err != nil {
		k.failed(ctx, err)
		return
	}
	k.rows.Add(s.Partition.ID, s.Rows)
}

// together calls f with each number from 0 to n-1, in up to 32 goroutines, and waits for all calls. If calls fail,
// together reports one of the errors to KeepOptions.Failed.
func (k *sizing) together(ctx context.Context, n int, f func(ctx context.Context, i int) error) {
	var g errgroup.Group
	g.SetLimit(keptAtOnce)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	if err := g.Wait(); err != nil {
		k.failed(ctx, err)
	}
}

// failed passes the error err to KeepOptions.Failed. It does nothing if ctx has ended, as the error may just be the end
// of ctx.
func (k *sizing) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		k.o.Failed(err)
	}
}

// size is the size of a partition as it is stored beside the rows. It is the decoded content of a store.PartitionSize.
type size struct {
	at, counted          time.Time // the time of the estimate, and the start of the last recount
	rows, bytes, markers int64
	from, to             uint64 // hashes of the bounds
	top                  []byte
}

// count returns the stored size of a partition in the form of a recount's result, with which Correct can restore a lost
// count. Writes that were counted since the loss are added to the size.
func (s *size) count() *counter.Count {
	return &counter.Count{
		Started: s.at, Rows: s.rows, Bytes: s.bytes, Markers: s.markers, Top: s.top,
		Counted: s.counted, From: s.from, To: s.to,
	}
}

// encode returns the encoded size, which becomes store.PartitionSize.Encoded.
func (s *size) encode() []byte {
	e := keysample.NewEncoder(nil, keysample.Form)
	e.Time(s.at)
	e.Time(s.counted)
	for _, n := range []int64{s.rows, s.bytes, s.markers} {
		e.Int(n)
	}
	e.Fixed(s.from)
	e.Fixed(s.to)
	e.Bytes(s.top[:min(len(s.top), keysample.MaxTop)])
	return e.B
}

// decode sets s from b, which encode has made. It fails with Corrupt if b is damaged, and with InvalidArgument if a
// newer program wrote b.
func (s *size) decode(b []byte) error {
	d := keysample.NewDecoder(b)
	if _, err := d.Begin("a size", keysample.Form); err != nil {
		return err
	}
	s.at, s.counted = d.Time(), d.Time()
	for _, n := range []*int64{&s.rows, &s.bytes, &s.markers} {
		*n = d.Int()
		d.Bad = d.Bad || *n < 0
	}
	s.from, s.to, s.top = d.Fixed(), d.Fixed(), d.Bytes()
	d.Bad = d.Bad || s.at.IsZero() || s.counted.IsZero()
	return d.End("a size")
}
