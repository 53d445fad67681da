// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fcf-protection=none
//
// Tells what it computes, for tests that change it. For each line of stdin, a letter
// and a number, it prints "called RESULT":
//
//   a N  increment(N)
//   s N  skippable(N): the result, and 1000 for each time that its body has run
//   g N  stores N in the global knob, calls look(), and gives what the knob is then
//
// "ready PID" comes first.
#include "orders.h"

volatile long knob = 1;
static volatile long runs;

__attribute__((noinline)) long increment(long n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

__attribute__((noinline)) long skippable(long n)
{
	runs = runs + 1;
	return n;
}

__attribute__((noinline)) void look(void)
{
	__asm__ volatile("" ::: "memory");
}

/* So that the page in front of the stack pointer's is there. */
__attribute__((noinline)) static void touch_stack(void)
{
	volatile char pages[2 * 4096];

	for (size_t i = 0; i < sizeof(pages); i += 64)
		pages[i] = 1;
}

int main(void)
{
	char what;
	long n, result;

	touch_stack();
	say_ready();
	while (scanf(" %c %ld", &what, &n) == 2) {
		if (what == 'a') {
			result = increment(n);
		} else if (what == 's') {
			result = skippable(n);
			result += 1000 * runs;
		} else {
			knob = n;
			look();
			result = knob;
		}
		say_called(result);
	}
	return 0;
}
