// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -m32 -O1 -Wall -Wextra -static -nostdlib -fno-pic -no-pie -fno-stack-protector -fno-omit-frame-pointer -idirafter /usr/include/x86_64-linux-gnu
//
//   maps_in_32 FILE
//
// A 32-bit program, without a C library, that maps a file from its second page on to execute it, as
// no 32-bit program has reason to do with a 64-bit one. Prints "ready PID" and waits for the end of
// stdin.

#include "call_32.h"

__attribute__((used)) static void program(long *stack)
{
	/* Read and execute; private. */
	long map[6] = { 0, 65536, 5, 2, call(OPEN, stack[2], 0, 0), 4096 };
	char line[32] = "ready ", digits[12];
	long pid = call(GETPID, 0, 0, 0), count = 0, at = 6;

	if (map[4] < 0 || (unsigned long)call(OLD_MMAP, (long)map, 0, 0) > -4096ul)
		call(EXIT, 1, 0, 0);
	for (; pid > 0; pid /= 10)
		digits[count++] = (char)('0' + pid % 10);
	while (count > 0)
		line[at++] = digits[--count];
	line[at++] = '\n';
	call(WRITE, 1, (long)line, at);
	while (call(READ, 0, (long)line, sizeof(line)) > 0)
		;
	call(EXIT, 0, 0, 0);
}

__asm__(".globl _start\n_start:\nmov %esp, %eax\nand $-16, %esp\nsub $12, %esp\npush %eax\ncall program\n");
