// SPDX-License-Identifier: GPL-2.0-only

#include <asm/fsgsbase.h>
#include <asm/prctl.h>
#include <linux/ptrace.h>
#include <linux/sched.h>

bool nsprobe_in_user(struct pt_regs *regs)
{
	return user_mode(regs);
}

bool nsprobe_user_64bit(struct pt_regs *regs)
{
	return user_64bit_mode(regs);
}

struct pt_regs *nsprobe_user_regs(void)
{
	return task_pt_regs(current);
}

u64 nsprobe_thread_pointer(void)
{
	return x86_fsbase_read_cpu();
}

bool nsprobe_is_32bit_call(void)
{
	return current_thread_info()->status & TS_COMPAT;
}

static bool has_shadow_stack(void)
{
#ifdef CONFIG_X86_USER_SHADOW_STACK
	return current->thread.features & ARCH_SHSTK_SHSTK;
#else
	return false;
#endif
}

bool nsprobe_returns_plainly(struct pt_regs *regs)
{
	return user_64bit_mode(regs) && !(regs->flags & X86_EFLAGS_TF) &&
	       !has_shadow_stack();
}
