# Seb's tasks: `make help` lists them. mise.toml and .ci/run call these same
# targets, so there is one definition of each.

.DEFAULT_GOAL := help

# The packages that test, race, vet, fuzz and bench work on: make race PKG=./objstore/...
PKG ?= ./...
# The command behind `make test`; .ci/run puts gotestsum here.
GOTEST ?= go test
# How long each fuzz target runs.
FUZZTIME ?= 5s
# How many states of each large bound are explored: 40 bytes each.
STATES ?= 4200000
# How many random expressions and histories of triggers are decided twice.
CASES ?= 1000000
# How many seeds are simulated, and how often a broker is killed on each of two stores.
SEEDS ?= 20000
KILLS ?= 150
# Which benchmarks run, and for how long each: make bench BENCH=Append BENCHTIME=5s
BENCH ?= .
BENCHTIME ?= 1s
# Flags and cases of the growth measurements; -list shows the cases.
GROWTH ?=
# Which loads of the year run, separated by commas.
YEAR ?= all
# Flags of the comparison of queues; -help lists them.
QUEUEBENCH ?=
# The platforms of a release; none means all six: make release PLATFORMS='linux/amd64 darwin/arm64'
PLATFORMS ?=
# A program with the race detector sleeps for a second before it ends, unless told not
# to. Tests run seb some hundred times.
export GORACE ?= atexit_sleep_ms=0

# Built tools live outside the tree, so that every clone on a machine shares
# them. The name holds what the binary depends on: the version that the tool's
# own module file pins, and the Go version, because a linter built with an older
# Go refuses newer code.
TOOLS := $(or $(SEB_CI_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/seb-tools)
GOVERSION := $(shell go env GOVERSION)
pinned = $(shell awk '$$1 == "$(2)" { print $$2 }' tools/$(1)/go.mod)
VERSITYGW := $(TOOLS)/versitygw-$(call pinned,versitygw,github.com/versity/versitygw)-$(GOVERSION)
LINTER := $(TOOLS)/golangci-lint-$(call pinned,lint,github.com/golangci/golangci-lint/v2)-$(GOVERSION)
SCHEMATHESIS := $(TOOLS)/schemathesis-$(shell awk -F '==' '$$1 == "schemathesis" { print $$2 }' tools/schemathesis/requirements.txt)
# Generators of clients, one for each language; those whose package manager is missing are left out.
GENERATORS := $(TOOLS)/generators-$(shell cat tools/generators/*/* | cksum | cut -d ' ' -f 1)-$(GOVERSION)
GENERATED := python go $(if $(shell command -v npm 2>/dev/null),typescript) $(if $(shell command -v mvn 2>/dev/null),java)
GOTESTSUM := $(TOOLS)/gotestsum-$(call pinned,gotestsum,gotest.tools/gotestsum)-$(GOVERSION)

# $(call install,DIR,PACKAGE) builds a tool of module tools/DIR as $@. The name
# appears only when the binary is whole.
define install
@mkdir -p $(TOOLS)
go build -C tools/$(1) -o $@.partial $(2)
@mv $@.partial $@
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## build bin/seb
	go build -trimpath -ldflags '-X main.gitVersion=$(shell git describe --tags --always --dirty 2>/dev/null)' -o bin/seb ./cmd/seb

.PHONY: release
release: ## build the binaries of a release twice, compare, and write checksums to bin/release/VERSION
	scripts/release $(PLATFORMS)

.PHONY: platforms
platforms: ## vet the code for macOS and Windows too
	GOOS=darwin go vet $(PKG)
	GOOS=windows go vet $(PKG)

.PHONY: test
test: ## run all tests, except those of examples/ (make examples)
	$(GOTEST) $(PKG)

.PHONY: race
race: ## run the tests with the race detector, without the long ones
	.ci/race $(PKG)

.PHONY: vet
vet: ## run go vet
	go vet $(PKG)

.PHONY: lint
lint: $(LINTER) ## run the linters of .golangci.yml
	$(LINTER) run $(PKG)

.PHONY: fmt
fmt: ## format every Go file
	gofmt -s -w .

.PHONY: fmt-check
fmt-check: ## fail if a Go file is not formatted
	@out=$$(gofmt -s -l .) || exit 1; \
	test -z "$$out" || { echo "not formatted, run make fmt:"; echo "$$out"; exit 1; }

.PHONY: tidy-check
tidy-check: ## fail if go.mod or go.sum is not tidy
	go mod tidy -diff

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (5s)
	.ci/fuzz $(FUZZTIME) $(PKG)

.PHONY: prove
prove: race explore simulate crash long life language ## show at large bounds that nothing acknowledged is lost: an hour on 2 cores

.PHONY: life
life: $(VERSITYGW) ## let a log be merged, expire, be deleted from the bucket, and be restored, in a directory and on versitygw: 5 minutes
	SEB_TEST_REQUIRE=1 SEB_TEST_VERSITYGW=$(VERSITYGW) go test ./cmd/seb -count=1 -run TestLifeOfALog -life -v

.PHONY: language
language: ## compare driplang with a reference evaluator, on CASES random expressions and histories, and triggers, in SEEDS runs of brokers
	go test ./driplang -count=1 -run AgreesWithModel -timeout 5h -model.cases=$(CASES) -v
	go test ./trigger -count=1 -run 'AgreesWithModel|FaultyStore' -timeout 5h -trigger.seeds=$(SEEDS) -v

.PHONY: explore
explore: ## explore the log's decisions, queues and bundles, up to STATES states of each large bound
	go test ./internal/test/explore -count=1 -run 'TestSmall|RuleIsNeeded' -v
	go test ./internal/test/explore -count=1 -run TestLarge -explore.states=$(STATES) -timeout 5h -v
	go test ./internal/test/explore -count=1 -run Walks -explore.walks=20000 -timeout 5h -v

.PHONY: simulate
simulate: ## simulate SEEDS runs of whole brokers, and stores that break their word
	GOGC=400 go test ./internal/test/fault -count=1 -run TestSimulatedSeeds -sim.seeds=$(SEEDS) -timeout 5h -v
	go test ./internal/test/fault -count=1 -run 'TestLyingStore|TestHands|TestRestoredCopy' -broken.seeds=8 -timeout 5h

.PHONY: crash
crash: $(VERSITYGW) ## kill seb serve KILLS times on each of two stores; stop it, fill its disk, cut its connections
	SEB_TEST_REQUIRE=1 SEB_TEST_VERSITYGW=$(VERSITYGW) SEB_KILL_CYCLES=$(KILLS) \
		go test ./cmd/seb -count=1 -run 'TestKillNine|TestTriggersOfKilled' -timeout 5h -v
	SEB_TEST_REQUIRE=1 SEB_TEST_VERSITYGW=$(VERSITYGW) SEB_KILL_CYCLES=30 \
		go test ./cmd/seb -count=1 -run 'TestStoppedAndContinued|TestS3ServerStopped|TestConnectionsCut|DiskFull' -timeout 5h -v

.PHONY: long
long: $(GENERATED:%=$(GENERATORS)/%/whole) ## run the other tests that .ci/run leaves out because they take long
	SEB_TEST_REQUIRE=1 SEB_TEST_GENERATORS=$(GENERATORS) go test ./cmd/seb -count=1 -parallel 1 -run 'TestGeneratedClients|TestTenThousand' -v

.PHONY: roundtrip
roundtrip: ## a million real lines through a broker that is killed, on a directory and on S3
	scripts/roundtrip all

.PHONY: bench
bench: ## run the benchmarks that match BENCH (.)
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(PKG)

.PHONY: growth
growth: ## measure how a broker behaves as what it holds grows: make growth GROWTH='-full topics'
	go run ./internal/growth $(GROWTH)

.PHONY: year
year: ## run a broker for a year of virtual time, and write docs/costs.md: hours on one core; make year YEAR=topics-100
	go test ./internal/test/year -count=1 -v -timeout 24h -run 'TestYear$$' -year.shapes=$(YEAR) -year.version=$(shell git describe --tags --always --dirty 2>/dev/null)
	go test ./internal/test/year -count=1 -run TestPage -year.write

.PHONY: bench-queues
bench-queues: ## compare queues with a table in PostgreSQL: make bench-queues QUEUEBENCH='-workers 16'
	cd examples && go run ./queuebench $(QUEUEBENCH)

.PHONY: examples
examples: $(LINTER) ## check and test examples/, a module of its own, against a PostgreSQL
	cd examples && go mod tidy -diff
	cd examples && go vet ./...
	cd examples && $(LINTER) run ./...
	cd examples && go test -race -count=1 ./... # the cache of results does not see docs/, outside of this module

.PHONY: tools
tools: $(VERSITYGW) $(SCHEMATHESIS)/whole $(GENERATED:%=$(GENERATORS)/%/whole) $(LINTER) $(GOTESTSUM) ## build the pinned tools into the cache

.PHONY: versitygw
versitygw: $(VERSITYGW) ## build the S3 server that store tests run against, print its path
	@echo $(VERSITYGW)

.PHONY: schemathesis
schemathesis: $(SCHEMATHESIS)/whole ## install what asks the API as its document says, print its path
	@echo $(SCHEMATHESIS)/bin/schemathesis

.PHONY: generators
generators: $(GENERATED:%=$(GENERATORS)/%/whole) ## install what generates clients from openapi.yaml, print the directory
	@echo $(GENERATORS)

.PHONY: gotestsum
gotestsum: $(GOTESTSUM) ## build the test runner that .ci/run uses, print its path
	@echo $(GOTESTSUM)

.PHONY: ci
ci: ## run everything that a change must pass
	.ci/run

.PHONY: clean
clean: ## remove what the other targets left in the tree
	rm -rf bin

$(VERSITYGW):
	$(call install,versitygw,github.com/versity/versitygw/cmd/versitygw)

# Programs in a Python environment know its path, so it is made where it stays;
# the empty file says that it is whole.
$(SCHEMATHESIS)/whole:
	@mkdir -p $(TOOLS)
	python3 -m venv --clear $(SCHEMATHESIS)
	$(SCHEMATHESIS)/bin/pip install --quiet --disable-pip-version-check --requirement tools/schemathesis/requirements.txt
	@touch $@

# The other directories below $(GENERATORS) are like that of schemathesis.
$(GENERATORS)/python/whole:
	@mkdir -p $(GENERATORS)
	python3 -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --requirement tools/generators/python/requirements.txt
	@touch $@

$(GENERATORS)/go/whole:
	@mkdir -p $(@D)
	go build -C tools/generators/go -o $(@D)/oapi-codegen github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen
	@touch $@

$(GENERATORS)/typescript/whole:
	@mkdir -p $(@D)
	cp tools/generators/typescript/package.json tools/generators/typescript/package-lock.json $(@D)
	npm ci --prefix $(@D) --silent --no-audit --no-fund >&2
	@touch $@

$(GENERATORS)/java/whole:
	@mkdir -p $(@D)
	mvn --quiet --batch-mode -Dstyle.color=never --file tools/generators/java/pom.xml \
		org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=$(@D) >&2
	@touch $@

$(LINTER):
	$(call install,lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint)

$(GOTESTSUM):
	$(call install,gotestsum,gotest.tools/gotestsum)
