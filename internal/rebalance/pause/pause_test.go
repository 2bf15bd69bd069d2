package pause_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

var (
	noon = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	here = store.BucketID(uuid.New())
	far  = store.BucketID(uuid.New())
)

func TestSetAndLift(t *testing.T) {
	s := memstore.New()
	ctx := t.Context()
	now := noon
	gate := pause.NewGate(s, nil, time.Second, func() time.Time { return now })
	look := func(id store.BucketID) (pause.Pause, bool) {
		st, err := pause.Read(ctx, s, store.Serial)
		require.NoError(t, err)
		return st.Of(id, now)
	}
	set := func(id *store.BucketID, p pause.Pause) (pause.Pause, bool) {
		holds, fresh, err := pause.Set(ctx, s, id, p, now)
		require.NoError(t, err)
		return holds, fresh
	}
	lifted, err := pause.Lift(ctx, s, nil)
	require.NoError(t, err)
	require.False(t, lifted)
	require.NoError(t, gate.Begin(ctx, here, 1))

	holds, fresh := set(&here, pause.Pause{By: "me", Why: strings.Repeat("é", 500), Since: now})
	require.True(t, fresh)
	require.Len(t, holds.Why, 200)
	p, paused := look(here)
	require.True(t, paused)
	require.Equal(t, holds, p)
	_, paused = look(far)
	require.False(t, paused)
	var refused *pause.Error
	require.ErrorAs(t, gate.Begin(ctx, here, 2), &refused)
	require.ErrorIs(t, refused, store.Conflict)
	require.ErrorContains(t, refused, "since 2024-05-01T12:00:00Z by me (é")
	require.NoError(t, gate.Begin(ctx, far, 2))

	// Of all: what is paused already stays as it was, and ends no sooner.
	until := noon.Add(time.Minute)
	set(nil, pause.Pause{By: "me", Since: now, Until: until})
	holds, fresh = set(nil, pause.Pause{By: "you", Since: now.Add(1), Until: until.Add(-time.Second)})
	require.False(t, fresh)
	require.Equal(t, pause.Pause{By: "me", Since: noon, Until: until}, holds)
	holds, _ = set(nil, pause.Pause{By: "you", Since: now.Add(1), Until: until.Add(time.Second)})
	require.Equal(t, pause.Pause{By: "me", Since: noon, Until: until.Add(time.Second)}, holds)
	require.ErrorAs(t, gate.Begin(ctx, far, 3), &refused)

	// It ends by itself; for movers a little later, as clocks differ.
	now = until.Add(1500 * time.Millisecond)
	_, paused = look(far)
	require.False(t, paused)
	require.ErrorAs(t, gate.Begin(ctx, far, 3), &refused)
	now = until.Add(2500 * time.Millisecond)
	require.NoError(t, gate.Begin(ctx, far, 3))
	_, fresh = set(nil, pause.Pause{Since: now})
	require.True(t, fresh)

	lifted, err = pause.Lift(ctx, s, nil)
	require.NoError(t, err)
	require.True(t, lifted)
	_, paused = look(here)
	require.False(t, paused, "that of all ends those of buckets, too")

	for i := range 100 {
		id := store.BucketID(uuid.New())
		if _, _, err = pause.Set(ctx, s, &id, pause.Pause{By: strings.Repeat("x", 300), Why: strings.Repeat("y", 300),
			Since: now}, now); err != nil {
			require.Equal(t, 80, i)
			break
		}
	}
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "pause all")
}

// world is a store with buckets.
func world(t *testing.T, s store.Store, buckets int) (*listing.Client, []store.BucketID) {
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	for i := range buckets {
		require.NoError(t, c.CreateBucket(t.Context(), fmt.Sprintf("bucket-%d", i)))
	}
	var ids []store.BucketID
	for info, err := range c.Buckets(t.Context(), "", "") {
		require.NoError(t, err)
		ids = append(ids, info.ID)
	}
	return c, ids
}

// Begins whose end nobody came to know are struck out when there are too many, and what is
// noted for good reason is not.
func TestBeginsThatNobodyEnds(t *testing.T) {
	s := memstore.New()
	c, ids := world(t, s, 2)
	ctx := t.Context()
	gate := pause.NewGate(s, mapclient.Of(c), 0, time.Now)
	root, err := mapclient.Of(c).Load(ctx, ids[0])
	require.NoError(t, err)
	last := root.Epoch
	for range 250 {
		require.NoError(t, gate.Begin(ctx, ids[0], root.Epoch))
		last = root.Epoch
		require.NoError(t, mapclient.Of(c).Swap(ctx, partmap.Again(root, mapclient.Of(c).Stamp())))
		root, err = mapclient.Of(c).Load(ctx, ids[0])
		require.NoError(t, err)
	}
	require.Equal(t, last+1, root.Epoch)
	// Swaps that may come at any time are never forgotten: others have to wait.
	for i := range uint64(250) {
		if err = gate.Begin(ctx, ids[1], root.Epoch+1000+i); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, store.Unavailable)
	// Those that ended are.
	gate.End(ids[1], root.Epoch+1000)
	require.NoError(t, gate.Begin(ctx, ids[1], root.Epoch+5000))
}

// Whoever swaps a root that Begin noted before the pause, late, meets a Conflict, and only
// those roots are touched.
func TestQuietShutsOutWhatWasNoted(t *testing.T) {
	s := memstore.New()
	c, ids := world(t, s, 3)
	ctx := t.Context()
	gate := pause.NewGate(s, mapclient.Of(c), 0, time.Now)
	require.ErrorIs(t, pause.Quiet(ctx, s, mapclient.Of(c), nil, time.Now, nil), store.Conflict)
	var roots []*partmap.Root
	for _, id := range ids {
		root, err := mapclient.Of(c).Load(ctx, id)
		require.NoError(t, err)
		roots = append(roots, root)
	}
	require.NoError(t, gate.Begin(ctx, ids[0], roots[0].Epoch))
	require.NoError(t, gate.Begin(ctx, ids[1], roots[1].Epoch))
	late := partmap.Again(roots[0], mapclient.Of(c).Stamp())
	require.NoError(t, mapclient.Of(c).Swap(ctx, partmap.Again(roots[1], mapclient.Of(c).Stamp())))
	_, _, err := pause.Set(ctx, s, nil, pause.Pause{Since: noon}, noon)
	require.NoError(t, err)
	var last pause.Progress
	require.NoError(t, pause.Quiet(ctx, s, mapclient.Of(c), nil, time.Now, func(p pause.Progress) { last = p }))
	require.True(t, last.Scanned)
	require.Equal(t, 4, last.Roots, "the list of buckets has a root, too")
	require.Empty(t, last.Moving)
	require.ErrorIs(t, mapclient.Of(c).Swap(ctx, late), store.Conflict)
	for i, more := range []uint64{1, 1, 0} {
		root, err := mapclient.Of(c).Load(ctx, ids[i])
		require.NoError(t, err)
		require.Equal(t, roots[i].Epoch+more, root.Epoch)
	}
	// Nothing is left to shut out.
	require.NoError(t, pause.Quiet(ctx, s, mapclient.Of(c), nil, time.Now, nil))
	root, err := mapclient.Of(c).Load(ctx, ids[0])
	require.NoError(t, err)
	require.Equal(t, roots[0].Epoch+1, root.Epoch)
}

// A batch in flight is waited for; who ends the pause meanwhile ends the wait.
func TestQuietWaits(t *testing.T) {
	s := memstore.New()
	c, ids := world(t, s, 2)
	ctx := t.Context()
	root, err := mapclient.Of(c).Load(ctx, ids[1])
	require.NoError(t, err)
	edit := partmap.NewEdit(root, mapclient.Of(c).Stamp(), nil)
	_, err = edit.Begin(partmap.Move{Start: nil, End: nil, Parts: []partmap.Part{{To: store.PartitionID(uuid.New())}}})
	require.NoError(t, err)
	change, err := edit.Change()
	require.NoError(t, err)
	require.NoError(t, mapclient.Of(c).Swap(ctx, change))
	_, _, err = pause.Set(ctx, s, nil, pause.Pause{Since: noon}, noon)
	require.NoError(t, err)

	short, stop := context.WithCancel(ctx)
	err = pause.Quiet(short, s, mapclient.Of(c), nil, time.Now, func(p pause.Progress) {
		if p.Scanned {
			require.Len(t, p.Moving, 1)
			require.Equal(t, ids[1], p.Moving[0].Bucket)
			require.Equal(t, partmap.Marking, p.Moving[0].Batches[0].Phase)
			stop()
		}
	})
	require.ErrorIs(t, err, store.Timeout)
	require.NoError(t, pause.Quiet(ctx, s, mapclient.Of(c), &ids[0], time.Now, nil), "that one does not move")

	lifted := false
	err = pause.Quiet(ctx, s, mapclient.Of(c), nil, time.Now, func(p pause.Progress) {
		if p.Scanned && !lifted {
			lifted = true
			_, err := pause.Lift(ctx, s, nil)
			require.NoError(t, err)
			_, _, err = pause.Set(ctx, s, nil, pause.Pause{Since: noon.Add(1)}, noon)
			require.NoError(t, err)
		}
	})
	require.ErrorIs(t, err, store.Conflict)
	require.ErrorContains(t, err, "was ended by somebody")
}

// Answers are lost, and swaps land late: what was asked for holds all the same.
func TestFaults(t *testing.T) {
	for seed := range uint64(50) {
		inner := memstore.New()
		s, faults := faultstore.New(inner, faultstore.Options{
			Seed:  seed,
			Rates: faultstore.Rates{Refuse: .1, Lose: .2},
			PerOp: map[faultstore.Op]faultstore.Rates{faultstore.Swap: {Refuse: .1, Lose: .2, Late: .2}},
		})
		ctx := t.Context()
		for {
			if _, _, err := pause.Set(ctx, s, nil, pause.Pause{Since: noon}, noon); err == nil {
				break
			}
		}
		require.NoError(t, faults.Flush(ctx))
		st, err := pause.Read(ctx, inner, store.Serial)
		require.NoError(t, err)
		require.NotNil(t, st.All, "seed %d", seed)
		for {
			if _, err := pause.Lift(ctx, s, nil); err == nil {
				break
			}
		}
		require.NoError(t, faults.Flush(ctx))
		st, err = pause.Read(ctx, inner, store.Serial)
		require.NoError(t, err)
		require.Nil(t, st.All, "seed %d", seed)
	}
}

// A damaged register stops what would begin, and says so.
func TestDamage(t *testing.T) {
	s := memstore.New()
	ctx := t.Context()
	v := store.Version{Epoch: 1, Token: storekit.NewToken()}
	require.NoError(t, s.Swap(ctx, store.Process, []byte("pause"), store.Version{},
		store.Record{Version: v, Blob: []byte("what is this")}))
	gate := pause.NewGate(s, nil, 0, time.Now)
	require.ErrorIs(t, gate.Begin(ctx, here, 1), store.Corrupt)
	_, _, err := pause.Set(ctx, s, nil, pause.Pause{Since: noon}, noon)
	require.ErrorIs(t, err, store.Corrupt)
}
