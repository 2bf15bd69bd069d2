package sizing

import "time"

// What was measured, where no package has it as a constant of its own. The tests hold it to the runs.
const (
	// A range of a map takes mapBytes in memory: a node of 89 KB has some 1,000 (docs/benchmarks.md, "The map"). A root
	// of a bucket of one range takes rootBytes, with its place in the cache and its proof, a name nameBytes.
	mapBytes  = 89
	rootBytes = 1000
	nameBytes = 200
	// A range whose sample is full takes redisBytes in Redis, its place among those that were written to included
	// (TestMemoryOfARangeInRedis).
	redisBytes = 19_000
	// A core merges mergesPerS ranges with one request each since the last merge (bench/results/parts.md, "Counting");
	// with more requests each the time grows by the power mergeGrowth of their number.
	mergesPerS  = 110_000
	mergeGrowth = 0.39
	// A row takes rowBytes on a node beside its key and value.
	rowBytes = 30
	// copies is how many copies a data centre has, and quorum how many of them answer a read.
	copies, quorum = 3, 2

	// A put asks each node of its data centre for the time questionsPerPut times at most, as a look serves two puts,
	// and has 8 to 9 questions. A process that writes all the time asks each of the first few nodes questionsPerS times a
	// second at most, with more than evenNodes as much less as there are more, and at least idleQuestions times
	// (store/commontime, TestQuestionsOfManyProcesses). It asks those of other data centres once.
	questionsPerPut = 4.3
	questionsPerS   = 430
	evenNodes       = 2.5
	idleQuestions   = 5.5

	// A process copies and compares unlimitedRows a second where nothing limits it (bench/results/parts.md, "Moves"),
	// and counts unlimitedCounts.
	unlimitedRows, unlimitedCounts = 87_000, 230_000
	// A range that is copied, or compared, goes on by rowsARound at each round trip, and takes rangeTakes beside it
	// (docs/operations.md, "Speed": 2,500 rows in 0.8 s, 80 ms apart; removal and sweep).
	rowsARound = 250
	rangeTakes = 800 * time.Millisecond
	// A move has moveWaits waits for leases, moveSwaps swaps of the root, and as many bumps of a map clock; its phases
	// but the copying, comparing and waiting take moveRounds round trips (bench/results/apart.md).
	moveWaits, moveSwaps     = 5, 6
	moveRoundsV1, moveRounds = 165, 95
	// A swap takes swapRounds round trips, with paxos_variant v1 twice as many; a bump half as many again.
	swapRounds, swapRoundsV1 = 4, 8

	// A read of a root in the own data centre takes localRead, where the machine is busy; the scan of roots had 81 a
	// second one after the other, with more reads each. A round trip takes atNode beside the distance.
	localRead = 4 * time.Millisecond
	atNode    = 2 * time.Millisecond
	// A look at a bucket takes lookAtARange for each of its ranges, of which one in a hundred was written to
	// (bench/results/parts.md, "A look at a bucket of 100,000 ranges").
	lookAtARange = 1470 * time.Nanosecond
	// verifyRate is how many rows a second verify may read beside clients, like moves.
	verifyRate = 20_000
	// cleanIsLate is when the alert EvenkeelCleaningIsLate fires.
	cleanIsLate = 24 * time.Hour
)
