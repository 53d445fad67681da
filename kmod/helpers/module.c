// SPDX-License-Identifier: GPL-2.0-only

#include <linux/module.h>
#include <linux/moduleparam.h>

static bool allow_modify;
module_param(allow_modify, bool, 0444);
MODULE_PARM_DESC(allow_modify,
		 "Sessions may ask to change registers and memory of traced programs (default: off)");

static bool paranoid;
module_param(paranoid, bool, 0444);
MODULE_PARM_DESC(paranoid,
		 "Tracing needs CAP_SYS_ADMIN, as perf does with perf_event_paranoid=3 (default: off)");

bool nsprobe_is_paranoid(void)
{
	return paranoid;
}

bool nsprobe_allows_modify(void)
{
	return allow_modify;
}

void nsprobe_module_get(void)
{
	__module_get(THIS_MODULE);
}

void nsprobe_module_put(void)
{
	module_put(THIS_MODULE);
}
