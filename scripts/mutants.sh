#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Breaks the code in one place after the other; each time a test has to fail.
#
#   scripts/mutants.sh [ID…]        these mutants, or all
#   scripts/mutants.sh --part K/N   one of N parts of all
#   scripts/mutants.sh --check      only: do they fit the sources, and are their tests there?
#
# Inputs:  qemu-test/mutants/*.mutants; what `make payload image` has built, with which the
#          tests pass.
# Outputs: "caught ID by TEST" or "SURVIVED ID", a line each. Status 1: one survived; 69: one
#          could not be tried. Logs in build/mutants; the work tree stays as it is.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
runner=build/cargo/x86_64-unknown-linux-gnu/debug/nsprobe-qemu-run
work=$PROJECT/build/mutants
tree=$work/tree

field() { # id name
    awk -v id="$1" -v name="$2:" '
        $1 == "id:" { on = $2 == id }
        on && $1 == name { sub(/^[a-z]+: */, ""); print }' qemu-test/mutants/*.mutants
}

# A file with the mutant's change; the old lines have to be there exactly once.
change() { # id file
    awk -v id="$1" -v file="$2" '
        $1 == "id:" { on = $2 == id }
        on && /^[ -]/ { old = old substr($0, 2) "\n" }
        on && /^[ +]/ { new = new substr($0, 2) "\n" }
        END {
            while ((getline line < file) > 0) text = text line "\n"
            at = index("\n" text, "\n" old)
            behind = substr(text, at + length(old))
            if (old == "" || old == new || !at || index("\n" behind, "\n" old)) exit 1
            printf "%s%s%s", substr(text, 1, at - 1), new, behind
        }' qemu-test/mutants/*.mutants
}

check() { # id...
    wrong=0
    for id in "$@"; do
        file=$(field "$id" file)
        change "$id" "$file" >/dev/null || { say "$id does not fit $file"; wrong=1; }
        for test in $(field "$id" tests | sed 's/^-p [^ ]* //'); do
            grep -rqw "fn $test" common userland qemu-test/guest/src ||
                { say "$id: there is no test $test"; wrong=1; }
        done
    done
    [ "$wrong" = 0 ] || die "change these mutants to what the sources are now"
}

# The sources as they are now, in a folder that has its own build.
snapshot() {
    mkdir -p "$tree"
    find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    git ls-files -z -co --exclude-standard |
        tar -c --null -T - --ignore-failed-read | tar -xm -C "$tree"
}

# Whether its tests pass: 0 or 1.
run() { # log tests
    log=$1
    shift
    if [ "$1" = -p ]; then
        "$tree/scripts/cargo.sh" test --no-run "$@" >"$log" 2>&1 </dev/null ||
            die "it does not compile: $log"
        timeout 600 "$tree/scripts/cargo.sh" test "$@" >"$log" 2>&1 </dev/null || return 1
        return 0
    fi
    NSPROBE_MUTANT=1 "$tree/scripts/kmod.sh" >"$log" 2>&1 || die "it does not compile: $log"
    rm -rf "$work/payload"
    cp -al build/payload "$work/payload"
    rm "$work/payload/nsprobe.ko"
    cp "$tree/build/kmod/nsprobe.ko" "$work/payload/"
    status=0
    "$runner" --payload "$work/payload" test --only "$(echo "$@" | tr ' ' ,)" \
        >"$log" 2>&1 </dev/null || status=$?
    [ "$status" -le 1 ] || die "the tests did not run: $log"
    return "$status"
}

all=$(awk '$1 == "id:" { print $2 }' qemu-test/mutants/*.mutants)
if [ "${1:-}" = --check ]; then
    # shellcheck disable=SC2086 # a list of words
    check $all
    exit
fi
# shellcheck disable=SC2046,SC2086
case ${1:-} in
'') set -- $all ;;
--part) set -- $(echo "$all" | awk -v k="${2%/*}" -v n="${2#*/}" 'NR % n == k % n') ;;
esac
[ $# != 0 ] || die "there is no such part"
lock "$work/lock"
check "$@"
snapshot
survived=0
for id in "$@"; do
    file=$tree/$(field "$id" file)
    cp "$file" "$work/before"
    change "$id" "$work/before" >"$file"
    # shellcheck disable=SC2046 # a list of words
    if run "$work/$id.log" $(field "$id" tests); then
        echo "SURVIVED $id"
        survived=1
    else
        by=$(sed -n 's/^test \([^ ]*\).* FAILED$/\1/p
            s/^failed: \([a-z0-9_]*\) .*/\1/p' "$work/$id.log" | sort -u | paste -sd' ')
        echo "caught $id by ${by:-its end: $(tail -n 1 "$work/$id.log")}"
    fi
    # With a new time: it has to be built again.
    cp "$work/before" "$file"
done
exit $survived
