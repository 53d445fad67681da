// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// Calls a function in a file of 2 MB, which it has mapped where a huge page can be.
//
//   huge_text FILE OFFSET
//
// The function gives its argument and one. Lines of stdin: "N call", N calls; "N collapse",
// N times: asks for a huge page, and calls. Prints "ready PID" first and "called N" (in all)
// after each line. Ends when a call gives what it should not.
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE (2ul << 20)

int main(int argc, char **argv)
{
	int code = PROT_READ | PROT_EXEC, file;
	long called = 0, count;
	char *room, *place, what[16];

	if (argc != 3)
		errx(1, "usage: huge_text FILE OFFSET");
	file = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (file < 0)
		err(1, "%s", argv[1]);
	room = mmap(NULL, 2 * HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		err(1, "mmap");
	place = (char *)(((unsigned long)room + HUGE_PAGE - 1) & -HUGE_PAGE);
	if (mmap(place, HUGE_PAGE, code, MAP_PRIVATE | MAP_FIXED, file, 0) != place)
		err(1, "mmap");
	setlinebuf(stdout);
	printf("ready %d\n", getpid());
	while (scanf("%ld %15s", &count, what) == 2) {
		for (; count > 0; count--) {
			/* Where there is a breakpoint it is refused. */
			if (!strcmp(what, "collapse"))
				madvise(place, HUGE_PAGE, MADV_COLLAPSE);
			if (((long (*)(long))(place + atol(argv[2])))(called) != called + 1)
				errx(1, "a wrong result");
			called++;
		}
		printf("called %ld\n", called);
	}
	return 0;
}
