# SPDX-License-Identifier: MIT OR Apache-2.0
# The project's verbs. Longer than five lines lies in scripts/.

# The stock Debian kernel to build for.
KVER ?= 7.2.12+deb13-amd64
# Where the big things lie that all clones share: SDK, guest image.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nsprobe
# A Debian mirror; empty: the one of this host's apt.
MIRROR ?=
# How the guest runs: kvm, tcg, or auto.
ACCEL ?= auto
# For make test: the name of the one test to run.
ONLY ?=
# For make test: the stage to run, without all others: races, sanitized, lockdep.
STAGE ?=
# For make test and quick: the order of the tests; empty: one of the commit.
SEED ?=
# For make soak: what its figures are multiplied by; 0.01 takes minutes.
SCALE ?= 1
# For make mutants: ids, all by default; guests side by side.
ID ?=
JOBS ?= 1
# For make fuzz: seconds for each target.
FUZZ_SECONDS ?= 120
# Where make install puts things; DESTDIR comes before it.
PREFIX ?= /usr/local
DESTDIR ?=
export KVER CACHE MIRROR ACCEL PREFIX DESTDIR

BIN := build/cargo/x86_64-unknown-linux-gnu/release
RUN := $(BIN)/nsprobe-qemu-run

# SDK, image and userland do not need each other: made side by side.
MAKEFLAGS += --jobs=3 --no-print-directory
.PHONY: help sdk image kmod trouble userland payload check fuzz quick test soak debug-kernel mutants neighbours demo bench bench-smoke bench-stacks bench-tasks bench-names shell install clean
.DEFAULT_GOAL := help

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "Variables, with their comments, stand at the top of the Makefile."

sdk: ## The stock kernel's toolchain and prepared source (once, about 3 minutes)
	@scripts/sdk.sh

image: ## The guest: stock kernel and a root with podman (once, about 2 minutes)
	@scripts/image.sh

kmod: ## The module: build/kmod/nsprobe.ko
	@scripts/kmod.sh

# A module that harms the kernel on purpose, for the tests of the runner.
trouble:
	@scripts/trouble.sh

userland: ## The program nsprobe and the tests' programs
	@scripts/cargo.sh build --release --workspace

payload: kmod trouble userland
	@scripts/payload.sh >/dev/null

check: ## What one runs before a commit: formats, lints, host tests
	@scripts/check.sh

fuzz: ## Hostile bytes, guided by the code they reach (FUZZ_SECONDS=120 for each target)
	@scripts/fuzz.sh $(FUZZ_SECONDS)

quick: payload image ## For a commit: check, and beside it the module's quick tests in the guest
	@$(RUN) test --quick $(if $(SEED),--seed $(SEED))

test: payload image ## For a merge: all tests of host and guests (ONLY=name for one of them)
	@$(RUN) test $(if $(ONLY),--only '$(ONLY)') $(if $(STAGE),--stage '$(STAGE)') $(if $(SEED),--seed $(SEED))

soak: payload image ## For a release: the long run (hours; goes on where it was interrupted)
	@SCALE=$(SCALE) scripts/soak.sh

debug-kernel: ## The kernels that look for bugs, for parts of soak (once; long)
	@scripts/debug-kernel.sh lockdep >/dev/null
	@scripts/debug-kernel.sh kasan >/dev/null

mutants: payload image ## Which broken modules the tests catch (ID=…, JOBS=2)
	@scripts/mutants.sh --jobs $(JOBS) $(ID)

neighbours: payload ## Ordinary programs of Debian's, alone and traced (long; goes on where it stopped)
	@scripts/neighbours.sh

demo: payload image ## Traces a real program in a real container, in the guest
	@$(RUN) demo

bench: payload image ## What nsprobe and its peers cost (UPDATE=1 writes the tables in bench/)
	@bench/run.sh
	@bench/stacks.sh
	@bench/tasks.sh
	@bench/names.sh

bench-smoke: payload image ## Whether all of bench still runs: few rounds, no figures
	@SMOKE=1 bench/run.sh
	@SMOKE=1 bench/stacks.sh
	@SMOKE=1 bench/tasks.sh
	@SMOKE=1 bench/names.sh

bench-stacks: payload image ## The part of bench that is about stacks (about 8 minutes)
	@bench/stacks.sh

bench-tasks: payload image ## The part of bench that is about events of tasks
	@bench/tasks.sh

bench-names: payload image ## The part of bench that is about names
	@bench/names.sh

shell: payload image ## A shell in the guest
	@$(RUN) shell

install: kmod userland ## Installs nsprobe, and the module when this host runs its kernel
	@scripts/install.sh

clean: ## Removes all that was built here (the cache stays)
	rm -rf build
