// Package processes keeps the list of the processes that use a shared store: each one writes a row of its own at
// intervals, and deletes it at its end.
package processes

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Bucket is the id of the bucket under which the rows of the processes lie, in one partition. No real bucket has this
// id: it has no root and no map.
var Bucket = store.BucketID{'e', 'v', 'e', 'n', 'k', 'e', 'e', 'l', ' ', 'p', 'r', 'o', 'c', 'e', 's', 's'}

var partition = store.Partition{Bucket: Bucket, ID: store.PartitionID(Bucket)}

const (
	// Every is the pause between two writes of a process's row.
	Every = 30 * time.Second
	// Silent is the age from which a row says that its process may have died.
	Silent = 2 * time.Minute
	// Gone is the age from which List leaves a row out: its process has died without deleting it.
	Gone = time.Hour
	// dropped is the age from which a process that starts deletes a row. It is far above Gone and any difference of
	// clocks.
	dropped = 24 * time.Hour
	// lastWrite bounds the deletion of a process's row at its end.
	lastWrite = 2 * time.Second
)

// Process is what a process says of itself, as JSON in its row. Fields are added, and never change their meaning.
type Process struct {
	ID         uuid.UUID `json:"id"`
	Name       string    `json:"name"` // for people: program, host and process
	Version    string    `json:"version,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	Admin      string    `json:"admin,omitempty"` // the URL of its admin API
	DataCentre string    `json:"data_centre,omitempty"`
	// Moves: it is a candidate for shards of the moves.
	Moves bool      `json:"moves,omitempty"`
	Since time.Time `json:"since"`
	// OldestSchema and NewestSchema are the versions of the store's schema that it knows.
	OldestSchema int64 `json:"oldest_schema"`
	NewestSchema int64 `json:"newest_schema"`
	// Seen is when it wrote its row last, by its own clock: the timestamp of the row.
	Seen time.Time `json:"-"`
}

// Presence keeps the row of this process fresh, until Close. Its methods are safe for concurrent use.
type Presence struct {
	rows store.Rows
	log  *slog.Logger
	stop context.CancelFunc
	work sync.WaitGroup
	now  chan struct{} // something has changed: write it at once

	mu   sync.Mutex
	self Process
	last store.Timestamp
}

// Appear returns the presence of this process once its first row is stored: whoever reads the list in all data centres
// afterwards finds this process. It draws the id, and fails like Rows.Put. It also deletes rows of processes that died
// long ago, if it can.
func Appear(ctx context.Context, rows store.Rows, self Process, log *slog.Logger) (*Presence, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	self.ID, self.Since = uuid.New(), time.Now().UTC().Truncate(time.Second)
	p := &Presence{rows: rows, log: log, self: self, now: make(chan struct{}, 1)}
	if err := p.write(ctx); err != nil {
		return nil, store.Wrap("enter this process into the list of processes", err)
	}
	working, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.work.Go(func() { p.run(working) })
	return p, nil
}

// Self returns what this process says of itself.
func (p *Presence) Self() Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	self := p.self
	self.Seen = time.UnixMicro(int64(p.last)).UTC()
	return self
}

// SetAdmin adds the address of the admin API, which is known only when the process listens.
func (p *Presence) SetAdmin(url string) {
	p.mu.Lock()
	p.self.Admin = url
	p.mu.Unlock()
	wait.Signal(p.now)
}

// SetMoves adds that the process is a candidate for shards of the moves, or is none any more.
func (p *Presence) SetMoves(yes bool) {
	p.mu.Lock()
	p.self.Moves = yes
	p.mu.Unlock()
	wait.Signal(p.now)
}

// Movers returns how many processes are candidates for shards of the moves, by the entries that this data centre has.
// One that has died counts until its entry is Silent.
func Movers(ctx context.Context, rows store.Rows) (n int, err error) {
	all, err := Near(ctx, rows)
	for i := range all {
		if all[i].Moves && time.Since(all[i].Seen) < Silent {
			n++
		}
	}
	return n, err
}

// Close deletes the row, if it can, and ends the writes.
func (p *Presence) Close() {
	p.stop()
	p.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lastWrite)
	defer cancel()
	if err := p.rows.Delete(ctx, partition, p.self.ID[:], p.last); err != nil {
		p.log.Debug("this process stays in the list of processes for a while", "error", err)
	}
}

func (p *Presence) run(ctx context.Context) {
	p.tidy(ctx)
	failed := false
	for {
		pause := time.NewTimer(wait.Turn(Every))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		case <-p.now:
			pause.Stop()
		}
		err := p.write(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			p.log.Warn("this process can't renew its entry in the list of processes; it goes on trying", "error", err)
		}
		failed = err != nil
	}
}

// write writes the row. Its timestamps ascend, also when the clock is set back.
func (p *Presence) write(ctx context.Context) error {
	p.mu.Lock()
	value, err := json.Marshal(&p.self)
	p.last = max(p.last+1, store.Timestamp(time.Now().UnixMicro()))
	row := store.Row{Key: p.self.ID[:], Value: store.EntryCell(value), Timestamp: p.last}
	p.mu.Unlock()
	if err != nil {
		return store.Errorf(store.InvalidArgument, "%w", err)
	}
	return p.rows.Put(ctx, partition, row)
}

// tidy deletes rows of processes that died long ago. A deletion has the timestamp of the row that was read, so it hides
// nothing that a living process has written since.
func (p *Presence) tidy(ctx context.Context) {
	old := time.Now().Add(-dropped)
	err := each(ctx, p.rows, func(r *store.Row) error {
		if time.UnixMicro(int64(r.Timestamp)).Before(old) {
			return p.rows.Delete(ctx, partition, r.Key, r.Timestamp)
		}
		return nil
	})
	if err != nil {
		p.log.Debug("the list of processes was not tidied", "error", err)
	}
}

// List returns the processes that were present within the last hour, in the order of their ids. The processes of every
// data centre write the list, each through a quorum of its own data centre. So List reads through a quorum of each data
// centre, and fails like Rows.Slice while a data centre is away. An entry that is not understood is listed with its id
// alone, as a process that knows no schema.
func List(ctx context.Context, rows store.Rows) ([]Process, error) {
	return list(ctx, store.Everywhere(rows))
}

// Near returns the same list as List, but reads at the level that rows uses for its own reads: processes of other data
// centres may be missing.
func Near(ctx context.Context, rows store.Rows) ([]Process, error) { return list(ctx, rows) }

func list(ctx context.Context, rows store.Rows) (all []Process, err error) {
	gone := time.Now().Add(-Gone)
	err = each(ctx, rows, func(r *store.Row) error {
		seen := time.UnixMicro(int64(r.Timestamp)).UTC()
		if seen.Before(gone) {
			return nil
		}
		all = append(all, decode(r, seen))
		return nil
	})
	return all, store.Wrap("read the list of processes", err)
}

func decode(r *store.Row, seen time.Time) Process {
	id, _ := uuid.FromBytes(r.Key)
	var p Process
	value, _, err := store.EntryValue(r.Value)
	if err != nil || json.Unmarshal(value, &p) != nil || p.ID != id {
		p = Process{ID: id, Name: "a process whose entry is not understood", NewestSchema: -1}
	}
	p.Seen = seen
	return p
}

// each calls f with each row.
func each(ctx context.Context, rows store.Rows, f func(r *store.Row) error) error {
	o := store.SliceOptions{Limit: store.MaxPageRows, Timestamps: true}
	for b := (store.Bounds{}); ; {
		page, err := rows.Slice(ctx, partition, b, o)
		if err != nil {
			return err
		}
		for i := range page.Rows {
			if err := f(&page.Rows[i]); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		b.Start, b.StartExclusive = page.Rows[len(page.Rows)-1].Key, true
	}
}
