// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -m32 -O1 -Wall -Wextra -static -nostdlib -fno-pic -no-pie -fno-stack-protector -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// A 32-bit program, without a C library, that knows its own call chain: bottom, level_3,
// level_2, level_1, program, _start.
//
//   stack_32      an order per line of stdin, each answered by "called X"
//
// Prints "ready 0" first. "c N" has bottom called N times through the chain; X is how often
// that was done. "r N" asks where function N of the chain (0: bottom) returns to. "w P" has
// bottom called once through `wild` with P as frame pointer; X is where it returns to. "l 0"
// does so with a frame pointer that leads to itself.

static long call(long number, long a, long b, long c)
{
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
	return result;
}
#define EXIT 1
#define READ 3
#define WRITE 4

/* Where each function of the chain returns to, by the compiler's own knowledge. */
static unsigned long returns[5];
#define KEEP(n) (returns[n] = (unsigned long)__builtin_return_address(0))

__attribute__((noinline)) void bottom(void)
{
	KEEP(0);
	__asm__ volatile("");
}

#define LEVEL(name, n, next)                                                    \
	__attribute__((noinline)) void name(void)                               \
	{                                                                       \
		KEEP(n);                                                        \
		next();                                                         \
		__asm__ volatile("");                                           \
	}
LEVEL(level_3, 1, bottom)
LEVEL(level_2, 2, level_3)
LEVEL(level_1, 3, level_2)

/* Calls bottom with that frame pointer. */
void wild(unsigned long fp);
__asm__(".globl wild\n.type wild, @function\nwild:\npush %ebp\nmov 8(%esp), %ebp\ncall bottom\n"
	"pop %ebp\nret\n.size wild, . - wild\n");

/* Calls bottom with a frame pointer to a frame whose caller has the same one. */
void looped(void);
__asm__(".globl looped\n.type looped, @function\nlooped:\npush %ebp\npush $looped\nsub $4, %esp\n"
	"mov %esp, (%esp)\nmov %esp, %ebp\ncall bottom\nadd $8, %esp\npop %ebp\nret\n"
	".size looped, . - looped\n");

static void answer(const char *word, unsigned long value)
{
	char text[32], *end = text + sizeof(text), *at = end;

	*--at = '\n';
	do {
		*--at = '0' + value % 10;
	} while (value /= 10);
	*--at = ' ';
	for (int i = 0; word[i]; i++)
		call(WRITE, 1, (long)(word + i), 1);
	call(WRITE, 1, (long)at, end - at);
}

/* The next byte of stdin; its end is the program's. */
static char next(void)
{
	char byte;

	if (call(READ, 0, (long)&byte, 1) != 1)
		call(EXIT, 0, 0, 0);
	return byte;
}

__attribute__((used)) void program(void)
{
	unsigned long called = 0;

	returns[4] = (unsigned long)__builtin_return_address(0);
	answer("ready", 0);
	for (;;) {
		char order = next();
		unsigned long value = 0;

		next();
		for (char byte; (byte = next()) != '\n';)
			value = value * 10 + (unsigned long)(byte - '0');
		switch (order) {
		case 'c':
			for (called += value; value; value--)
				level_1();
			answer("called", called);
			break;
		case 'w':
			wild(value);
			answer("called", returns[0]);
			break;
		case 'l':
			looped();
			answer("called", returns[0]);
			break;
		default:
			answer("called", returns[value]);
		}
	}
}

/* The kernel begins with a frame pointer of zero. */
__asm__(".globl _start\n.type _start, @function\n_start:\nand $-16, %esp\ncall program\nhlt\n"
	".size _start, . - _start\n");
