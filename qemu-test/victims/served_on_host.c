// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -static -Wall -Wextra -fno-omit-frame-pointer -fno-optimize-sibling-calls
//
// What the host has at a path where a container has served.c: the same code
// at the same offsets, other names.
#define real_function decoy_function
#define real_caller decoy_caller
#include "served.c"
