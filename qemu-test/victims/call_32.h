/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* System calls of a 32-bit program without a C library. */
static long call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
	return result;
}
#define EXIT 1
#define READ 3
#define WRITE 4
#define OPEN 5
#define GETPID 20
#define IOCTL 54
#define OLD_MMAP 90
