// Package policysim plays months of many tenants in seconds: the real recorder, counts, recounts, policy and planners,
// over buckets that exist as numbers only. It shows what a policy costs and what it lets happen, before a real bucket
// does.
//
// It is pure: time is simulated, and chance comes from the scenario's seed.
package policysim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
)

// Scenario is what is played. One of its rows may stand for many real ones: all that matters is how rows and rates
// relate to max_rows.
type Scenario struct {
	Name string `yaml:"name"`
	// Text says what it is about.
	Text string `yaml:"text"`
	Seed uint64 `yaml:"seed"`
	// Days are played in steps; in each step it is decided about all that changed.
	Days float64       `yaml:"days"`
	Step time.Duration `yaml:"step"`
	// MaxRows of a range; default 1,000.
	MaxRows int64 `yaml:"max_rows"`
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
}

// Change is what differs from policy.Default.
type Change struct {
	Horizon time.Duration `yaml:"horizon"`
	GrowBy  float64       `yaml:"grow_by"`
	RushBy  float64       `yaml:"rush_by"`
	Spread  float64       `yaml:"spread"`
	Cool    time.Duration `yaml:"cool"`
	Roll    bool          `yaml:"roll"`
	MaxDead int64         `yaml:"max_dead"`
	// Shares of max_rows.
	EarlyShare  *float64 `yaml:"early_share"`
	MinShare    *float64 `yaml:"min_share"`
	TargetShare *float64 `yaml:"target_share"`
}

// Tenant is so many buckets that behave alike.
type Tenant struct {
	Name  string `yaml:"name"`
	Kind  Kind   `yaml:"kind"`
	Count int    `yaml:"count"`
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

// Kind is where a tenant's keys fall.
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

// Read reads a scenario: YAML, or JSON, without unknown fields. Everything that is wrong with it is in the error.
func Read(r io.Reader) (*Scenario, error) {
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, err
	}
	p := policy.Default(0)
	s := Scenario{Step: time.Minute, MaxRows: 1000, Planner: policy.DefaultPlanner, Seed: 1, Policy: Change{
		Horizon: p.Horizon, GrowBy: p.GrowBy, RushBy: p.RushBy, Spread: p.Spread, Cool: p.Cool, Roll: true, MaxDead: p.MaxDead,
	}}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	return &s, s.check()
}

// maxSteps and maxTenants bound the work.
const (
	maxSteps   = 10_000_000
	maxTenants = 1_000_000
)

func (s *Scenario) check() error {
	var wrong []error
	no := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	switch {
	case !(s.Days > 0) || s.Step <= 0:
		no("days is %g and step %v: both must be more than 0", s.Days, s.Step)
	case s.Days*24*float64(time.Hour)/float64(s.Step) > maxSteps:
		no("%g days in steps of %v: more than %d steps", s.Days, s.Step, maxSteps)
	}
	if s.MaxRows < 10 || s.MaxRows > 1_000_000 {
		no("max_rows is %d: 10 to 1,000,000", s.MaxRows)
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
	buckets := 0
	for i := range s.Tenants {
		t := &s.Tenants[i]
		at := fmt.Sprintf("tenants[%d]", i)
		if t.Count == 0 {
			t.Count = 1
		}
		if t.Name == "" {
			t.Name = string(t.Kind)
		}
		if t.To == 0 {
			t.To = s.Days
		}
		if !slices.Contains(Kinds(), t.Kind) {
			no("%s.kind is %q: one of %v", at, t.Kind, Kinds())
		}
		if t.Count < 1 || t.Count > maxTenants {
			no("%s.count is %d: 1 to %d", at, t.Count, maxTenants)
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
		buckets += t.Count
	}
	if buckets > maxTenants {
		no("%d buckets: at most %d", buckets, maxTenants)
	}
	return errors.Join(wrong...)
}

// policy is the default one with the scenario's changes.
func (s *Scenario) policy() policy.Policy {
	p := policy.Default(s.MaxRows)
	p.Budget = policy.Budget{}
	p.LoadPerS = 0 // a row stands for many: rates have no meaning of their own
	p.Lead, p.Effect = 2*s.Step, s.Step
	p.Planner, p.Seed = s.Planner, int64(s.Seed)
	p.AppendsPerS = 1e-6
	p.Recount, p.Fresh = s.Step, 2*s.Step
	c := &s.Policy
	share := func(of *int64, x *float64) {
		if x != nil {
			*of = int64(*x * float64(s.MaxRows))
		}
	}
	share(&p.EarlyRows, c.EarlyShare)
	share(&p.MinRows, c.MinShare)
	share(&p.TargetRows, c.TargetShare)
	p.Horizon, p.GrowBy, p.RushBy, p.Spread, p.Cool, p.MaxDead = c.Horizon, c.GrowBy, c.RushBy, c.Spread, c.Cool, c.MaxDead
	if !c.Roll {
		p.AppendShare = 2
	}
	return p
}
