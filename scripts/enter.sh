#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs a command inside a Debian root made by the other scripts.
#
# Inputs:  ROOT BINDS FOLDER COMMAND…: BINDS are folders of the host, separated
#          by blanks, seen inside at their own paths; FOLDER is where it runs.
# Outputs: those of the command. The mounts live in a namespace of the
#          command's own and end with it, however it ends.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# shellcheck disable=SC2016 # expanded by the inner shells
as_root sh -euc '
    root=$1 binds=$2
    shift 2
    # A mount of its own, as some programs remount what they see as /.
    mount --bind "$root" "$root"
    mount --rbind /proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount -t tmpfs tmpfs "$root/run"
    # The network as the host knows it, for cargo.
    for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || [ ! -e "$root$file" ] || mount --bind "$file" "$root$file"
    done
    for bind in $binds; do
        mkdir -p "$root$bind"
        mount --bind "$bind" "$root$bind"
    done
    PATH=/usr/sbin:/usr/bin:/sbin:/bin
    exec chroot "$root" /bin/sh -euc "cd \"\$1\"; shift; exec \"\$@\"" sh "$@"
' sh "$@"
