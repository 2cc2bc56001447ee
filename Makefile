# Headwater: `make help` lists what there is.
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 10000
WORKERS ?= 2
ARGS ?=
# What is installed into .venv: what serving needs, what `make test` needs, what everything else needs.
TEST := $(VENV)/.installed-test
FULL := $(VENV)/.installed-full
# Python files that are not as they are upstream, or as they were committed where there is no upstream.
CHANGED = $(shell git diff --name-only --diff-filter=d $$(git merge-base HEAD @{upstream} 2>/dev/null || echo HEAD) -- src harness benchmarks demo tests/simulation tests/soak | grep '\.py$$')
PYTEST := $(BIN)/pytest --max-worker-restart 0 --dist loadgroup --no-loadscope-reorder --durations 20 --show-capture stdout --seconds
# Tests start a thousand processes: compiled modules are kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install tools run cluster test test-full test-cluster lint types types-of-changes style house sim soak bench bench-paths bench-settle bench-catchup bench-ledgers bench-scale bench-cost bench-transactions bench-http bench-lookups bench-query bench-typed bench-link demo clean docs

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

$(VENV)/.installed-%: pyproject.toml requirements/%.txt requirements/java.txt scripts/install
	PYTHON='$(PYTHON)' scripts/install $*

install: $(VENV)/.installed-run ## what serving needs, into .venv

run: install ## install, then serve on 127.0.0.1:9092
	$(BIN)/headwater up $(ARGS)

cluster: $(FULL) ## three nodes of etcd, an S3 server, three brokers in two zones, a compactor, until Ctrl-C
	scripts/setup-tools etcd s3
	$(BIN)/python -m demo.cluster $(ARGS)

tools: $(FULL) ## Kafka, etcd, Oxia, stores' servers, Spark connectors, franz-go, kafkajs and kcat for tests, into .tools
	scripts/setup-tools

lint: $(FULL) ## style, types, import contracts, side by side
	$(MAKE) --no-print-directory --jobs 2 --output-sync types style

types: $(FULL) ## types alone
	$(BIN)/mypy

types-of-changes: $(TEST) ## types of the files that were changed
	$(if $(CHANGED),$(BIN)/mypy --ignore-missing-imports --no-warn-unused-ignores $(CHANGED),@echo "types: no file was changed")

style: $(TEST) ## style and import contracts alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

test: $(TEST) style types-of-changes ## ten minutes: lint, and the tests that need Python, git and make only
	$(BIN)/python -m headwater compile
	$(PYTEST) --tier test --numprocesses $(WORKERS) $(ARGS)

test-full: $(FULL) types tools ## the rest: all types, and the tests that need tools or take long
	$(BIN)/python -m headwater compile
	$(PYTEST) --tier full --numprocesses $(WORKERS) $(ARGS)

house: $(TEST) ## counts that say how far the code is from its planned layout
	$(BIN)/python scripts/house.py

test-cluster: tools ## tests of clients, groups, security, log and faults on etcd, Oxia and a bucket, with S3
	$(BIN)/python -m tests.clustered $(ARGS)

sim: $(FULL) ## the simulation; SEEDS=10000, ARGS="--scene moving" for shards of groups that move, "--scene transactions", "--scene units"
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

soak: $(FULL) ## runs that take three hours: 200 kills, backups, transactions, a death at every write, 1,000 topics, 500 settles, 50 groups, attacks, hostile neighbours, SQL, clusters
	$(BIN)/python -m tests.soak.settles
	$(BIN)/python -m tests.soak.topics
	$(BIN)/python -m tests.soak.kills
	$(BIN)/python -m tests.soak.kills --kills 40 --transactions
	$(BIN)/python -m tests.soak.backups
	$(BIN)/python -m tests.soak.groups
	$(BIN)/python -m tests.soak.moves
	scripts/setup-tools apache etcd kafka oxia s3
	HEADWATER_TEST_SOAK=1 $(BIN)/pytest tests/apache/test_apache.py tests/differential/test_stories.py tests/lake/test_spark_masters.py tests/faults/test_idempotency_keys.py tests/faults/test_backpressure.py tests/faults/test_cluster.py tests/faults/test_kill_all.py tests/faults/test_kill_broker.py tests/lake/test_crash_matrix.py tests/lake/test_transactions.py tests/simulation/test_simulation.py tests/simulation/test_clocks.py tests/simulation/test_moving.py tests/simulation/test_transactions.py tests/simulation/test_units.py tests/simulation/test_holds.py tests/fuzz/test_frames.py tests/fuzz/test_payloads.py tests/unit/lake/tables/delta/test_histories.py tests/unit/broker/handlers/data/test_produce_request.py tests/unit/broker/net/test_order.py tests/unit/lake/tables/iceberg/test_histories.py tests/unit/state/streams/test_transactions_histories.py tests/unit/coordination/consumer/test_machine.py tests/unit/coordination/classic/test_life.py tests/unit/log/segment/test_decode.py tests/unit/log/segment/test_fuzz.py tests/lake/test_transaction_histories.py tests/unit/query/lookups/test_lookups.py tests/lake/test_lookups.py tests/processes/test_state_memory.py tests/engines/test_spark_engine.py tests/gateway/test_query_histories.py tests/unit/query/gate/test_fidelity.py tests/simulation/test_links.py tests/simulation/test_typed.py tests/simulation/test_journal.py tests/unit/ledger/journal/test_damage.py tests/lake/test_letter_kills.py tests/unit/log/segment/test_write.py tests/unit/state/test_properties.py tests/unit/state/cluster/test_access.py tests/unit/log/kernels/test_records.py tests/unit/log/segment/test_digest.py tests/unit/state/streams/test_units.py
	$(BIN)/python -m tests.soak.attacks
	$(BIN)/python -m tests.soak.bombs
	$(BIN)/python -m tests.soak.neighbours
	$(BIN)/python -m tests.soak.crowd
	$(BIN)/python -m tests.soak.http
	$(BIN)/python -m tests.soak.sql
	$(BIN)/python -m tests.soak.links
	$(BIN)/python -m tests.soak.letters
	$(BIN)/python -m tests.soak.links --records 200000 --kills 4 --away 20 --ledger etcd
	$(BIN)/python -m tests.soak.links_compacted
	scripts/setup-tools mirror
	$(BIN)/python -m tests.soak.mirror_maker
	$(BIN)/python -m tests.soak.backfill
	$(BIN)/python -m tests.soak.description
	scripts/setup-tools registry
	$(BIN)/python -m tests.soak.registry
	scripts/setup-tools spark trino browser
	$(BIN)/python -m tests.soak.evolution
	$(BIN)/python -m tests.soak.trino
	$(BIN)/python -m tests.soak.browser
	for faults in brokers metadata objects compactor everything; do \
		$(BIN)/python -m tests.soak.cluster --ledger etcd --faults $$faults || exit 1; done
	$(BIN)/python -m tests.soak.kills --kills 40 --ledger etcd
	$(BIN)/python -m tests.soak.cluster --ledger oxia --faults everything
	$(BIN)/python -m tests.soak.cluster --ledger bucket --faults brokers
	$(BIN)/python -m tests.soak.cluster --ledger bucket --faults objects
	scripts/setup-tools streams faults franz-copier
	$(BIN)/python -m tests.soak.exactly_once
	$(BIN)/python -m tests.soak.streams
	$(BIN)/python -m tests.soak.connect

bench: tools ## Apache Kafka and Headwater side by side, an hour at most; ARGS=--quick, --resume, --publish
	$(BIN)/python -m benchmarks.peer $(ARGS)

bench-paths: $(FULL) ## the CPU cost of produce and apply, without disk or network
	$(BIN)/python -m benchmarks.paths

bench-settle: $(FULL) ## settling end to end, untyped and typed, beside a plain PySpark append and Iceberg's Kafka Connect sink
	scripts/setup-tools kafka spark connect
	$(BIN)/python -m benchmarks.settle $(ARGS)

bench-catchup: $(FULL) ## reading settled records beside reading those just written
	$(BIN)/python -m benchmarks.catchup $(ARGS)

bench-transactions: $(FULL) ## ledger records, bytes and index entries of ten transactions a second while they settle
	scripts/setup-tools spark
	$(BIN)/python -m benchmarks.transactions $(ARGS)

bench-http: $(FULL) ## appends and reads over HTTP per CPU second of the gateway, and a profile of it
	$(BIN)/python -m benchmarks.http $(ARGS)

bench-lookups: $(FULL) ## look-ups of records that are not settled, in milliseconds of the gateway
	$(BIN)/python -m benchmarks.lookups $(ARGS)

bench-query: $(FULL) ## SQL beside DuckDB and Spark on the plain files, rows that are not settled, producers beside queries
	scripts/setup-tools spark
	$(BIN)/python -m benchmarks.query $(ARGS)

bench-typed: $(FULL) ## two million JSON events by a typed column, beside the same out of their bytes; ARGS=--trino
	scripts/setup-tools spark $(if $(findstring --trino,$(ARGS)),trino)
	$(BIN)/python -m benchmarks.typed $(ARGS)

bench-link: $(FULL) ## a topic of Apache Kafka copied into a log and into tables, beside MirrorMaker 2 and Iceberg's Kafka Connect sink
	scripts/setup-tools kafka spark connect mirror
	$(BIN)/python -m benchmarks.link $(ARGS)

bench-ledgers: $(FULL) ## commits a second on every ledger backend whose server is built
	$(BIN)/python -m benchmarks.ledgers $(ARGS)

bench-scale: $(FULL) ## twelve brokers on a modelled S3, in virtual time
	$(BIN)/python -m benchmarks.scale $(ARGS)

bench-cost: $(FULL) ## requests to S3 and ledger per GB, and what they cost
	scripts/setup-tools s3
	$(BIN)/python -m benchmarks.cost $(ARGS)

demo: $(FULL) ## a million records in over Kafka, read out of the same files by everybody
	scripts/setup-tools spark
	$(BIN)/python -m demo $(ARGS)

docs: $(FULL) ## the derived parts of docs/ and GAPS.md
	$(BIN)/python scripts/docs.py

clean: ## remove what was built, but not data
	rm -rf $(VENV) .tools build .mypy_cache .ruff_cache .pytest_cache
