package scheduler

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// replaced is a store with a number of replaced roots, which remembers what was forgotten.
type replaced struct {
	Store
	roots  int
	err    error
	forgot []uint64
}

func (s *replaced) History(context.Context, store.BucketID, uint64, int) ([]store.Record, error) {
	return make([]store.Record, s.roots), s.err
}

func (s *replaced) Forget(_ context.Context, _ store.BucketID, before uint64) error {
	s.forgot = append(s.forgot, before)
	return nil
}

// Replaced roots are forgotten but for the last hundred. Where there are none nothing is deleted, as a delete leaves a
// tombstone.
func TestReplacedRootsAreForgotten(t *testing.T) {
	for _, c := range []struct {
		epoch uint64
		roots int
		err   error
		want  []uint64
	}{
		{100, 1, nil, nil}, {101, 1, nil, []uint64{1}}, {250, 1, nil, []uint64{150}}, {250, 0, nil, nil},
		{250, 0, errors.New("away"), nil},
	} {
		s := &replaced{roots: c.roots, err: c.err}
		require.Equal(t, c.err, (&Scheduler{store: s}).forget(t.Context(), &partmap.Root{Epoch: c.epoch}), "%+v", c)
		require.Equal(t, c.want, s.forgot, "%+v", c)
	}
}
