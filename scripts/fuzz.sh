#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fuzzes the seams at which nsprobe takes bytes that others have made: each target for some
# seconds, from its corpus, guided by the code that is reached.
#
# Inputs:  SECONDS for each target (120) and names of targets (all) as arguments;
#          fuzz/corpus; SANITIZER (none; or address).
# Outputs: build/fuzz/corpus/TARGET with what reaches new code; build/fuzz/artifacts with
#          what breaks a promise, then status 1. KEEP=1 adds to fuzz/corpus the smallest of
#          the inputs that together reach what all reach: some tens, of 2 KiB at most.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
VERSION=0.13.1 # of cargo-fuzz
BYTES_MAX=2048
KEPT_MAX=30

seconds=${1:-120}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || for file in fuzz/fuzz_targets/*.rs; do set -- "$@" "$(basename "$file" .rs)"; done
mkdir -p build/fuzz build/tools "$CACHE"
LOG=$PROJECT/build/fuzz/build.log
# libFuzzer is C++.
need_tools c++:g++
tools=$PROJECT/build/tools/bin
if [ "$("$tools/cargo-fuzz" --version 2>/dev/null)" != "cargo-fuzz $VERSION" ]; then
    say "cargo-fuzz $VERSION (about a minute)"
    logged cargo install cargo-fuzz --version "$VERSION" --locked --root build/tools
fi

# What instruments the code is stable but for the sanitizers.
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$PROJECT/build/fuzz/target"
host=$(rustc -vV | sed -n 's/^host: //p')
say "building the targets (the first time about two minutes)"
logged "$tools/cargo-fuzz" build --sanitizer "${SANITIZER:-none}" --target "$host"
programs=$CARGO_TARGET_DIR/$host/release

run() { # target
    found=build/fuzz/corpus/$1
    mkdir -p "$found" "build/fuzz/artifacts/$1"
    if ! "$programs/$1" "$found" "fuzz/corpus/$1" -max_total_time="$seconds" \
        -rss_limit_mb=2048 -malloc_limit_mb=1536 -timeout=10 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/artifacts/$1/" >"build/fuzz/$1.log" 2>&1; then
        tail -n 12 "build/fuzz/$1.log" >&2
        say "$1: a promise is broken: see build/fuzz/artifacts/$1"
        return 1
    fi
    say "$1: $(sed -n 's/^#\([0-9]*\).*INITED *\(cov: [0-9]*\).*/from \2/p' "build/fuzz/$1.log" |
        tail -n 1) to $(sed -n 's/^#.*\(cov: [0-9]* ft: [0-9]*\).*/\1/p' "build/fuzz/$1.log" |
        tail -n 1), $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$1.log") runs"
}

keep() { # target
    rm -rf "build/fuzz/merged/$1"
    mkdir -p "build/fuzz/merged/$1"
    "$programs/$1" -merge=1 -max_len=$BYTES_MAX "build/fuzz/merged/$1" "fuzz/corpus/$1" \
        "build/fuzz/corpus/$1" >"build/fuzz/$1.merge.log" 2>&1
    find "build/fuzz/merged/$1" -type f -printf '%s %p\n' | sort -n | head -n "$KEPT_MAX" |
        while read -r _ input; do cp "$input" "fuzz/corpus/$1/"; done
}

failed=0
for target in "$@"; do
    run "$target" || failed=1
    [ -z "${KEEP:-}" ] || keep "$target"
done
exit $failed
