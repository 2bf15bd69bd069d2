package counter

import (
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// A Book has the states of partitions, and what is needed to apply each batch once. Backends
// keep one, or the parts of it that they work on. It is not safe for concurrent use.
type Book struct {
	// Generation grows when batches are known to be lost. States that were corrected in an
	// older generation are no longer Known.
	Generation uint64
	States     map[store.PartitionID]*State
	clients    map[uuid.UUID]client
}

// client is the last batch that was applied of a client.
type client struct {
	seq uint64
	at  time.Time
}

// forgetClient is the time without a batch after which a client is forgotten. A Recorder
// takes a new id long before that.
const forgetClient = 24 * time.Hour

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{Generation: 1, States: map[store.PartitionID]*State{}, clients: map[uuid.UUID]client{}}
}

// Seen reports whether a batch was applied already.
func (b *Book) Seen(batch *Batch) bool { return batch.Seq <= b.clients[batch.Client].seq }

// Apply applies a batch, unless it was applied before. If the client's previous batch is
// missing, the generation grows.
func (b *Book) Apply(batch *Batch) {
	if b.Seen(batch) {
		return
	}
	if batch.Seq != b.clients[batch.Client].seq+1 {
		b.Generation++
	}
	for id, c := range b.clients {
		if batch.At.Sub(c.at) > forgetClient {
			delete(b.clients, id)
		}
	}
	b.clients[batch.Client] = client{batch.Seq, batch.At}
	for i := range batch.Deltas {
		d := &batch.Deltas[i]
		b.State(d.Partition).Apply(d, batch.From, batch.At)
	}
}

// State returns the state of a partition, creating it if necessary.
func (b *Book) State(p store.Partition) *State {
	s, ok := b.States[p.ID]
	if !ok {
		s = NewState()
		b.States[p.ID] = s
	}
	return s
}

// Hints returns the hints for the partitions of a batch.
func (b *Book) Hints(batch *Batch) []Hint {
	hints := make([]Hint, 0, len(batch.Deltas))
	for i := range batch.Deltas {
		id := batch.Deltas[i].Partition.ID
		if s, ok := b.States[id]; ok {
			hints = append(hints, s.Hint(id))
		}
	}
	return hints
}

// Stats returns the estimates for partitions at a time, in order.
func (b *Book) Stats(partitions []store.Partition, now time.Time) []Stats {
	all := make([]Stats, len(partitions))
	for i, p := range partitions {
		if s, ok := b.States[p.ID]; ok {
			all[i] = s.Stats(p, b.Generation, now)
		} else {
			all[i] = Stats{Partition: p}
		}
	}
	return all
}

// AppendHead appends the encoding of everything but the states.
func (b *Book) AppendHead(dst []byte) ([]byte, error) {
	e := encoder{append(dst, form)}
	e.uint(b.Generation)
	e.uint(uint64(len(b.clients)))
	for id, c := range b.clients {
		e.raw(id[:])
		e.uint(c.seq)
		e.time(c.at)
	}
	return e.b, nil
}

// OpenBook is the inverse of AppendHead: it returns a book without states. It fails with
// Corrupt, or with InvalidArgument for a newer form.
func OpenBook(head []byte) (*Book, error) {
	d := decoder{b: head}
	if err := d.begin("the head"); err != nil {
		return nil, err
	}
	b := NewBook()
	b.Generation = d.uint()
	for range d.count(18) {
		b.clients[d.id()] = client{d.uint(), d.time()}
	}
	if b.Generation == 0 {
		d.bad = true
	}
	return b, d.end("the head")
}
