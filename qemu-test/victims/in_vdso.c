// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -g -Wall -Wextra -fomit-frame-pointer -fno-optimize-sibling-calls
//
// Asks for the time until a timer's signal has come so many times, and calls `ticked` from
// the handler: most of the time the signal interrupts the vDSO.
//
//   in_vdso TIMES
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static volatile long ticks;

__attribute__((noipa)) long ticked(long n)
{
	return ticks = n + 1;
}

static void on_signal(int number)
{
	(void)number;
	ticked(ticks);
}

__attribute__((noipa)) static long ask(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_nsec & 1;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct itimerval every = { { 0, 4000 }, { 0, 4000 } }, never = { 0 };
	long times = argc == 2 ? atol(argv[1]) : 0, sum = 0;

	if (times <= 0 || sigaction(SIGALRM, &action, NULL) != 0 ||
	    setitimer(ITIMER_REAL, &every, NULL) != 0)
		return 2;
	while (ticks < times)
		sum += ask();
	// What ends the program is left by no unwind rows: no signal may interrupt that.
	setitimer(ITIMER_REAL, &never, NULL);
	return sum < 0;
}
