#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fuzzes the seams at which nsprobe takes bytes that others have made: each target for some
# seconds, from its corpus, guided by the code that is reached.
#
# Inputs:  SECONDS for each target (120) and names of targets (all) as arguments;
#          fuzz/corpus; JOBS, targets at a time (as many as CPUs); SANITIZER (none; or
#          address); CACHE, where libFuzzer and other people's crates are built.
# Outputs: build/fuzz/corpus/TARGET with what reaches new code; build/fuzz/artifacts with
#          what breaks a promise, then status 1. KEEP=1 adds to fuzz/corpus the smallest of
#          the inputs that together reach what all reach: some tens, of 2 KiB at most.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
BYTES_MAX=2048
KEPT_MAX=30
export SANITIZER="${SANITIZER:-none}"
JOBS=${JOBS:-$(nproc)}

programs=$PROJECT/build/fuzz/bin-$SANITIZER

run() { # target
    found=build/fuzz/corpus/$1
    mkdir -p "$found" "build/fuzz/artifacts/$1"
    if ! "$programs/$1" "$found" "fuzz/corpus/$1" -max_total_time="$seconds" \
        -rss_limit_mb=2048 -malloc_limit_mb=1536 -timeout=60 -print_final_stats=1 \
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

# One of those that the last line starts.
if [ "${1:-}" = --built ]; then
    seconds=$2
    run "$3"
    [ -z "${KEEP:-}" ] || keep "$3"
    exit
fi

seconds=${1:-120}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || for file in fuzz/fuzz_targets/*.rs; do set -- "$@" "$(basename "$file" .rs)"; done
for target in "$@"; do
    [ -e "fuzz/fuzz_targets/$target.rs" ] || die "there is no target $target in fuzz/fuzz_targets"
done
mkdir -p "$programs" "$CACHE"
LOG=$PROJECT/build/fuzz/build.log
: >"$LOG"
# libFuzzer is C++.
need_tools c++:g++
export NSPROBE_CARGO_PACKAGES=g++

# As cargo-fuzz has targets compiled: LLVM counts edges and tells what is compared. That is
# stable but for the sanitizers.
flags='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags="$flags -Cllvm-args=-sanitizer-coverage-pc-table"
flags="$flags -Cllvm-args=-sanitizer-coverage-trace-compares"
flags="$flags -Cllvm-args=-sanitizer-coverage-stack-depth --cfg fuzzing -Ccodegen-units=1"
if [ "$SANITIZER" != none ]; then
    export RUSTC_BOOTSTRAP=1
    flags="$flags -Zsanitizer=$SANITIZER"
fi
host=$(sed -n 's/^target *= *"\(.*\)"/\1/p' .cargo/config.toml)

# Other people's crates are built once for all clones; what is ours goes by its path there,
# and one clone at a time builds, as programs of all have the same names.
build() {
    folder=$CACHE/fuzz/$SANITIZER
    lock "$folder.lock"
    say "building the targets (the first time about two minutes)"
    RUSTFLAGS=$flags CARGO_TARGET_DIR=$folder NSPROBE_CARGO_BINDS=$folder \
        logged scripts/cargo.sh build --manifest-path fuzz/Cargo.toml --bins --release \
        --target "$host"
    for target in fuzz/fuzz_targets/*.rs; do
        name=$(basename "$target" .rs)
        cmp -s "$folder/$host/release/$name" "$programs/$name" ||
            cp "$folder/$host/release/$name" "$programs/"
    done
    flock -u 9
}
build

printf '%s\n' "$@" | xargs -P "$JOBS" -n 1 "$PROJECT/scripts/fuzz.sh" --built "$seconds" || failed=1
say "$# targets, $seconds s each, $JOBS at a time"
exit "${failed:-0}"
