// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -O2 -Wall -Wextra -pthread
//
// Makes each sample of it as dear as it can: it has mapped 128 files that are all notes without a
// content, in 4,096 mappings of code, and changes the files all the time. It spends its time in
// the kernel, called by code in the first of them, which no unwind row describes.
#define _GNU_SOURCE
#include "orders.h"

#include <elf.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U
#endif

#define PAGE 4096
#define FILES 128
#define MAPPINGS 4096
#define NOTES (64 << 10)
#define CODE 0x800

/* xor %eax,%eax; 1: syscall; xor %eax,%eax; jmp 1b: reads for ever. */
static const unsigned char code[] = { 0x31, 0xc0, 0x0f, 0x05, 0x31, 0xc0, 0xeb, 0xfa };
static int files[FILES];
static char head[PAGE], room[256 << 10];

static void *map_file(int file)
{
	volatile char *at;

	if (write(file, head, PAGE) != PAGE || ftruncate(file, PAGE + NOTES))
		err(1, "write");
	at = mmap(NULL, PAGE + NOTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	if (at == MAP_FAILED)
		err(1, "mmap");
	for (int i = 0; i < PAGE + NOTES; i += PAGE)
		(void)at[i];
	return (void *)at;
}

static void *change(void *unused)
{
	(void)unused;
	for (unsigned int mode = 0;; mode++) {
		for (int i = 0; i < FILES; i++)
			fchmod(files[i], 0700 | (mode & 1));
		usleep(1000);
	}
	return NULL;
}

int main(void)
{
	Elf64_Ehdr ehdr = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			    .e_type = ET_DYN, .e_machine = EM_X86_64, .e_phoff = sizeof(ehdr),
			    .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1 };
	Elf64_Phdr notes = { .p_type = PT_NOTE, .p_offset = PAGE, .p_filesz = NOTES };
	int zero = open("/dev/zero", O_RDONLY);
	void *first = NULL;
	pthread_t thread;

	memcpy(head, &ehdr, sizeof(ehdr));
	memcpy(head + sizeof(ehdr), &notes, sizeof(notes));
	memcpy(head + CODE, code, sizeof(code));
	for (int i = 0; i < FILES; i++) {
		files[i] = memfd_create("notes", MFD_EXEC);
		if (files[i] < 0)
			err(1, "memfd_create");
		void *at = map_file(files[i]);
		first = first ? first : at;
	}
	for (int i = 0; i < MAPPINGS; i++) {
		int access = i % 2 ? PROT_READ : PROT_READ | PROT_EXEC;
		if (mmap(NULL, PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			err(1, "mmap");
	}
	if (pthread_create(&thread, NULL, change, NULL))
		err(1, "pthread_create");
	say_ready();
	((void (*)(int, char *, size_t))((char *)first + CODE))(zero, room, sizeof(room));
}
