package sizing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/policy"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/rebalance/shard"
)

// Unit is the unit of a computed figure, as it is printed after the number, e.g. "/s".
type Unit string

// These are the units of the computed figures.
const (
	Count     Unit = ""
	PerSecond Unit = "/s"
	PerMinute Unit = "/min"
	Bytes     Unit = "bytes"
	Seconds   Unit = "s"
)

// Line is one computed figure of a planned keyspace, such as the requests at a node, with its unit, its limit, and the
// flag or cause that changes it.
type Line struct {
	What   string  `json:"what"`
	Figure float64 `json:"figure"`
	Unit   Unit    `json:"unit,omitempty"`
	// Limit is the largest figure that is possible, and Share is the figure divided by the limit. Both are 0 if there
	// is no limit.
	Limit float64 `json:"limit,omitempty"`
	Share float64 `json:"share,omitempty"`
	// MovedBy names the flag, or another cause, that changes the figure or the limit, e.g. "--lease; more nodes".
	MovedBy string `json:"moved_by,omitempty"`
}

// Of computes the figures of the planned keyspace `in`, such as the requests at a node. The figures are sorted by their
// share of their limit, the largest share first. Figures without a limit come last.
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

// Wall returns a sentence about the limit that the keyspace reaches first as it grows, and how to raise this limit.
// lines is the result of Of, and must not be empty.
func Wall(lines []Line) string {
	l, text := lines[0], "The first wall"
	if l.Share < 1 {
		text = "No wall; the nearest"
	}
	return fmt.Sprintf("%s: %s, at %s of the limit. What moves it: %s.", text, l.What, Percent(l.Share), l.MovedBy)
}

// Percent returns the number share as a percentage: 0.25 as "25 %". Shares below a tenth have two significant digits.
func Percent(share float64) string {
	if share < 0.1 {
		return fmt.Sprintf("%.2g %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// ranges returns the number of ranges that hold all keys of the keyspace. Each bucket has at least one range. A range
// has as many rows as the rebalancer's policy aims at.
func (in *Input) ranges() float64 {
	p := policy.Default(in.MaxRows)
	rows := float64(p.TargetRows)
	if row := float64(in.KeyBytes + in.ValueBytes); row > 0 {
		rows = max(1, min(rows, float64(p.MaxBytes)*rows/float64(p.MaxRows)/row))
	}
	return max(float64(in.Buckets), math.Ceil(float64(in.Keys)/rows))
}

// full returns the number of rows at which a range is full, so that the rebalancer splits it. If rows are large, a
// range reaches the limit of bytes before the limit of rows.
func (in *Input) full() float64 {
	p := policy.Default(in.MaxRows)
	return max(2, min(float64(p.MaxRows), float64(p.MaxBytes)/float64(in.KeyBytes+in.ValueBytes)))
}

// store returns the figures of Cassandra's nodes: requests per second, connections, and bytes of rows.
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

// polls returns how often per second all servers together read map clocks. A map clock is a counter that many buckets
// share; a server reads it to renew its leases on their maps.
func (in *Input) polls() float64 {
	clocks := min(mapclient.DefaultClocks, float64(in.Buckets))
	return float64(in.Servers) * clocks / mapclient.PollPause(in.Lease, 0.5).Seconds()
}

// questions returns how often per second servers ask one Cassandra node for its time, from which they draw timestamps.
// The worst case is assumed: each put needs a new answer.
func (in *Input) questions() float64 {
	near := float64(in.Servers) / float64(in.DataCentres)
	puts := (in.Inserts + in.Appends) / float64(in.DataCentres)
	if puts == 0 {
		return 0
	}
	most := near * questionsPerS * min(1, evenNodes/float64(in.Nodes))
	most = min(most, puts*questionsPerPut, looksOfAll*questionsPerLook)
	return max(most, min(near, looksOfAll)*idleQuestions) + min(float64(in.Servers)-near, looksOfAll)
}

// movers returns the number of processes that share the rebalancing of the given number of buckets. Buckets are divided
// into 16 shards, and one process works on each shard. So there are at most as many processes as shards, servers or
// buckets.
func (in *Input) movers(buckets int64) float64 {
	return max(1, min(float64(in.Servers), shard.Count, float64(buckets)))
}

// moves returns the figures of splits of ranges, and of the cuts made ahead of keys that are appended at the end of a
// bucket.
func (in *Input) moves() []Line {
	rate, what := in.movesPerS()
	movers := in.movers(in.BusyBuckets)
	rate *= movers
	part := in.full() / 2 // half of the rows of a split range stay
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
			Limit: movers * scheduler.DefaultBuckets * perMinute(batch), MovedBy: "--lease; writes to fewer buckets"},
		{What: "ranges that are copied or compared at once", Figure: splits * in.moved(part).Seconds(),
			Limit: movers * scheduler.RangesAtOnce, MovedBy: "fewer keys at random places"},
		{What: "time of a batch of moves", Figure: batch.Seconds(), Unit: Seconds, MovedBy: "--lease, --max-rows"},
		{What: "swaps a minute of the busiest record at SERIAL", Unit: PerMinute,
			Figure: max(perMinute(leader.DefaultLease/3+swap), bumps), Limit: perMinute(swap),
			MovedBy: serial},
	}
}

// movesPerS returns the largest number of rows that one process can move between partitions per second. The result what
// names the flag or the other cause that limits this number.
func (in *Input) movesPerS() (rate float64, what string) {
	rate, what = unlimitedRows, "fewer keys at random places"
	if paced := balancer.For(in.MaxRows, in.MoveRate, time.Minute, 0).Policy.MovedPerS; paced > 0 && paced < rate {
		rate, what = paced, "--move-rate"
	}
	// All ranges that move at once wait for the distance between data centres.
	if most := scheduler.RangesAtOnce * rowsARound / 2 / (in.RoundTrip + atNode).Seconds(); most < rate {
		rate, what = most, "fewer keys at random places"
	}
	return rate, what
}

// moved returns the time that the move of one range with the given number of rows takes: to copy the rows, to compare
// the copies, and to remove the originals.
func (in *Input) moved(rows float64) time.Duration {
	return rangeTakes + times(2*rows/rowsARound, in.RoundTrip+atNode)
}

// batch returns the duration of a batch of moves, in which several ranges move at the same time. Each range has the
// given number of rows. The duration includes the waits for leases, the changes of the partition map, and the work on
// rows.
func (in *Input) batch(rows float64) time.Duration {
	return moveWaits*mapclient.WaitFor(in.Lease) + in.rounds(moveRoundsV1, moveRounds) + in.moved(rows)
}

// perMinute returns how often per minute a repeated step happens that takes the time d each time.
func perMinute(d time.Duration) float64 { return time.Minute.Seconds() / d.Seconds() }

// sizes returns the figures of the counters in Redis, which know how many rows each range has, and of the servers'
// caches of maps.
func (in *Input) sizes() []Line {
	ranges, servers, buckets := in.ranges(), float64(in.Servers), float64(in.Buckets)
	cache := in.MapCacheMiB << 20
	roots, names := float64(mapclient.RootBytes(cache)), float64(mapclient.CachedNames(cache))
	// pairs is the number of different ranges that have requests in one second, summed over the servers: anywhere, or
	// at the ends of busy buckets.
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

// looks returns how long background work takes to go once through all buckets, all ranges or all rows of the keyspace.
// For buckets of objects the result includes the work of the cleaners, which delete old versions.
func (in *Input) looks() []Line {
	ranges, buckets, keys := in.ranges(), float64(in.Buckets), float64(in.Keys)
	options := balancer.For(in.MaxRows, in.MoveRate, time.Minute, 0)
	counts := cmp.Or(float64(scheduler.CountedFor*in.MoveRate), unlimitedCounts)
	look := buckets/rootsPerSecond(balancer.ScansAtOnce, localRead) + ranges*lookAtARange.Seconds()
	proof := (localRead*(scheduler.ScansToProve-1) + in.rounds(swapRoundsV1, swapRounds)) / scheduler.ScansToProve
	all := in.movers(in.Buckets)
	scan := buckets / all / min(scheduler.RootsPerSecond, rootsPerSecond(scheduler.RootsAtOnce, proof))
	lines := []Line{
		{What: "sizes known again after Redis lost all", Figure: (look + ranges/restoresPerS) / all,
			Unit: Seconds, MovedBy: "more servers, up to 16"},
		{What: "recount of all rows", Figure: keys / counts / all, Unit: Seconds, MovedBy: "--move-rate"},
		{What: "confirmation of all sizes", Figure: keys / options.ConfirmPerS / all, Unit: Seconds,
			MovedBy: "--move-rate"},
		{What: "look at all buckets", Figure: look / all, Unit: Seconds, Limit: balancer.FullEvery.Seconds(),
			MovedBy: "fewer buckets"},
		{What: "scan of all roots", Figure: scan, Unit: Seconds, MovedBy: "fewer buckets"},
		{What: fmt.Sprintf("rebalancer verify --rate %d", verifyRate), Figure: keys / verifyRate, Unit: Seconds,
			MovedBy: "--rate; one bucket at a time"},
	}
	if in.Objects {
		rate := cmp.Or(float64(in.CleanRate), unlimitedCounts)
		look := (localRead + in.RoundTrip).Seconds()
		lines = append(lines,
			Line{What: "round of the cleaners over all rows", Figure: keys / rate / all, Unit: Seconds,
				Limit: cleanAllEvery.Seconds(), MovedBy: "--clean-rate; more servers, up to 16"},
			Line{What: "objects a second that hints lead the cleaners to", Figure: in.Inserts, Unit: PerSecond,
				Limit:   min(min(shard.Count, buckets)*looksAtOnce/look, rate*all/rowsOfLook),
				MovedBy: "--clean-rate; more servers, up to 16"})
	}
	return lines
}

// rootsPerSecond returns the number of roots of partition maps that a process reads per second. The process reads
// atOnce roots at the same time, and one read takes the time `each`.
func rootsPerSecond(atOnce float64, each time.Duration) float64 { return atOnce / each.Seconds() }
