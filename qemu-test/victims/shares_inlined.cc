// SPDX-License-Identifier: MIT OR Apache-2.0
// As shares.c: what takes the time is inlined into share<N>().
// flags: -O2 -g -fomit-frame-pointer
#include <cstdint>
#include <cstdlib>
#include <utility>

static volatile uint64_t sink;

struct Mixer {
	uint64_t x;
	__attribute__((always_inline)) inline void mix(int rounds)
	{
		for (int i = 0; i < rounds; i++)
			x = x * 6364136223846793005u + 1;
	}
};

template <int N> __attribute__((noinline)) void share()
{
	Mixer mixer{sink + N};
	mixer.mix(N * 1000);
	sink = mixer.x;
}

template <int... N> void all(std::integer_sequence<int, N...>)
{
	(share<N + 1>(), ...);
}

int main(int argc, char **argv)
{
	for (int rounds = argc > 1 ? std::atoi(argv[1]) : 0; rounds > 0; rounds--)
		all(std::make_integer_sequence<int, 10>());
}
