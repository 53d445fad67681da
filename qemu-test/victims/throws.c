// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// Throws numbers by the C++ library of where it runs, each in a child that ends by it,
// as nobody catches them.
//
//   throws TIMES
//
// Prints "thrown N typeinfo ADDRESS" in the end.
#include <dlfcn.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const struct rlimit no_cores = { 0, 0 };
	void *library = dlopen("libstdc++.so.6", RTLD_NOW);
	long thrown = 0, times = argc == 2 ? atol(argv[1]) : 0;
	void (*throw)(void *, void *, void (*)(void *));
	void *(*allocate)(size_t);
	void *typeinfo;

	if (!library)
		errx(1, "%s", dlerror());
	*(void **)&allocate = dlsym(library, "__cxa_allocate_exception");
	*(void **)&throw = dlsym(library, "__cxa_throw");
	typeinfo = dlsym(library, "_ZTIi");
	if (!allocate || !throw || !typeinfo)
		errx(1, "no C++ library");
	setrlimit(RLIMIT_CORE, &no_cores);
	while (times-- > 0) {
		pid_t child = fork();
		int status;

		if (child == 0) {
			int *number = allocate(sizeof(*number));

			*number = 42;
			if (!freopen("/dev/null", "w", stderr))
				_exit(1);
			throw(number, typeinfo, NULL);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			err(1, "fork");
		thrown += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
	}
	printf("thrown %ld typeinfo %p\n", thrown, typeinfo);
	return 0;
}
