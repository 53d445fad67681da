#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# In the guest: the metadata of a trace that LTTng records of events of tasks, with the dump of
# those that live.
export HOME=/root
{
    lttng-sessiond --daemonize &&
        lttng create layouts --trace-format=ctf-1.8 --output=/tmp/layouts &&
        lttng enable-event --kernel \
            sched_switch,sched_waking,sched_wakeup,sched_wakeup_new,sched_process_fork,sched_process_exec,sched_process_exit &&
        lttng enable-event --kernel 'lttng_statedump_*' &&
        lttng start
} >&2 || exit
sh -c 'true; sleep 1' &
wait
lttng destroy layouts >&2
echo "events $(babeltrace2 /tmp/layouts | wc -l)"
babeltrace2 --output-format=ctf-metadata /tmp/layouts/kernel
kill "$(cat /var/run/lttng/lttng-sessiond.pid)"
