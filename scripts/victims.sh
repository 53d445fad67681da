#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compiles the guest's victims with the guest's own compiler and C library.
#
# Inputs:  FOLDER; qemu-test/victims/*.c and *.cc. A line "flags: …" in a
#          file's first comment is given to the compiler after the defaults.
# Outputs: FOLDER/NAME for each NAME.c. Only what is older than its source, or than the
#          header, is made again.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
folder=$1
sources=$PROJECT/qemu-test/victims

header=$sources/orders.h
stale=
for file in "$sources"/*.c; do
    [ -e "$file" ] || continue
    program=$folder/$(basename "$file" .c)
    # shellcheck disable=SC3013 # dash has it, and POSIX since 2024
    { [ "$program" -nt "$file" ] && [ "$program" -nt "$header" ]; } || stale="$stale $file"
done
[ -n "$stale" ] || exit 0

sdk=$("$PROJECT/scripts/sdk.sh" root)
for file in $stale; do
    flags=$(sed -n '1,10s/^.*flags: *//p' "$file")
    # shellcheck disable=SC2086 # lists of words
    "$PROJECT/scripts/enter.sh" "$sdk/root" "$PROJECT" "$PROJECT" gcc-14 -O2 -g -Wall -Wextra \
        -o "$folder/$(basename "$file" .c)" "$file" $flags
done
