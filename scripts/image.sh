#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the guest: the stock kernel, an initramfs that finds the disk, and a
# Debian 13 root with real container tools and real programs to trace.
#
# Inputs:  KVER, CACHE, MIRROR.
# Outputs: the guest's folder on stdout: vmlinuz, initramfs.cpio, root.ext4, kver.
#          The root holds the container image localhost/nsprobe-test, brought
#          in by podman itself. The folder appears by a rename when all of it is
#          there.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# Containers; programs to trace; witnesses and tools of the tests.
GUEST=podman,crun,fuse-overlayfs,systemd-container,uidmap,lxc,containerd,runc
GUEST=$GUEST,redis-server,redis-tools,sqlite3,openssl,postgresql-17,sd,shfmt
GUEST=$GUEST,nginx-light,libjemalloc2
# Readers of what the agent hands out.
GUEST=$GUEST,prometheus,protobuf-compiler,python3-protobuf,golang-github-google-pprof-dev
# Its shell's commands start without an exec: a third of the boot, under TCG.
GUEST=$GUEST,busybox-static
GUEST=$GUEST,gdb,linux-perf,bpftrace,binutils,strace,procps,iproute2,kmod
GUEST=$GUEST,binutils-gold,debuginfod,dwz,elfutils,xz-utils,babeltrace2,python3-bt2
CONTAINER=redis-server,redis-tools,procps,nodejs,dibbler-server,dibbler-server-dbg,nginx-light,libjemalloc2
BOOT_MODULES='virtio_blk ext4 9p 9pnet_virtio overlay'
GUEST_MODULES='loop veth tun fuse'

image=$PROJECT/qemu-test/image
key=$(cat "$0" "$image"/* | digest)
guest=$CACHE/guest/$KVER-$key
new=$guest.new
[ ! -e "$guest" ] || { echo "$guest"; exit; }

LOG=$guest.log
lock "$guest.lock"
[ ! -e "$guest" ] || { echo "$guest"; exit; }
need_tools mmdebstrap:mmdebstrap qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs \
    cpio:cpio setpriv:util-linux xz:xz-utils unshare:util-linux newuidmap:uidmap
need_space "$CACHE/guest" 4
rm -rf "$new/initramfs"*
mkdir -p "$new/initramfs/bin" "$new/initramfs/modules"

# What nobody reads in a test's container.
EXCLUDE='path-exclude=/usr/share/doc/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/man/*
path-exclude=/usr/share/zoneinfo/*
path-exclude=/usr/lib/x86_64-linux-gnu/gconv/*
path-exclude=/usr/lib/cni/*'
echo "$EXCLUDE" >"$new/exclude"
export DPKG_EXCLUDE="$new/exclude"

# A root that an interrupted run has finished is not made again.
debian() { # name variant packages what suite...
    [ ! -e "$new/$1" ] || return 0
    say "Debian 13 for $4"
    as_root rm -rf "$new/$1.part"
    target=$new/$1.part variant=$2 packages=$3
    shift 4
    logged debootstrap_root "$target" "$variant" "$packages" "$@"
    mv "$target" "${target%.part}"
}
plan=$("$PROJECT/scripts/kernel-version.sh")
read -r release version _ kernel_package <<END
$plan
END
echo "$release" >"$new/kver"
GUEST=$GUEST,linux-modules-$release=$version,$kernel_package=$version
debian root minbase "$GUEST" "the guest, with podman (about 40 seconds)" trixie trixie-backports
debian container essential "$CONTAINER" "the test's container, with redis (about 20 seconds)" trixie
as_root mkdir -p "$new/root/payload" "$new/root/out"
logged as_root tar -C "$new/container" --exclude=./dev/* --exclude=./var/lib/apt/* \
    --exclude=./var/cache/* --exclude=./usr/share/perl* -cf "$new/root/payload/container.tar" .

say "the kernel $release"
modules=$new/root/usr/lib/modules/$release
# One of vmlinuz and vmlinuz.unsigned: see scripts/kernel-version.sh.
logged cp "$modules"/vmlinuz* "$new/vmlinuz"

# The modules' files in the order in which they can be loaded.
files() { # module...
    # shellcheck disable=SC2016 # expanded by the inner shell
    "$PROJECT/scripts/enter.sh" "$new/root" "" / sh -euc '
        release=$1
        shift
        for module in "$@"; do modprobe -S "$release" --show-depends "$module"; done
    ' sh "$release" "$@" | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}
# shellcheck disable=SC2086 # lists of words
files $BOOT_MODULES | while read -r file; do
    plain=$(basename "$file" .xz)
    xz -dc "$new/root$file" >"$new/initramfs/modules/$plain"
    echo "$plain" >>"$new/initramfs/modules/order"
done
cp "$new/root/bin/busybox" "$new/initramfs/bin/"
install -m 755 "$image/initramfs.sh" "$new/initramfs/init"
mkdir "$new/initramfs/dev" "$new/initramfs/proc" "$new/initramfs/sys" "$new/initramfs/root"
(cd "$new/initramfs" && find . | cpio --quiet -o -H newc -R 0:0) >"$new/initramfs.cpio"

# depmod reads all modules, for minutes under TCG: those that nothing loads go.
# shellcheck disable=SC2086 # lists of words
files $BOOT_MODULES $GUEST_MODULES | sed "s|.*/modules/$release/||" >"$new/used"
# shellcheck disable=SC2016 # expanded by the inner shell
logged as_root sh -euc '
    image=$1 root=$2 modules=$3 used=$4
    (cd "$modules" && find kernel -name "*.ko*" | grep -vxFf "$used" | xargs -r rm)
    mkdir -p "$root/etc/containers"
    install -m 644 "$image/containers.conf" "$root/etc/containers/containers.conf"
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/dev/*
    : >"$root/etc/machine-id"
' sh "$image" "$new/root" "$modules" "$new/used"
logged "$PROJECT/scripts/enter.sh" "$new/root" "" / depmod "$release"
say "podman import, in the guest's root"
# Here, as it takes minutes under TCG. podman's own overlay needs a file system that can lie below
# one, which this host's may not be.
logged "$PROJECT/scripts/enter.sh" "$new/root" "" /var/lib sh -euc '
    rm -rf containers
    mkdir -p containers/storage
    mount -t tmpfs tmpfs containers/storage
    # For its locks, which the host would keep.
    mount -t tmpfs tmpfs /dev/shm
    podman import -q /payload/container.tar localhost/nsprobe-test
    cp -a containers/storage containers/imported
'
# shellcheck disable=SC2016 # expanded by the inner shell
logged as_root sh -euc '
    rm -r "$1/storage" "$2"
    mv "$1/imported" "$1/storage"
' sh "$new/root/var/lib/containers" "$new/root/payload/container.tar"
logged as_root mke2fs -q -F -t ext4 -O ^has_journal -m 0 -E root_owner=0:0 \
    -d "$new/root" "$new/root.ext4" 3G

as_root rm -rf "$new/root" "$new/container" "$new/initramfs" "$new/exclude" "$new/used"
mv "$new" "$guest"
say "ready: $guest"
echo "$guest"
