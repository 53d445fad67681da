# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a trace with babeltrace2 and prints what it tells, as one JSON object: how many
events there are and how many were discarded, the numbers of each task in its pid namespaces
from the outermost on with the innermost's inode number, how many tasks were dumped, the states
of these, the tree of these namespaces, and what containers they are."""
import collections
import json
import sys

import bt2

counts = collections.Counter()
discarded = 0
tasks = set()
dumped = {}
dumped_count = 0
parents = {}
states = []
containers = set()
programs = set()


def close_dump():
    global dumped_count
    for inum, numbers in dumped.values():
        dumped_count += 1
        tasks.add((inum, tuple(reversed(numbers))))
    dumped.clear()


for message in bt2.TraceCollectionMessageIterator(sys.argv[1]):
    if isinstance(message, bt2._DiscardedEventsMessageConst):
        discarded += message.count
    if not isinstance(message, bt2._EventMessageConst):
        continue
    event = message.event
    fields = event.payload_field
    counts[event.name] += 1
    if event.name == "lttng_statedump_process_pid_ns":
        # The deepest level comes first.
        task = dumped.setdefault(int(fields["tid"]), (int(fields["ns_inum"]), []))
        task[1].append(int(fields["vtid"]))
        if fields["ns_level"] == 0:
            close_dump()
    elif event.name == "sched_process_fork":
        numbers = tuple(int(number) for number in fields["vtids"])
        tasks.add((int(fields["child_ns_inum"]), numbers))
    elif event.name == "nsprobe_pid_namespace":
        parents[int(fields["ns_inum"])] = int(fields["parent_ns_inum"])
    elif event.name == "lttng_statedump_process_state":
        inner = ["vtid", "vpid", "vppid", "ns_level", "ns_inum"]
        numbers = [int(fields[name]) for name in inner if name in fields]
        states.append([*(int(fields[name]) for name in ["tid", "pid", "ppid"]),
                       str(fields["name"]), numbers])
    elif event.name == "sched_process_exec":
        programs.add(str(fields["filename"]))
    elif event.name == "nsprobe_container":
        containers.add((int(fields["ns_inum"]), str(fields["name"])))

print(json.dumps({
    "counts": counts,
    "events": sum(counts.values()),
    "discarded": discarded,
    "dumped": dumped_count,
    "tasks": sorted([inum, *numbers] for inum, numbers in tasks),
    "parents": sorted(parents.items()),
    "states": states,
    "containers": sorted(containers),
    "programs": sorted(programs),
}))
