// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -s -fno-omit-frame-pointer
//
// A program without symbols of its own.
#include <stdio.h>

__attribute__((noinline)) void nameless(void)
{
	__asm__ volatile("");
}

int main(void)
{
	nameless();
	return puts("stripped") < 0;
}
