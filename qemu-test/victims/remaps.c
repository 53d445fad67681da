// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer
//
// Calls in_the_middle through code in files that it maps at one and the same
// address, one after the other; again and again, at full speed.
//
//   remaps FILE FILE   a number of calls per line of stdin
//
// Makes the files, of a page each with the same code in them. Call number N goes
// through file N % 2. Prints "ready PID" first and "called N" (in all) when the
// calls of a line are done.
#include "orders.h"

#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

long in_the_middle(long);
__asm__(".text\n.globl in_the_middle\n.type in_the_middle, @function\n"
	"in_the_middle:\npush %rbp\nmov %rsp, %rbp\nlea 1(%rdi), %rax\npop %rbp\nret\n"
	".size in_the_middle, . - in_the_middle\n");

/* push %rbp; mov %rsp,%rbp; call *%rsi; pop %rbp; ret */
static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3 };

static int make(const char *path)
{
	char page[4096] = { 0 };
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

	memcpy(page, code, sizeof(code));
	if (fd < 0 || write(fd, page, sizeof(page)) != sizeof(page))
		err(1, "%s", path);
	close(fd);
	/* Mapped for good from a description that cannot write. */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		err(1, "%s", path);
	return fd;
}

int main(int argc, char **argv)
{
	static volatile long sum;
	long (*through)(long, long (*)(long));
	long called = 0, count;
	int files[2];
	void *place;

	if (argc != 3)
		errx(1, "usage: remaps FILE FILE");
	files[0] = make(argv[1]);
	files[1] = make(argv[2]);
	place = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (place == MAP_FAILED)
		err(1, "mmap");
	through = (long (*)(long, long (*)(long)))place;
	say_ready();
	while (is_told(&count)) {
		while (count-- > 0) {
			if (mmap(place, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
				 files[called++ % 2], 0) != place)
				err(1, "mmap");
			sum += through(called, in_the_middle);
		}
		say_called(called);
	}
	return 0;
}
