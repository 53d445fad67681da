// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -pthread
//
// Threads whose frame pointers lead into memory that was written to the swap.
//
//   waits_for_pages RECLAIM
//
// For each number N on stdin, up to 128: has the memory of N frames taken away by writes to
// RECLAIM, the file of its control group, and then has N threads call `waits` once, each from
// one of the frames. Prints "ready PID" first and "called N" (in all) after each line.
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define FRAMES 128

long enter(unsigned long frame);
extern char behind_call[];

/* Goes to another frame pointer for the time of the call. */
__asm__(".text\n.globl waits\n.type waits, @function\nwaits:\n"
	"push %rbx\nmov $1, %eax\npop %rbx\nret\n.size waits, . - waits\n"
	".globl enter\n.type enter, @function\nenter:\n"
	"push %rbp\nmov %rdi, %rbp\ncall waits\nbehind_call:\npop %rbp\nret\n"
	".size enter, . - enter\n");

static char *frames;
static pthread_barrier_t all_are_there;

static void *thread(void *frame)
{
	pthread_barrier_wait(&all_are_there);
	return (void *)enter((unsigned long)frame);
}

static int are_gone(long count)
{
	unsigned char is_there[FRAMES];

	if (mincore(frames, count * PAGE, is_there) != 0)
		err(1, "mincore");
	for (long i = 0; i < count; i++)
		if (is_there[i] & 1)
			return 0;
	return 1;
}

/* What the kernel still writes is gone at a later try. */
static void have_them_taken_away(long count, const char *path)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);

	if (file < 0)
		err(1, "%s", path);
	for (int tries = 0; !are_gone(count); tries++) {
		if (tries == 60000)
			errx(1, "the frames stay in memory");
		madvise(frames, count * PAGE, MADV_PAGEOUT);
		/* Fails when there is less than that. */
		if (write(file, "1M swappiness=max", 17) < 0)
			usleep(1000);
	}
	close(file);
}

static void call(long count, const char *reclaim)
{
	pthread_t threads[FRAMES];
	pthread_attr_t small;

	/* All of it is locked. */
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16 * PAGE);
	pthread_barrier_init(&all_are_there, NULL, count + 1);
	for (long i = 0; i < count; i++) {
		unsigned long *frame = (unsigned long *)(frames + i * PAGE);

		frame[0] = 0;
		frame[1] = (unsigned long)behind_call;
		if (pthread_create(&threads[i], &small, thread, frame) != 0)
			errx(1, "pthread_create");
	}
	have_them_taken_away(count, reclaim);
	pthread_barrier_wait(&all_are_there);
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	int how = MAP_PRIVATE | MAP_ANONYMOUS;
	long called = 0, count;

	if (argc != 2)
		errx(1, "usage: waits_for_pages RECLAIM");
	setlinebuf(stdout);
	if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
		err(1, "mlockall");
	frames = mmap(NULL, FRAMES * PAGE, PROT_READ | PROT_WRITE, how, -1, 0);
	if (frames == MAP_FAILED || munlock(frames, FRAMES * PAGE) != 0)
		err(1, "mmap");
	madvise(frames, FRAMES * PAGE, MADV_NOHUGEPAGE);
	printf("ready %d\n", getpid());
	while (scanf("%ld", &count) == 1 && count >= 0 && count <= FRAMES) {
		call(count, argv[1]);
		called += count;
		printf("called %ld\n", called);
	}
	return 0;
}
