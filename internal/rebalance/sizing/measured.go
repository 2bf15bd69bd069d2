package sizing

import "time"

// Values measured in runs, such as bytes for each range, which no other package has as a constant. Tests compare them
// with the records of the runs.
const (
	// mapBytes is the memory of one range of a map: a node of 89 KB has about 1,000 ranges (docs/benchmarks.md, "The
	// map"). rootBytes is that of a root of a bucket of one range, with its place in the cache and its proof, and
	// nameBytes that of a name.
	mapBytes  = 89
	rootBytes = 1000
	nameBytes = 200
	// redisBytes is the memory in Redis of a range whose sample is full, with its place among the ranges that were
	// written to (TestMemoryOfARangeInRedis).
	redisBytes = 19_000
	// mergesPerS is the number of ranges per second that a core merges, with one request for each since the last merge
	// (bench/results/parts.md, "Counting"). With more requests for each range the time grows by the power mergeGrowth
	// of their number.
	mergesPerS  = 110_000
	mergeGrowth = 0.39
	// restoresPerS is the number of sizes kept in Cassandra that a process gives back to Redis in a second (660 at a
	// load of 9 on two cores, with each write of Redis on its disk before the answer).
	restoresPerS = 600
	// rowBytes are the bytes that a row takes on a node besides its key and value.
	rowBytes = 30
	// copies is the number of copies in a data centre, and quorum the number of copies that answer a read.
	copies, quorum = 3, 2

	// These constants are about questions to nodes for the time. A put asks each node of its data centre at most
	// questionsPerPut times, as one look serves eight puts, and has 4 to 31 questions.
	//
	// A process that writes all the time asks each node of its data centre at most questionsPerS times a second. With
	// more nodes than evenNodes the number falls in proportion, but not below idleQuestions (internal/commontime,
	// TestQuestionsOfManyProcesses). The process asks the nodes of other data centres once a second. All processes of a
	// data centre together make at most looksOfAll looks a second, of questionsPerLook questions each.
	questionsPerPut = 3.9
	questionsPerS   = 200
	evenNodes       = 2.5
	idleQuestions   = 4.3

	looksOfAll, questionsPerLook = 200, 25

	// unlimitedRows is the number of rows that a process copies and compares in a second where nothing limits it
	// (bench/results/parts.md, "Moves"), and unlimitedCounts the number of rows that it counts.
	unlimitedRows, unlimitedCounts = 87_000, 230_000
	// rowsARound is the number of rows by which the copy, or the comparison, of a range goes on at each round trip.
	// rangeTakes is the time that the range takes besides: removal and sweep (bench/results/apart.md, "A split": 2,500
	// rows in 0.8 s, 80 ms apart).
	rowsARound = 250
	rangeTakes = 800 * time.Millisecond
	// moveWaits is the number of waits for leases in a move. moveSwaps is the number of its swaps of the root, and of
	// its bumps of a map clock. moveRounds (moveRoundsV1 with paxos_variant v1) is the number of round trips of its
	// phases, apart from copying, comparing and waiting (bench/results/apart.md).
	moveWaits, moveSwaps     = 5, 6
	moveRoundsV1, moveRounds = 165, 95
	// swapRounds (swapRoundsV1 with paxos_variant v1) is the number of round trips of a swap. A bump takes one and a
	// half times as many.
	swapRounds, swapRoundsV1 = 4, 8

	// localRead is the time of a read of a root in the same data centre on a busy machine: the scan of roots did 81 a
	// second one after the other, with more than one read each. atNode is the time of a round trip without the
	// distance.
	localRead = 4 * time.Millisecond
	atNode    = 2 * time.Millisecond
	// lookAtARange is the time that a look at a bucket takes for each of its ranges, of which one in a hundred was
	// written to (bench/results/parts.md, "A look at a bucket of 100,000 ranges").
	lookAtARange = 1470 * time.Nanosecond
	// verifyRate is the number of rows that verify may read in a second beside clients, like moves.
	verifyRate = 20_000
	// cleanAllEvery is the default of --clean-all-every. Between two full rounds, a cleaner looks at the objects that
	// were put: in each shard at looksAtOnce objects at a time, of about rowsOfLook rows each
	// (objects.Cleaner.PassOver).
	cleanAllEvery           = 7 * 24 * time.Hour
	looksAtOnce, rowsOfLook = 64, 2
)
