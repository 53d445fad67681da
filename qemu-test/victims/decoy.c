// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Lies on the host at the path of a container's program: a tracer that reads
 * the host's file instead of the container's shows these names.
 *
 * flags: -rdynamic
 */
#include <unistd.h>

int decoy_processCommand(int depth);
int setCommand(int depth);

__attribute__((noinline)) int setCommand(int depth)
{
	return depth + getpid();
}

__attribute__((noinline)) int decoy_processCommand(int depth)
{
	return setCommand(depth + 1) + 1;
}

int main(void)
{
	return decoy_processCommand(0) == 0;
}
