// SPDX-License-Identifier: MIT OR Apache-2.0
// flags: -fno-optimize-sibling-calls -pthread
//
// Functions that are left in all ways there are. Each takes a number and returns the next one,
// when it returns.
//
//   leaves WAY TIMES
//
// WAY is one of those in `ways` below, each with a function `via_WAY`, or `all`. Those that make
// processes do so for every fiftieth call alone. Prints for each "WAY CALLED RETURNED LEFT": how
// many calls began, how many returned, and how many left by a jump to a place that memory tells.
// Fails when a function returns anything else.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdexcept>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define FUNCTION extern "C" __attribute__((noipa)) long

struct Calls {
	long began, returned, left;
};

static volatile long sum;
static std::jmp_buf back;
static void (*middle)();

static long check(long got, long wanted)
{
	if (got != wanted)
		std::abort();
	return 1;
}

/* Goes on elsewhere, and comes back or does not. */
__attribute__((noipa)) static void in_the_middle(long number)
{
	sum = sum + number;
	if (middle)
		middle();
}

#define ORDINARY(name)                  \
	FUNCTION via_##name(long number) \
	{                                \
		in_the_middle(number);   \
		sum = sum + 1;           \
		return number + 1;       \
	}

ORDINARY(throw)
ORDINARY(jump)
ORDINARY(cancel)
ORDINARY(context)
ORDINARY(switch)
ORDINARY(fibre)
ORDINARY(threads)
ORDINARY(exec)
ORDINARY(exit)
ORDINARY(vfork)
ORDINARY(clone)

static Calls jumps(long times)
{
	static Calls calls;
	static long i;

	for (i = 0; i < times; i++) {
		middle = i % 2 ? [] { std::longjmp(back, 1); } : (void (*)())nullptr;
		calls.began++;
		if (setjmp(back) == 0)
			calls.returned += check(via_jump(i), i + 1);
	}
	return calls;
}

static void *cancelled(void *number)
{
	long i = reinterpret_cast<long>(number);

	if (i % 2)
		pthread_cancel(pthread_self());
	check(via_cancel(i), i + 1);
	return number;
}

static Calls cancels(long times)
{
	Calls calls = {};

	middle = [] { pthread_testcancel(); };
	for (long i = 0; i < times; i++) {
		pthread_t thread;
		void *result;

		if (pthread_create(&thread, nullptr, cancelled, reinterpret_cast<void *>(i)))
			std::abort();
		pthread_join(thread, &result);
		calls.began++;
		calls.returned += result != PTHREAD_CANCELED;
	}
	return calls;
}

/* Two contexts whose calls end in another order than they began. */
static ucontext_t at_home, contexts[2];
static int running;
static long per_context;

static void in_context(int me)
{
	for (long i = 0; i < per_context; i++)
		check(via_context(me * per_context + i), me * per_context + i + 1);
}

static Calls in_contexts(long times)
{
	static char stacks[2][1 << 16];

	per_context = times / 2;
	middle = [] { swapcontext(&contexts[running], &at_home); };
	for (int i = 0; i < 2; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack.ss_sp = stacks[i];
		contexts[i].uc_stack.ss_size = sizeof(stacks[i]);
		contexts[i].uc_link = &at_home;
		makecontext(&contexts[i], reinterpret_cast<void (*)()>(in_context), 1, i);
	}
	for (long i = 0; i <= per_context; i++)
		for (running = 0; running < 2; running++)
			swapcontext(&at_home, &contexts[running]);
	return { 2 * per_context, 2 * per_context, 0 };
}

/* A switch of stacks by hand: to(%rsi) is where the other one goes on. */
extern "C" void switch_stack(void **from, void *to);
asm(".text\n"
    ".type switch_stack, @function\n"
    "switch_stack:\n"
    "	push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    "	mov %rsp, (%rdi)\n"
    "	mov %rsi, %rsp\n"
    "	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
    "	ret\n"
    ".size switch_stack, . - switch_stack\n");

static void *home_stack, *other_stack;
static long other_times;

static void away()
{
	switch_stack(&other_stack, home_stack);
}

static void on_other_stack()
{
	for (long i = 0; i < other_times; i++)
		check(via_switch(2 * i + 1), 2 * i + 2);
	for (;;)
		away();
}

/* A stack on which `begin` is to run. */
static void *new_stack(char *memory, size_t bytes, void (*begin)())
{
	void **top = reinterpret_cast<void **>(memory + bytes) - 2;

	*top = reinterpret_cast<void *>(begin);
	return top - 6;
}

static Calls switches(long times)
{
	static char stack[1 << 16] __attribute__((aligned(16)));

	other_times = times / 2;
	other_stack = new_stack(stack, sizeof(stack), on_other_stack);
	for (long i = 0; i < other_times; i++) {
		/* Those of the other stack stop in their middle, and these do not. */
		middle = away;
		switch_stack(&home_stack, other_stack);
		middle = nullptr;
		check(via_switch(2 * i), 2 * i + 1);
	}
	middle = away;
	switch_stack(&home_stack, other_stack);
	return { 2 * other_times, 2 * other_times, 0 };
}

/* A fibre whose calls begin in one thread and return in another. */
static void on_fibre()
{
	for (long i = 0; i < other_times; i++)
		check(via_fibre(i), i + 1);
	for (;;)
		away();
}

static sem_t turns[2];

static void *in_turn(void *number)
{
	long me = reinterpret_cast<long>(number);

	for (long i = me; i <= other_times; i += 2) {
		sem_wait(&turns[me]);
		switch_stack(&home_stack, other_stack);
		sem_post(&turns[!me]);
	}
	return nullptr;
}

static Calls fibres(long times)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pthread_t thread;

	other_times = times;
	middle = away;
	other_stack = new_stack(stack, sizeof(stack), on_fibre);
	sem_init(&turns[0], 0, 1);
	sem_init(&turns[1], 0, 0);
	if (pthread_create(&thread, nullptr, in_turn, reinterpret_cast<void *>(1)))
		std::abort();
	in_turn(nullptr);
	pthread_join(thread, nullptr);
	return { times, times, 0 };
}

/* What others leave to, and more of others call. */
FUNCTION callee(long number)
{
	sum = sum + number;
	return number + 1;
}

/* Every second call is left by an exception, and its place taken by one of another function that
 * it would have gone on in. */
extern "C" __attribute__((noipa, optimize("optimize-sibling-calls"))) long via_stale(long number)
{
	in_the_middle(number);
	return callee(number);
}

static Calls thrown(long (*function)(long), long times)
{
	Calls calls = {};

	for (long i = 0; i < times; i++) {
		middle = i % 2 ? [] { throw std::runtime_error("on purpose"); } : (void (*)())nullptr;
		calls.began++;
		try {
			calls.returned += check(function(i), i + 1);
		} catch (const std::runtime_error &) {
		}
		check(callee(i), i + 1);
	}
	return calls;
}

/* Every second call is left by an exception; the next one comes to its place. */
static Calls throws(long times)
{
	return thrown(via_throw, times);
}

static Calls stale(long times)
{
	return thrown(via_stale, times);
}

extern "C" long via_tail(long), via_tail_if(long), via_tail_twice(long), via_table(long);
extern "C" long (*const table[2])(long) = { callee, callee };
asm(".text\n"
    ".macro function name\n"
    "	.globl \\name\n"
    "	.type \\name, @function\n"
    "\\name:\n"
    "	.cfi_startproc\n"
    ".endm\n"
    ".macro end name\n"
    "	.cfi_endproc\n"
    "	.size \\name, . - \\name\n"
    ".endm\n"
    "function via_tail; jmp callee; end via_tail\n"
    "function via_tail_if\n"
    "	test $1, %dil; jne callee; lea 1(%rdi), %rax; ret\n"
    "end via_tail_if\n"
    "function one_more; nop; jmp callee; end one_more\n"
    "function via_tail_twice; nop; jmp one_more; end via_tail_twice\n"
    "function via_table\n"
    "	mov %rdi, %rax; and $1, %eax; je 1f; lea table(%rip), %rdx; jmp *(%rdx,%rax,8)\n"
    "1:	lea 1(%rdi), %rax; ret\n"
    "end via_table\n"
    /* On each condition there is, to where nobody can follow. */
    ".altmacro\n"
    ".macro on_flags number condition\n"
    "	function via_flags_\\number\n"
    "	cmp $500, %edi; \\condition far; lea 1(%rdi), %rax; ret\n"
    "	end via_flags_\\number\n"
    ".endm\n"
    "function far; jmp *far_callee_at(%rip); end far\n"
    "on_flags 0 jo; on_flags 1 jno; on_flags 2 jb; on_flags 3 jae\n"
    "on_flags 4 je; on_flags 5 jne; on_flags 6 jbe; on_flags 7 ja\n"
    "on_flags 8 js; on_flags 9 jns; on_flags 10 jp; on_flags 11 jnp\n"
    "on_flags 12 jl; on_flags 13 jge; on_flags 14 jle; on_flags 15 jg\n"
    ".noaltmacro\n");

static long far_calls;

FUNCTION far_callee(long number)
{
	far_calls++;
	return number + 1;
}

extern "C" long (*const far_callee_at)(long) = far_callee;

#define ON_FLAGS(number) extern "C" long via_flags_##number(long);
#define EACH(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) what(8) \
	what(9) what(10) what(11) what(12) what(13) what(14) what(15)
EACH(ON_FLAGS)

/* All but the last are of either sign, and overflow or not. */
static Calls flags(long times)
{
#define ADDRESS(number) via_flags_##number,
	static long (*const all[])(long) = { EACH(ADDRESS) };
	Calls calls = {};

	far_calls = 0;
	for (auto function : all)
		for (long i = 0; i < times / 16; i++, calls.began++) {
			long number = i % 8 == 7 ? 500 : static_cast<unsigned>(i * 0x0fedcba9);
			check(function(number), number + 1);
		}
	calls.left = far_calls;
	calls.returned = calls.began - calls.left;
	return calls;
}

static Calls times_of(long (*function)(long), long times)
{
	for (long i = 0; i < times; i++) {
		check(function(i), i + 1);
		check(callee(i), i + 1);
	}
	return { times, times, 0 };
}

static Calls tails(long times)
{
	return times_of(via_tail, times);
}

static Calls tails_if(long times)
{
	return times_of(via_tail_if, times);
}

static Calls tails_twice(long times)
{
	return times_of(via_tail_twice, times);
}

static Calls tables(long times)
{
	times_of(via_table, times);
	return { times, times / 2, times / 2 };
}

FUNCTION via_deep(long depth)
{
	if (depth % 100 == 0)
		return depth + 1;
	check(via_deep(depth - 1), depth);
	return depth + 1;
}

static Calls deep(long times)
{
	for (long i = 0; i < times; i += 100)
		check(via_deep(i + 99), i + 100);
	return { times, times, 0 };
}

static void wait_for(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		std::abort();
}

/* Many calls of a function at a time. */
#define DEEP(name)                                     \
	FUNCTION name(long depth)                      \
	{                                              \
		if (depth == 0)                        \
			in_the_middle(depth);          \
		else                                   \
			check(name(depth - 1), depth); \
		return depth + 1;                      \
	}

/* Calls go on while processes end with more calls under way, in all, than are followed. */
DEEP(via_churn)

static Calls churn(long times)
{
	static long children;

	children = times / 6;
	middle = [] {
		middle = [] { _exit(0); };
		for (long i = 0; i < children; i++) {
			pid_t child = fork();
			if (child == 0)
				via_churn(199);
			wait_for(child);
		}
	};
	check(via_churn(299), 300);
	return { 300 + 200 * children, 300, 0 };
}

/* More calls than are followed are left by longjmp, and others come after them. */
DEEP(via_flood_left)

ORDINARY(flood)

static Calls flood(long times)
{
	middle = [] { std::longjmp(back, 1); };
	if (setjmp(back) == 0)
		via_flood_left(20 * times);
	middle = nullptr;
	for (long i = 0; i < times; i++)
		check(via_flood(i), i + 1);
	return { 21 * times + 1, times, 0 };
}

static void *in_thread(void *)
{
	for (long i = 0; i < other_times; i++)
		check(via_threads(i), i + 1);
	return nullptr;
}

static Calls in_threads(long times)
{
	pthread_t all[4];

	middle = nullptr;
	other_times = times / 4;
	for (pthread_t &thread : all)
		if (pthread_create(&thread, nullptr, in_thread, nullptr))
			std::abort();
	for (pthread_t &thread : all)
		pthread_join(thread, nullptr);
	return { 4 * other_times, 4 * other_times, 0 };
}

static int in_clone(void *)
{
	for (long i = 0; i < other_times; i++)
		check(via_clone(i), i + 1);
	return 0;
}

/* Two processes in one memory, each with a call at a time. */
static Calls clones(long times)
{
	static char stack[1 << 16] __attribute__((aligned(16)));

	middle = nullptr;
	other_times = times / 2;
	pid_t child = clone(in_clone, stack + sizeof(stack), CLONE_VM | SIGCHLD, nullptr);
	in_clone(nullptr);
	wait_for(child);
	return { 2 * other_times, 2 * other_times, 0 };
}

/* The program that is executed calls it again, and returns. */
static Calls execs(long times)
{
	Calls calls = {};

	middle = [] { execl("/proc/self/exe", "leaves", "once", "1", nullptr); };
	for (long i = 0; i < times; i += 50, calls.began += 2, calls.returned++) {
		pid_t child = fork();
		if (child == 0) {
			via_exec(7);
			_exit(1);
		}
		wait_for(child);
	}
	return calls;
}

static Calls once(long)
{
	middle = nullptr;
	check(via_exec(8), 9);
	_exit(0);
}

static Calls exits(long times)
{
	Calls calls = {};

	middle = [] { _exit(0); };
	for (long i = 0; i < times; i += 50, calls.began++) {
		pid_t child = fork();
		if (child == 0) {
			via_exit(i);
			_exit(1);
		}
		wait_for(child);
	}
	return calls;
}

static Calls vforks(long times)
{
	Calls calls = {};

	middle = nullptr;
	for (static long i; i < times; i += 50, calls.began++, calls.returned++) {
		pid_t child = vfork();
		if (child == 0)
			_exit(via_vfork(i) != i + 1);
		wait_for(child);
	}
	return calls;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		Calls (*run)(long times);
	} ways[] = {
		{ "throw", throws }, { "jump", jumps }, { "cancel", cancels },
		{ "context", in_contexts }, { "switch", switches }, { "fibre", fibres },
		{ "stale", stale }, { "tail", tails }, { "tail_if", tails_if }, { "tail_twice", tails_twice },
		{ "table", tables }, { "flags", flags }, { "deep", deep }, { "threads", in_threads },
		{ "clone", clones }, { "exec", execs }, { "exit", exits }, { "vfork", vforks },
		{ "churn", churn }, { "flood", flood },
	};
	int done = 0;

	if (argc == 3 && !std::strcmp(argv[1], "once"))
		once(1);
	for (auto &way : ways) {
		if (argc != 3 || (std::strcmp(argv[1], "all") && std::strcmp(argv[1], way.name)))
			continue;
		Calls calls = way.run(std::atol(argv[2]));
		std::printf("%s %ld %ld %ld\n", way.name, calls.began, calls.returned, calls.left);
		std::fflush(stdout);
		done++;
	}
	if (done == 0)
		std::fprintf(stderr, "usage: leaves WAY|all TIMES\n");
	return done == 0 ? 2 : 0;
}
