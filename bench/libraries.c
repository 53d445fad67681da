// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include "libraries.h"
#include "tool.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER "/usr/lib/x86_64-linux-gnu/"
#define TRIAL_SECONDS 10

static int count_one(struct dl_phdr_info *info, size_t size, void *count)
{
	(void)size;
	/* Not the program itself, nor the vDSO. */
	*(int *)count += info->dlpi_name[0] == '/';
	return 0;
}

static int mapped_now(void)
{
	int count = 0;

	dl_iterate_phdr(count_one, &count);
	return count;
}

/*
 * Whether a library can be loaded into this process as it is: some end the process, or
 * wait for something. A child tries.
 */
static bool loads(const char *path)
{
	pid_t pid = must(fork(), "fork");
	int status;

	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, 1);
		dup2(null, 2);
		alarm(TRIAL_SECONDS);
		_exit(dlopen(path, RTLD_LAZY) ? 0 : 1);
	}
	must(waitpid(pid, &status, 0), "waitpid");
	return status == 0;
}

int map_libraries(int wanted)
{
	/* Those that programs link first, then what they load when they need it. */
	static const char *const PATTERNS[] = { FOLDER "*.so.*", FOLDER "gconv/*.so" };
	int mapped = mapped_now();

	for (int p = 0; p < 2; p++) {
		glob_t found = {};

		glob(PATTERNS[p], 0, NULL, &found);
		for (size_t i = 0; i < found.gl_pathc && mapped < wanted; i++)
			if (loads(found.gl_pathv[i]) && dlopen(found.gl_pathv[i], RTLD_LAZY))
				mapped = mapped_now();
		globfree(&found);
	}
	return mapped;
}
