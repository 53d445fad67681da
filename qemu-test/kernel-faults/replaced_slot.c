// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that replaces the page of out-of-line slots, and so makes the kernel warn:
// docs/upstream/replaced-slot.md.
#include "probe.h"
#include <sys/mman.h>

/* A `mov` is stepped out of line. */
__attribute__((noinline, naked)) static void stepped(void)
{
	__asm__("mov %rdi, %rax\nret");
}

int main(void)
{
	unsigned long start, end;
	char line[512];
	FILE *maps;

	probe(stepped);
	/* The first hit makes the page. */
	stepped();
	maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "[uprobes]") || sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		if (mmap((void *)start, end - start, PROT_READ | PROT_WRITE | PROT_EXEC,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			fail("the page is sealed");
		/* int3: the kernel takes it for a breakpoint of its own. */
		memset((void *)start, 0xcc, end - start);
		puts("stepping in a page of int3");
		fflush(stdout);
		stepped();
		puts("the kernel went on: look for WARNING in dmesg");
		return 0;
	}
	fail("no [uprobes] in /proc/self/maps");
}
