package counter

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// A Book holds the State of each partition, and the number of the last batch of each client. By this number a batch
// that comes twice is applied only once. Backends keep one Book, or the parts of it that they work on. A Book is not
// safe for concurrent use.
type Book struct {
	// Generation grows when many batches are known to be lost. A state whose last recount is of an older generation is
	// no longer Known.
	Generation uint64
	States     map[store.PartitionID]*State
	clients    map[uuid.UUID]client
}

// client holds the number (seq) of the last batch that was applied of one client, and the time (at) when this batch
// came.
type client struct {
	seq uint64
	at  time.Time
}

const (
	// forgetClient is the time without a batch after which a client is forgotten. A Recorder takes a new client id long
	// before that time has passed (see newNameAfter).
	forgetClient = 24 * time.Hour
	// manyMissing is the number of missing batches of one client above which no partition is Known any more. Such a gap
	// means that the backend has lost minutes of writes, as after the restore of an old backup.
	manyMissing = 100
)

// NewBook returns a book without any states of partitions and without any known clients.
func NewBook() *Book {
	return &Book{Generation: 1, States: map[store.PartitionID]*State{}, clients: map[uuid.UUID]client{}}
}

// Seen reports whether the batch, or a later one of the same client, was already applied.
func (b *Book) Seen(batch *Batch) bool { return batch.Seq <= b.clients[batch.Client].seq }

// Follows reports whether the batch is the next one of its client: true if no batch of the client is missing before it.
func (b *Book) Follows(batch *Batch) bool { return b.missing(batch) == 0 }

func (b *Book) missing(batch *Batch) uint64 { return batch.Seq - 1 - b.clients[batch.Client].seq }

// Apply adds the counts of a batch to the states of its partitions. `came` is the time at which the batch arrived, by
// the backend's clock. A batch that was applied before changes nothing.
//
// The clocks of clients may be wrong. So a batch from the future counts as of the time `came`, and only the backend's
// clock decides when a client is forgotten.
//
// If earlier batches of the client are missing, the partitions that these batches may have had are no longer Known:
// they need a recount. Partitions of other clients stay Known. If more than manyMissing batches of a known client are
// missing, no partition is Known any more.
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

// lost returns the partitions that the n missing batches before this batch may have had. The field Before lists the
// partitions of the last missing batch. Earlier missing batches are assumed to have had the same partitions as this
// batch.
func (b *Batch) lost(n uint64) []store.PartitionID {
	ids := slices.Clone(b.Before)
	if n > 1 || len(ids) == 0 {
		for i := range b.Deltas {
			ids = append(ids, b.Deltas[i].Partition.ID)
		}
	}
	return ids
}

// Needs returns the partitions whose states Apply would read or change if it were called with these batches in this
// order. The caller can load these states before. A partition may be returned twice.
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

// State returns the state of a partition, and creates the state if there is none.
func (b *Book) State(p store.Partition) *State {
	s, ok := b.States[p.ID]
	if !ok {
		s = NewState()
		b.States[p.ID] = s
	}
	return s
}

// Hints returns the hints that the client of this batch gets: one for each partition of the batch that has a State. A
// Hint tells clients which keys to sample, and the highest key of the partition.
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

// Stats returns the estimates for the given partitions at the time `now`, in the same order. A partition without a
// State gets empty Stats with Known false.
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

// Quanta estimates where the rows of a partition lie: neighbouring runs of keys (quanta) with their numbers of rows, in
// the order of the keys. It returns nil if nothing is known of the partition.
func (b *Book) Quanta(p store.Partition) []Quantum {
	if s, ok := b.States[p.ID]; ok {
		return s.Quanta()
	}
	return nil
}

// AppendHead appends the encoded head of the book to dst. The head is the generation of the book and the last batch of
// each client; the states of the partitions are not in it.
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

// OpenBook decodes a head, as encoded by AppendHead, and returns a book with this head and without states. It fails
// with Corrupt if the head is damaged, and with InvalidArgument if a newer program wrote it.
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
