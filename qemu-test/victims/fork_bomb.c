// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// For a line of stdin, a number N: each process calls in_bomb once and makes two others that
// do the same, N levels deep, as far as it may make any.
//
// Prints "ready PID" first and "called N" (in all) when the processes of a line are gone.
#include "orders.h"

#include <err.h>
#include <sys/mman.h>
#include <sys/wait.h>

static long *called;

__attribute__((noinline)) void in_bomb(void)
{
	__asm__ volatile("");
}

static void explode(long levels)
{
	in_bomb();
	__atomic_fetch_add(called, 1, __ATOMIC_RELAXED);
	for (int i = 0; levels > 0 && i < 2; i++) {
		if (fork() == 0) {
			explode(levels - 1);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
}

int main(void)
{
	long levels;

	called = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (called == MAP_FAILED)
		err(1, "mmap");
	say_ready();
	while (is_told(&levels)) {
		explode(levels);
		say_called(*called);
	}
	return 0;
}
