#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds SystemTap's scripts in the peers' root, so that the guest needs no compiler.
#
# Inputs:  PEERS TARGET NAME...: the folder of scripts/peers.sh; where the results go, and where
#          build.sh has put what they probe; which of bench/stap.
# Outputs: TARGET with bench_*.ko, or bench_*.failed with the reason.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
peers=$1 target=$2
shift 2
release=$(cat "$(scripts/sdk.sh)/kver")
objects=$PROJECT/build/bench-$release

# A script's module is of this program, this kernel and this text.
scripts/enter.sh "$peers/root" "$PROJECT" / cp "$target/under" "$target/stacks-rows" /bench/
for name in "$@"; do
    script=bench/stap/$name.stp name=bench_$name
    key=$({ cat "$script" "$target/under" "$target/stacks-rows" "$0"; echo "$peers"; } | digest)
    [ "$(cat "$objects/$name.key" 2>/dev/null)" != "$key" ] || [ ! -e "$objects/$name.ko" ] ||
        { cp "$objects/$name.ko" "$target/"; continue; }
    rm -f "$objects/$name.ko" "$target/$name.ko" "$target/$name.failed"
    # Left out when it does not build; the table says why.
    scripts/enter.sh "$peers/root" "$PROJECT" "$objects" env PATH="$PATH" HOME=/tmp \
        stap -p4 -g --suppress-time-limits -DMAXBACKTRACE=80 -d /bench/stacks-rows -r "$release" -B CC=gcc-14 -m "$name" "$PROJECT/$script" >"$objects/$name.log" 2>&1 || {
        say "SystemTap does not build ${script##*/}: see $objects/$name.log"
        grep -h error "$objects/$name.log" | tr '\n' ' ' >"$target/$name.failed"
        continue
    }
    echo "$key" >"$objects/$name.key"
    cp "$objects/$name.ko" "$target/"
done
