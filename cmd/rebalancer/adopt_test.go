package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// manyParts is a source of so many parts with a row each.
type manyParts int

func (m manyParts) Parts() int { return int(m) }

func (m manyParts) Page(_ context.Context, part int, s adopt.Span, _ int, _ bool) ([]adopt.Row, error) {
	row := adopt.Row{Key: fmt.Appendf(nil, "%06d", part)}
	if s.From != nil && bytes.Compare(row.Key, s.From) <= 0 || s.To != nil && bytes.Compare(row.Key, s.To) >= 0 {
		return nil, nil
	}
	return []adopt.Row{row}, nil
}

func (m manyParts) Get(context.Context, int, []byte) (adopt.Row, bool, error) {
	return adopt.Row{}, false, nil
}

func (m manyParts) Same(a, b []byte) bool { return bytes.Equal(a, b) }

func TestAdoptNamesTheFlagWhereMemoryIsTooSmall(t *testing.T) {
	client, err := listing.New(memstore.New(), listing.Options{})
	require.NoError(t, err)
	require.NoError(t, client.CreateBucket(t.Context(), "photos"))
	c := adoptFlags{Bucket: "photos", Verify: true, Parallel: 1, Format: "text", Progress: "none", memory: 1 << 20}
	var out, errs bytes.Buffer
	err = c.run(t.Context(), stdio{out: &out, err: &errs}, manyParts(10_000), "task", client)
	require.ErrorIs(t, err, adopt.ErrMemory)
	require.ErrorContains(t, err, "10000 partitions take more than 1 MiB")
	require.ErrorContains(t, err, "a larger --memory-mib")
}

// lagging is a store whose rows have not come to this data centre yet.
type lagging struct{ store.Store }

func (l lagging) Get(context.Context, store.Partition, []byte) (store.Row, bool, error) {
	return store.Row{}, false, nil
}

func (l lagging) Slice(context.Context, store.Partition, store.Bounds, store.SliceOptions) (store.Page, error) {
	return store.Page{}, nil
}

func (l lagging) EachQuorum() store.Rows { return l.Store }

// An entry that was acknowledged in another data centre is none that the bucket lacks, for all that compares.
func TestComparisonsReadEveryDataCentre(t *testing.T) {
	client, err := listing.New(lagging{memstore.New()}, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, client.CreateBucket(t.Context(), "photos"))
	require.NoError(t, client.Bucket("photos").Put(t.Context(), []byte("000000"), nil))
	for _, c := range []adoptFlags{{Verify: true}, {CatchUp: true}} {
		c.Bucket, c.Parallel, c.Format, c.Progress, c.memory = "photos", 1, "text", "none", 1<<20
		var out, errs bytes.Buffer
		require.NoError(t, c.run(t.Context(), stdio{out: &out, err: &errs}, found{manyParts(1)}, "task", client))
		require.Contains(t, out.String(), ", 0 keys differ")
	}
}

// found is a source whose rows are found by their keys.
type found struct{ manyParts }

func (f found) Get(_ context.Context, part int, key []byte) (adopt.Row, bool, error) {
	return adopt.Row{Key: key}, true, nil
}
