package balancer

import (
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// trail remembers where the rows of partitions lay when they had somewhat fewer, which shows where a range grows. It
// holds hints: losing it costs some moved rows. It is not safe for concurrent use.
type trail struct {
	most int
	of   map[store.PartitionID]*trace
	// queue has the ids in the order of their first note; the oldest are dropped.
	queue []store.PartitionID
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
	// least rows are worth a point.
	leastNoted = 32
)

// newTrail remembers at most so many partitions, of some tens of KB each.
func newTrail(most int) *trail {
	return &trail{most: most, of: map[store.PartitionID]*trace{}}
}

// note takes in that a partition has so many rows. It calls quanta only if the partition has grown by a tenth since the
// last call; no quanta are skipped.
func (t *trail) note(id store.PartitionID, rows int64, quanta func() []counter.Quantum) {
	x := t.of[id]
	if rows < leastNoted || x != nil && float64(rows) < step*float64(x[0].rows) && float64(rows)*step*step > float64(x[0].rows) {
		return
	}
	q := quanta()
	if len(q) == 0 {
		return
	}
	if x == nil {
		x = &trace{}
		t.of[id] = x
		t.queue = append(t.queue, id)
		for len(t.queue) > t.most {
			delete(t.of, t.queue[0])
			t.queue = t.queue[1:]
		}
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
	if x := t.of[id]; x != nil {
		for i := range x {
			if float64(x[i].rows)*step <= float64(rows)*1.02 {
				return x[i].quanta
			}
		}
	}
	return nil
}
