# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh disable=SC2034 # used by those who source it
# What one types into each tracer for each row; sourced by measure.sh.

UNDER=/bench/under
FUNCTIONS='begins_with_push begins_with_endbr begins_with_mov begins_with_nop'
TRACEFS=/sys/kernel/tracing

# The rows of the table of costs; each peer has those that it can do.
PEERS='nsprobe nsprobe-exact perf tracefs bpftrace systemtap bcc lttng'
ROWS='count record stack unwind hist predicate filter'

# Prints the shell command of PEER for ROW; nothing when it cannot do that.
command_of() { # peer row
    case $1-$2 in
    nsprobe-count) echo "exec nsprobe count '$UNDER:begins_with_*'" ;;
    nsprobe-record) echo "exec nsprobe trace '$UNDER:begins_with_*'" ;;
    nsprobe-stack) echo "exec nsprobe trace --stack --frame-pointers '$UNDER:begins_with_*'" ;;
    nsprobe-unwind) echo "exec nsprobe trace --stack '$UNDER:begins_with_*'" ;;
    nsprobe-hist) echo "exec nsprobe hist '$UNDER:begins_with_*'" ;;
    nsprobe-predicate) echo "exec nsprobe count '$UNDER:begins_with_* if arg1 == 1'" ;;
    nsprobe-filter) echo "exec nsprobe count -p \$OTHER '$UNDER:begins_with_*'" ;;
    nsprobe-exact-count) echo "exec nsprobe count --exact '$UNDER:begins_with_*'" ;;
    nsprobe-exact-record) echo "exec nsprobe trace --exact '$UNDER:begins_with_*'" ;;
    bpftrace-*) bpftrace_of "$2" ;;
    bcc-count) echo "exec funccount-bpfcc '$UNDER:begins_with_*'" ;;
    bcc-record) echo "exec trace-bpfcc -t $(each "'$UNDER:%'")" ;;
    bcc-stack) echo "exec stackcount-bpfcc -U '$UNDER:begins_with_*'" ;;
    bcc-hist) echo "exec funclatency-bpfcc '$UNDER:begins_with_*'" ;;
    bcc-predicate) echo "exec trace-bpfcc $(each "'$UNDER:%(long a) (a == 1)'")" ;;
    bcc-filter) echo "exec funccount-bpfcc -p \$OTHER '$UNDER:begins_with_*'" ;;
    perf-count) echo "exec perf stat -a -e 'bench:*'" ;;
    perf-record) echo "exec perf record -q -a -e 'bench:*' -o /tmp/perf.data" ;;
    perf-stack) echo "exec perf record -q -a -g --user-callchains -e 'bench:*' -o /tmp/perf.data" ;;
    perf-unwind)
        echo "exec perf record -q -a --call-graph dwarf -e 'bench:*' -o /tmp/perf.data"
        ;;
    perf-predicate) echo "exec perf stat -a -e 'bench:*' --filter 'a == 1'" ;;
    perf-filter) echo "exec perf stat -p \$OTHER -e 'bench:*'" ;;
    tracefs-hist | tracefs-unwind) ;;
    tracefs-*) echo "exec /payload/bench/tracefs.sh $2" ;;
    systemtap-*) [ ! -e "/payload/bench/bench_$2.ko" ] ||
        echo "exec staprun -x \$OTHER /payload/bench/bench_$2.ko"
        [ ! -e "/payload/bench/bench_$2.failed" ] ||
            echo "cat /payload/bench/bench_$2.failed; exit 1" ;;
    lttng-record | lttng-stack | lttng-filter) echo "exec /payload/bench/lttng.sh $2" ;;
    esac
}

each() { # text in which % is a function
    for function in $FUNCTIONS; do
        printf '%s ' "$1" | sed "s/%/$function/"
    done
}

bpftrace_of() { # row
    at="uprobe:$UNDER:begins_with_*"
    line='"%d %d %llu %s %s\n", pid, tid, nsecs, comm'
    options=
    case $1 in
    count) script="$at { @ = count(); }" ;;
    record) script="$at { printf($line, \"\"); }" ;;
    stack) script="$at { printf($line, ustack(raw)); }" ;;
    hist) script="$at { @s[tid] = nsecs; } uretprobe:$UNDER:begins_with_* /@s[tid]/ {
        @ = hist(nsecs - @s[tid]); delete(@s, tid); }" ;;
    predicate) script="$at /arg0 == 1/ { @ = count(); }" ;;
    filter) options="-p \$OTHER" script="$at { @ = count(); }" ;;
    *) return ;;
    esac
    printf '%s\n' "exec bpftrace $options -e '$script'" # dash's echo takes \\n apart
}

# The functions as tracefs's events, for perf and for tracefs.sh.
define_events() {
    while read -r name offset; do
        echo "p:bench/$name $UNDER:$offset a=%di"
    done <<END >"$TRACEFS/uprobe_events"
$($UNDER places)
END
}
remove_events() { echo >"$TRACEFS/uprobe_events"; }
