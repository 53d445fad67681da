// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Throws as many exceptions as its argument says, out of a method and across the function
// that calls it.
//
//   throws COUNT
//
// Prints "thrown 0x…", the exception's address, for each.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

struct Thrown {
	std::string why;
	// It is made where it stays: not moved, and not copied.
	explicit Thrown(const std::string &why) : why(why) { std::printf("thrown %p\n", static_cast<void *>(this)); }
};

class Thrower {
	std::string name;

public:
	explicit Thrower(const std::string &name) : name(name) {}
	[[gnu::noinline]] void raise(const std::string &why, long number)
	{
		throw Thrown(name + ": " + why + " " + std::to_string(number));
	}
};

[[gnu::noinline]] void crossed(Thrower &thrower, long number)
{
	thrower.raise("on purpose", number);
}

int main(int argc, char **argv)
{
	Thrower thrower("throws");
	// Those that are kept have addresses of their own.
	std::vector<std::exception_ptr> kept;

	std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
	for (long left = argc > 1 ? std::atol(argv[1]) : 1; left > 0; left--) {
		try {
			crossed(thrower, left);
		} catch (const Thrown &) {
			kept.push_back(std::current_exception());
		}
	}
	return 0;
}
