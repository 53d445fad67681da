#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# In the guest: what a pair of malloc and free costs under `nsprobe leak`, with and without
# --sample, under bcc's memleak, and with bare consumers where nsprobe's breakpoints are. Lines as
# pairs.c prints them, and "told PEER TEXT", the last line of what the tool itself reported.
#
# Inputs:  PAIRS, ROUNDS (environment).
PATH=/payload:$PATH
# The module does not probe files of 9p.
PROGRAM=/bench/pairs
mkdir -p /bench && cp /payload/bench/pairs /bench/ || exit
export OUT=/tmp/tool.out NSPROBE_CACHE=/tmp/rows DEBUGINFOD_URLS=
mkdir -p "$NSPROBE_CACHE"
insmod /payload/nsprobe.ko && insmod /payload/bench/bare.ko || exit
mount -t configfs none /sys/kernel/config 2>/dev/null

measure() { # peer tool
    : >"$OUT"
    "$PROGRAM" "$1" "$2" | tee /tmp/pairs || echo "failed $1 $(tail -n 1 "$OUT")"
    echo "told $1 $(grep -v '^ *$' "$OUT" | tail -n 1)"
}

measure none none
# shellcheck disable=SC2016 # pairs sets it
measure nsprobe 'exec nsprobe leak -p $SUBJECT --top 1'
places=$(sed -n 's/^place //p' /tmp/pairs | tr '\n' ' ')
# shellcheck disable=SC2016
measure nsprobe-sample 'exec nsprobe leak -p $SUBJECT --top 1 --sample 512K'
measure bare "bare $places"
# shellcheck disable=SC2016
measure memleak 'exec /payload/bench/run_bcc.py memleak-bpfcc -p $SUBJECT -T 1 3600'
echo "done pairs"
