# The two commands that matter: `make run` serves, `make test` proves.
GO ?= go

.PHONY: all build run test lint unit e2e tour tools bench microbench fuzz generate clean help

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

all: build

build: ## bin/listd and bin/rebalancer
	@$(GO) build -trimpath -o bin/ ./cmd/...

run: build ## serve the S3 dialect on http://127.0.0.1:9000, embedded, data in ./evenkeel-data
	@exec bin/listd serve

test: tools ## everything that must hold, on a fresh machine; each part has a time budget
	@scripts/within 300 lint scripts/lint
	@scripts/within 500 unit $(GO) test -race -timeout 480s ./...
	@scripts/within 300 tour $(GO) run ./internal/tour README.md

lint: ## gofmt, vet, staticcheck, go.mod
	@scripts/lint

unit: ## the Go tests with the race detector
	$(GO) test -race -timeout 480s ./...

tour: ## the README's tour, word for word (needs ports 9000 and 9001)
	$(GO) run ./internal/tour README.md

tools: ## what the tests need besides Go (Debian packages; says what it installs)
	@scripts/install-test-clients.sh

bench: ## benchmarks against bare Pebble, as ratios within one run
	$(GO) test -run '^$$' -bench 'Page|Put|Lookup' -benchtime 2s ./listing/... ./store/pebblestore ./partmap/...

fuzz: ## fuzz every target for DURATION each (default 30s)
	@scripts/fuzz $(or $(DURATION),30s)

generate: ## rewrite the generated reference documents
	$(GO) test ./cmd/... -run Golden -update

clean: ## binaries; not the data
	rm -rf bin
