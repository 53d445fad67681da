// SPDX-License-Identifier: GPL-2.0-only

#include <linux/cgroup.h>

void nsprobe_cgroup_put(struct cgroup *cgroup)
{
	cgroup_put(cgroup);
}

u64 nsprobe_task_cgroup(struct task_struct *task)
{
	return cgroup_id(task_dfl_cgroup(task));
}

struct cgroup *nsprobe_task_dfl_cgroup(struct task_struct *task)
{
	return task_dfl_cgroup(task);
}

bool nsprobe_task_in_cgroup(struct task_struct *task, struct cgroup *cgroup)
{
	return task_under_cgroup_hierarchy(task, cgroup);
}
