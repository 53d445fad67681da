// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -fno-optimize-sibling-calls
//
// What is put in the place of short_lived while that runs: another build, whose code at the
// same offsets is another function's.
#include <stdio.h>
#include <unistd.h>

static volatile long total;

__attribute__((noinline)) long decoy_first(long n)
{
	return total += getppid() * n;
}

__attribute__((noinline)) long decoy_second(long n)
{
	return decoy_first(n) + decoy_first(n + 7) * 3;
}

__attribute__((noinline)) long decoy_third(long n)
{
	return decoy_second(n * 5) + decoy_second(n + 9) * 11;
}

int main(void)
{
	for (;;)
		total = decoy_third(usleep(1000));
}
