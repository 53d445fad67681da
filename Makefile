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
# For make test: the names of the only tests to run, with commas.
ONLY ?=
# For make test-full: which of the twelve parts.
SHARD ?=
# For make mutants: ids, all by default.
ID ?=
# For make fuzz: seconds for each target.
FUZZ_SECONDS ?= 120
# Where make install puts things; DESTDIR comes before it.
PREFIX ?= /usr/local
DESTDIR ?=
# For make packages: the key and certificate that sign the module, for Secure Boot.
SIGN_KEY ?=
SIGN_CERT ?=
export KVER CACHE MIRROR ACCEL PREFIX DESTDIR SIGN_KEY SIGN_CERT

RUN := build/cargo/x86_64-unknown-linux-gnu/debug/nsprobe-qemu-run

# Module, image and userland do not need each other: made side by side.
MAKEFLAGS += --jobs=4 --no-print-directory
.PHONY: help sdk image kmod trouble userland programs tracer payload measured check fuzz test test-full debug-kernel mutants demo bench bench-smoke bench-stacks bench-tasks bench-names shell packages packages-all install clean
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

userland: ## The program nsprobe, as make install takes it
	@scripts/cargo.sh build --release -p nsprobe

# All programs that tests run, on the host and in the guest.
programs:
	@scripts/cargo.sh build --workspace

# What the demo runs: neither the tests nor their victims.
tracer:
	@scripts/cargo.sh build -p nsprobe -p nsprobe-qemu-run

payload: kmod trouble programs
	@scripts/payload.sh >/dev/null

# What is measured is what users install.
measured: kmod image userland programs
	@PROFILE=release scripts/payload.sh >/dev/null

check: ## What one runs before a commit: formats, lints, host tests
	@scripts/check.sh

fuzz: ## Hostile bytes, guided by the code they reach (FUZZ_SECONDS=120 for each target)
	@scripts/fuzz.sh $(FUZZ_SECONDS)

test: payload image ## Before a merge: check, and the core of the guest's tests (ONLY=name,name)
	@$(RUN) test $(if $(ONLY),--only '$(ONLY)')

test-full: payload image ## For a release: part SHARD=k/12 of all tests, at most 15 minutes each
	@scripts/test-full.sh '$(SHARD)'

debug-kernel: ## The kernels that look for bugs, for parts 7 and 8 of test-full (once; long)
	@scripts/debug-kernel.sh lockdep >/dev/null
	@scripts/debug-kernel.sh kasan >/dev/null

mutants: payload image ## Whether the tests see a module that is broken in one place (ID=…)
	@scripts/mutants.sh $(ID)

demo: kmod image tracer ## Traces a real program in a real container, in the guest
	@$(RUN) demo

bench: measured ## What nsprobe and its peers cost (UPDATE=1 writes the tables in bench/)
	@bench/run.sh
	@bench/stacks.sh
	@bench/tasks.sh
	@bench/names.sh

bench-smoke: measured ## Whether all of bench still runs: few rounds, no figures
	@SMOKE=1 bench/run.sh
	@SMOKE=1 bench/stacks.sh
	@SMOKE=1 bench/tasks.sh
	@SMOKE=1 bench/names.sh

bench-stacks: measured ## The part of bench that is about stacks (about 8 minutes)
	@bench/stacks.sh

bench-tasks: measured ## The part of bench that is about events of tasks
	@bench/tasks.sh

bench-names: measured ## The part of bench that is about names
	@bench/names.sh

shell: payload image ## A shell in the guest
	@$(RUN) shell

packages: kmod userland ## Debian packages, in build/packages (SIGN_KEY=, SIGN_CERT=)
	@scripts/packages.sh

packages-all: userland ## The same for every kernel of the archive that has Rust (5 minutes each)
	@scripts/packages-all.sh

install: ## Installs what make kmod userland has built; the module if this host runs its kernel
	@scripts/install.sh

clean: ## Removes all that was built here (the cache stays)
	rm -rf build
