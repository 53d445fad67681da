#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds what is measured with: the program that is probed, the bare consumers,
# SystemTap's scripts (in the peers' root, so that the guest needs no compiler).
#
# Inputs:  PEERS TARGET: the folder of scripts/peers.sh; where the results go.
# Outputs: TARGET with under, bare.ko, bench_*.ko and the guest's scripts.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
peers=$1 target=$2
sdk=$(scripts/sdk.sh)
release=$(cat "$sdk/kver")
objects=$PROJECT/build/bench-$release
mkdir -p "$objects" "$target"
LOG=$PROJECT/build/bench-build.log
: >"$LOG"

logged scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" make -s -C /usr/src/nsprobe-kernel \
    M="$PROJECT/bench/bare" MO="$objects" CC=x86_64-linux-gnu-gcc-14 KERNELRELEASE="$release" modules
logged scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" gcc-14 -O2 -Wall -Wextra \
    -o "$target/under.new" bench/under.c bench/subject.c
logged scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" gcc-14 -O2 -Wall -Wextra \
    -o "$target/cost" bench/cost.c
cmp -s "$target/under.new" "$target/under" || cp "$target/under.new" "$target/under"
cp "$objects/bare.ko" bench/guest/*.sh "$target/"

# A script's module is of this program, this kernel and this text.
scripts/enter.sh "$peers/root" "$PROJECT" / cp "$target/under" /bench/under
for script in bench/stap/*.stp; do
    name=bench_$(basename "$script" .stp)
    key=$({ cat "$script" "$target/under" "$0"; echo "$peers"; } | digest)
    [ "$(cat "$objects/$name.key" 2>/dev/null)" != "$key" ] || [ ! -e "$objects/$name.ko" ] ||
        { cp "$objects/$name.ko" "$target/"; continue; }
    rm -f "$objects/$name.ko" "$target/$name.ko" "$target/$name.failed"
    # Left out when it does not build; the table says why.
    scripts/enter.sh "$peers/root" "$PROJECT" "$objects" env PATH="$PATH" HOME=/tmp \
        stap -p4 -g --suppress-time-limits -r "$release" -B CC=gcc-14 -m "$name" "$PROJECT/$script" >"$objects/$name.log" 2>&1 || {
        say "SystemTap does not build ${script##*/}: see $objects/$name.log"
        grep -h error "$objects/$name.log" | tr '\n' ' ' >"$target/$name.failed"
        continue
    }
    echo "$key" >"$objects/$name.key"
    cp "$objects/$name.ko" "$target/"
done
