#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""docs/neighbours.md from the rows of scripts/neighbours.sh.

Usage: neighbours-table.py JOBS ROWS KERNEL COMMIT
"""

import datetime
import json
import re
import sys

jobs, rows, kernel, commit = sys.argv[1:]
order = [name.split(",")[0] for name in re.findall(r"^package: (.+)$", open(jobs).read(), re.M)]
found = {row["package"]: row for row in map(json.loads, open(rows))}

print(f"""<!-- Written by make neighbours; qemu-test/README.md says how. -->
# Ordinary programs, while they are traced

Programs of Debian 13 that no test was written for, each with its `--version` and a small job
(`qemu-test/neighbours/jobs`), in a guest with the stock kernel: alone; while `nsprobe count` has a
breakpoint at up to 1,000 functions of its binary; the same beside tracefs' probes on the 20 that were
hit most; and while `nsprobe hist` times the calls of up to 50 functions with names, and of 20 of
libc's. "Same" means: the same status, standard output and standard error each time, all hits
accounted for, and as many hits as tracefs has.

Made on {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d} from commit {commit}, with kernel {kernel}.

| package | language | probed | hits | as tracefs has | timed | refused | calls | outcome |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |""")
for package in order:
    row = found.get(package, {"outcome": "not run"})
    cells = [str(row.get(name, "")) for name in
             ("language", "probes", "hits", "agreed", "timed", "untimed", "calls", "outcome")]
    print(f"| {package} | " + " | ".join(cell.replace("|", "\\|").replace("\n", " ")[:160] for cell in cells) + " |")
