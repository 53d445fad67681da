// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -Wno-unused-result -fomit-frame-pointer
//
// For each number on stdin calls `target` so often from each of 48 stacks that no honest
// program has, and prints how many calls it has made in all.
//
//   hostile_stacks FOLDER
//
// Half of them are led to by the frame pointer, half by the stack pointer. Some lie in
// memory that nobody ever provides: a userfaultfd that is not read, and a file of a FUSE
// file system, mounted at FOLDER, that does not answer reads.
#define _GNU_SOURCE
#include "orders.h"

#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGE 4096ul
#define HALF 24

long target(long);
long enter(unsigned long stack, unsigned long frame, long argument);
extern char behind_call[];

/*
 * `enter` goes to another stack and another frame pointer for the time of the call. What
 * its unwind rows say is true of its own stack: by them, the frame is three words above
 * the stack pointer. `enter_by_frame` has the same code, but its rows go by the frame pointer.
 */
#define ENTER(name, label, rule)                                               \
	__asm__(".text\n.globl " name "\n.type " name ", @function\n" name ":\n"   \
		".cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\n"                  \
		".cfi_offset 6, -16\npush %rbx\n.cfi_def_cfa_offset 24\n"           \
		"mov %rsp, %rbx\nmov %rdi, %rsp\nmov %rsi, %rbp\nmov %rdx, %rdi\n"     \
		rule "call target\n" label ":\nmov %rbx, %rsp\npop %rbx\npop %rbp\n"   \
		"ret\n.cfi_endproc\n.size " name ", . - " name "\n")
ENTER("enter", "behind_call", "");
ENTER("enter_by_frame", "behind_other", ".cfi_def_cfa 6, 16\n");
long enter_by_frame(unsigned long stack, unsigned long frame, long argument);

__asm__(".text\n.globl target\n.type target, @function\ntarget:\n.cfi_startproc\n"
	"push %rbx\n.cfi_def_cfa_offset 16\nlea 1(%rdi), %rax\npop %rbx\n"
	".cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.size target, . - target\n");

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

#include "mute_file.h"

static char *map(size_t bytes, int access, int fd)
{
	int how = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE;
	char *at = mmap(NULL, bytes, access, how, fd, 0);

	if (at == MAP_FAILED)
		fail("mmap");
	return at;
}

/* A page that can be written, with another one after it, of `fd` or whatever `access`. */
static char *edge(int access, int fd)
{
	char *low = map(2 * PAGE, PROT_READ | PROT_WRITE, -1);
	int how = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE;

	if (mmap(low + PAGE, PAGE, access, how | MAP_FIXED, fd, 0) == MAP_FAILED)
		fail("mmap");
	memset(low, 0, PAGE);
	return low + PAGE;
}

/* Whole pages of one word. */
static char *filled(unsigned long word)
{
	unsigned long *at = (unsigned long *)map(4 * PAGE, PROT_READ | PROT_WRITE, -1);

	for (size_t i = 0; i < 4 * PAGE / 8; i++)
		at[i] = word;
	return (char *)at + PAGE;
}

/* Nobody reads this userfaultfd: whoever touches the page waits for ever. */
static void never_served(char *page)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { .start = (unsigned long)page, .len = PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 ||
	    ioctl(fd, UFFDIO_REGISTER, &range) != 0)
		fail("userfaultfd");
}

int main(int argc, char **argv)
{
	static unsigned long self[2], loop_a[2], loop_b[2], chain[300][2];
	unsigned long code = (unsigned long)behind_call;
	unsigned long here = (unsigned long)__builtin_frame_address(0);
	/* Below the stack pointer: earlier calls have left other things there in each run. */
	volatile unsigned long *below = (unsigned long *)(here - PAGE);
	long called = 0;

	if (argc != 2)
		return 2;
	self[0] = (unsigned long)self;
	loop_a[0] = (unsigned long)loop_b;
	loop_b[0] = (unsigned long)loop_a;
	self[1] = loop_a[1] = loop_b[1] = code;
	for (int i = 0; i < 300; i++) {
		chain[i][0] = i < 299 ? (unsigned long)chain[i + 1] : 0;
		chain[i][1] = code;
	}
	pid_t server;
	int mute = mute_file(argv[1], 0, &server), empty = memfd_create("empty", MFD_CLOEXEC);
	char *served = edge(PROT_READ | PROT_WRITE, -1), *gone = edge(PROT_NONE, -1);
	char *closed = edge(PROT_NONE, -1), *fuse = edge(PROT_READ, mute);
	char *behind_end = edge(PROT_READ, empty), *untouched = edge(PROT_READ | PROT_WRITE, -1);
	never_served(served);
	munmap(gone, PAGE);

	/* The last word of the page in front of these is still there. */
	unsigned long frames[HALF] = {
		(unsigned long)served, (unsigned long)served - 8, (unsigned long)fuse,
		(unsigned long)fuse - 8, (unsigned long)gone, (unsigned long)gone - 8,
		(unsigned long)closed, (unsigned long)closed - 8, (unsigned long)behind_end,
		(unsigned long)untouched, (unsigned long)self, (unsigned long)loop_a,
		(unsigned long)chain, here + 1, here - PAGE, (unsigned long)main, 8,
		0x7ffffffff000, 0x7ffffffffff8, 0x800000000000, 0xffff800000000000,
		0xffffffff81000000, 0xffffffffff600000, 0xfffffffffffffff8,
	};
	unsigned long stacks[HALF] = {
		(unsigned long)served, (unsigned long)served - 8, (unsigned long)fuse,
		(unsigned long)fuse - 16, (unsigned long)gone, (unsigned long)gone - 16,
		(unsigned long)closed, (unsigned long)closed - 24, (unsigned long)behind_end,
		(unsigned long)untouched, (unsigned long)filled(0), (unsigned long)filled(code),
		(unsigned long)filled(code) + 4, (unsigned long)filled((unsigned long)main),
		(unsigned long)filled((unsigned long)self), (unsigned long)filled(here),
		(unsigned long)filled(0xffffffff81000000), (unsigned long)filled(0xffffffffff600000),
		(unsigned long)filled(0xffffffffff600400), (unsigned long)filled(0x800000000000),
		(unsigned long)filled(0x4141414141414141), (unsigned long)filled(~0ul),
		(unsigned long)filled(PAGE), (unsigned long)filled(0x7ffffffff000),
	};

	/* What is there stays there: it is neither reclaimed nor, if the test says so, moved. */
	if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0)
		fail("mlockall");
	say_ready();
	for (long count; is_told(&count);) {
		while (count-- > 0)
			for (int i = 0; i < HALF; i++) {
				unsigned long own = (unsigned long)__builtin_frame_address(0) - 2 * PAGE;

				below[0] = below[1] = 8;
				called += enter_by_frame(own & -16, frames[i], 0);
				called += enter(stacks[i], stacks[i], 0);
			}
		say_called(called);
	}
	umount2(argv[1], MNT_DETACH);
	return 0;
}
