// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -static -Wall -Wextra -fomit-frame-pointer -fno-optimize-sibling-calls
//
// Three processes that wait for each other: "c" sleeps and sends to a socket, "b" waits for that
// and writes to a pipe, "a" waits for that. The other argument is the folder of socket and pipe.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static char pipe_path[64];
static struct sockaddr_un address = { .sun_family = AF_UNIX };

static void check(int is_well, const char *what)
{
	if (!is_well) {
		perror(what);
		exit(1);
	}
}

static void pause_ms(long ms)
{
	struct timespec span = { 0, ms * 1000000 };

	nanosleep(&span, NULL);
}

NOINLINE void take_work(int from)
{
	char byte;

	check(read(from, &byte, 1) == 1, "read");
}

NOINLINE void await_order(int from)
{
	char byte;

	check(recv(from, &byte, 1, 0) == 1, "recv");
}

NOINLINE void pass_on(int to)
{
	check(write(to, "x", 1) == 1, "write");
}

NOINLINE void make_order(void)
{
	pause_ms(20);
}

NOINLINE void send_order(int to)
{
	check(send(to, "x", 1, 0) == 1, "send");
}

NOINLINE void act_as_a(void)
{
	int from = open(pipe_path, O_RDONLY);

	check(from >= 0, "open");
	for (;;)
		take_work(from);
}

NOINLINE void act_as_b(void)
{
	int to, from = socket(AF_UNIX, SOCK_STREAM, 0);

	while (connect(from, (struct sockaddr *)&address, sizeof(address)) != 0)
		pause_ms(10);
	to = open(pipe_path, O_WRONLY);
	check(to >= 0, "open");
	for (;;) {
		await_order(from);
		pass_on(to);
	}
}

NOINLINE void act_as_c(void)
{
	int to, listens = socket(AF_UNIX, SOCK_STREAM, 0);

	check(bind(listens, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
	check(listen(listens, 1) == 0, "listen");
	to = accept(listens, NULL, NULL);
	for (;;) {
		make_order();
		send_order(to);
	}
}

int main(int argc, char **argv)
{
	check(argc == 3, "arguments");
	snprintf(pipe_path, sizeof(pipe_path), "%s/pipe", argv[2]);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", argv[2]);
	mkfifo(pipe_path, 0600);
	switch (argv[1][0]) {
	case 'a':
		act_as_a();
		break;
	case 'b':
		act_as_b();
		break;
	default:
		act_as_c();
	}
	return 0;
}
