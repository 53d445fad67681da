# SPDX-License-Identifier: MIT OR Apache-2.0
# Run by gdb: stops a program at instructions, and prints each stack.
#
# Inputs:  $go, whether it is one of Go's; $places, a file of lines TIME CALLER OFFSET PATH:
#          which time it comes to an instruction, from 1 on, and where in which file that is.
#          CALLER tells of Go's
#          programs where the return address is, from which on frame pointers lead: `top`
#          of the stack, `pushed` (below the word on top), or `frame` (above the word that
#          the frame pointer points to). Of others, whose files say so to gdb, it is `-`.
# Outputs: lines `stop OFFSET PATH` on stdout, each followed by lines `frame OFFSET PATH`,
#          innermost first. The path is `?`, and the offset an address, where no file is
#          mapped.
import sys

import gdb
from gdb.unwinder import FrameId, Unwinder, register_unwinder

for setting in (
    "pagination off", "confirm off", "height 0", "debuginfod enabled off",
    "backtrace past-main on", "backtrace past-entry on",
    "disable-randomization on", "breakpoint always-inserted on", "print thread-events off",
    "language c",
):
    gdb.execute("set " + setting)
# gdb sets them; the program is to run as it does without gdb.
for name in ("LINES", "COLUMNS"):
    gdb.execute("unset environment " + name)
# What the program prints would stand between the stacks.
gdb.execute("set args %s > /dev/null" % gdb.parameter("args"))
gdb.execute("handle all nostop noprint pass", to_string=True)


class Files:
    """What the program has mapped, and where in which file an address is."""

    def __init__(self):
        self.known = {}
        self.read()

    def read(self):
        self.code = []
        for line in open("/proc/%d/maps" % gdb.selected_inferior().pid):
            words = line.split(None, 5)
            if len(words) == 6 and words[5].startswith("/") and "x" in words[1]:
                start, end = (int(number, 16) for number in words[0].split("-"))
                self.code.append((start, end, int(words[2], 16), words[5].strip()))

    def place(self, address):
        if address not in self.known:
            place = self.find(address)
            if place is None:
                self.read()
                place = self.find(address)
            self.known[address] = place or "%#x ?" % address
        return self.known[address]

    def find(self, address):
        for start, end, offset, path in self.code:
            if start <= address < end:
                return "%#x %s" % (address - start + offset, path)

    def address(self, wanted, path):
        for start, end, offset, mapped in self.code:
            if mapped == path and offset <= wanted < offset + end - start:
                return start - offset + wanted


class FramePointers(Unwinder):
    """How Go's frames are left, of which gdb knows nothing without debug information."""

    def __init__(self, path, callers):
        super().__init__("frame pointers")
        self.path = path
        self.callers = callers
        self.word = gdb.lookup_type("unsigned long")

    def load(self, address):
        return gdb.Value(address).cast(self.word.pointer()).dereference()

    def __call__(self, frame):
        pc, rsp, rbp = (
            int(frame.read_register(name).cast(self.word)) for name in ("rip", "rsp", "rbp")
        )
        if not files.place(pc).endswith(" " + self.path):
            return None
        caller = self.callers[pc] if frame.level() == 0 else "frame"
        if caller == "frame" and rbp == 0:
            # Nobody has called it: an address of zero ends the stack.
            slot, zero = rsp, gdb.Value(0).cast(self.word)
            return self.found(frame, slot, pc, zero, zero)
        slot = {"top": rsp, "pushed": rsp + 8, "frame": rbp + 8}[caller]
        saved = gdb.Value(rbp).cast(self.word) if caller == "top" else self.load(slot - 8)
        return self.found(frame, slot, pc, self.load(slot), saved)

    def found(self, frame, slot, pc, rip, rbp):
        above = gdb.Value(slot + 8).cast(self.word)
        info = frame.create_unwind_info(FrameId(above, gdb.Value(pc).cast(self.word)))
        info.add_saved_register("rip", rip)
        info.add_saved_register("rsp", above)
        info.add_saved_register("rbp", rbp)
        return info


def set_breakpoints():
    breakpoints, callers = {}, {}
    for line in open(gdb.convenience_variable("places").string()):
        time, caller, offset, path = line.rstrip("\n").split(" ", 3)
        address = files.address(int(offset, 16), path)
        if address is None:
            continue
        breakpoints[address] = gdb.Breakpoint("*%#x" % address, internal=True)
        breakpoints[address].silent = True
        breakpoints[address].ignore_count = int(time) - 1
        if caller != "-":
            callers[address] = caller
    if callers:
        register_unwinder(None, FramePointers(path, callers), replace=True)
    return breakpoints


# gdb knows the libraries when the dynamic linker says that they are ready: nothing of them
# has run, but for what readies them. A program without any is all there from the first
# instruction on.
gdb.execute("starti", to_string=True)
files = Files()
if any("/ld-linux" in path for start, end, offset, path in files.code):
    gdb.execute("catch load")
    gdb.execute("continue", to_string=True)
    gdb.execute("delete")
    files.read()
if int(gdb.convenience_variable("go")):
    # Go's runtime takes them for the order of its maps, and more.
    auxiliary = gdb.execute("info auxv", to_string=True).splitlines()
    random = next(line for line in auxiliary if "AT_RANDOM" in line)
    gdb.selected_inferior().write_memory(int(random.split()[-1], 16), bytes(16))
breakpoints = set_breakpoints()
try:
    if not breakpoints:
        gdb.execute("continue", to_string=True)
    while breakpoints:
        gdb.execute("continue", to_string=True)
        frame = gdb.newest_frame()
        reached = breakpoints.pop(frame.pc(), None)
        if reached is None:
            continue
        reached.delete()
        lines = ["stop " + files.place(frame.pc())]
        # Without debug information no frame is of inlined code.
        while frame is not None and frame.pc() != 0:
            lines.append("frame " + files.place(frame.pc()))
            frame = frame.older()
        print("\n".join(lines))
    gdb.execute("kill")
except gdb.error as error:
    # The program has ended, which gdb may notice late when it has threads.
    print(error, file=sys.stderr)
