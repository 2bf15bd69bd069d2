package sizing

import "time"

// These constants are values that were measured in runs, such as the bytes of memory for each range. No other package
// has them. Tests compare them with the records of the runs.
const (
	// mapBytes is the memory of one range of a map: a node of 89 KB has about 1,000 ranges (docs/benchmarks.md, "The
	// map"). rootBytes is the memory of the root of a bucket of one range, with its cache entry and the proof that it
	// is current. nameBytes is the memory of the name of a bucket in the cache.
	mapBytes  = 89
	rootBytes = 1000
	nameBytes = 200
	// redisBytes is the memory in Redis of a range whose sample of keys is full, with its entry in the list of ranges
	// that were written to (TestMemoryOfARangeInRedis).
	redisBytes = 19_000
	// mergesPerS is the number of ranges per second whose counts one core adds up, if each range had one request since
	// the last time (bench/results/parts.md, "Counting"). With n requests for each range, the time is n to the power of
	// mergeGrowth times as long.
	mergesPerS  = 110_000
	mergeGrowth = 0.39
	// restoresPerS is the number of sizes of partitions per second that a process copies from Cassandra back into
	// Redis, after Redis has lost them. (660 were measured on two busy cores, with each write of Redis on its disk
	// before the answer.)
	restoresPerS = 600
	// rowBytes is the number of bytes that a row takes on a node besides its key and value.
	rowBytes = 30
	// copies is the number of copies of a row in a data centre, and quorum is the number of copies that answer a read.
	copies, quorum = 3, 2

	// These constants are about the questions by which a process asks nodes for the present time. A put asks each node
	// of its data centre at most questionsPerPut times: one round of 4 to 31 questions serves eight puts.
	//
	// A process that writes all the time asks each node of its data centre at most questionsPerS times a second. With
	// more nodes than evenNodes the number falls in proportion, but not below idleQuestions (internal/commontime,
	// TestQuestionsOfManyProcesses). The process asks the nodes of other data centres once a second. All processes of a
	// data centre together make at most looksOfAll rounds a second, of questionsPerLook questions each.
	questionsPerPut = 3.9
	questionsPerS   = 200
	evenNodes       = 2.5
	idleQuestions   = 4.3

	looksOfAll, questionsPerLook = 200, 25

	// unlimitedRows is the number of rows that a process copies and compares per second if no rate is set
	// (bench/results/parts.md, "Moves"), and unlimitedCounts is the number of rows that it counts per second.
	unlimitedRows, unlimitedCounts = 87_000, 230_000
	// rowsARound is the number of rows that are copied, or compared, in each round trip. rangeTakes is the time that
	// each range takes in addition, for the removal of its old rows and of deletion markers (bench/results/apart.md, "A
	// split": 2,500 rows in 0.8 s, 80 ms apart).
	rowsARound = 250
	rangeTakes = 800 * time.Millisecond
	// moveWaits is the number of waits for leases in a move. moveSwaps is the number of its swaps of the partition
	// map's root, each with an increment of a map clock (a counter that tells clients of changes). moveRounds
	// (moveRoundsV1 with paxos_variant v1) is the number of round trips of its phases, apart from copying, comparing
	// and waiting (bench/results/apart.md).
	moveWaits, moveSwaps     = 5, 6
	moveRoundsV1, moveRounds = 165, 95
	// swapRounds (swapRoundsV1 with paxos_variant v1) is the number of round trips of a compare-and-swap. An increment
	// of a map clock takes one and a half times as many.
	swapRounds, swapRoundsV1 = 4, 8

	// localRead is the time of a read of a map's root in the same data centre on a busy machine. It follows from a scan
	// of 81 roots a second, one after the other, with more than one read for each root. atNode is the time of a round
	// trip without the network distance.
	localRead = 4 * time.Millisecond
	atNode    = 2 * time.Millisecond
	// lookAtARange is the time that a check of a bucket's sizes takes for each range of the bucket, if one range in a
	// hundred was written to (bench/results/parts.md, "A look at a bucket of 100,000 ranges").
	lookAtARange = 1470 * time.Nanosecond
	// verifyRate is the number of rows that `rebalancer verify` may read per second beside clients, like moves.
	verifyRate = 20_000
	// cleanAllEvery is the default of --clean-all-every, the time between two full passes of a cleaner over all
	// objects. In between, a cleaner checks only the objects that were put: in each shard (group of buckets)
	// looksAtOnce objects at a time, of about rowsOfLook rows each (care.Cleaner.PassOver).
	cleanAllEvery           = 7 * 24 * time.Hour
	looksAtOnce, rowsOfLook = 64, 2
)
