// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fomit-frame-pointer -fno-optimize-sibling-calls -Wl,-z,lazy -Wa,--gsframe
//
// Says by .sframe, too, how its frames are left: by the stack pointer, and by the frame
// pointer where a frame's size is not known before.
//
//   only_sframe TIMES
#include <stdlib.h>

static volatile long sum;

__attribute__((noipa)) long sframe_leaf(long n)
{
	return sum = sum + n;
}

__attribute__((noipa)) long sframe_plain(long n, long more)
{
	long kept[5] = { n, more, n + more, n - more, n * more };

	sum += kept[n & 3];
	return sframe_leaf(kept[more & 3]) + more + kept[(n + 1) & 3];
}

__attribute__((noipa)) long sframe_with_vla(long n)
{
	volatile char room[n % 50 + 1];

	room[n % 50] = 1;
	return sframe_plain(n, 2) + room[n % 50];
}

int main(int argc, char **argv)
{
	for (long i = 0; argc > 1 && i < atol(argv[1]); i++)
		sum += sframe_with_vla(i);
	return 0;
}
