// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs as many instructions each round, twelve calls deep, and prints how long each round takes.
//
//	samples ROUNDS MILLIONS
//
// A line "round NANOSECONDS" for each; "ready" first, and then it waits for a line of stdin.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

__attribute__((noinline, noclone)) static void deep(int depth, uint64_t turns)
{
	if (depth > 0) {
		deep(depth - 1, turns);
	} else {
		for (uint64_t turn = 0; turn < turns; turn++)
			__asm__ volatile("" : : "r"(turn));
	}
	sink++;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	puts("ready");
	fflush(stdout);
	getchar();
	for (int round = atoi(argv[1]); round > 0; round--) {
		uint64_t begun = now();

		// Three instructions a turn, at most.
		deep(12, strtoull(argv[2], NULL, 10) * 1000000 / 3);
		printf("round %llu\n", (unsigned long long)(now() - begun));
		fflush(stdout);
	}
	return 0;
}
