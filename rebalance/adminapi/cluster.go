package adminapi

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/store"
)

// Cluster is the processes, as far as they are known, and the health of what they use.
type Cluster struct {
	Process   Process           `json:"process"`
	Leading   bool              `json:"leading"`
	Leader    *rebalance.Holder `json:"leader,omitempty"`
	Processes []Peer            `json:"processes"`
	// ProcessesError is why processes of other data centres may be missing.
	ProcessesError string  `json:"processes_error,omitempty"`
	Store          Health  `json:"store"`
	Counters       Health  `json:"counters"`
	Leases         Leases  `json:"leases"`
	Clocks         *Clocks `json:"clocks,omitempty"` // absent: embedded
	Terms          *Terms  `json:"terms,omitempty"`  // absent: embedded
	History        *Kept   `json:"history,omitempty"`
	OtherLimits    string  `json:"other_limits,omitempty"`
	Unattended     string  `json:"unattended,omitempty"`
}

// Process is the one that answers.
type Process struct {
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Commit     string    `json:"commit,omitempty"`
	Go         string    `json:"go"`
	Started    time.Time `json:"started"`
	Goroutines int       `json:"goroutines"`
	Memory     uint64    `json:"memory_bytes"`
}

// Peer is a process of the store. The order of peers is: the process that answers, the process that leads, then the
// others by name. A program from before the list of processes existed is a peer only while it leads, and its schemas
// are absent.
type Peer struct {
	Name  string `json:"name"`
	Here  bool   `json:"here"`
	Leads bool   `json:"leads"`
	// Shards are those of the buckets whose moves it leads; absent: none, or embedded.
	Shards     []int     `json:"shards,omitempty"`
	Admin      string    `json:"admin,omitempty"`
	Version    string    `json:"version,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	DataCentre string    `json:"data_centre,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	// Seen is when it said last that it runs, by its own clock. Silent: that is some minutes ago, so it may have died.
	Seen   time.Time `json:"seen,omitzero"`
	Silent bool      `json:"silent,omitempty"`
	// Schemas are the oldest and the newest version of the keyspace's schema that it knows.
	Schemas []int64 `json:"schemas,omitempty"`
}

// Terms are what all processes of a keyspace have agreed on. Limits are those of the process that was started last.
type Terms struct {
	LeaseS        float64 `json:"lease_s"`
	MaxClockSkewS float64 `json:"max_clock_skew_s"`
	Sizes         string  `json:"sizes"`
	// Schema is the version of the keyspace's schema; 0: it is from before there were versions.
	Schema   int64 `json:"schema"`
	MaxRows  int64 `json:"max_rows,omitempty"`
	MinRows  int64 `json:"min_rows,omitempty"`
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Error is why they could not be read.
	Error string `json:"error,omitempty"`
}

// Health is whether something answers, and how fast.
type Health struct {
	Kind      string    `json:"kind"`
	OK        bool      `json:"ok"`
	LatencyMs float64   `json:"latency_ms"`
	Error     string    `json:"error,omitempty"`
	AwaySince time.Time `json:"away_since,omitzero"`
	// Of the data directory, if it is known.
	DiskBytes     uint64 `json:"disk_bytes,omitempty"`
	DiskFreeBytes uint64 `json:"disk_free_bytes,omitempty"`
}

// Leases are those of maps: counted (embedded) or timed.
type Leases struct {
	Kind string `json:"kind"`
	// Of timed ones: their length, how long those of this process last that end first, unless they are renewed, of how many
	// map clocks; and the leader's lease, in seconds.
	LengthS      float64 `json:"length_s,omitempty"`
	LeftS        float64 `json:"left_s,omitempty"`
	MapClocks    int     `json:"map_clocks,omitempty"`
	LeaderLeftS  float64 `json:"leader_left_s,omitempty"`
	Renewals     int64   `json:"renewals"`
	Refusals     int64   `json:"refusals"`
	RootReads    int64   `json:"root_reads"`
	PollFailures int64   `json:"poll_failures"`
}

// Clocks are those of the store's servers, in seconds.
type Clocks struct {
	Known bool `json:"known"`
	// Bound is how well the common time is known, Apart by how much two servers differ at least, and Ahead by how much
	// this machine is ahead.
	Bound   float64 `json:"bound_s"`
	Apart   float64 `json:"apart_s"`
	Ahead   float64 `json:"ahead_s"`
	Silent  int     `json:"silent"`
	Servers []Clock `json:"servers"`
}

// Clock is one server's.
type Clock struct {
	Server string  `json:"server"`
	Ahead  float64 `json:"ahead_s"`
	Bound  float64 `json:"bound_s"`
}

// Kept is how much of the history is kept.
type Kept struct {
	Columns int       `json:"columns"`
	Since   time.Time `json:"since,omitzero"`
	Bytes   int64     `json:"bytes"`
	Limit   int64     `json:"limit_bytes"`
	File    string    `json:"file,omitempty"`
	Error   string    `json:"error,omitempty"`
	// Omitted is how many buckets that took requests the last sample had no room for.
	Omitted int `json:"omitted_buckets,omitempty"`
}

// probeTime bounds one question to the store or the counters.
const probeTime = 2 * time.Second

// started is about when the process was.
var started = time.Now()

// self names this process.
func (h *handler) self() string {
	if h.o.Leader != nil {
		return h.o.Leader.Name
	}
	return rebalance.Name(filepath.Base(os.Args[0]))
}

func (h *handler) cluster(r *http.Request) (any, error) {
	ctx := r.Context()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	out := Cluster{
		Process: Process{
			Name: h.self(), Version: cmp.Or(h.o.Version, "unknown"), Commit: h.o.Commit, Go: runtime.Version(),
			Started: started.UTC().Truncate(time.Second), Goroutines: runtime.NumGoroutine(), Memory: memory.Sys,
		},
		Leading: h.Leading(), Unattended: h.Unattended(), Processes: []Peer{},
	}
	here := Peer{
		Name: out.Process.Name, Here: true, Leads: out.Leading, Version: out.Process.Version, Commit: out.Process.Commit,
	}
	var leads *Peer // another one
	if holder, known, mine := h.Leader(ctx); known {
		out.Leases.LeaderLeftS = max(0, time.Until(holder.Until).Seconds())
		if out.Leader = leaderOf(holder); mine {
			here.Admin = holder.Admin
		} else {
			leads = &Peer{
				Name: cmp.Or(holder.Name, holder.ID.String()), Leads: true, Admin: holder.Admin, Version: holder.Version,
			}
		}
	}
	var listed []processes.Process
	if p := h.o.Presence; p != nil {
		var err error
		listed, err = h.listed.get(ctx, h.o.Store)
		out.Processes, out.ProcessesError = peers(here, leads, p.Self(), listed, time.Now()), text(err)
	} else {
		out.Processes = peers(here, leads, processes.Process{}, nil, time.Now())
	}
	if h.o.Leader != nil {
		leaders := h.Leaders(ctx)
		for _, share := range shares(leaders[:], h.Led()) {
			for i := range out.Processes {
				p := &out.Processes[i]
				if p.Here && share.Here || !p.Here && !share.Here && p.Name == share.Name && p.Admin == share.Admin {
					p.Leads, p.Shards = true, share.Shards
				}
			}
		}
	}
	out.OtherLimits = h.otherLimits(ctx)
	_, embedded := h.o.Store.(store.Backupper)
	out.Store = probe(ctx, func(ctx context.Context) error {
		if w, ok := h.o.Store.(store.Writable); ok {
			if err := w.Writable(); err != nil {
				return err
			}
		}
		for _, err := range h.o.Buckets.Buckets(ctx, "", "") {
			return err
		}
		return nil
	})
	if s, ok := h.o.Store.(store.OnDisk); ok {
		if u, known := s.Disk(); known {
			out.Store.DiskBytes, out.Store.DiskFreeBytes = u.Total, u.Free
		}
	}
	out.Store.Kind, out.Leases.Kind = "cassandra", "timed"
	if embedded {
		out.Store.Kind, out.Leases.Kind = "embedded", "counted"
	}
	out.Counters = Health{Kind: "none", OK: true}
	if h.o.Counts != nil {
		out.Counters = probe(ctx, func(ctx context.Context) error {
			_, err := h.o.Counts.Stats(ctx, []store.Partition{{ID: store.PartitionID(uuid.New())}})
			return err
		})
		out.Counters.Kind = "redis"
		if embedded {
			out.Counters.Kind = "directory"
		}
	}
	if b := h.Balancer(); b != nil {
		out.Counters.AwaySince = utc(b.Status().Away)
	}
	c := h.maps.Counts()
	out.Leases.Renewals, out.Leases.Refusals = c.Renewals, c.Refused
	out.Leases.RootReads, out.Leases.PollFailures = c.RootReads, c.Failures
	if timed := h.maps.Leases(); timed.Length > 0 {
		out.Leases.LengthS, out.Leases.LeftS, out.Leases.MapClocks = timed.Length.Seconds(), timed.Left.Seconds(), timed.Clocks
		out.Terms = h.terms(ctx)
	}
	out.Clocks = h.clocks()
	if kept := h.History(); kept != nil {
		u, file, err := kept.Usage()
		out.History = &Kept{
			Columns: u.Columns, Since: utc(u.Since), Bytes: u.Bytes, Limit: u.Limit, File: file, Error: text(err),
			Omitted: kept.Omitted(),
		}
	}
	return out, nil
}

// peers returns the list of peers, joined from all that is known of processes: this process, the leading process if
// that is another one, and the listed processes.
func peers(here Peer, leads *Peer, self processes.Process, listed []processes.Process, now time.Time) []Peer {
	add := func(to *Peer, p *processes.Process) {
		to.Name, to.Admin = p.Name, cmp.Or(p.Admin, to.Admin)
		to.Version, to.Commit, to.DataCentre = cmp.Or(p.Version, to.Version), p.Commit, p.DataCentre
		to.Since, to.Seen, to.Silent = utc(p.Since), p.Seen, now.Sub(p.Seen) > processes.Silent
		if p.NewestSchema >= 0 {
			to.Schemas = []int64{p.OldestSchema, p.NewestSchema}
		}
	}
	if self.ID != uuid.Nil {
		name := here.Name
		add(&here, &self)
		here.Name = name
	}
	var others []Peer
	for i := range listed {
		p := &listed[i]
		switch {
		case p.ID == self.ID:
		case leads != nil && leads.Since.IsZero() && p.Name == leads.Name && p.Admin == leads.Admin:
			add(leads, p)
		default:
			var other Peer
			add(&other, p)
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Since.Compare(b.Since))
	})
	all := []Peer{here}
	if leads != nil {
		all = append(all, *leads)
	}
	return append(all, others...)
}

// listing is the list of processes as it was read last. A console asks every few seconds, and the list costs a read in
// every data centre.
type listing struct {
	mu  sync.Mutex
	at  time.Time
	all []processes.Process
	err error
}

// get returns the list, with an error where processes of other data centres may be missing.
func (l *listing) get(ctx context.Context, s store.Rows) ([]processes.Process, error) {
	const kept = 10 * time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) < kept {
		return l.all, l.err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*probeTime)
	defer cancel()
	wide, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	all, err := processes.List(wide, s)
	if err != nil {
		var nerr error
		if all, nerr = processes.Near(ctx, s); nerr != nil {
			return nil, nerr // of this request, perhaps: it is not kept
		}
	}
	l.at, l.all, l.err = time.Now(), all, err
	return all, err
}

func (h *handler) terms(ctx context.Context) *Terms {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	t, err := mapclient.Agreed(ctx, h.o.Store)
	out := &Terms{
		LeaseS: t.Lease.Seconds(), MaxClockSkewS: t.ClockSkew.Seconds(), Sizes: "not said yet", Schema: int64(t.Schema),
		MaxRows: t.Limits.MaxRows, MinRows: t.Limits.MinRows, MaxBytes: t.Limits.MaxBytes, Error: text(err),
	}
	if t.Counting != 0 {
		out.Sizes = t.Counting.String()
	}
	return out
}

func (h *handler) clocks() *Clocks {
	clock := h.maps.Time()
	if clock == nil {
		return nil
	}
	s := clock.Status()
	out := &Clocks{
		Known: s.Known, Bound: s.Width.Seconds(), Apart: s.Apart.Seconds(), Ahead: s.Ahead.Seconds(), Silent: s.Silent,
		Servers: []Clock{},
	}
	for _, c := range s.Servers {
		out.Servers = append(out.Servers, Clock{Server: c.Address, Ahead: c.Ahead.Seconds(), Bound: c.Bound.Seconds()})
	}
	return out
}

// probe asks something, and measures how long it takes to answer.
func probe(ctx context.Context, ask func(ctx context.Context) error) Health {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	began := time.Now()
	err := ask(ctx)
	const perMs = float64(time.Millisecond)
	return Health{OK: err == nil, LatencyMs: float64(time.Since(began)) / perMs, Error: text(err)}
}
