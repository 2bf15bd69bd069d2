package cassandrastore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gocql/gocql"
)

// CheckRepairs returns a warning if, as far as Cassandra knows, the rows were not repaired well within the time for
// which tombstones are kept. It reads system_distributed.repair_history. A node writes that table for each range that
// it repairs, whether nodetool or another program asks for the repair over JMX, and keeps each entry for 30 days. A
// repair counts only if a replica of each copy in each data centre took part: a repair within a single data centre
// brings no deletion to another data centre.
//
// A keyspace with one copy needs no repair. Neither do the other tables: a map node that comes back is garbage, and
// nothing is deleted from registers.
func (a *Admin) CheckRepairs(ctx context.Context, now time.Time) ([]Problem, error) {
	keyspace, where := a.o.Keyspace, a.o.Keyspace+"."+rowsTable
	replication := map[string]string{}
	err := a.session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).
		WithContext(ctx).Consistency(gocql.One).Scan(&replication)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, nil // Check says it
	}
	if err != nil {
		return nil, fail(ctx, err, "check repairs of", keyspace)
	}
	copies := 0
	for _, n := range copiesOf(replication) {
		copies += n
	}
	if copies < 2 {
		return nil, nil
	}
	live, err := a.liveTables(ctx)
	if err != nil {
		return nil, fail(ctx, err, "check repairs of", keyspace)
	}
	grace := rowsGrace
	if t := live[rowsTable]; t != nil {
		if n, err := strconv.Atoi(t.options["gc_grace_seconds"]); err == nil {
			grace = n
		}
	}
	// Cassandra keeps three copies of the table, also where it has fewer nodes. One that is missing at ONE only warns.
	unrepaired, err := a.repairs(ctx, copies, gocql.Quorum)
	if err != nil {
		unrepaired, err = a.repairs(ctx, copies, gocql.One)
	}
	if err != nil {
		return []Problem{{where, fmt.Sprintf("when it was repaired is not known: %v", err), false}}, nil
	}
	if what := unrepaired.problem(now, time.Duration(grace)*time.Second); what != "" {
		return []Problem{{where, what, false}}, nil
	}
	return nil, nil
}

// repairs returns the part of the ring that the repairs of the rows have left. Only repairs count that have reached the
// given number of copies.
func (a *Admin) repairs(ctx context.Context, copies int, level gocql.Consistency) (*ring, error) {
	unrepaired := wholeRing()
	iter := a.session.Query("SELECT range_begin, range_end, status, started_at, coordinator, coordinator_port, "+
		"participants_v2 FROM system_distributed.repair_history "+
		"WHERE keyspace_name = ? AND columnfamily_name = ? ORDER BY id DESC",
		a.o.Keyspace, rowsTable).WithContext(ctx).Consistency(level).PageSize(1000).Iter()
	var begin, end, status, coordinator string
	var port int
	var started time.Time
	var participants []string
	for len(unrepaired.left) > 0 && iter.Scan(&begin, &end, &status, &started, &coordinator, &port, &participants) {
		nodes := append(slices.Clone(participants), fmt.Sprintf("%s:%d", coordinator, port))
		slices.Sort(nodes)
		if status == "SUCCESS" && len(slices.Compact(nodes)) >= copies {
			unrepaired.repaired(begin, end, started)
		}
	}
	return unrepaired, iter.Close()
}

// tokens is an interval of tokens, without from and with to, as ranges of Cassandra are.
type tokens struct{ from, to int64 }

// ring is the part of the ring of tokens of which no repair has been seen yet. Repairs are seen from the newest to the
// oldest.
type ring struct {
	left []tokens
	// oldest is when the repair began that is the last one of the part that waits longest.
	oldest time.Time
	of     tokens
}

func wholeRing() *ring { return &ring{left: []tokens{{math.MinInt64, math.MaxInt64}}} }

// repaired takes a repair into account. A range that is not understood is as if it had not been repaired.
func (r *ring) repaired(begin, end string, at time.Time) {
	from, ferr := strconv.ParseInt(begin, 10, 64)
	to, terr := strconv.ParseInt(end, 10, 64)
	switch {
	case ferr != nil || terr != nil || at.IsZero():
	case from < to:
		r.take(tokens{from, to}, at)
	default: // around the end of the ring, or all of it
		r.take(tokens{from, math.MaxInt64}, at)
		r.take(tokens{math.MinInt64, to}, at)
	}
}

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

// problem returns the text of the warning, or an empty string if all was repaired in time.
func (r *ring) problem(now time.Time, grace time.Duration) string {
	const doWhat = "repair every node weekly, all data centres together, or deleted objects come back"
	days := func(d time.Duration) string { return fmt.Sprintf("%.1f days", d.Hours()/24) }
	if len(r.left) > 0 {
		var missing float64
		for _, l := range r.left {
			missing += float64(l.to) - float64(l.from)
		}
		return fmt.Sprintf("Cassandra knows of no repair within 30 days of %.0f %% of its ranges, the first one from "+
			"token %d to %d, and keeps tombstones for %s: %s. A tool that repairs without Cassandra's own repair leaves no "+
			"record: then look there", max(1, 100*missing/math.Ldexp(1, 64)), r.left[0].from, r.left[0].to, days(grace), doWhat)
	}
	// A repair has to come to its end within the grace, and may take a day or two.
	if age := now.Sub(r.oldest); age > grace*4/5 {
		return fmt.Sprintf("the range from token %d to %d was repaired %s ago, and tombstones are kept for %s: %s", r.of.from,
			r.of.to, days(age), days(grace), doWhat)
	}
	return ""
}
