/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A process with many libraries. */
#ifndef NSPROBE_LIBRARIES_H
#define NSPROBE_LIBRARIES_H

/* Maps Debian's libraries until there are so many; how many there are in the end. */
int map_libraries(int wanted);

#endif
