package sim

import (
	"math/rand/v2"
	"time"

	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/partmap"
)

// Config configures one run of a simulation. The fields have no defaults. Random draws a Config from a seed.
type Config struct {
	Seed uint64
	// Clients is the number of clients. Each client does Ops operations, on Keys keys.
	Clients, Ops, Keys int
	// Movers is the number of processes that move ranges. All movers work on the same goals, Rounds times.
	Movers, Rounds int
	// Writes is the percentage of writes among the operations.
	Writes int
	// Sparse makes clients spread their operations over the moves, and stop after Ops operations even if moves
	// continue.
	Sparse bool
	// Pace limits the steps of clients while movers wait for leases to end, as more operations would not meet another
	// phase. Clients may do 300 steps, and Pace more for each step of a mover. 0 stands for no limit.
	Pace float64
	// Loose gives each mover its own goals in each round, and lets no mover wait for another one.
	Loose bool
	// Kill is the probability that a mover dies at a failpoint. If KillAt is not 0, a mover dies only at the failpoint
	// with that number, counted over the run.
	Kill   float64
	KillAt int
	// Faults are the probabilities of the store's faults. Late writes are done after up to LateCalls calls (0: 20).
	Faults    faultstore.Rates
	LateCalls int
	// Late is the probability that a client's put or plain delete is answered with a timeout, and is done a long time
	// after the answer.
	Late float64
	// Deletes makes one client try to delete the bucket from time to time. After the deletion the run ends.
	Deletes bool
	// LongKeys makes the keys so long that the map does not fit into its root. In the network form a process then
	// collects old map nodes.
	LongKeys bool
	// Ahead makes clients list with delimiters, in pages of few rows, and read ahead.
	Ahead bool
	// Ranges makes clients also delete ranges of keys, or the rows in a range that are older than some time. It has no
	// effect together with Deletes.
	Ranges bool
	// Centres configures two data centres, in the network form. nil stands for one data centre.
	Centres *Centres
	// Net configures the network form, in which each client and mover is a process with its own clocks. nil stands for
	// the embedded form, in which all share a process.
	Net      *Net
	Mistakes Mistakes
	// Trace is called with a line of text for each step. It may be nil.
	Trace func(string)
}

// Random draws the configuration of a run in the embedded form from a seed.
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

// RandomNet draws the configuration of a run in the network form from a seed.
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

// RandomCentres draws the configuration of a run in two data centres from a seed. All timestamps come from one source,
// so the run assumes invariant I12 instead of testing it.
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

// faulty reports whether the store has faults, so that clients must expect errors.
func (c *Config) faulty() bool { return c.Late > 0 || c.Faults != faultstore.Rates{} }

// Report has the violations that a run found, and counts of what the run did. Tests check by the counts that a run did
// enough.
type Report struct {
	// Err joins all violations of invariants. Err is nil if the run found none.
	Err error
	// Steps is the number of steps of the scheduler, Swaps of swaps of the map's root, and Kills of killed movers.
	Steps, Swaps, Kills int
	// Points is the number of failpoints that movers reached.
	Points int
	// Acked and Unknown are the numbers of writes that were acknowledged, and whose outcome is unknown. Shown and
	// Absent are the numbers of keys that answers showed or did not show. Pages is the number of pages.
	Acked, Unknown, Shown, Absent, Pages int
	// Phases is the number of ranges that were seen in each phase of a move, over all versions of the map.
	Phases map[partmap.Phase]int
	// Leases is the number of checks of leases that held, Deaths of clients that died, and Collected of collected map
	// nodes.
	Leases, Deaths, Collected int
	// Outages is the number of cuts of the link between two data centres. Later is the number of writes that arrived in
	// the other data centre later, and Refused of calls at EACH_QUORUM that failed.
	Outages, Later, Refused int
	// Dropped is the number of entries that retention deleted, or of versions of objects that a cleaner deleted.
	// Uploads is the number of uploads that have ended.
	Dropped, Uploads int
	// Restores is the number of restores of snapshots that were tried.
	Restores int
	// Deleted is true if the bucket was deleted.
	Deleted bool
	// Cuts are the keys at which the map cuts the bucket at the end.
	Cuts []string
	// History has all calls of clients with their answers. History is nil if Err is not nil.
	History *history.History
}

// Register returns the rule that the history of each key must follow: the write with the highest timestamp wins, or the
// last write.
func (c *Config) Register() history.Register {
	if c.Net != nil && c.Net.Servers > 0 {
		return history.HighestWins
	}
	return history.LastWins
}
