// SPDX-License-Identifier: GPL-2.0-only
//! RawStacks of stacks that go through files without unwind rows, for the reader to finish.
//!
//! A file's rows come from user space, so the first stack through a file that nobody had
//! mapped before finds none. Then the record is preceded by one with the registers, the
//! code that is mapped, and the stack's memory up to a bound: all that is needed to go on
//! with the same rows later. It costs thousands of instructions, so there is a budget of bytes
//! a second.

use crate::{
    common::{
        abi::{CODE_MAPPINGS_MAX, COPY_BYTES_PER_SECOND, STACK_COPY_WORDS_MAX},
        limit::Bucket,
        record::{CodeMapping, StackCopy, COPY_BEHIND_CALL, COPY_MAPPINGS_CUT, COPY_WITHOUT_RBP},
        unwind::{At, Registers}, //
    },
    object::{Identified, Objects},
    probe::limits::TokenBucket,
    sys::{
        memory,
        returns,
        scratch::ScratchBuffer,
        user_mem,
        vma::{each_code, Mapping}, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use zerocopy::{transmute_ref, IntoBytes};

const COPY_WORDS: usize = size_of::<StackCopy>() / 8;
const MAPPING_WORDS: usize = size_of::<CodeMapping>() / 8;
const MAPPINGS_WORDS: usize = MAPPING_WORDS * CODE_MAPPINGS_MAX;

/// Kilobytes that a session copies in a second, and at once.
const BUDGET: u32 = COPY_BYTES_PER_SECOND >> 10;

/// Room for one copy on each CPU, and what may be copied.
pub(crate) struct RawStacks {
    buffers: KVVec<ScratchBuffer>,
    budget: TokenBucket,
}

/// Who is copied, and for whom.
pub(crate) struct CopyRequest<'a> {
    pub(crate) at: Registers,
    pub(crate) objects: &'a Objects,
    pub(crate) pid: &'a dyn Fn() -> u32,
    pub(crate) announce: &'a dyn Fn(u32),
    pub(crate) head: StackCopy,
}

impl RawStacks {
    /// Nothing copied.
    pub(crate) fn new() -> Result<Self> {
        let words = MAPPINGS_WORDS.wrapping_add(STACK_COPY_WORDS_MAX);
        Ok(RawStacks {
            buffers: memory::made_for_each_cpu(|| ScratchBuffer::new(words))?,
            budget: TokenBucket::new(Bucket::new(BUDGET, BUDGET).ok_or(EINVAL)?),
        })
    }

    /// RawStacks the current task's stack, and hands the record's parts to `put`; false
    /// when nothing could be copied. In a handler.
    #[cold]
    pub(crate) fn copy(
        &self,
        cpu: u32,
        request: &CopyRequest<'_>,
        put: impl FnOnce(&[&[u64]; 4]) -> bool,
    ) -> bool {
        let may = || self.budget.take(request.head.time_ns, 1) == Some(true);
        let buffer = self.buffers.get(cpu as usize).and_then(ScratchBuffer::take);
        let Some(mut buffer) = buffer.filter(|_| may()) else {
            return false;
        };
        let Some((mappings, stack)) = buffer.words().split_at_mut_checked(MAPPINGS_WORDS) else {
            return false;
        };
        let code = code(mappings, request);
        let stack_words = memory(stack, request.at.rsp);
        let flags = |is_set, flag| if is_set { flag } else { 0 };
        let head = StackCopy {
            rip: request.at.rip,
            rsp: request.at.rsp,
            rbp: request.at.rbp,
            flags: flags(request.at.at == At::Call, COPY_BEHIND_CALL)
                | flags(!request.at.knows_rbp, COPY_WITHOUT_RBP)
                | flags(code.is_cut, COPY_MAPPINGS_CUT),
            mappings: code.count as u32,
            words: stack_words as u32,
            ..request.head
        };
        let head: &[u64; COPY_WORDS] = transmute_ref!(&head);
        let mapping_words = code.count.wrapping_mul(MAPPING_WORDS);
        // How long it is was not known before.
        self.budget
            .owe((mapping_words.wrapping_add(stack_words) >> 7) as u32);
        let mappings = mappings.get(..mapping_words);
        put(&[
            crate::common::record::body_of(head),
            mappings.unwrap_or(&[]),
            stack.get(..stack_words).unwrap_or(&[]),
            &[],
        ])
    }
}

/// What was told of the code that is mapped.
struct Code {
    count: usize,
    /// There is more.
    is_cut: bool,
}

/// Writes which code is mapped: of files first, as that of none may be in hundreds of
/// mappings.
fn code(out: &mut [u64], request: &CopyRequest<'_>) -> Code {
    let mut count = 0usize;
    let mut is_cut = false;
    for of_files in [true, false] {
        let is_whole = each_code(|mapping| {
            if mapping.key().is_some() != of_files {
                return true;
            }
            let Some(place) = out.chunks_exact_mut(MAPPING_WORDS).nth(count) else {
                is_cut = true;
                return false;
            };
            let told = told(&mapping, request);
            let words: &[u64; MAPPING_WORDS] = transmute_ref!(&told);
            for (to, from) in place.iter_mut().zip(words) {
                *to = *from;
            }
            count = count.wrapping_add(1);
            true
        });
        is_cut |= !is_whole;
    }
    Code { count, is_cut }
}

/// A mapping and its object, which is announced when it is new.
fn told(mapping: &Mapping<'_>, request: &CopyRequest<'_>) -> CodeMapping {
    let (object, unmapped) = match request.objects.identify(mapping, &request.pid) {
        Ok(Identified { id, is_new }) => {
            if is_new {
                (request.announce)(id);
            }
            (id, 0)
        }
        Err(why) => (0, why as u32),
    };
    CodeMapping {
        start: mapping.start(),
        bytes: mapping.end().saturating_sub(mapping.start()),
        delta: mapping.file_offset().wrapping_sub(mapping.start()),
        object,
        unmapped,
    }
}

/// RawStacks memory from `rsp` up, as far as it is there; how many words. Return addresses
/// that some tracer has replaced are put right.
fn memory(out: &mut [u64], rsp: u64) -> usize {
    let mut count = 0usize;
    while count < out.len() {
        let address = rsp.wrapping_add((count as u64).wrapping_mul(8));
        // A page is there or not; a word that lies in two of them is the end of what is copied.
        let in_page = PAGE_SIZE.wrapping_sub(address as usize % PAGE_SIZE) / 8;
        let end = count.saturating_add(in_page).min(out.len());
        let part = out.get_mut(count..end).unwrap_or(&mut []);
        if part.is_empty() || user_mem::read(address, part.as_mut_bytes()).is_err() {
            break;
        }
        count = end;
    }
    returns::each(|slot, real| {
        let index = slot.wrapping_sub(rsp) / 8;
        if let Some(place) = out
            .get_mut(..count)
            .and_then(|out| out.get_mut(index as usize))
        {
            *place = real;
        }
    });
    count
}
