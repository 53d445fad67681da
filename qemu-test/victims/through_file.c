// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer
//
// Calls in_the_middle through code in a file that it maps as a whole, and has looked at.
//
//   through_file FILE OFFSET [forget]   a number of calls per line of stdin
//
// The code is at OFFSET; it calls its second argument. Prints "ready PID" first and
// "called N" (in all) when the calls of a line are done. With "forget", the first page of the
// mapping, which it has looked at, is not there any more then.
#include "orders.h"

#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

long in_the_middle(long);
__asm__(".text\n.globl in_the_middle\n.type in_the_middle, @function\n"
	"in_the_middle:\npush %rbp\nmov %rsp, %rbp\nlea 1(%rdi), %rax\npop %rbp\nret\n"
	".size in_the_middle, . - in_the_middle\n");

int main(int argc, char **argv)
{
	static volatile long sum;
	long (*through)(long, long (*)(long));
	long called = 0, count;
	struct stat stat;
	char *place;
	int file;

	if (argc != 3 && argc != 4)
		errx(1, "usage: through_file FILE OFFSET [forget]");
	file = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (file < 0 || fstat(file, &stat) != 0)
		err(1, "%s", argv[1]);
	place = mmap(NULL, stat.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	if (place == MAP_FAILED)
		err(1, "mmap");
	for (long at = 0; at < stat.st_size; at += 4096)
		sum += *(volatile char *)(place + at);
	if (argc == 4 && madvise(place, 4096, MADV_DONTNEED) != 0)
		err(1, "madvise");
	through = (long (*)(long, long (*)(long)))(place + atol(argv[2]));
	say_ready();
	while (is_told(&count)) {
		while (count-- > 0)
			sum += through(called++, in_the_middle);
		say_called(called);
	}
	return 0;
}
