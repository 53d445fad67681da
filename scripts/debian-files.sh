#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of Debian with the debug information that was stripped from them, of which many
# addresses are named by others, too: libc, and a server in C++.
#
# Inputs:  the host's apt; CACHE.
# Outputs: their paths, with a colon behind each. Those that apt does not have are told on
#          stderr and left out. They are fetched once, and not installed.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
folder=$CACHE/debian-files
packages="libc6 libc6-dbg dibbler-server dibbler-server-dbg"

mkdir -p "$CACHE"
lock "$folder.lock"
LOG=$folder.log
need_tools eu-unstrip:elfutils llvm-symbolizer:llvm addr2line:binutils dpkg-deb:dpkg

# shellcheck disable=SC2086 # a list of words
fetch() {
    (cd "$folder.new" && apt-get download -q $packages) >>"$LOG" 2>&1
}

# The file of a program, and its debug file, as one. Of two versions they do not fit.
join() { # path name
    id=$(readelf -n "$folder.new/root/$1" | sed -n 's/.*Build ID: //p')
    rest=${id#??}
    debug=$folder.new/root/usr/lib/debug/.build-id/${id%"$rest"}/$rest.debug
    eu-unstrip "$folder.new/root/$1" "$debug" -o "$folder.new/$2" >>"$LOG" 2>&1 ||
        say "$1 and its debug package do not fit: its names are not compared"
}

if [ ! -e "$folder" ]; then
    rm -rf "$folder.new"
    mkdir -p "$folder.new/root"
    if ! fetch && ! { apt-get update >>"$LOG" 2>&1 && fetch; }; then
        say "apt does not have $packages: their names are not compared"
        exit 0
    fi
    for package in "$folder.new"/*.deb; do
        dpkg-deb -x "$package" "$folder.new/root"
    done
    libc=$(cd "$folder.new/root" && find . -name libc.so.6 | head -n 1)
    join "$libc" libc
    join usr/sbin/dibbler-server dibbler-server
    rm -rf "$folder.new/root" "$folder.new"/*.deb
    mv "$folder.new" "$folder"
fi
for file in "$folder"/*; do
    [ ! -f "$file" ] || printf '%s:' "$file"
done
