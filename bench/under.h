/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What under.c measures in files of their own; the lines that they print stand there. */
#ifndef NSPROBE_UNDER_H
#define NSPROBE_UNDER_H

#include "spent.h"

/* Calls of a function in parts, with an argument. */
struct spent call_in_parts(void (*function)(long), long argument, long calls);

/* What records cost all processes together until their tool has ended (work.c). */
int work(const char *peer, const char *row, const char *command);
/* What a call costs when threads make it at once (crowd.c). */
int threads(const char *peer, const char *row, int count, const char *command);
/* What a call costs when its probe is one of many (crowd.c). */
int crowd(const char *peer, int count, const char *command);

#endif
