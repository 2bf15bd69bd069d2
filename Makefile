# The commands that matter: `make run` serves, `make check` is the inner loop, `make test` proves.
GO ?= go

# One set of flags for everything, so that whatever is compiled for one purpose
# serves all others: a second set would cost two minutes of a processor.
export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath

# Programs are released without C, and tested so; only the race detector needs it.
export CGO_ENABLED := 0

# By default each program with the race detector sleeps for a second before it ends.
export GORACE := atexit_sleep_ms=0

# make test has vetted everything by then, with more than go test asks for.
TEST = $(GO) test -vet=off
# Memory is not scarce, and with the race detector a garbage collection costs the more: a tenth to a quarter less time.
TEST_RACE = env CGO_ENABLED=1 GOGC=400 $(GO) test -vet=off -race

# What the tests run of our own programs, built once for all packages.
PROGRAMS = $(CURDIR)/bin/test
WITH_PROGRAMS = EVENKEEL_TEST_PROGRAMS=$(PROGRAMS)

# Packages whose tests need a Cassandra node share one. Two packages and a few tests run
# at once, as they mostly wait: for nodes to start, leases to run out, moves to end. Only
# tests in virtual time and models run beside them, niced and on one processor each: others
# would make nodes miss their own time limits. What takes longest comes first.
WITH_NODE = ./internal/test/e2e/oncassandra ./cmd/rebalancer \
	$(addprefix ./internal/test/e2e/,livemoves moverkilled growing versions)
RACE_WITH_NODE = ./store/cassandrastore
# Packages in which goroutines meet are tested with the race detector, and so is what they share with commands and
# servers. It takes two to ten times as long, and all that it tests has to be compiled a second time.
RACE = . ./counter ./internal/countbook ./counter/localcounter ./counter/rediscounter ./listing ./objects \
	./objects/fileblobs ./retention \
	./s3api ./store ./store/memstore ./store/pebblestore ./cmd/listd ./cmd/internal/daemon/... \
	$(addprefix ./internal/,adminapi adopt assembly cleaning commontime hints mapclient processes timestamps wait) \
	$(addprefix ./internal/rebalance/,balancer engine executor leader pause repair scheduler)
# All others that need no node. The slowest ones of them run beside the tests with Cassandra.
PLAIN = $(filter-out $(shell $(GO) list $(RACE) $(SLOW) $(PACKAGES)), $(shell $(GO) list ./... ./examples/metrics | grep -v \
	-e /store/cassandrastore -e /cmd/rebalancer -e /test/e2e))
SLOW = $(PURE) $(SIMULATIONS)
# Hostile clients take all processors that there are, and the time of an honest one is
# measured beside them: they run by themselves.
ATTACKS = ./internal/test/e2e/attacks
# S3 clients, against our programs: the race detector would see the clients only. Those of others take a minute of a
# processor to compile for it.
CLIENTS = ./internal/test/e2e/s3tour ./internal/test/e2e ./internal/test/e2e/bodies
# The console in a browser.
CONSOLE = ./internal/test/e2e/console
CLIENTS_WITH_NODE = ./internal/test/e2e/s3tour/oncassandra ./internal/test/e2e/console/oncassandra
# What makes packages, and tries them.
PACKAGES = ./deploy/packages
# Pure packages have no goroutines: the race detector finds nothing in them, and takes up to ten times as long.
PURE = ./partmap ./internal/mapcodec ./internal/keyspread ./objects/internal/tidy ./rebalance/... \
	$(addprefix ./internal/rebalance/,policysim grid planner/... move forecast heat policy)
# Days in virtual time: many seeds find more than the race detector, which runs on fewer.
SIMULATIONS = ./internal/test/sim ./internal/rebalance/balancer ./internal/rebalance/engine
# What repeats much, as the failure of each call and random operations, takes five to forty times as long with the race
# detector, which gets a tenth of it, and none of what is a matter of numbers (internal/test/race). Without it these
# packages run in full.
AGAIN = ./counter ./listing ./objects ./s3api ./internal/adopt ./internal/cleaning ./internal/commontime \
	./internal/countbook ./internal/keysample ./internal/mapclient ./internal/rebalance/executor \
	./internal/rebalance/leader ./internal/rebalance/repair ./internal/rebalance/scheduler
BESIDE = nice -n 19 env GOMAXPROCS=1
WITH_CASSANDRA = $(GO) run ./internal/test/cassandratest/cmd/with-cassandra
AT_ONCE = -p 2 -parallel 2
# Of what only compares, one package needs a node.
BENCH_WITH_NODE = ./bench/layouts/cqltables
BENCH_WITHOUT_NODE = $(shell $(GO) list ./bench/... | grep -v /cqltables)
# Two data centres with a distance between them: six nodes.
APART = ./internal/test/e2e/apart
# Nodes that come and go: nine of them.
NODES = ./internal/test/e2e/nodes
# Documents whose commands are followed word for word.
TOURS = README.md docs/backup.md $(sort $(wildcard examples/*/README.md))

.PHONY: all build compile programs run run-cassandra check test lint unit race cassandra cluster nodes before tour tools console \
	packages test-packages bench bench-embedded bench-cassandra bench-s3 bench-moves bench-limits microbench fuzz sim \
	soak attacks soak-attacks vulncheck model mutants scale counters-large objects-large generate clean help

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

all: build

build: ## bin/listd and bin/rebalancer
	@$(GO) build -o bin/ ./cmd/...

run: build ## serve the S3 dialect on http://127.0.0.1:9000, embedded, data in ./evenkeel-data
	@exec bin/listd serve

run-cassandra: build ## a Cassandra node, a Redis, and two listd on 127.0.0.1:9000 and :9100 over one keyspace
	@$(GO) build -o bin/ ./internal/test/cassandratest/cmd/run-cassandra
	@exec bin/run-cassandra

check: ## the inner loop, 90 s: gofmt, vet, staticcheck of what is not committed, short tests without Cassandra
	@scripts/check

test: tools ## everything that must hold, on a fresh machine; each part has a time budget
	@scripts/within 600 lint scripts/lint
	@scripts/within 360 compile $(MAKE) -s compile
	@scripts/within 120 programs $(MAKE) -s programs
	@$(WITH_PROGRAMS) scripts/within 900 race $(TEST_RACE) -timeout 640s $(RACE)
	@$(WITH_PROGRAMS) scripts/within 300 plain $(TEST) -timeout 280s $(PLAIN) $(BENCH_WITHOUT_NODE)
	@$(WITH_PROGRAMS) scripts/within 240 clients $(TEST) -timeout 230s $(CLIENTS)
	@scripts/within 360 again $(TEST) -timeout 350s $(AGAIN)
	@$(WITH_PROGRAMS) scripts/within 120 console $(TEST) -timeout 110s $(CONSOLE)
	@$(WITH_PROGRAMS) scripts/within 220 attacks $(TEST) -timeout 210s $(ATTACKS)
	@scripts/within 120 packages $(TEST) -timeout 110s $(PACKAGES)
	@$(WITH_PROGRAMS) scripts/within 2400 cassandra $(WITH_CASSANDRA) sh -c \
		'$(TEST) $(AT_ONCE) -timeout 1500s $(WITH_NODE) $(CLIENTS_WITH_NODE) $(BENCH_WITH_NODE) && \
		$(TEST_RACE) $(AT_ONCE) -timeout 600s $(RACE_WITH_NODE)' & \
	cassandra=$$!; \
	scripts/within 2100 model env KNOWN=10 JOBS=1 SECONDS_MAX=900 nice -n 19 docs/model/run.sh quick & \
	model=$$!; sim=0; \
	scripts/within 2100 sim $(BESIDE) $(TEST) -timeout 1800s $(PURE) $(SIMULATIONS) || sim=$$?; \
	wait $$model || sim=$$?; \
	wait $$cassandra && exit $$sim
	@scripts/within 300 tour $(GO) run ./internal/test/tour $(TOURS)

lint: ## gofmt, vet, staticcheck, go.mod
	@scripts/lint

unit: programs ## the Go tests that need no Cassandra node, with the race detector
	$(WITH_PROGRAMS) $(TEST_RACE) -timeout 640s $(RACE)
	$(WITH_PROGRAMS) $(GO) test -timeout 280s $(PLAIN) $(BENCH_WITHOUT_NODE) $(PURE) $(AGAIN)
	$(WITH_PROGRAMS) $(GO) test -timeout 230s $(CLIENTS)
	$(WITH_PROGRAMS) $(GO) test -timeout 140s $(CONSOLE)

race: programs ## all Go tests that need no Cassandra node, with the race detector: 15 minutes
	$(WITH_PROGRAMS) $(TEST_RACE) -timeout 1800s $(RACE) $(PLAIN) $(SLOW) $(BENCH_WITHOUT_NODE)

cassandra: programs ## the Go tests that need Cassandra nodes
	$(WITH_PROGRAMS) $(WITH_CASSANDRA) sh -c \
		'$(TEST) $(AT_ONCE) -timeout 1500s $(WITH_NODE) $(CLIENTS_WITH_NODE) $(BENCH_WITH_NODE) && \
		$(TEST_RACE) $(AT_ONCE) -timeout 600s $(RACE_WITH_NODE)'

# RUN=/puts runs one of the tests; DISTANCE=, LOSS=, PAXOS=v2, MANY=, PAIRS=, CUT=, LONG= and AHEAD= change what is
# measured.
cluster: tools programs ## two data centres of three nodes, 80 ms apart, 15 minutes (as root); writes bin/cluster.json
	@uptime
	$(WITH_PROGRAMS) EVENKEEL_APART=1 EVENKEEL_APART_DISTANCE=$(DISTANCE) EVENKEEL_APART_LOSS=$(LOSS) \
		EVENKEEL_APART_PAXOS=$(PAXOS) EVENKEEL_APART_MANY=$(MANY) EVENKEEL_APART_PAIRS=$(PAIRS) \
		EVENKEEL_APART_CUT=$(CUT) EVENKEEL_APART_LONG=$(LONG) EVENKEEL_APART_AHEAD=$(AHEAD) \
		EVENKEEL_APART_REPORT=$(CURDIR)/bin/cluster.json \
		$(TEST) -count 1 -v -timeout 90m -run 'TestTwoDataCentres$(RUN)' $(APART)
	@uptime

# By default of the last commit from before keyspaces had a version of their schema.
before: programs ## programs of the commit BEFORE serve and move beside the present ones, on a Cassandra node
	$(WITH_PROGRAMS) EVENKEEL_BEFORE=$(or $(BEFORE),c7df8eca603c940488459a8dcbb962d84fe91e18) \
		$(WITH_CASSANDRA) $(TEST) -count 1 -v -timeout 20m -run TestProgramsOfTheCommitBefore \
		./internal/test/e2e/oncassandra

nodes: tools programs ## nodes and data centres are added, replaced, removed and lost, as docs/nodes.md says; 10 minutes
	$(WITH_PROGRAMS) EVENKEEL_NODES=1 $(TEST) -count 1 -v -timeout 25m $(if $(RUN),-run 'TestNodesComeAndGo$(RUN)') $(NODES)

# What the parts of make test are compiled of, so that their budgets are for tests, whatever was compiled before.
compile:
	@env CGO_ENABLED=1 $(GO) list -race -test -export -f '{{""}}' $(RACE) $(RACE_WITH_NODE)
	@$(GO) list -test -export -f '{{""}}' $(ATTACKS) $(CLIENTS) $(CONSOLE) $(WITH_NODE) $(CLIENTS_WITH_NODE) \
		$(BENCH_WITH_NODE) $(BENCH_WITHOUT_NODE) $(PACKAGES) $(PLAIN) $(SLOW) $(AGAIN)
	@cd internal/test/s3test/server && GOWORK=off $(GO) tool -n versitygw >/dev/null

programs:
	@$(GO) build -o $(PROGRAMS)/ ./cmd/... ./internal/test/cassandratest/cmd/run-cassandra

console: tools programs ## the console's tour in Chromium; pictures go to bin/console (LARGE=1: also 100,000 ranges)
	$(WITH_PROGRAMS) EVENKEEL_CONSOLE_KEYS=300000 EVENKEEL_CONSOLE_PICTURES=$(CURDIR)/bin/console \
		$(if $(LARGE),EVENKEEL_CONSOLE_LARGE=1) \
		$(GO) test -count 1 -v -timeout 300s $(CONSOLE)

tour: ## the tours of README, docs/backup.md and the examples, word for word (ports 9000, 9001, 9100 and 9101)
	$(GO) run ./internal/test/tour $(TOURS)

tools: ## what the tests need besides Go (Debian packages; says what it installs)
	@scripts/install-tools

packages: ## deb, rpm, the directory of a container image, checksums and others, in bin/packages (GOARCH=arm64)
	@rm -rf bin/packages
	@mkdir -p bin
	@GOARCH= $(GO) build -o bin/packager $(PACKAGES)
	@bin/packager bin/packages
	@ls -R bin/packages

test-packages: tools ## installs, upgrades under load and removes the packages in fresh roots of Debian (as root)
	EVENKEEL_TEST_INSTALLS=1 $(GO) test -count 1 -timeout 20m -v -run 'Installed' $(PACKAGES)

# ARGS="--keys 1000000 --time 1h" for more.
bench: ## layouts side by side, on Pebble and a Cassandra node, 13 minutes; writes docs/benchmarks.md, bench/results
	$(GO) build -o bin/ ./bench/layoutbench
	bin/layoutbench run --docs . --json bin/layouts.json $(ARGS)

bench-embedded: ## ratios within one run: listing and puts against bare Pebble, lookups against memory
	$(GO) test -run '^$$' -bench . -benchtime 2s ./listing ./store/pebblestore
	$(GO) test -run '^$$' -bench 'Find/|Memory|SortedSlice' -benchtime 10ms -count 20 ./internal/mapclient

bench-cassandra: ## the same for the store and the whole client over one real Cassandra node, against raw gocql
	$(WITH_CASSANDRA) -optimise $(GO) test -p 1 -run '^$$' -bench . -benchtime 3s ./store/cassandrastore \
		./internal/test/e2e/oncassandra

bench-s3: ## pages through HTTP against the library, on Pebble and a Cassandra node, and what inline bodies cost
	@uptime
	$(WITH_CASSANDRA) -optimise $(GO) test -run '^$$' -bench HTTPPage -benchtime 3s -count 3 \
		./internal/test/e2e/oncassandra
	@uptime

bench-moves: ## what a move costs on one real Cassandra node, and what it takes from the foreground
	$(WITH_CASSANDRA) -optimise $(GO) test -run '^$$' -bench . -benchtime 1x -timeout 20m ./internal/test/e2e/livemoves

bench-limits: ## puts and pages through HTTP, of the commit BEFORE and the present tree; writes bin/limits.json
	@mkdir -p bin
	@uptime
	$(GO) run ./internal/test/benchlimits -before $(or $(BEFORE),10155bd) -json bin/limits.json $(ARGS)
	@uptime

microbench: ## hot paths alone, COUNT times each (default 6), in the form that benchstat compares
	@$(GO) test -run '^$$' -bench '^BenchmarkMicro' -benchmem -benchtime $(or $(BENCHTIME),100ms) \
		-count $(or $(COUNT),6) ./partmap ./internal/mapclient ./listing ./counter ./internal/countbook \
		./rebalance/planner ./s3api

fuzz: ## fuzz every target for DURATION each (default 30s)
	@scripts/fuzz $(or $(DURATION),30s)

sim: ## simulate the protocol with thousands of seeds and each known mistake, and months of the balancer; or SEEDS=n of FORMS
ifdef SEEDS
	EVENKEEL_SIM_SEEDS=$(SEEDS) EVENKEEL_SIM_FORMS='$(FORMS)' $(GO) test -count 1 -v -timeout 0 -run ManySeeds ./internal/test/sim
else
	EVENKEEL_SIM_ALL=1 $(GO) test -v -timeout 1800s $(SIMULATIONS) ./internal/rebalance/policysim
	EVENKEEL_SCENARIOS='*:5' $(GO) test -v -timeout 1h -run 'RealParts|AsPrograms|Quiet' ./internal/rebalance/policysim
endif

model: ## the searches of docs/model that take up to ten minutes each (PART=quick, rest or huge)
	docs/model/run.sh $(or $(PART),rest)

soak: ## simulate moves with clients, faults and killed movers for DURATION (default 10m)
	EVENKEEL_SIM_TIME=$(or $(DURATION),10m) $(GO) test -timeout 0 -v \
		-run 'TestProtocolHolds$$|TestProtocolHoldsOverTheNetwork$$|TestProtocolHoldsInTwoDataCentres$$' ./internal/test/sim

scale: ## 25,000 buckets of which 1,000 are written to, in virtual time: sizes, looks, memory of a bucket; 2 minutes
	EVENKEEL_SCALE=1 $(GO) test -vet=off -count 1 -v -timeout 30m -run 'TestManyBusyBuckets' ./internal/rebalance/balancer

counters-large: tools ## a new leader's first question to a Redis with 1,500,000 active ranges
	EVENKEEL_REDIS_MANY=1 $(GO) test -timeout 10m -v -run WrittenOfVeryMany ./counter/rediscounter

objects-large: ## 200,000 operations on objects of up to 20 MB, then an audit: 10 minutes, 5 GB of the temporary folder
	EVENKEEL_OBJECTS_OPS=200000 $(GO) test -timeout 0 -v -run ManyOperations ./objects

attacks: programs ## each hostile client for DURATION (default 5s), one after the other, beside an honest one
	$(WITH_PROGRAMS) EVENKEEL_ATTACK=$(or $(DURATION),5s) $(GO) test -count 1 -timeout 0 -v $(ATTACKS)

soak-attacks: programs ## all hostile clients at once for DURATION (default 2m), beside an honest one that checks
	$(WITH_PROGRAMS) EVENKEEL_SOAK=$(or $(DURATION),2m) $(GO) test -count 1 -timeout 0 -v -run 'TestSoak$$' $(ATTACKS)

vulncheck: ## known vulnerabilities of what is used (govulncheck); without its database, outdated modules
	@scripts/vulncheck

# ARGS="-json" and others: go run ./internal/test/mutate -h
mutants: ## mutation test of PKG="./partmap ./internal/rebalance/leader", N=60 each, SEED= to repeat one
	@test -n "$(PKG)" || { echo 'name packages: make mutants PKG="./partmap ./internal/rebalance/leader"' >&2; exit 2; }
	@$(GO) build -o bin/mutate ./internal/test/mutate
	@bin/mutate $(if $(N),-n $(N)) $(if $(SEED),-seed $(SEED)) $(ARGS) $(PKG)

generate: ## rewrite the generated reference documents
	$(GO) test ./cmd/listd ./cmd/rebalancer -run Golden -update

clean: ## binaries; not the data
	rm -rf bin
