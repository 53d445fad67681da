// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -Wno-unused-function -g -static
//
//	first_call one NUMBER
//
// Calls a function once, with a text on a page that nothing has touched before, and ends.
//
//	first_call each COUNT
//
// Starts the former so often, one after the other, each time in a mount namespace of its own from a
// copy of this file at /mnt/first_call.
//
//	first_call spawn NUMBER
//
// Starts the first in a new mount namespace by posix_spawn and by vfork, and prints "spawned".
//
//	first_call serve FOLDER
//
// Mounts a FUSE file system at FOLDER in a mount namespace of its own, starts this program anew there,
// and prints "serves" before it answers.
#define _GNU_SOURCE
#include <sched.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

static void fail(const char *what);

#include "mute_file.h"

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

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void check(int is_well, const char *what)
{
	if (!is_well)
		fail(what);
}

static void leave_mounts(void)
{
	check(unshare(CLONE_NEWNS) == 0, "unshare");
	check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private");
}

static void start(const char *number)
{
	int from, to;
	struct stat stat;

	leave_mounts();
	check(mount("first_call", "/mnt", "tmpfs", 0, NULL) == 0, "tmpfs");
	from = open("/proc/self/exe", O_RDONLY);
	to = open("/mnt/first_call", O_WRONLY | O_CREAT, 0755);
	check(from >= 0 && to >= 0 && fstat(from, &stat) == 0, "copy");
	check(sendfile(to, from, NULL, stat.st_size) == stat.st_size, "sendfile");
	close(to);
	execl("/mnt/first_call", "first_call", "one", number, NULL);
	check(0, "exec");
}

static int spawn(char *number)
{
	char *words[] = { "first_call", "one", number, NULL };
	pid_t child;

	leave_mounts();
	check(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, NULL) == 0, "spawn");
	child = vfork();
	if (child == 0) {
		execv("/proc/self/exe", words);
		_exit(1);
	}
	puts("spawned");
	fflush(stdout);
	while (wait(NULL) > 0)
		;
	return 0;
}

static int start_server(const char *folder)
{
	char options[128], number[16];
	int fd = open("/dev/fuse", O_RDWR);

	leave_mounts();
	check(fd >= 0, "/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	check(mount("served", folder, "fuse", MS_NOSUID, options) == 0, "fuse");
	snprintf(number, sizeof(number), "%d", fd);
	execl("/proc/self/exe", "first_call", "server", number, NULL);
	return 1;
}

int main(int argc, char **argv)
{
	char number[24];

	check(argc == 3, "arguments");
	if (strcmp(argv[1], "one") == 0)
		return first_call(far_away.text, atol(argv[2]));
	if (strcmp(argv[1], "spawn") == 0)
		return spawn(argv[2]);
	if (strcmp(argv[1], "serve") == 0)
		return start_server(argv[2]);
	if (strcmp(argv[1], "server") == 0) {
		puts("serves");
		fflush(stdout);
		serve(atoi(argv[2]), 0);
	}
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
