// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// A function of 65,536 one-byte instructions at places sixteen bytes apart. For each line
// of stdin it is called that often.
//
//   soak_places
//
// Prints "ready PID" first and "called N" when N calls are done (in all).
#include <stdio.h>
#include <unistd.h>

__asm__(".text\n.p2align 4\n.globl places\n.type places, @function\nplaces:\n"
	".rept 65536\n.p2align 4\nnop\n.endr\n"
	"ret\n.size places, . - places\n");
void places(void);

int main(void)
{
	long called = 0;

	setlinebuf(stdout);
	printf("ready %d\n", getpid());
	for (long count; scanf("%ld", &count) == 1;) {
		for (long i = 0; i < count; i++)
			places();
		printf("called %ld\n", called += count);
	}
	return 0;
}
