package cassandrastore

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/store"
)

// tableSchema is the schema of one of evenkeel's tables in Cassandra: columns and table options, each with the reason
// for it.
type tableSchema struct {
	Name string
	// Why says what the table is for. It becomes the comment of the table in Cassandra.
	Why     string
	Columns []column
	// Clustering is the order of the clustering columns in CQL, if it is not ascending.
	Clustering string
	Options    []tableOption
	// Optional is true for a table that may be missing in keyspaces of earlier versions. Programs run without the
	// table.
	Optional bool
}

// column is the name, CQL type and kind of a column of a table, e.g. "key", "blob" and cqltable.Clustering.
type column struct {
	Name, Type string
	Kind       cqltable.Kind
}

// tableOption is a setting of a Cassandra table, such as gc_grace_seconds, with the reason for its value.
type tableOption struct {
	Name, Value string
	Why         string
	// Must is true if the store would be incorrect with another value, not only slow.
	Must bool
}

// These are times in seconds, and the names of tables and of a column. A replica that was down for at most hintWindow
// gets the writes that it has missed. The names with Grace are values of gc_grace_seconds, for which a table keeps
// tombstones; leastGrace is the smallest value that Check accepts.
const (
	day         = 24 * 60 * 60
	hintWindow  = 3 * 60 * 60
	rowsGrace   = 10 * day
	nodesGrace  = 1 * day
	rowsTable   = "rows"
	nodesTable  = "nodes"
	rootsTable  = "roots"
	sizesTable  = "sizes"
	leastGrace  = 2 * hintWindow
	valueColumn = "v"
)

// guarantees returns the table options that every table of evenkeel has, such as blocking read repair. The guarantees
// of the store depend on the options that have Must set.
func guarantees() []tableOption {
	return []tableOption{
		{"read_repair", "'BLOCKING'", "quorum reads never go back: what was shown once is shown again", true},
		{"additional_write_policy", "'99p'", "a slow replica does not fail a write; not NEVER", true},
		{"speculative_retry", "'99p'", "a slow replica does not slow a read down", false},
		{"default_time_to_live", "0", "a row that expires would leave a hole in a listing, or lose a root", true},
	}
}

// graceOption returns the option gc_grace_seconds, for which a table keeps tombstones, with the reason for its value.
func graceOption(seconds int, why string) tableOption {
	return tableOption{"gc_grace_seconds", fmt.Sprint(seconds), why, false}
}

// tables returns the schema of each table that evenkeel needs in its keyspace, with the reasons for columns and
// options.
func tables() []tableSchema {
	// UCS, UnifiedCompactionStrategy, is the compaction of 5.0. T4 behaves like size tiers, L10 like levels.
	tiered := tableOption{"compaction", "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4'}",
		"written mostly once, read in slices; moves write whole partitions and drop whole partitions", false}
	levelled := tableOption{"compaction", "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L10'}",
		"small, overwritten in place, read all the time: few sstables per read", false}
	chunks := tableOption{"compression", "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 16}",
		"a page reads neighbours, so a chunk holds many rows of it", false}

	hint := guarantees()
	for i := range hint {
		hint[i].Must = false
	}
	all := []tableSchema{{
		Name: rowsTable,
		Why:  "entries and markers: a partition per range; exactly one regular column, so that its write time is the row's",
		Columns: []column{
			{"bucket", "uuid", cqltable.PartitionKey}, {"partition", "uuid", cqltable.PartitionKey},
			{"key", "blob", cqltable.Clustering}, {valueColumn, "blob", cqltable.Regular},
		},
		Options: append(guarantees(), tiered, chunks,
			graceOption(rowsGrace,
				"far above the hint window plus the longest copy; repair within it, or deleted rows come back")),
	}, {
		Name: nodesTable,
		Why: "immutable parts of maps, written before the root that names them; " +
			"16 shards, so that no bucket's map is one partition",
		Columns: []column{
			{"bucket", "uuid", cqltable.PartitionKey}, {"shard", "tinyint", cqltable.PartitionKey},
			{"node", "uuid", cqltable.Clustering}, {"blob", "blob", cqltable.Regular},
		},
		Options: append(guarantees(), tiered,
			graceOption(nodesGrace, "a deleted node that comes back is garbage, which the next collection removes again")),
	}, {
		Name:     sizesTable,
		Why:      "the sizes of partitions, for when the counters have lost theirs; hints",
		Optional: true,
		Columns: []column{
			{"bucket", "uuid", cqltable.PartitionKey}, {"partition", "uuid", cqltable.PartitionKey},
			{"size", "blob", cqltable.Regular},
		},
		Options: append(hint, levelled, graceOption(nodesGrace, "a size that comes back is of no partition")),
	}}
	for _, t := range store.Tables() {
		table := tableSchema{
			Name: t.String(),
			Why:  registerWhy[t] + "; lightweight transactions only",
			Columns: []column{
				{"key", "blob", cqltable.PartitionKey}, {"epoch", "bigint", cqltable.Regular},
				{"swap_token", "uuid", cqltable.Regular}, {"record", "blob", cqltable.Regular},
			},
			Options: append(guarantees(), levelled, graceOption(rowsGrace, "nothing is deleted here but forgotten history")),
		}
		if t == store.Roots {
			table.Columns = []column{
				{"key", "blob", cqltable.PartitionKey}, {"epoch", "bigint", cqltable.Static},
				{"swap_token", "uuid", cqltable.Static},
				{"at", "bigint", cqltable.Clustering}, {"record", "blob", cqltable.Regular},
			}
			table.Clustering = "at DESC"
		}
		all = append(all, table)
	}
	return all
}

// registerWhy says what each table of registers has, for the comment of the table in Cassandra.
var registerWhy = map[store.Table]string{
	store.Roots:     "the map's root of each bucket and, below it, the roots that it replaced",
	store.Directory: "bucket names",
	store.Clocks:    "map clocks, each a partition of its own: a quorum lost stops one clock's buckets, not all",
	store.Busy:      "a hint which buckets may have moves in flight",
	store.Process:   "leader and other processes' records",
}

// create returns the CQL statement that creates the table in the given keyspace. If the table exists, the statement
// does nothing.
func (t tableSchema) create(keyspace string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s.%s (\n", keyspace, t.Name)
	var partition, clustering []string
	for _, c := range t.Columns {
		static := ""
		switch c.Kind {
		case cqltable.PartitionKey:
			partition = append(partition, c.Name)
		case cqltable.Clustering:
			clustering = append(clustering, c.Name)
		case cqltable.Static:
			static = " static"
		}
		fmt.Fprintf(&b, "  %s %s%s,\n", c.Name, c.Type, static)
	}
	key := append([]string{"(" + strings.Join(partition, ", ") + ")"}, clustering...)
	fmt.Fprintf(&b, "  PRIMARY KEY (%s)\n) WITH comment = '%s'",
		strings.Join(key, ", "), strings.ReplaceAll(t.Why, "'", "''"))
	if t.Clustering != "" {
		fmt.Fprintf(&b, "\n  AND CLUSTERING ORDER BY (%s)", t.Clustering)
	}
	for _, o := range t.Options {
		fmt.Fprintf(&b, "\n  AND %s = %s", o.Name, o.Value)
	}
	return b.String() + ";"
}

// Replication is the number of copies of each row that a keyspace keeps in each data centre. The key is the name of the
// data centre, e.g. {"dc1": 3}.
type Replication map[string]int

// createKeyspace returns the CQL statement that creates the keyspace with the given name. r is the number of copies of
// each row in each data centre. createKeyspace fails with InvalidArgument if the name or r is invalid.
func createKeyspace(keyspace string, r Replication) (string, error) {
	if err := checkKeyspaceName(keyspace); err != nil {
		return "", err
	}
	if len(r) == 0 {
		return "", store.Errorf(store.InvalidArgument, "no data centre keeps a copy of %s", keyspace)
	}
	cql := fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = {'class': 'NetworkTopologyStrategy'", keyspace)
	for _, name := range sorted(r) {
		if r[name] < 1 || strings.ContainsAny(name, `'"`) || name == "" {
			return "", store.Errorf(store.InvalidArgument, "%d copies in the data centre %q", r[name], name)
		}
		cql += fmt.Sprintf(", '%s': %d", name, r[name])
	}
	return cql + "} AND durable_writes = true;", nil
}

// PrintSchema returns the CQL statements that create the keyspace and all its tables, for an operator who creates them
// by hand. CQL comments give the reason for each table and option. r is the number of copies of each row in each data
// centre.
func PrintSchema(keyspace string, r Replication) (string, error) {
	create, err := createKeyspace(keyspace, r)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("-- evenkeel on Cassandra 5.0. Each cassandra.yaml should select BTI sstables\n")
	b.WriteString("-- (storage_compatibility_mode: NONE, sstable: {selected_format: bti}, as in cassandra_latest.yaml):\n")
	b.WriteString("-- with them a page costs the same whatever the size of its partition.\n")
	b.WriteString(create + "\n")
	for _, t := range tables() {
		fmt.Fprintf(&b, "\n-- %s: %s\n", t.Name, t.Why)
		for _, o := range t.Options {
			fmt.Fprintf(&b, "--   %s: %s\n", o.Name, o.Why)
		}
		b.WriteString(t.create(keyspace) + "\n")
	}
	return b.String(), nil
}

// PrintGrants returns the CQL statements that give a role the permissions that evenkeel's servers and rebalancers need
// in a keyspace, and no other permissions.
func PrintGrants(keyspace, role string) (string, error) {
	if err := checkKeyspaceName(keyspace); err != nil {
		return "", err
	}
	if role == "" || strings.ContainsAny(role, "\n\r\x00") {
		return "", store.Errorf(store.InvalidArgument, "%q is no name of a role", role)
	}
	// The role is quoted, so that Cassandra distinguishes capitals.
	role = `"` + strings.ReplaceAll(role, `"`, `""`) + `"`
	return fmt.Sprintf(`-- For servers and rebalancers: reads and writes in one keyspace. Make the role before:
--   CREATE ROLE %[2]s WITH LOGIN = true AND PASSWORD = '...';
GRANT SELECT ON KEYSPACE %[1]s TO %[2]s;
GRANT MODIFY ON KEYSPACE %[1]s TO %[2]s;

-- Not needed to serve: with it each start checks the settings of cassandra.yaml, without it warns that it can't.
GRANT SELECT ON %[3]s TO %[2]s;
`, keyspace, role, settingsTable), nil
}
