package cut

import (
	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/store"
)

// Trail remembers where the rows of partitions lay when they had somewhat fewer, so
// that it can be told where a range grows. It is a memory of hints: losing it costs
// some moved rows. It is not safe for concurrent use.
type Trail struct {
	most int
	of   map[store.PartitionID]*trace
	// queue are ids in the order in which they were first noted, for forgetting.
	queue []store.PartitionID
}

// trace are the last points of one partition, the newest first.
type trace [3]point

type point struct {
	rows   int64
	quanta []counter.Quantum
}

const (
	// step is by how many times a partition has grown from one point to the next.
	step = 1.1
	// least rows are worth a point.
	leastNoted = 32
)

// NewTrail remembers at most so many partitions, the last ones noted first; each
// takes some tens of KB.
func NewTrail(most int) *Trail {
	return &Trail{most: most, of: map[store.PartitionID]*trace{}}
}

// Note is told of a partition that has so many rows, as often as is convenient. It
// asks for quanta only where the partition has grown by a tenth since it last did;
// none are passed over.
func (t *Trail) Note(id store.PartitionID, rows int64, quanta func() []counter.Quantum) {
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

// Earlier returns the quanta of when a partition had about a tenth less than so many
// rows, or a little less still; nil if that is not known.
func (t *Trail) Earlier(id store.PartitionID, rows int64) []counter.Quantum {
	if x := t.of[id]; x != nil {
		for i := range x {
			if float64(x[i].rows)*step <= float64(rows)*1.02 {
				return x[i].quanta
			}
		}
	}
	return nil
}

// Forget is told of a partition that is gone, or that was cut.
func (t *Trail) Forget(id store.PartitionID) {
	if t.of[id] == nil {
		return
	}
	delete(t.of, id)
	for i, q := range t.queue {
		if q == id {
			t.queue = append(t.queue[:i], t.queue[i+1:]...)
			break
		}
	}
}
