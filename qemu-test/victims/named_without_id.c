// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -static -Wl,--build-id=none
//
// The same without a build-id.
#include "named.c"
