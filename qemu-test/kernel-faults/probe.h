/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A uprobe of the kernel's own tracing (tracefs) on a function of this program. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static void tell(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_APPEND);

	if (file < 0 || write(file, text, strlen(text)) < 0)
		fail(path);
	close(file);
}

/* Where this program's file has what is at an address. */
static unsigned long file_offset(const void *address)
{
	unsigned long start, end, offset, at = (unsigned long)address;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 &&
		    start <= at && at < end)
			return at - start + offset;
	fail("no such mapping");
	return 0;
}

static void probe(const void *address)
{
	char self[256] = "", text[512];

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		fail("/proc/self/exe");
	/* It may be there already. */
	mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	snprintf(text, sizeof(text), "p:faults/place %s:0x%lx\n", self, file_offset(address));
	tell("/sys/kernel/tracing/uprobe_events", text);
	tell("/sys/kernel/tracing/events/faults/place/enable", "1\n");
}
