#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Shows that nothing that runs in a traced process can panic: a panic there is
# an oops that also blocks every later detach of uprobes on the machine.
#
# Inputs:  the module's Rust object file, main.o.
# Outputs: the functions that must not refer to core::panicking but do; exit 1.
#
# What may: requests, read() and fdinfo, which run in the tracer's own process;
# there it is only the kernel crate's vectors and format code that do. The
# handler's part (probe, filter, stack, object, ring, common, sys) is left.
set -eu
object=${1:?"usage: $0 main.o"}
tracer_only='6deviceNt|6device6filter|7requestN|6probes|5Batch.*(7prepare|register|9ask_again)|6PidSet3new|10tracepoint7look_at|8Counters3new|6Copies3new|4memo5steps|6readerNtB|7sessionN|4kvecI|drop_in_place'
bad=$(objdump -dr --no-show-raw-insn "$object" |
    awk '/^[0-9a-f]+ <.*>:$/ { name = $2 } /core9panicking/ { print name }' |
    sort -u | grep -Ev "$tracer_only" || true)
if [ -n "$bad" ]; then
    echo "panics: these run in traced processes and can panic:" >&2
    echo "$bad" >&2
    exit 1
fi
