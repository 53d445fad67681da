// SPDX-License-Identifier: GPL-2.0-only

#include <linux/preempt.h>

bool nsprobe_in_nmi(void)
{
	return in_nmi();
}

bool nsprobe_in_interrupt(void)
{
	return !in_task();
}

bool nsprobe_in_softirq(void)
{
	return in_serving_softirq() && !in_hardirq() && !in_nmi();
}
