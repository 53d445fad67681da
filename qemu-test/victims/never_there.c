// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// For a line of stdin: calls loads, whose first instruction reads a page that never comes (a
// userfaultfd that is not read), and so stays in the midst of it.
//
// Prints "ready PID" first.
#include "orders.h"

#include <err.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* The kernel does not emulate it: it runs on a page of the kernel's own. */
long loads(long *);
__asm__(".text\n.globl loads\n.type loads, @function\nloads:\nmov (%rdi), %rax\nret\n"
	".size loads, . - loads\n");

int main(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	long *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (page == MAP_FAILED || fd < 0)
		err(1, "userfaultfd");
	range.range.start = (unsigned long)page;
	range.range.len = 4096;
	if (ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0)
		err(1, "userfaultfd");
	say_ready();
	getchar();
	return loads(page) != 0;
}
