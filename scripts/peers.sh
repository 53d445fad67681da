#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the peers' guest: the tests' kernel, and a Debian root with the tracers
# that nsprobe is measured against. Only make bench needs it.
#
# Inputs:  KVER, CACHE, MIRROR.
# Outputs: the guest's folder on stdout: vmlinuz, initramfs.cpio, root.ext4, kver,
#          versions ("package version" a line) and root/, from which the disk was
#          made: peers' modules are compiled in it. It appears by a rename.
#
# The root is Debian sid: the newest release of each peer is the one to compare
# with, and Debian 13's SystemTap and LTTng do not know this kernel.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

PEERS=bpftrace,linux-perf,bpfcc-tools,python3-bpfcc,systemtap,lttng-tools,babeltrace2,trace-cmd
# For bench/names.sh, which runs them on the host, in this root.
NAMERS=llvm,binutils,time
# Peers' modules: LTTng's source, the kernel's compiler and its build tools' libraries.
BUILD=lttng-modules-dkms,gcc-14,make,pahole,libelf-dev,libc6-dev
GUEST=procps,iproute2,kmod,util-linux

guest=$("$PROJECT/scripts/image.sh")
sdk=$("$PROJECT/scripts/sdk.sh" root)
release=$(cat "$sdk/kver")
key=$({ cat "$0"; basename "$guest"; } | digest)
peers=$CACHE/peers/$KVER-$key
new=$peers.new
[ ! -e "$peers" ] || { echo "$peers"; exit; }

LOG=$peers.log
lock "$peers.lock"
[ ! -e "$peers" ] || { echo "$peers"; exit; }
need_tools mmdebstrap:mmdebstrap mke2fs:e2fsprogs unshare:util-linux newuidmap:uidmap
need_space "$CACHE/peers" 8
mkdir -p "$new"

if [ ! -e "$new/root" ]; then
    say "Debian sid with the peers (about 2 minutes)"
    as_root rm -rf "$new/root.part"
    logged debootstrap_root "$new/root.part" minbase "$PEERS,$NAMERS,$BUILD,$GUEST" sid
    mv "$new/root.part" "$new/root"
fi
# shellcheck disable=SC2016 # dpkg's own placeholders
"$PROJECT/scripts/enter.sh" "$new/root" "" / dpkg-query -W -f '${Package} ${Version}\n' \
    bpftrace linux-perf bpfcc-tools systemtap lttng-tools lttng-modules-dkms babeltrace2 \
    trace-cmd llvm binutils >"$new/versions"

say "the kernel's headers and modules"
# shellcheck disable=SC2016 # expanded by the inner shell
logged as_root sh -euc '
    from=$1/root root=$2/root release=$3
    modules=usr/lib/modules/$release
    mkdir -p "$root/$modules" "$root/payload" "$root/out" "$root/bench"
    cp -a "$from/$modules"/modules.* "$root/$modules/"
    for part in "$from"/usr/src/linux-headers-* "$from"/usr/lib/linux-kbuild-*; do
        cp -a "$part" "$root/${part#"$from"/}"
    done
    for link in build source; do cp -a "$from/$modules/$link" "$root/$modules/"; done
    cp "$from/bin/busybox" "$root/bin/busybox"
    : >"$root/etc/machine-id"
' sh "$sdk" "$new" "$release"

# What does not build is left out: its rows in the table say so.
say "LTTng's modules (about 2 minutes)"
# shellcheck disable=SC2016 # expanded by the inner shell
"$PROJECT/scripts/enter.sh" "$new/root" "" / sh -euc '
    release=$1
    cd /usr/src/lttng-modules-*
    make -s -j"$(nproc)" CC=gcc-14 KERNELDIR="/lib/modules/$release/build" modules
    make -s CC=gcc-14 KERNELDIR="/lib/modules/$release/build" INSTALL_MOD_STRIP=1 modules_install
    make -s KERNELDIR="/lib/modules/$release/build" clean
' sh "$release" >>"$LOG" 2>&1 || say "LTTng's modules do not build for $release: see $LOG"
logged "$PROJECT/scripts/enter.sh" "$new/root" "" / depmod "$release"

# shellcheck disable=SC2016 # expanded by the inner shell
logged as_root sh -euc '
    root=$1/root
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/dev/* \
        "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/*
    mke2fs -q -F -t ext4 -O ^has_journal -m 0 -E root_owner=0:0 -d "$root" "$1/root.ext4" 6G
' sh "$new"
cp "$guest/vmlinuz" "$guest/initramfs.cpio" "$guest/kver" "$new/"
mv "$new" "$peers"
say "ready: $peers"
echo "$peers"
