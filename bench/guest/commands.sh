# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=sh disable=SC2034 # used by those who source it
# What one types into each tracer for each row; sourced by measure.sh.

UNDER=/bench/under
FUNCTIONS='begins_with_push begins_with_endbr begins_with_mov begins_with_nop'
TRACEFS=/sys/kernel/tracing

# The rows of the table of costs; each peer has those that it can do (bench/absent.txt says
# why it has no others). bcc is the last: what it leaves behind when it dies is in the way of
# all others.
PEERS='nsprobe nsprobe-exact nsprobe-uretprobe perf tracefs bpftrace systemtap lttng bcc'
ROWS='count record stack hist predicate filter container'

# Prints the shell command of PEER for ROW; nothing when it cannot do that.
command_of() { # peer row
    all="'$UNDER:begins_with_*'"
    case $1-$2 in
    nsprobe-count) echo "exec nsprobe count --fast-nops $all" ;;
    nsprobe-record) echo "exec nsprobe trace --fast-nops $all" ;;
    nsprobe-stack) echo "exec nsprobe trace --fast-nops --stack --frame-pointers $all" ;;
    nsprobe-hist) echo "exec nsprobe hist --fast-nops $all" ;;
    nsprobe-predicate) echo "exec nsprobe count --fast-nops '$UNDER:begins_with_* if arg1 == 1'" ;;
    nsprobe-filter) echo "exec nsprobe count --fast-nops -p \$OTHER $all" ;;
    nsprobe-container) echo "exec nsprobe count --fast-nops -c 'pid:*' $all" ;;
    nsprobe-exact-count) echo "exec nsprobe count --exact --fast-nops $all" ;;
    nsprobe-uretprobe-hist) echo "exec nsprobe hist --return uretprobe --force --fast-nops $all" ;;
    nsprobe-exact-record) echo "exec nsprobe trace --exact --fast-nops $all" ;;
    bpftrace-*) bpftrace_of "$2" ;;
    bcc-count) bcc funccount "$all" ;;
    bcc-record) bcc trace -t "$(each "'$UNDER:%'")" ;;
    bcc-stack) bcc stackcount -U "$all" ;;
    bcc-hist) bcc funclatency "$all" ;;
    bcc-predicate) bcc trace "$(each "'$UNDER:%(long a) (a == 1)'")" ;;
    bcc-filter) bcc funccount -p "\$OTHER" "$all" ;;
    perf-count) echo "exec perf stat -a -e 'bench:*'" ;;
    perf-record) echo "exec perf record -q -a -e 'bench:*' -o /tmp/perf.data" ;;
    perf-stack) echo "exec perf record -q -a -g --user-callchains -e 'bench:*' -o /tmp/perf.data" ;;
    perf-predicate) echo "exec perf stat -a -e 'bench:*' --filter 'a == 1'" ;;
    perf-filter) echo "exec perf stat -p \$OTHER -e 'bench:*'" ;;
    tracefs-hist | tracefs-container) ;;
    tracefs-*) echo "exec /payload/bench/tracefs.sh $2" ;;
    systemtap-filter) systemtap "$2" "-x \$OTHER" ;;
    systemtap-*) systemtap "$2" ;;
    lttng-record | lttng-stack | lttng-filter) echo "exec /payload/bench/lttng.sh $2" ;;
    esac
}

# A tool of bcc's; run_bcc.py says why not by itself.
bcc() { echo "exec /payload/bench/run_bcc.py $1-bpfcc" "$(shift; echo "$*")"; }

# With -x, SystemTap's handlers return before the script's own first statement in all other
# processes: for the filter's row only.
systemtap() { # script options
    [ ! -e "/payload/bench/bench_$1.ko" ] || echo "exec staprun ${2:-} /payload/bench/bench_$1.ko"
    [ ! -e "/payload/bench/bench_$1.failed" ] || echo "cat /payload/bench/bench_$1.failed; exit 1"
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
    container) container_of_bpftrace; return ;;
    *) return ;;
    esac
    printf '%s\n' "exec bpftrace $options -e '$script'" # dash's echo takes \\n apart
}

# A map of the pid namespaces other than the first one, looked up at each hit.
container_of_bpftrace() {
    cat <<'COMMAND'
here=$(readlink /proc/self/ns/pid | tr -dc 0-9)
all=$(readlink /proc/[0-9]*/ns/pid | tr -dc '0-9\n' | sort -u | grep -v "^$here\$")
exec bpftrace -e "BEGIN { $(echo "$all" | sed 's/.*/@in[(uint32)&] = 1;/' | tr '\n' ' ') }
    uprobe:/bench/under:begins_with_* /@in[curtask.nsproxy.pid_ns_for_children.ns.inum]/ { @ = count(); }
    END { clear(@in); }"
COMMAND
}

# The functions as tracefs's events, for perf and for tracefs.sh.
define_events() {
    while read -r name offset; do
        echo "p:bench/$name $UNDER:$offset a=%di"
    done <<END >"$TRACEFS/uprobe_events"
$($UNDER places)
END
}

# All events of tracefs's; files of tracefs have no size that tells whether there are some.
remove_events() {
    for _ in $(seq 50); do
        [ -n "$(cat "$TRACEFS/uprobe_events")" ] || return 0
        echo 2>/dev/null >"$TRACEFS/uprobe_events" || sleep 0.1
    done
    echo "failed events - - tracefs keeps $(wc -l <"$TRACEFS/uprobe_events") of its events"
}
