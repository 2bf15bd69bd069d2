package sim

import (
	"math/rand/v2"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/partmap"
)

// Config is one run. It has no defaults; Random draws one.
type Config struct {
	Seed uint64
	// Clients do Ops operations each, on Keys keys.
	Clients, Ops, Keys int
	// Movers work on the same goals, Rounds times.
	Movers, Rounds int
	// Writes is the share of writes among the operations, in percent.
	Writes int
	// Sparse clients spread their operations over the moves, and stop after Ops also if
	// moves continue.
	Sparse bool
	// Pace bounds the steps of clients while movers wait for leases to end, where more operations meet no further phase:
	// 300, and Pace for each step of a mover. 0: there is no bound.
	Pace float64
	// Loose movers have goals of their own in each round and do not wait for each
	// other.
	Loose bool
	// Kill is the probability that a mover dies at a failpoint. KillAt is the number of
	// the only failpoint of the run at which one dies (0: Kill decides).
	Kill   float64
	KillAt int
	// Faults of the store; late writes land after up to LateCalls calls (0: 20).
	Faults    faultstore.Rates
	LateCalls int
	// Late is the probability that a client's put, or plain delete, is answered with a
	// timeout and lands long after that.
	Late float64
	// Deletes: one client sometimes tries to delete the bucket. Once it is deleted the
	// run ends.
	Deletes bool
	// LongKeys make maps that do not fit into their root; a process collects old map
	// nodes (network form only).
	LongKeys bool
	// Ahead: clients list with delimiters, in pages of few rows, and read ahead.
	Ahead bool
	// Ranges: clients also delete ranges of keys, or what is older than some time in them, unless the bucket may be
	// deleted.
	Ranges bool
	// Centres are two data centres, in the network form; nil: there is one.
	Centres *Centres
	// Net is the network form; nil: the embedded one.
	Net      *Net
	Mistakes Mistakes
	// Trace gets each step.
	Trace func(string)
}

// Random draws a config from a seed.
func Random(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 1))
	c := Config{
		Seed: seed, Clients: 1 + r.IntN(4), Ops: 15 + r.IntN(20), Keys: 3 + r.IntN(10), Movers: 1 + r.IntN(2),
		Rounds: 2 + r.IntN(2),
	}
	c.Writes = []int{25, 55, 80}[r.IntN(3)]
	if c.Sparse = r.IntN(4) == 0; c.Sparse {
		c.Ops = 3 + r.IntN(8)
	}
	c.Loose = r.IntN(3) == 0
	c.LateCalls = []int{20, 300}[r.IntN(2)]
	c.Kill = []float64{0, 0, 0.03, 0.15}[r.IntN(4)]
	if r.IntN(4) == 0 {
		c.Late = 0.2
	}
	if r.IntN(2) == 0 {
		c.Faults = faultstore.Rates{Refuse: 0.01, Lose: 0.03, Late: 0.05, Repeat: 0.05, Short: 0.2}
	}
	if r.IntN(8) == 0 {
		c.Deletes, c.Keys, c.Writes = true, 1+r.IntN(2), 80
	}
	if c.Ahead = rand.New(rand.NewPCG(seed, 7)).IntN(3) == 0; c.Ahead && !c.Deletes {
		c.Keys += 8 // reading ahead extrapolates from names
	}
	c.Ranges = rand.New(rand.NewPCG(seed, 8)).IntN(3) == 0
	return c
}

// RandomNet is Random for the network form.
func RandomNet(seed uint64) Config {
	c := Random(seed)
	r := rand.New(rand.NewPCG(seed, 6))
	c.Ops = 5 + r.IntN(15)
	c.Net = &Net{
		Lease: 300 * time.Millisecond, Drift: 0.004,
		Lag: []time.Duration{0, 200 * time.Millisecond, time.Second}[r.IntN(3)], Torn: 0.3, Cut: 0.05,
		Weather: []float64{0, 0.003, 0.01}[r.IntN(3)],
	}
	if r.IntN(3) == 0 {
		c.Net.Servers, c.Net.Apart = 1+2*r.IntN(2), time.Duration(r.IntN(30))*time.Millisecond
	}
	if c.LongKeys = r.IntN(4) == 0; c.LongKeys {
		c.Keys, c.Net.Stall = max(c.Keys, 8), 0.1
	}
	return c
}

// RandomCentres is RandomNet for two data centres. All timestamps come from one source, so I12 is assumed.
func RandomCentres(seed uint64) Config {
	c := RandomNet(seed)
	r := rand.New(rand.NewPCG(seed, 13))
	c.Net.Servers = 0
	c.Clients = max(c.Clients, 2)
	c.Pace = 2 // half of it, and no bound, find fewer mistakes in the same time
	c.Centres = &Centres{
		Delay: []time.Duration{5 * time.Millisecond, 100 * time.Millisecond, time.Second}[r.IntN(3)],
		Lose:  []float64{0, 0.05, 0.3}[r.IntN(3)],
		Cut:   []float64{0, 0.7, 2.7}[r.IntN(3)], Outage: time.Second,
	}
	return c
}

// faulty reports whether clients must expect errors.
func (c *Config) faulty() bool { return c.Late > 0 || c.Faults != faultstore.Rates{} }

// Report is what a run did, and its violations.
type Report struct {
	// Err joins all violations; nil: none.
	Err error
	// Steps of the scheduler; Swaps of the root; Kills of movers.
	Steps, Swaps, Kills int
	// Points is how many failpoints were reached.
	Points int
	// Acked and Unknown writes; keys Shown and Absent in answers; Pages.
	Acked, Unknown, Shown, Absent, Pages int
	// Phases is how many ranges were seen in each phase, over all roots.
	Phases map[partmap.Phase]int
	// Leases checked while they held; Deaths of clients; Collected map nodes.
	Leases, Deaths, Collected int
	// Outages of the link between two data centres, writes that came to the other one Later, and calls at each quorum that
	// were Refused.
	Outages, Later, Refused int
	// Dropped entries, by retention, or versions that were finished; Uploads that have ended.
	Dropped, Uploads int
	// Restores that were tried.
	Restores int
	// Deleted: the bucket was deleted.
	Deleted bool
	// Cuts of the bucket at the end.
	Cuts []string
	// History has all calls of clients and their answers; nil if Err is not.
	History *history.History
}

// Register is the rule that each key of a run's history must follow.
func (c *Config) Register() history.Register {
	if c.Net != nil && c.Net.Servers > 0 {
		return history.HighestWins
	}
	return history.LastWins
}
