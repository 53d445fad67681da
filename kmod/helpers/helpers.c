// SPDX-License-Identifier: GPL-2.0-only
/*
 * What Rust cannot reach safely: static inlines and macros, whose layout or
 * arithmetic belongs to the kernel. A function each, in a file for each of the
 * kernel's subjects, as its rust/helpers/ has them. Their declarations for Rust,
 * with the conditions of use, are in kmod/sys/helpers.rs.
 *
 * One unit of translation: the kernel's headers are read once.
 */

#include "cgroup.c"
#include "fs.c"
#include "kprobes.c"
#include "mm.c"
#include "module.c"
#include "nsproxy.c"
#include "perf_event.c"
#include "pid.c"
#include "preempt.c"
#include "ptrace.c"
#include "signal.c"
#include "smp.c"
#include "task.c"
#include "tracepoint.c"
#include "uaccess.c"
#include "vmalloc.c"
#include "walk.c"
