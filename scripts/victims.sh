#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compiles the guest's victims with the guest's own compilers and C library.
#
# Inputs:  FOLDER, and names of victims, all by default; qemu-test/victims/*.c, *.cc and *.go.
#          In C and C++ a line "flags: …" in a file's first comment is given to the compiler
#          after the defaults, and a line "musl: …" in the same way, for that C library as well.
# Outputs: FOLDER/NAME for each source, FOLDER/NAME_musl and that library. Only what is
#          older than its source, or than a header, is made again.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
folder=$1
shift
only=" $* "
sources=$PROJECT/qemu-test/victims
cache=$CACHE/go-build
MUSL=/lib/ld-musl-x86_64.so.1

# What a source says after "WORD:".
words() { # word file
    sed -n "1,10s/^.*$1: *//p" "$2"
}

# What makes each, a line a program.
commands() {
    for file in "$sources"/*.c "$sources"/*.cc "$sources"/*.go; do
        name=$(basename "$file")
        program=$folder/${name%.*}
        case $only in "  " | *" ${name%.*} "*) ;; *) continue ;; esac
        # shellcheck disable=SC3013 # dash has it, and POSIX since 2024
        [ "$program" -nt "$file" ] && [ "$program" -nt "$PROJECT/include/nsprobe.h" ] &&
            [ -z "$(find "$sources" -name '*.h' -newer "$program")" ] && continue
        case $name in
        *.go) echo "go build -o $program $file" ;;
        *)
            compiler=gcc-14
            [ "${name##*.}" = c ] || compiler=g++-14
            echo "$compiler -O2 -g -Wall -Wextra -o $program $file $(words flags "$file")"
            musl=$(words musl "$file")
            [ -z "$musl" ] || echo "musl-gcc -O2 -g -o ${program}_musl $file $musl && cp $MUSL $folder/"
            ;;
        esac
    done
}

all=$(commands)
[ -n "$all" ] || exit 0
sdk=$("$PROJECT/scripts/sdk.sh" root)
mkdir -p "$cache"
echo "$all" | "$PROJECT/scripts/enter.sh" "$sdk/root" "$PROJECT $cache" "$PROJECT" \
    env GOCACHE="$cache" GOPATH=/tmp/go GO111MODULE=off GOTOOLCHAIN=local GOFLAGS=-trimpath \
    CGO_ENABLED=0 xargs -d '\n' -n 1 -P "$(nproc)" sh -c
