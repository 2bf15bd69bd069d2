package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
	"github.com/evenkeel/evenkeel/store/storetest"
)

// A memstore that is "reopened" as it is tries the rules of reopening, and those
// for slow stores, without a disk.
func TestReopening(t *testing.T) {
	reopened := 0
	open := func(*testing.T) store.Store { return memstore.New() }
	storetest.RunWith(t, open, storetest.Options{Slow: true, Reopen: func(_ *testing.T, s store.Store) store.Store {
		reopened++
		return s
	}})
	require.Positive(t, reopened)
}

const brokenVariable = "EVENKEEL_BROKEN_STORE"

// bugs are mistakes that a store could make, each with a rule that must find it.
var bugs = map[string]struct {
	rule string
	open func() store.Store
}{
	"the smaller value wins ties": {"at a tie", func() store.Store { return smallerWins{memstore.New()} }},
	"removals forget late writes": {
		"a removal hides late puts", func() store.Store { return forgetful{memstore.New()} },
	},
	"removals spare equal timestamp": {"at a tie", func() store.Store { return sparing{memstore.New()} }},
	"StartExclusive is ignored":      {"a slice obeys bounds", func() store.Store { return inclusive{memstore.New()} }},
	"a full page is the last":        {"a slice obeys bounds", func() store.Store { return fullIsLast{memstore.New()} }},
	"the last page has more":         {"a slice obeys bounds", func() store.Store { return alwaysMore{memstore.New()} }},
	"timestamps are always there":    {"timestamps come only", func() store.Store { return stamped{memstore.New()} }},
	"batches are torn":               {"a batch is seen as a whole", func() store.Store { return torn{memstore.New()} }},
	"swaps look at the epoch alone":  {"register in clocks", func() store.Store { return tokenless{memstore.New()} }},
}

// TestBrokenStore is the suite over one of the broken stores, run by
// TestTheSuiteFindsBugs in a process of its own.
func TestBrokenStore(t *testing.T) {
	bug, ok := bugs[os.Getenv(brokenVariable)]
	if !ok {
		t.Skip(brokenVariable + " names no broken store")
	}
	storetest.Run(t, func(*testing.T) store.Store { return bug.open() })
}

func TestTheSuiteFindsBugs(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for name, bug := range bugs {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestBrokenStore$/^"+bug.rule)
			cmd.Env = append(os.Environ(), brokenVariable+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s", out)
			require.Contains(t, string(out), "--- FAIL: TestBrokenStore/", "%s", out)
			require.NotContains(t, string(out), "panic:", "%s", out)
		})
	}
}

type smallerWins struct{ memstore.Store }

func (s smallerWins) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	for _, r := range rows {
		if r.Value == nil {
			break
		}
		old, found, err := s.Get(ctx, p, r.Key)
		if err == nil && found && old.Timestamp == r.Timestamp && string(old.Value) <= string(r.Value) {
			return nil
		}
	}
	return s.Store.Put(ctx, p, rows...)
}

type forgetful struct{ memstore.Store }

func (s forgetful) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	page, err := s.Slice(ctx, p, b, store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true})
	for _, r := range page.Rows {
		if err == nil && r.Timestamp <= ts {
			err = s.Delete(ctx, p, r.Key, ts)
		}
	}
	return err
}

type sparing struct{ memstore.Store }

func (s sparing) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	return s.Store.Remove(ctx, p, b, ts-1)
}

type inclusive struct{ memstore.Store }

func (s inclusive) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	b.StartExclusive = false
	return s.Store.Slice(ctx, p, b, o)
}

type fullIsLast struct{ memstore.Store }

func (s fullIsLast) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := s.Store.Slice(ctx, p, b, o)
	page.More = page.More && len(page.Rows) < o.Limit
	return page, err
}

type alwaysMore struct{ memstore.Store }

func (s alwaysMore) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	page, err := s.Store.Slice(ctx, p, b, o)
	page.More = len(page.Rows) > 0
	return page, err
}

type stamped struct{ memstore.Store }

func (s stamped) Slice(
	ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions,
) (store.Page, error) {
	o.Timestamps = true
	return s.Store.Slice(ctx, p, b, o)
}

type torn struct{ memstore.Store }

func (s torn) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	for _, r := range rows {
		if err := s.Store.Put(ctx, p, r); err != nil {
			return err
		}
	}
	return nil
}

type tokenless struct{ memstore.Store }

func (s tokenless) Swap(ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record) error {
	now, err := s.Read(ctx, t, key, store.Serial)
	if err == nil && now.Epoch == old.Epoch {
		old.Token = now.Token
	}
	return s.Store.Swap(ctx, t, key, old, next)
}
