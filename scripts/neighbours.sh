#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Ordinary programs of Debian's, each with a small job, alone and while nsprobe traces them
# (qemu-test/neighbours): does any of them do something else?
#
# Inputs:  KVER, CACHE, MIRROR; packages as arguments (all of them); build/payload and the
#          runner, as `make payload` builds them.
# Outputs: build/neighbours/rows.json, a line a job; docs/neighbours.md, unless packages were
#          named. A run that was interrupted goes on behind the jobs that are done, as long as the
#          sources are the same. Status 1 when a job was not the same.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$PROJECT"
need_payload
jobs=$PROJECT/qemu-test/neighbours

# The packages of the jobs, and what the driver needs.
packages=$(sed -n 's/^package: //p' "$jobs/jobs" | paste -sd,)
TOOLS=python3,binutils,libc-bin,procps,util-linux,iproute2,kmod,media-types
guest=$(scripts/image.sh)
key=$({ sed -n '/^make_guest()/,/^}/p' "$0"; echo "$packages $TOOLS"; cat "$jobs/Job.java"; basename "$guest"; } | digest)
neighbours=$CACHE/neighbours/$KVER-$key

# A guest of the tests' kernel whose root has the packages.
make_guest() {
    new=$neighbours.new
    LOG=$neighbours.log
    lock "$neighbours.lock"
    [ ! -e "$neighbours" ] || return 0
    need_tools mmdebstrap:mmdebstrap mke2fs:e2fsprogs unshare:util-linux newuidmap:uidmap
    need_space "$CACHE/neighbours" 12
    mkdir -p "$new"
    if [ ! -e "$new/root" ]; then
        say "Debian 13 with ${packages%%,*} and the other packages (some minutes)"
        as_root rm -rf "$new/root.part"
        logged debootstrap_root "$new/root.part" minbase "$packages,$TOOLS" trixie
        mv "$new/root.part" "$new/root"
    fi
    sdk=$("$PROJECT/scripts/sdk.sh" root)
    release=$(cat "$sdk/kver")
    # shellcheck disable=SC2016 # expanded by the inner shell
    logged as_root sh -euc '
        root=$1/root jobs=$2 busybox=$3 modules=$4
        mkdir -p "$root/payload" "$root/out" "$root/jobs" "$root/$modules"
        cp "$busybox" "$root/bin/busybox"
        cp "$jobs/Job.java" "$root/jobs/"
        awk "BEGIN { for (i = 0; i < 20000; i++) printf \"w%d %d\n\", i * 7919 % 1009, i * 31 % 997 }" \
            >"$root/jobs/input.txt"
        : >"$root/etc/machine-id"
    ' sh "$new" "$jobs" "$sdk/root/bin/busybox" "usr/lib/modules/$release"
    logged "$PROJECT/scripts/enter.sh" "$new/root" "" /jobs javac Job.java
    # shellcheck disable=SC2016 # expanded by the inner shell
    logged as_root sh -euc '
        root=$1/root
        rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/dev/* \
            "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
        mke2fs -q -F -t ext4 -O ^has_journal -m 0 -E root_owner=0:0 -d "$root" "$1/root.ext4" 10G
        rm -rf "$root"
    ' sh "$new"
    cp "$guest/vmlinuz" "$guest/initramfs.cpio" "$guest/kver" "$new/"
    mv "$new" "$neighbours"
    say "ready: $neighbours"
}
[ -e "$neighbours" ] || make_guest

results=$PROJECT/build/neighbours
mkdir -p "$results/payload"
made=$(cat build/payload/sources)
[ "$(cat "$results/made" 2>/dev/null)" = "$made" ] || rm -f "$results/rows.json"
echo "$made" >"$results/made"
touch "$results/rows.json"
cp -a build/payload/. "$results/payload/"
cp "$jobs/jobs" "$jobs/neighbours.py" "$results/payload/"

# The jobs that have no row yet.
wanted=$*
[ -n "$wanted" ] || wanted=$(sed -n 's/^package: \([^,]*\).*/\1/p' "$jobs/jobs" | while read -r package; do
    grep -q "\"package\": \"$package\"" "$results/rows.json" || echo "$package"
done)

run=build/cargo/x86_64-unknown-linux-gnu/release/nsprobe-qemu-run
# Each in a guest of its own: what one leaves behind is no other's.
for package in $wanted; do
    # shellcheck disable=SC2016 # expanded in the guest
    SMP=2 MEMORY=3G "$run" --guest "$neighbours" --payload "$results/payload" --timeout 5400 --silence 3600 \
        exec -- sh -euc '
            insmod /payload/nsprobe.ko
            python3 /payload/neighbours.py /payload/jobs /payload/nsprobe /tmp/rows.json "$1"
            sed "s/^/row: /" /tmp/rows.json
            rmmod nsprobe
        ' sh "$package" >"$results/$package.log" 2>&1 ||
        say "$package: the guest did not end well: $results/$package.log"
    row=$(sed -n 's/^row: //p' "$results/$package.log" | tail -n 1)
    [ -n "$row" ] || row=$(printf '{"package": "%s", "outcome": "the guest did not end well"}' "$package")
    grep -v "\"package\": \"$package\"" "$results/rows.json" >"$results/rows.new" || true
    echo "$row" >>"$results/rows.new"
    mv "$results/rows.new" "$results/rows.json"
    say "$package: $(echo "$row" | sed -n 's/.*"outcome": "\(.\{0,200\}\).*/\1/p')"
done

[ $# -gt 0 ] || "$PROJECT/scripts/neighbours-table.py" "$jobs/jobs" "$results/rows.json" \
    "$(cat "$neighbours/kver")" "$(git rev-parse --short=12 HEAD)" >docs/neighbours.md
! grep -vq '"outcome": "same"' "$results/rows.json"
