// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra
//
// The example reader, built among the victims so that a test can run it.
#include "../../examples/reader.c"
