#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Shows that nothing that runs in a traced process can panic: a panic there is
# an oops that also blocks every later detach of uprobes on the machine.
#
# Inputs:  the module's Rust object file, main.o.
# Outputs: the functions that must not be able to panic but are, each with what
#          it calls on the way; exit 1.
#
# Whatever panics ends in a function of core, of which there are many: for
# indices, slices, unwrap, expect, arithmetic, borrows. So the functions of other
# crates that cannot panic are listed, and all others count as those that can. A
# caller of what can panic can, too, be its name what it may.
#
# What may panic: requests, read() and fdinfo, which run in the tracer's own
# process. The handler's part (probe, filter, stack, object, ring, common, sys)
# may not.
set -eu

# The crates' hashes and the lengths of names are part of symbols: each pattern ends in the
# function's own name.
tracer_only='6deviceNt|6device6filter|7requestN|6probes|5Batch.*(7prepare|register|9ask_again)|6PidSet3new|10tracepoint7look_at|8Counters3new|9RawStacks3new|6readerNtB|7sessionN'
tracer_only=$tracer_only'|4fops(4open|4poll|4read|5ioctl|7release)Nt|13drop_in_placeNtNtCs[0-9A-Za-z]*_4main6device6DeviceE|10start_gate8OpenGateE'
# Points of tasks are registered under a mutex; the module is set up by insmod.
tracer_only=$tracer_only'|11task_pointsNtB[0-9a-z]*_(5Point(8register|10unregister)|9Listening)|_4mainNtB[0-9a-z]*_7Nsprobe(Nt)+Cs[0-9A-Za-z]*_6kernel(6module)?6Module4init|init_module'
# Code of the kernel's vectors for a type of ours: it counts as its callers do.
callers_count='^_RNvM[s0-9a-zA-Z_]*NtNtCs[0-9A-Za-z]*_6kernel5alloc4kvecI'
# Cannot panic; the last ones are formats of numbers and texts, and data.
harmless='_6kernel5errorNtB[0-9a-z]*_5Error10from_errno$
_6kernel5error9to_result$
_6kernel4sync4pollNtB[0-9a-z]*_9PollTable13register_wait$
_6kernel4sync4poll1__NtB[0-9a-z]*_11PollCondVar.*4Drop4drop$
_6kernel4sync7condvarNtB[0-9a-z]*_7CondVar6notify$
_6kernel7uaccessNtB[0-9a-z]*_15UserSliceReader10read_slice$
_6kernel7uaccessNtB[0-9a-z]*_15UserSliceWriter11write_slice$
_6kernel5print11call_printk$
_6kernel5print14format_strings[0-9]*[A-Z]*$
_8bindings12bindings_rawNtB[0-9a-z]*_8irq_work.*7Default7default$
_4core3fmt5write$
_4core3fmt3num3imp[a-z]NtB[0-9a-z]*_7Display3fmt$
_4core3fmt3num[a-z]NtB[0-9a-z]*_8LowerHex3fmt$
_4core3fmt[a-z]NtB[0-9a-z]*_7Display3fmt$
_6kernel3fmt[a-z]NtB[0-9a-z]*_7Display3fmt$'

# Each function with what it refers to, once: "caller callee". A function whose address is
# taken may be told by its section and offset; one that is relative to the instruction is
# four bytes less.
references() { # object
    objdump -dr --no-show-raw-insn "$1" | awk '
        function plain(hex) { sub(/^0*/, "", hex); return hex }
        function number(hex, at, value) {
            for (at = 1; at <= length(hex); at++)
                value = value * 16 + index("0123456789abcdef", substr(hex, at, 1)) - 1
            return value + 0
        }
        function add(to) {
            if (!((name, to) in seen)) { from[++count] = name; refers[count] = to }
            seen[name, to] = 1
        }
        /^Disassembly of section/ { section = $4; sub(/:$/, "", section); next }
        /^[0-9a-f]+ <.*>:$/ {
            name = $2
            gsub(/[<>:]/, "", name)
            start[section, number(plain($1))] = name
            next
        }
        /: R_X86_64_/ { add($NF); next }
        /<.*>$/ { to = $NF; gsub(/[<>]/, "", to); add(to) }
        END {
            for (at = 1; at <= count; at++) {
                to = refers[at]
                if (to ~ /^\.[^+]*\+0x[0-9a-f]+$/) {
                    split(to, part, /\+0x/)
                    offset = number(part[2])
                    if ((part[1], offset) in start) print from[at], start[part[1], offset]
                    if ((part[1], offset + 4) in start) print from[at], start[part[1], offset + 4]
                    continue
                }
                sub(/[-+]0x[0-9a-f]+$/, "", to)
                if (to != from[at]) print from[at], to
            }
        }'
}

# The functions that can panic, each with the next on its way.
panicking() { # object
    harmless=$(echo "$harmless" | paste -sd'|')
    {
        nm -u "$1" | sed -n 's/^ *U \(_[RZ].*\|rust_begin_unwind\)/\1/p' | grep -Ev "$harmless" | sed 's/^/! /' || true
        references "$1"
    } | awk '
        $1 == "!" { can[$2] = 1; next }
        { from[NR] = $1; to[NR] = $2 }
        END {
            do {
                more = 0
                for (at in from)
                    if (!(from[at] in next_is) && (to[at] in can)) {
                        can[from[at]] = more = 1
                        next_is[from[at]] = to[at]
                    }
            } while (more)
            for (name in next_is) print name, next_is[name]
        }' | sort
}

object=${1:?"usage: $0 main.o"}
found=$(panicking "$object")
# Much of what requests do can panic: if nothing of it is found, nothing else would be.
[ "$(echo "$found" | grep -cE "^[^ ]*($tracer_only)")" -ge 10 ] || {
    echo "panics: too little is found that may panic: does it read $object well?" >&2
    exit 1
}
bad=$(echo "$found" | grep -Ev "^[^ ]*($tracer_only)|$callers_count" || true)
if [ -n "$bad" ]; then
    echo "panics: these run in traced processes and can panic, by way of:" >&2
    echo "$bad" >&2
    exit 1
fi
