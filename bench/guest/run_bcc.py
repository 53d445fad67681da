#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs a tool of bcc's: run_bcc.py TOOL ARGUMENT...

bcc's binding for Python (0.37) calls bpf_attach_uprobe() without its seventh argument, the
offset of a reference counter, so that the library takes what happens to be on the stack for
it. Nothing else can then be put at the same instruction (the kernel says "ref_ctr_offset
mismatch", and EINVAL): neither the bare consumer of the filter's row, nor another tracer. With
the argument, a zero, the tools do what they do otherwise.

A file bcc.py in this folder would be imported in place of the binding.
"""
import runpy
import sys

from bcc import libbcc

attach = libbcc.lib.bpf_attach_uprobe
if len(attach.argtypes) == 6:
    attach.argtypes = None

    def attach_without_counter(program, kind, name, path, offset, pid):
        from ctypes import c_char_p, c_int, c_uint32, c_ulonglong

        return attach(c_int(program), c_int(kind), c_char_p(name), c_char_p(path),
                      c_ulonglong(offset), c_int(pid), c_uint32(0))

    libbcc.lib.bpf_attach_uprobe = attach_without_counter

sys.argv = sys.argv[1:]
runpy.run_path("/usr/sbin/" + sys.argv[0], run_name="__main__")
