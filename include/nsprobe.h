/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The interface of /dev/nsprobe for readers in C.
 *
 * Written from common/src/{abi,program,record,ring}.rs by common/tests/c_abi.rs, which
 * also compares every size, offset and constant: do not edit. docs/abi.md is
 * the reference, examples/reader.c a whole reader.
 */
#ifndef NSPROBE_H
#define NSPROBE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Bytes reserved for a build-id (ELF notes of GNU ld, gold, lld and mold are 8,
 * 16 or 20 long; the kernel's own BUILD_ID_SIZE_MAX is 20).
 */
#define NSPROBE_BUILD_ID_MAX 20

/* The identity of a mapped file. Of the vDSO, dev and ino are zero. */
struct nsprobe_object_identity {
	/*
	 * Device of the file's file system, as new_encode_dev and stat(2) give
	 * it; of the real file beneath an overlay.
	 */
	__u64 dev;
	/* Inode number. */
	__u64 ino;
	/* Inode generation. */
	__u32 generation;
	/*
	 * Length of the build-id in bytes; 0 when it could not be read without
	 * a page fault, or there is none.
	 */
	__u32 build_id_len;
	/* Size of the file in bytes when it was first seen. */
	__u64 file_bytes;
	/*
	 * Change time of the inode when it was first seen, in nanoseconds since
	 * 1970.
	 */
	__u64 ctime_ns;
	/*
	 * The build-id as the process maps it: a claim, to be verified against
	 * the file. Zero-padded.
	 */
	__u8 build_id[NSPROBE_BUILD_ID_MAX];
	/*
	 * Process that mapped the file when it was first seen, as the opener's
	 * pid namespace numbers it; 0 when that namespace does not see it.
	 */
	__u32 pid;
	/* Zero. */
	__u64 reserved;
};

/* The versions of this ABI, each with what it added. */
enum nsprobe_version {
	/*
	 * Sessions, entry probes, the pid and pid-namespace filter, hit, object
	 * and lost records, frame-pointer stacks.
	 */
	NSPROBE_VERSION_V1 = 1,
	/* Return probes, and programs that fetch and require. */
	NSPROBE_VERSION_V2 = 2,
	/* Sinks other than the ring: counters, tables, spans. */
	NSPROBE_VERSION_V3 = 3,
	/*
	 * USDT semaphores; filters by thread, user, name, control group and
	 * with children, which may be changed; programs that write.
	 */
	NSPROBE_VERSION_V4 = 4,
	/* Events of tasks, the tasks that live, and CPU times. */
	NSPROBE_VERSION_V5 = 5,
	/*
	 * Ids of pid namespaces in hits, tasks, CPU times, filters and
	 * programs. The oldest that is served: records have another layout.
	 */
	NSPROBE_VERSION_V6 = 6,
};

/* The path of the device. */
#define NSPROBE_DEVICE "/dev/nsprobe"

/*
 * The type byte of every request (free in
 * Documentation/userspace-api/ioctl/ioctl-number.rst).
 */
#define NSPROBE_IOC_TYPE 0xe9

/* Number of struct nsprobe_info. */
#define NSPROBE_NR_INFO 0

/* Number of struct nsprobe_setup. */
#define NSPROBE_NR_SETUP 1

/* Number of struct nsprobe_filter. */
#define NSPROBE_NR_FILTER 2

/* Number of struct nsprobe_attach. */
#define NSPROBE_NR_ATTACH 3

/* Number of struct nsprobe_detach. */
#define NSPROBE_NR_DETACH 4

/* Number of struct nsprobe_counters. */
#define NSPROBE_NR_COUNTERS 5

/* Number of struct nsprobe_object. */
#define NSPROBE_NR_OBJECT 6

/* Number of struct nsprobe_program. */
#define NSPROBE_NR_PROGRAM 7

/* Number of struct nsprobe_table. */
#define NSPROBE_NR_TABLE 8

/* Number of struct nsprobe_rows. */
#define NSPROBE_NR_ROWS 9

/* Number of struct nsprobe_freeze. */
#define NSPROBE_NR_FREEZE 10

/* Number of struct nsprobe_file. */
#define NSPROBE_NR_FILE 11

/* Number of struct nsprobe_unwind. */
#define NSPROBE_NR_UNWIND 12

/* Number of struct nsprobe_stack. */
#define NSPROBE_NR_STACK 13

/* Number of struct nsprobe_tasks. */
#define NSPROBE_NR_TASKS 14

/* Number of struct nsprobe_task_dump. */
#define NSPROBE_NR_TASK_DUMP 15

/* Number of struct nsprobe_cpu_times. */
#define NSPROBE_NR_CPU_TIMES 16

/* Number of struct nsprobe_task_counters. */
#define NSPROBE_NR_TASK_COUNTERS 17

/* Number of struct nsprobe_drop_spans. */
#define NSPROBE_NR_DROP_SPANS 18

/* Number of struct nsprobe_hold. */
#define NSPROBE_NR_HOLD 19

/* Number of struct nsprobe_held. */
#define NSPROBE_NR_HELD 20

/* Command of struct nsprobe_info. */
#define NSPROBE_IOC_INFO _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_INFO, struct nsprobe_info)

/* Command of struct nsprobe_setup. */
#define NSPROBE_IOC_SETUP _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_SETUP, struct nsprobe_setup)

/* Command of struct nsprobe_filter. */
#define NSPROBE_IOC_FILTER _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_FILTER, struct nsprobe_filter)

/* Command of struct nsprobe_attach. */
#define NSPROBE_IOC_ATTACH _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_ATTACH, struct nsprobe_attach)

/* Command of struct nsprobe_detach. */
#define NSPROBE_IOC_DETACH _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_DETACH, struct nsprobe_detach)

/* Command of struct nsprobe_counters. */
#define NSPROBE_IOC_COUNTERS _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_COUNTERS, struct nsprobe_counters)

/* Command of struct nsprobe_object. */
#define NSPROBE_IOC_OBJECT _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_OBJECT, struct nsprobe_object)

/* Command of struct nsprobe_program. */
#define NSPROBE_IOC_PROGRAM _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_PROGRAM, struct nsprobe_program)

/* Command of struct nsprobe_table. */
#define NSPROBE_IOC_TABLE _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_TABLE, struct nsprobe_table)

/* Command of struct nsprobe_rows. */
#define NSPROBE_IOC_ROWS _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_ROWS, struct nsprobe_rows)

/* Command of struct nsprobe_freeze. */
#define NSPROBE_IOC_FREEZE _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_FREEZE, struct nsprobe_freeze)

/* Command of struct nsprobe_file. */
#define NSPROBE_IOC_FILE _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_FILE, struct nsprobe_file)

/* Command of struct nsprobe_unwind. */
#define NSPROBE_IOC_UNWIND _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_UNWIND, struct nsprobe_unwind)

/* Command of struct nsprobe_stack. */
#define NSPROBE_IOC_STACK _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_STACK, struct nsprobe_stack)

/* Command of struct nsprobe_tasks. */
#define NSPROBE_IOC_TASKS _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_TASKS, struct nsprobe_tasks)

/* Command of struct nsprobe_task_dump. */
#define NSPROBE_IOC_TASK_DUMP _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_TASK_DUMP, struct nsprobe_task_dump)

/* Command of struct nsprobe_cpu_times. */
#define NSPROBE_IOC_CPU_TIMES _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_CPU_TIMES, struct nsprobe_cpu_times)

/* Command of struct nsprobe_task_counters. */
#define NSPROBE_IOC_TASK_COUNTERS _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_TASK_COUNTERS, struct nsprobe_task_counters)

/* Command of struct nsprobe_drop_spans. */
#define NSPROBE_IOC_DROP_SPANS _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_DROP_SPANS, struct nsprobe_drop_spans)

/* Command of struct nsprobe_hold. */
#define NSPROBE_IOC_HOLD _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_HOLD, struct nsprobe_hold)

/* Command of struct nsprobe_held. */
#define NSPROBE_IOC_HELD _IOWR(NSPROBE_IOC_TYPE, NSPROBE_NR_HELD, struct nsprobe_held)

/* nsprobe_info.features: entry probes. */
#define NSPROBE_FEATURE_ENTRY (1ULL << 0)

/* nsprobe_info.features: user stacks by frame pointers. */
#define NSPROBE_FEATURE_STACK_FP (1ULL << 1)

/* nsprobe_info.features: filters by process and by pid namespace. */
#define NSPROBE_FEATURE_FILTER_PID (1ULL << 2)

/* nsprobe_info.features: NSPROBE_OBJECT_FD hands out the file of an object. */
#define NSPROBE_FEATURE_OBJECT_FD (1ULL << 3)

/* nsprobe_info.features: return probes. */
#define NSPROBE_FEATURE_RETURN (1ULL << 5)

/* nsprobe_info.features: programs that fetch and require. */
#define NSPROBE_FEATURE_PROGRAM (1ULL << 6)

/* nsprobe_info.features: sinks other than the ring. */
#define NSPROBE_FEATURE_SINKS (1ULL << 7)

/* nsprobe_info.features: USDT semaphores. */
#define NSPROBE_FEATURE_SEMAPHORE (1ULL << 8)

/*
 * nsprobe_info.features: filters by thread, user, name, control group, with
 * children; a filter may be changed at any time.
 */
#define NSPROBE_FEATURE_FILTERS (1ULL << 9)

/*
 * nsprobe_info.features: programs that write, where the module's parameter
 * allows it.
 */
#define NSPROBE_FEATURE_MODIFY (1ULL << 10)

/*
 * nsprobe_info.features: nsprobe_probe.every, nsprobe_probe.rate and
 * nsprobe_probe.runaway.
 */
#define NSPROBE_FEATURE_LIMITS (1ULL << 11)

/*
 * nsprobe_info.features: NSPROBE_SETUP_OVERWRITE, struct nsprobe_freeze and
 * NSPROBE_PROBE_FREEZES.
 */
#define NSPROBE_FEATURE_FLIGHT (1ULL << 12)

/* nsprobe_info.features: struct nsprobe_file and NSPROBE_FILTER_PIDNS_LIST. */
#define NSPROBE_FEATURE_FOLLOW (1ULL << 13)

/* nsprobe_info.features: struct nsprobe_unwind. */
#define NSPROBE_FEATURE_UNWIND (1ULL << 14)

/*
 * nsprobe_info.features: NSPROBE_PROBE_STACK_IDS, NSPROBE_PROBE_KERNEL_STACK,
 * NSPROBE_PROBE_LATE, struct nsprobe_stack and NSPROBE_UNWIND_VDSO.
 */
#define NSPROBE_FEATURE_STACKS (1ULL << 15)

/* nsprobe_info.features: NSPROBE_UNWIND_DROP. */
#define NSPROBE_FEATURE_DROP (1ULL << 16)

/*
 * nsprobe_info.features: struct nsprobe_tasks, struct nsprobe_task_dump, struct
 * nsprobe_cpu_times and struct nsprobe_task_counters.
 */
#define NSPROBE_FEATURE_TASKS (1ULL << 17)

/*
 * nsprobe_info.features: NSPROBE_PROBE_BEGIN, NSPROBE_PROBE_END and
 * NSPROBE_PROBE_LEAVE.
 */
#define NSPROBE_FEATURE_EXITS (1ULL << 18)

/* nsprobe_info.features: NSPROBE_PROBE_SAMPLE. */
#define NSPROBE_FEATURE_SAMPLES (1ULL << 19)

/*
 * nsprobe_info.features: struct nsprobe_drop_spans, NSPROBE_PROBE_STACK_IDS
 * with NSPROBE_SINK_SPAN, and NSPROBE_CONTEXT_RANDOM.
 */
#define NSPROBE_FEATURE_SPANS (1ULL << 20)

/*
 * nsprobe_info.features: NSPROBE_ATTACH_PARTIAL, and processes that cannot be
 * probed cost themselves alone (nsprobe_counters.processes_failed).
 */
#define NSPROBE_FEATURE_PARTIAL (1ULL << 21)

/*
 * nsprobe_info.features: NSPROBE_PROBE_MAY_HANG, NSPROBE_OBJECT_DROP and
 * NSPROBE_DETACH_ALL.
 */
#define NSPROBE_FEATURE_REMOTE (1ULL << 22)

/* nsprobe_info.features: NSPROBE_PROBE_WAIT and NSPROBE_PROBE_WAKE. */
#define NSPROBE_FEATURE_WAITS (1ULL << 23)

/* nsprobe_info.features: NSPROBE_PROBE_GO. */
#define NSPROBE_FEATURE_GO (1ULL << 24)

/* nsprobe_info.features: struct nsprobe_hold and struct nsprobe_held. */
#define NSPROBE_FEATURE_HOLD (1ULL << 25)

/* nsprobe_info.features: NSPROBE_ROWS_TAKE. */
#define NSPROBE_FEATURE_TAKE (1ULL << 26)

/* Smallest ring of one CPU, in bytes. */
#define NSPROBE_RING_BYTES_MIN 4096

/* Largest ring of one CPU, in bytes. */
#define NSPROBE_RING_BYTES_MAX (1ULL << 28)

/* Largest sum of the rings of one session, in bytes. */
#define NSPROBE_RING_BYTES_TOTAL_MAX (1ULL << 32)

/* Most probes in one session. */
#define NSPROBE_PROBES_MAX (1U << 20)

/* Most probes in one struct nsprobe_attach. */
#define NSPROBE_ATTACH_MAX (1U << 16)

/* Most frames in one stack. */
#define NSPROBE_FRAMES_MAX 127

/* Most processes or threads in the list of a struct nsprobe_filter. */
#define NSPROBE_FILTER_PIDS_MAX 64

/* Most objects in one session; frames in further ones are raw addresses. */
#define NSPROBE_OBJECTS_MAX (1U << 12)

/* Version, features and state of the module. Works on any open file. */
struct nsprobe_info {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/* enum nsprobe_version that the module implements. */
	__u32 version;
	/* Oldest version that the module still serves. */
	__u32 version_min;
	/* NSPROBE_FEATURE_* bits. */
	__u64 features;
	/* Sessions currently open in the whole module. */
	__u32 sessions;
	/* Probes currently attached in the whole module. */
	__u32 probes;
	/* Rings that struct nsprobe_setup makes: one for each possible CPU. */
	__u32 rings;
	/* Bytes of a page. */
	__u32 page_size;
	/* The module's release, NUL-padded. */
	__u8 release[32];
};

/*
 * nsprobe_setup.flags: probes of this session may have programs that write.
 * Needs CAP_SYS_ADMIN in the initial user namespace (EPERM), the module's
 * parameter allow_modify, and a kernel that is not locked down
 * (NSPROBE_EACCES). Not with NSPROBE_SETUP_OVERWRITE (EINVAL): the record of
 * each change is kept.
 */
#define NSPROBE_SETUP_MODIFY (1U << 1)

/*
 * nsprobe_setup.flags: rings keep the newest records, and new ones replace the
 * oldest. They can be read only while they are frozen (struct nsprobe_freeze).
 */
#define NSPROBE_SETUP_OVERWRITE (1U << 2)

/*
 * Makes the session's rings. Once per session, before the first struct
 * nsprobe_attach. EPERM unless the caller may open the device.
 */
struct nsprobe_setup {
	/* Bytes of this struct. */
	__u32 size;
	/* NSPROBE_SETUP_* bits. */
	__u32 flags;
	/*
	 * Bytes of data in each ring: a power of two, NSPROBE_RING_BYTES_MIN to
	 * NSPROBE_RING_BYTES_MAX, and at most NSPROBE_RING_BYTES_TOTAL_MAX for
	 * all rings.
	 */
	__u64 ring_bytes;
	/*
	 * poll() and a blocking read() wake when a ring holds this many bytes;
	 * 0 means at the first record; at most ring_bytes.
	 */
	__u64 watermark_bytes;
	/* Out: the number of rings. */
	__u32 rings;
	/* Zero. */
	__u32 reserved;
	/*
	 * Out: ring i is mapped at file offset i * mmap_stride: there the
	 * consumer page (read and write, a mapping of its own), one page later
	 * the producer page and after it the data (both read-only). The data
	 * may be mapped once more by itself, after the first, so that a record
	 * around the end is in one piece.
	 */
	__u64 mmap_stride;
};

/* nsprobe_filter.flags: only these processes. */
#define NSPROBE_FILTER_PIDS (1U << 0)

/* nsprobe_filter.flags: only tasks in this pid namespace or one below it. */
#define NSPROBE_FILTER_PIDNS (1U << 1)

/* nsprobe_filter.flags: also trace the session owner's own process. */
#define NSPROBE_FILTER_SELF (1U << 2)

/* nsprobe_filter.flags: only these threads; not with NSPROBE_FILTER_PIDS. */
#define NSPROBE_FILTER_TIDS (1U << 3)

/*
 * nsprobe_filter.flags: only tasks whose effective user id, as the initial user
 * namespace numbers it, is nsprobe_filter.uid at the hit.
 */
#define NSPROBE_FILTER_UID (1U << 4)

/*
 * nsprobe_filter.flags: only threads whose name is nsprobe_filter.comm at the
 * hit.
 */
#define NSPROBE_FILTER_COMM (1U << 5)

/*
 * nsprobe_filter.flags: only tasks in this control group (cgroup v2) or one
 * below it, at the hit. A process gets its breakpoints when it maps the file
 * (so with each execve), and when a probe is attached or the filter set, if its
 * leader is in the group at that moment: one that is moved in while it runs is
 * traced from its next execve or the next struct nsprobe_filter on; one that is
 * moved out is not traced any more.
 */
#define NSPROBE_FILTER_CGROUP (1U << 6)

/*
 * nsprobe_filter.flags: with NSPROBE_FILTER_PIDS or NSPROBE_FILTER_TIDS:
 * processes (and threads of listed threads) that tasks in the list fork from
 * now on are in the list too. Those of a filter before are not.
 */
#define NSPROBE_FILTER_CHILDREN (1U << 7)

/*
 * nsprobe_filter.flags: instead of NSPROBE_FILTER_PIDNS: only tasks in one of
 * several pid namespaces or below.
 */
#define NSPROBE_FILTER_PIDNS_LIST (1U << 8)

/*
 * nsprobe_filter.flags: no samples of tasks that run the program of
 * nsprobe_filter.program_fd, such as the owner's helpers.
 */
#define NSPROBE_FILTER_NOT_PROGRAM (1U << 9)

/* Most pid namespaces in nsprobe_filter.pidns_list. */
#define NSPROBE_FILTER_PIDNS_MAX 256

/*
 * Most tasks that NSPROBE_FILTER_CHILDREN adds at one time, of processes and of
 * threads; what is forked beyond that is counted (filter-missed in fdinfo) and
 * not traced.
 */
#define NSPROBE_FILTER_CHILDREN_MAX (1U << 14)

/*
 * Sets which tasks are traced. Without a filter, all tasks that the session
 * owner's pid namespace sees, but not the owner's own process. All conditions
 * must hold. It may be called at any time and replaces the previous filter:
 * when it returns, no hit is judged by the old one any more, and processes
 * carry breakpoints as the new one requires.
 *
 * Errors: ESRCH no such process; ESTALE the process is not in the pid namespace
 * that pidns_id names; EBADF, ENOENT no such control group; ENOMEM. On failure
 * the previous filter stays.
 */
struct nsprobe_filter {
	/* Bytes of this struct. */
	__u32 size;
	/* NSPROBE_FILTER_* bits. */
	__u32 flags;
	/*
	 * With NSPROBE_FILTER_PIDS: address of pid_count process ids (u32), as
	 * the caller's pid namespace numbers them. The kernel holds the
	 * identity of each process, so that a recycled number never counts.
	 */
	__u64 pids;
	/* 1 to NSPROBE_FILTER_PIDS_MAX. */
	__u32 pid_count;
	/*
	 * With NSPROBE_FILTER_PIDNS: a process in the requested pid namespace.
	 */
	__u32 pidns_pid;
	/*
	 * With NSPROBE_FILTER_PIDNS: the id of that namespace, checked against
	 * the process's.
	 */
	__u64 pidns_id;
	/*
	 * With NSPROBE_FILTER_TIDS: address of tid_count thread ids (u32),
	 * otherwise as pids.
	 */
	__u64 tids;
	/* 1 to NSPROBE_FILTER_PIDS_MAX. */
	__u32 tid_count;
	/* With NSPROBE_FILTER_UID: the user id. */
	__u32 uid;
	/* With NSPROBE_FILTER_COMM: the name, at most 15 bytes, NUL-padded. */
	__u8 comm[16];
	/*
	 * With NSPROBE_FILTER_CGROUP: the inode number of the group's
	 * directory, or zero for cgroup_fd.
	 */
	__u64 cgroup_id;
	/*
	 * With NSPROBE_FILTER_CGROUP and without cgroup_id: a file descriptor
	 * of the group's directory.
	 */
	__s32 cgroup_fd;
	/* Zero. */
	__u32 reserved2;
	/*
	 * With NSPROBE_FILTER_PIDNS_LIST: address of pidns_count struct
	 * nsprobe_pid_namespaces.
	 */
	__u64 pidns_list;
	/* 1 to NSPROBE_FILTER_PIDNS_MAX. */
	__u32 pidns_count;
	/*
	 * With NSPROBE_FILTER_NOT_PROGRAM: a file descriptor of the program;
	 * zero otherwise.
	 */
	__s32 program_fd;
};

/* A pid namespace, named by one of its processes. */
struct nsprobe_pid_namespace {
	/* A process in it, as the caller's pid namespace numbers it. */
	__u32 pid;
	/* Zero. */
	__u32 reserved;
	/* Its id (NSPROBE_NS_GET_ID), checked against the process's. */
	__u64 id;
};

/* Bytes of struct nsprobe_filter in NSPROBE_VERSION_V1. */
#define NSPROBE_FILTER_BYTES_V1 32

/* nsprobe_probe.kind: before the instruction at offset runs. */
#define NSPROBE_PROBE_ENTRY 1

/*
 * nsprobe_probe.kind: when the function that begins at offset returns. The
 * kernel replaces its return address: not for functions that unwind through
 * their callers (exceptions) or move their stack (Go). At most 64 calls of one
 * thread can be waiting; further ones return unseen.
 */
#define NSPROBE_PROBE_RETURN 2

/*
 * nsprobe_probe.kind: both. The return knows when its call began and what the
 * entry program kept. A call whose entry the program rejects has no return.
 */
#define NSPROBE_PROBE_CALL 3

/*
 * nsprobe_probe.kind: a function begins whose ends are seen at its exits, with
 * its return address left alone. The entry program runs (and keeps values). A
 * hit that begins a call is counted as aggregated. Of more than
 * NSPROBE_CALLS_MAX calls under way some are forgotten
 * (nsprobe_counters.evicted): the oldest ones of the container that has most. A
 * call is known by its address space, by where its return address is, and by
 * nsprobe_probe.call. Not at an instruction with a NSPROBE_PROBE_END or
 * NSPROBE_PROBE_LEAVE of the same call: which of them is hit first is not
 * known.
 */
#define NSPROBE_PROBE_BEGIN 4

/*
 * nsprobe_probe.kind: on an instruction that returns (ret, with the return
 * address on top of the stack): a hit is the return of the call that a
 * NSPROBE_PROBE_BEGIN of the same nsprobe_probe.call saw begin, with its time
 * and what its entry kept. What comes there and ends no such call is not
 * counted: others may pass the instruction as well.
 */
#define NSPROBE_PROBE_END 5

/*
 * nsprobe_probe.kind: on a jump to where returns are not seen. A hit that the
 * entry program lets through ends its call without a return, and is counted as
 * aggregated; one that ends no call is not counted.
 */
#define NSPROBE_PROBE_LEAVE 6

/*
 * nsprobe_probe.kind: no place in a file: each CPU that is online is sampled,
 * nsprobe_probe.offset times a second, by its cycles where the machine counts
 * them, else by the CPU clock. A hit is a sample of a task, with its user stack
 * and user registers; in the kernel they are those with which the task entered
 * it. Samples of idle CPUs and of kernel threads are counted apart. The one
 * probe of its struct nsprobe_attach and the one sampler of its session, with
 * fd -1, a program that does not write, and without NSPROBE_PROBE_AT_ENTRY and
 * limits.
 */
#define NSPROBE_PROBE_SAMPLE 7

/*
 * nsprobe_probe.kind: no place in a file: a hit is a wait of a task off the CPU
 * that took at least nsprobe_probe.offset nanoseconds. It is taken when the
 * task is on a CPU again, with its user stack and the registers with which it
 * entered the kernel; it begins when the task leaves its CPU, which the filter
 * judges. A program has the time of the wait as NSPROBE_CONTEXT_ELAPSED, and
 * what it was for. Kernel threads are not seen, nor waits that had begun
 * before. The one probe of its struct nsprobe_attach and the one of its kind in
 * its session; otherwise as NSPROBE_PROBE_SAMPLE.
 *
 * NSPROBE_CONTEXT_ELAPSED: super::super::program::Context::Elapsed
 */
#define NSPROBE_PROBE_WAIT 8

/*
 * nsprobe_probe.kind: no place in a file: a hit is the moment when a thread
 * wakes a task whose wait has taken nsprobe_probe.offset nanoseconds by then,
 * or when the kernel's network code does while the thread sends. It is taken of
 * the thread that wakes, filtered or not, with its user stack and the registers
 * with which it entered the kernel. Of several tasks that it wakes with
 * interrupts off, one is a hit. NSPROBE_CONTEXT_WOKEN_AT of the waits has its
 * time. Attached before the NSPROBE_PROBE_WAIT of its session; otherwise as
 * that.
 *
 * NSPROBE_CONTEXT_WOKEN_AT: super::super::program::Context::WokenAt
 */
#define NSPROBE_PROBE_WAKE 9

/* Most waits, of all CPUs, that a session follows at a time. */
#define NSPROBE_WAITS_MAX (1U << 16)

/*
 * Most waits, and most wakes, a second of one CPU whose stacks are taken;
 * further ones are counted as limited.
 */
#define NSPROBE_WAITS_A_SECOND 2000

/*
 * Most samples a second of each CPU: beyond, taking them is most of what a CPU
 * does.
 */
#define NSPROBE_SAMPLE_HZ_MAX 10000

/*
 * Calls between their NSPROBE_PROBE_BEGIN and their end that a session follows
 * at a time.
 */
#define NSPROBE_CALLS_MAX (1U << 14)

/* nsprobe_probe.flags: take the user stack. */
#define NSPROBE_PROBE_STACK (1U << 0)

/*
 * nsprobe_probe.flags: at the hit the return address is on top of the stack
 * (nothing of the function's prologue that moves the stack pointer has run).
 * User space knows it from the symbol table; without it the caller of the
 * probed function is missing from frame-pointer stacks.
 */
#define NSPROBE_PROBE_AT_ENTRY (1U << 1)

/*
 * nsprobe_probe.flags: of a NSPROBE_PROBE_CALL, only the returns count. Entries
 * run their program (which keeps values) and go nowhere; only one that the
 * filter or the program turns away is counted, as a hit that was filtered or
 * rejected.
 */
#define NSPROBE_PROBE_RETURN_ONLY (1U << 2)

/* nsprobe_probe.sink: a record in the ring. */
#define NSPROBE_SINK_RECORD 0

/* nsprobe_probe.sink: nothing but the probe's counters. */
#define NSPROBE_SINK_COUNT 1

/*
 * nsprobe_probe.sink: the row of nsprobe_probe.table that the program's key
 * steps name. What is added there is the program's value; without one, the
 * nanoseconds since the call's entry at a return, and 1 elsewhere.
 */
#define NSPROBE_SINK_TABLE 2

/*
 * nsprobe_probe.sink: begins a span in nsprobe_probe.table, under the program's
 * key; a span of the same key that had begun before is replaced. With
 * NSPROBE_PROBE_STACK_IDS the session keeps its stack once, and the row has the
 * stack's id (nsprobe_row.least).
 */
#define NSPROBE_SINK_SPAN 3

/*
 * nsprobe_probe.flags: a hit that is delivered freezes the rings, with its own
 * record in them. Only in a session with NSPROBE_SETUP_OVERWRITE.
 */
#define NSPROBE_PROBE_FREEZES (1U << 3)

/*
 * nsprobe_probe.flags: with NSPROBE_PROBE_STACK and NSPROBE_SINK_RECORD: where
 * a stack goes through a file that has no unwind rows, a struct
 * nsprobe_stack_copy record precedes the hit's, which then ends with
 * NSPROBE_STACK_END_COPIED. With NSPROBE_SINK_TABLE such a hit is recorded, and
 * in no row yet: the value and the key are its fields.
 */
#define NSPROBE_PROBE_COPIES (1U << 4)

/*
 * nsprobe_probe.flags: with NSPROBE_PROBE_STACK and NSPROBE_SINK_RECORD: equal
 * stacks are kept once, and records name them by an id (nsprobe_hit.stack).
 * When there is no room for more, the frames are in the record, as without
 * this. With NSPROBE_SINK_SPAN rows name them, in a table without room for
 * stacks; a span for whose stack there is no room has none, and its hit counts
 * as one with a truncated stack.
 */
#define NSPROBE_PROBE_STACK_IDS (1U << 5)

/*
 * nsprobe_probe.flags: with NSPROBE_SINK_RECORD, or for NSPROBE_PROBE_SAMPLE
 * and NSPROBE_SINK_TABLE: take the kernel's stack, too, in a table up to
 * NSPROBE_KERNEL_FRAMES_MAX frames of it. Needs CAP_SYSLOG in the initial user
 * namespace (NSPROBE_REFUSAL_MAY_NOT_SEE_KERNEL).
 */
#define NSPROBE_PROBE_KERNEL_STACK (1U << 6)

/*
 * nsprobe_probe.flags: with NSPROBE_PROBE_STACK and NSPROBE_SINK_RECORD: where
 * a page of a stack in private memory is not there (paged out), the hit's
 * record ends with NSPROBE_STACK_END_LATE, and a struct nsprobe_late_stack
 * follows. The page is fetched before the task goes on, when the breakpoint's
 * handlers are done. Not for memory of files, nor for what a userfaultfd
 * serves: there the stack ends with a fault. With NSPROBE_SINK_TABLE as
 * NSPROBE_PROBE_COPIES.
 */
#define NSPROBE_PROBE_LATE (1U << 7)

/*
 * nsprobe_probe.flags: probe a file also when a server answers for its file
 * system (NSPROBE_REFUSAL_NEEDS_ANSWER). While that does not answer, no process
 * of the machine can fork, no other breakpoint goes in or out, and the caller
 * cannot be killed.
 */
#define NSPROBE_PROBE_MAY_HANG (1U << 8)

/*
 * nsprobe_probe.flags: of a NSPROBE_PROBE_WAIT: only waits in futex(2); others
 * are rejected as they begin. Who holds the lock is looked for
 * (NSPROBE_CONTEXT_LOCK_HOLDER).
 */
#define NSPROBE_PROBE_LOCKS (1U << 9)

/*
 * nsprobe_probe.flags: of a NSPROBE_PROBE_BEGIN, NSPROBE_PROBE_END or
 * NSPROBE_PROBE_LEAVE: the function is one of Go's compiler, which has the
 * goroutine's g in %r14. Its stack may move during the call, which is known by
 * the address space, the goroutine, how far its return address is below the top
 * of the goroutine's stack, and nsprobe_probe.call. A call that begins where
 * %r14 is no goroutine whose stack it is on counts as missed.
 */
#define NSPROBE_PROBE_GO (1U << 10)

/*
 * Most frames of the kernel in the stack of a table's row: each takes two words
 * of it.
 */
#define NSPROBE_KERNEL_FRAMES_MAX 32

/*
 * Words of all stacks that a session keeps with NSPROBE_PROBE_STACK_IDS, each
 * with one more.
 */
#define NSPROBE_STACK_TABLE_WORDS (1U << 19)

/*
 * Most stacks that wait for a page at one time; further ones end with a fault.
 */
#define NSPROBE_LATE_MAX 64

/* Most words of a stack's memory in a copy. */
#define NSPROBE_STACK_COPY_WORDS_MAX 2048

/* Most mappings in a copy. */
#define NSPROBE_CODE_MAPPINGS_MAX 128

/* One probe of an struct nsprobe_attach. */
struct nsprobe_probe {
	/*
	 * A file descriptor open for reading: the file to probe. On overlayfs
	 * the probe goes to the real file beneath. -1 for NSPROBE_PROBE_SAMPLE.
	 */
	__s32 fd;
	/*
	 * NSPROBE_PROBE_ENTRY, NSPROBE_PROBE_RETURN, NSPROBE_PROBE_CALL,
	 * NSPROBE_PROBE_BEGIN, NSPROBE_PROBE_END, NSPROBE_PROBE_LEAVE,
	 * NSPROBE_PROBE_SAMPLE, NSPROBE_PROBE_WAIT or NSPROBE_PROBE_WAKE.
	 */
	__u32 kind;
	/* NSPROBE_PROBE_* bits. */
	__u32 flags;
	/*
	 * Most frames of a stack, up to NSPROBE_FRAMES_MAX; 0 means the most.
	 */
	__u32 max_frames;
	/*
	 * File offset of the instruction that gets the breakpoint. Of
	 * NSPROBE_PROBE_SAMPLE: how many times a second; of NSPROBE_PROBE_WAIT
	 * and NSPROBE_PROBE_WAKE: nanoseconds.
	 */
	__u64 offset;
	/*
	 * File offset that records give as frame 0: the function's entry when
	 * the breakpoint sits after it. Zero: offset. In front of offset, but
	 * for NSPROBE_PROBE_END and NSPROBE_PROBE_LEAVE.
	 */
	__u64 report_offset;
	/*
	 * File offset of the USDT semaphore: a u16 in the program's data that
	 * the kernel counts up in each process that has the breakpoint, and
	 * down again. Zero: none. All probes of one instruction, those of other
	 * tracers too, must agree.
	 */
	__u64 semaphore;
	/* Out: the probe's id in this session, from 1 on, never reused. */
	__u32 id;
	/* NSPROBE_SINK_*: where a hit goes. */
	__u32 sink;
	/* Id of the struct nsprobe_program that runs at the entry, or zero. */
	__u32 entry_program;
	/* Id of the struct nsprobe_program that runs at the return, or zero. */
	__u32 return_program;
	/*
	 * Id of the struct nsprobe_table of NSPROBE_SINK_TABLE and
	 * NSPROBE_SINK_SPAN, or zero.
	 */
	__u32 table;
	/*
	 * Id of the struct nsprobe_table whose spans the program ends (struct
	 * nsprobe_end_span), or zero.
	 */
	__u32 span;
	/*
	 * Most writes that the probe's programs may make, of all kinds and
	 * processes: from 1 on when they have such, else zero. Further ones are
	 * withheld, and counted. Probes of one nsprobe_probe.call that follow
	 * each other in a request share what is allowed.
	 */
	__u32 max_writes;
	/*
	 * Deliver one in this number of the hits that the filter and the
	 * program let through, counted on each CPU, beginning with the first.
	 * Zero and one: all.
	 */
	__u32 every;
	/*
	 * Deliver at most this number of hits a second, over all CPUs; further
	 * ones are counted as limited. Up to NSPROBE_RATE_MAX; zero: all.
	 */
	__u32 rate;
	/*
	 * With rate: how many hits may come at once. Zero: as many as in a
	 * second.
	 */
	__u32 burst;
	/*
	 * Turn the probe off for good when it is hit more often than this a
	 * second, over all CPUs and tasks, delivered or not; an struct
	 * nsprobe_off_record reports it. Up to NSPROBE_RATE_MAX; zero: never.
	 */
	__u32 runaway;
	/*
	 * Which function's calls begin or end here, of NSPROBE_PROBE_BEGIN,
	 * NSPROBE_PROBE_END and NSPROBE_PROBE_LEAVE: a number from 1 on that
	 * user space gives it. Else zero.
	 */
	__u32 call;
	/*
	 * Out, with NSPROBE_ATTACH_PARTIAL: an enum nsprobe_refusal if the
	 * probe is not attached; its id is zero then.
	 */
	__u32 refused;
	/* Out, with refused: the error number. */
	__u32 error;
};

/*
 * Bytes of struct nsprobe_probe in NSPROBE_VERSION_V1: the least that struct
 * nsprobe_attach takes.
 */
#define NSPROBE_PROBE_BYTES_V1 48

/*
 * nsprobe_attach.flags: attach the probes whose place the kernel takes, and say
 * of each other one why not (nsprobe_probe.refused). Probes of one
 * nsprobe_probe.call that follow each other are attached all or none. What is
 * wrong with a request for another reason than its place is an error all the
 * same.
 */
#define NSPROBE_ATTACH_PARTIAL (1U << 0)

/*
 * Attaches count probes, all or none (NSPROBE_ATTACH_PARTIAL: or some). A
 * process in which the kernel cannot set a breakpoint does without
 * (nsprobe_counters.processes_failed).
 *
 * Errors: EINVAL, EBADF, EIO (the file system cannot carry probes),
 * NSPROBE_EREMOTE (it may not answer), ENOEXEC (the offset is not in the file
 * or not at a decodable instruction), ENOSPC (too many probes), NSPROBE_EEXIST
 * (the session has the same one), ENXIO (struct nsprobe_setup is missing);
 * failed and reason say which probe and why. All are checked before the first
 * breakpoint is put in. A breakpoint may be hit before the call returns, and
 * also when it fails in the end: ids under which there may be records are not
 * used again.
 */
struct nsprobe_attach {
	/* Bytes of this struct. */
	__u32 size;
	/* NSPROBE_ATTACH_* bits. */
	__u32 flags;
	/* Address of count struct nsprobe_probe; their ids are written back. */
	__u64 probes;
	/* 1 to NSPROBE_ATTACH_MAX. */
	__u32 count;
	/* Bytes of one struct struct nsprobe_probe as the caller knows it. */
	__u32 probe_size;
	/* Out, on error: index of the probe that could not be attached. */
	__u32 failed;
	/* Out, on error: an enum nsprobe_refusal. */
	__u32 reason;
};

/*
 * Why a request was refused (nsprobe_attach.reason). Numbers are never reused.
 */
enum nsprobe_refusal {
	/* No reason beyond the error number. */
	NSPROBE_REFUSAL_NONE = 0,
	/* The session has no rings yet. */
	NSPROBE_REFUSAL_NO_SETUP = 1,
	/*
	 * A flag, kind or reserved field has a value that this version does not
	 * know.
	 */
	NSPROBE_REFUSAL_UNKNOWN_VALUE = 2,
	/* The file descriptor is not open, or not for reading. */
	NSPROBE_REFUSAL_BAD_FD = 3,
	/* Not a regular file. */
	NSPROBE_REFUSAL_NOT_REGULAR = 4,
	/* The offset lies past the end of the file. */
	NSPROBE_REFUSAL_OUTSIDE_FILE = 5,
	/* The session has too many probes. */
	NSPROBE_REFUSAL_TOO_MANY = 6,
	/*
	 * The kernel's uprobe_register refused: the instruction cannot be
	 * probed, or the file system cannot carry probes; the error number says
	 * which.
	 */
	NSPROBE_REFUSAL_KERNEL = 7,
	/* Too little memory. */
	NSPROBE_REFUSAL_NO_MEMORY = 8,
	/* The session has no program or table of this id. */
	NSPROBE_REFUSAL_NO_SUCH_ID = 9,
	/*
	 * A program of this probe writes, which this session, or its caller,
	 * may not (NSPROBE_SETUP_MODIFY).
	 */
	NSPROBE_REFUSAL_MAY_NOT_WRITE = 10,
	/*
	 * Sink, table, span and programs do not fit together: a table that the
	 * sink does not take, of another kind, or of another number of key
	 * words.
	 */
	NSPROBE_REFUSAL_MISMATCH = 11,
	/*
	 * The semaphore is odd, lies outside the file, or overlaps the
	 * instruction.
	 */
	NSPROBE_REFUSAL_BAD_SEMAPHORE = 12,
	/* The instruction is probed with another semaphore, or without one. */
	NSPROBE_REFUSAL_SEMAPHORE_CONFLICT = 13,
	/*
	 * A program returns at once and the probe is not
	 * NSPROBE_PROBE_AT_ENTRY, or it is the program of the return.
	 */
	NSPROBE_REFUSAL_NOT_AT_ENTRY = 14,
	/* A program writes and nsprobe_probe.max_writes is zero. */
	NSPROBE_REFUSAL_NO_WRITE_LIMIT = 15,
	/*
	 * nsprobe_probe.rate, nsprobe_probe.burst or nsprobe_probe.runaway is
	 * too large, or there is a burst without a rate.
	 */
	NSPROBE_REFUSAL_BAD_LIMIT = 16,
	/*
	 * NSPROBE_PROBE_KERNEL_STACK without the right to see the kernel's
	 * addresses.
	 */
	NSPROBE_REFUSAL_MAY_NOT_SEE_KERNEL = 17,
	/*
	 * The instruction is a system call, after which the kernel continues at
	 * a wrong address.
	 */
	NSPROBE_REFUSAL_SYSTEM_CALL = 18,
	/*
	 * The session has a probe that does the same there: of the same file,
	 * offset, kind, flags, programs and tables. Each hit would count twice.
	 * Or it has one of this kind already (NSPROBE_PROBE_SAMPLE,
	 * NSPROBE_PROBE_WAIT).
	 */
	NSPROBE_REFUSAL_TWICE = 19,
	/*
	 * NSPROBE_PROBE_SAMPLE: fewer than 1 or more than NSPROBE_SAMPLE_HZ_MAX
	 * times a second.
	 */
	NSPROBE_REFUSAL_BAD_FREQUENCY = 20,
	/*
	 * Not the kernel itself answers when the file is read, but a server
	 * that may never do so (FUSE, NFS, SMB, 9p and their like, also beneath
	 * an overlay), or its kind of file system is not known.
	 * NSPROBE_PROBE_MAY_HANG probes it nevertheless.
	 */
	NSPROBE_REFUSAL_NEEDS_ANSWER = 21,
};

/* nsprobe_detach.flags: all probes of the session, with count and ids zero. */
#define NSPROBE_DETACH_ALL (1U << 0)

/*
 * Detaches count probes and waits until no handler of theirs runs. ENOENT when
 * an id is not attached, EINVAL when one is there twice; then none is detached.
 */
struct nsprobe_detach {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero, or NSPROBE_DETACH_ALL. */
	__u32 flags;
	/* Address of count ids (u32). */
	__u64 ids;
	/* 1 to NSPROBE_ATTACH_MAX. */
	__u32 count;
	/* Zero. */
	__u32 reserved;
};

/* Bytes of struct nsprobe_counters in NSPROBE_VERSION_V1. */
#define NSPROBE_COUNTERS_BYTES_V1 64

/* nsprobe_counters.cpu: the sum over all CPUs. */
#define NSPROBE_CPU_ALL 0xffffffffU

/*
 * The counters of one probe. A hit is counted in hits when its handler begins,
 * and in one of recorded, aggregated, filtered, rejected, skipped, limited,
 * off, frozen, lost_full, turned_away, missed, below, no_row and unfinished
 * when it is done: the difference is the number of hits being handled, and of
 * waits that go on, at the moment, zero when no traced task is in a handler,
 * and for good after struct nsprobe_detach, which waits for them.
 */
struct nsprobe_counters {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/*
	 * In: the probe's id. A detached probe's counters are kept until the
	 * session ends.
	 */
	__u32 probe;
	/* In: a CPU, or NSPROBE_CPU_ALL. */
	__u32 cpu;
	/* Out: times the breakpoint was hit. */
	__u64 hits;
	/* Out: hits with a record in a ring. */
	__u64 recorded;
	/* Out: hits of tasks that the filter excludes. */
	__u64 filtered;
	/* Out: hits lost because the ring was full. */
	__u64 lost_full;
	/* Out: hits whose condition did not hold. */
	__u64 rejected;
	/*
	 * Out: recorded hits whose stack ended early for another reason than
	 * its natural end or the frame limit.
	 */
	__u64 stacks_cut;
	/*
	 * Out: of the rejected hits, those where a required value could not be
	 * read.
	 */
	__u64 undecided;
	/* Out: hits that were counted or went into a table. */
	__u64 aggregated;
	/* Out: hits for which the table had no row left. */
	__u64 turned_away;
	/* Out: writes that its programs made. */
	__u64 written;
	/*
	 * Out: writes that failed: a value was missing, or the place cannot be
	 * written.
	 */
	__u64 write_failed;
	/*
	 * Out: writes that were withheld, as there were
	 * nsprobe_probe.max_writes before, or the ring had no room for their
	 * record.
	 */
	__u64 write_withheld;
	/* Out: hits that nsprobe_probe.every skipped. */
	__u64 skipped;
	/* Out: hits over the limit of nsprobe_probe.rate. */
	__u64 limited;
	/*
	 * Out: hits after the probe was turned off, for nsprobe_probe.runaway:
	 * each process takes some until it has lost the breakpoint.
	 */
	__u64 off;
	/*
	 * Out: calls of a NSPROBE_PROBE_CALL whose returns the kernel does not
	 * follow, as 64 of the thread's are pending already. They are no hits
	 * of their own.
	 */
	__u64 too_deep;
	/* Out: hits while the rings were frozen. */
	__u64 frozen;
	/*
	 * Out: samples of tasks of which nothing can be read: they end, start
	 * another program, or have left the CPU. Calls of a NSPROBE_PROBE_GO
	 * whose goroutine is not known.
	 */
	__u64 missed;
	/*
	 * Out: samples that were taken in the kernel. They are among the hits.
	 */
	__u64 in_kernel;
	/* Out: samples of CPUs that were idle. They are no hits. */
	__u64 idle;
	/* Out: samples of kernel threads. They are no hits. */
	__u64 kernel_threads;
	/*
	 * Out: of all samples those by the CPU clock, as the machine counts no
	 * cycles.
	 */
	__u64 by_clock;
	/*
	 * Out: processes without the breakpoint, as the kernel could not set it
	 * there when the probe was attached or the filter set last: their
	 * semaphore is spoiled, say, or their control group has no memory. At
	 * most 257: if so, there may be more. Zero for one CPU.
	 */
	__u64 processes_failed;
	/*
	 * Out: calls, of this probe or others, that were forgotten for those
	 * that begin at this one, as there were more than NSPROBE_CALLS_MAX.
	 * Zero for one CPU.
	 */
	__u64 evicted;
	/* Out: waits that were shorter than their probe asks for. */
	__u64 below;
	/* Out: nanoseconds that these took together. */
	__u64 below_ns;
	/*
	 * Out: waits that could not be followed, as there were too many
	 * (NSPROBE_WAITS_MAX).
	 */
	__u64 no_row;
	/* Out: waits that had not ended when the probe was detached. */
	__u64 unfinished;
};

/* Most programs in one session. */
#define NSPROBE_PROGRAMS_MAX (1U << 12)

/*
 * Keeps a program in the session, for probes to name. It is checked first.
 *
 * Errors: EINVAL with flaw, ENOSPC too many programs.
 */
struct nsprobe_program {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/* Address of the steps (see struct nsprobe_step). */
	__u64 steps;
	/* Address of the constant bytes. */
	__u64 data;
	/* How many steps there are. */
	__u32 step_count;
	/* How many constant bytes there are. */
	__u32 data_bytes;
	/* Out: the program's id in this session, from 1 on. */
	__u32 id;
	/* Out, on error: a struct nsprobe_flaw, or zero. */
	__u32 flaw;
	/* Out, on error: the index of the step that is wrong. */
	__u32 flaw_step;
	/* Zero. */
	__u32 reserved;
};

/* Most tables in one session. */
#define NSPROBE_TABLES_MAX (1U << 10)

/* Most rows in one table. */
#define NSPROBE_ROWS_MAX (1U << 24)

/* Most bytes of all tables of one session. */
#define NSPROBE_TABLE_BYTES_MAX (1ULL << 30)

/* nsprobe_table.kind: rows of count, sum, least and greatest. */
#define NSPROBE_TABLE_SUMS 1

/* nsprobe_table.kind: count, sum, least and greatest, and a histogram. */
#define NSPROBE_TABLE_HISTOGRAM 2

/*
 * nsprobe_table.kind: spans that have begun and not ended. A row's sum is the
 * value that the span began with.
 */
#define NSPROBE_TABLE_SPANS 3

/*
 * Greatest log_bits: sixteen buckets for each power of two, a relative error of
 * at most 6 %.
 */
#define NSPROBE_LOG_BITS_MAX 4

/* Most buckets of a linear scale, without the two at its ends. */
#define NSPROBE_LINEAR_MAX (1U << 12)

/*
 * nsprobe_table.scale: each power of two is 1 << log_bits buckets (see
 * common/src/histogram.rs).
 */
#define NSPROBE_SCALE_LOG 1

/*
 * nsprobe_table.scale: buckets buckets of step each from low on, one for what
 * is below and one for what is above.
 */
#define NSPROBE_SCALE_LINEAR 2

/*
 * Makes a table that probes of this session count into; it lives as long as the
 * session. Its memory is taken now.
 *
 * Errors: EINVAL a kind, scale or size that cannot be, ENOSPC too many tables
 * or bytes, ENOMEM.
 */
struct nsprobe_table {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/* NSPROBE_TABLE_*. */
	__u32 kind;
	/*
	 * Most rows, from 1 to NSPROBE_ROWS_MAX; the table may have room for
	 * some more. Without key and stack there is one row for each CPU, and
	 * this is not looked at.
	 */
	__u32 rows;
	/* Words of the key that programs give: 0 to NSPROBE_KEY_WORDS_MAX. */
	__u32 key_words;
	/*
	 * Most frames of a row's stack, or zero. The stack is part of the key,
	 * but for spans.
	 */
	__u32 max_frames;
	/* Of a histogram, NSPROBE_SCALE_*; else zero. */
	__u32 scale;
	/* Of a logarithmic scale: 0 to NSPROBE_LOG_BITS_MAX. */
	__u32 log_bits;
	/* Of a linear scale: where the first bucket begins. */
	__s64 low;
	/* Of a linear scale: how wide a bucket is, from 1 on. */
	__u64 step;
	/* Of a linear scale: how many buckets, 1 to NSPROBE_LINEAR_MAX. */
	__u32 buckets;
	/* Out: the table's id in this session, from 1 on. */
	__u32 id;
	/* Out: bytes of one row as struct nsprobe_rows gives it. */
	__u32 row_bytes;
	/* Out: how many rows there is room for. */
	__u32 capacity;
};

/*
 * nsprobe_rows.flags: takes the rows out of the table, for a reader that adds
 * them up itself: the table has their room back. Each hit is in a row that is
 * taken once, or in one that is still there. Waits until no hit sees the rows,
 * for some tens of milliseconds as a rule. Not for spans, and not for tables
 * without a key.
 */
#define NSPROBE_ROWS_TAKE (1U << 0)

/* Most rows that one call takes. */
#define NSPROBE_ROWS_TAKE_MAX (1U << 14)

/*
 * Reads the rows of a table, from first on, as many as fit. Rows are in no
 * order; the rows of one key, if there are several, must be added up. Hits
 * continue meanwhile: a row's numbers may differ by the hits of that moment.
 */
struct nsprobe_rows {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero, or NSPROBE_ROWS_TAKE. */
	__u32 flags;
	/* In: the table's id. */
	__u32 table;
	/*
	 * In: 0 at first, then the previous output. Out: where to continue; 0
	 * at the end.
	 */
	__u32 next;
	/* In: address of the room for rows. */
	__u64 buffer;
	/* In: bytes of that room, at least one row. */
	__u32 buffer_bytes;
	/* Out: rows that were written. */
	__u32 count;
	/* Out: hits for which there was no row, since the table was made. */
	__u64 turned_away;
	/* Out: spans that were replaced by one of the same key, since then. */
	__u64 replaced;
	/*
	 * Out: the id of the pid namespace, below the opener's, of the first
	 * hit for which there was no row; or zero. A container that fills the
	 * table leaves an eighth of it to others.
	 */
	__u64 turned_away_pidns;
};

/*
 * The head of each row of struct nsprobe_rows. The key follows (key_words
 * words), then stack_capacity words of which the first stack_words are frames,
 * then the buckets.
 */
struct nsprobe_row {
	/* Hits. */
	__u64 count;
	/* Sum of their values; of a span, its value. */
	__s64 sum;
	/*
	 * Least value; of a span, the id of its stack with
	 * NSPROBE_PROBE_STACK_IDS, else zero.
	 */
	__s64 least;
	/* Greatest value; of a span, its value. */
	__s64 greatest;
	/* When a span began, CLOCK_MONOTONIC in nanoseconds; else zero. */
	__u64 time_ns;
	/* Words of the key. */
	__u16 key_words;
	/* Words of the stack. */
	__u16 stack_words;
	/* Words that the stack has room for. */
	__u16 stack_capacity;
	/* Why the stack ends, an enum nsprobe_stack_end. */
	__u16 stack_end;
	/* Words of buckets. */
	__u32 buckets;
	/*
	 * The task that began a span, as the opener's pid namespace numbers it;
	 * else zero.
	 */
	__u32 tid;
};

/* Most struct nsprobe_span_owners of one struct nsprobe_drop_spans. */
#define NSPROBE_SPAN_OWNERS_MAX (1U << 12)

/*
 * Drops spans that nothing will end, such as those of processes that have
 * ended: all whose key begins with the word of an owner, and that began at the
 * owner's time at the latest.
 *
 * Errors: ENOENT no such table; EINVAL a table of another kind, no owners or
 * too many, or owners whose words do not rise.
 */
struct nsprobe_drop_spans {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/* In: the table's id. */
	__u32 table;
	/* In: how many struct nsprobe_span_owners there are, from 1 on. */
	__u32 count;
	/* In: their address. */
	__u64 owners;
	/* Out: how many spans were dropped. */
	__u64 dropped;
};

/* Spans with a word in common, of struct nsprobe_drop_spans. */
struct nsprobe_span_owner {
	/* The first word of their keys. */
	__u64 word;
	/* When the last of them began, CLOCK_MONOTONIC in nanoseconds. */
	__u64 latest_ns;
};

/*
 * Identifies the file that a probe attached by this descriptor would go into:
 * on overlayfs the real file beneath, which several containers may share. The
 * identity's pid and build-id are zero.
 *
 * The descriptor may be an NSPROBE_O_PATH one of a file that is mapped or open
 * elsewhere: this asks no server, as opening the file would.
 *
 * Errors: EBADF no descriptor, or open for writing alone; EINVAL no regular
 * file.
 */
struct nsprobe_file {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/* The descriptor. */
	__s32 fd;
	/*
	 * In: zero. Out: 1 if a server answers for its file system
	 * (NSPROBE_REFUSAL_NEEDS_ANSWER).
	 */
	__u32 remote;
	/* Answer: which file it is. */
	struct nsprobe_object_identity identity;
};

/* Most blocks of struct nsprobe_unwind, and one. */
#define NSPROBE_UNWIND_BLOCKS_MAX ((1U << 18) + 1)

/* Most rows of struct nsprobe_unwind. */
#define NSPROBE_UNWIND_ROWS_MAX (1U << 25)

/* Most rules of struct nsprobe_unwind. */
#define NSPROBE_UNWIND_RULES_MAX (1U << 16)

/*
 * nsprobe_unwind.flags: the file has no rows, and never will: its frames are
 * left by the frame pointer, and nothing is copied for them. The arrays are
 * empty.
 */
#define NSPROBE_UNWIND_NONE (1U << 0)

/*
 * nsprobe_unwind.flags: the rows are those of the vDSO, the code that the
 * kernel maps into each program: of the kind that the caller has. fd is zero.
 */
#define NSPROBE_UNWIND_VDSO (1U << 1)

/*
 * nsprobe_unwind.flags: gives no rows, but drops the rows of files that no
 * stack has gone through for first nanoseconds (nor were they given later). The
 * next stack through such a file announces it anew. All else is zero.
 */
#define NSPROBE_UNWIND_DROP (1U << 2)

/* Bytes of stacks that a session copies per second, and in one burst. */
#define NSPROBE_COPY_BYTES_PER_SECOND (32U << 20)

/* Most bytes of all rows of a session. */
#define NSPROBE_UNWIND_BYTES_MAX (512ULL << 20)

/*
 * Gives the session the unwind rows of a file: how its functions' callers are
 * found without frame pointers (common/src/unwind.rs has the format). Stacks
 * use them from then on, for this very file as it is now; when it is written
 * to, it is another one. The session keeps them until it ends or drops them
 * (NSPROBE_UNWIND_DROP), and no other one uses them.
 *
 * Errors: EBADF no descriptor, or not open for reading; EINVAL no regular file,
 * or defect says what is wrong with the rows; NSPROBE_EEXIST the file has rows
 * already; ENOSPC more than NSPROBE_UNWIND_BYTES_MAX, or too many objects;
 * ENOMEM.
 */
struct nsprobe_unwind {
	/* Bytes of this struct. */
	__u32 size;
	/*
	 * Zero, or NSPROBE_UNWIND_NONE, NSPROBE_UNWIND_VDSO or
	 * NSPROBE_UNWIND_DROP.
	 */
	__u32 flags;
	/* A descriptor of the file. */
	__s32 fd;
	/*
	 * How many u32 are at blocks: one more than there are blocks of 64 KiB.
	 */
	__u32 block_count;
	/*
	 * The number of the first block; with NSPROBE_UNWIND_DROP nanoseconds.
	 */
	__u64 first;
	/*
	 * Address of the places where each block's rows begin, and the last
	 * ones end.
	 */
	__u64 blocks;
	/* Address of the rows, u32 each. */
	__u64 rows;
	/* Address of the rules, 16 bytes each. */
	__u64 rules;
	/* How many rows. */
	__u32 row_count;
	/* How many rules. */
	__u32 rule_count;
	/* Answer: the object's id. */
	__u32 object;
	/*
	 * Answer: what is wrong with the rows (struct nsprobe_defect), or zero.
	 */
	__u32 defect;
	/*
	 * Answer: bytes of all rows of the session; with NSPROBE_UNWIND_DROP,
	 * of those dropped.
	 */
	__u64 bytes;
};

/*
 * The frames of a stack that records name by its id. Ids hold as long as the
 * session.
 *
 * Errors: ENOENT no such stack; EINVAL too little room: words then says how
 * much is needed.
 */
struct nsprobe_stack {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/*
	 * In: the stack's id, or zero for the answers about all stacks alone.
	 */
	__u32 id;
	/* In: words that there is room for. Out: words of frames. */
	__u32 words;
	/* In: address of the room. */
	__u64 frames;
	/*
	 * Out: words that all stacks of the session take, of
	 * NSPROBE_STACK_TABLE_WORDS.
	 */
	__u32 used;
	/* Zero. */
	__u32 reserved;
	/*
	 * Out: the id of the pid namespace, below the opener's, of the first
	 * stack for which there was no room; or zero. A container may take
	 * three quarters of the room that others have left.
	 */
	__u64 full_pidns;
};

/* nsprobe_freeze.flags: nothing is recorded any more; hits count as frozen. */
#define NSPROBE_FREEZE_NOW (1U << 0)

/*
 * nsprobe_freeze.flags: records are taken again; what is in the rings is gone.
 */
#define NSPROBE_FREEZE_END (1U << 1)

/*
 * Freezes rings that overwrite, thaws them, or only queries their state. While
 * they are frozen the consumer pages give the positions of the oldest records,
 * and everything from there on is read as from other rings; records that are
 * being written at the moment follow when they are complete. EINVAL for other
 * rings, ENXIO before struct nsprobe_setup.
 */
struct nsprobe_freeze {
	/* Bytes of this struct. */
	__u32 size;
	/* One of NSPROBE_FREEZE_*, or zero. */
	__u32 flags;
	/* Out: 1 when the rings are frozen now. */
	__u32 frozen;
	/* Zero. */
	__u32 reserved;
};

/*
 * nsprobe_object.flags: also open the object's file, read-only, close-on-exec,
 * with the caller's rights, and drop the kernel's own reference to it.
 */
#define NSPROBE_OBJECT_FD (1U << 0)

/*
 * nsprobe_object.flags, instead: also open the root directory of the process
 * that was first seen with the file, NSPROBE_O_PATH and close-on-exec, and drop
 * the kernel's own reference to it: what lies beside the file there can be
 * opened also when the process has ended.
 */
#define NSPROBE_OBJECT_ROOT (1U << 1)

/*
 * nsprobe_object.flags, instead: drop the kernel's own references to both.
 * Waits for no server.
 */
#define NSPROBE_OBJECT_DROP (1U << 2)

/*
 * What a mapped file is that frames name by id. ENOENT: no such object; ESTALE
 * with NSPROBE_OBJECT_FD or NSPROBE_OBJECT_ROOT: the kernel holds no reference
 * (any more); NSPROBE_EREMOTE with NSPROBE_OBJECT_FD: a server answers for the
 * file's file system, as for NSPROBE_REFUSAL_NEEDS_ANSWER. Then the reference
 * stays.
 */
struct nsprobe_object {
	/* Bytes of this struct. */
	__u32 size;
	/* NSPROBE_OBJECT_* bits. */
	__u32 flags;
	/* In: the object's id, from 1 on. */
	__u32 id;
	/*
	 * Out: the file descriptor, with NSPROBE_OBJECT_FD or
	 * NSPROBE_OBJECT_ROOT; else -1.
	 */
	__s32 fd;
	/* Out: the object. */
	struct nsprobe_object_identity identity;
};

/* nsprobe_tasks.flags: forks, program starts and ends. */
#define NSPROBE_TASKS_LIFE (1U << 0)

/* nsprobe_tasks.flags: new names. */
#define NSPROBE_TASKS_NAMES (1U << 1)

/* nsprobe_tasks.flags: other namespaces and control groups. */
#define NSPROBE_TASKS_MOVES (1U << 2)

/*
 * nsprobe_tasks.flags: context switches. One is recorded if either thread is
 * traced.
 */
#define NSPROBE_TASKS_SWITCHES (1U << 3)

/*
 * nsprobe_tasks.flags: wake-ups. One is recorded if the woken thread is traced.
 */
#define NSPROBE_TASKS_WAKEUPS (1U << 4)

/*
 * nsprobe_tasks.flags: CPU time by container is kept, for struct
 * nsprobe_cpu_times. Another request of the session cannot turn it off again;
 * the times keep counting.
 */
#define NSPROBE_TASKS_CPU (1U << 5)

/*
 * nsprobe_tasks.flags: tasks are traced regardless of the session's struct
 * nsprobe_filter, if the session owner's pid namespace sees them.
 */
#define NSPROBE_TASKS_UNFILTERED (1U << 6)

/* Most rows of struct nsprobe_cpu_times for each CPU. */
#define NSPROBE_CPU_ROWS_MAX (1U << 16)

/*
 * Which events of tasks are recorded from now on, after struct nsprobe_setup.
 * It takes the place of the request before. Losses count as those of hits do,
 * and for each kind in struct nsprobe_task_counters.
 *
 * Errors: ENXIO there are no rings, and more than NSPROBE_TASKS_CPU was asked
 * for; EINVAL; EOPNOTSUPP the kernel lacks such events: missing says which;
 * EBUSY too many sessions record tasks; ENOMEM; EPERM when the caller may not
 * trace.
 */
struct nsprobe_tasks {
	/* Bytes of this struct. */
	__u32 size;
	/* NSPROBE_TASKS_* bits; zero ends it. */
	__u32 flags;
	/*
	 * With NSPROBE_TASKS_LIFE: most bytes of the arguments of a program
	 * that starts, at most NSPROBE_TASK_ARGS_MAX; zero for none. Those of
	 * one program take at most an eighth of a ring.
	 */
	__u32 args_bytes;
	/*
	 * With NSPROBE_TASKS_CPU: rows for each CPU, 1 to NSPROBE_CPU_ROWS_MAX.
	 * What the first request with it says holds.
	 */
	__u32 cpu_rows;
	/*
	 * Out, on EOPNOTSUPP: the NSPROBE_TASKS_* bits that the kernel does not
	 * support.
	 */
	__u32 missing;
	/* Zero. */
	__u32 reserved;
};

/*
 * nsprobe_task_dump.flags: a struct nsprobe_mappings_record follows the record
 * of each process that has memory of its own.
 */
#define NSPROBE_DUMP_MAPPINGS (1U << 0)

/* nsprobe_task_dump.flags: with the arguments of processes. */
#define NSPROBE_DUMP_ARGS (1U << 1)

/* Least bytes of nsprobe_task_dump.buffer_bytes. */
#define NSPROBE_DUMP_BYTES_MIN (2 * NSPROBE_TASK_BYTES_MAX)

/*
 * Writes records of the threads that are alive, as many as fit, in the order of
 * their numbers in the session owner's pid namespace; call it again until next
 * is zero. Each is a struct nsprobe_task_record of NSPROBE_TASK_ALIVE. struct
 * nsprobe_filter applies, unless NSPROBE_TASKS_UNFILTERED was requested.
 *
 * With NSPROBE_TASKS_LIFE turned on before the first call, each thread that
 * lived then is in an answer, has a NSPROBE_TASK_EXIT, or both; each one made
 * since has a NSPROBE_TASK_FORK, or is counted as lost. What has the greater
 * time is newer.
 */
struct nsprobe_task_dump {
	/* Bytes of this struct. */
	__u32 size;
	/* NSPROBE_DUMP_* bits. */
	__u32 flags;
	/*
	 * In: 0 at first, then the previous output. Out: where to continue; 0
	 * at the end.
	 */
	__u32 next;
	/* Out: the number of records written. */
	__u32 count;
	/* In: address of the room for records. */
	__u64 buffer;
	/* In: bytes of that room, at least NSPROBE_DUMP_BYTES_MIN. */
	__u32 buffer_bytes;
	/* Out: bytes that were written. */
	__u32 written;
};

/*
 * Reads how long containers have run since NSPROBE_TASKS_CPU was turned on, as
 * many rows as fit. Threads that run at this moment are in it.
 */
struct nsprobe_cpu_times {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/*
	 * In: 0 at first, then the previous output. Out: where to continue; 0
	 * at the end.
	 */
	__u32 next;
	/* Out: rows that were written. */
	__u32 count;
	/* In: address of the room for struct nsprobe_cpu_times. */
	__u64 buffer;
	/* In: bytes of that room, at least one row. */
	__u32 buffer_bytes;
	/* Zero. */
	__u32 reserved;
	/* Out: CLOCK_MONOTONIC of this answer, in nanoseconds. */
	__u64 time_ns;
	/* Out: nanoseconds for which there was no row. */
	__u64 turned_away_ns;
};

/*
 * How long one CPU ran the threads of one pid namespace and one control group.
 */
struct nsprobe_cpu_time {
	/* Id of the control group. */
	__u64 cgroup;
	/* Id of the pid namespace, which is never reused. */
	__u64 pidns_id;
	/* Its inode number, which the kernel may reuse. */
	__u32 pidns_inum;
	/* The CPU. */
	__u32 cpu;
	/* How long, in nanoseconds. */
	__u64 runtime_ns;
	/* How often a thread of theirs gave up the CPU or lost it. */
	__u64 switches;
};

/* Kinds of events in nsprobe_task_counters.kinds, by their index. */
#define NSPROBE_TASK_KINDS 8

/* Index into nsprobe_task_counters.kinds: forks. */
#define NSPROBE_TASK_KIND_FORK 0

/* Index into nsprobe_task_counters.kinds: program starts. */
#define NSPROBE_TASK_KIND_EXEC 1

/* Index into nsprobe_task_counters.kinds: ends. */
#define NSPROBE_TASK_KIND_EXIT 2

/* Index into nsprobe_task_counters.kinds: new names. */
#define NSPROBE_TASK_KIND_NAME 3

/* Index into nsprobe_task_counters.kinds: other namespaces. */
#define NSPROBE_TASK_KIND_NAMESPACES 4

/* Index into nsprobe_task_counters.kinds: other control groups. */
#define NSPROBE_TASK_KIND_CGROUP 5

/* Index into nsprobe_task_counters.kinds: context switches. */
#define NSPROBE_TASK_KIND_SWITCH 6

/* Index into nsprobe_task_counters.kinds: wake-ups. */
#define NSPROBE_TASK_KIND_WAKE 7

/* The events of one kind, by outcome: seen = recorded + filtered + lost. */
struct nsprobe_task_count {
	/*
	 * Events, since the session's first struct nsprobe_tasks that asked for
	 * them.
	 */
	__u64 seen;
	/* Those in a ring. */
	__u64 recorded;
	/* Events whose tasks are not traced. */
	__u64 filtered;
	/*
	 * Events for which a ring had no room, or that came while it was
	 * frozen.
	 */
	__u64 lost;
};

/* The events of tasks, by outcome. */
struct nsprobe_task_counters {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/* In: the CPU, or NSPROBE_CPU_ALL. */
	__u32 cpu;
	/* Zero. */
	__u32 reserved;
	/* Out: by NSPROBE_TASK_KIND_*. */
	struct nsprobe_task_count kinds[NSPROBE_TASK_KINDS];
};

/* nsprobe_hold.flags: limit_ms is set; without it the request only reads. */
#define NSPROBE_HOLD_SET (1U << 0)

/* Largest nsprobe_hold.limit_ms. */
#define NSPROBE_HOLD_MS_MAX 10000

/*
 * Most programs of a session that wait at a time, of one container a quarter;
 * more begin at once, and count as not_held.
 */
#define NSPROBE_HELD_MAX 64

/*
 * Programs that reach the limit one after the other, after which no more are
 * held.
 */
#define NSPROBE_HOLD_OVERDUE_MAX 3

/*
 * Makes programs wait before their first instruction until struct nsprobe_held
 * releases them, so that probes see their first call: programs in mount
 * namespaces that were made after the session's first NSPROBE_HOLD_SET, each
 * file once for each root directory in each of these. Children of the process
 * that opened the session are not held. A signal, a debugger, a freezer and the
 * end of the session end a wait at once.
 *
 * The session's file is readable (poll) while struct nsprobe_held has a program
 * to return.
 *
 * Errors: EINVAL; EBUSY too many sessions listen to tasks; ENOMEM; EOPNOTSUPP
 * the kernel does not report programs; ENXIO nothing was set yet; EPERM when
 * the caller may not trace.
 */
struct nsprobe_hold {
	/* Bytes of this struct. */
	__u32 size;
	/* NSPROBE_HOLD_SET, or zero. */
	__u32 flags;
	/*
	 * With NSPROBE_HOLD_SET: how long a program waits at most, up to
	 * NSPROBE_HOLD_MS_MAX; zero releases all and ends it. Out: the limit;
	 * zero also after NSPROBE_HOLD_OVERDUE_MAX programs have reached it.
	 */
	__u32 limit_ms;
	/* Zero. */
	__u32 reserved;
	/* Out: programs that have waited, or do. */
	__u64 held;
	/* Out: of those, the ones that reached the limit. */
	__u64 overdue;
	/*
	 * Out: of those, the ones that a signal, a debugger or a freezer let go
	 * on.
	 */
	__u64 interrupted;
	/* Out: programs that would have waited, if others did not already. */
	__u64 not_held;
	/* Out: the longest wait that is over, in nanoseconds. */
	__u64 longest_ns;
};

/*
 * Returns a program that waits, or releases one. What was released does not
 * wait again: the latest 1,024 are remembered.
 *
 * Errors: EINVAL; ENXIO no struct nsprobe_hold was set; EPERM when the caller
 * may not trace.
 */
struct nsprobe_held {
	/* Bytes of this struct. */
	__u32 size;
	/* Zero. */
	__u32 flags;
	/*
	 * In: the number of a program to release, which may wait no more; zero
	 * to get one.
	 */
	__u64 release;
	/*
	 * Out: the number of a program that no call has returned before; zero
	 * if there is none, or one was released.
	 */
	__u64 id;
	/* Out: the process, as the session owner's pid namespace numbers it. */
	__u32 pid;
	/* Zero. */
	__u32 reserved;
};

/* Slots of a program. */
#define NSPROBE_SLOTS 16

/* Most steps of a program. */
#define NSPROBE_STEPS_MAX 256

/* Most constant bytes of a program. */
#define NSPROBE_DATA_MAX 4096

/* Most fields of a program. */
#define NSPROBE_FIELDS_MAX 32

/* Longest string or byte array that is fetched, in bytes. */
#define NSPROBE_BYTES_MAX 256

/* Most words that the fields of one hit take. */
#define NSPROBE_OUTPUT_WORDS_MAX 96

/* One step: slots[to] = operation(a, b, small, large). */
struct nsprobe_step {
	/* An struct nsprobe_operation. */
	__u8 operation;
	/* The slot that is written. */
	__u8 to;
	/* The first slot that is read. */
	__u8 a;
	/* The second slot that is read. */
	__u8 b;
	/* Its meaning depends on the operation. */
	__s32 small;
	/* Its meaning depends on the operation. */
	__u64 large;
};

/* The operation of a step. Numbers are never reused. */
enum nsprobe_operation {
	/* large. */
	NSPROBE_OPERATION_CONSTANT = 1,
	/* Register small (a struct nsprobe_register) of the task. */
	NSPROBE_OPERATION_REGISTER = 2,
	/* large as a struct nsprobe_context. */
	NSPROBE_OPERATION_CONTEXT = 3,
	/* Value small that the entry of this call kept. */
	NSPROBE_OPERATION_KEPT = 4,
	/* Keeps a as value small for the return of this call. */
	NSPROBE_OPERATION_KEEP = 5,
	/* large bytes (1, 2, 4 or 8) at address a + small. */
	NSPROBE_OPERATION_LOAD = 6,
	/* As struct nsprobe_load, with the sign extended. */
	NSPROBE_OPERATION_LOAD_SIGNED = 7,
	/*
	 * The address in this process that lies large after the probe's
	 * reported place: how a program names what is in the probed file.
	 */
	NSPROBE_OPERATION_FROM_PROBE = 8,
	/* a + b. */
	NSPROBE_OPERATION_ADD = 16,
	/* a - b. */
	NSPROBE_OPERATION_SUBTRACT = 17,
	/* a * b. */
	NSPROBE_OPERATION_MULTIPLY = 18,
	/* a / b, unsigned; absent when b is zero. */
	NSPROBE_OPERATION_DIVIDE = 19,
	/* a % b, unsigned; absent when b is zero. */
	NSPROBE_OPERATION_MODULO = 20,
	/* a & b. */
	NSPROBE_OPERATION_AND = 21,
	/* a | b. */
	NSPROBE_OPERATION_OR = 22,
	/* a ^ b. */
	NSPROBE_OPERATION_EXCLUSIVE_OR = 23,
	/* a << b; zero when b is 64 or more. */
	NSPROBE_OPERATION_SHIFT_LEFT = 24,
	/* a >> b, unsigned; zero when b is 64 or more. */
	NSPROBE_OPERATION_SHIFT_RIGHT = 25,
	/* a >> b with the sign kept; b counts as at most 63. */
	NSPROBE_OPERATION_SHIFT_RIGHT_SIGNED = 26,
	/* !a, bit by bit. */
	NSPROBE_OPERATION_NOT = 27,
	/* The low large bits (1 to 63) of a. */
	NSPROBE_OPERATION_ZERO_EXTEND = 28,
	/* The low large bits (1 to 63) of a, with the sign extended. */
	NSPROBE_OPERATION_SIGN_EXTEND = 29,
	/* a / b, signed; absent when b is zero or the result does not fit. */
	NSPROBE_OPERATION_DIVIDE_SIGNED = 30,
	/* a % b, signed; absent when b is zero or the division does not fit. */
	NSPROBE_OPERATION_MODULO_SIGNED = 31,
	/* 1 when a == b, else 0. */
	NSPROBE_OPERATION_EQUAL = 32,
	/* 1 when a < b, unsigned, else 0. */
	NSPROBE_OPERATION_BELOW = 33,
	/* 1 when a <= b, unsigned, else 0. */
	NSPROBE_OPERATION_BELOW_OR_EQUAL = 34,
	/* 1 when a < b, signed, else 0. */
	NSPROBE_OPERATION_LESS = 35,
	/* 1 when a <= b, signed, else 0. */
	NSPROBE_OPERATION_LESS_OR_EQUAL = 36,
	/* 1 when a is zero, else 0. */
	NSPROBE_OPERATION_IS_ZERO = 37,
	/*
	 * 1 when the string at address a is the constant small..small + large,
	 * which is at most NSPROBE_BYTES_MAX long, else 0.
	 */
	NSPROBE_OPERATION_STRING_EQUAL = 38,
	/*
	 * Like struct nsprobe_string_equal, when the string begins with the
	 * constant.
	 */
	NSPROBE_OPERATION_STRING_BEGINS = 39,
	/*
	 * a when it is present and not zero, else b: an "or" that does not look
	 * at what would decide nothing.
	 */
	NSPROBE_OPERATION_EITHER = 40,
	/*
	 * b when a is not zero, else zero: an "and" that does not look at what
	 * would decide nothing.
	 */
	NSPROBE_OPERATION_BOTH = 41,
	/*
	 * 1 when the b bytes at address a are the constant small..small +
	 * large, which is at most NSPROBE_BYTES_MAX long, else 0. Of another
	 * length, nothing is read.
	 */
	NSPROBE_OPERATION_SLICE_EQUAL = 42,
	/*
	 * Like struct nsprobe_slice_equal, when the bytes begin with the
	 * constant.
	 */
	NSPROBE_OPERATION_SLICE_BEGINS = 43,
	/*
	 * The hit counts only when a is present and not zero; else the program
	 * ends here.
	 */
	NSPROBE_OPERATION_REQUIRE = 48,
	/* A field: a. */
	NSPROBE_OPERATION_FIELD = 64,
	/* A field: the string at address a, at most small bytes of it. */
	NSPROBE_OPERATION_FIELD_STRING = 65,
	/* A field: small bytes at address a. */
	NSPROBE_OPERATION_FIELD_BYTES = 66,
	/*
	 * A field: the b bytes at address a, at most small of them; absent when
	 * b is 2^63 or more.
	 */
	NSPROBE_OPERATION_FIELD_SLICE = 67,
	/*
	 * The next word of the key is a. A hit whose key is absent is rejected,
	 * as undecided.
	 */
	NSPROBE_OPERATION_KEY = 80,
	/*
	 * The next small / 8 words of the key are the string at address a,
	 * zero-padded, at most small bytes of it; small is a multiple of 8.
	 */
	NSPROBE_OPERATION_KEY_STRING = 81,
	/*
	 * The value for the table is a. A hit whose value is absent is
	 * rejected, as undecided.
	 */
	NSPROBE_OPERATION_VALUE = 82,
	/*
	 * Ends the span that began under the key so far, and empties the key
	 * for what follows. Nanoseconds since it began; absent when there is
	 * none. At most twice in a program, with keys of one length. With small
	 * 1 only a span that began before the call that returns here: one that
	 * began meanwhile, in another thread, stays. Absent where there is no
	 * return, or the call's entry was not seen.
	 */
	NSPROBE_OPERATION_END_SPAN = 83,
	/*
	 * The value that the ended span began with; absent when there was none.
	 */
	NSPROBE_OPERATION_SPAN_VALUE = 84,
	/* Like struct nsprobe_key_string, of the b bytes at address a. */
	NSPROBE_OPERATION_KEY_SLICE = 85,
	/*
	 * Sets register small to a: a general one, or the arithmetic flags.
	 * Fails for one that a 32-bit program does not have.
	 */
	NSPROBE_OPERATION_SET_REGISTER = 96,
	/*
	 * Writes the low large bytes (1, 2, 4 or 8) of b to address a + small.
	 * Fails when they are in two pages, or their page could not be written
	 * without a page fault: it is absent, read-only, or not yet the
	 * process's own copy.
	 */
	NSPROBE_OPERATION_STORE = 97,
	/*
	 * Ends the function at once with return value a: continues at the ret
	 * instruction (0xc3) that lies large after the probe's reported place,
	 * instead of at the breakpoint. Fails when there is none. Only at a
	 * function's entry, where the return address is on top of the stack.
	 */
	NSPROBE_OPERATION_RETURN = 98,
};

/* A register, by its DWARF number (System V psABI for x86-64, figure 3.36). */
enum nsprobe_register {
	/* %rax. */
	NSPROBE_REGISTER_RAX = 0,
	/* %rdx. */
	NSPROBE_REGISTER_RDX = 1,
	/* %rcx. */
	NSPROBE_REGISTER_RCX = 2,
	/* %rbx. */
	NSPROBE_REGISTER_RBX = 3,
	/* %rsi. */
	NSPROBE_REGISTER_RSI = 4,
	/* %rdi. */
	NSPROBE_REGISTER_RDI = 5,
	/* %rbp. */
	NSPROBE_REGISTER_RBP = 6,
	/* %rsp. */
	NSPROBE_REGISTER_RSP = 7,
	/* %r8. */
	NSPROBE_REGISTER_R8 = 8,
	/* %r9. */
	NSPROBE_REGISTER_R9 = 9,
	/* %r10. */
	NSPROBE_REGISTER_R10 = 10,
	/* %r11. */
	NSPROBE_REGISTER_R11 = 11,
	/* %r12. */
	NSPROBE_REGISTER_R12 = 12,
	/* %r13. */
	NSPROBE_REGISTER_R13 = 13,
	/* %r14. */
	NSPROBE_REGISTER_R14 = 14,
	/* %r15. */
	NSPROBE_REGISTER_R15 = 15,
	/* %rip. */
	NSPROBE_REGISTER_RIP = 16,
	/* %rflags. */
	NSPROBE_REGISTER_FLAGS = 49,
};

/* A fact about the task or the moment of the hit. */
enum nsprobe_context {
	/* Process id in the session owner's pid namespace. */
	NSPROBE_CONTEXT_PID = 0,
	/* Thread id in the session owner's pid namespace. */
	NSPROBE_CONTEXT_TID = 1,
	/* Process id in the task's own namespace. */
	NSPROBE_CONTEXT_NS_PID = 2,
	/* Thread id in the task's own namespace. */
	NSPROBE_CONTEXT_NS_TID = 3,
	/*
	 * Inode number of the task's pid namespace, which the kernel may reuse.
	 */
	NSPROBE_CONTEXT_PID_NAMESPACE = 4,
	/* CPU. */
	NSPROBE_CONTEXT_CPU = 5,
	/* CLOCK_MONOTONIC in nanoseconds. */
	NSPROBE_CONTEXT_TIME = 6,
	/*
	 * Nanoseconds since the entry of this call; absent outside of returns.
	 */
	NSPROBE_CONTEXT_ELAPSED = 7,
	/* Effective user id, in the initial user namespace. */
	NSPROBE_CONTEXT_UID = 8,
	/* First eight bytes of the thread's name. */
	NSPROBE_CONTEXT_COMM_LOW = 9,
	/* Last eight bytes of the thread's name. */
	NSPROBE_CONTEXT_COMM_HIGH = 10,
	/* The probe's id. */
	NSPROBE_CONTEXT_PROBE = 11,
	/* Id of the task's pid namespace, which is never reused. */
	NSPROBE_CONTEXT_PID_NAMESPACE_ID = 12,
	/*
	 * A random number, another one at each hit. What it is made of is not
	 * fit for secrets.
	 */
	NSPROBE_CONTEXT_RANDOM = 13,
	/* Effective group id, in the initial user namespace. */
	NSPROBE_CONTEXT_GID = 14,
	/*
	 * Of a wait: what it was for, a struct nsprobe_wait_kind. Absent
	 * elsewhere, as the following ones.
	 */
	NSPROBE_CONTEXT_WAIT_KIND = 15,
	/*
	 * Of a wait: the number of the x86-64 system call that the task is in;
	 * all bits set in none.
	 */
	NSPROBE_CONTEXT_WAIT_CALL = 16,
	/*
	 * Of a wait: the file descriptor that this call has as its first
	 * argument; all bits set if it has none.
	 */
	NSPROBE_CONTEXT_WAIT_FILE = 17,
	/*
	 * Of a wait: nanoseconds that the task could run, and waited for a CPU.
	 */
	NSPROBE_CONTEXT_WAITED_FOR_CPU = 18,
	/*
	 * Of a wait: when the task was woken, CLOCK_MONOTONIC in nanoseconds;
	 * zero if that is unknown, as without a NSPROBE_PROBE_WAKE, whose hit
	 * has the same time.
	 */
	NSPROBE_CONTEXT_WOKEN_AT = 19,
	/*
	 * Of a wait: what woke the task: a struct nsprobe_waker in the upper
	 * half, the thread's number in the session owner's pid namespace in the
	 * lower one.
	 */
	NSPROBE_CONTEXT_WOKEN_BY = 20,
	/*
	 * Of a wait in futex(2): the address that it waits at; zero in other
	 * calls.
	 */
	NSPROBE_CONTEXT_LOCK = 21,
	/*
	 * Of such a wait, with NSPROBE_PROBE_LOCKS: which other thread of the
	 * process held the lock when the wait began: the struct nsprobe_proof
	 * in the upper half, the thread's number in the session owner's pid
	 * namespace in the lower one.
	 */
	NSPROBE_CONTEXT_LOCK_HOLDER = 22,
};

/* Values that an entry can keep for its return. */
#define NSPROBE_KEPT_MAX 4

/* Most words of a key. */
#define NSPROBE_KEY_WORDS_MAX 16

/* Why a program was refused. */
enum nsprobe_flaw {
	/*
	 * More steps than NSPROBE_STEPS_MAX, or more data than
	 * NSPROBE_DATA_MAX.
	 */
	NSPROBE_FLAW_TOO_LONG = 1,
	/* The operation, register or context does not exist. */
	NSPROBE_FLAW_UNKNOWN = 2,
	/* The slot does not exist. */
	NSPROBE_FLAW_NO_SLOT = 3,
	/* A slot is read before any step wrote it. */
	NSPROBE_FLAW_UNWRITTEN = 4,
	/* A size, bound or range is out of its limits. */
	NSPROBE_FLAW_BAD_SIZE = 5,
	/*
	 * More fields, or longer ones, than a record holds, or more words than
	 * a key.
	 */
	NSPROBE_FLAW_TOO_MUCH_OUTPUT = 6,
	/* An operation is there more often than a program may have it. */
	NSPROBE_FLAW_REPEATED = 7,
	/* The stack or instruction pointer is set. */
	NSPROBE_FLAW_NOT_WRITABLE = 8,
};

/* Why a stack has no further frames. */
enum nsprobe_stack_end {
	/* No stack was requested. */
	NSPROBE_STACK_END_NONE = 0,
	/* The outermost frame: a frame pointer of zero, as the ABI has it. */
	NSPROBE_STACK_END_OUTERMOST = 1,
	/* The probe's limit of frames. */
	NSPROBE_STACK_END_LIMIT = 2,
	/* The next frame's memory cannot be read without a page fault. */
	NSPROBE_STACK_END_FAULT = 3,
	/*
	 * The frame pointer is misaligned, not a user address or does not
	 * advance: the function does not keep one.
	 */
	NSPROBE_STACK_END_BAD_FRAME_POINTER = 4,
	/*
	 * The return address is not in executable memory: the function does not
	 * keep a frame pointer.
	 */
	NSPROBE_STACK_END_NOT_CODE = 5,
	/*
	 * The unwind rows of the next frame have no rule that can be carried
	 * out, or the task runs 32-bit code.
	 */
	NSPROBE_STACK_END_UNSUPPORTED = 6,
	/*
	 * By its unwind row, the next frame does not lie above the one before.
	 */
	NSPROBE_STACK_END_BAD_ROW = 7,
	/* The next frame's file has unwind rows, but none for this code. */
	NSPROBE_STACK_END_NO_ROW = 8,
	/*
	 * The last frame's file has no unwind rows yet; user space continues
	 * the walk from the struct nsprobe_stack_copy in front of the hit.
	 */
	NSPROBE_STACK_END_COPIED = 9,
	/*
	 * The next frame's page is not present; a struct nsprobe_late_stack
	 * with all frames follows.
	 */
	NSPROBE_STACK_END_LATE = 10,
	/*
	 * The copy of the stack ends (NSPROBE_STACK_COPY_WORDS_MAX). No record
	 * carries this reason: a reader that continues from a copy finds it.
	 */
	NSPROBE_STACK_END_COPY_END = 11,
	/* The unwind rows of the next frame's file were not there yet. */
	NSPROBE_STACK_END_ROWS_NOT_READY = 12,
};

/* How a frame's address was found. */
enum nsprobe_method {
	/* The instruction pointer of the hit. */
	NSPROBE_METHOD_REGISTERS = 0,
	/* The return address on top of the stack at a function's entry. */
	NSPROBE_METHOD_STACK_TOP = 1,
	/* The return address after a saved frame pointer. */
	NSPROBE_METHOD_FRAME_POINTER = 2,
	/* The return address that an unwind row leads to. */
	NSPROBE_METHOD_ROW = 3,
	/* The instruction that a signal has interrupted. */
	NSPROBE_METHOD_SIGNAL = 4,
};

/* Why a frame is a bare address. */
enum nsprobe_unmapped {
	/* The mapping has no file: generated code. */
	NSPROBE_UNMAPPED_ANONYMOUS = 1,
	/* The session's table of objects is full. */
	NSPROBE_UNMAPPED_TABLE_FULL = 2,
	/* The mapping could not be looked up. */
	NSPROBE_UNMAPPED_NO_MAPPING = 3,
	/* The file offset does not fit into NSPROBE_OFFSET_BITS. */
	NSPROBE_UNMAPPED_HUGE_OFFSET = 4,
	/*
	 * The address is in the kernel: stacks of samples in a table begin with
	 * its frames.
	 */
	NSPROBE_UNMAPPED_KERNEL = 5,
};

/* Bits of a frame's word that hold the file offset. */
#define NSPROBE_OFFSET_BITS 40

/* The head of every record. */
struct nsprobe_header {
	/* NSPROBE_LENGTH, NSPROBE_BUSY and NSPROBE_DISCARD. */
	__u32 word;
	/* NSPROBE_KIND_*. */
	__u16 kind;
	/* Zero. */
	__u16 reserved;
};

/*
 * Code that a process has mapped. A struct nsprobe_stack_copy has it in no
 * order.
 */
struct nsprobe_code_mapping {
	/* First address. */
	__u64 start;
	/* Its length in bytes. */
	__u64 bytes;
	/* Add this to an address to get its offset in the file. */
	__u64 delta;
	/* The file's object; 0 when there is none. */
	__u32 object;
	/* An enum nsprobe_unmapped when there is no object, zero otherwise. */
	__u32 unmapped;
};

/*
 * Bit of nsprobe_header.word: the record is being written; the reader stops
 * here.
 */
#define NSPROBE_BUSY (1U << 31)

/*
 * Bit of nsprobe_header.word: the writer gave up; the reader skips the record.
 */
#define NSPROBE_DISCARD (1U << 30)

/*
 * Bits of nsprobe_header.word: length of the record in bytes, header included.
 */
#define NSPROBE_LENGTH (NSPROBE_DISCARD - 1)

/* nsprobe_header.kind of a struct nsprobe_hit. */
#define NSPROBE_KIND_HIT 1

/* nsprobe_header.kind of an struct nsprobe_object_record. */
#define NSPROBE_KIND_OBJECT 2

/* nsprobe_header.kind of a struct nsprobe_lost. */
#define NSPROBE_KIND_LOST 3

/* nsprobe_header.kind of a struct nsprobe_write_record. */
#define NSPROBE_KIND_WRITE 4

/* nsprobe_header.kind of an struct nsprobe_off_record. */
#define NSPROBE_KIND_OFF 5

/* nsprobe_header.kind of a struct nsprobe_stack_copy. */
#define NSPROBE_KIND_STACK_COPY 6

/* nsprobe_header.kind of a struct nsprobe_late_stack. */
#define NSPROBE_KIND_LATE_STACK 7

/* nsprobe_header.kind of a struct nsprobe_task_record. */
#define NSPROBE_KIND_TASK 8

/* nsprobe_header.kind of a struct nsprobe_switch_record. */
#define NSPROBE_KIND_SWITCH 9

/* nsprobe_header.kind of a struct nsprobe_wake_record. */
#define NSPROBE_KIND_WAKE 10

/* nsprobe_header.kind of a struct nsprobe_mappings_record. */
#define NSPROBE_KIND_MAPPINGS 11

/*
 * Most words of frames in one hit: a stack with many bare addresses, which take
 * two words each, ends before NSPROBE_FRAMES_MAX.
 */
#define NSPROBE_WORDS_MAX 128

/* Longest record that the module writes, in bytes. */
#define NSPROBE_RECORD_BYTES_MAX ((sizeof(struct nsprobe_stack_copy) + (NSPROBE_CODE_MAPPINGS_MAX * sizeof(struct nsprobe_code_mapping))) + (8 * NSPROBE_STACK_COPY_WORDS_MAX))

/* Most addresses of a kernel stack. */
#define NSPROBE_KERNEL_WORDS_MAX 64

/* Longest record of a hit, in bytes: a ring is at least as large. */
#define NSPROBE_HIT_BYTES_MAX (sizeof(struct nsprobe_hit) + (8 * (((1 + NSPROBE_WORDS_MAX) + NSPROBE_KERNEL_WORDS_MAX) + NSPROBE_OUTPUT_WORDS_MAX)))

/*
 * A probe was hit. Words follow: with NSPROBE_HIT_RETURN one with the
 * nanoseconds since the call's entry (NSPROBE_ELAPSED_UNKNOWN when that was not
 * seen); then words words of frames (see NSPROBE_FRAME_OBJECT), innermost
 * first; then the addresses of the kernel's stack, innermost first, with
 * NSPROBE_PROBE_KERNEL_STACK, a word each; and at the end field_words words of
 * the program's fields (see struct nsprobe_output).
 */
struct nsprobe_hit {
	/* Length and kind. */
	struct nsprobe_header header;
	/* CLOCK_MONOTONIC in nanoseconds. */
	__u64 time_ns;
	/* The probe's id. */
	__u32 probe;
	/*
	 * Low 32 bits of the probe's hit count on this CPU, this hit included:
	 * a gap means hits that were filtered or lost.
	 */
	__u32 sequence;
	/* CPU that took the hit. */
	__u16 cpu;
	/* 8-byte words of frames after this struct. */
	__u16 words;
	/* An enum nsprobe_stack_end. */
	__u8 stack_end;
	/* NSPROBE_HIT_* bits. */
	__u8 flags;
	/* 8-byte words of fields after the frames. */
	__u16 field_words;
	/* Process id in the session owner's pid namespace. */
	__u32 pid;
	/* Thread id in the session owner's pid namespace. */
	__u32 tid;
	/*
	 * Process id in the task's own pid namespace: what the container sees.
	 */
	__u32 ns_pid;
	/* Thread id in the task's own pid namespace. */
	__u32 ns_tid;
	/* Id of the task's pid namespace, which is never reused. */
	__u64 pidns_id;
	/*
	 * Its inode number, which the kernel may reuse: for display, not for
	 * comparison.
	 */
	__u32 pidns_inum;
	/*
	 * With NSPROBE_PROBE_STACK_IDS: the id of the stack, whose frames
	 * struct nsprobe_stack gives; words is then zero. Zero: the frames, if
	 * any, are here.
	 */
	__u32 stack;
	/* Name of the thread, NUL-padded. */
	__u8 comm[16];
};

/* nsprobe_hit.flags: the function returned; without it, it was entered. */
#define NSPROBE_HIT_RETURN (1U << 1)

/* nsprobe_hit.flags: a sample that was taken in the kernel. */
#define NSPROBE_HIT_KERNEL (1U << 2)

/* The word after a return's struct nsprobe_hit if its entry was not seen. */
#define NSPROBE_ELAPSED_UNKNOWN 0xffffffffffffffffULL

/*
 * The stack of a hit from some frame on, with what user space needs to continue
 * the walk. It precedes the struct nsprobe_hit of the same probe, thread and
 * time. After it are mappings struct nsprobe_code_mappings, and words words of
 * memory from rsp on.
 */
struct nsprobe_stack_copy {
	/* Length and kind. */
	struct nsprobe_header header;
	/* CLOCK_MONOTONIC of the hit, in nanoseconds. */
	__u64 time_ns;
	/* The probe's id. */
	__u32 probe;
	/* Thread id in the session owner's pid namespace. */
	__u32 tid;
	/*
	 * The instruction, or the return address, of the last frame of the hit.
	 */
	__u64 rip;
	/* Its stack pointer. */
	__u64 rsp;
	/* Its frame pointer. */
	__u64 rbp;
	/* NSPROBE_COPY_* bits. */
	__u32 flags;
	/* How many mappings follow. */
	__u32 mappings;
	/* How many words of memory follow these. */
	__u32 words;
	/* Zero. */
	__u32 reserved;
};

/* nsprobe_stack_copy.flags: rip is after a call. */
#define NSPROBE_COPY_BEHIND_CALL (1U << 0)

/* nsprobe_stack_copy.flags: rbp is not known. */
#define NSPROBE_COPY_WITHOUT_RBP (1U << 1)

/* nsprobe_stack_copy.flags: more code is mapped than the mappings cover. */
#define NSPROBE_COPY_MAPPINGS_CUT (1U << 2)

/*
 * The stack of a hit that ended with NSPROBE_STACK_END_LATE, captured once the
 * missing pages were present, before the task continued. words words of frames
 * follow. After a struct nsprobe_stack_copy of the same probe, thread and time
 * it ends with NSPROBE_STACK_END_COPIED.
 */
struct nsprobe_late_stack {
	/* Length and kind. */
	struct nsprobe_header header;
	/* When it was taken, CLOCK_MONOTONIC in nanoseconds. */
	__u64 time_ns;
	/* The time of the hit. */
	__u64 hit_ns;
	/* The hit's probe. */
	__u32 probe;
	/* The hit's thread, in the session owner's pid namespace. */
	__u32 tid;
	/* As nsprobe_hit.stack. */
	__u32 stack;
	/* 8-byte words of frames after this struct. */
	__u16 words;
	/* An enum nsprobe_stack_end. */
	__u8 stack_end;
	/* The number of page fetches. */
	__u8 pages;
};

/* An object that frames of this session name from now on. */
struct nsprobe_object_record {
	/* Length and kind. */
	struct nsprobe_header header;
	/* CLOCK_MONOTONIC in nanoseconds. */
	__u64 time_ns;
	/* The id that frames use. */
	__u32 id;
	/* Zero. */
	__u32 reserved;
	/* The file. */
	struct nsprobe_object_identity identity;
};

/*
 * Records lost because this ring was full, reported before the next record that
 * fits.
 */
struct nsprobe_lost {
	/* Length and kind. */
	struct nsprobe_header header;
	/* CLOCK_MONOTONIC of the last of them, in nanoseconds. */
	__u64 time_ns;
	/* The number of lost records. */
	__u64 count;
	/* CLOCK_MONOTONIC of the first of them, in nanoseconds. */
	__u64 first_ns;
};

/* nsprobe_write_record.what: a register; its place is its DWARF number. */
#define NSPROBE_WRITE_REGISTER 1

/* nsprobe_write_record.what: memory; its place is its address. */
#define NSPROBE_WRITE_MEMORY 2

/*
 * nsprobe_write_record.what: an immediate return; before and after are the
 * register with the return value, the place is where the task continued.
 */
#define NSPROBE_WRITE_RETURN 3

/*
 * A program of a probe wrote, or tried to. It comes before the record of its
 * hit, which has the same sequence.
 */
struct nsprobe_write_record {
	/* Length and kind. */
	struct nsprobe_header header;
	/* When, CLOCK_MONOTONIC in nanoseconds. */
	__u64 time_ns;
	/* The probe. */
	__u32 probe;
	/*
	 * The hit's number among those of its probe and CPU, as in
	 * nsprobe_hit.sequence.
	 */
	__u32 sequence;
	/* Process id in the session owner's pid namespace. */
	__u32 pid;
	/* Thread id in the session owner's pid namespace. */
	__u32 tid;
	/* NSPROBE_WRITE_*. */
	__u8 what;
	/* 1 if the write was done, 0 if it failed and changed nothing. */
	__u8 done;
	/* Bytes of the write. */
	__u8 bytes;
	/* Zero. */
	__u8 reserved;
	/* The CPU whose ring this is. */
	__u32 cpu;
	/* The address, register or instruction that was written. */
	__u64 place;
	/* The value before; zero if it could not be read. */
	__u64 before;
	/* The value to write. */
	__u64 after;
};

/*
 * A probe was turned off, as it was hit more often than nsprobe_probe.runaway
 * allows.
 */
struct nsprobe_off_record {
	/* Length and kind. */
	struct nsprobe_header header;
	/* When, CLOCK_MONOTONIC in nanoseconds. */
	__u64 time_ns;
	/* The probe. */
	__u32 probe;
	/* The limit, in hits per second. */
	__u32 limit;
};

/*
 * Most pid namespaces that a task is in: the kernel's NSPROBE_MAX_PID_NS_LEVEL,
 * and the first.
 */
#define NSPROBE_TASK_LEVELS_MAX 33

/* Most bytes of arguments in a struct nsprobe_task_record. */
#define NSPROBE_TASK_ARGS_MAX 4096

/* Longest struct nsprobe_task_record in bytes, with what follows it. */
#define NSPROBE_TASK_BYTES_MAX ((sizeof(struct nsprobe_task_record) + ((2 * NSPROBE_TASK_LEVELS_MAX) * sizeof(struct nsprobe_task_level))) + NSPROBE_TASK_ARGS_MAX)

/*
 * nsprobe_task_record.what: the task is alive; an answer to struct
 * nsprobe_task_dump, in no ring.
 */
#define NSPROBE_TASK_ALIVE 1

/*
 * nsprobe_task_record.what: the task was made; it has not run yet. The levels
 * of the task that made it follow its own.
 */
#define NSPROBE_TASK_FORK 2

/*
 * nsprobe_task_record.what: it executes another program. A thread that is not
 * its process's first takes the number and the start time of the first; value
 * is the number that it had, or zero if that is unknown in the session owner's
 * namespace.
 */
#define NSPROBE_TASK_EXEC 3

/*
 * nsprobe_task_record.what: it exits; value is its code for wait(2), with
 * NSPROBE_TASK_LAST that of its process.
 */
#define NSPROBE_TASK_EXIT 4

/* nsprobe_task_record.what: it has another name; comm is the new one. */
#define NSPROBE_TASK_NAME 5

/*
 * nsprobe_task_record.what: it may be in other namespaces, after setns(2) or
 * unshare(2).
 */
#define NSPROBE_TASK_NAMESPACES 6

/* nsprobe_task_record.what: it was moved to another control group. */
#define NSPROBE_TASK_CGROUP 7

/* nsprobe_task_record.flags: a kernel thread. */
#define NSPROBE_TASK_KERNEL (1U << 0)

/* nsprobe_task_record.flags: it was the last thread of its process to end. */
#define NSPROBE_TASK_LAST (1U << 1)

/* nsprobe_task_record.flags: there were more arguments than these. */
#define NSPROBE_TASK_ARGS_CUT (1U << 2)

/*
 * nsprobe_task_record.flags: the arguments could not be read without a page
 * fault.
 */
#define NSPROBE_TASK_ARGS_ABSENT (1U << 3)

/*
 * nsprobe_task_record.flags: it has exited, and its parent has not reaped it
 * yet.
 */
#define NSPROBE_TASK_ZOMBIE (1U << 4)

/*
 * nsprobe_task_record.flags: it has no namespaces any more but that of pids:
 * all others are zero. So are those of a task that has ended.
 */
#define NSPROBE_TASK_BARE (1U << 5)

/*
 * nsprobe_task_record.flags: it is exiting. Its NSPROBE_TASK_EXIT comes before
 * or after this record: a reader need not wait for it.
 */
#define NSPROBE_TASK_ENDING (1U << 6)

/* Index into nsprobe_task_record.namespaces: mounts. */
#define NSPROBE_NAMESPACE_MOUNT 0

/* Index into nsprobe_task_record.namespaces: host name. */
#define NSPROBE_NAMESPACE_UTS 1

/*
 * Index into nsprobe_task_record.namespaces: System V objects and message
 * queues.
 */
#define NSPROBE_NAMESPACE_IPC 2

/* Index into nsprobe_task_record.namespaces: network. */
#define NSPROBE_NAMESPACE_NETWORK 3

/* Index into nsprobe_task_record.namespaces: users. */
#define NSPROBE_NAMESPACE_USER 4

/* Index into nsprobe_task_record.namespaces: control groups. */
#define NSPROBE_NAMESPACE_CGROUP 5

/* Index into nsprobe_task_record.namespaces: clocks. */
#define NSPROBE_NAMESPACE_TIME 6

/*
 * Index into nsprobe_task_record.namespaces: the pid namespace that its
 * children will be in. Its own is that of the last struct nsprobe_task_level.
 */
#define NSPROBE_NAMESPACE_PID_CHILDREN 7

/* How many namespaces nsprobe_task_record.namespaces has. */
#define NSPROBE_NAMESPACES 8

/*
 * A task at one moment. After it are levels struct nsprobe_task_levels of its
 * own, from the session owner's pid namespace to the task's, so at least one;
 * parent_levels of the task that made it, none if the owner's namespace does
 * not see that task; and args_bytes of the arguments, each with its NUL, then
 * zeroes up to a multiple of 8.
 */
struct nsprobe_task_record {
	/* Length and kind. */
	struct nsprobe_header header;
	/* CLOCK_MONOTONIC of the description, in nanoseconds. */
	__u64 time_ns;
	/* When it was made, CLOCK_BOOTTIME in nanoseconds. */
	__u64 start_ns;
	/*
	 * How long it has run on CPUs up to its last tick or switch, in
	 * nanoseconds.
	 */
	__u64 cpu_ns;
	/*
	 * How long of that in user space, in nanoseconds, as the kernel divides
	 * it.
	 */
	__u64 user_ns;
	/* And in the kernel. */
	__u64 system_ns;
	/*
	 * Id of its control group (cgroup v2): the inode number of the group's
	 * directory.
	 */
	__u64 cgroup;
	/* NSPROBE_TASK_*, what happened. */
	__u16 what;
	/* The number of levels after this struct. */
	__u8 levels;
	/* The number of the maker's levels after those. */
	__u8 parent_levels;
	/* NSPROBE_TASK_* bits. */
	__u32 flags;
	/*
	 * The CPU that this was recorded on; of a NSPROBE_TASK_ALIVE, the one
	 * that it ran on last.
	 */
	__u32 cpu;
	/*
	 * Of a NSPROBE_TASK_ALIVE its state: bits as prev_state of the kernel's
	 * tracepoint sched_switch has them, 0 for one that runs or may run.
	 */
	__u32 state;
	/* By what. */
	__u32 value;
	/*
	 * Of a NSPROBE_TASK_EXEC the program, as an object of the session; zero
	 * for none.
	 */
	__u32 object;
	/* Real user id, as the initial user namespace numbers it. */
	__u32 uid;
	/*
	 * Its priority in the kernel's numbering: 120 minus nice levels, below
	 * 100 for real-time.
	 */
	__u32 priority;
	/*
	 * Inode numbers of its namespaces, by NSPROBE_NAMESPACE_*; zero for one
	 * that could not be read.
	 */
	__u32 namespaces[NSPROBE_NAMESPACES];
	/* Its name, NUL-padded. */
	__u8 comm[16];
	/* Bytes of the arguments after the levels. */
	__u32 args_bytes;
	/* Zero. */
	__u32 reserved;
};

/* A task as one pid namespace numbers it. */
struct nsprobe_task_level {
	/* Id of the namespace, which is never reused. */
	__u64 id;
	/* Its inode number, which the kernel may reuse. */
	__u32 inum;
	/* The thread. */
	__u32 tid;
	/* Its process. */
	__u32 pid;
	/*
	 * The process's parent; zero when this namespace does not see it, or
	 * there is none.
	 */
	__u32 ppid;
};

/* A context switch. */
struct nsprobe_switch_record {
	/* Length and kind. */
	struct nsprobe_header header;
	/* CLOCK_MONOTONIC in nanoseconds. */
	__u64 time_ns;
	/*
	 * The thread that ran, in the opener's pid namespace; zero for an idle
	 * CPU, or for one that this namespace does not see.
	 */
	__u32 prev_tid;
	/* The thread that runs now, likewise. */
	__u32 next_tid;
	/*
	 * The state of the one that ran: bits as prev_state of the kernel's
	 * tracepoint sched_switch has them, with 0x100 when it would run on.
	 */
	__u16 prev_state;
	/* The CPU. */
	__u16 cpu;
	/* Priority of the one that ran, as nsprobe_task_record.priority. */
	__u8 prev_priority;
	/* Priority of the one that runs. */
	__u8 next_priority;
	/* NSPROBE_SWITCH_* bits. */
	__u16 flags;
};

/* nsprobe_switch_record.flags: the thread that ran is the CPU's idle one. */
#define NSPROBE_SWITCH_FROM_IDLE (1U << 0)

/*
 * nsprobe_switch_record.flags: the thread that runs now is the CPU's idle one.
 */
#define NSPROBE_SWITCH_TO_IDLE (1U << 1)

/*
 * nsprobe_switch_record.flags: the one that ran could have run on: it was
 * preempted, on its way to user space too (where prev_state is 0), or has
 * yielded.
 */
#define NSPROBE_SWITCH_PREEMPTED (1U << 2)

/* nsprobe_wake_record.what: the waker has begun (sched_waking). */
#define NSPROBE_WAKE_BEGUN 1

/* nsprobe_wake_record.what: the thread may run (sched_wakeup). */
#define NSPROBE_WAKE_DONE 2

/*
 * nsprobe_wake_record.what: the thread is new and may run (sched_wakeup_new).
 */
#define NSPROBE_WAKE_NEW 3

/* A thread was woken. */
struct nsprobe_wake_record {
	/* Length and kind. */
	struct nsprobe_header header;
	/* CLOCK_MONOTONIC in nanoseconds. */
	__u64 time_ns;
	/* The woken thread, in the session owner's pid namespace. */
	__u32 tid;
	/*
	 * The thread that ran meanwhile, which is the waker with
	 * NSPROBE_WAKE_BEGUN unless an interrupt was; zero for an idle CPU, or
	 * for one that this namespace does not see.
	 */
	__u32 by_tid;
	/* The CPU that this was recorded on. */
	__u16 cpu;
	/* The CPU that the thread will run on. */
	__u16 target_cpu;
	/* NSPROBE_WAKE_*. */
	__u8 what;
	/* The woken thread's priority, as nsprobe_task_record.priority. */
	__u8 priority;
	/* Zero. */
	__u16 reserved;
};

/*
 * The code that a process has mapped, at one moment: mappings struct
 * nsprobe_code_mappings follow. An answer to struct nsprobe_task_dump, in no
 * ring.
 */
struct nsprobe_mappings_record {
	/* Length and kind. */
	struct nsprobe_header header;
	/* CLOCK_MONOTONIC in nanoseconds. */
	__u64 time_ns;
	/* When the process was made, CLOCK_BOOTTIME in nanoseconds. */
	__u64 start_ns;
	/* The process, in the session owner's pid namespace. */
	__u32 pid;
	/* The number of mappings after this struct. */
	__u32 mappings;
	/*
	 * The number of mappings that did not fit; all ones if none could be
	 * read, as they were being changed for too long.
	 */
	__u32 left_out;
	/* Zero. */
	__u32 reserved;
};

/* The page that the reader writes. */
struct nsprobe_consumer_page {
	/* Position up to which the reader is done. */
	__u64 position;
};

/* The page that the kernel writes, in front of the data. */
struct nsprobe_producer_page {
	/* Position up to which space is reserved. */
	__u64 position;
	/* Records lost, since the ring was made. */
	__u64 lost;
	/* Bytes of data: a power of two. */
	__u64 data_bytes;
	/*
	 * Hits whose records were overwritten, in a session with
	 * NSPROBE_SETUP_OVERWRITE.
	 */
	__u64 overwritten;
};

/* Bits of a file offset that give the place in its block. */
#define NSPROBE_BLOCK_BITS 16

/* Most rules of one table: a row names one by 16 bits. */
#define NSPROBE_RULES_MAX (1U << 16)

/*
 * Where the canonical frame address (the stack pointer before the call that
 * made the frame) is.
 */
enum nsprobe_base {
	/*
	 * Unknown: the code is in no function, or in one without unwind data.
	 * If more is one, most of the file has no unwind data, and frame
	 * pointers may be followed.
	 */
	NSPROBE_BASE_UNKNOWN = 0,
	/* There is no caller: the outermost frame. */
	NSPROBE_BASE_OUTERMOST = 1,
	/* It is known, but needs a rule that does not exist here. */
	NSPROBE_BASE_UNSUPPORTED = 2,
	/* rsp + offset. */
	NSPROBE_BASE_RSP = 3,
	/* rbp + offset. */
	NSPROBE_BASE_RBP = 4,
	/* *(rsp + offset) + more. */
	NSPROBE_BASE_AT_RSP = 5,
	/* *(rbp + offset) + more. */
	NSPROBE_BASE_AT_RBP = 6,
	/*
	 * register + offset, where more is the register's DWARF number: known
	 * in the innermost frame only.
	 */
	NSPROBE_BASE_REGISTER = 7,
	/*
	 * rsp + offset + 8, and 8 less where the low four bits of the address
	 * are less than more: the entries of a procedure linkage table.
	 */
	NSPROBE_BASE_LINKAGE = 8,
	/*
	 * A frame of a signal: the registers are in a struct rt_sigframe of
	 * arch/x86/include/asm/sigframe.h, whose uc is at rsp + offset.
	 */
	NSPROBE_BASE_SIGNAL = 9,
	/*
	 * rbp + offset, on whichever stack that is: the code runs on another
	 * one.
	 */
	NSPROBE_BASE_OTHER_STACK = 10,
	/*
	 * *(goroutine + sp) + popped: Go's runtime runs on the thread's own
	 * stack for the goroutine. That is at m + more, m at g + m, and g at
	 * offset from the thread pointer.
	 */
	NSPROBE_BASE_GOROUTINE = 11,
	/*
	 * The registers that the goroutine goes on with, which is found in the
	 * same way.
	 */
	NSPROBE_BASE_GROWS_STACK = 12,
	/*
	 * rsp + offset, and the return address is that of an instruction that
	 * was interrupted.
	 */
	NSPROBE_BASE_INJECTED = 13,
	/* rsp + offset. The thread has left the goroutine that it ran. */
	NSPROBE_BASE_SCHEDULER = 14,
};

/* Where the caller's rbp is. */
enum nsprobe_saved {
	/* In rbp. */
	NSPROBE_SAVED_SAME = 0,
	/* At the canonical frame address + saved_at. */
	NSPROBE_SAVED_AT_FRAME = 1,
	/* At rbp + saved_at. */
	NSPROBE_SAVED_AT_RBP = 2,
	/* Unknown. */
	NSPROBE_SAVED_LOST = 3,
};

/*
 * How to find the caller from some instructions. The return address always lies
 * right below the canonical frame address.
 */
struct nsprobe_rule {
	/* A struct nsprobe_base. */
	__u8 base;
	/* A struct nsprobe_saved. */
	__u8 saved;
	/* Its meaning depends on the base. */
	__s16 more;
	/* Bytes. */
	__s32 offset;
	/* Bytes. */
	__s32 saved_at;
	/*
	 * Four bytes of NSPROBE_BASE_GOROUTINE and NSPROBE_BASE_GROWS_STACK,
	 * zero for all others: where m, the saved stack pointer and the saved
	 * rbp are in a g, and popped.
	 */
	__u32 extra;
};

/* The defect of a table. */
enum nsprobe_defect {
	/* The table is empty. */
	NSPROBE_DEFECT_EMPTY = 1,
	/* It has too many rules. */
	NSPROBE_DEFECT_TOO_MANY_RULES = 2,
	/* Its blocks reach beyond the largest file offset. */
	NSPROBE_DEFECT_TOO_FAR = 3,
	/* The blocks do not divide the rows. */
	NSPROBE_DEFECT_BLOCKS = 4,
	/* A block's first row is not that of its begin. */
	NSPROBE_DEFECT_NO_FIRST_ROW = 5,
	/* Rows are not sorted. */
	NSPROBE_DEFECT_UNSORTED = 6,
	/* A row names a rule that does not exist. */
	NSPROBE_DEFECT_NO_RULE = 7,
	/* A rule is invalid. */
	NSPROBE_DEFECT_BAD_RULE = 8,
};

/* Parts of a frame's word; an object of 0: the next word is a bare address. */
#define NSPROBE_FRAME_OBJECT(word) ((__u32)((word) >> (NSPROBE_OFFSET_BITS + 4)))
#define NSPROBE_FRAME_METHOD(word) ((__u32)((word) >> NSPROBE_OFFSET_BITS) & 0xf)
#define NSPROBE_FRAME_OFFSET(word) ((word) & ((1ULL << NSPROBE_OFFSET_BITS) - 1))

#endif /* NSPROBE_H */
