// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -g -Wall -Wextra -fomit-frame-pointer -fno-optimize-sibling-calls
//
// Calls `bottom` below eight frames of some pages each, whose pages it has had written
// to the swap before.
//
//   paged_out TIMES
//
// Prints "absent N" on stderr for each call, the pages of its stack that were not there.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul

static volatile long sum;
static unsigned long top;
static int pagemap;

__attribute__((noipa)) long bottom(long n)
{
	return sum = sum + n;
}

/* Pages of the range that are not in memory (Documentation/admin-guide/mm/pagemap.rst). */
static long absent(unsigned long from, unsigned long to)
{
	long count = 0;

	for (; from < to; from += PAGE) {
		uint64_t page = 0;

		if (pread(pagemap, &page, sizeof(page), from / PAGE * sizeof(page)) != sizeof(page))
			abort();
		count += !(page >> 63) && (page >> 62 & 1);
	}
	return count;
}

__attribute__((noipa)) static long page_out(long n)
{
	/* The own frame, and what is called from here, stays. */
	unsigned long from = ((unsigned long)__builtin_frame_address(0) + 2 * PAGE) & -PAGE;

	long gone = 0;

	/* A page that another CPU still has in its list of new ones stays at first. */
	for (int tries = 0; tries < 100 && gone < 16; tries++) {
		if (madvise((void *)from, top - from, MADV_PAGEOUT) != 0)
			abort();
		gone = absent(from, top);
	}
	fprintf(stderr, "absent %ld\n", gone);
	return bottom(n) + 1;
}

#define LEVEL(name, next)                                                      \
	__attribute__((noipa)) static long name(long n)                            \
	{                                                                          \
		volatile char room[3 * PAGE];                                          \
                                                                               \
		room[n & 7] = 1;                                                       \
		room[2 * PAGE] = 1;                                                    \
		return next(n) + room[n & 7];                                          \
	}
LEVEL(level_01, page_out) LEVEL(level_02, level_01) LEVEL(level_03, level_02)
LEVEL(level_04, level_03) LEVEL(level_05, level_04) LEVEL(level_06, level_05)
LEVEL(level_07, level_06) LEVEL(level_08, level_07)

int main(int argc, char **argv)
{
	long times = argc == 2 ? atol(argv[1]) : 0;

	top = (unsigned long)__builtin_frame_address(0) & -PAGE;
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	if (pagemap < 0 || times <= 0)
		return 2;
	for (long i = 0; i < times; i++)
		sum += level_08(i);
	return 0;
}
