#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the jobs of the file beside it, in the guest, alone and while nsprobe traces them.

Usage: neighbours.py JOBS NSPROBE OUT [PACKAGE...]

Each job runs twice alone, which must give the same output and status; then
  count    with a breakpoint at up to 1,000 functions of its binary (where the unwind table has
           them begin, as most of Debian's programs are stripped),
  witness  the same, beside tracefs' probes on the 20 of them that were hit most, which must have
           as many hits,
  hist     with the calls timed of up to 50 of its functions that have a name, and of 20 of libc's.
Each time output and status must be those of the job alone. One line of JSON a job goes to OUT.
"""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

TRACEFS = "/sys/kernel/tracing"
LIBC = "/usr/lib/x86_64-linux-gnu/libc.so.6"
LIBC_FUNCTIONS = """malloc free calloc realloc open64 close read write fopen64 fclose fwrite fread
    getenv qsort strtol snprintf fflush mmap munmap pthread_mutex_lock""".split()
PROBES_MAX = 1000
WITNESSES = 20
TIMED = 50
# A job takes a second or ten alone, under QEMU; with a thousand probes in what it does most, more.
JOB_SECONDS = 600
# Refused places are dropped one by one.
REFUSED_MAX = 60
WORK = "/tmp/neighbour"
# A process that runs the binary of a job must be of the job: the interpreter of this file runs
# from a copy.
SELF = "/tmp/neighbours-python"


def jobs_of(path):
    """The stanzas of the jobs' file."""
    stanza = {}
    for line in open(path).read().split("\n") + [""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if stanza:
                yield stanza
            stanza = {}
            last = None
        elif line[0].isspace() or ": " not in line or line.split(": ")[0] not in FIELDS:
            stanza[last] += "\n" + line
        else:
            last, value = line.split(": ", 1)
            stanza[last] = value


FIELDS = ("package", "language", "binary", "version", "job")


def run(script):
    """(status, stdout, stderr) of a shell script in an empty directory and a pid namespace."""
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "/bin/sh", "-c", script]
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "HOME": WORK,
        "TZ": "UTC",
    }
    try:
        done = subprocess.run(
            command, cwd=WORK, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=JOB_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        return ("timeout", late.stdout or b"", late.stderr or b"")
    return (done.returncode, done.stdout, done.stderr)


def function_offsets(path):
    """File offsets at which the functions of .eh_frame_hdr begin (LSB 5.0, 10.6.2)."""
    data = open(path, "rb").read()
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path} is no 64-bit ELF file")
    shoff, = struct.unpack_from("<Q", data, 0x28)
    shentsize, shnum, shstrndx = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", data, shoff + i * shentsize) for i in range(shnum)]
    names = sections[shstrndx][4]
    header = None
    code = []
    for name, _, flags, address, offset, size in sections:
        called = data[names + name:data.index(b"\0", names + name)]
        if called == b".eh_frame_hdr":
            header = (address, offset)
        if flags & 4 and not called.startswith(b".plt"):
            code.append((address, offset, size))
    if header is None:
        return []
    address, offset = header
    if data[offset] != 1 or data[offset + 3] != 0x3B:
        return []
    count, = struct.unpack_from("<I", data, offset + 8)
    found = set()
    for entry in range(count):
        relative, = struct.unpack_from("<i", data, offset + 12 + 8 * entry)
        begin = address + relative
        for start, at, size in code:
            if start <= begin < start + size:
                found.add(begin - start + at)
    return sorted(found)


def spread(values, most):
    """At most so many of a list, evenly from all of it."""
    if len(values) <= most:
        return list(values)
    return [values[i * len(values) // most] for i in range(most)]


def named_functions(path):
    """Functions that a file's dynamic symbols name."""
    said = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True)
    names = re.findall(r"^[0-9a-f]+ [TW] ([\w.$]+)(?:@@?\S+)?$", said.stdout, re.M)
    return sorted({name for name in names if not name.startswith(("_init", "_fini", "_start"))})


def libraries(path):
    """Libraries of a binary but those that all programs have."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True)
    common = re.compile(r"/(ld-linux|libc|libm|libgcc_s|libstdc\+\+|libpthread|libdl|librt)[.-]")
    return [p for p in re.findall(r"=> (/\S+)", said.stdout) if not common.search(p)]


class Tracer:
    """nsprobe, while it traces."""

    def __init__(self, nsprobe, verb, specs):
        self.refused = []
        specs = list(specs)
        while True:
            self.errors = open("/tmp/nsprobe.err", "w+b")
            self.output = open("/tmp/nsprobe.out", "w+b")
            command = [nsprobe, verb, "--json", "--max-probes", str(PROBES_MAX), *specs]
            self.child = subprocess.Popen(command, stdout=self.output, stderr=self.errors)
            if self.wait_attached():
                return
            said = self.said()
            dropped = [spec for spec in specs if names(spec, said)]
            if not dropped or len(self.refused) >= REFUSED_MAX:
                raise RuntimeError(f"nsprobe {verb} does not start: {said.strip()[-400:]}")
            self.refused += dropped
            specs = [spec for spec in specs if spec not in dropped]
            if not specs:
                raise RuntimeError(f"nsprobe {verb} refuses everything: {said.strip()[-400:]}")

    def said(self):
        return open("/tmp/nsprobe.err", errors="replace").read()

    def wait_attached(self):
        for _ in range(6000):
            if re.search(r"^nsprobe: (tracing|counting)", self.said(), re.M):
                return True
            if self.child.poll() is not None:
                return False
            time.sleep(0.05)
        raise RuntimeError("nsprobe does not say that it traces: " + self.said()[-400:])

    def end(self):
        """Its rows and its summary."""
        self.child.send_signal(signal.SIGINT)
        status = self.child.wait(timeout=300)
        lines = [json.loads(line) for line in open("/tmp/nsprobe.out") if line.strip()]
        if status != 0 or not lines or lines[-1]["type"] != "summary":
            raise RuntimeError(f"nsprobe ends with {status}: {self.said()[-400:]}")
        if not lines[-1]["balanced"]:
            raise RuntimeError(f"hits are unaccounted for: {lines[-1]}")
        return lines[:-1], lines[-1]


def names(spec, said):
    """Whether an error names the place of a spec."""
    place = spec.rsplit(":", 1)[1].strip("`")
    return re.search(r"(?<![\w])" + re.escape(place) + r"(?![\w])", said) is not None


def witness(path, offsets):
    """tracefs' probes at offsets; the events' names by offset."""
    events = {}
    for number, offset in enumerate(offsets):
        name = f"n{number}"
        # Not by open(…, "a"), which looks for the end of a file that has none.
        events_file = os.open(f"{TRACEFS}/uprobe_events", os.O_WRONLY | os.O_APPEND)
        os.write(events_file, f"p:neighbours/{name} {path}:{offset:#x}\n".encode())
        os.close(events_file)
        with open(f"{TRACEFS}/events/neighbours/{name}/enable", "w") as file:
            file.write("1")
        events[name] = offset
    return events


def forget_witness():
    if os.path.isdir(f"{TRACEFS}/events/neighbours"):
        with open(f"{TRACEFS}/events/neighbours/enable", "w") as file:
            file.write("0")
        with open(f"{TRACEFS}/uprobe_events", "w") as file:
            file.write("")


def hits_of_witness(events):
    hits = {}
    for line in open(f"{TRACEFS}/uprobe_profile"):
        words = line.split()
        if words[-2] in events:
            hits[events[words[-2]]] = int(words[-1])
    return hits


def hits_by_offset(summary):
    return {int(probe["file_offset"], 16): probe["hits"] for probe in summary["probes"]}


class Differs(Exception):
    """A job does something else while it is traced."""


def same(alone, traced, verb):
    if traced == alone:
        return
    what = [n for n, a, b in zip(("status", "stdout", "stderr"), alone, traced) if a != b]
    shown = {n: (repr(a)[-300:], repr(b)[-300:])
             for n, a, b in zip(("status", "stdout", "stderr"), alone, traced) if a != b}
    raise Differs(f"{verb}: other {', '.join(what)}: {shown}")


def look(job, nsprobe):
    """The outcome of one job."""
    path = os.path.realpath(job["binary"])
    row = {"package": job["package"].split(",")[0], "language": job["language"], "binary": job["binary"]}
    script = f"{job['version']}\n{job['job']}"
    row["version"] = first_line(run(job["version"]))
    begun = time.monotonic()
    alone = run(script)
    row["seconds"] = round(time.monotonic() - begun, 1)
    if run(script) != alone:
        again = run(script)
        row["outcome"] = f"the job is not the same twice: {alone!r} {again!r}"[:600]
        return row
    row["status"] = alone[0]
    try:
        offsets = spread(function_offsets(path), PROBES_MAX)
        specs = [f"{path}:{offset:#x}" for offset in offsets]
        tracer = Tracer(nsprobe, "count", specs)
        traced = run(script)
        _, summary = tracer.end()
        row.update(probes=len(summary["probes"]), refused=len(tracer.refused), hits=summary["hits"])
        same(alone, traced, "count")
        busiest = sorted(hits_by_offset(summary).items(), key=lambda pair: -pair[1])
        offsets = [offset for offset, hits in busiest[:WITNESSES] if hits]
        row["witnesses"] = len(offsets)
        if offsets:
            refused = set(tracer.refused)
            tracer = Tracer(nsprobe, "count", [spec for spec in specs if spec not in refused])
            events = witness(path, offsets)
            traced = run(script)
            theirs = hits_of_witness(events)
            _, summary = tracer.end()
            ours = hits_by_offset(summary)
            same(alone, traced, "count beside tracefs")
            other = {f"{o:#x}": (ours[o], theirs.get(o)) for o in offsets if ours[o] != theirs.get(o)}
            row["agreed"] = sum(ours[offset] for offset in offsets)
            if other:
                raise Differs(f"nsprobe and tracefs count differently: {other}")
        named = named_functions(path)
        timed = [(path, name) for name in spread(named, TIMED)]
        for library in libraries(path):
            if len(timed) < TIMED:
                timed += [(library, name) for name in spread(named_functions(library), TIMED - len(timed))]
        timed += [(LIBC, name) for name in LIBC_FUNCTIONS]
        tracer = Tracer(nsprobe, "hist", [f"{path}:{name}" for path, name in timed])
        traced = run(script)
        rows, summary = tracer.end()
        row.update(timed=len(timed) - len(tracer.refused), untimed=len(tracer.refused),
                   calls=sum(r["count"] for r in rows if r.get("of") == "total"))
        same(alone, traced, "hist")
        row["outcome"] = "same"
    except (Differs, RuntimeError, ValueError, KeyError) as error:
        row["outcome"] = f"{type(error).__name__}: {error}"
    return row


def first_line(done):
    lines = (done[1] + done[2]).decode(errors="replace").strip().split("\n")
    return lines[0][:60]


def main():
    path, nsprobe, out, *wanted = sys.argv[1:]
    if os.path.realpath(sys.executable) != SELF:
        shutil.copy(os.path.realpath(sys.executable), SELF)
        os.execv(SELF, [SELF, "-S", *sys.argv])
    for job in jobs_of(path):
        if wanted and job["package"].split(",")[0] not in wanted:
            continue
        try:
            row = look(job, nsprobe)
        finally:
            forget_witness()
        print(f"{row['package']}: {row['outcome']}", flush=True)
        with open(out, "a") as file:
            file.write(json.dumps(row) + "\n")


main()
