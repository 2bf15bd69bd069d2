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

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/store"
)

// Cluster is the answer to GET /v1/cluster: the known processes that share the store, and the health of the store, the
// counters and the clocks.
type Cluster struct {
	Process   Process        `json:"process"`
	Leading   bool           `json:"leading"`
	Leader    *engine.Holder `json:"leader,omitempty"`
	Processes []Peer         `json:"processes"`
	// ProcessesError is the reason why Processes may lack processes of other data centres; absent if the list is
	// complete.
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

// Process describes the process that answers a request: its program, its start, and its use of memory.
type Process struct {
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Commit     string    `json:"commit,omitempty"`
	Go         string    `json:"go"`
	Started    time.Time `json:"started"`
	Goroutines int       `json:"goroutines"`
	Memory     uint64    `json:"memory_bytes"`
}

// Peer describes one of the processes that share a store. In a list the answering process comes first, then the leader,
// then the others by name.
//
// An old program does not enter itself into the list of processes. It is a Peer only while it leads, and its Schemas
// are absent.
type Peer struct {
	Name  string `json:"name"`
	Here  bool   `json:"here"`
	Leads bool   `json:"leads"`
	// Shards are the numbers of the shards (groups of buckets) whose moves the process leads. Absent if there are none,
	// or if only one process uses the store.
	Shards []int `json:"shards,omitempty"`
	// CleaningShards are the numbers of the shards (groups of buckets) whose objects the process cleans. Absent if
	// there are none, or if only one process uses the store.
	CleaningShards []int `json:"cleaning_shards,omitempty"`

	Admin      string    `json:"admin,omitempty"`
	Version    string    `json:"version,omitempty"`
	Commit     string    `json:"commit,omitempty"`
	DataCentre string    `json:"data_centre,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	// Seen is when the process last reported that it runs, by its own clock. Silent is true if the report is some
	// minutes old, so that the process may have died.
	Seen   time.Time `json:"seen,omitzero"`
	Silent bool      `json:"silent,omitempty"`
	// Schemas are the oldest and the newest version of the store's schema that the process knows.
	Schemas []int64 `json:"schemas,omitempty"`
}

// Terms are the settings that all processes of a store have agreed on, such as the length of leases. Only the limits of
// sizes (MaxRows, MinRows and MaxBytes) may differ among processes: Terms has those of the process that was started
// last.
type Terms struct {
	LeaseS        float64 `json:"lease_s"`
	MaxClockSkewS float64 `json:"max_clock_skew_s"`
	Sizes         string  `json:"sizes"`
	// Schema is the version of the store's schema. 0 means that the store was made before schemas had versions.
	Schema   int64 `json:"schema"`
	MaxRows  int64 `json:"max_rows,omitempty"`
	MinRows  int64 `json:"min_rows,omitempty"`
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Error is the reason why the settings could not be read, or absent.
	Error string `json:"error,omitempty"`
}

// Health is the result of a test of the store, or of the backend of the counters: whether it answers at present, and
// how fast. LatencyMs is the time of one request in milliseconds.
type Health struct {
	Kind      string    `json:"kind"`
	OK        bool      `json:"ok"`
	LatencyMs float64   `json:"latency_ms"`
	Error     string    `json:"error,omitempty"`
	AwaySince time.Time `json:"away_since,omitzero"`
	// DiskBytes and DiskFreeBytes are the size and the free space, in bytes, of the disk that has the data directory,
	// if they are known.
	DiskBytes     uint64 `json:"disk_bytes,omitempty"`
	DiskFreeBytes uint64 `json:"disk_free_bytes,omitempty"`
}

// Leases describes for how long this process may use partition maps of buckets without reading them again. Kind is
// "counted" if this is the only process of the store (embedded), else "timed".
type Leases struct {
	Kind string `json:"kind"`
	// LengthS, LeftS and MapClocks are for timed leases only. LengthS is the length of a lease. LeftS is the time until
	// the first lease of this process ends if it is not renewed. MapClocks is the number of map clocks (counters that
	// tell clients of changed partition maps) with such leases. LeaderLeftS is the rest of the leader's lease. All
	// times are in seconds.
	LengthS      float64 `json:"length_s,omitempty"`
	LeftS        float64 `json:"left_s,omitempty"`
	MapClocks    int     `json:"map_clocks,omitempty"`
	LeaderLeftS  float64 `json:"leader_left_s,omitempty"`
	Renewals     int64   `json:"renewals"`
	Refusals     int64   `json:"refusals"`
	RootReads    int64   `json:"root_reads"`
	PollFailures int64   `json:"poll_failures"`
}

// Clocks compares the clocks of the store's servers with each other and with the clock of this machine. All times are
// in seconds.
type Clocks struct {
	Known bool `json:"known"`
	// Bound is the uncertainty of the common time of the servers, which lies in an interval of this width. Apart is the
	// smallest possible difference between the two servers that differ most. Ahead is how far this machine's clock is
	// ahead of the common time.
	Bound   float64 `json:"bound_s"`
	Apart   float64 `json:"apart_s"`
	Ahead   float64 `json:"ahead_s"`
	Silent  int     `json:"silent"`
	Servers []Clock `json:"servers"`
}

// Clock compares the clock of one server of the store with the clock of this machine. Ahead is the number of seconds by
// which the server's clock is ahead, and Bound is the greatest error of Ahead in seconds.
type Clock struct {
	Server string  `json:"server"`
	Ahead  float64 `json:"ahead_s"`
	Bound  float64 `json:"bound_s"`
}

// Kept says how much of the history (sizes, requests and moves of ranges over time) is remembered, in memory and in a
// file.
type Kept struct {
	Columns int       `json:"columns"`
	Since   time.Time `json:"since,omitzero"`
	Bytes   int64     `json:"bytes"`
	Limit   int64     `json:"limit_bytes"`
	File    string    `json:"file,omitempty"`
	Error   string    `json:"error,omitempty"`
	// Omitted is the number of buckets that took requests but for which the last sample of the history had no room.
	Omitted int `json:"omitted_buckets,omitempty"`
}

// probeTime is the longest wait for the answer when the store or the counters are tested. A slower service counts as
// not answering.
const probeTime = 2 * time.Second

// started is the time at which this process was started. It is some milliseconds late, since it is set when the package
// is initialized.
var started = time.Now()

// self returns the name of this process for people, such as "listd on host1, process 4711".
func (h *handler) self() string {
	if h.o.Leader != nil {
		return h.o.Leader.Name
	}
	return engine.Name(filepath.Base(os.Args[0]))
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
	var leads *Peer // the leader, if it is another process
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
	each := func(all []Share, set func(p *Peer, shards []int)) {
		for i := range all {
			if p := peerOf(out.Processes, &all[i]); p != nil {
				set(p, all[i].Shards)
			}
		}
	}
	if h.o.Leader != nil {
		leaders := h.Leaders(ctx)
		each(shares(leaders[:], h.Led()), func(p *Peer, shards []int) {
			p.Leads, p.Shards = true, joined(p.Shards, shards)
		})
	}
	if c := h.o.Cleaning; c != nil {
		led := c.Status(ctx).Shards
		each(shares(c.Leaders(ctx), led), func(p *Peer, shards []int) {
			p.CleaningShards = joined(p.CleaningShards, shards)
		})
	}
	out.OtherLimits = h.otherLimits(ctx)
	_, embedded := h.o.Store.(store.OnDisk)
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

// peerOf returns the element of `all` that is the process in share, which leads shards (groups of buckets). It returns
// nil if there is no such element.
func peerOf(all []Peer, share *Share) (of *Peer) {
	// A process is recognized by its name and its address. A process that was killed and started anew in the same
	// container has the same name and address as before; the process that was started last counts.
	for i := range all {
		p := &all[i]
		same := p.Here && share.Here || !p.Here && !share.Here && p.Name == share.Name && p.Admin == share.Admin
		if same && (of == nil || p.Since.After(of.Since)) {
			of = p
		}
	}
	return of
}

// joined merges two lists of the numbers of shards (groups of buckets) into one sorted list. A process that was started
// anew has two such lists: one for its present id, and one for its previous id.
func joined(a, b []int) []int {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return all
}

// peers returns all known processes of the store, in the order in which they are shown. It merges three sources:
//   - here describes this process, and self is its entry in the stored list,
//   - leads describes the leader, or is nil if this process leads, and
//   - listed is the stored list of processes.
//
// The argument `now` is the present time.
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
	leading := -1 // index of the leader in listed
	for i := range listed {
		p := &listed[i]
		if leads != nil && p.ID != self.ID && p.Name == leads.Name && p.Admin == leads.Admin &&
			(leading < 0 || p.Since.After(listed[leading].Since)) {
			leading = i // the one that was started last, as in peerOf
		}
	}
	var others []Peer
	for i := range listed {
		p := &listed[i]
		switch {
		case p.ID == self.ID:
		case i == leading:
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

// listing caches the list of the processes that share the store. A console asks for the list every few seconds, and
// each read of the list costs a read in every data centre.
type listing struct {
	mu  sync.Mutex
	at  time.Time
	all []processes.Process
	err error
}

// get returns the list of the processes that share the store, at most ten seconds old. If it returns both a list and an
// error, the list may lack processes of other data centres.
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
			return nil, nerr // not cached, since the reason may be this request's own context
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

// probe tests a service by calling ask, which sends one request to it. The result says whether the service has
// answered, and how long the answer took.
func probe(ctx context.Context, ask func(ctx context.Context) error) Health {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	began := time.Now()
	err := ask(ctx)
	const perMs = float64(time.Millisecond)
	return Health{OK: err == nil, LatencyMs: float64(time.Since(began)) / perMs, Error: text(err)}
}
