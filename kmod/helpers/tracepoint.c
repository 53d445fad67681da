// SPDX-License-Identifier: GPL-2.0-only

#include <linux/tracepoint.h>
#include <trace/events/cgroup.h>
#include <trace/events/mmap.h>
#include <trace/events/sched.h>
#include <trace/events/task.h>

void nsprobe_tracepoints_sync(void)
{
	tracepoint_synchronize_unregister();
	/* The former waits for readers of SRCU; a kprobe runs under RCU alone. */
	synchronize_rcu();
}

/*
 * The callbacks are in Rust, and are registered by an untyped pointer. Here the
 * compiler compares what they take with what their tracepoints give.
 */
static void __maybe_unused made_fits(void (*made)(void *data,
						  struct task_struct *task,
						  u64 clone_flags))
{
	check_trace_callback_type_task_newtask(made);
}

static void __maybe_unused forked_fits(void (*forked)(void *data,
						      struct task_struct *parent,
						      struct task_struct *child))
{
	check_trace_callback_type_sched_process_fork(forked);
}

static void __maybe_unused executed_fits(void (*executed)(void *data,
							  struct task_struct *task,
							  pid_t old,
							  struct linux_binprm *bprm))
{
	check_trace_callback_type_sched_process_exec(executed);
}

static void __maybe_unused exited_fits(void (*exited)(void *data,
						      struct task_struct *task,
						      bool group_dead))
{
	check_trace_callback_type_sched_process_exit(exited);
}

static void __maybe_unused renamed_fits(void (*renamed)(void *data,
							struct task_struct *task,
							const char *comm))
{
	check_trace_callback_type_task_rename(renamed);
}

static void __maybe_unused moved_fits(void (*moved)(void *data,
						    struct cgroup *to,
						    const char *path,
						    struct task_struct *task,
						    bool threadgroup))
{
	check_trace_callback_type_cgroup_attach_task(moved);
}

static void __maybe_unused switched_fits(void (*switched)(void *data,
							  bool preempt,
							  struct task_struct *prev,
							  struct task_struct *next,
							  unsigned int prev_state))
{
	check_trace_callback_type_sched_switch(switched);
}

static void __maybe_unused woken_fits(void (*woken)(void *data,
						    struct task_struct *task))
{
	check_trace_callback_type_sched_waking(woken);
	check_trace_callback_type_sched_wakeup(woken);
	check_trace_callback_type_sched_wakeup_new(woken);
}

static void __maybe_unused space_ended_fits(void (*ended)(void *data,
							  struct mm_struct *mm))
{
	check_trace_callback_type_exit_mmap(ended);
}
