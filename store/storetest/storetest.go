// Package storetest is the conformance suite of package store: every store
// passes it, to the letter.
//
// A store is run through it by one call in one of its tests:
//
//	storetest.Run(t, func(t *testing.T) store.Store { return memstore.New() })
//
// Each subtest is named after the rule that it checks. Random ones compare the
// store with an oracle that is a fold over all operations (history.go), shrink
// what they find, and say how to run it again with the same seed.
package storetest

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// Options fits the suite to a store. The zero Options is right for a fast store
// in memory.
type Options struct {
	// Slow says that a call takes milliseconds: a network or a disk is involved.
	// Random rules then run a tenth of their rounds, big ones with fewer rows.
	Slow bool
	// ShortPages says that the store may end a page before its limits are
	// reached. Pages that are short without More are never right.
	ShortPages bool
	// Reopen closes a store, or cuts it off in whatever way it has to survive,
	// and opens what it left behind. With it, what a store keeps is checked
	// again after reopening. It is called several times for one store.
	Reopen func(t *testing.T, s store.Store) store.Store
}

// Run is RunWith zero Options.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	RunWith(t, open, Options{})
}

// RunWith holds the stores that open returns to the contract, each rule in a
// subtest. The optional interfaces store.EachQuorum, store.PartitionLister
// and store.Acknowledger are checked where a store has them.
//
// open is called a handful of times, and may return a store that holds data
// already: the suite only looks at buckets, partitions and registers that it
// named itself, with fresh UUIDs. The suite closes what it opened.
func RunWith(t *testing.T, open func(t *testing.T) store.Store, o Options) {
	t.Helper()
	s := &suite{Options: o, seed: seed.Number(t), pages: new(atomic.Int64), open: func(t *testing.T) store.Store {
		opened := open(t)
		t.Cleanup(func() { _ = opened.Close() })
		return opened
	}}
	s.store = s.open(t)
	s.rows = s.store
	s.runRows(t)
	if e, ok := s.store.(store.EachQuorum); ok {
		t.Run("each quorum", func(t *testing.T) {
			wide := *s
			wide.rows = e.EachQuorum()
			wide.runRows(t)
			t.Run("what one level writes the other reads", wide.levelsShareRows)
		})
	}
	s.runLimits(t)
	s.runRegisters(t)
	s.runNodes(t)
	s.runPowers(t)
	s.runEnds(t)
	if o.Reopen != nil {
		s.runReopen(t)
	}
}

// suite is one run. rows is what the rules of rows are checked on: the store, or
// its wider level.
type suite struct {
	Options
	seed  uint64
	open  func(t *testing.T) store.Store
	store store.Store
	rows  store.Rows
	// pages that were compared: each has other memory for its rows.
	pages *atomic.Int64
}

// scale is n, or a tenth of it for slow stores.
func (s *suite) scale(n int) int {
	if s.Slow {
		return max(1, n/10)
	}
	return n
}

// rand returns the source of chance of one round of one rule.
func (s *suite) rand(rule string, round int) *rand.Rand {
	salt := uint64(round)
	for _, c := range []byte(rule) {
		salt = salt*1_000_003 + uint64(c)
	}
	return rand.New(rand.NewPCG(s.seed, salt))
}

func newBucket() store.BucketID { return store.BucketID(uuid.New()) }

func newPartition() store.Partition {
	return store.Partition{Bucket: newBucket(), ID: store.PartitionID(uuid.New())}
}

func newNodeID() store.NodeID { return store.NodeID(uuid.New()) }

func requireKind(t *testing.T, want store.Kind, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, store.KindOf(err), "%v", err)
	require.ErrorIs(t, err, want)
}
