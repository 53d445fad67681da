// SPDX-License-Identifier: GPL-2.0-only

#include <linux/smp.h>

void nsprobe_on_each_cpu(smp_call_func_t call, void *data)
{
	on_each_cpu(call, data, 1);
}
