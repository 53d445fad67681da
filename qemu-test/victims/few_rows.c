// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O1 -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls -fno-asynchronous-unwind-tables -fno-unwind-tables
//
// Has frame pointers and says, but for its debug information, of nothing but its start-up
// code how it is left, as Go's programs do that are linked with C.
//
//   few_rows TIMES
#include <stdlib.h>

static volatile long sum;

__attribute__((noipa)) long few_leaf(long n)
{
	return sum = sum + n;
}

__attribute__((noipa)) long few_middle(long n)
{
	return few_leaf(n) + 1;
}

int main(int argc, char **argv)
{
	for (long i = 0; argc > 1 && i < atol(argv[1]); i++)
		sum += few_middle(i);
	return 0;
}
