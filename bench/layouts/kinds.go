package layouts

// Kind describes a layout for users who compare layouts: its primary key, what the layout is good for, and its limits.
type Kind struct {
	Name       string `json:"name"`
	PrimaryKey string `json:"primary_key"`
	// Keeps is the order in which a page costs only one read, e.g. "keys in order", or what a page costs instead.
	Keeps  string `json:"keeps"`
	For    string `json:"for"`
	Limits string `json:"limits"`
	// Built says how the layout is built and tuned in this package.
	Built string `json:"built"`
}

// Names of the layouts.
const (
	NameEvenkeel = "evenkeel"
	NameWide     = "wide"
	NameHash     = "hash256"
	NameFixed    = "fixed"
	NameDays     = "days"
	NameDaysN    = "daysxN"
	NameSlices   = "tables"
	NamePrefix   = "prefix"
	NamePostgres = "postgres"
)

// Kinds returns the descriptions of all layouts, that of evenkeel first.
func Kinds() []Kind {
	return []Kind{
		{NameEvenkeel, "((bucket, range), key), cuts in a map", "keys in order",
			"any keys, any size, also both unknown", "a map, movers that keep ranges in shape, and leases",
			"the client library as it is; twenty ranges of the same size in the main set, as its balancer would leave them"},
		{NameWide, "((bucket), key)", "keys in order", "buckets that stay small",
			"one replica set takes all load and all bytes; repair, compaction and streaming work by partition",
			"a page is one slice; several readers share the partition by cuts that somebody knows"},
		{NameHash, "((bucket, hash(key) mod 256), key)", "no order: a sorted page merges 256 partitions",
			"point reads, and full reads in any order", "the number of buckets is for ever",
			"murmur3_128 and jump hashing, as Guava; a sorted page reads a little more of each bucket than it needs on average, 32 buckets at once, and more of those that are used up; with a delimiter it reads all within the bounds and folds"},
		{NameFixed, "((bucket, n), key), n+1 after 100,000 rows", "order of arrival",
			"append-only logs that are read through", "nobody can compute where a key is",
			"the counter is the writing process's own, a sequence that is also the clustering column; one in Cassandra would cost another write per put"},
		{NameDays, "((bucket, day), id DESC)", "newest first", "feeds with ids that hold their time",
			"a day of a busy account is one partition; empty days cost a request without an auxiliary table",
			"the days that exist are in an auxiliary table, latest first, written once per process; a page asks the day of its moment first"},
		{NameDaysN, "((bucket, day, n), id DESC), N per account", "newest first by merging N partitions",
			"feeds of accounts of very different traffic",
			"a wrong N hurts both ways, and each page reads N partitions",
			"the same with N = 8, by the id's hash; each day is merged like hash buckets"},
		{NameSlices, "a table per month: ((bucket), id DESC)", "newest first",
			"data that is archived by age: dropping a table is free",
			"tables are created and dropped ahead of time by somebody; one partition per bucket and month",
			"CQL by hand; tables are created ahead, an archive is a file of JSON lines in gzip, dropping writes no tombstone"},
		{NamePrefix, "((bucket, first n bytes), key)", "keys in order, partition by partition",
			"names whose first bytes are spread evenly, such as md5",
			"useless where keys begin alike; nobody can guess how clients name their keys",
			"n = 2, right for md5; the prefixes that exist are in an auxiliary table, and read in their order, several at once where they are small"},
		{NamePostgres, "b-tree on (bucket, key)", "keys in order", "what fits one machine",
			"one machine takes all writes",
			"one table, keyset paging; common prefixes by a recursive statement that seeks behind each; commits are synced, while Cassandra's commit log is synced every 10 s, its default"},
	}
}
