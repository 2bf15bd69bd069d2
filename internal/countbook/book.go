package countbook

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/keysample"
	"github.com/evenkeel/evenkeel/store"
)

// A Book has the counts of all partitions (one State each), and the number of the last batch of counts from each
// client. By this number a batch that comes twice is applied only once. A backend of counts keeps one Book, or the
// parts of a Book on which it works. A Book is not safe for concurrent use.
type Book struct {
	// Generation is a number that grows when many batches of counts are known to be lost. The counts of a partition
	// whose last recount is of an older generation are no longer Known (trusted).
	Generation uint64
	States     map[store.PartitionID]*State
	clients    map[uuid.UUID]client
}

// client is what a Book remembers of one client that sends batches of counts: the number (seq) of the last batch that
// was applied, and the time (at) when this batch came.
type client struct {
	seq uint64
	at  time.Time
}

const (
	// forgetClient is the time without a batch of counts after which a Book forgets the client. A counter.Recorder
	// takes a new client id already after an hour without a flush.
	forgetClient = 24 * time.Hour
)

// NewBook returns an empty Book: without counts of partitions and without known clients.
func NewBook() *Book {
	return &Book{Generation: 1, States: map[store.PartitionID]*State{}, clients: map[uuid.UUID]client{}}
}

// Seen reports whether the given batch of counts, or a later batch of the same client, was already applied.
func (b *Book) Seen(batch *counter.Batch) bool { return batch.Seq <= b.clients[batch.Client].seq }

// Follows reports whether the given batch of counts directly follows the client's last batch, by their numbers. Then no
// batch of the client is missing between the two.
func (b *Book) Follows(batch *counter.Batch) bool { return b.missing(batch) == 0 }

// missing returns the number of batches of the client that are missing between the last applied batch and this batch.
func (b *Book) missing(batch *counter.Batch) uint64 {
	return batch.Seq - 1 - b.clients[batch.Client].seq
}

// Apply adds a client's batch of counts to the counts of the partitions. `came` is the time at which the batch arrived,
// by the backend's clock. A batch that was applied before changes nothing.
//
// The clocks of clients may be wrong. So a batch from the future counts as of the time `came`, and only the backend's
// clock decides when a client is forgotten.
//
// Earlier batches of the client may be missing. The counts of the partitions that these batches may have had are then
// no longer trusted (Known is false) until a recount. The counts of other partitions stay Known. If more than
// keysample.ManyMissing batches of a known client are missing, no partition is Known any more.
func (b *Book) Apply(batch *counter.Batch, came time.Time) {
	if b.Seen(batch) {
		return
	}
	_, known := b.clients[batch.Client]
	switch n := b.missing(batch); {
	case n == 0:
	case known && n > keysample.ManyMissing:
		b.Generation++
	default:
		for _, id := range lost(batch, n) {
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

// lost returns the partitions whose counts may be too low, because n batches of the same client before the batch b are
// missing. They are the partitions of the missing batches.
func lost(b *counter.Batch, n uint64) []store.PartitionID {
	// Those of the last missing batch are known from the field Before. Earlier missing batches are assumed to have had
	// the same partitions as this batch.
	ids := slices.Clone(b.Before)
	if n > 1 || len(ids) == 0 {
		for i := range b.Deltas {
			ids = append(ids, b.Deltas[i].Partition.ID)
		}
	}
	return ids
}

// Needs returns the partitions whose counts Apply would read or change, if Apply were called with these batches in
// their order. A backend that keeps counts elsewhere calls Needs first, and loads these counts into the Book. A
// partition may be returned twice.
func (b *Book) Needs(batches []counter.Batch) (ids []store.PartitionID) {
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
			ids = append(ids, lost(x, n)...)
		}
		for k := range x.Deltas {
			ids = append(ids, x.Deltas[k].Partition.ID)
		}
	}
	return ids
}

// State returns the counts of a partition. If the Book has none, State adds empty counts and returns them.
func (b *Book) State(p store.Partition) *State {
	s, ok := b.States[p.ID]
	if !ok {
		s = NewState()
		b.States[p.ID] = s
	}
	return s
}

// Hints returns the answer to the client that has sent this batch of counts: one Hint for each partition of the batch
// that is in the Book. A Hint tells the client which keys to sample, and the highest key of the partition.
func (b *Book) Hints(batch *counter.Batch) []counter.Hint {
	hints := make([]counter.Hint, 0, len(batch.Deltas))
	for i := range batch.Deltas {
		id := batch.Deltas[i].Partition.ID
		if s, ok := b.States[id]; ok {
			hints = append(hints, s.Hint(id))
		}
	}
	return hints
}

// Stats returns the estimates for the given partitions at the time `now`, in the same order. A partition that is not in
// the Book gets empty Stats, with Known false.
func (b *Book) Stats(partitions []store.Partition, now time.Time) []counter.Stats {
	all := make([]counter.Stats, len(partitions))
	for i, p := range partitions {
		if s, ok := b.States[p.ID]; ok {
			all[i] = s.Stats(p, b.Generation, now)
		} else {
			all[i] = counter.Stats{Partition: p}
		}
	}
	return all
}

// Quanta estimates which intervals of keys have how many rows in a partition. A Quantum is an interval of keys with its
// number of rows; the quanta are in the order of the keys. The result is nil if nothing is known of the partition.
func (b *Book) Quanta(p store.Partition) []counter.Quantum {
	if s, ok := b.States[p.ID]; ok {
		return s.Quanta()
	}
	return nil
}

// AppendHead appends the encoded head of the book to dst, and returns the extended slice. The head is everything but
// the counts of partitions: the generation of the book and the last batch of each client. The error is always nil.
func (b *Book) AppendHead(dst []byte) ([]byte, error) {
	e := keysample.NewEncoder(dst, keysample.Form)
	e.Uint(b.Generation)
	e.Uint(uint64(len(b.clients)))
	for id, c := range b.clients {
		e.Raw(id[:]...)
		e.Uint(c.seq)
		e.Time(c.at)
	}
	return e.B, nil
}

// OpenBook decodes a head, which AppendHead has encoded, and returns a Book with this head and without counts of
// partitions. OpenBook fails with Corrupt if the head is damaged, and with InvalidArgument if a newer program wrote the
// head.
func OpenBook(head []byte) (*Book, error) {
	d := keysample.NewDecoder(head)
	if _, err := d.Begin("the head", keysample.Form); err != nil {
		return nil, err
	}
	b := NewBook()
	b.Generation = d.Uint()
	for range d.Count(18) {
		b.clients[d.ID()] = client{d.Uint(), d.Time()}
	}
	if b.Generation == 0 {
		d.Bad = true
	}
	return b, d.End("the head")
}
