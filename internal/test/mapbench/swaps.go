package mapbench

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// Swaps measures the times of swaps of a map's root. A swap includes the nodes that it writes and the update of the map
// clock, but not the waits of a mover.
type Swaps struct {
	Maps   *mapclient.Client
	Bucket store.BucketID
	// Took has the times of all swaps so far. Rewriting has the times of those swaps that also write nodes.
	Took, Rewriting []time.Duration
}

// Move does all swaps of a whole move of the range [start, end) to a new partition, as for a part of a split: the
// begin, the phases, the end and the sweep. Move does not wait between the swaps.
func (s *Swaps) Move(ctx context.Context, start, end []byte) error {
	mv := partmap.Move{Start: start, End: end, Parts: []partmap.Part{{Start: start, To: store.PartitionID(uuid.New())}}}
	var batch uint64
	if err := s.swap(ctx, true,
		func(e partmap.Edit) (err error) { batch, err = e.Begin(mv); return err }); err != nil {
		return err
	}
	for range 3 {
		if err := s.swap(ctx, false, func(e partmap.Edit) error { return e.Advance(batch) }); err != nil {
			return err
		}
	}
	if err := s.swap(ctx, true,
		func(e partmap.Edit) error { return e.Settle(batch, store.Bounds{Start: start, End: end}) }); err != nil {
		return err
	}
	return s.swap(ctx, true, func(e partmap.Edit) error { return e.Swept(batch) })
}

func (s *Swaps) swap(ctx context.Context, rewrites bool, edit func(partmap.Edit) error) error {
	root, err := s.Maps.Load(ctx, s.Bucket)
	if err != nil {
		return err
	}
	begun := time.Now()
	e := s.Maps.Edit(ctx, root)
	if err := edit(e); err != nil {
		return err
	}
	change, err := e.Change()
	if err != nil {
		return err
	}
	if err := s.Maps.Swap(ctx, change); err != nil {
		return err
	}
	took := time.Since(begun)
	s.Took = append(s.Took, took)
	if rewrites {
		s.Rewriting = append(s.Rewriting, took)
	}
	return nil
}
