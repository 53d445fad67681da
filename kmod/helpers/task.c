// SPDX-License-Identifier: GPL-2.0-only

#include <linux/sched.h>
#include <linux/sched/task.h>

u32 nsprobe_task_state_index(u32 state, u32 exit_state)
{
	return __task_state_index(state, exit_state);
}

void nsprobe_task_lock(struct task_struct *task)
{
	task_lock(task);
}

bool nsprobe_task_trylock(struct task_struct *task)
{
	return spin_trylock(&task->alloc_lock);
}

void nsprobe_task_unlock(struct task_struct *task)
{
	task_unlock(task);
}
