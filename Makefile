# One command each, on a bare Debian 12 with a Rust toolchain:
#
#   make compare   install what is missing, build, compare the allocators, say where the report is
#   make test      the fast tier of tests, for every change: ten minutes on two CPUs, twenty from an empty
#                  target directory
#   make verify    the slow tier, before a release: an hour; names its parts and prints one line for each
#   make build     the release binary
#   make bench     the figures of benches/, measured on this machine
#   make allocators  builds those that Debian lacks (jemalloc 5.3.1, mimalloc 2 and 3, snmalloc, rpmalloc,
#                  hardened), for make compare to find
#   make help      this text
#
# ARGS=...         flags for millpond compare, parts for verify, a group for bench:
#                  make compare ARGS='--rounds 8', make verify ARGS='crash loom'
# ENGINE=bundled   compiles the RocksDB inside the rocksdb crate (about 11.5 minutes of C++ on two
#                  cores) instead of linking Debian's, and keeps it in a target directory of its own
# CARGO_TARGET_DIR where the build goes, by default `target` in this clone. Do not let two clones share one: cargo
#                  tells crates of a workspace by their times, and would run what the other one built

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

ENGINE ?= system
ifeq ($(filter system bundled,$(ENGINE)),)
$(error ENGINE is `system` (Debian's librocksdb) or `bundled` (the one in the rocksdb crate), not `$(ENGINE)`)
endif
export ENGINE

CARGO_TARGET_DIR ?= $(CURDIR)/target$(if $(filter bundled,$(ENGINE)),/bundled)
export CARGO_TARGET_DIR

# Looked up in the recipe, after setup: before it, the library may not be there yet.
rocksdb_directory = $${ROCKSDB_LIB_DIR:-$$(dirname "$$(ls /usr/lib/*/librocksdb.so /usr/lib*/librocksdb.so 2>/dev/null | head -n1)")}
ifeq ($(ENGINE),bundled)
# Without RocksDB's counters per thread, which nothing here reads: each comparison of two keys looks them up, and a small
# PUT took twice the instructions with them.
engine := unset ROCKSDB_LIB_DIR; export CXXFLAGS="$${CXXFLAGS:+$$CXXFLAGS }-DNPERF_CONTEXT";
else
engine = export ROCKSDB_LIB_DIR="$(rocksdb_directory)";
endif

cargo_build := cargo build --release --locked --package millpond

.PHONY: help build compare test verify bench allocators
.DEFAULT_GOAL := help

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

build:
	@scripts/setup build
	@$(engine) $(cargo_build)
	@echo "make: built $(CARGO_TARGET_DIR)/release/millpond"

# millpond itself says at the end where the report is.
compare:
	@scripts/setup compare
	@$(engine) $(cargo_build)
	@"$(CARGO_TARGET_DIR)/release/millpond" compare $(ARGS)

test:
	@scripts/setup test
	@$(engine) cargo xtask check

verify:
	@scripts/setup verify
	@$(engine) cargo xtask verify $(ARGS)

# cargo and a compiler are all it takes, and what is missing it says itself.
allocators:
	@cargo xtask allocators $(if $(ARGS),--only $(ARGS))

bench:
	@scripts/setup bench
	@$(engine) cargo bench-suite bench $(or $(ARGS),all)
