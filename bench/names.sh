#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# What names cost: the same pseudo-random addresses of files, named by nsprobe and by its peers
# of the peers' root, one after the other, on this host.
#
# Inputs:  FILE...: programs with debug information (by default the debug build of nsprobe);
#          ADDRESSES, ROUNDS (environment). blazecli is taken from the PATH (cargo install
#          blazecli). UPDATE=1 writes bench/NAMES.md, too. SMOKE=1: as in run.sh, few addresses.
# Outputs: the tables on stdout; the measured lines in build/bench/names.txt.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/../scripts/lib.sh"
cd "$PROJECT"
[ -z "${SMOKE:-}" ] || ADDRESSES=${ADDRESSES:-2000}
ROUNDS=${ROUNDS:-${SMOKE:-5}}
# shellcheck source=bench/boot.sh
. bench/boot.sh
count=${ADDRESSES:-100000}
release=build/cargo/x86_64-unknown-linux-gnu/release
scripts/cargo.sh build --quiet --release -p nsprobe-symbolize -p nsprobe-worker --example names --example cost
if [ $# = 0 ]; then
    scripts/cargo.sh build --quiet -p nsprobe
    set -- build/cargo/x86_64-unknown-linux-gnu/debug/nsprobe
fi
work=$PROJECT/build/bench-names
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
cp "$release/nsprobe" "$release/examples/cost" "$work/"
if blazecli=$(command -v blazecli); then
    cp "$blazecli" "$work/blazecli"
    echo "blazecli $("$blazecli" --version | tail -n 1 | cut -d' ' -f2)" >>"$results/about.txt"
fi
out=$results/names.txt
: >"$out"

# perf finds what it samples by in /sys.
inside() { scripts/enter.sh "$peers/root" "$work /sys" "$work" "$@"; }

# One round of a tool with some of the addresses; what it took.
timed() { # peer part addresses command...
    peer=$1 part=$2 asked=$3
    shift 3
    head -n "$asked" "$input" >"$work/asked"
    if inside /usr/bin/time -q -o "$work/time" -f '%e %U %S %M' timeout 300 "$@" <"$work/asked" \
        >"$work/named" 2>"$work/errors" && [ -s "$work/named" ]; then
        echo "name $peer $part $asked $(cat "$work/time") $(wc -l <"$work/named")" >>"$out"
    else
        echo "failed name $peer $part $(tail -n 1 "$work/errors" | cut -c1-200)" >>"$out"
        return 1
    fi
}

# The same rounds give the first name and all: a start is in both.
tool() { # peer part program command...
    peer=$1 part=$2 program=$3
    shift 3
    if ! inside sh -c "command -v '$program' >/dev/null || test -x '$work/$program'"; then
        echo "absent names $peer $part $program is not installed here" >>"$out"
        return 0
    fi
    for _ in $(seq "$ROUNDS"); do
        { timed "$peer" "$part" 1 "$@" && timed "$peer" "$part" "$count" "$@"; } || return 0
    done
}

# Where an address is in the file: build-id and offset, as nsprobe symbolize asks for them.
offsets() { # file
    id=$(readelf -n "$1" 2>/dev/null | sed -n 's/.*Build ID: //p')
    readelf -lW "$1" | awk -v id="$id" '
        function number(text,    n, i) {
            text = tolower(text); sub(/^0x/, "", text); n = 0
            for (i = 1; i <= length(text); i++) n = n * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
            return n
        }
        FNR == NR { if ($1 == "LOAD") { offset[++n] = number($2); at[n] = number($3); bytes[n] = number($5) } next }
        { a = number($1)
          for (i = 1; i <= n; i++) if (a >= at[i] && a < at[i] + bytes[i]) printf "%s %.0f\n", id, a - at[i] + offset[i] }
    ' - "$work/addresses"
}

all_of() { # file part
    input=$work/places
    mkdir -p "$work/dir"
    ln -f "$1" "$work/dir/file"
    offsets "$1" >"$work/places"
    tool nsprobe "$2" ./nsprobe ./nsprobe symbolize --debug-dir "$work/dir"
    input=$work/addresses
    symbols=
    [ "$2" != symbols ] || symbols=1
    tool blazecli "$2" blazecli xargs -s 2000000 -n "$count" ./blazecli symbolize elf \
        ${symbols:+--no-debug-syms} -p "$1"
    tool llvm-symbolizer "$2" llvm-symbolizer llvm-symbolizer ${symbols:+--no-inlines} ${symbols:---inlines} -f -e "$1"
    [ -n "$symbols" ] || tool addr2line "$2" addr2line addr2line -i -f -e "$1"
}

# perf's script, of places where the program itself was sampled while it named.
perf_script() { # file
    "$1" symbolize --help >/dev/null 2>&1 || {
        echo "absent names perf debug the file is no nsprobe that could be sampled" >>"$out"
        return 0
    }
    inside perf record -q -e cpu-clock -F 15000 -o "$work/perf.data" "$1" symbolize --debug-dir "$work/dir" \
        <"$work/places" >/dev/null 2>"$work/errors" || {
        echo "failed name perf debug $(tail -n 1 "$work/errors" | cut -c1-200)" >>"$out"
        return 0
    }
    inside perf script -i "$work/perf.data" -F ip --comms "$(basename "$1")" 2>/dev/null | sort -u >"$work/sampled"
    # A run that does not end in time is counted by what it had named until then.
    inside /usr/bin/time -q -o "$work/time" -f '%e %U %S %M' timeout 150 \
        perf script -i "$work/perf.data" -F ip,sym,srcline >"$work/named" 2>/dev/null || :
    echo "name perf debug $(awk '/^ *[0-9a-f]+ /{ if (!seen[$1]++) n++ } END { print n + 0 }' "$work/named") $(tail -n 1 "$work/time") 0" >>"$out"
}

number=0
for file in "$@"; do
    number=$((number + 1))
    cp "$file" "$work/program"
    echo "file $number $(basename "$file") $(stat -c %s "$file")" >>"$out"
    "$release/examples/names" addresses "$file" "$count" >"$work/addresses"
    all_of "$work/program" debug
    # The child that trace and record ask, and the same in one process.
    "$work/cost" "$work/nsprobe" "$work/program" "$count" |
        sed -n 's/^\(a child\|ourselves\): names\(, all at once\)\{0,1\}: \([0-9]*\) in .*; \([0-9.]*\) us.*/child \1 \3 \4/p' |
        sed 's/a child/child/' >>"$out"
    perf_script "$work/program"
    objcopy --strip-debug "$work/program" "$work/symbols"
    all_of "$work/symbols" symbols
done
tabulate names "$out"
finish
[ -z "${UPDATE:-}" ] || sed "s|$PROJECT/||g" "$results/names.md" >bench/NAMES.md
