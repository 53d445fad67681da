#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of Debian with the debug information that was stripped from them, of which many
# addresses are named by others, too: libc, and a server in C++.
#
# Inputs:  the host's apt; CACHE.
# Outputs: their paths, with a colon after each. They are fetched once, and not installed.
#          When apt does not have a package, or a program and its debug file do not fit,
#          nothing is kept and the status is 69: the tests have no other such files.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# Package, package of its debug information, end of its path, name of the joined file.
programs="libc6 libc6-dbg lib/x86_64-linux-gnu/libc.so.6 libc
dibbler-server dibbler-server-dbg bin/dibbler-server dibbler-server"
# What is fetched and how: another list, another folder.
folder=$CACHE/debian-files-$(echo "1 $programs" | digest)

mkdir -p "$CACHE"
lock "$CACHE/debian-files.lock"
LOG=$folder.log
need_tools eu-unstrip:elfutils readelf:binutils dpkg-deb:dpkg

fetch() { # package...
    (cd "$folder.new" && apt-get download -q "$@") >>"$LOG" 2>&1
}

# The file of a program, and its debug file, as one. Of two versions they do not fit.
join() { # file name
    id=$(readelf -n "$1" | sed -n 's/.*Build ID: //p')
    rest=${id#??}
    debug=$folder.new/root/usr/lib/debug/.build-id/${id%"$rest"}/$rest.debug
    eu-unstrip "$1" "$debug" -o "$folder.new/$2" >>"$LOG" 2>&1 ||
        die "$2 ($id) and its debug file $debug do not fit: see $LOG" \
            "is the host's apt up to date, with the same version of both packages?"
    readelf -SW "$folder.new/$2" | grep -q ' \.debug_info ' ||
        die "$2 has no debug information after eu-unstrip has joined it: see $LOG"
}

make_folder() {
    rm -rf "$folder.new"
    mkdir -p "$folder.new/root"
    # shellcheck disable=SC2046 # a list of words
    set -- $(echo "$programs" | cut -d' ' -f1,2)
    fetch "$@" || { apt-get update >>"$LOG" 2>&1 && fetch "$@"; } ||
        die "apt cannot fetch all of $*: see $LOG"
    for package in "$folder.new"/*.deb; do
        dpkg-deb -x "$package" "$folder.new/root"
    done
    echo "$programs" | while read -r _ _ file name; do
        path=$(find "$folder.new/root" -path "$folder.new/root/usr/lib/debug" -prune -o \
            -type f -path "*$file" -print | head -n 1)
        [ -n "$path" ] || die "there is no $file in the packages $*"
        join "$path" "$name"
    done
    rm -rf "$folder.new/root" "$folder.new"/*.deb
    mv "$folder.new" "$folder"
}

[ -e "$folder" ] || make_folder
count=0
for name in $(echo "$programs" | cut -d' ' -f4); do
    [ -f "$folder/$name" ] || die "$folder lacks $name: remove the folder, and run this again"
    printf '%s:' "$folder/$name"
    count=$((count + 1))
done
[ "$count" -ge 2 ] || die "only $count programs have been made in $folder"
