# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs gdb's program up to each of some places, and writes what it is like there.

NSPROBE_STOPS names a file with a line for each place, of words with tabs between them: "at" or
"return", an address in hexadecimal (of an instruction; of a function whose return is meant),
and expressions. Beside it come NUMBER.core, by the number of the line, and NUMBER.printed, a
line for each expression. Of a place that the program does not come to there is nothing.
"""

import os

import gdb


def printed(expression):
    try:
        return gdb.execute("output " + expression, to_string=True).split("\n")[0]
    except gdb.error:
        return ""


def write(path, number, expressions):
    with open(f"{path}.{number}.printed", "w") as answers:
        answers.writelines(printed(one) + "\n" for one in expressions)
    gdb.execute(f"gcore {path}.{number}.core", to_string=True)


def main():
    path = os.environ["NSPROBE_STOPS"]
    # Libraries are not looked into, and their code is not wanted in the core. gdb fails at a
    # character of Rust that is none.
    settings = ["confirm off", "width 0", "language c", "auto-solib-add off"]
    for setting in settings + ["print frame-arguments none"]:
        gdb.execute("set " + setting)
    gdb.execute("starti", to_string=True)
    left = {}
    with open(path) as lines:
        for number, line in enumerate(lines):
            kind, address, *expressions = line.rstrip("\n").split("\t")
            left.setdefault((kind, int(address, 16)), []).append((number, expressions))
    for _, address in left:
        gdb.Breakpoint(f"*{address:#x}", temporary=True)
    # Where those of "return" go on, each with the function.
    behind = {}
    while left:
        gdb.execute("continue", to_string=True)
        if gdb.selected_inferior().pid == 0:
            break
        here = int(gdb.parse_and_eval("(unsigned long)$pc"))
        # At the entry, the return address is on top of the stack.
        if ("return", here) in left and here not in behind.values():
            back = int(gdb.parse_and_eval("*(unsigned long *)$rsp"))
            behind[back] = here
            gdb.Breakpoint(f"*{back:#x}", temporary=True)
        reached = [("at", here)]
        if here in behind:
            reached.append(("return", behind[here]))
        for place in reached:
            for number, expressions in left.pop(place, ()):
                write(path, number, expressions)


main()
