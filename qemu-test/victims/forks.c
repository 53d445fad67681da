// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer
//
// For a line of stdin: calls in_parent_and_child ten times, forks a child that
// does the same and then sleeps, and prints "called PID" with the child's.
#include "orders.h"

#include <signal.h>
#include <sys/prctl.h>

__attribute__((noinline)) void in_parent_and_child(void)
{
	__asm__ volatile("");
}

static void ten_calls(void)
{
	for (int i = 0; i < 10; i++)
		in_parent_and_child();
}

int main(void)
{
	int ready[2];
	char byte;

	say_ready();
	getchar();
	ten_calls();
	if (pipe(ready))
		return 1;
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ten_calls();
		if (write(ready[1], "x", 1) == 1)
			pause();
		return 1;
	}
	if (read(ready[0], &byte, 1) != 1)
		return 1;
	say_called(child);
	while (getchar() != EOF)
		;
	return 0;
}
