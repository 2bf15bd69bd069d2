package counter

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// A Book has the states of partitions, and what is needed to apply each batch once. Backends
// keep one, or the parts of it that they work on. It is not safe for concurrent use.
type Book struct {
	// Generation grows when much is known to be lost. States that were corrected in an older
	// generation are no longer Known.
	Generation uint64
	States     map[store.PartitionID]*State
	clients    map[uuid.UUID]client
}

// client is the last batch that was applied of a client, and when it came.
type client struct {
	seq uint64
	at  time.Time
}

const (
	// forgetClient is the time without a batch after which a client is forgotten. A Recorder
	// takes a new id long before that.
	forgetClient = 24 * time.Hour
	// manyMissing is how many batches of one client must be missing for nothing to be Known:
	// then a backend has lost minutes, as from an old backup.
	manyMissing = 100
)

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{Generation: 1, States: map[store.PartitionID]*State{}, clients: map[uuid.UUID]client{}}
}

// Seen reports whether a batch was applied already.
func (b *Book) Seen(batch *Batch) bool { return batch.Seq <= b.clients[batch.Client].seq }

// Follows reports whether no batch of its client is missing before a batch.
func (b *Book) Follows(batch *Batch) bool { return b.missing(batch) == 0 }

func (b *Book) missing(batch *Batch) uint64 { return batch.Seq - 1 - b.clients[batch.Client].seq }

// Apply applies a batch that came at a time, by the backend's clock, unless it was applied
// before. The clocks of clients may be wrong: a batch is not taken to be newer than that, and
// none makes the book forget others. Where batches of the client are missing, the partitions
// that they are known to have had are no longer Known; those of others are as good as their
// last recount.
func (b *Book) Apply(batch *Batch, came time.Time) {
	if b.Seen(batch) {
		return
	}
	_, known := b.clients[batch.Client]
	switch n := b.missing(batch); {
	case n == 0:
	case known && n > manyMissing:
		b.Generation++
	default:
		for _, id := range batch.lost(n) {
			if s, ok := b.States[id]; ok {
				s.generation = 0
			}
		}
	}
	for id, c := range b.clients {
		if came.Sub(c.at) > forgetClient {
			delete(b.clients, id)
		}
	}
	b.clients[batch.Client] = client{batch.Seq, came}
	from, at := batch.From, batch.At
	if ahead := at.Sub(came); ahead > 0 {
		from, at = from.Add(-ahead), came
	}
	for i := range batch.Deltas {
		d := &batch.Deltas[i]
		b.State(d.Partition).Apply(d, from, at)
	}
}

// lost returns the partitions that the n batches before this one had, as far as is known: those
// of the last of them, and where there were more, presumably also those of this one.
func (b *Batch) lost(n uint64) []store.PartitionID {
	ids := slices.Clone(b.Before)
	if n > 1 || len(ids) == 0 {
		for i := range b.Deltas {
			ids = append(ids, b.Deltas[i].Partition.ID)
		}
	}
	return ids
}

// Needs returns the partitions whose states Apply reads or changes, if it is called with
// batches in this order. There may be some twice.
func (b *Book) Needs(batches []Batch) (ids []store.PartitionID) {
	last := map[uuid.UUID]uint64{}
	for i := range batches {
		x := &batches[i]
		seq, ok := last[x.Client]
		if !ok {
			seq = b.clients[x.Client].seq
		}
		if x.Seq <= seq {
			continue
		}
		last[x.Client] = x.Seq
		if n := x.Seq - 1 - seq; n > 0 {
			ids = append(ids, x.lost(n)...)
		}
		for k := range x.Deltas {
			ids = append(ids, x.Deltas[k].Partition.ID)
		}
	}
	return ids
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

// Quanta returns a sample of a partition's keys; nil where nothing is known of it.
func (b *Book) Quanta(p store.Partition) []Quantum {
	if s, ok := b.States[p.ID]; ok {
		return s.Quanta()
	}
	return nil
}

// AppendHead appends the encoding of everything but the states.
func (b *Book) AppendHead(dst []byte) ([]byte, error) {
	e := encoder{wire.Encoder{B: append(dst, form)}}
	e.Uint(b.Generation)
	e.Uint(uint64(len(b.clients)))
	for id, c := range b.clients {
		e.Raw(id[:]...)
		e.Uint(c.seq)
		e.time(c.at)
	}
	return e.B, nil
}

// OpenBook is the inverse of AppendHead: it returns a book without states. It fails with
// Corrupt, or with InvalidArgument for a newer form.
func OpenBook(head []byte) (*Book, error) {
	d := decoder{wire.Decoder{Rest: head}}
	if _, err := d.begin("the head", form); err != nil {
		return nil, err
	}
	b := NewBook()
	b.Generation = d.Uint()
	for range d.Count(18) {
		b.clients[d.id()] = client{d.Uint(), d.time()}
	}
	if b.Generation == 0 {
		d.Bad = true
	}
	return b, d.end("the head")
}
