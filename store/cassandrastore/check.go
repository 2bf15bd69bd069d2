package cassandrastore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Problem is a difference between a Cassandra cluster and what evenkeel needs or recommends: in the schema, the
// versions of the nodes or their configuration. An example is a missing table.
type Problem struct {
	// Where is the name of a table or the keyspace, the addresses of nodes, or the name of a node's configuration file.
	Where string `json:"where"`
	// What is a text that says what differs, why that matters, and what to do.
	What string `json:"what"`
	// Fatal is true if Open refuses a cluster with this problem. Other problems cost speed or a safety margin.
	Fatal bool `json:"fatal"`
}

// String returns the problem as one line of text: where it is, then what is wrong, with "(warning)" if it is not fatal.
func (p Problem) String() string {
	if p.Fatal {
		return p.Where + ": " + p.What
	}
	return p.Where + ": (warning) " + p.What
}

// Check returns all problems of the cluster. It implements Admin.
func (a *admin) Check(ctx context.Context) ([]Problem, error) {
	keyspace := a.o.Keyspace
	versions, err := a.checkVersions(ctx)
	if err != nil {
		return nil, err
	}
	replication := map[string]string{}
	durable := false
	iter := a.session.
		Query("SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).
		WithContext(ctx).Consistency(gocql.One).Iter()
	found := iter.Scan(&replication, &durable)
	if err := iter.Close(); err != nil {
		return nil, fail(ctx, err, "check", keyspace)
	}
	if !found {
		return append(versions, Problem{keyspace, "there is no such keyspace: create it and its tables with `rebalancer schema apply`, " +
			"or correct the name", true}), nil
	}
	problems := checkReplication(keyspace, replication, durable)
	if local := a.o.DataCentre; local != anyDataCentre && copiesOf(replication)[local] == 0 && len(problems) == 0 {
		problems = append(problems, Problem{keyspace, fmt.Sprintf("the data centre %s keeps no copy, so it has no "+
			"LOCAL_QUORUM: ALTER KEYSPACE, then rebuild; or connect to another one", local), true})
	}
	live, err := a.liveTables(ctx)
	if err != nil {
		return nil, fail(ctx, err, "check", keyspace)
	}
	for _, t := range tables() {
		problems = append(problems, t.check(keyspace, live[t.Name])...)
	}
	settings, err := a.checkSettings(ctx, copiesOf(replication))
	return slices.Concat(versions, problems, settings), err
}

// copiesOf returns the number of copies of each row in each data centre. The argument is the replication options of a
// keyspace, as Cassandra's schema tables contain them, e.g. {"class": …, "dc1": "3"}.
func copiesOf(replication map[string]string) Replication {
	r := Replication{}
	for name, copies := range replication {
		if n, err := strconv.Atoi(copies); err == nil && name != "class" {
			r[name] = n
		}
	}
	return r
}

// smallest returns the smallest number of copies in any data centre, or 0 if there is no data centre.
func smallest(r Replication) int {
	if len(r) == 0 {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(r)))
}

// checkReplication returns the problems with the replication of the keyspace. The parameter durable is its setting
// durable_writes.
func checkReplication(keyspace string, replication map[string]string, durable bool) (problems []Problem) {
	class := replication["class"]
	if class = class[strings.LastIndex(class, ".")+1:]; class != "NetworkTopologyStrategy" {
		problems = append(problems, Problem{keyspace, fmt.Sprintf("its replication is %s; LOCAL_QUORUM needs data centres, "+
			"which only NetworkTopologyStrategy has: ALTER KEYSPACE, then repair", class), true})
	}
	if !durable {
		problems = append(problems, Problem{keyspace, "durable_writes is off: a node that crashes loses acknowledged " +
			"writes: ALTER KEYSPACE … WITH durable_writes = true", true})
	}
	return problems
}

// liveTable is a table that exists in the cluster, as Cassandra's tables in system_schema describe it.
type liveTable struct {
	columns map[string]column
	orders  map[string]string
	options map[string]string
	maps    map[string]map[string]string
}

// liveTables returns the tables of the keyspace that exist in the cluster, by name.
func (a *admin) liveTables(ctx context.Context) (map[string]*liveTable, error) {
	live := map[string]*liveTable{}
	iter := a.session.Query("SELECT * FROM system_schema.tables WHERE keyspace_name = ?", a.o.Keyspace).
		WithContext(ctx).Consistency(gocql.One).Iter()
	for {
		row := map[string]any{}
		if !iter.MapScan(row) {
			break
		}
		name, _ := row["table_name"].(string)
		t := &liveTable{
			columns: map[string]column{}, orders: map[string]string{},
			options: map[string]string{}, maps: map[string]map[string]string{},
		}
		for option, value := range row {
			if m, ok := value.(map[string]string); ok {
				t.maps[option] = m
			} else {
				t.options[option] = fmt.Sprint(value)
			}
		}
		live[name] = t
	}
	if err := iter.Close(); err != nil {
		return nil, err
	}
	iter = a.session.Query("SELECT table_name, column_name, kind, type, clustering_order "+
		"FROM system_schema.columns WHERE keyspace_name = ?", a.o.Keyspace).
		WithContext(ctx).Consistency(gocql.One).Iter()
	var table, order string
	var c column
	for iter.Scan(&table, &c.Name, (*string)(&c.Kind), &c.Type, &order) {
		if t := live[table]; t != nil {
			t.columns[c.Name], t.orders[c.Name] = c, order
		}
	}
	return live, iter.Close()
}

// check compares an existing table of the keyspace with its required schema t, and returns the differences as problems.
// live describes the existing table; it is nil if the table does not exist.
func (t tableSchema) check(keyspace string, live *liveTable) (problems []Problem) {
	where := keyspace + "." + t.Name
	add := func(fatal bool, format string, args ...any) {
		problems = append(problems, Problem{where, fmt.Sprintf(format, args...), fatal})
	}
	if live == nil {
		add(!t.Optional, "the table is missing (%s): `rebalancer schema apply` creates it", t.Why)
		return problems
	}
	wanted := map[string]bool{}
	for _, c := range t.Columns {
		wanted[c.Name] = true
		switch is, ok := live.columns[c.Name]; {
		case !ok:
			add(true, "the column %s is missing: use a fresh keyspace", c.Name)
		case is != c:
			add(true, "the column %s is a %s of type %s, not a %s of type %s: use a fresh keyspace",
				c.Name, is.Kind, is.Type, c.Kind, c.Type)
		}
		if order, ok := strings.CutPrefix(t.Clustering, c.Name+" "); ok && !strings.EqualFold(order, live.orders[c.Name]) {
			add(true, "the column %s is ordered %s, not %s: use a fresh keyspace", c.Name, live.orders[c.Name], order)
		}
	}
	for _, name := range sorted(live.columns) {
		if !wanted[name] {
			add(true, "the column %s is not evenkeel's: a row would no longer have one write time: drop it", name)
		}
	}
	for _, o := range t.Options {
		t.checkOption(live, o, add)
	}
	return problems
}

// checkOption compares one option of the existing table with its required or recommended value, o. It calls add with
// each difference.
func (t tableSchema) checkOption(live *liveTable, o tableOption, add func(fatal bool, format string, args ...any)) {
	want, is := strings.Trim(o.Value, "'"), live.options[o.Name]
	alter := fmt.Sprintf("ALTER TABLE … WITH %s = %s", o.Name, o.Value)
	switch o.Name {
	case "additional_write_policy":
		if strings.EqualFold(is, "NEVER") {
			add(true, "%s is NEVER: one slow replica fails writes: %s", o.Name, alter)
		}
	case "gc_grace_seconds":
		if seconds, err := strconv.Atoi(is); err == nil && seconds < leastGrace {
			add(true, "%s is %s, too near the hint window of %d s: deleted rows would come back (%s): %s",
				o.Name, is, hintWindow, o.Why, alter)
		} else if is != want {
			add(false, "%s is %s, not %s: %s", o.Name, is, want, o.Why)
		}
	case "compaction", "compression":
		class := live.maps[o.Name]["class"]
		if class = class[strings.LastIndex(class, ".")+1:]; !strings.Contains(o.Value, "'"+class+"'") {
			add(false, "%s is by %s, not %s: %s", o.Name, class, o.Value, o.Why)
		}
	default:
		if !strings.EqualFold(is, want) {
			add(o.Must, "%s is %s, not %s: %s: %s", o.Name, is, want, o.Why, alter)
		}
	}
}

// checkedSettings are the names of the configuration settings of a Cassandra node that Check reads, since evenkeel's
// guarantees depend on them.
var checkedSettings = []string{
	"commitlog_sync", "minimum_timestamp_warn_threshold", "minimum_timestamp_fail_threshold",
	"user_timestamps_enabled", "max_mutation_size", paxosVariant,
}

// paxosVariant is the name of the configuration setting of a Cassandra node that chooses how the node runs lightweight
// transactions.
const paxosVariant = "paxos_variant"

// paxosProblem returns what is wrong with the way in which a Cassandra node runs lightweight transactions. The
// parameter variant is the node's setting, or "" if it is not known. dataCentres is the number of data centres with
// copies. The results are:
//   - what: a text with a remedy, or "" if nothing is wrong or the variant is not known
//   - fatal: true if the problem prevents Open
func paxosProblem(variant string, dataCentres int) (what string, fatal bool) {
	switch variant {
	case "", "v2":
		return "", false
	case "v1":
		if dataCentres < 2 {
			return "", false
		}
		return paxosVariant + " is v1: each change of a map, a name or a lease crosses the distance between the data " +
			"centres twice as often as with v2: set it to v2 on all nodes", false
	}
	// An example is v2_without_linearizable_reads: a read at SERIAL may go back to an older map.
	return paxosVariant + " is " + variant + ": maps and leases rest on linearizable reads at SERIAL, which v1 and v2 " +
		"have: set it to v2 on all nodes", true
}

// checkSettings returns the problems with the configuration of the Cassandra node that answers. copies is the number of
// copies of the rows in each data centre. If the user may not read the configuration, the only problem says so.
func (a *admin) checkSettings(ctx context.Context, copies Replication) (problems []Problem, err error) {
	const where = "cassandra.yaml"
	values := map[string]string{}
	for _, name := range checkedSettings {
		values[name], err = a.setting(ctx, name)
		if unauthorized(err) {
			// The user may not read the other settings either. An operator can check them. A user who has no more
			// rights than a server needs is worth more than these checks.
			problems = append(problems, Problem{where, "not checked are " + strings.Join(checkedSettings, ", ") +
				": this user may not read " + settingsTable + ". Check them by `rebalancer schema check` as a user who may, " +
				"or grant it, as `rebalancer schema grants` says", false})
			break
		}
		if err != nil {
			return problems, err
		}
	}
	if values["commitlog_sync"] == "periodic" {
		problems = append(problems, Problem{where, "commitlog_sync is periodic: acknowledged rows and roots may be lost if " +
			"several replicas crash together (a power failure): set it to batch, or accept it", false})
	}
	if smallest(copies) == 1 {
		problems = append(problems, Problem{a.o.Keyspace, "a data centre keeps one copy only: a lost disk loses data, a " +
			"node that is down is an outage, and with commitlog_sync periodic a crash loses ten seconds: replicate three times, " +
			"or allow single replicas for a trial (--allow-single-replica)", !a.o.AllowSingleReplica})
	}
	if what, fatal := paxosProblem(values[paxosVariant], len(copies)); what != "" {
		problems = append(problems, Problem{where, what, fatal})
	}
	for _, name := range []string{"minimum_timestamp_warn_threshold", "minimum_timestamp_fail_threshold"} {
		if v := values[name]; v != "" && v != "null" {
			problems = append(problems, Problem{where, name + " is " + v + ": a move copies rows with their original " +
				"timestamps, however old: remove it", true})
		}
	}
	if values["user_timestamps_enabled"] == "false" {
		problems = append(problems, Problem{where, "user_timestamps_enabled is false: every row is written at a timestamp " +
			"of its own: set it to true", true})
	}
	const least = 2 * store.MaxBatchBytes
	kib, err := strconv.Atoi(strings.TrimSuffix(values["max_mutation_size"], "KiB"))
	if err == nil && kib<<10 < least {
		problems = append(problems, Problem{where, fmt.Sprintf("max_mutation_size is %d KiB: a batch of rows or a map node "+
			"may need %d: raise it, or commitlog_segment_size, half of which it is", kib, least>>10), true})
	}
	return problems, nil
}

// sorted returns the keys of m in ascending order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
