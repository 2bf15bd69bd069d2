// Package storetest is the conformance suite of package store. Every store must pass all of it.
//
// A test of the store runs the suite by one call:
//
//	storetest.Run(t, func(t *testing.T) store.Store { return memstore.New() })
//
// Each subtest has the name of the rule that it checks. Random subtests compare the store with an oracle, which
// computes the visible rows from all operations (history.go). They shrink a history that fails, and say how to run it
// again with the same seed.
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

// Options adapt the conformance tests to the store that is tested: how slow it is, and what else it may do. The zero
// Options are right for a fast store in memory.
type Options struct {
	// Slow is true if a call takes milliseconds, since a network or a disk is involved. Random tests are then repeated
	// a tenth as often, and big tests have fewer rows.
	Slow bool
	// ShortPages is true if the store may end a page, with More set, before the page reaches a limit. A page that ends
	// early without More is always wrong.
	ShortPages bool
	// Reopen closes a store and opens it again. It may also end the store in another way that the store must survive,
	// such as a crash. If Reopen is not nil, the tests check after each reopening that the store has kept its data.
	// They call Reopen several times for one store.
	Reopen func(t *testing.T, s store.Store) store.Store
}

// Run runs the conformance tests of package store on the stores that open returns, with the zero Options. The test of
// each store calls it. RunWith has the details.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	RunWith(t, open, Options{})
}

// RunWith tests the stores that open returns against the contract of package store, with a subtest for each rule. It
// checks the optional interfaces store.EachQuorum, store.PartitionLister and store.Acknowledger if the store implements
// them.
//
// RunWith calls open a handful of times. open may return a store that already has data: the tests read only buckets,
// partitions and registers to which they have given fresh UUIDs. RunWith closes the stores that it has opened.
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

// suite is one run of the conformance tests on a store. The field rows has the rows that the tests use: those of the
// store itself, or the same rows at a wider consistency (see store.EachQuorum).
type suite struct {
	Options
	seed  uint64
	open  func(t *testing.T) store.Store
	store store.Store
	rows  store.Rows
	// pages is the number of pages compared so far; it decides which memory the store gets for the rows of a page.
	pages *atomic.Int64
}

// scale returns how often a test repeats its steps: n or, for a slow store, a tenth of n, but at least 1.
func (s *suite) scale(n int) int {
	if s.Slow {
		return max(1, n/10)
	}
	return n
}

// rand returns a source of random numbers for one repetition of the test with the name rule. The numbers depend only on
// the seed of the run, the name, and the number round of the repetition, so a failure can be repeated.
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
