// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -g -static
//
//	first_call one NUMBER
//
// Calls a function once, with a text on a page that nothing has touched before, and ends.
//
//	first_call each COUNT
//
// Starts the former so often, one after the other, each time in a mount namespace of its own from a
// copy of this file at /mnt/first_call.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Further from all others than the kernel maps pages around one that is touched. */
#define AWAY (1 << 18)

static const struct {
	char before[AWAY];
	char text[64];
	char after[AWAY];
} far_away = { .text = "a text that was never read" };

__attribute__((noinline, noclone)) int first_call(const char *text, long number)
{
	__asm__ volatile("" : : "r"(text), "r"(number) : "memory");
	return 0;
}

static void check(int is_well, const char *what)
{
	if (!is_well) {
		perror(what);
		exit(1);
	}
}

static void start(const char *number)
{
	int from, to;
	struct stat stat;

	check(unshare(CLONE_NEWNS) == 0, "unshare");
	check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private");
	check(mount("first_call", "/mnt", "tmpfs", 0, NULL) == 0, "tmpfs");
	from = open("/proc/self/exe", O_RDONLY);
	to = open("/mnt/first_call", O_WRONLY | O_CREAT, 0755);
	check(from >= 0 && to >= 0 && fstat(from, &stat) == 0, "copy");
	check(sendfile(to, from, NULL, stat.st_size) == stat.st_size, "sendfile");
	close(to);
	execl("/mnt/first_call", "first_call", "one", number, NULL);
	check(0, "exec");
}

int main(int argc, char **argv)
{
	char number[16];

	check(argc == 3, "arguments");
	if (strcmp(argv[1], "one") == 0)
		return first_call(far_away.text, atol(argv[2]));
	for (long i = 0; i < atol(argv[2]); i++) {
		int status;
		pid_t child;

		snprintf(number, sizeof(number), "%ld", i);
		child = fork();
		if (child == 0)
			start(number);
		check(waitpid(child, &status, 0) == child && status == 0, "child");
	}
	return 0;
}
