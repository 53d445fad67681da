#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Boots the guest. The one place that knows QEMU's flags.
#
# Inputs:  GUEST ACCEL KERNEL-LOG APPEND QEMU-ARGUMENT…: the image's folder,
#          "kvm", "tcg", "turns" or "icount", the file for the kernel's console, words for its
#          command line; SMP, MEMORY and TSC_KHZ, how fast the host's time stamp counter
#          counts, from the environment.
# Outputs: hvc0, the guest's terminal, on stdin and stdout; KERNEL-LOG.
#          QEMU takes this process's place, so a signal to it ends the guest.
set -eu
# What the guest measures by QEMU's timers may be wrong by far when the host is busy.
clock="tsc=reliable${TSC_KHZ:+ tsc_early_khz=$TSC_KHZ}"
guest=$1 accel=$2 log=$3 append=$4
shift 4

case $accel in
kvm) set -- -accel kvm "$@" ;;
icount)
    # The guest's clock counts instructions, so a measurement repeats: one CPU only.
    SMP=1
    set -- -accel tcg,thread=single -icount shift=0,sleep=off "$@"
    append="tsc=reliable $append"
    ;;
turns)
    # The guest's CPUs take turns: one that patches the kernel's text meets no other.
    set -- -accel tcg,thread=single "$@"
    append="$clock $append"
    ;;
*)
    # One host thread for each guest CPU: races between CPUs need real ones.
    set -- -accel tcg,thread=multi "$@"
    # On a busy host TCG's clock looks unstable, and the kernel would patch
    # itself to do without it; such patching now and then kills it under TCG.
    # And its timer looks dead when QEMU gets no CPU for some ticks of the boot.
    append="$clock no_timer_check $append"
    ;;
esac

# Only what is named: no network, no display, no devices that slow the boot.
set -- -nodefaults -no-user-config -display none "$@"
# Everything that the accelerator can do; the CPU's model is not under test. But under TCG
# `rep stosb`, by which a kernel that sees ERMS clears pages, takes a round for each byte, and
# tables of five levels take a look more for each miss of the TLB: together a quarter of all
# time. SMAP takes a tenth, by a TLB of its own for copies of users' memory; guests of several
# CPUs have it, in which the tests of the module run but for those that need a stock guest.
cpu=max
case $accel-${SMP:-2} in
tcg-1) cpu=max,-erms,-la57,-smap ;;
tcg-* | turns-*) cpu=max,-erms,-la57 ;;
esac
set -- -machine q35 -cpu "$cpu" -smp "${SMP:-2}" -m "${MEMORY:-2G}" "$@"
set -- -kernel "$guest/vmlinuz" -initrd "$guest/initramfs.cpio" "$@"
# A panic asks for a reboot: QEMU ends instead.
set -- -no-reboot "$@"
# The kernel's messages and the guest's output never mix in one stream.
set -- -chardev "file,id=kernel,path=$log" -serial chardev:kernel "$@"
set -- -device virtio-serial-pci -chardev stdio,id=terminal,signal=off \
    -device virtconsole,chardev=terminal "$@"

# panic_on_warn, oops=panic: the first trouble ends the run. panic=-1: at once.
# printk.devkmsg=on: the guest's verdict is not rate limited.
# hugepages: later, memory may be in too many pieces for two of them.
# The kernel's watchdogs go by the host's clock, and the host may be busy with other things.
# The guest ends with whoever started it, even by SIGKILL.
exec setpriv --pdeathsig KILL qemu-system-x86_64 "$@" -append \
    "console=ttyS0 panic=-1 panic_on_warn=1 oops=panic printk.devkmsg=on hugepages=2 \
rcupdate.rcu_cpu_stall_timeout=60 sysctl.kernel.watchdog_thresh=30 $append"
