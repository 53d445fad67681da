// SPDX-License-Identifier: GPL-2.0-only

#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

struct pid *nsprobe_get_pid(struct pid *pid)
{
	return get_pid(pid);
}

struct task_struct *nsprobe_other_thread(u32 number)
{
	struct task_struct *task = pid_task(find_vpid(number), PIDTYPE_PID);

	if (!task || task == current || !same_thread_group(task, current))
		return NULL;
	return READ_ONCE(task->flags) & PF_EXITING ? NULL : task;
}
