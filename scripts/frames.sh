#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Bounds what the module takes of a kernel stack, which has 16 KB: the deepest chain of calls
# within the module, from each place where the kernel calls it.
#
# Inputs:  the module's objects.
# Outputs: the chains that are over their bounds, or under a half of them, which would be frames
#          that are not seen; exit 1. The bounds are a fourth over what there is, as compilers
#          differ. A chain that reaches its bound needs a smaller frame.
#
# Calls through tables are not seen; what the kernel's own functions take is not, either. A
# reference to a function counts as a call of it.
set -eu

# Bytes, and from where: requests, right above the system call; hits, right above the trap;
# samples and stacks that are taken before a task goes on; samples in interrupts; tracepoints of
# tasks, with much of the kernel below them; those of the scheduler, in any task.
bounds='7680 3sys4fops
5632 3sys6uprobe(7|11ret_)handler
5632 3sys9task_work10run_queued
5632 3sys(7sampler11interrupted|12by_interrupt9take_left)
2560 8TaskHook
512 8TaskHook(8switched|5woken)'

# Each function with its frame, and each that it refers to: "F function bytes", "C caller
# callee".
frames() { # objects
    objdump -dr --no-show-raw-insn "$@" | awk '
        function number(hex, at, value) {
            for (at = 1; at <= length(hex); at++)
                value = value * 16 + index("0123456789abcdef", substr(hex, at, 1)) - 1
            return value + 0
        }
        /^[0-9a-f]+ <.*>:$/ {
            if (name != "") print "F", name, bytes
            name = $2
            gsub(/[<>:]/, "", name)
            # The return address.
            bytes = 8
            next
        }
        /[ \t]push / { bytes += 8; next }
        /[ \t]sub +\$0x[0-9a-f]+,%rsp/ {
            match($0, /\$0x[0-9a-f]+/)
            bytes += number(substr($0, RSTART + 3, RLENGTH - 3))
            next
        }
        /: R_X86_64_(PLT32|PC32)/ { to = $NF; sub(/[-+]0x[0-9a-f]+$/, "", to); print "C", name, to; next }
        /[ \t](call|jmp) .*<.*>$/ {
            to = $NF
            gsub(/[<>]/, "", to)
            if (to !~ /\+0x/) print "C", name, to
        }
        END { if (name != "") print "F", name, bytes }'
}

# What is over its bound, and bounds of nothing.
judged() { # objects
    frames "$@" | awk -v bounds="$bounds" '
        $1 == "F" { frame[$2] = $3; next }
        !(($2, $3) in seen) { seen[$2, $3] = 1; callees[$2] = callees[$2] " " $3 }
        # The bytes of a function and the deepest of its callees; below[] has that one.
        function depth(name, list, count, at, bytes, most) {
            if (name in known) return known[name]
            # A function that comes to itself again is counted once.
            known[name] = frame[name]
            count = split(callees[name], list, " ")
            for (at = 1; at <= count; at++) {
                if (!(list[at] in frame) || list[at] == name) continue
                bytes = depth(list[at])
                if (bytes > most) { most = bytes; below[name] = list[at] }
            }
            return known[name] = frame[name] + most
        }
        END {
            lines = split(bounds, bound, "\n")
            for (at = 1; at <= lines; at++) {
                split(bound[at], part, " ")
                deepest = ""
                for (name in frame)
                    if (name ~ part[2] && depth(name) > depth(deepest)) deepest = name
                if (depth(deepest) * 2 < part[1]) print "no chain, or too short a one, from " part[2]
                if (depth(deepest) <= part[1]) continue
                print depth(deepest) " of " part[1] " bytes, in:"
                split("", shown)
                for (name = deepest; name != "" && !(name in shown); name = below[name]) {
                    shown[name] = 1
                    print "    " frame[name], name
                }
            }
            print told
        }'
}

[ $# != 0 ] || { echo "usage: $0 OBJECT…" >&2; exit 2; }
found=$(judged "$@")
if [ -n "$found" ]; then
    echo "frames: what is taken of the kernel's stack is not within its bounds:" >&2
    echo "$found" >&2
    exit 1
fi
