package balancer

import (
	"context"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Figures calls f for each range of a bucket, in the order of the keys, with the counts of its partition. The
// parameters of f are:
//   - rg is the range, which f must not keep.
//   - now has the counts of the partition that takes the writes of the range, or is nil if wanted returns false for the
//     range.
//   - leaves has the counts of the partition that a moving range leaves, or is nil if there is none.
//
// Figures changes nothing.
func (b *Balancer) Figures(
	ctx context.Context, id store.BucketID, wanted func(*partmap.Range) bool,
	f func(rg *partmap.Range, now, leaves *counter.Stats),
) error {
	_, err := b.each(ctx, id, func(run []partmap.Range) error {
		var parts []store.Partition
		ask := func(p store.PartitionID) { parts = append(parts, store.Partition{Bucket: id, ID: p}) }
		for i := range run {
			if rg := &run[i]; wanted(rg) {
				if ask(rg.WriteTo()); rg.WriteTo() != rg.Partition {
					ask(rg.Partition)
				}
			}
		}
		var stats []counter.Stats
		if len(parts) > 0 {
			var err error
			if stats, err = b.counts.Stats(ctx, parts); err != nil {
				return err
			}
		}
		next := func(p store.PartitionID) *counter.Stats {
			if len(stats) == 0 || stats[0].Partition.ID != p {
				return nil
			}
			s := &stats[0]
			stats = stats[1:]
			return s
		}
		for i := range run {
			rg := &run[i]
			now := next(rg.WriteTo())
			var leaves *counter.Stats
			if now != nil && rg.WriteTo() != rg.Partition {
				leaves = next(rg.Partition)
			}
			f(rg, now, leaves)
		}
		return nil
	})
	return err
}
