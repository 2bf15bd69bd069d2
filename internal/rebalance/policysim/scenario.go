// Package policysim simulates days of many tenants in seconds, to show the costs and the failures of a policy for
// splits and merges before a real bucket meets them. It runs the balancer with the real recorder, counters, recounts,
// forecasts, planners, maps and state machine of moves, over a store in memory. The package itself makes no decisions.
//
// Time is simulated, and random numbers come from the seed of the scenario, so a scenario gives the same result each
// time.
package policysim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Scenario describes a simulation of the balancer, which splits and merges ranges: groups of buckets (tenants), the
// requests to them, faults, and targets for the results. One simulated row stands for a hundred real rows, so the
// defaults are those of the real programs with a hundredth of the rows.
type Scenario struct {
	Name string `yaml:"name"`
	// Text describes the scenario in a sentence for people.
	Text string `yaml:"text"`
	Seed uint64 `yaml:"seed"`
	// Days is the length of the simulation in days. Step is the step of simulated time, by default 1 s. All requests
	// that fall within a step are made at its end.
	Days float64       `yaml:"days"`
	Step time.Duration `yaml:"step"`
	// MaxRows is the maximum number of rows of a range. The default is 1,000.
	MaxRows int64 `yaml:"max_rows"`
	// Pace is the number of rows per second that all moves together copy and compare, by default a fifth of MaxRows.
	// Three times as many rows are read per second for exact counts. Look is the pause between two rounds of the
	// balancer, at least Step and by default 10 s. Phase is the wait in each phase of a move, by default 3.3 s, which
	// is a lease and a tenth.
	Pace  int           `yaml:"pace"`
	Look  time.Duration `yaml:"look"`
	Phase time.Duration `yaml:"phase"`
	// Planner is the name of the planner that chooses the cuts of splits, one of those that policy.Planners returns.
	// The default is policy.DefaultPlanner.
	Planner string `yaml:"planner"`
	// Policy has the changes that the simulation makes to the default policy of splits and merges.
	Policy Change `yaml:"policy"`
	// Counter describes how the simulated counts of rows are wrong.
	Counter struct {
		// Times is the factor by which puts are counted too often, as puts of keys that do not exist. Counts are right
		// if Times is 0 or 1.
		Times int `yaml:"times"`
		// Lost is the share, from 0 to below 1, of the batches of counts that are lost.
		Lost float64 `yaml:"lost"`
	} `yaml:"counter"`
	Tenants []Tenant `yaml:"tenants"`
	Faults  []Fault  `yaml:"faults"`
	Targets *Targets `yaml:"targets"`
}

// Change has those settings of the policy in which a simulation differs from the real programs, e.g. the horizon of
// forecasts. The policy decides when ranges are split and merged.
type Change struct {
	Horizon  time.Duration `yaml:"horizon"`
	GrowBy   float64       `yaml:"grow_by"`
	RushBy   float64       `yaml:"rush_by"`
	Spread   float64       `yaml:"spread"`
	Cool     time.Duration `yaml:"cool"`
	Roll     bool          `yaml:"roll"`
	MaxDead  int64         `yaml:"max_dead"`
	LoadPerS float64       `yaml:"load_per_s"`
	// EarlyShare, MinShare and TargetShare are limits in rows as shares of max_rows. A limit that is nil has the value
	// of the real programs.
	EarlyShare  *float64 `yaml:"early_share"`
	MinShare    *float64 `yaml:"min_share"`
	TargetShare *float64 `yaml:"target_share"`
}

// Tenant is a group of Count simulated buckets that behave alike. Loads describes the requests to each bucket. Instead
// of Loads, a tenant may have a Kind and the fields below Kind.
type Tenant struct {
	Name  string `yaml:"name"`
	Count int    `yaml:"count"`
	// Start is the state of each bucket at the beginning of the simulation. Each bucket has Ranges ranges, whose cuts
	// are spread evenly over hexadecimal keys.
	Start struct {
		Ranges int `yaml:"ranges"`
	} `yaml:"start"`
	Loads []Load `yaml:"loads"`

	Kind Kind `yaml:"kind"`
	// PerMinute is the number of rows that are written to each bucket of the tenant per minute.
	PerMinute float64 `yaml:"per_minute"`
	// From and To are the days between which requests are made to the bucket. If To is 0, the requests go on to the
	// end.
	From float64 `yaml:"from"`
	To   float64 `yaml:"to"`
	// Keys is the number of keys that are written again and again, for a tenant of the kind "overwrite".
	Keys int `yaml:"keys"`
	// DeleteAt are the days at which rows are deleted. DeleteKeep is the share of the rows (0 to 1) that each of these
	// deletes keeps.
	DeleteAt   []float64 `yaml:"delete_at"`
	DeleteKeep float64   `yaml:"delete_keep"`
	// Opaque is true if the keys have random gaps without a mean, so that the next keys cannot be forecast.
	Opaque bool `yaml:"opaque"`
}

// Kind describes the requests to the buckets of a tenant by one word, e.g. "append". For requests that no kind
// describes, a tenant has Loads.
type Kind string

// These are the kinds of tenants, which are groups of simulated buckets. They differ in the keys of their requests.
const (
	Random    Kind = "random"    // keys anywhere: random UUIDs, md5 prefixes
	Append    Kind = "append"    // each key above all others: numbers, times
	Reversed  Kind = "reversed"  // each key below all others: reversed times
	Dates     Kind = "dates"     // keys anywhere within the prefix of the day
	Hotspot   Kind = "hotspot"   // four of five keys in one percent of the key space
	Overwrite Kind = "overwrite" // the same keys again and again
	Queue     Kind = "queue"     // each key above all others, while the lowest are deleted
)

// Kinds returns all kinds of tenants, which are groups of simulated buckets.
func Kinds() []Kind { return []Kind{Random, Append, Reversed, Dates, Hotspot, Overwrite, Queue} }

// Fault is the failure of a part of the simulated system for some time, e.g. a slow store for ten minutes.
type Fault struct {
	What FaultKind     `yaml:"what"`
	From time.Duration `yaml:"from"`
	// To is the time at which the fault ends, counted from the beginning of the simulation. If To is 0, the fault lasts
	// to the end.
	To time.Duration `yaml:"to"`
	// By is the time that each read of a map or of another register takes, for the fault of a slow store.
	By time.Duration `yaml:"by"`
}

// FaultKind is the kind of a simulated fault, e.g. "slow" for a slow store.
type FaultKind string

// These are the kinds of faults in a simulation. A part of the system cannot be reached, or is slow.
const (
	CountersAway FaultKind = "counters" // the counters (Redis, say) are unreachable: no call of theirs succeeds
	MovesAway    FaultKind = "moves"    // another data centre is unreachable: no map can be changed
	SlowStore    FaultKind = "slow"     // reads of maps and other registers take the time By
)

// Targets are the greatest values that the results of a simulation may have. A field that is nil sets no target for the
// result.
type Targets struct {
	// Copied is the number of rows that moves copy, divided by the number of rows written or deleted.
	Copied *float64 `yaml:"copied" json:"copied,omitempty"`
	// Largest is the size of the largest partition at any time, as a multiple of max_rows.
	Largest *float64 `yaml:"largest" json:"largest,omitempty"`
	// Over is the longest time for which a partition has more than 1.2 x max_rows rows.
	Over *time.Duration `yaml:"over" json:"over_ns,omitempty"`
	// Ranges is the number of ranges at the end. ByIdeal is the number of ranges at the end as a multiple of the
	// smallest number of ranges that can hold the rows.
	Ranges  *int64   `yaml:"ranges" json:"ranges,omitempty"`
	ByIdeal *float64 `yaml:"by_ideal" json:"by_ideal,omitempty"`
	// Tombstones is the largest number of tombstones in a partition, as a multiple of the limit max_dead.
	Tombstones *float64 `yaml:"tombstones" json:"tombstones,omitempty"`
	// Hottest is the largest share of a bucket's requests that go to one partition in the last tenth of the simulated
	// time.
	Hottest *float64 `yaml:"hottest" json:"hottest,omitempty"`
	// Undone is the number of decisions undone within an hour, as a share of all decisions carried out. A merge undoes
	// a split, and a split undoes a merge. The default is 0.05.
	Undone *float64 `yaml:"undone" json:"undone,omitempty"`
}

// allowedUndone is the default of Targets.Undone, the share of decisions that may be undone within an hour.
const allowedUndone = 0.05

// Read returns the scenario of a simulation that r contains as YAML or JSON. The error names all unknown fields and
// wrong values.
func Read(r io.Reader) (*Scenario, error) {
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, err
	}
	p := policy.Default(0)
	s := Scenario{Step: time.Second, MaxRows: 1000, Planner: policy.DefaultPlanner, Seed: 1, Policy: Change{
		Horizon: p.Horizon, GrowBy: p.GrowBy, RushBy: p.RushBy, Spread: p.Spread, Cool: p.Cool, Roll: true,
		MaxDead: -1, LoadPerS: -1,
	}}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	s.complete()
	return &s, s.check()
}

// programRows is the maximum number of rows of a range in the real programs. programRate is the number of rows that the
// real programs move per second. A simulation has a hundredth of both by default.
const (
	programRows = 100_000
	programRate = 20_000
)

// complete sets the fields of the scenario that are not given to their defaults, and derives the loads of each tenant
// from its kind.
func (s *Scenario) complete() {
	share := float64(s.MaxRows) / programRows
	if s.Pace == 0 {
		s.Pace = max(1, int(programRate*share))
	}
	if s.Look == 0 {
		s.Look = 10 * time.Second
	}
	s.Look = max(s.Look, s.Step)
	if s.Phase == 0 {
		s.Phase = 3300 * time.Millisecond
	}
	p := policy.Default(programRows)
	if s.Policy.MaxDead < 0 {
		s.Policy.MaxDead = max(1, int64(float64(p.MaxDead)*share))
	}
	if s.Policy.LoadPerS < 0 {
		s.Policy.LoadPerS = p.LoadPerS * share
	}
	for i := range s.Tenants {
		t := &s.Tenants[i]
		if t.Count == 0 {
			t.Count = 1
		}
		if t.Name == "" {
			t.Name = string(t.Kind)
		}
		if t.Name == "" {
			t.Name = s.Name
		}
		if t.To == 0 {
			t.To = s.Days
		}
		for k := range t.Loads {
			t.Loads[k].complete()
		}
		for k := range t.DeleteAt {
			t.DeleteAt[k] = max(0, t.DeleteAt[k])
		}
		if t.Kind != "" && len(t.Loads) == 0 {
			t.Loads = t.loads(s)
		}
	}
}

// end returns the length of the simulation in simulated time.
func (s *Scenario) end() time.Duration { return days(s.Days) }

func days(n float64) time.Duration { return time.Duration(n * 24 * float64(time.Hour)) }

// maxDays, maxTenants, maxRanges and maxRequests are the largest numbers that a scenario may have. They keep a
// simulation from taking too long.
const (
	maxDays     = 10_000
	maxTenants  = 1_000_000
	maxRanges   = 200_000
	maxRequests = 100_000_000
)

func (s *Scenario) check() error {
	var wrong []error
	no := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if !(s.Days > 0 && s.Days <= maxDays) || s.Step < time.Millisecond {
		no("days is %g (more than 0, up to %d), step %v (at least 1ms)", s.Days, maxDays, s.Step)
		s.Days = 1
	}
	if s.MaxRows < 10 || s.MaxRows > 1_000_000 {
		no("max_rows is %d: 10 to 1,000,000", s.MaxRows)
	}
	if s.Pace < 1 || s.Look < 0 || s.Phase < 100*time.Millisecond || s.Phase > 10*time.Minute {
		no("pace is %d (at least 1), look %v (at least 0), phase %v (100ms to 10m)", s.Pace, s.Look, s.Phase)
	}
	if !slices.Contains(policy.Planners(), s.Planner) {
		no("planner is %q: one of %s", s.Planner, strings.Join(policy.Planners(), ", "))
	}
	if s.Counter.Times < 0 || s.Counter.Times > 100 || !(s.Counter.Lost >= 0 && s.Counter.Lost < 1) {
		no("counter.times is %d (0 to 100), counter.lost %g (0 to below 1)", s.Counter.Times, s.Counter.Lost)
	}
	if len(s.Tenants) == 0 {
		no("there are no tenants")
	}
	buckets, ranges, requests := 0, 0, 0.0
	for i := range s.Tenants {
		t := &s.Tenants[i]
		t.check(fmt.Sprintf("tenants[%d]", i), s, no)
		buckets += t.Count
		ranges += t.Count * max(1, t.Start.Ranges)
		for k := range t.Loads {
			requests += float64(t.Count) * t.Loads[k].most(s)
		}
	}
	if buckets > maxTenants || ranges > maxTenants {
		no("%d buckets with %d ranges: at most %d", buckets, ranges, maxTenants)
	}
	if requests > maxRequests {
		no("the loads make up to %.3g requests: at most %d", requests, maxRequests)
	}
	for i, f := range s.Faults {
		at := fmt.Sprintf("faults[%d]", i)
		if !slices.Contains([]FaultKind{CountersAway, MovesAway, SlowStore}, f.What) {
			no("%s.what is %q: counters, moves or slow", at, f.What)
		}
		if f.From < 0 || f.To < 0 || f.To > 0 && f.To < f.From {
			no("%s lasts from %v to %v", at, f.From, f.To)
		}
		if (f.What == SlowStore) != (f.By > 0) || f.By > time.Minute {
			no("%s.by is %v: how long reads take while the store is slow, at most 1m", at, f.By)
		}
	}
	return errors.Join(wrong...)
}

func (t *Tenant) check(at string, s *Scenario, no func(string, ...any)) {
	switch {
	case t.Kind == "" && len(t.Loads) == 0 && t.Start.Ranges == 0:
		no("%s has neither a kind nor loads: kind is one of %v", at, Kinds())
	case t.Kind != "" && !slices.Contains(Kinds(), t.Kind):
		no("%s.kind is %q: one of %v", at, t.Kind, Kinds())
	}
	if t.Count < 1 || t.Count > maxTenants {
		no("%s.count is %d: 1 to %d", at, t.Count, maxTenants)
		t.Count = 1
	}
	if t.Start.Ranges < 0 || t.Start.Ranges > maxRanges {
		no("%s.start.ranges is %d: up to %d", at, t.Start.Ranges, maxRanges)
		t.Start.Ranges = 1
	}
	if !(t.PerMinute >= 0 && t.PerMinute <= 1e6) {
		no("%s.per_minute is %g: 0 to 1e6", at, t.PerMinute)
	}
	if !(t.From >= 0 && t.To >= t.From) {
		no("%s writes from day %g to day %g", at, t.From, t.To)
	}
	if t.Kind == Overwrite && t.Keys < 1 {
		no("%s.keys is %d: an overwriting tenant needs some", at, t.Keys)
	}
	if !(t.DeleteKeep >= 0 && t.DeleteKeep <= 1) {
		no("%s.delete_keep is %g: 0 to 1", at, t.DeleteKeep)
	}
	if t.Kind != "" {
		return // its loads are derived from the fields checked above
	}
	for k := range t.Loads {
		t.Loads[k].check(fmt.Sprintf("%s.loads[%d]", at, k), no)
	}
}

// options returns the options of the simulated balancer: the options of the real programs, with the changes that the
// scenario makes.
func (s *Scenario) options() balancer.Options {
	o := balancer.For(s.MaxRows, s.Pace, s.Look, s.Phase)
	p, c := &o.Policy, &s.Policy
	p.Planner, p.Seed = s.Planner, int64(s.Seed)
	share := func(of *int64, x *float64) {
		if x != nil {
			*of = int64(*x * float64(s.MaxRows))
		}
	}
	share(&p.EarlyRows, c.EarlyShare)
	share(&p.MinRows, c.MinShare)
	share(&p.TargetRows, c.TargetShare)
	p.Horizon, p.GrowBy, p.RushBy, p.Spread, p.Cool = c.Horizon, c.GrowBy, c.RushBy, c.Spread, c.Cool
	p.MaxDead, p.LoadPerS = c.MaxDead, c.LoadPerS
	if !c.Roll {
		p.AppendShare = 2
	}
	return o
}

// faulty returns the fault of the given kind that lasts at a moment of the simulation, or nil if there is no fault of
// that kind. The parameter `at` is the moment, counted from the beginning of the simulation.
func (s *Scenario) faulty(what FaultKind, at time.Duration) *Fault {
	for i := range s.Faults {
		if f := &s.Faults[i]; f.What == what && at >= f.From && (f.To == 0 || at < f.To) {
			return f
		}
	}
	return nil
}
