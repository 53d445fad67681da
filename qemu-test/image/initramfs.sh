#!/bin/busybox sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=dash
# First program of the guest: loads the disk's modules, mounts the root and the
# payload, and hands over to the payload's init. It knows nothing else, so that
# a change of the tests never means a new image.

/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys

# scripts/accel.sh only wants to know whether this accelerator gets here.
if grep -q nsprobe.probe /proc/cmdline; then
    echo '<1>nsprobe-guest: up' >/dev/kmsg
    poweroff -f
fi

while read -r module; do
    insmod "/modules/$module"
done </modules/order

mount -t ext4 -o rw /dev/vda /root
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose payload /root/payload
for folder in dev proc sys; do
    mount -o move "/$folder" "/root/$folder"
done
exec switch_root /root /payload/init
