// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -rdynamic
// Leaks what containers of C++ hold, in functions named leak_*, and says how many blocks and bytes
// these are by an allocator that counts: `truth FUNCTION BLOCKS BYTES`.
#include <cstdio>
#include <list>
#include <map>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noipa))

static long blocks, bytes;

template <class T> struct Counts {
	using value_type = T;
	Counts() = default;
	template <class U> Counts(const Counts<U> &) {}
	T *allocate(size_t count)
	{
		blocks++, bytes += count * sizeof(T);
		return static_cast<T *>(::operator new(count * sizeof(T)));
	}
	void deallocate(T *block, size_t count)
	{
		blocks--, bytes -= count * sizeof(T);
		::operator delete(block, count * sizeof(T));
	}
	bool operator==(const Counts &) const { return true; }
	bool operator!=(const Counts &) const { return false; }
};

using Text = std::basic_string<char, std::char_traits<char>, Counts<char>>;
template <class T> using Vector = std::vector<T, Counts<T>>;
template <class T> using List = std::list<T, Counts<T>>;
using Map = std::map<int, Text, std::less<int>, Counts<std::pair<const int, Text>>>;

static void *volatile kept;

template <class T> static NOINLINE T *created()
{
	blocks++, bytes += sizeof(T);
	T *made = new T;
	kept = made;
	return made;
}

NOINLINE void leak_vector()
{
	auto *all = created<Vector<int>>();
	for (int i = 0; i < 1000; i++)
		all->push_back(i);
}

NOINLINE void leak_map()
{
	auto *all = created<Map>();
	for (int i = 0; i < 100; i++)
		(*all)[i] = Text(i, 'x');
	for (int i = 0; i < 100; i += 3)
		all->erase(i);
}

NOINLINE void leak_list()
{
	auto *all = created<List<Text>>();
	for (int i = 0; i < 100; i++)
		all->push_back(Text(2 * i, 'y'));
	all->remove_if([](const Text &text) { return text.size() % 8 == 0; });
}

static void run(const char *name, void (*leak)())
{
	char line[100];
	blocks = bytes = 0;
	leak();
	int length = snprintf(line, sizeof(line), "truth %s %ld %ld\n", name, blocks, bytes);
	if (write(1, line, length) != length)
		_exit(3);
}

int main()
{
	run("leak_vector", leak_vector);
	run("leak_map", leak_map);
	run("leak_list", leak_list);
	// One that does not leak.
	Map none;
	none[1] = Text(100, 'z');
	return 0;
}
