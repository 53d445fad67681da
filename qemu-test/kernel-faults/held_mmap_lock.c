// SPDX-License-Identifier: MIT OR Apache-2.0
// A process that keeps its own mmap_lock, and a probe of a file that it maps: no process of the
// machine forks until the first one is let go. docs/upstream/held-mmap-lock.md.
#include "probe.h"
#include <errno.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

static void answer(int fd, uint64_t unique, const void *body, size_t bytes, int error)
{
	char out[512] = { 0 };
	struct fuse_out_header head = {
		.len = sizeof(head) + bytes, .error = error, .unique = unique
	};

	memcpy(out, &head, sizeof(head));
	if (bytes != 0)
		memcpy(out + sizeof(head), body, bytes);
	if (write(fd, out, head.len) < 0)
		fail("the answer of the file system");
}

static void serve(int fd)
{
	static char request[1 << 20];
	struct fuse_attr file = {
		.ino = 2, .size = PAGE, .blocks = 8, .mode = S_IFREG | 0644, .nlink = 1,
		.blksize = PAGE
	};
	struct fuse_attr root = { .ino = 1, .mode = S_IFDIR | 0755, .nlink = 2, .blksize = PAGE };
	int reads = 0;

	while (read(fd, request, sizeof(request)) > 0) {
		struct fuse_in_header *in = (void *)request;
		struct fuse_init_out init = {
			.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
			.max_readahead = PAGE, .max_write = PAGE
		};
		struct fuse_entry_out entry = { .nodeid = 2, .attr = file };
		struct fuse_attr_out attr = { .attr = in->nodeid == 1 ? root : file };
		struct fuse_open_out open = { .fh = 1 };

		switch (in->opcode) {
		case FUSE_INIT:
			answer(fd, in->unique, &init, sizeof(init), 0);
			break;
		case FUSE_LOOKUP:
			answer(fd, in->unique, &entry, sizeof(entry), 0);
			break;
		case FUSE_GETATTR:
			answer(fd, in->unique, &attr, sizeof(attr), 0);
			break;
		case FUSE_OPEN:
			answer(fd, in->unique, &open, sizeof(open), 0);
			break;
		case FUSE_READ:
			if (reads++ < FAILED)
				answer(fd, in->unique, NULL, 0, -EIO);
			break;
		case FUSE_FORGET:
			break;
		default:
			answer(fd, in->unique, NULL, 0, -ENOSYS);
		}
	}
	_exit(0);
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
	char options[128], path[128];
	int fuse = open("/dev/fuse", O_RDWR), file, second, is_stalled = 0;
	long before;

	if (fuse < 0)
		fail("/dev/fuse");
	mkdir(folder, 0755);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (mount("faults", folder, "fuse", MS_NOSUID, options) != 0)
		fail("mount");
	server = child();
	if (server == 0)
		serve(fuse);
	close(fuse);
	snprintf(path, sizeof(path), "%s/file", folder);
	file = open(path, O_RDONLY);
	if (file < 0)
		fail(path);
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
