// SPDX-License-Identifier: GPL-2.0-only

#include <linux/perf_event.h>

struct perf_event *nsprobe_sampling(int cpu, u64 hz, bool by_clock,
				    perf_overflow_handler_t call, void *context)
{
	struct perf_event_attr attr = {
		.type = by_clock ? PERF_TYPE_SOFTWARE : PERF_TYPE_HARDWARE,
		.config = by_clock ? PERF_COUNT_SW_CPU_CLOCK :
				     PERF_COUNT_HW_CPU_CYCLES,
		.size = sizeof(attr),
		.freq = 1,
		.sample_freq = hz,
		.exclude_guest = !by_clock,
	};

	return perf_event_create_kernel_counter(&attr, cpu, NULL, call, context);
}

void *nsprobe_sampler(struct perf_event *event)
{
	return event->overflow_handler_context;
}

bool nsprobe_is_by_clock(struct perf_event *event)
{
	return event->attr.type != PERF_TYPE_HARDWARE;
}
