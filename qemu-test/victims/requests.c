// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O1 -g -fno-omit-frame-pointer
//
// Handles requests with arguments of many types, and tells what each was: the
// oracle of tests that fetch by name and type.
//
//   requests COUNT
//
// Prints "line N", where N is that of the statement with `local`, then for each
// request "request I fd=… url=… …".
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum color { RED, GREEN = 5, BLUE };

struct peer {
	int fd;
	char name[16];
	unsigned flags : 3, mode : 5;
	enum color color;
};

struct request {
	struct peer *peer;
	const char *url;
	size_t length;
	double weight;
	short ids[4];
};

long handled;
static volatile long sink;
static const int marked_line = __LINE__ + 12;

static inline __attribute__((always_inline)) int thrice(int value)
{
	return value * 3 + 1;
}

__attribute__((noinline)) int handle(struct request *request, int number, unsigned char flag)
{
	int local = thrice(number);

	handled += local;
	sink = sink + local + flag; /* marked_line */
	return local - request->peer->fd;
}

/* Its argument is on the stack, and is not what it was when it returns. */
__attribute__((noinline)) long weigh(struct request whole, int number)
{
	long length = whole.length;

	whole.length = 0;
	whole.ids[1] = 99;
	__asm__ volatile("" : : "r"(&whole) : "memory");
	return length * 2 + number;
}

int main(int argc, char **argv)
{
	static const char *const urls[] = { "/even", "/odd" };
	int count = argc > 1 ? atoi(argv[1]) : 1;
	struct peer peer = { 7, "10.0.0.1", 5, 17, GREEN };
	struct request request = { .peer = &peer, .weight = 2.5, .ids = { 11, -22, 33, 44 } };
	/* What the compiler cannot see through is really stored. */
	struct request *volatile hidden = &request;

	printf("line %d\n", marked_line);
	for (int i = 0; i < count; i++) {
		request.url = urls[i % 2];
		request.length = 1000 + i;
		peer.color = i % 3 ? GREEN : BLUE;
		long before = handled;
		int result = handle(hidden, i, 65 + i % 26);

		long weight = weigh(request, i);

		printf("request %d fd=%d url=%s length=%zu color=%s before=%ld result=%d local=%d "
		       "weight=%ld\n", i,
		       peer.fd, request.url, request.length, i % 3 ? "GREEN" : "BLUE", before, result,
		       result + peer.fd, weight);
	}
	return 0;
}
