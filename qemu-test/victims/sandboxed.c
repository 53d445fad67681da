// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -fno-omit-frame-pointer
//
// Calls two functions where seccomp lets it do next to nothing: who makes it do any
// other system call kills it.
//
//   sandboxed strict|list
//
// Prints "ready PID" once it is locked in. For each line of stdin, a number, it calls
// both that often, and then prints "called N" (in all).
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FUNCTION(name, first)                                                   \
	__asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" \
		#name ":\n" first "push %rbp\nmov %rsp, %rbp\nlea 1(%rdi), %rax\n"  \
		"pop %rbp\nret\n.size " #name ", . - " #name "\n");                \
	long name(long)

FUNCTION(plain, "");
/* The ten bytes that the kernel replaces by a call once they were hit. */
FUNCTION(optimised, ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n");

static volatile long sum;

#define ALLOW(call)                                          \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##call, 0, 1), \
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int lock_in(const char *mode)
{
	struct sock_filter list[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(read), ALLOW(write), ALLOW(exit),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(list) / sizeof(list[0]), list };

	if (!strcmp(mode, "strict"))
		return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void tell(const char *what, long number)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "%s %ld\n", what, number);

	if (write(1, line, length) != length)
		abort();
}

int main(int argc, char **argv)
{
	long called = 0, wanted = 0, pid = getpid();
	char byte;

	if (argc != 2 || lock_in(argv[1]))
		return 2;
	tell("ready", pid);
	while (read(0, &byte, 1) == 1) {
		if (byte != '\n') {
			wanted = wanted * 10 + byte - '0';
			continue;
		}
		for (; wanted > 0; wanted--, called++)
			sum = sum + plain(wanted) + optimised(wanted);
		tell("called", called);
	}
	syscall(SYS_exit, 0);
}
