// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -static
//
// Calls through an inlined function, to be named by debug information that is elsewhere.
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile long total;

/* Types enough for dwz to find it worth while to share them. */
struct till {
	FILE *log;
	struct stat paper;
	struct rusage usage;
	struct till *next;
} till;

__attribute__((noinline)) long charge(long price)
{
	return total += price;
}

static inline __attribute__((always_inline)) long with_tax(long price)
{
	return charge(price + price / 5) + 1;
}

__attribute__((noinline)) long checkout(long price)
{
	return with_tax(price) + 1;
}

int main(void)
{
	for (long price = 0;; price++) {
		total = checkout(price) + 1;
		usleep(10000);
	}
}
