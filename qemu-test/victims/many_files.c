// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer
//
// Calls in_the_middle, each time through code in another file, which lies in memory and is gone
// after the call.
//
// For each line of stdin, a number, it does so as often, and prints "called N" (in all).
// "ready PID" comes first.
#define _GNU_SOURCE
#include "orders.h"

#include <err.h>
#include <sys/mman.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

long in_the_middle(long);
__asm__(".text\n.globl in_the_middle\n.type in_the_middle, @function\n"
	"in_the_middle:\npush %rbp\nmov %rsp, %rbp\nlea 1(%rdi), %rax\npop %rbp\nret\n"
	".size in_the_middle, . - in_the_middle\n");

/* push %rbp; mov %rsp,%rbp; call *%rsi; pop %rbp; ret */
static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3 };

static long through_new_file(long n)
{
	int file = memfd_create("code", MFD_CLOEXEC | MFD_EXEC);
	void *place;
	long result;

	if (file < 0 || write(file, code, sizeof(code)) != sizeof(code))
		err(1, "memfd_create");
	place = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	if (place == MAP_FAILED)
		err(1, "mmap");
	close(file);
	result = ((long (*)(long, long (*)(long)))place)(n, in_the_middle);
	munmap(place, 4096);
	return result;
}

int main(void)
{
	long called = 0, count;

	say_ready();
	while (is_told(&count)) {
		for (; count > 0; count--, called++)
			if (through_new_file(called) != called + 1)
				return 1;
		say_called(called);
	}
	return 0;
}
