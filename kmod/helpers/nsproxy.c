// SPDX-License-Identifier: GPL-2.0-only

#include <linux/cgroup_namespace.h>
#include <linux/ipc_namespace.h>
#include <linux/nsproxy.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/time_namespace.h>
#include <linux/utsname.h>
#include <net/net_namespace.h>

/*
 * struct mnt_namespace is known in fs/mount.h only. It begins with its
 * ns_common, which says that it is one of mounts.
 */
static u32 mnt_inum(struct mnt_namespace *ns)
{
	struct ns_common *common = (struct ns_common *)ns;

	return common->ns_type == CLONE_NEWNS ? common->inum : 0;
}

u64 nsprobe_mntns_id(struct nsproxy *all)
{
	struct ns_common *common = (struct ns_common *)all->mnt_ns;

	return common->ns_type == CLONE_NEWNS ? common->ns_id : 0;
}

/* By NAMESPACE_* of common/src/task.rs; the caller has that of pids. */
void nsprobe_namespaces(struct nsproxy *all, u32 *inums)
{
	inums[0] = mnt_inum(all->mnt_ns);
	inums[1] = all->uts_ns->ns.inum;
	inums[2] = all->ipc_ns->ns.inum;
	inums[3] = all->net_ns->ns.inum;
	inums[5] = all->cgroup_ns->ns.inum;
	inums[6] = all->time_ns->ns.inum;
}

/* bindgen hides the field, and each record would pay for a call. */
const size_t nsprobe_pidns_id_at = offsetof(struct pid_namespace, ns.ns_id);
