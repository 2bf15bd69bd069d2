// Package policysim plays days of many tenants in seconds: the balancer, with the real recorder, counters, recounts,
// forecasts, planners, maps and state machine of moves, over a store in memory. It decides nothing itself. It shows what
// a policy costs and what it lets happen, before a real bucket does.
//
// Time is simulated, and random numbers come from the scenario's seed: a scenario gives the same result each time.
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

// Scenario is what is played. One of its rows stands for a hundred: the defaults are those of the programs, with a
// hundredth of the rows.
type Scenario struct {
	Name string `yaml:"name"`
	// Text says what it is about.
	Text string `yaml:"text"`
	Seed uint64 `yaml:"seed"`
	// Days are played. What tenants request within a Step, default 1 s, comes at its end.
	Days float64       `yaml:"days"`
	Step time.Duration `yaml:"step"`
	// MaxRows of a range; default 1,000.
	MaxRows int64 `yaml:"max_rows"`
	// Pace is how many rows per second are copied and compared, in all moves together, and a third of those that are
	// counted; default a fifth of MaxRows. Look is the pause between two looks, at least Step and by default 10 s. Phase
	// is the wait of each phase of a move, default 3.3 s: a lease and a tenth.
	Pace  int           `yaml:"pace"`
	Look  time.Duration `yaml:"look"`
	Phase time.Duration `yaml:"phase"`
	// Planner cuts what is split: one of policy.Planners; default policy.DefaultPlanner.
	Planner string `yaml:"planner"`
	// Policy changes the default policy.
	Policy Change `yaml:"policy"`
	// Counter makes counts wrong.
	Counter struct {
		// Times is how many times too high puts are counted, with keys that do not exist; 0 or 1: right.
		Times int `yaml:"times"`
		// Lost is the share of batches that are lost.
		Lost float64 `yaml:"lost"`
	} `yaml:"counter"`
	Tenants []Tenant `yaml:"tenants"`
	Faults  []Fault  `yaml:"faults"`
	Targets *Targets `yaml:"targets"`
}

// Change is what differs from the policy of the programs.
type Change struct {
	Horizon  time.Duration `yaml:"horizon"`
	GrowBy   float64       `yaml:"grow_by"`
	RushBy   float64       `yaml:"rush_by"`
	Spread   float64       `yaml:"spread"`
	Cool     time.Duration `yaml:"cool"`
	Roll     bool          `yaml:"roll"`
	MaxDead  int64         `yaml:"max_dead"`
	LoadPerS float64       `yaml:"load_per_s"`
	// Shares of max_rows.
	EarlyShare  *float64 `yaml:"early_share"`
	MinShare    *float64 `yaml:"min_share"`
	TargetShare *float64 `yaml:"target_share"`
}

// Tenant is so many buckets that behave alike. What its buckets do is in Loads, or in Kind and the fields below it.
type Tenant struct {
	Name  string `yaml:"name"`
	Count int    `yaml:"count"`
	// Start is what a bucket has at the beginning: so many ranges, whose cuts are spread over hexadecimal numbers.
	Start struct {
		Ranges int `yaml:"ranges"`
	} `yaml:"start"`
	Loads []Load `yaml:"loads"`

	Kind Kind `yaml:"kind"`
	// PerMinute are the rows that each bucket writes.
	PerMinute float64 `yaml:"per_minute"`
	// From and To are the days between which it writes; To 0: to the end.
	From float64 `yaml:"from"`
	To   float64 `yaml:"to"`
	// Keys are how many keys Overwrite writes again and again.
	Keys int `yaml:"keys"`
	// DeleteAt are the days at which all but DeleteKeep of the rows are deleted.
	DeleteAt   []float64 `yaml:"delete_at"`
	DeleteKeep float64   `yaml:"delete_keep"`
	// Opaque keys can't be forecast.
	Opaque bool `yaml:"opaque"`
}

// Kind is a tenant's load in a word; Loads say more.
type Kind string

// The kinds of tenants.
const (
	Random    Kind = "random"    // anywhere: random UUIDs, md5 prefixes
	Append    Kind = "append"    // above all others: numbers, times
	Reversed  Kind = "reversed"  // below all others: reversed times
	Dates     Kind = "dates"     // anywhere within the day's prefix
	Hotspot   Kind = "hotspot"   // four of five in one percent of the keys
	Overwrite Kind = "overwrite" // the same keys again and again
	Queue     Kind = "queue"     // above all others, the lowest are deleted
)

// Kinds lists them.
func Kinds() []Kind { return []Kind{Random, Append, Reversed, Dates, Hotspot, Overwrite, Queue} }

// Fault is something that does not work for a while.
type Fault struct {
	What FaultKind     `yaml:"what"`
	From time.Duration `yaml:"from"`
	// To 0: to the end.
	To time.Duration `yaml:"to"`
	// By is how long each read of a register takes while the store is slow.
	By time.Duration `yaml:"by"`
}

// FaultKind is what does not work.
type FaultKind string

// The kinds of faults.
const (
	CountersAway FaultKind = "counters" // Redis, say, is away: no call of the counters succeeds
	MovesAway    FaultKind = "moves"    // another data centre is away: no map can be changed
	SlowStore    FaultKind = "slow"     // reads of maps and other registers take By
)

// Targets are what a scenario should reach; what is not set is not compared.
type Targets struct {
	// Copied are rows copied per row written and deleted.
	Copied *float64 `yaml:"copied" json:"copied,omitempty"`
	// Largest is the most rows that a partition ever has, as a multiple of max_rows.
	Largest *float64 `yaml:"largest" json:"largest,omitempty"`
	// Over is the longest time for which a partition had more than 1.2 x max_rows.
	Over *time.Duration `yaml:"over" json:"over_ns,omitempty"`
	// Ranges are those at the end; ByIdeal as a multiple of the fewest that hold the rows.
	Ranges  *int64   `yaml:"ranges" json:"ranges,omitempty"`
	ByIdeal *float64 `yaml:"by_ideal" json:"by_ideal,omitempty"`
	// Tombstones are the most in a partition, as a multiple of their limit.
	Tombstones *float64 `yaml:"tombstones" json:"tombstones,omitempty"`
	// Hottest is the largest share of a bucket's requests that one range took in the last tenth of the time.
	Hottest *float64 `yaml:"hottest" json:"hottest,omitempty"`
	// Undone are splits undone by merges, and merges by splits, within an hour, per decision carried out; default 0.05.
	Undone *float64 `yaml:"undone" json:"undone,omitempty"`
}

// allowedUndone is the default of Targets.Undone.
const allowedUndone = 0.05

// Read reads a scenario: YAML, or JSON, without unknown fields. Everything that is wrong with it is in the error.
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

// The defaults of the programs, for ranges of at most programRows rows.
const (
	programRows = 100_000
	programRate = 20_000
)

// complete sets what is not given.
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

// end is how long a scenario lasts.
func (s *Scenario) end() time.Duration { return days(s.Days) }

func days(n float64) time.Duration { return time.Duration(n * 24 * float64(time.Hour)) }

// maxDays, maxTenants, maxRanges and maxRequests bound the work.
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
		return // its loads follow from what was checked
	}
	for k := range t.Loads {
		t.Loads[k].check(fmt.Sprintf("%s.loads[%d]", at, k), no)
	}
}

// options are those of the balancer: the programs' with the scenario's changes.
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

// faulty returns the fault of a kind at a time since the beginning, nil for none.
func (s *Scenario) faulty(what FaultKind, at time.Duration) *Fault {
	for i := range s.Faults {
		if f := &s.Faults[i]; f.What == what && at >= f.From && (f.To == 0 || at < f.To) {
			return f
		}
	}
	return nil
}
