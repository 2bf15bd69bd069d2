package balancer

import (
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// trail remembers where the rows of partitions lay when they had somewhat fewer, which shows where a range grows. It
// holds hints: losing one costs some moved rows. Those that were noted first are dropped first.
type trail struct {
	of *lru.Cache[store.PartitionID, *trace]
}

// trace are the last points of one partition, the newest first.
type trace [3]point

type point struct {
	rows   int64
	quanta []counter.Quantum
}

const (
	// step is the growth of a partition from one point to the next.
	step = 1.1
	// leastNoted is the fewest rows that are worth a point.
	leastNoted = 32
)

// newTrail remembers at most so many partitions, of some tens of KB each.
func newTrail(most int) *trail { return &trail{newLRU[store.PartitionID, *trace](most)} }

// note records the present number of rows of a partition. It calls quanta only if that has grown by a tenth since the
// last call, and ignores an empty result.
func (t *trail) note(id store.PartitionID, rows int64, quanta func() []counter.Quantum) {
	x, _ := t.of.Peek(id) // it stays as old as it is
	if rows < leastNoted || x != nil && float64(rows) < step*float64(x[0].rows) &&
		float64(rows)*step*step > float64(x[0].rows) {
		return
	}
	q := quanta()
	if len(q) == 0 {
		return
	}
	if x == nil {
		x = &trace{}
		t.of.Add(id, x)
	}
	if rows < x[0].rows {
		*x = trace{} // it shrank, or gave a part away
	}
	copy(x[1:], x[:])
	x[0] = point{rows, q}
}

// earlier returns the quanta of a partition when it had about a tenth less than so many rows, or somewhat less; nil if
// unknown.
func (t *trail) earlier(id store.PartitionID, rows int64) []counter.Quantum {
	if x, ok := t.of.Peek(id); ok {
		for i := range x {
			if float64(x[i].rows)*step <= float64(rows)*1.02 {
				return x[i].quanta
			}
		}
	}
	return nil
}
