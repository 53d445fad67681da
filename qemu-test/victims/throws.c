// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -ldl
//
// Throws a C++ exception that nobody catches as often as its argument says, each in a
// child of its own, by the library of the system it runs on.
//
//   throws COUNT
//
// Prints "thrown 0x…", the exception's address, before each.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	/* https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html#cxx-throw */
	void *library = dlopen("libstdc++.so.6", RTLD_NOW);
	void *(*allocate)(size_t) = NULL;
	void (*throw)(void *, void *, void (*)(void *)) = NULL;
	struct rlimit none = { 0, 0 };

	if (library) {
		*(void **)&allocate = dlsym(library, "__cxa_allocate_exception");
		*(void **)&throw = dlsym(library, "__cxa_throw");
	}
	if (!allocate || !throw) {
		fprintf(stderr, "throws: %s\n", dlerror());
		return 2;
	}
	setrlimit(RLIMIT_CORE, &none);
	setlinebuf(stdout);
	for (long i = argc > 1 ? atol(argv[1]) : 1; i > 0; i--) {
		/* What the parent keeps, to have each at an address of its own. */
		void *kept = allocate(64 * i);

		if (fork() == 0) {
			void *exception = allocate(sizeof(int));

			printf("thrown %p\n", exception);
			throw(exception, dlsym(library, "_ZTIi"), NULL);
		}
		wait(NULL);
		(void)kept;
	}
	return 0;
}
