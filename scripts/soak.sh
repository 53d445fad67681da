#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The long run: each part in a boot of its own, or on this host, with the outcome of each kept,
# so that it goes on where it was interrupted.
#
# Inputs:  names of parts as arguments (all of them), or --table for the table alone; SCALE,
#          which every figure is multiplied by (1); build/payload and the runner, as
#          `make payload` builds them; the image; the debug kernels, where
#          scripts/debug-kernel.sh has built them before.
# Outputs: build/soak/COMMIT-SCALE/PART, the outcome, and PART.log, what was printed; the table
#          of all parts in docs/soak.md, with the rows that it has of parts that were not run
#          for this commit, or with SCALE < 1 in that folder. Status 1 unless each
#          part that was chosen has passed. A part that passed for this commit is not run again.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
SCALE=${SCALE:-1}
RUN=$PROJECT/build/cargo/x86_64-unknown-linux-gnu/release/nsprobe-qemu-run
GUEST_TEST=/payload/nsprobe-guest-test
# More than any part of the guest's may take: those end themselves, by limits of their own.
TIMEOUT=50000
FUZZ_RUNS=5000000
LIBRARIES_ASKED=500
ADDRESSES=100000
FUZZ_SECONDS=60

# PART BOOT WHAT: the boots are functions below, "host" is none.
parts() {
    cat <<'PARTS'
exact_hits plain soak_exact_hits
records plain soak_records
records_preempt preempt soak_records
probes_one_inode plain soak_probes_one_inode
probes_many_inodes plain soak_probes_many_inodes
probes_of_a_session plain soak_probes_of_a_session
race plain soak_race
race_preempt preempt soak_race
sessions plain soak_sessions
loads plain soak_loads
exec_storm plain soak_exec_storm
garbage plain soak_garbage
killed_readers plain soak_killed_readers
namespace_trips plain soak_namespace_trips
readme plain soak_readme
figures whole figures
figures_races whole-2 figures
module_sanitize sanitize tests
module_preempt preempt tests
module_lockdep lockdep tests
race_lockdep lockdep soak_race
module_kasan kasan tests
race_kasan kasan soak_race
fuzz host fuzz
unwind host unwind
names host names
PARTS
}

# A figure, at this scale.
figure() { # full
    awk -v full="$1" -v scale="$SCALE" 'BEGIN { n = full * scale; r = int(n); print r + (n > r) }'
}

is_smoke() { awk -v scale="$SCALE" 'BEGIN { exit !(scale < 1) }'; }

# The tree as it is: what the table is about. The table itself does not count.
tree() {
    changes=$(git diff HEAD -- . ':!docs/soak.md')
    name=$(git rev-parse --short=12 HEAD)
    [ -z "$changes" ] || name=$name+$(echo "$changes" | digest)
    echo "$name"
}

echo "$SCALE" | awk '!/^[0-9]+(\.[0-9]+)?$/ || $1 + 0 == 0 { exit 1 }' ||
    die "SCALE=$SCALE: a number above 0"
[ -x "$RUN" ] || die "the runner is not built: make payload"
need_payload
tree=$(tree)
folder=$PROJECT/build/soak/$tree-$SCALE
mkdir -p "$folder"

# The names of the tests of the module, as the guest's program has them, and of those of failures
# on purpose where the kernel can make them: no test is skipped here. KASAN and KFENCE keep what
# was freed, so that tests which count the kernel's memory mean nothing with them; lockdep finds a
# circle of the kernel's own where a group's disk is limited; and debug kernels have no
# descriptions of their types, and no suspend.
module_tests() { # boot
    tags=module not=-
    case $1 in
    lockdep) tags='module|faults' not='limited-disk|stock-kernel' ;;
    kasan) tags='module|faults' not='memory|stock-only|stock-kernel' ;;
    sanitize) not='memory|stock-only' ;;
    esac
    build/payload/nsprobe-guest-test --list | awk -v wanted="(^|,)($tags)(,|$)" \
        -v not="(^|,)($not)(,|$)" '$3 ~ wanted && $3 !~ not { print $1 }'
}

# Words for the runner, the guest's CPUs, its memory and how long it may be silent, by boot; status 1 where it is not to
# be had here.
set_boot() { # boot
    options=
    cpus=2 memory=2G
    # Parts say how far they are all 30 seconds; tests say nothing before their end.
    silence=1800
    case $1 in
    plain) ;;
    preempt) options='--append preempt=full' ;;
    # Programs do the same twice where they have the one CPU.
    whole) cpus=1 silence=9000 && { is_smoke || options='--append NSPROBE_WHOLE=1'; } ;;
    whole-2) silence=9000 && { is_smoke || options='--append NSPROBE_WHOLE=1'; } ;;
    sanitize) options=--sanitize cpus=4 memory=512M ;;
    lockdep | kasan)
        [ -x scripts/debug-kernel.sh ] || return 1
        # Built before: here it would take longer than many a part.
        set -- "$1" "$CACHE/debug-kernel/$KVER-$1"-*/vmlinuz
        [ -e "$2" ] || return 1
        guest=$(scripts/debug-kernel.sh "$1")
        payload=$(scripts/debug-kernel.sh "$1" payload)
        options="--guest $guest --payload $payload"
        ;;
    esac
}

# How a boot is called in the table.
describe() { # boot
    case $1 in
    host) echo 'host' ;;
    plain | whole-2) echo '2 CPUs, 2 GB' ;;
    preempt) echo '2 CPUs, 2 GB, preempt=full' ;;
    whole) echo '1 CPU, 2 GB' ;;
    sanitize) echo '4 CPUs, 512 MB, KFENCE, slab debugging, page poisoning' ;;
    lockdep) echo '2 CPUs, 2 GB, debug kernel with lockdep' ;;
    kasan) echo '2 CPUs, 2 GB, debug kernel with KASAN' ;;
    esac
}

in_guest() { # log, words for the guest's program
    log=$1
    shift
    # shellcheck disable=SC2086 # a list of words
    SMP=$cpus MEMORY=$memory "$RUN" $options --timeout $TIMEOUT --silence $silence \
        exec -- "$GUEST_TEST" "$@" >"$log" 2>&1
}

# A part prints "soak: PART: reached N of M UNIT", tests print KTAP.
figures_of() { # log
    sed -n 's/^# soak: .*: reached \([0-9]*\) of \([0-9]*\) \(.*\)$/\2 \1 \3/p' "$1"
    awk '/^1\.\.[0-9]/ { plan = substr($0, 4) } /^ok / && !/# SKIP/ { ok++ }
        END { if (plan > 1) print plan, ok + 0, "tests" }' "$1"
}

part_tests() { # log boot
    # shellcheck disable=SC2046 # a list of names
    set -- "$1" $(module_tests "$2")
    all=$(($# - 1))
    wanted=$(figure "$all")
    [ "$wanted" -le "$all" ] || wanted=$all
    log=$1
    shift
    while [ $# -gt "$wanted" ]; do shift; done
    in_guest "$log" "$@"
}

# The tests that reach a part of their figure in other runs.
part_figures() { # log boot
    # shellcheck disable=SC2046 # a list of names
    in_guest "$1" $(build/payload/nsprobe-guest-test --list | awk -v boot="$2" '
        $3 ~ /(^|,)in-parts(,|$)/ && ($3 ~ /(^|,)two-cpus(,|$)/) == (boot == "whole-2") {
            print $1
        }')
}

# Each target by as many runs as its part of all: further seconds until it has them.
part_fuzz() { # log
    : >"$1"
    targets=$(basename -a -s .rs fuzz/fuzz_targets/*.rs)
    each=$(figure $((FUZZ_RUNS / $(echo "$targets" | wc -l) + 1)))
    seconds=$FUZZ_SECONDS
    ! is_smoke || seconds=$(awk -v scale="$SCALE" -v all="$seconds" \
        'BEGIN { n = int(all * scale); print n > 2 ? n : 2 }')
    left=$targets
    while [ -n "$left" ]; do
        # shellcheck disable=SC2086 # a list of targets
        scripts/fuzz.sh "$seconds" $left >>"$1" 2>&1 || return 1
        runs=$(sed -n 's/^\[[^]]*\] \([a-z_]*\): from .*, \([0-9]*\) runs$/\1 \2/p' "$1" |
            awk '{ runs[$1] += $2 } END { for (target in runs) print target, runs[target] }')
        left=$(for target in $targets; do
            echo "$runs" | awk -v target="$target" -v each="$each" \
                '$1 == target && $2 >= each { found = 1 } END { if (!found) print target }'
        done)
    done
    echo "$runs" | awk -v asked="$(figure $FUZZ_RUNS)" \
        '{ sum += $2; print "# soak: fuzz: " $1 ": " $2 " runs" }
        END { print "# soak: fuzz: reached " sum " of " asked " runs" }' >>"$1"
}

part_unwind() { # log
    asked=$(figure $LIBRARIES_ASKED)
    LIBRARIES=$asked scripts/cargo.sh test --release -p nsprobe-unwind --test agree -- \
        --nocapture >"$1" 2>&1 || return 1
    sed -n "s/^\([0-9]*\) files, \([0-9]*\) places agree.*/# soak: unwind: reached \1 of $asked libraries/p" \
        "$1" >>"$1.new"
    cat "$1.new" >>"$1"
    rm "$1.new"
}

part_names() { # log
    each=$(figure $ADDRESSES)
    NSPROBE_FILES=$(scripts/debian-files.sh)
    export NSPROBE_FILES
    NSPROBE_ADDRESSES=$each scripts/cargo.sh test -p nsprobe-symbolize \
        --test agreement -- --nocapture >"$1" 2>&1 || return 1
    # Two witnesses of each file: a C++ and a Rust program, libc, the test itself, and two of
    # Debian's.
    awk -v asked=$((12 * each)) '/: [0-9]+ addresses, / {
            match($0, /: [0-9]+ addresses/)
            sum += substr($0, RSTART + 2)
        }
        END { print "# soak: names: reached " sum + 0 " of " asked " names" }' "$1" >"$1.new"
    cat "$1.new" >>"$1"
    rm "$1.new"
}

# Whether it ended well and reached what was asked; says why not.
judge() { # status log
    short=$(figures_of "$2" | awk '$2 < $1')
    case $1 in
    0)
        if [ -z "$(figures_of "$2")" ]; then
            echo 'failed: no figure was told'
        elif [ -n "$short" ]; then
            echo "failed: less than was asked"
        elif is_smoke; then
            echo "passed at SCALE=$SCALE"
        else
            echo passed
        fi
        ;;
    *)
        reason=$(sed -n 's/^qemu-test: //p; s/^not ok [0-9]* /failed: /p' "$2" | tail -n 1)
        echo "failed: status $1${reason:+, $reason}"
        ;;
    esac
}

# Runs one, and keeps its outcome by a rename: what was interrupted is not there.
run_part() { # part boot what
    state=$folder/$1
    if grep -q '^outcome passed' "$state" 2>/dev/null; then
        say "$1: passed before, at $(sed -n 's/^date //p' "$state")"
        return
    fi
    tries=$(($(sed -n 's/^tries //p' "$state" 2>/dev/null || true) + 1))
    [ ! -e "$state.log" ] || mv "$state.log" "$state.before.log"
    if ! set_boot "$2"; then
        say "$1: there is no kernel with $2 here: make debug-kernel"
        printf 'outcome not run: no such kernel\nboot %s\n' "$(describe "$2")" >"$state"
        return
    fi
    say "$1: $(describe "$2")"
    begun=$(date +%s)
    status=0
    case $3 in
    soak_*) in_guest "$state.log" --soak "$SCALE" "$3" || status=$? ;;
    *) "part_$3" "$state.log" "$2" || status=$? ;;
    esac
    outcome=$(judge $status "$state.log")
    [ "$(tree)" = "$tree" ] || outcome="failed: the tree is not what it was at the begin"
    {
        echo "outcome $outcome"
        echo "boot $(describe "$2")"
        echo "tries $tries"
        echo "seconds $(($(date +%s) - begun))"
        echo "date $(date -u +%Y-%m-%d\ %H:%M)"
        echo "commit $tree"
        figures_of "$state.log" | sed 's/^/figure /'
    } >"$state.new"
    mv "$state.new" "$state"
    say "$1: $outcome; $(sed -n 's/^figure \([0-9]*\) \([0-9]*\) \(.*\)/\2 of \1 \3/p' "$state" |
        paste -sd ';' -)"
}

table() {
    cat <<'HEAD'
<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->
# The long run

What `make soak` does for a release: the promises that are about much, each at a figure that
the tests of every day have no time for. The script is `scripts/soak.sh`, the parts in the
guest are `qemu-test/guest/src/soak/`; the end of each part is followed by the same look at
the kernel's log, taint, module and probes as every test.

```sh
make soak                  # all, some hours; goes on where it was interrupted
make soak SCALE=0.01       # all of it in a few minutes, at a hundredth of each figure
SCALE=1 scripts/soak.sh race garbage   # parts
```

- **exact_hits**: the counters of a probe, by CPU and in sum, and of tracefs' probe on the same
  instruction are the calls that four threads made: at an instruction that the kernel
  emulates, one that it steps over, and one that it replaces by a call.
- **records**: each record is that of a call, byte by byte: thread, number and a hash of both
  are its arguments. None is there twice or out of order; what is missing is counted as lost
  and was announced. A tenth has stacks, the same in all calls of a thread.
- **probes_one_inode**, **probes_many_inodes** (64 on each of 1,024): each counts its own hits.
- **probes_of_a_session**: a session that has had as many as there are ids makes no more, and
  others do.
- **race**: four threads attach and detach a counter, a record, a stack and a return where
  four others call. No probe is hit behind its detach, and one that stays counts every call.
- **sessions** (64 at once), **loads** (200 of them while four threads call), **killed_readers**:
  kernel memory is in the end what it was, within 2 MB, however many there were.
- **exec_storm**: each of the processes has its calls in the records, and no other.
- **garbage**: all requests, each often accepted and often refused.
- **namespace_trips**: eight threads open the same path in 200 mount namespaces, by the
  product's own code.
- **readme**: the README's command lines, run as they stand there, print what they should.
- **figures**, **figures_races**: the tests of which each run does a part, whole: gdb's
  stacks at thousands of instructions of Debian's programs, 200 containers that are gone when
  their frames are named, a recorder and a trace that are killed again and again, 100,000 hits
  in a capsule, a storm of 20,000 forks.
- **module_…**: the tests of the module in other boots, with failures on purpose where the
  debug kernels can make them; without those about time or much memory where memory is
  checked, and under KASAN without those that count it.
- **fuzz**, **unwind**, **names**: on the host; runs of all fuzz targets, libraries whose rows
  agree with gimli's evaluation at each place, and names that agree with binutils' and LLVM's.

Each part in the guest shows at its end that its check can fail: it gives it what is wrong (a
call that it does not know of, a hash with a wrong bit, a record that was there before, …), and
what it says stands in the part's log behind `control:`.

A part that did less than its figure has failed. A part that failed is run again by the next
`make soak`, which the table says. The row of a part is that of the last commit for which it
was run.

| part | boot | asked | reached | seconds | outcome | date (UTC) | commit |
| --- | --- | ---: | ---: | ---: | --- | --- | --- |
HEAD
    parts | while read -r part boot _; do
        # What was run before, for another commit.
        if ! is_smoke && ! grep -qs '^commit' "$folder/$part" &&
            grep "^| $part |.*[0-9a-f] |$" docs/soak.md; then
            continue
        fi
        # shellcheck disable=SC2002 # it may be missing
        cat "$folder/$part" 2>/dev/null | awk -v part="$part" -v boot="$(describe "$boot")" '
            { key = $1; sub(/^[^ ]* /, "") }
            key == "figure" {
                unit = $0
                sub(/^[0-9]+ [0-9]+ /, "", unit)
                asked = asked (asked ? "<br>" : "") $1 " " unit
                reached = reached (reached ? "<br>" : "") $2
            }
            key != "figure" { of[key] = $0 }
            END {
                outcome = of["outcome"] ? of["outcome"] : "not run"
                if (of["tries"] > 1) outcome = outcome ", try " of["tries"]
                printf "| %s | %s | %s | %s | %s | %s | %s | %s |\n", part, boot, asked,
                    reached, of["seconds"], outcome, of["date"], of["commit"]
            }'
    done
}

only_table=
if [ "${1:-}" = --table ]; then
    only_table=yes
    shift
fi
if [ $# -gt 0 ]; then
    for name in "$@"; do
        parts | cut -d' ' -f1 | grep -qx "$name" || die "there is no part $name:" \
            "$(parts | cut -d' ' -f1 | paste -sd ' ' -)"
    done
fi
# All parts, or those that are named.
chosen() {
    for part in $(parts | cut -d' ' -f1); do
        case " ${*:-$part} " in *" $part "*) echo "$part" ;; esac
    done
}
for part in $(chosen "$@"); do
    [ -z "$only_table" ] || break
    # shellcheck disable=SC2046 # three words
    run_part $(parts | grep "^$part ")
done

report=docs/soak.md
! is_smoke || report=$folder/soak.md
table >"$folder/table.new"
cp "$folder/table.new" "$report"
rm "$folder/table.new"
missed=
for part in $(chosen "$@"); do
    grep -qs '^outcome passed' "$folder/$part" || missed="$missed $part"
done
say "the table: $report${missed:+; not passed:$missed}"
[ -z "$missed" ]
