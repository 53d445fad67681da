#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Says how the guest runs here: "kvm" or "tcg".
#
# Inputs:  GUEST: the image's folder; ACCEL: kvm, tcg, turns, icount or auto (the
#          default).
# Outputs: one word on stdout. /dev/kvm may exist and still be unable to run a
#          stock kernel (nested hosts), so auto boots the kernel once with a
#          time limit and keeps the answer until the host boots again.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
guest=$1

case ${ACCEL:-auto} in
kvm | tcg | turns | icount) echo "$ACCEL"; exit ;;
auto) ;;
*) die "ACCEL is kvm, tcg, turns, icount or auto, not $ACCEL" ;;
esac
if [ ! -w /dev/kvm ]; then echo tcg; exit; fi

boot=$(cat /proc/sys/kernel/random/boot_id)
answer=$guest/accel
lock "$answer.lock"
if [ "$(cut -d' ' -f1 "$answer" 2>/dev/null)" != "$boot" ]; then
    trace=$(mktemp -d)
    trap 'rm -rf "$trace"' EXIT
    accel=tcg
    : >"$trace/console"
    : >"$trace/errors"
    timeout -k 1 10 "$PROJECT/scripts/qemu.sh" "$guest" kvm "$trace/console" nsprobe.probe \
        </dev/null >/dev/null 2>"$trace/errors" &
    # It ends by itself; this only notices sooner.
    while kill -0 $! 2>/dev/null; do
        ! grep -q 'nsprobe-guest: up' "$trace/console" || { accel=kvm && break; }
        ! grep -q 'KVM internal error' "$trace/errors" || break
        sleep 0.1
    done
    kill $! 2>/dev/null || true
    wait $! 2>/dev/null || true
    [ "$accel" = kvm ] || say "KVM is here and cannot run this kernel: using TCG"
    echo "$boot $accel" >"$answer"
fi
cut -d' ' -f2 "$answer"
