package sim

import (
	"math/rand/v2"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/partmap"
)

// Config of one run. All of it is given; see Random.
type Config struct {
	Seed uint64
	// Clients do Ops operations each, on Keys keys.
	Clients, Ops, Keys int
	// Movers work on the same goals, Rounds times.
	Movers, Rounds int
	// Writes is the share of writes among the operations, in percent.
	Writes int
	// Sparse clients do their operations slowly, spread over the moves, and do not
	// go on as long as there are moves.
	Sparse bool
	// Loose movers have goals of their own, round by round, and do not wait for
	// each other: while one sleeps the others begin the next moves.
	Loose bool
	// Kill is the probability that a mover dies at a failpoint; KillAt is the
	// number of the one failpoint of the run at which it surely does (0: none).
	Kill   float64
	KillAt int
	// Faults of the store; late writes land after up to LateCalls calls (0: 20).
	Faults    faultstore.Rates
	LateCalls int
	// Late is the probability that a client's put, or plain delete, is answered with a
	// timeout and lands long after that.
	Late float64
	// Deletes: one client tries to delete the bucket now and then, and succeeds if it
	// finds it empty; then the run ends.
	Deletes bool
	// LongKeys make maps that do not fit into their root; their nodes are collected
	// (network form only).
	LongKeys bool
	// Ahead: clients list with delimiters, a few rows at a time, and read ahead
	// wherever they can.
	Ahead bool
	// Net is the network form; nil: the embedded one.
	Net      *Net
	Mistakes Mistakes
	// Trace gets each step.
	Trace func(string)
}

// Random makes a config from a seed: few or many of everything.
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
		c.Keys += 8 // names to go on from
	}
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

// faulty reports whether errors are to be expected.
func (c *Config) faulty() bool { return c.Late > 0 || c.Faults != faultstore.Rates{} }

// Report says what a run did and what was wrong.
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
	// Leases looked at while they were good; Deaths of clients; Collected map nodes.
	Leases, Deaths, Collected int
	// Deleted: the bucket is.
	Deleted bool
	// Cuts of the bucket at the end.
	Cuts []string
	// History is what clients did and were told, if nothing was wrong with it so far.
	History *history.History
}

// Register is what each key of a run's history is held to.
func (c *Config) Register() history.Register {
	if c.Net != nil && c.Net.Servers > 0 {
		return history.HighestWins
	}
	return history.LastWins
}
