// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// Has copies of a page of its own code mapped, and calls them while it moves and changes their
// mappings.
//
//   moves_text OFFSET   of the function "moved" in this file, where its page begins
//
// Lines of stdin:
//
//   N change   N times: changes the mapping of one of the copies in some way, and calls it
//   N merge    maps all copies anew, and lets the kernel merge pages of the same content
//   N call     N calls of each copy
//
// Prints "ready PID" first and "called N" (in all) after each line. Ends when a call gives what
// it should not.
#define _GNU_SOURCE
#include "orders.h"

#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define COPIES 4
#define PAGE 4096
#define CODE (PROT_READ | PROT_EXEC)

long moved(long);
__asm__(".text\n.p2align 12\n.globl moved\n.type moved, @function\nmoved:\n"
	"push %rbp\nmov %rsp, %rbp\nlea 1(%rdi), %rax\npop %rbp\nret\n"
	".size moved, . - moved\n.p2align 12\n");

static char *copies[COPIES], *spare;
static long called;
static off_t offset;
static int file;

static void check(int is_well, const char *what)
{
	if (!is_well)
		err(1, "%s", what);
}

static void map(char *at)
{
	check(mmap(at, PAGE, CODE, MAP_PRIVATE | MAP_FIXED, file, offset) == at, "mmap");
}

static char *reserve(char *at)
{
	int how = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);

	at = mmap(at, PAGE, PROT_NONE, how, -1, 0);
	check(at != MAP_FAILED, "mmap");
	return at;
}

static int is_right(const char *copy)
{
	long n = called;

	return ((long (*)(long))copy)(n) == n + 1;
}

static void call(const char *copy)
{
	if (!is_right(copy))
		errx(1, "a wrong result");
	called++;
}

/* To the place of `spare`; what is left is called as well, when something is. */
static void move(char **copy, int flags)
{
	char *from = *copy;

	flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
	check(mremap(from, PAGE, PAGE, flags, spare) == spare, "mremap");
	*copy = spare;
	spare = from;
	if (flags & MREMAP_DONTUNMAP)
		call(spare);
	reserve(spare);
}

static void write_to(char *copy)
{
	check(mprotect(copy, PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
	copy[PAGE - 1]++;
	check(mprotect(copy, PAGE, CODE) == 0, "mprotect");
}

static void call_in_child(const char *copy)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(is_right(copy) ? 0 : 1);
	check(child > 0 && waitpid(child, &status, 0) == child, "fork");
	if (status != 0)
		errx(1, "a child ended with %#x", status);
	called++;
}

static void change(char **copy)
{
	switch (rand() % 8) {
	case 0:
		map(*copy);
		break;
	case 1:
		move(copy, 0);
		break;
	case 2:
		move(copy, MREMAP_DONTUNMAP);
		break;
	case 3:
		write_to(*copy);
		break;
	case 4:
		check(madvise(*copy, PAGE, MADV_DONTNEED) == 0, "DONTNEED");
		break;
	case 5:
		check(madvise(*copy, PAGE, MADV_PAGEOUT) == 0, "PAGEOUT");
		break;
	case 6:
		reserve(*copy);
		map(*copy);
		break;
	default:
		call_in_child(*copy);
	}
}

static void merge(void)
{
	for (int i = 0; i < COPIES; i++) {
		map(copies[i]);
		check(madvise(copies[i], PAGE, MADV_MERGEABLE) == 0, "MERGEABLE");
	}
}

int main(int argc, char **argv)
{
	char what[16];
	long count;

	if (argc != 2)
		errx(1, "usage: moves_text OFFSET");
	offset = atol(argv[1]);
	file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	check(file >= 0, "/proc/self/exe");
	spare = reserve(NULL);
	for (int i = 0; i < COPIES; i++)
		map(copies[i] = reserve(NULL));
	say_ready();
	while (scanf("%ld %15s", &count, what) == 2) {
		if (!strcmp(what, "merge"))
			merge();
		for (long i = 0; i < count && !strcmp(what, "change"); i++) {
			char **copy = &copies[rand() % COPIES];

			change(copy);
			call(*copy);
		}
		for (long i = 0; i < count * COPIES && !strcmp(what, "call"); i++)
			call(copies[i % COPIES]);
		say_called(called);
	}
	return 0;
}
