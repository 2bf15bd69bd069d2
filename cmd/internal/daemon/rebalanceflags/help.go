package rebalanceflags

import "github.com/alecthomas/kong"

// Help holds the help texts of the flags that are too long for a struct tag. A tag refers to a text by the key of the
// text in Help.
var Help = kong.Vars{
	"rebalance_min_rows": "" +
		"Fewest rows of a partition: smaller ones are merged with their neighbours, unless the cut is pinned. " +
		"By default a quarter of --max-rows; 0: nothing is merged.",
	"rebalance_rebalance_interval": "" +
		"Pause between two checks of the sizes of partitions; fast growing ones are checked more often. 0: no " +
		"checks. By default 10s, but on Cassandra without --counter 0, since each check would count every " +
		"row.",
	"rebalance_schedule": "" +
		"Check the sizes of partitions at these times (UTC) instead of at --rebalance-interval: minute, hour, " +
		"day, month and weekday, like '*/10 * * * *' or '0 22-23,0-5 * * *'. Moves that have begun are " +
		"completed.",
	"rebalance_counter": "" +
		"Redis in which the sizes of partitions are counted: redis://host:6379/0 (rediss:// for TLS), the " +
		"same for all processes of a keyspace, which refuse others. redis://a:6379,b:6379?cluster=true for a " +
		"Redis Cluster, redis://a:26379,b:26379/0?sentinel=NAME for the master NAME of sentinels. The " +
		"embedded store counts in its data directory.",
	"rebalance_max_bytes": "" +
		"Most bytes of a partition, keys and values: larger ones are split, as if --max-rows were lower for " +
		"rows that large. 0: any number.",
	"rebalance_load_per_s": "" +
		"Requests per second, reads and writes, from which a partition is split because of its load, if that " +
		"is also --load-share of its bucket's. 0: never.",
	"rebalance_load_share": "" +
		"Share of its bucket's requests, 0 to 1, that one partition may take if it has --load-per-s.",
	"rebalance_cool": "Least age of partitions that are split by load. A merge that copies a full range waits six" +
		" times as long.",
	"rebalance_planner": "" +
		"Algorithm that finds the cuts of ranges that are split: even, exact, greedy, genetic or " +
		"auto. docs/policy.md compares them.",
	"rebalance_move_rate": "" +
		"Most rows copied and compared per second, fewer while the store is slow; three times as many are " +
		"counted and swept. 0: no limit, at the expense of clients.",
	"rebalance_move_rows": "" +
		"Most rows in automatic moves at once, in all buckets. By default those of a minute at --move-rate, " +
		"and at most 20 times --max-rows.",
	"rebalance_history": "" +
		"File that keeps what ranges had and took, and the moves, for the console, over a restart: 80 MiB at " +
		"most. By default history in the data directory; on Cassandra none: it is in memory only.",
	"rebalance_move_hours": "" +
		"Hours of the day (UTC) of automatic moves, by default all. Partitions of more than 1.2 x --max-rows " +
		"are split at any hour.",
	"rebalance_retention": "" +
		"YAML file with rules of retention: what is old, by the time in its key or of its put, is deleted " +
		"(docs/deleting.md). " +
		"Whoever leads applies its own: give all processes of a keyspace the same.",
	"rebalance_retention_every": "Time from the end of a run of the rules of retention to the next one.",
}
