#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What names cost: the same pseudo-random addresses of a file, named by nsprobe and by its
# peers, one after the other, some rounds, of which the best counts.
#
# Inputs:  FILE; ADDRESSES, ROUNDS (environment). Peers that are not there are left out:
#          addr2line, llvm-symbolizer, blazecli (cargo install blazecli).
# Outputs: lines "NAME SECONDS PROCESSOR_SECONDS ADDRESSES_A_SECOND PEAK_MB" for the file
#          with its debug information, then, without inlined functions, by its symbols
#          alone. Addresses a second are by the processor's time, which depends less on
#          what else the machine does.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
file=$1
count=${ADDRESSES:-100000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

scripts/cargo.sh build --quiet --release -p nsprobe-symbolize --example names
names=build/cargo/x86_64-unknown-linux-gnu/release/examples/names
"$names" addresses "$file" "$count" >"$work/addresses"
objcopy --strip-debug "$file" "$work/symbols"

best() { # name command...
    name=$1
    shift
    command -v "$1" >/dev/null || return 0
    for _ in $(seq "${ROUNDS:-5}"); do
        /usr/bin/time -a -o "$work/times" -f '%e %U %S %M' "$@" <"$work/addresses" \
            >"$work/out" 2>"$work/errors"
    done
    awk -v name="$name" -v count="$count" '
        { used = $2 + $3 }
        NR == 1 || $1 < wall { wall = $1 }
        NR == 1 || used < best { best = used }
        NR == 1 || $4 < peak { peak = $4 }
        END { printf "%-26s %6.2f s %6.2f s %9.0f/s %5.0f MB\n",
            name, wall, best, count / best, peak / 1024 }' "$work/times"
    rm "$work/times"
}

best "nsprobe" "$names" name "$file"
best "blazecli" xargs -s 2000000 -n "$count" blazecli symbolize elf -p "$file"
best "llvm-symbolizer" llvm-symbolizer -i -f -e "$file"
best "addr2line" addr2line -i -f -e "$file"
best "nsprobe, symbols" "$names" name "$work/symbols"
best "blazecli, symbols" xargs -s 2000000 -n "$count" blazecli symbolize elf \
    --no-debug-syms -p "$work/symbols"
best "llvm-symbolizer, symbols" llvm-symbolizer -f -e "$work/symbols"
