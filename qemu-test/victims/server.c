// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -g -Wall -Wextra -fno-optimize-sibling-calls
//
// The server of the README's examples: handles requests, for ever.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct request {
	const char *user;
	long key;
};

static volatile long sum;

__attribute__((noipa)) long cache_get(long key)
{
	return sum + key;
}

__attribute__((noipa)) long handle_request(const struct request *request)
{
	char *volatile room = malloc(100);
	long got = cache_get(request->key);

	close(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
	free(room);
	return got;
}

int main(void)
{
	for (long number = 0;; number++) {
		struct request request = { number % 2 ? "ada" : "bob", number };

		sum = handle_request(&request);
		usleep(10000);
	}
}
