# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads a trace with babeltrace2 and prints what it tells, as one JSON object: how many
events there are and how many were discarded, the numbers of each task in its pid namespaces
from the outermost on with the innermost's inode number, how many tasks were dumped, and the
tree of these namespaces."""
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
hits = []


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
    elif event.name.startswith("nsprobe:"):
        context = event.common_context_field
        hits.append([int(context["tid"]), int(context["vtid"]), str(context["procname"])])

print(json.dumps({
    "counts": counts,
    "events": sum(counts.values()),
    "discarded": discarded,
    "dumped": dumped_count,
    "tasks": sorted([inum, *numbers] for inum, numbers in tasks),
    "parents": sorted(parents.items()),
    "hits": hits,
}))
