// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -static -gdwarf-4 -gsplit-dwarf
//
// The same with its debug information in a .dwo file, which lies beside this program. Version
// 4, as binutils' dwp leaves units of version 5 out of its packages.
#include "named.c"
