#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the guest's tests against modules that are broken on purpose.
#
#   scripts/mutants.sh [OPTION…] [ID…]     an ID may be a pattern, such as 'ring-*'
#
#   --check      only looks whether each mutant fits the sources; builds nothing
#   --list       only lists the mutants
#   --build      only builds each module
#   --baseline   only runs the tests against the module as it is
#   --quick      runs a mutant's own tests only, not the whole group behind them
#   --again      runs also what has a result for this commit
#   --wide       without IDs: also the mutants of the set "wide"
#   --jobs N     N guests side by side, each with one CPU unless SMP says otherwise
#   --minutes N  begins no other mutant after N minutes
#
# Inputs:  qemu-test/mutants/*.mutants and group; kmod and common; a build: make payload image.
#          SMP, MEMORY, ACCEL as for the runner; GUEST_PREFIX: words in front of each boot.
# Outputs: qemu-test/mutants/RESULTS.md, a row for each mutant, which the next run goes on
#          with; logs in build/mutants. The work tree's sources stay as they are.
#          Status 1: a mutant survived, or the control did not. 69: the run means nothing.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
mutants=qemu-test/mutants definitions=$mutants
results=$mutants/RESULTS.md
work=$PROJECT/build/mutants
runner=build/cargo/x86_64-unknown-linux-gnu/release/nsprobe-qemu-run
# What a result is of: the module, the tests, and what these start.
parts="Kbuild Cargo.lock kmod common userland qemu-test/guest qemu-test/victims
    qemu-test/init qemu-test/markers.rs"

usage() { sed -n '4,14s/^# \{0,3\}//p' "$0" >&2; die "$@"; }

verb=run quick='' again='' wide='' jobs=1 minutes=''
while [ $# != 0 ]; do
    case $1 in
    --check | --list | --build | --baseline) verb=${1#--} ;;
    --quick) quick=1 ;;
    --again) again=1 ;;
    --wide) wide=1 ;;
    --jobs | --minutes)
        case ${2:-} in '' | *[!0-9]* | 0) usage "$1 takes a number" ;; esac
        if [ "$1" = --jobs ]; then jobs=$2; else minutes=$2; fi
        shift
        ;;
    -*) usage "there is no option $1" ;;
    *) break ;;
    esac
    shift
done
# The others would write to the same table.
[ "$jobs" -le 4 ] || die "more than 4 guests side by side are not tried"

mutants_awk() { # mode [-v NAME=VALUE]…
    mode=$1
    shift
    awk -v mode="$mode" -v root="$PROJECT" "$@" -f scripts/mutants.awk "$definitions"/*.mutants
}
group() { awk -v mode=group -v names="$tests" -f scripts/mutants.awk "$mutants/group"; }

# All tests: FILE NAME SECONDS, a line each, from the lists in their sources.
all_tests() {
    # shellcheck disable=SC2016 # of awk's own
    find qemu-test/guest/src/tests -name '*.rs' | sort | xargs awk '
        FNR == 1 { on = 0; file = FILENAME; sub(/.*\/tests\//, "", file); sub(/\.rs$/, "", file) }
        /^tests!\[/ { on = 1; sub(/^tests!\[/, "") }
        !on { next }
        {
            ends = /\];/
            sub(/\];.*/, "")
            count = split($0, entries, ",")
            for (i = 1; i <= count; i++) {
                seconds = entries[i] ~ /:/ ? entries[i] : ":60"
                sub(/.*:/, "", seconds)
                sub(/:.*/, "", entries[i])
                gsub(/ /, "", entries[i])
                if (entries[i] != "") print file, entries[i], seconds + 0
            }
            on = !ends
        }'
}

mkdir -p "$work"
tests=$work/tests
all_tests >"$tests.$$"
mv "$tests.$$" "$tests"

if [ "$verb" = check ]; then
    # The group names files of tests, or tests, and all of them are there.
    wrong=$(mutants_awk check -v names="$tests") || {
        echo "$wrong" >&2
        die "a mutant does not fit the sources any more: change it to what they are now"
    }
    group >/dev/null || exit 69
    exit 0
fi

list=$work/list
mutants_awk list >"$list" || { cat "$list" >&2; exit 69; }
if [ "$verb" = list ]; then
    awk -F '\t' '{ printf "%-36s %-4s %s\n", $1, $6 == "-" ? "" : $6, $5 }' "$list"
    exit 0
fi

# The mutants that were asked for, in the order of the files.
chosen=
if [ $# = 0 ]; then
    chosen=$(awk -F '\t' -v wide="$wide" 'wide || $6 != "wide" { print $1 }' "$list" | tr '\n' ' ')
fi
for pattern in "$@"; do
    any=
    while IFS='	' read -r id _; do
        # shellcheck disable=SC2254 # it is meant as a pattern
        case $id in $pattern) chosen="$chosen $id" any=1 ;; esac
    done <"$list"
    [ -n "$any" ] || die "there is no mutant $pattern; scripts/mutants.sh --list shows them"
done

field() { # id number
    awk -F '\t' -v id="$1" -v n="$2" '$1 == id { print $n == "-" ? "" : $n }' "$list"
}
# So that a mutant that was changed is run again.
change_of() { mutants_awk show -v id="$1" | cksum | cut -d' ' -f1; }

# shellcheck disable=SC2086 # a list of folders
commit=$(git log -1 --format=%h -- $parts)
# shellcheck disable=SC2086
[ -z "$(git status --porcelain -- $parts)" ] || commit=$commit+

lock "$work/lock"
if [ "$verb" != build ]; then
    for file in "$runner" build/payload/nsprobe-guest-test build/payload/nsprobe build/payload/init; do
        [ -e "$file" ] || die "there is no build ($file is missing); run: make payload image"
    done
    need_payload
    setpriv --version >/dev/null 2>&1 || need_tools setpriv:util-linux
fi
[ "$jobs" = 1 ] || export SMP="${SMP:-1}"

# ---- one module

sdk=$("$PROJECT/scripts/sdk.sh")
release=$(cat "$sdk/kver")
source=/usr/src/nsprobe-kernel
cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$sdk/root$source/.config")

# The sources, the mutants and the build as they are now: the work tree may change during a run.
snapshot() {
    rm -rf "$work/source" "$work/payload"
    mkdir -p "$work/source"
    cp -R Kbuild kmod common "$mutants" "$work/source"
    definitions=$work/source/mutants
    [ "$verb" = build ] || cp -al build/payload "$work/payload"
}

# Builds a mutant, or the module as it is for "baseline", in this job's own tree.
build() { # job id
    job=$work/$1 tree=$work/$1/tree
    mkdir -p "$tree" "$job/objects"
    # Files that are the same keep their times, and are not built again.
    (cd "$work/source" && find Kbuild kmod common -type f) | while read -r file; do
        cmp -s "$work/source/$file" "$tree/$file" && continue
        mkdir -p "$(dirname "$tree/$file")"
        cp "$work/source/$file" "$tree/$file"
    done
    if [ "$2" != baseline ]; then
        rm -rf "$job/changed"
        # Before awk writes there.
        (cd "$work/source" && find kmod common -type d) | (mkdir -p "$job/changed" && cd "$job/changed" && xargs mkdir -p)
        changed=$(mutants_awk apply -v root="$work/source" -v out="$job/changed" -v id="$2") ||
            { say "$changed"; return 69; }
        for file in $changed; do cp "$job/changed/$file" "$tree/$file" || return 69; done
    fi
    "$PROJECT/scripts/enter.sh" "$sdk/root" "$PROJECT" "$tree" \
        make -s -C "$source" M="$tree" MO="$job/objects" CC="$cc" KERNELRELEASE="$release" \
        KRUSTFLAGS="-Awarnings -Cdebuginfo=0" modules >"$job/build.log" 2>&1 9>&- || return 1
    cp "$job/objects/kmod/nsprobe.ko" "$job/nsprobe.ko" || return 69
}

# The build with this job's module in place of its own. Links, as it is large.
payload() { # job
    rm -rf "$work/$1/payload" &&
        cp -al "$work/payload" "$work/$1/payload" &&
        rm -f "$work/$1/payload/nsprobe.ko" &&
        cp "$work/$1/nsprobe.ko" "$work/$1/payload/nsprobe.ko" || return 69
}

# ---- one boot

# Whether the kernel died of a breakpoint in its own text that was gone already: of a race
# that QEMU loses and processors do not. The byte in front of the marked one tells.
lost_race() { # kernel.log
    awk '
        /Oops: int3/ { died = 1 }
        died && !rip && /RIP: 0010:/ { rip = $0 }
        died && !code && /Code: / { code = $0 }
        END {
            sub(/.*RIP: 0010:/, "", rip)
            n = split(code, bytes, " ")
            for (i = 2; i <= n; i++) if (bytes[i] ~ /^</) before = bytes[i - 1]
            exit !(died && rip ~ /^[A-Za-z_][A-Za-z_0-9.]*\+0x/ && rip !~ /\[/ && before != "" && before != "cc")
        }' "$1"
}

# Whether what the runner says is the kernel's trouble: it begins with a reason of the markers.
is_of_the_kernel() { # trouble
    awk -v trouble="$1" '{ text = text $0 }
        END {
            while (!found && match(text, /marker\( *"[^"]*", *"[^"]*"/)) {
                reason = substr(text, RSTART, RLENGTH - 1)
                text = substr(text, RSTART + RLENGTH)
                sub(/.*"/, "", reason)
                found = index(trouble, reason ": ") == 1
            }
            exit !found
        }' qemu-test/markers.rs
}

# Trouble that a busy machine may make as well: something has waited for long.
is_slowness() { # trouble
    case $1 in
    'silent for '* | *': '*'soft lockup'* | *'detected stall'* | *'rcu_preempt detected'* | \
        *'rcu_tasks detected'* | *'blocked for more than'* | *'allocation stall'*) ;;
    *) return 1 ;;
    esac
}

# Runs tests against this job's module: those of a file of names. What failed is in
# JOB/failed, what passed in JOB/passed; in JOB/suspects the tests of which a failure may have
# another cause than the module. 0: all is well. 1: caught. 69: no result.
boot() { # job tests options
    job=$work/$1 names=$2
    "$work/payload/nsprobe-guest-test" --list >"$job/limits" || return 69
    # A test says nothing before its end, and is looked at behind it.
    silence=$(awk 'NR == FNR { wanted[$1]; next } $1 in wanted && $2 > most { most = $2 } END { print most + 120 }' \
        "$names" "$job/limits")
    all=$(awk 'NR == FNR { wanted[$1]; next } $1 in wanted { sum += $2 } END { print sum + 300 }' "$names" "$job/limits")
    [ "$all" -lt 7200 ] || all=7200
    for attempt in 1 2 3; do
        status=0
        # shellcheck disable=SC2046,SC2086 # lists of words
        ${GUEST_PREFIX:-} setpriv --pdeathsig TERM "$runner" \
            --payload "$job/payload" --timeout "$all" --silence "$silence" $3 \
            exec -- /payload/nsprobe-guest-test $(cat "$names") \
            >"$job/ktap" 2>"$job/runner.log" </dev/null 9>&- || status=$?
        logs=$(sed -n 's/^qemu-test: all logs: //p' "$job/runner.log" | tail -n 1)
        if [ "$status" = 69 ] && [ -n "$logs" ] && lost_race "$logs/kernel.log"; then
            say "QEMU has lost a race while the kernel patched its text; once more"
            status=70
            continue
        fi
        # Nothing of the module's runs before the tests do.
        grep -q '^KTAP version' "$job/ktap" && break
        say "the guest came to no test (attempt $attempt): $(tail -n 1 "$job/runner.log")"
        status=70
    done
    sed -n 's/^ok [0-9]* \([a-z0-9_]*\)$/\1/p' "$job/ktap" | sort -u >"$job/passed"
    sed -n 's/^not ok [0-9]* \([a-z0-9_]*\).*/\1/p' "$job/ktap" | sort -u >"$job/failed"
    : >"$job/suspects"
    case $status in
    0) return 0 ;;
    1)
        cp "$job/failed" "$job/suspects"
        [ ! -s "$job/failed" ] || return 1
        ;;
    69)
        trouble=$(sed -n 's/^qemu-test: //p' "$job/runner.log" | grep -v '^all logs' | head -n 1)
        # The test in whose midst it was: the first without a verdict, in their order.
        during=$("$job/payload/nsprobe-guest-test" --list | awk -v done="$job/ktap" '
            BEGIN { while ((getline line < done) > 0) if (split(line, w, " ") && line ~ /^(not )?ok [0-9]/) last[line ~ /^not/ ? w[4] : w[3]] }
            NR == FNR { wanted[$1]; next }
            !found && $1 in wanted && !($1 in last) { print $1; found = 1 }' "$names" -)
        if is_slowness "$trouble"; then
            [ -n "$during" ] || return 69
            echo "$during" >"$job/suspects"
        fi
        case $trouble in
        'silent for '*) trouble="hang: $trouble" ;;
        *) is_of_the_kernel "$trouble" || return 69
            trouble="kernel: $trouble" ;;
        esac
        # Times, addresses and numbers of tasks say nothing to the reader of a table.
        trouble=$(echo "$trouble" | sed 's/\[ *[0-9.]*\]//; s/[|]/ /g; s/  */ /g' | cut -c1-110)
        echo "$trouble${during:+ (in $during)}" >>"$job/failed"
        return 1
        ;;
    esac
    return 69
}

# A second look at what has caught a mutant: it has to fail again, or to pass with the module as
# it is whenever it runs. 1: caught. 69: no result.
confirmed() { # job options
    job=$work/$1
    [ -s "$job/suspects" ] || return 1
    cp "$job/failed" "$job/first" && cp "$job/suspects" "$job/again" || return 69
    status=0
    boot "$1" "$job/again" "$2" || status=$?
    if [ "$status" = 0 ]; then
        say "it passes once more; three times with the module as it is"
        { build "$1" baseline && payload "$1"; } || return 69
        for _ in 1 2 3; do boot "$1" "$job/again" "$2" || return 69; done
        sed -i 's/$/ (in one of two runs)/' "$job/first"
    elif [ "$status" != 1 ]; then
        return 69
    fi
    cp "$job/first" "$job/failed" || return 69
    return 1
}

# The names of tests that have one of these words in theirs, one a line.
names_of() { # word…
    awk -v words="$*" 'BEGIN { n = split(words, w, " ") }
        { for (i = 1; i <= n; i++) if (index($2, w[i])) { print $2; next } }' "$tests"
}

# ---- the table

header() {
    cat <<END
# What catches the mutants of the module

\`scripts/mutants.sh\` writes this: each row is a module that is broken on purpose
(\`*.mutants\`), and the tests that failed with it in one run, or the kernel's trouble.
A mutant's own tests are run first; only if none of them catches it, the whole group
is (\`group\`). With the module as it is, all of these tests passed at the same commit.

| id | what is broken | caught by | seconds | date | commit | change |
|---|---|---|---|---|---|---|
END
}

# Puts a row into the table, in the place of the mutant's row before.
put() { # id caught-by seconds
    (
        flock 7
        row="| $1 | $(field "$1" 5) | $2 | $3 | $(date +%F) | $commit | $(change_of "$1") |"
        [ -e "$results" ] || header >"$results"
        {
            header
            cut -f1 "$list" | awk -v row="$row" -v new="$1" '
                NR == FNR { if (/^\| [a-z0-9-]+ \|/) kept[$2] = $0; next }
                $1 == new { print row; next }
                $1 in kept { print kept[$1] }' "$results" -
        } >"$work/table"
        mv "$work/table" "$results"
    ) 7>"$work/table.lock"
}

# The row of a mutant as far as it is of this commit and of this change.
known() { # id
    case $commit in *+) return 1 ;; esac
    [ -e "$results" ] || return 1
    row=$(grep "^| $1 | " "$results") || return 1
    case $row in
    *"| $commit | $(change_of "$1") |") ;;
    *) return 1 ;;
    esac
    # A mutant that survived its own tests alone has the others before it.
    [ -n "$quick" ] || case $row in *"survived its own tests"*) return 1 ;; esac
    echo "$row"
}

# ---- the run

# All tests that a mutant's verdict rests on.
tests_for() { # id
    # shellcheck disable=SC2046 # a list of words
    names_of $(field "$1" 4)
    [ -n "$quick" ] || cat "$work/group"
}

# The module as it is has to pass what the mutants are judged by.
baseline() { # boot-options
    kept=$work/baseline-$commit-$KVER-${ACCEL:-auto}-${SMP:-2}-${MEMORY:-2G}-$(echo "$1" | tr -c 'a-z0-9\n' -)
    case $commit in *+) rm -f "$kept" ;; esac
    [ -e "$kept" ] || : >"$kept"
    for id in $chosen; do
        [ "$(field "$id" 3)" = "$1" ] || continue
        [ "$verb" = baseline ] || [ -n "$again" ] || ! known "$id" >/dev/null || continue
        tests_for "$id"
    done | sort -u | grep -vxFf "$kept" >"$work/baseline.names" || return 0
    say "the module as it is: $(wc -l <"$work/baseline.names") tests ${1:+with $1}"
    status=0
    build 1 baseline || { cat "$work/1/build.log" >&2; die "the module cannot be built"; }
    payload 1 || die "the module cannot be copied"
    boot 1 "$work/baseline.names" "$1" || status=$?
    # One that passes now and then must not come to pass.
    [ "$status" != 0 ] || cat "$work/1/passed" >>"$kept"
    left=$(grep -vxFf "$kept" "$work/baseline.names" | tr '\n' ' ')
    [ "$status" != 0 ] || [ -n "$left" ] || return 0
    cp "$work/1/ktap" "$work/baseline.ktap"
    cp "$work/1/runner.log" "$work/baseline.log"
    say "the module as it is does not pass, so verdicts on mutants mean nothing:"
    say "  failed: $(paste -sd' ' "$work/1/failed"); no pass: $left; see $work/baseline.ktap"
    return 1
}

one() { # job id
    began=$(date +%s)
    status=0
    build "$1" "$2" || status=$?
    [ "$status" != 69 ] || return 69
    if [ "$status" != 0 ]; then
        say "$2: does not compile; $work/$1/build.log:"
        grep -A 12 -m 2 'error' "$work/$1/build.log" >&2 || tail -n 15 "$work/$1/build.log" >&2
        return 69
    fi
    if [ "$verb" = build ]; then
        say "$2: built in $(($(date +%s) - began)) s"
        return 0
    fi
    payload "$1" || return 69
    options=$(field "$2" 3)
    # shellcheck disable=SC2046
    names_of $(field "$2" 4) >"$work/$1/names"
    stage='its own tests'
    boot "$1" "$work/$1/names" "$options" || status=$?
    if [ "$status" = 0 ] && [ -z "$quick" ]; then
        stage='all tests of the group'
        grep -vxFf "$work/$1/names" "$work/group" >"$work/$1/rest"
        boot "$1" "$work/$1/rest" "$options" || status=$?
    fi
    if [ "$status" = 1 ]; then
        status=0
        confirmed "$1" "$options" || status=$?
    fi
    took=$(($(date +%s) - began))
    case $status in
    0) caught="**SURVIVED** $stage" && [ -z "$quick" ] || caught="survived its own tests" ;;
    1) caught=$(paste -sd, "$work/$1/failed" | sed 's/,/, /g') ;;
    *)
        say "$2: no result: $(tail -n 1 "$work/$1/runner.log")"
        return 69
        ;;
    esac
    [ "$status" = 1 ] || [ "$(field "$2" 2)" != survives ] || caught="nothing, as it must be ($stage)"
    [ "$status" = 0 ] || [ "$(field "$2" 2)" != survives ] || caught="**A CONTROL, CAUGHT** by $caught"
    put "$2" "$caught" "$took" && echo "$2" >>"$work/done" || return 69
    say "$2: $caught ($took s)"
}

# Takes one mutant after the other that no other job has taken.
worker() { # job
    for id in $chosen; do
        mkdir "$work/taken/$id" 2>/dev/null || continue
        grep -qx "$id" "$work/undone" 2>/dev/null && continue
        [ -z "$minutes" ] || [ $((($(date +%s) - STARTED) / 60)) -lt "$minutes" ] || return 0
        [ "$verb" = build ] || [ -n "$again" ] || ! known "$id" >/dev/null || continue
        one "$1" "$id" || echo "$id" >>"$work/undone"
    done
}

# In braces, so that the shell has read it all when it begins.
{
    snapshot
    rm -rf "$work/taken" "$work/undone" "$work/done"
    mkdir -p "$work/taken"
    group | sort -u >"$work/group"

    if [ "$verb" != build ]; then
        for id in $chosen; do field "$id" 3; done | sort -u >"$work/boots"
        # Of other boots the verdicts count all the same.
        while read -r options; do
            baseline "$options" </dev/null && continue
            for id in $chosen; do
                [ "$(field "$id" 3)" != "$options" ] || echo "$id" >>"$work/undone"
            done
        done <"$work/boots"
        if [ "$verb" = baseline ]; then
            [ ! -e "$work/undone" ] || exit 69
            say "the module as it is passes"
            exit 0
        fi
    fi

    others=
    job=1
    while [ "$job" -lt "$jobs" ]; do
        job=$((job + 1))
        worker "$job" &
        others="$others $!"
    done
    # shellcheck disable=SC2086 # a list of numbers
    trap 'kill $others 2>/dev/null || true' INT TERM
    worker 1
    # shellcheck disable=SC2086
    [ -z "$others" ] || wait $others

    [ ! -e "$work/undone" ] || die "without a result: $(tr '\n' ' ' <"$work/undone")"
    [ "$verb" != build ] || exit 0
    open='' survived=''
    for id in $chosen; do
        # A row of an earlier commit is none of this run.
        if ! known "$id" >/dev/null && ! grep -qx "$id" "$work/done" 2>/dev/null; then
            open="$open $id"
            continue
        fi
        case $(grep "^| $id | " "$results" 2>/dev/null || true) in
        *SURVIVED* | *"survived its own tests"* | *"A CONTROL, CAUGHT"*) survived="$survived $id" ;;
        esac
    done
    [ -z "$open" ] || say "not run:$open"
    [ -z "$survived" ] || { say "survived:$survived"; exit 1; }
    [ -z "$open" ] || exit 69
    exit 0
}
