// Package processes keeps the list of the processes that use a shared store. Each process writes its own row at
// intervals, and deletes the row when it ends.
package processes

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// Bucket is the id under which the list of running processes is stored: one row for each process, in a single
// partition. Rows have addresses with a bucket's id, so the list needs such an id. No real bucket has this id.
var Bucket = store.BucketID{'e', 'v', 'e', 'n', 'k', 'e', 'e', 'l', ' ', 'p', 'r', 'o', 'c', 'e', 's', 's'}

var partition = store.Partition{Bucket: Bucket, ID: store.PartitionID(Bucket)}

const (
	// Every is the longest pause between two writes of a process's row into the list of running processes.
	Every = 30 * time.Second
	// Silent is the age of a process's row at which the process may have died.
	Silent = 2 * time.Minute
	// Gone is the age of a process's row at which List leaves the row out, since the process has died without deleting
	// it.
	Gone = time.Hour
	// dropped is the age of a process's row at which any process that starts deletes the row. It is far above Gone, and
	// above any difference of clocks.
	dropped = 24 * time.Hour
	// countEvery is the pause between two counts of the living processes. It is long because a count reads all rows.
	countEvery = 5 * time.Minute
	// lastWrite is the time limit for deleting a process's row when the process ends.
	lastWrite = 2 * time.Second
)

// Process describes one process that uses the store. The process writes the description, as JSON, into its own row. In
// later versions fields may be added, but no field changes its meaning.
type Process struct {
	ID         uuid.UUID `json:"id"`
	Name       string    `json:"name"` // for people: program, host and process id
	Version    string    `json:"version,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	Admin      string    `json:"admin,omitempty"` // the URL of its admin API
	DataCentre string    `json:"data_centre,omitempty"`
	// Moves is true if the process takes part in moving rows between partitions. For each group (shard) of buckets one
	// such process does it.
	Moves bool `json:"moves,omitempty"`
	// Cleans is true if the process takes part in cleaning buckets of objects. For each group (shard) of buckets one
	// such process does it.
	Cleans bool `json:"cleans,omitempty"`
	// Hints is true if the process writes hints for the cleaner with the objects that it writes, or writes no objects.
	Hints bool      `json:"hints,omitempty"`
	Since time.Time `json:"since"`
	// OldestSchema and NewestSchema are the oldest and the newest version of the store's schema that the process knows.
	OldestSchema int64 `json:"oldest_schema"`
	NewestSchema int64 `json:"newest_schema"`
	// Seen is the time at which the process last wrote its row, by its own clock. It is the timestamp of the row.
	Seen time.Time `json:"-"`
}

// Presence keeps this process in the list of running processes, which other processes read. Until Close, it writes the
// row of this process again and again. Its methods are safe for concurrent use.
type Presence struct {
	rows store.Rows
	log  *slog.Logger
	stop context.CancelFunc
	work sync.WaitGroup
	now  chan struct{} // signals a change that is to be written at once

	mu     sync.Mutex
	self   Process
	last   store.Timestamp
	living func(processes int)
}

// Appear enters this process into the list of running processes, and returns a Presence that keeps the entry fresh.
// self describes the process, and Appear sets its ID and Since. Every later call of List, in any data centre, finds
// this process. Appear fails like Rows.Put. In the background, it also deletes the rows of processes that died long
// ago.
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

// Self returns the description of this process as in the list of running processes. The field Seen is the time of the
// last row of this process.
func (p *Presence) Self() Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	self := p.self
	self.Seen = time.UnixMicro(int64(p.last)).UTC()
	return self
}

// SetAdmin sets the URL of this process's admin API in the list of running processes. A process knows the URL only
// after it has begun to listen.
func (p *Presence) SetAdmin(url string) {
	p.mu.Lock()
	p.self.Admin = url
	p.mu.Unlock()
	wait.Signal(p.now)
}

// SetMoves records in the list of running processes whether this process takes part in moving rows between partitions.
// For each group of buckets one of the processes that take part does the work.
func (p *Presence) SetMoves(yes bool) {
	p.mu.Lock()
	p.self.Moves = yes
	p.mu.Unlock()
	wait.Signal(p.now)
}

// SetCleans records in the list of running processes that this process takes part in cleaning buckets of objects. For
// each group of buckets one of the processes that take part does the work.
func (p *Presence) SetCleans() {
	p.mu.Lock()
	p.self.Cleans = true
	p.mu.Unlock()
	wait.Signal(p.now)
}

// Count makes the Presence count the running processes of this data centre every few minutes until Close, and for the
// first time soon. It calls the function living with their number, this process included. While the list of processes
// can't be read, living is not called.
func (p *Presence) Count(living func(processes int)) {
	p.mu.Lock()
	p.living = living
	p.mu.Unlock()
	wait.Signal(p.now)
}

// Movers returns the number of running processes that take part in moving rows between partitions (Process.Moves). It
// reads the list of running processes in this data centre only, so processes of other data centres may be missing. A
// process that has died is counted until its row is two minutes old (Silent).
func Movers(ctx context.Context, rows store.Rows) (n int, err error) {
	return count(ctx, rows, func(p *Process) bool { return p.Moves })
}

// Cleaners returns the number of running processes that take part in cleaning buckets of objects (Process.Cleans). It
// reads the list of running processes in this data centre only, so processes of other data centres may be missing. A
// process that has died is counted until its row is two minutes old (Silent).
func Cleaners(ctx context.Context, rows store.Rows) (n int, err error) {
	return count(ctx, rows, func(p *Process) bool { return p.Cleans })
}

// AllHint reports whether all processes that were running within the last hour write hints. A hint leads a cleaner to
// an object with something to delete, so that it need not read all objects. AllHint reads the list of running processes
// through a quorum of each data centre, and fails while a data centre is away.
func AllHint(ctx context.Context, rows store.Rows) (bool, error) {
	all, err := List(ctx, rows)
	return err == nil && !slices.ContainsFunc(all, func(p Process) bool { return !p.Hints }), err
}

func count(ctx context.Context, rows store.Rows, counts func(*Process) bool) (n int, err error) {
	all, err := Near(ctx, rows)
	for i := range all {
		if counts(&all[i]) && time.Since(all[i].Seen) < Silent {
			n++
		}
	}
	return n, err
}

// Close ends the regular writes of this process's row in the list of running processes, and deletes the row if it can.
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
	var counted time.Time
	for {
		if time.Since(counted) >= countEvery && p.count(ctx) {
			counted = time.Now()
		}
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

// count counts the running processes of this data centre, and passes their number to the function that Count has set.
// It returns false if no function is set, or if the list of processes can't be read.
func (p *Presence) count(ctx context.Context) bool {
	p.mu.Lock()
	living, near := p.living, p.self.DataCentre
	p.mu.Unlock()
	if living == nil {
		return false
	}
	n, err := count(ctx, p.rows, func(p *Process) bool { return p.DataCentre == near })
	if err == nil {
		living(n)
	}
	return err == nil
}

// write writes the row of this process into the list of running processes. The timestamps of the writes ascend, even if
// the clock is set back, so that the last write wins.
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

// tidy deletes the rows of processes that died more than a day ago from the list of running processes. Each deletion
// has the timestamp of the row that was read. If the process is alive after all, and has written a newer row, this row
// stays.
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

// List returns the processes that were running within the last hour, in the order of their ids. If this program can't
// decode a row, the list has a process with only an id, and with a name that says so.
//
// Each process writes its row through a quorum of its own data centre only. So List reads through a quorum of each data
// centre, and fails like Rows.Slice while a data centre is away.
func List(ctx context.Context, rows store.Rows) ([]Process, error) {
	return list(ctx, storekit.Everywhere(rows))
}

// Near returns the processes that were running within the last hour, in the order of their ids. Unlike List, it reads
// at the ordinary consistency of rows. So processes of other data centres may be missing, and Near succeeds while
// another data centre is away.
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

// each calls f with each row of the list of running processes. It stops at the first error of f or of a read, and
// returns the error.
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
