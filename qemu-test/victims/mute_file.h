/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A file whose reads nobody answers: the only one of a FUSE file system. Includers have fail(). */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MUTE_BYTES 4096

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

/* Answers everything but reads; the first `failed` of these fail. */
static void serve(int fd, int failed)
{
	static char request[1 << 20];
	struct fuse_attr file = {
		.ino = 2, .size = MUTE_BYTES, .blocks = 8, .mode = S_IFREG | 0644, .nlink = 1,
		.blksize = MUTE_BYTES
	};
	struct fuse_attr root = {
		.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2, .blksize = MUTE_BYTES
	};

	while (read(fd, request, sizeof(request)) > 0) {
		struct fuse_in_header *in = (void *)request;
		struct fuse_init_out init = {
			.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
			.max_readahead = MUTE_BYTES, .max_write = MUTE_BYTES
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
			if (failed-- > 0)
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

/* Mounts the file system at `folder` and opens the file. `server` is ended with its parent. */
static int mute_file(const char *folder, int failed, pid_t *server)
{
	char options[128], path[4096];
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		fail("/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (mount("mute", folder, "fuse", MS_NOSUID, options) != 0)
		fail("mount");
	*server = fork();
	if (*server < 0)
		fail("fork");
	if (*server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd, failed);
	}
	close(fd);
	snprintf(path, sizeof(path), "%s/file", folder);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail(path);
	return fd;
}
