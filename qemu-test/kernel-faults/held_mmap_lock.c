// SPDX-License-Identifier: MIT OR Apache-2.0
// A process that keeps its own mmap_lock, and a probe of a file that it maps: no process of the
// machine forks until the first one is let go. docs/upstream/held-mmap-lock.md.
#include "probe.h"

#include "../victims/mute_file.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define PAGE 4096ul
/* Reads that the server fails: the one of the readahead, and that of the fault which has let go of
 * its lock. The next one holds it. */
#define FAILED 2
#define SECONDS 5

__attribute__((noinline, naked)) static void probed(void)
{
	__asm__("nop\nret");
}

static pid_t child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	return pid;
}

int main(void)
{
	const char *folder = "/tmp/held-mmap-lock";
	volatile long *forks = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t server, holder, forker, prober;
	int file, second, is_stalled = 0;
	long before;

	mkdir(folder, 0755);
	file = mute_file(folder, FAILED, &server);
	holder = child();
	if (holder == 0) {
		volatile char *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);

		_exit(*page);
	}
	forker = child();
	for (; forker == 0; (*forks)++) {
		pid_t pid = child();

		if (pid == 0)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
	prober = child();
	if (prober == 0) {
		sleep(2);
		puts("the probe goes in");
		fflush(stdout);
		probe(probed);
		puts("the probe is in");
		_exit(0);
	}
	for (second = 1; second <= 2 + SECONDS; second++) {
		before = *forks;
		sleep(1);
		printf("second %d: %ld forks\n", second, *forks - before);
		fflush(stdout);
		is_stalled += *forks == before;
	}
	/* The connection ends with the server: the fault fails, and all goes on. */
	kill(server, SIGKILL);
	waitpid(prober, NULL, 0);
	kill(forker, SIGKILL);
	umount2(folder, MNT_DETACH);
	printf("%d seconds without a fork\n", is_stalled);
	return is_stalled != 0;
}
