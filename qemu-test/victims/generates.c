// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -static -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// Runs code that it has generated, and says so in the files that perf reads.
//
//   generates HOW TIMES [FILE]
//
// HOW is `map` (`/tmp/perf-PID.map`), `dump` (`/var/tmp/jit-PID.dump`, of which a page is
// mapped, as perf wants it), `older` (a map that was written an hour before the program
// started), `strange` (one of another user), or `huge` (one that claims all addresses, and
// goes on for long). The code calls `leaf` TIMES times (0: without end) as `first`; then
// the same bytes are called `second`, and it calls as often again. After each round it waits
// for FILE, which it removes, or four seconds.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static volatile long sum;

__attribute__((noipa)) long leaf(long n)
{
	return sum = sum + n;
}

/* push %rbp; mov %rsp,%rbp; call *%rsi; pop %rbp; ret */
static const unsigned char CODE[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3 };

static char *code;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

/* A line of a map. */
static void tell_in_map(FILE *file, const char *name)
{
	fprintf(file, "%lx %zx %s\n", (unsigned long)code, sizeof(CODE), name);
	fflush(file);
}

struct record {
	uint32_t kind, bytes;
	uint64_t time;
};

/* A record of a dump, as tools/perf/Documentation/jitdump-specification.txt has it. */
static void put_record(FILE *file, uint32_t kind, const void *body, size_t bytes)
{
	struct record record = { kind, sizeof(record) + bytes, now() };

	fwrite(&record, sizeof(record), 1, file);
	fwrite(body, bytes, 1, file);
}

static void tell_in_dump(FILE *file, const char *name)
{
	struct {
		uint64_t code, count, at;
		uint32_t line, more;
		char file[16];
	} lines = { (uintptr_t)code, 1, (uintptr_t)code, 42, 0, "generated.js" };
	struct {
		uint32_t pid, tid;
		uint64_t at, code, bytes, index;
		char name[16];
		unsigned char copy[sizeof(CODE)];
	} load = { getpid(), getpid(), (uintptr_t)code, (uintptr_t)code, sizeof(CODE), 0, "", "" };
	char body[sizeof(load)];
	size_t fixed = (char *)load.name - (char *)&load, length = strlen(name) + 1;

	put_record(file, 2, &lines, sizeof(lines) - sizeof(lines.file) + sizeof("generated.js"));
	memcpy(body, &load, fixed);
	memcpy(body + fixed, name, length);
	memcpy(body + fixed + length, CODE, sizeof(CODE));
	put_record(file, 0, body, fixed + length + sizeof(CODE));
	fflush(file);
}

static FILE *begin(const char *how)
{
	int is_dump = strcmp(how, "dump") == 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), is_dump ? "/var/tmp/jit-%d.dump" : "/tmp/perf-%d.map", getpid());
	file = fopen(path, "w+");
	if (file == NULL)
		fail(path);
	if (is_dump) {
		uint32_t head[10] = { 0x4a695444, 1, sizeof(head), 62, 0, getpid() };

		fwrite(head, sizeof(head), 1, file);
		fflush(file);
		if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED)
			fail("mmap");
	}
	if (strcmp(how, "huge") == 0) {
		fprintf(file, "0 ffffffffffffffff everything\n");
		for (int i = 0; i < 20000; i++)
			fprintf(file, "%x 10 other\n%*s\n", i * 16, 60, "");
	}
	return file;
}

/* What is done to the file when it is whole. */
static void finish(const char *how, FILE *file)
{
	struct timespec times[2];

	clock_gettime(CLOCK_REALTIME, times);
	times[0].tv_sec -= 3600;
	times[1] = times[0];
	if (strcmp(how, "older") == 0 && futimens(fileno(file), times) != 0)
		fail("futimens");
	if (strcmp(how, "strange") == 0 && fchown(fileno(file), 12345, 12345) != 0)
		fail("fchown");
}

/* Until the file is there, which goes. */
static void wait_for(const char *path)
{
	while (unlink(path) != 0)
		usleep(10000);
}

int main(int count, char **words)
{
	long times = count >= 3 ? atol(words[2]) : 1;
	const char *how = count > 1 ? words[1] : "map";
	FILE *file = begin(how);

	code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		fail("mmap");
	memcpy(code, CODE, sizeof(CODE));
	for (int round = 0; round < 2; round++) {
		const char *name = round == 0 ? "first" : "second \033[31m";

		if (strcmp(how, "dump") == 0)
			tell_in_dump(file, name);
		else
			tell_in_map(file, name);
		finish(how, file);
		for (long i = 0; times == 0 || i < times; i++) {
			sum = ((long (*)(long, void *))code)(i, (void *)leaf) + 1;
			usleep(20000);
		}
		/* Who names the calls by a map does so before it says something else. */
		if (count == 4)
			wait_for(words[3]);
		else
			sleep(4);
	}
}
