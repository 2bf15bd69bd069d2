package sizing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
)

// Unit is what a figure counts.
type Unit string

// The units.
const (
	Count     Unit = ""
	PerSecond Unit = "/s"
	PerMinute Unit = "/min"
	Bytes     Unit = "bytes"
	Seconds   Unit = "s"
)

// Line is one figure of a plan.
type Line struct {
	What   string  `json:"what"`
	Figure float64 `json:"figure"`
	Unit   Unit    `json:"unit,omitempty"`
	// Limit is what the figure may be at most, and Share how much of it the figure is; both are 0 where there is none.
	Limit float64 `json:"limit,omitempty"`
	Share float64 `json:"share,omitempty"`
	// MovedBy says which flag changes the figure or the limit, or what else does.
	MovedBy string `json:"moved_by,omitempty"`
}

// Of computes the figures of a plan: those with a limit first, by their shares.
func Of(in *Input) []Line {
	lines := slices.Concat(in.store(), in.moves(), in.sizes(), in.looks())
	for i := range lines {
		if l := &lines[i]; l.Limit > 0 {
			l.Share = l.Figure / l.Limit
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(b.Share, a.Share) })
	return lines
}

// Wall returns the sentence that names the first wall, by lines in the order of Of.
func Wall(lines []Line) string {
	l, text := lines[0], "The first wall"
	if l.Share < 1 {
		text = "No wall; the nearest"
	}
	return fmt.Sprintf("%s: %s, at %s of the limit. What moves it: %s.", text, l.What, Percent(l.Share), l.MovedBy)
}

// Percent writes a share.
func Percent(share float64) string {
	if share < 0.1 {
		return fmt.Sprintf("%.2g %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// ranges is how many ranges the keys have: as large as the policy makes them, and one in each bucket at least.
func (in *Input) ranges() float64 {
	p := policy.Default(in.MaxRows)
	rows := float64(p.TargetRows)
	if row := float64(in.KeyBytes + in.ValueBytes); row > 0 {
		rows = max(1, min(rows, float64(p.MaxBytes)*rows/float64(p.MaxRows)/row))
	}
	return max(float64(in.Buckets), math.Ceil(float64(in.Keys)/rows))
}

// full is how many rows a range has when it is split.
func (in *Input) full() float64 {
	p := policy.Default(in.MaxRows)
	return max(2, min(float64(p.MaxRows), float64(p.MaxBytes)/float64(in.KeyBytes+in.ValueBytes)))
}

// store is what the nodes have and are asked.
func (in *Input) store() []Line {
	servers, nodes, centres := float64(in.Servers), float64(in.Nodes), float64(in.DataCentres)
	near, puts := servers/centres, in.Inserts+in.Appends

	clients := (in.Requests*quorum + puts*copies*centres) / nodes
	polls := in.polls() * quorum / nodes
	questions := in.questions()
	what := "more nodes"
	if polls > max(clients, questions) {
		what = "--lease; more nodes"
	}
	return []Line{
		{What: "requests at a node, all together", Figure: clients + polls + questions, Unit: PerSecond,
			Limit: in.NodeRequests, MovedBy: what},
		{What: "requests of clients at a node, by replicas", Figure: clients, Unit: PerSecond, MovedBy: "more nodes"},
		{What: "polls of map clocks at a node, by replicas", Figure: polls, Unit: PerSecond, MovedBy: "--lease"},
		{What: "questions for the time at a node, at most", Figure: questions, Unit: PerSecond, MovedBy: "more nodes"},
		{What: "connections of a node", Figure: near*2 + (servers - near), MovedBy: "fewer servers"},
		{What: "bytes of rows on a node", Figure: float64(in.Keys) * float64(in.KeyBytes+in.ValueBytes+rowBytes) *
			copies * centres / nodes, Unit: Bytes, Limit: float64(in.NodeGiB) * (1 << 30), MovedBy: "more nodes"},
	}
}

// polls is how many polls of map clocks all servers send in a second.
func (in *Input) polls() float64 {
	clocks := min(mapclient.DefaultClocks, float64(in.Buckets))
	return float64(in.Servers) * clocks / mapclient.PollPause(in.Lease, 0.5).Seconds()
}

// questions is how often a node is asked for its time in a second, where each put has to wait.
func (in *Input) questions() float64 {
	near := float64(in.Servers) / float64(in.DataCentres)
	puts := (in.Inserts + in.Appends) / float64(in.DataCentres)
	if puts == 0 {
		return 0
	}
	most := near * questionsPerS * min(1, evenNodes/float64(in.Nodes))
	return max(min(most, puts*questionsPerPut), near*idleQuestions) + float64(in.Servers) - near
}

// moves is what splits and cuts ahead of appends take.
func (in *Input) moves() []Line {
	rate, what := in.movesPerS()
	part := in.full() / 2 // of a range that is split half of the rows stay
	splits, cuts := in.Inserts/part, in.Appends/float64(policy.Default(in.MaxRows).TargetRows)
	batch, swap := in.batch(part), in.rounds(swapRoundsV1, swapRounds)
	batches := min(60*(splits+cuts), float64(in.BusyBuckets)*perMinute(batch))
	// A bump is a read and a swap. Those of a clock share one where more come than can follow each other.
	bumps := min(batches*moveSwaps/min(mapclient.DefaultClocks, float64(in.BusyBuckets)), perMinute(swap+swap/2))
	serial := "less distance"
	if in.Paxos == V1 {
		serial = "paxos_variant v2"
	}
	return []Line{
		{What: "rows that move a second", Figure: in.Inserts, Unit: PerSecond, Limit: rate, MovedBy: what},
		{What: "batches of moves a minute", Figure: batches, Unit: PerMinute,
			Limit: scheduler.DefaultBuckets * perMinute(batch), MovedBy: "--lease; writes to fewer buckets"},
		{What: "ranges that are copied or compared at once", Figure: splits * in.moved(part).Seconds(),
			Limit: scheduler.RangesAtOnce, MovedBy: "fewer keys at random places"},
		{What: "time of a batch of moves", Figure: batch.Seconds(), Unit: Seconds, MovedBy: "--lease, --max-rows"},
		{What: "swaps a minute of the busiest record at SERIAL", Unit: PerMinute,
			Figure: max(perMinute(leader.DefaultLease/3+swap), bumps), Limit: perMinute(swap),
			MovedBy: serial},
	}
}

// movesPerS is how many rows one leader moves in a second at most, and what changes that.
func (in *Input) movesPerS() (rate float64, what string) {
	rate, what = unlimitedRows, "fewer keys at random places"
	if paced := balancer.For(in.MaxRows, in.MoveRate, time.Minute, 0).Policy.MovedPerS; paced > 0 && paced < rate {
		rate, what = paced, "--move-rate"
	}
	// All ranges that move at once have to wait for the distance.
	if most := scheduler.RangesAtOnce * rowsARound / 2 / (in.RoundTrip + atNode).Seconds(); most < rate {
		rate, what = most, "fewer keys at random places"
	}
	return rate, what
}

// moved is how long so many rows of one range are copied, compared and removed.
func (in *Input) moved(rows float64) time.Duration {
	return rangeTakes + times(2*rows/rowsARound, in.RoundTrip+atNode)
}

// batch is how long a batch takes that moves so many rows of each of its ranges.
func (in *Input) batch(rows float64) time.Duration {
	return moveWaits*mapclient.WaitFor(in.Lease) + in.rounds(moveRoundsV1, moveRounds) + in.moved(rows)
}

func perMinute(d time.Duration) float64 { return time.Minute.Seconds() / d.Seconds() }

// sizes is what counters and caches take.
func (in *Input) sizes() []Line {
	ranges, servers, buckets := in.ranges(), float64(in.Servers), float64(in.Buckets)
	cache := in.MapCacheMiB << 20
	roots, names := float64(mapclient.RootBytes(cache)), float64(listing.CachedNames(cache))
	// In a second a server has requests to so many ranges: anywhere, or at the ends of busy buckets.
	all := in.Inserts + in.Appends + in.Requests
	anywhere := (in.Inserts + in.Requests) / servers
	pairs := servers * (ranges*-math.Expm1(-anywhere/ranges) + min(float64(in.BusyBuckets), in.Appends/servers))
	merging := 0.0
	if pairs > 0 {
		merging = pairs / mergesPerS * math.Pow(max(1, all/pairs), mergeGrowth)
	}
	return []Line{
		{What: "ranges", Figure: ranges, MovedBy: "--max-rows"},
		{What: "memory of Redis", Figure: ranges * redisBytes, Unit: Bytes, Limit: float64(in.RedisGiB) * (1 << 30),
			MovedBy: "more memory; a Redis Cluster; --max-rows"},
		{What: "flushes to Redis", Figure: servers, Unit: PerSecond, MovedBy: "fewer servers"},
		{What: "cores that merge counts", Figure: merging, Limit: 1,
			MovedBy: "requests that go to fewer ranges each second"},
		{What: "memory of a server's caches of maps", Figure: min(ranges*mapBytes, float64(cache)) +
			min(buckets*rootBytes, roots) + min(buckets, names)*nameBytes, Unit: Bytes, MovedBy: "--map-cache-mib"},
		{What: "maps in a server's cache", Figure: ranges * mapBytes, Unit: Bytes, Limit: float64(cache),
			MovedBy: "--map-cache-mib"},
		{What: "buckets in a server's caches", Figure: buckets, Limit: min(names, roots/rootBytes),
			MovedBy: "--map-cache-mib"},
	}
}

// looks is how long it takes to look at everything.
func (in *Input) looks() []Line {
	ranges, buckets, keys := in.ranges(), float64(in.Buckets), float64(in.Keys)
	options := balancer.For(in.MaxRows, in.MoveRate, time.Minute, 0)
	counts := cmp.Or(float64(scheduler.CountedFor*in.MoveRate), unlimitedCounts)
	look := buckets/rootsPerSecond(balancer.ScansAtOnce, localRead) + ranges*lookAtARange.Seconds()
	proof := (localRead*(scheduler.ScansToProve-1) + in.rounds(swapRoundsV1, swapRounds)) / scheduler.ScansToProve
	scan := buckets / min(scheduler.RootsPerSecond, rootsPerSecond(scheduler.RootsAtOnce, proof))
	recount := Line{What: "recount after Redis lost all", Figure: keys / counts, Unit: Seconds, MovedBy: "--move-rate"}
	if in.Inserts > 0 && keys > 0 { // nothing is split meanwhile, so no range should become twice as large
		recount.Limit = keys / in.Inserts
	}
	lines := []Line{
		recount,
		{What: "confirmation of all sizes", Figure: keys / options.ConfirmPerS, Unit: Seconds, MovedBy: "--move-rate"},
		{What: "look at all buckets", Figure: look, Unit: Seconds, Limit: balancer.FullEvery.Seconds(),
			MovedBy: "fewer buckets"},
		{What: "scan of all roots", Figure: scan, Unit: Seconds, MovedBy: "fewer buckets"},
		{What: fmt.Sprintf("rebalancer verify --rate %d", verifyRate), Figure: keys / verifyRate, Unit: Seconds,
			MovedBy: "--rate; one bucket at a time"},
	}
	if in.Objects {
		rate := cmp.Or(float64(in.CleanRate), unlimitedCounts)
		lines = append(lines, Line{What: "round of the cleaner", Figure: keys / rate, Unit: Seconds,
			Limit: cleanIsLate.Seconds(), MovedBy: "--clean-rate"})
	}
	return lines
}

// rootsPerSecond is how many roots are looked at in a second, so many at once, where each takes so long.
func rootsPerSecond(atOnce float64, each time.Duration) float64 { return atOnce / each.Seconds() }
