/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The program that is probed: its functions, and what it does with them. */
#ifndef NSPROBE_SUBJECT_H
#define NSPROBE_SUBJECT_H

#include "spent.h"
#include <stdbool.h>
#include <stddef.h>

/* Functions that begin differently, and so cost differently. */
struct subject {
	const char *name;
	void (*function)(long argument);
};
extern const struct subject SUBJECTS[];
#define SUBJECT_COUNT 4

/* Many functions, many_00000 on, for the times of attach and detach. */
#define MANY 10000

/* Calls 'function' from 14 frames down: 16 with its own, linked by frame pointers. */
struct spent call(void (*function)(long), long argument, long calls);
/* One of the many, by its number. */
void (*one_of_many(int number))(long);

/* Remembers the text as it is now, without breakpoints. */
void remember_text(void);
/* How many of SUBJECTS have a breakpoint at their beginning or a little after. */
int armed_subjects(void);
/* How many of the first 'count' of the many have one. */
int armed_many(int count);

/* Where a function stands in this program's file. */
unsigned long file_offset(const void *function);

#endif
