// SPDX-License-Identifier: GPL-2.0-only

#include <linux/oom.h>
#include <linux/sched/signal.h>

bool nsprobe_is_killed(struct task_struct *task)
{
	return fatal_signal_pending(task);
}

void nsprobe_oom_origin(bool is)
{
	current->signal->oom_flag_origin = is;
}
