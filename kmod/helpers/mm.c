// SPDX-License-Identifier: GPL-2.0-only

#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/userfaultfd_k.h>
#include <asm/mmu_context.h>

struct task_struct *nsprobe_mm_owner(struct mm_struct *mm)
{
	return rcu_dereference(mm->owner);
}

bool nsprobe_is_64bit_mm(struct mm_struct *mm)
{
	return is_64bit_mm(mm);
}

bool nsprobe_is_private_memory(struct vm_area_struct *vma)
{
	return vma_is_anonymous(vma) && !userfaultfd_armed(vma);
}

bool nsprobe_is_of_memory_or_disk(struct vm_area_struct *vma)
{
	struct inode *inode;

	if (userfaultfd_armed(vma) || vma->vm_flags & (VM_IO | VM_PFNMAP | VM_MIXEDMAP))
		return false;
	if (!vma->vm_file)
		return vma_is_anonymous(vma);
	inode = file_inode(vma->vm_file);
	return S_ISREG(inode->i_mode) && nsprobe_kernel_answers(inode->i_sb);
}

const void *nsprobe_vdso(struct mm_struct *mm, unsigned long *start)
{
	*start = (unsigned long)mm->context.vdso;
	return mm->context.vdso_image;
}
