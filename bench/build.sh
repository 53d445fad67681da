#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds what is measured with: the programs that are probed, the bare consumers.
#
# Inputs:  TARGET: where the results go.
# Outputs: TARGET with under, tasks, stacks, samples and cost (these three with frame pointers, -fp, and
#          without, -rows, beside which its unwind rows lie), bare.ko and the guest's scripts.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
target=$1
sdk=$(scripts/sdk.sh)
release=$(cat "$sdk/kver")
objects=$PROJECT/build/bench-$release
mkdir -p "$objects" "$target"
LOG=$PROJECT/build/bench-build.log
: >"$LOG"

logged scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" make -s -C /usr/src/nsprobe-kernel \
    M="$PROJECT/bench/bare" MO="$objects" CC=x86_64-linux-gnu-gcc-14 KERNELRELEASE="$release" modules
# The one with ten thousand functions takes as long as all others.
compile() { # program options and sources...
    program=$1
    shift
    if [ -e "$target/$program" ] &&
        [ -z "$(find bench/*.[ch] bench/bare include bench/build.sh -newer "$target/$program")" ]; then
        return
    fi
    logged scripts/enter.sh "$sdk/root" "$PROJECT" "$PROJECT" gcc-14 -O2 -Wall -Wextra -Werror \
        -pthread -o "$target/$program" "$@"
}
compile under.new bench/under.c bench/work.c bench/crowd.c bench/subject.c bench/tool.c
both() { # suffix options...
    suffix=$1
    shift
    compile "stacks-$suffix" "$@" bench/stacks.c bench/deep.c bench/libraries.c bench/tool.c bench/used.c
    compile "samples-$suffix" "$@" bench/samples.c
    compile "cost-$suffix" "$@" bench/cost.c bench/deep.c bench/tool.c bench/used.c
}
both fp -fno-omit-frame-pointer -DFRAME_POINTERS
both rows -fomit-frame-pointer
compile tasks bench/tasks.c
compile pairs bench/pairs.c bench/tool.c
logged scripts/cargo.sh build --quiet --release -p nsprobe-unwind --example table
build/cargo/x86_64-unknown-linux-gnu/release/examples/table "$target/cost-rows" "$target/cost-rows.table"
cmp -s "$target/under.new" "$target/under" || cp "$target/under.new" "$target/under"
# Scripts of earlier versions would be found, too.
rm -f "$target"/*.sh "$target"/*.py
cp "$objects/bare.ko" bench/guest/*.sh bench/guest/*.py "$target/"
