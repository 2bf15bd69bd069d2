package cassandrastore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/internal/wait"
)

// repairState says how recently a keyspace's rows were repaired, as Cassandra has recorded it. Operators see it in the
// metrics and in warnings. A repair counts only if a replica of each copy in each data centre took part.
//
// There is one age for all data centres, since a repair within one data centre brings no deletion to another. A
// keyspace with one copy needs no repair. Neither do the other tables: a map node that comes back is garbage, and
// nothing is deleted from registers.
type repairState struct {
	// oldest is the time since which every part of Cassandra's ring of tokens was repaired. Each part has its own last
	// repair; oldest is when the earliest of them began. Parts without a known repair do not count. A zero oldest means
	// that no part has a known repair.
	oldest time.Time
	// unknown is the fraction of the ring of tokens, 0 to 1, for which no repair is known.
	unknown float64
	// grace is the time for which Cassandra keeps tombstones of rows (gc_grace_seconds).
	grace time.Duration

	ring *ring
}

// repairsEvery is the pause before Cassandra's records of repairs are read again. repairsRetry is the pause after a
// read that has failed.
const (
	repairsEvery = time.Hour
	repairsRetry = time.Minute
)

// WatchRepairs keeps the metrics about repairs of the rows up to date until ctx ends. It implements Store.
func (s *database) WatchRepairs(ctx context.Context) {
	for pause := time.Duration(0); wait.Sleep(ctx, pause) == nil; {
		r, err := readRepairs(ctx, s.session, s.o.Keyspace)
		if pause = repairsEvery; err != nil {
			pause = repairsRetry
			continue
		}
		s.measures.repairs.Store(r)
	}
}

// CheckRepairs returns a warning if the rows are not repaired often enough, else nil. It implements Admin.
func (a *admin) CheckRepairs(ctx context.Context, now time.Time) ([]Problem, error) {
	where := a.o.Keyspace + "." + rowsTable
	r, err := readRepairs(ctx, a.session, a.o.Keyspace)
	switch {
	case errors.Is(err, errHistory):
		return []Problem{{where, fmt.Sprintf("when it was repaired is not known: %v", err), false}}, nil
	case err != nil || r == nil:
		return nil, err
	}
	if what := r.ring.problem(now, r.grace); what != "" {
		return []Problem{{where, what, false}}, nil
	}
	return nil, nil
}

// errHistory says that Cassandra's records of the repairs of a keyspace can't be read. Errors of readRepairs wrap it.
var errHistory = errors.New("the history of repairs can't be read")

// readRepairs returns what Cassandra has recorded about repairs of the rows in the keyspace. It returns nil if the
// keyspace needs no repair, since it keeps only one copy of each row.
func readRepairs(ctx context.Context, session *gocql.Session, keyspace string) (*repairState, error) {
	replication := map[string]string{}
	err := session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).
		WithContext(ctx).Consistency(gocql.One).Scan(&replication)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, nil // Check reports it
	}
	if err != nil {
		return nil, fail(ctx, err, "read the repairs of", keyspace)
	}
	copies := 0
	for _, n := range copiesOf(replication) {
		copies += n
	}
	if copies < 2 {
		return nil, nil
	}
	grace := rowsGrace
	err = session.Query("SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
		keyspace, rowsTable).WithContext(ctx).Consistency(gocql.One).Scan(&grace)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return nil, fail(ctx, err, "read the repairs of", keyspace)
	}
	// Cassandra keeps three copies of the table, even if it has fewer nodes. An entry that a read at ONE misses only
	// causes a warning.
	left, err := repairs(ctx, session, keyspace, copies, gocql.Quorum)
	if err != nil {
		left, err = repairs(ctx, session, keyspace, copies, gocql.One)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errHistory, err)
	}
	return &repairState{
		oldest: left.oldest, unknown: left.share(), grace: time.Duration(grace) * time.Second, ring: left,
	}, nil
}

// repairs reads Cassandra's records of repairs at the given consistency level and returns a summary. The field left of
// the ring has the tokens (hashes of partition keys) that no repair has reached. A repair counts only if at least the
// given number of copies took part in it.
func repairs(
	ctx context.Context, session *gocql.Session, keyspace string, copies int, level gocql.Consistency,
) (*ring, error) {
	// Cassandra writes two tables for each repair, whether nodetool or another program asks for the repair over JMX,
	// and keeps their entries for 30 days. With three nodes of two tokens each, `nodetool repair` on one of them
	// leaves:
	//
	//	parent_repair_history: id 7, options {incremental: false, …}, successful_ranges
	//	                {(100,200], (300,400], (500,600]}
	//	repair_history: session 8 of parent 7, SUCCESS, participants of (100,200] and (500,600]; range: (500,600]
	//	                session 9 of parent 7, SUCCESS, participants of (300,400]; range: (300,400]
	//
	// A session writes an entry for each of its ranges under the same key, so that only one entry is left. So only the
	// parent knows which ranges were repaired, and only the sessions know by which nodes. A parent counts if each of
	// its sessions that succeeded had all copies.
	whole := map[gocql.UUID]bool{} // by parent, of those with a session that succeeded
	iter := session.Query("SELECT parent_id, status, coordinator, coordinator_port, participants_v2 "+
		"FROM system_distributed.repair_history WHERE keyspace_name = ? AND columnfamily_name = ?",
		keyspace, rowsTable).WithContext(ctx).Consistency(level).PageSize(1000).Iter()
	var parent gocql.UUID
	var status, coordinator string
	var port int
	var participants []string
	for iter.Scan(&parent, &status, &coordinator, &port, &participants) {
		if status != "SUCCESS" {
			continue // the ranges of the session are not among the successful ones of the parent
		}
		nodes := append(slices.Clone(participants), fmt.Sprintf("%s:%d", coordinator, port))
		slices.Sort(nodes)
		before, known := whole[parent]
		whole[parent] = (before || !known) && len(slices.Compact(nodes)) >= copies
	}
	if err := iter.Close(); err != nil {
		return nil, err
	}
	var parents []gocql.UUID
	for id, all := range whole {
		if all {
			parents = append(parents, id)
		}
	}
	var known []repair
	for some := range slices.Chunk(parents, 100) {
		iter := session.Query("SELECT started_at, successful_ranges, options "+
			"FROM system_distributed.parent_repair_history WHERE parent_id IN ?", some).
			WithContext(ctx).Consistency(level).Iter()
		var r repair
		var options map[string]string
		for iter.Scan(&r.began, &r.ranges, &options) {
			if equalizes(options) {
				known = append(known, r)
			}
			r, options = repair{}, nil
		}
		if err := iter.Close(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(known, func(a, b repair) int { return b.began.Compare(a.began) })
	unrepaired := wholeRing()
	for _, r := range known {
		for _, text := range r.ranges {
			unrepaired.repaired(text, r.began)
		}
	}
	return unrepaired, nil
}

// repair is one repair of a Cassandra table, as Cassandra has recorded it: when the repair began, and the ranges of
// tokens (hashes of partition keys) that it has repaired.
type repair struct {
	began  time.Time
	ranges []string // each is written as "(-10,20]"
}

// repairOptions are the options that a repair in Cassandra 5.0 must have in order to count, by name. The value is the
// one that the option must have; an empty value means that any value is right. A repair with these options makes all
// replicas that take part equal.
//
// A repair that pulls brings nothing to the other replicas. A preview, or a repair of Paxos alone, brings no rows. The
// ranges, data centres and nodes of a repair may have any value, since the records show which ones took part.
var repairOptions = map[string]string{
	"pullRepair": "false", "previewKind": "NONE", "paxosOnly": "false",
	"columnFamilies": "", "dataCenters": "", "forceRepair": "", "hosts": "", "ignoreUnreplicatedKeyspaces": "",
	"incremental": "", "isSubrangeRepair": "", "jobThreads": "", "optimiseStreams": "", "parallelism": "",
	"primaryRange": "", "ranges": "", "repairPaxos": "", "sub_range_repair": "", "trace": "",
}

// equalizes reports whether a repair with the given options makes all replicas that take part equal, so that the repair
// counts. It returns false if an option is not known.
func equalizes(options map[string]string) bool {
	for name, value := range options {
		if must, known := repairOptions[name]; !known || must != "" && must != value {
			return false
		}
	}
	return true
}

// tokens is a range of Cassandra's tokens, which are the hashes of partition keys. The token from is not part of the
// range, but the token to is, as in Cassandra's own ranges.
type tokens struct{ from, to int64 }

// ring collects the repairs of a Cassandra table. It keeps the ranges of tokens (hashes of partition keys) for which no
// repair has been seen yet. Repairs are added from the newest to the oldest.
type ring struct {
	left []tokens
	// oldest is the time at which the last repair of one range began: the range that was repaired longest ago. The
	// field of is this range.
	oldest time.Time
	of     tokens
}

// wholeRing returns a ring for whose tokens no repair is known yet.
func wholeRing() *ring { return &ring{left: []tokens{{math.MinInt64, math.MaxInt64}}} }

// repaired adds one repair of a range of tokens (hashes of partition keys) to the ring. The parameter text is the range
// as Cassandra writes it, such as "(-10,20]". The parameter `at` is the time at which the repair began. A range that
// can't be parsed counts as not repaired.
func (r *ring) repaired(text string, at time.Time) {
	begin, end, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "("), "]"), ",")
	from, ferr := strconv.ParseInt(strings.TrimSpace(begin), 10, 64)
	to, terr := strconv.ParseInt(strings.TrimSpace(end), 10, 64)
	switch {
	case ferr != nil || terr != nil || at.IsZero():
	case from < to:
		r.take(tokens{from, to}, at)
	default: // the range goes around the end of the ring, or is all of it
		r.take(tokens{from, math.MaxInt64}, at)
		r.take(tokens{math.MinInt64, to}, at)
	}
}

// take removes the range of tokens t from the ranges without a known repair. `at` is the time at which the repair
// began.
func (r *ring) take(t tokens, at time.Time) {
	var left []tokens
	for _, l := range r.left {
		inside := tokens{max(l.from, t.from), min(l.to, t.to)}
		if inside.from >= inside.to {
			left = append(left, l)
			continue
		}
		if r.oldest.IsZero() || at.Before(r.oldest) {
			r.oldest, r.of = at, inside
		}
		for _, rest := range []tokens{{l.from, inside.from}, {inside.to, l.to}} {
			if rest.from < rest.to {
				left = append(left, rest)
			}
		}
	}
	r.left = left
}

// share returns the fraction, 0 to 1, of all tokens (hashes of partition keys) that no repair has reached.
func (r *ring) share() (of float64) {
	for _, l := range r.left {
		of += (float64(l.to) - float64(l.from)) / math.Ldexp(1, 64)
	}
	return of
}

// problem returns a warning text if rows were not repaired in time, else an empty string. grace is the time for which
// Cassandra keeps tombstones. The parameter `now` is the present time.
func (r *ring) problem(now time.Time, grace time.Duration) string {
	const doWhat = "repair every node weekly, all data centres together, or deleted objects come back"
	days := func(d time.Duration) string { return fmt.Sprintf("%.1f days", d.Hours()/24) }
	if len(r.left) > 0 {
		return fmt.Sprintf("Cassandra knows of no repair within 30 days of %.0f %% of its ranges, the first one from "+
			"token %d to %d, and keeps tombstones for %s: %s. A tool that repairs without Cassandra's own repair leaves no "+
			"record: then look there", max(1, 100*r.share()), r.left[0].from, r.left[0].to, days(grace), doWhat)
	}
	// A repair must end within the grace period, and may take a day or two.
	if age := now.Sub(r.oldest); age > grace*4/5 {
		return fmt.Sprintf("the range from token %d to %d was repaired %s ago, and tombstones are kept for %s: %s", r.of.from,
			r.of.to, days(age), days(grace), doWhat)
	}
	return ""
}
