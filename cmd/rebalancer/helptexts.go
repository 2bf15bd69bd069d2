package main

import "github.com/alecthomas/kong"

// help holds the help texts of the flags that are too long for a struct tag. A tag refers to a text by the key of the
// text in help.
var help = kong.Vars{
	"admin_move_rate": "With --cassandra: most rows copied, compared and counted per second; 0: as many as possible.",
	"cli_simulate":    "Simulate months of many buckets in memory and report what the policy costs. Changes nothing.",
	"move_progress":   "How to show progress: bar, plain (a line every 5 s), none, or auto: bar on a terminal, else plain.",
	"merge_range":     "Interval that becomes one range; may be repeated for neighbours.",
	"presplit_like": "" +
		"Sample keys, one per line, in any order; - is standard input. With --append: instead of the bucket's " +
		"own; new keys are above them.",
	"presplit_max_rows": "With --append: most rows of a partition, by default the server's --max-rows.",
	"presplit_pin_for": "" +
		"How long to pin the cuts, so that no merge undoes them; 0: no pin. By default 72h; with --append an " +
		"hour longer than --for.",
	"pause_progress": "" +
		"With --wait: how to show what still moves on standard error: plain lines, none, or auto: lines on a " +
		"terminal only.",
	"plan_layout": "JSON file with the layout to improve, instead of a bucket; - is standard input.",
	"plan_planner": "" +
		"Algorithm: exact (the optimum of the objective), greedy (one pass, for comparison), genetic (a " +
		"search), or auto: exact, but genetic for --objective full where there are too many ways to cut.",
	"plan_objective": "" +
		"Objective. rows: limits, then fewest rows moved, then fewest and most even partitions; a bucket within " +
		"its limits stays as it is. full: limits, then the cost in rows: rows moved, moves, ranges too many, " +
		"rows over max_rows now or by forecast, load; see --weight.",
	"plan_weight": "" +
		"Weight of a term of the full objective, like spread=1; may be repeated. It implies --objective full.",
	"plan_seed": "Seed of the genetic planner. The same seed and generations make the same plan.",
	"plan_time_limit": "" +
		"Time limit of the command: the genetic planner begins no generation that would exceed it; the other " +
		"work may take longer. By default 2s (8s for more than 150,000 quanta), with --generations none. The " +
		"plan has the number of generations.",
	"retention_rules": "File with the rules to look at, instead of those of the process that leads.",
	"run_admin_listen": "" +
		"Address of /healthz, /readyz, /metrics, /debug/pprof and of the commands of rebalancer; port 0 takes " +
		"a free one. Loopback only, unless there is a token or clients show certificates.",
	"run_admin_url": "" +
		"URL by which other hosts reach --admin-listen, to forward commands to the leader. By default http:// " +
		"or https:// and the address.",
	"simulate_scenario": "A scenario: a file (YAML or JSON), or one that comes with the program: --list names them.",
	"simulate_all": "" +
		"Simulate all scenarios that come with targets, and print the worst of each with its targets, as a " +
		"table in Markdown.",
	"simulate_seed": "Seed, instead of the scenario's. The same seed gives the same result.",
	"simulate_seeds": "" +
		"Simulate with so many seeds, from the first one on, and print the worst figures with their targets. " +
		"By default 5 with --all.",
	"simulate_progress": "" +
		"How to show progress of several simulations, on standard error: plain lines, none, or auto: plain " +
		"lines with --all.",
	"adopt_cql": "Bring rows of a Cassandra table into a bucket, while the application goes on.",
	"adopt_table": "" +
		"The table; several, with commas between, are one source, such as a table for each month: they have the same " +
		"partitions, and columns of the same types.",
	"adopt_partition": "" +
		"The partitions: each partition column with its value; a range of integers or dates, like 0..15, stands for " +
		"all of them. Repeatable.",
	"adopt_key": "" +
		"Columns of the key: any partition columns, then all clustering columns; - in front turns the order around. " +
		"Default: the clustering columns as the table has them.",
	"adopt_value": "" +
		"Columns of the value: one of text or blob as it is, others as a JSON object; without it values are empty.",
	"adopt_catch_up": "" +
		"Compare both sides, and make the bucket like the source: put what is missing or another value, delete what " +
		"the source has not.",
	"adopt_verify": "Compare both sides and report what differs, also while the application writes. Changes nothing.",
	"adopt_back": "" +
		"The way back after the cut-over: make the table like the bucket, where they differ. With --dry-run only " +
		"count what differs.",
	"adopt_memory_mib": "" +
		"Most memory for rows of the table that --catch-up, --verify and --back hold: a page of each partition. With " +
		"more partitions pages are smaller.",
	"adopt_prefix": "That of the keys that are listed. Entries with other keys are left alone.",
	"adopt_metadata": "" +
		"Bring user metadata and content types, too: one request for each object, bounded by --rate.",
	"adopt_access_key": "" +
		"Access key of the other store. Default: that of the environment (AWS_ACCESS_KEY_ID) and the files of AWS; " +
		"without any the requests are not signed.",
	"adopt_region": "Region of its bucket. Default: AWS_REGION, else the store is asked.",
	"adopt_form": "" +
		"A line is a key (plain); a key, a tab and the value (tsv); or an object with key and value (jsonl), where a " +
		"value that is a text is taken as it is, and others as their JSON.",
	"adopt_as_of": "The time of all rows, like 2026-11-01T10:00:00Z. Default: when the file was last changed; of " +
		"standard input: now.",
	"adopt_temp":     "Where the temporary store is made. Default: the system's folder for temporary files.",
	"adopt_max_rows": "Most rows of a partition, as the servers have it: a new bucket is cut for two thirds of it.",
	"adopt_checkpoint": "" +
		"File for the progress of the copy: the same command goes on there after a crash. Without it a copy " +
		"begins anew, which does no harm.",
	"audit_bucket": "Name of the bucket; without it all buckets of objects.",
	"audit_data":   "Read this data directory, while its listd does not run.",
	"audit_bodies": "" +
		"Where the bodies are, as the servers have it: file:///DIRECTORY, or s3://BUCKET?endpoint=URL&region=NAME. " +
		"Default: bodies in --data; needed with --cassandra.",
	"clean_dry_run": "Show the steps, and change nothing.",
	"clean_now": "" +
		"Clean the bucket that is named at once, without waiting for a day, to make room on a full disk. Streams of " +
		"readers that have begun before may break off.",
	"audit_checksums": "Read all bodies above 4 KiB, and compare them with the checksums of when they were put.",
	"audit_body_rate": "With --checksums: most MiB of bodies that are read per second; 0: no limit.",
	"audit_condemn": "" +
		"Delete the bodies that belong to no version, of the bucket that is named, once they are older than 11 days; of " +
		"parts the servers' cleaner deletes most a day later. Without it nothing is changed.",
	"audit_continue": "Go on where an audit ended that was interrupted: the token that it has printed.",
	"audit_rate":     "Most rows and bodies that are read per second; 0: no limit.",
	"migrate_dir":    "The directory of --bodies of the servers; by default theirs is bodies in --data.",
	"migrate_no_older": "" +
		"State that no listd or rebalancer of before folders of hashes uses the directory. Needed the first time.",
	"migrate_rate":        "Most keys that are moved per second; 0: no limit.",
	"sizing_appends":      "New keys per second, each above all others of its bucket.",
	"sizing_busy_buckets": "Buckets that are written to; by default all.",
	"sizing_clean_rate":   "Rows that a cleaner looks at per second; 0: no limit.",
	"sizing_map":          "Memory for maps of buckets in each server.",
	"sizing_move_rate":    "Rows that are copied and compared per second; 0: as many as possible.",
	"sizing_node_gib":     "Bytes of rows that a node can have, in GiB.",
	"sizing_paxos":        "paxos_variant of the nodes: v1 or v2.",
	"sizing_node_requests": "" +
		"Requests per second that a node can take, of clients and of servers: measure it with your rows and machines.",
	"sizing_objects":    "The keys are versions of objects, with a cleaner.",
	"sizing_round_trip": "Round trip between data centres, like 80ms.",
	"terms_lease": "" +
		"Lease of the servers' maps. By default that of the keyspace, which refuses any other one; 3s where no " +
		"process has said it.",
	"verify_bucket": "Bucket to check; without it all, with partitions that belong to none.",
	"verify_lease": "" +
		"Lease of the servers' maps. By default that of the keyspace, which refuses any other one. With " +
		"--max-clock-skew: what counts where the keyspace's own can't be read.",
	"verify_max_clock_skew": "" +
		"Limit of clocks of the servers. By default that of the keyspace, which refuses any other one. With " +
		"--lease: what counts where the keyspace's own can't be read.",
	"verify_adopt": "" +
		"After a restore, with all servers ended: as --repair, and copy to where the map says the rows of " +
		"partitions that no map names, if these are proven to be newer than the map. Each row keeps its " +
		"timestamp.",
	"verify_adopt_all": "" +
		"After a restore, with all servers ended: as --adopt, and without proof, also rows outside of their " +
		"partition's ranges; take a map with missing nodes back to an older one. Where nothing was restored, " +
		"deleted rows come back.",
	"verify_discard": "" +
		"With --repair: remove this partition, which no map names, although its rows are nowhere else; of one that " +
		"a map names, the misplaced rows. Repeatable.",
	"verify_skip_orphans": "Do not search for partitions that no map names, which lists all partitions, also for one bucket.",
	"verify_format":       "text: a line per finding, for people. json: an object per line, the summary last.",
	"verify_progress": "" +
		"How to show progress, on standard error: plain lines every ten seconds, none, or auto: a line that " +
		"changes, on a terminal only.",
}
