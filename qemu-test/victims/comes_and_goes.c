// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -static -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// Runs itself in PROCESSES processes, one after the other, each of which calls passes CALLS times;
// waits for PAUSE_MS and ends.
//
//   comes_and_goes PROCESSES CALLS PAUSE_MS
//   comes_and_goes CALLS                       in this process alone
#include <err.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sum;

__attribute__((noinline)) long passes(long n)
{
	return sum = sum + n;
}

static void call(long calls)
{
	for (long i = 0; i < calls; i++)
		sum = passes(i) + 1;
}

int main(int argc, char **argv)
{
	if (argc == 2)
		call(atol(argv[1]));
	if (argc < 4)
		return 0;
	for (long left = atol(argv[1]); left > 0; left--) {
		pid_t pid = fork();

		if (pid == 0) {
			execl("/proc/self/exe", argv[0], argv[2], (char *)NULL);
			err(1, "exec");
		}
		if (pid < 0 || waitpid(pid, NULL, 0) < 0)
			err(1, "fork");
	}
	usleep(atol(argv[3]) * 1000);
	return 0;
}
