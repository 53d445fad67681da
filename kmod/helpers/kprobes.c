// SPDX-License-Identifier: GPL-2.0-only

#include <linux/kprobes.h>
#include <linux/ptrace.h>

/*
 * Where setns() and unshare() tell perf what they have done: all of it is done
 * by then, and forks aside nothing else comes here.
 */
static struct kprobe namespaces_probe;

int nsprobe_namespaces_probe(kprobe_pre_handler_t call)
{
	namespaces_probe = (struct kprobe){
		.symbol_name = "perf_event_namespaces",
		.pre_handler = call,
	};
	return register_kprobe(&namespaces_probe);
}

void nsprobe_namespaces_unprobe(void)
{
	unregister_kprobe(&namespaces_probe);
}

struct task_struct *nsprobe_probed_task(struct pt_regs *regs)
{
	return (struct task_struct *)regs_get_kernel_argument(regs, 0);
}
