// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What a call of malloc and one of free cost together under a tracer.
 *
 * usage: pairs PEER TOOL
 *
 * TOOL is a shell command that traces the process $SUBJECT and is ended by SIGINT, or "none", or
 * "bare OFFSET...": the bare consumer at each offset of libc's file.
 *
 * Environment: PAIRS and ROUNDS; OUT, the file for TOOL's output.
 * Results: lines
 *   place OFFSET                 of libc's file, where TOOL has put a breakpoint into malloc or free
 *   pair PEER thread-ns wall-ns  of a pair; one line a round
 */
#define _GNU_SOURCE
#include "tool.h"
#include <dlfcn.h>
#include <err.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FUNCTION_BYTES_MAX = 2048, BLOCK_BYTES = 100 };

/* A function of libc: its code as the file has it, and where that is. */
static struct function {
	const uint8_t *code;
	unsigned long offset;
	size_t bytes;
	uint8_t before[FUNCTION_BYTES_MAX];
} functions[2];
static char libc_path[256];

static void find(struct function *function, const char *name)
{
	ElfW(Sym) *symbol;
	Dl_info info;

	function->code = dlsym(RTLD_DEFAULT, name);
	if (!dladdr1(function->code, &info, (void **)&symbol, RTLD_DL_SYMENT))
		errx(1, "no %s", name);
	snprintf(libc_path, sizeof(libc_path), "%s", info.dli_fname);
	/* Code of libraries lies in the file as in memory. */
	function->offset = function->code - (const uint8_t *)info.dli_fbase;
	function->bytes = symbol->st_size < FUNCTION_BYTES_MAX ? symbol->st_size : FUNCTION_BYTES_MAX;
	memcpy(function->before, function->code, function->bytes);
}

/* How many bytes of a function are not as they were. */
static int armed_in(const struct function *function, bool print)
{
	int armed = 0;

	for (size_t i = 0; i < function->bytes; i++) {
		if (function->code[i] == function->before[i])
			continue;
		armed++;
		if (print)
			printf("place 0x%lx\n", function->offset + i);
	}
	return armed;
}

static int armed(void) { return !!armed_in(&functions[0], false) + !!armed_in(&functions[1], false); }

static struct spent pairs(void *what, long count)
{
	struct spent spent;

	(void)what;
	begin(&spent);
	for (long i = 0; i < count; i++) {
		void *volatile block = malloc(BLOCK_BYTES);

		free(block);
	}
	finish(&spent);
	return spent;
}

int main(int argc, char **argv)
{
	long count = number("PAIRS", 3000), rounds = number("ROUNDS", 3);
	const char *peer = argc == 3 ? argv[1] : "", *command = argc == 3 ? argv[2] : "";
	struct tool tool = {};
	char *at = NULL;

	if (argc != 3)
		errx(2, "usage: pairs PEER TOOL");
	setvbuf(stdout, NULL, _IOLBF, 0);
	find(&functions[0], "malloc");
	find(&functions[1], "free");
	if (!strncmp(command, "bare", 4)) {
		for (at = strtok(strdup(command + 4), " "); at; at = strtok(NULL, " "))
			attach_bare_to(libc_path, 0, strtoul(at, NULL, 0));
	} else if (strcmp(command, "none")) {
		tool = start_tool(command);
		wait_armed(tool, armed, 2);
		sleep(SETTLE_SECONDS);
		armed_in(&functions[0], true);
		armed_in(&functions[1], true);
	}
	pin();
	for (long round = 0; round < rounds; round++) {
		struct spent spent;

		in_parts(pairs, NULL, WARM_UP);
		spent = in_parts(pairs, NULL, count);
		printf("pair %s %.1f %.1f\n", peer, spent.thread_ns / count, spent.wall_ns / count);
	}
	if (tool.pid)
		end_tool(tool);
	return 0;
}
