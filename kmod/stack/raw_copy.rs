// SPDX-License-Identifier: GPL-2.0-only
//! Raw copies of stacks that go through files without unwind rows: the reader continues the walk.
//!
//! A file's rows come from user space, so the first stack through a file that no process had mapped
//! before finds none. Then a record with the registers, the mapped code, and the stack's memory up
//! to a bound precedes the hit's record: user space needs no more to continue with the same rows
//! later. A copy costs thousands of instructions, so there is a budget of bytes per second.

use crate::{
    common::{
        abi::{CODE_MAPPINGS_MAX, COPY_BYTES_PER_SECOND, STACK_COPY_WORDS_MAX},
        limit::Bucket,
        record::{CodeMapping, StackCopy, COPY_BEHIND_CALL, COPY_MAPPINGS_CUT, COPY_WITHOUT_RBP},
        unwind::{At, Registers}, //
    },
    object::{Identified, NoteBudget, Objects},
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

/// Kilobytes that a session copies per second, and in one burst.
const BUDGET: u32 = COPY_BYTES_PER_SECOND >> 10;

/// A buffer for one copy on each CPU, and the budget.
pub(crate) struct RawStacks {
    buffers: KVVec<ScratchBuffer>,
    budget: TokenBucket,
}

/// The task to copy, and the records to copy it for.
pub(crate) struct CopyRequest<'a> {
    pub(crate) at: Registers,
    pub(crate) objects: &'a Objects,
    pub(crate) pid: &'a dyn Fn() -> u32,
    pub(crate) announce: &'a dyn Fn(u32),
    pub(crate) notes: NoteBudget,
    pub(crate) head: StackCopy,
}

impl RawStacks {
    /// Makes empty buffers and a full budget.
    pub(crate) fn new() -> Result<Self> {
        let words = MAPPINGS_WORDS.wrapping_add(STACK_COPY_WORDS_MAX);
        Ok(RawStacks {
            buffers: memory::made_for_each_cpu(|| ScratchBuffer::new(words))?,
            budget: TokenBucket::new(Bucket::new(BUDGET, BUDGET).ok_or(EINVAL)?),
        })
    }

    /// Copies the current task's stack and passes the record's parts to `put`; returns false if
    /// nothing could be copied. Runs in a handler.
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
        // The size of the copy was not known before. Each mapping that was looked at costs as much
        // as one that was copied.
        let looked_words = code.looks.wrapping_mul(MAPPING_WORDS);
        self.budget
            .owe((looked_words.wrapping_add(stack_words) >> 7) as u32);
        let mappings = mappings.get(..mapping_words);
        put(&[
            crate::common::record::body_of(head),
            mappings.unwrap_or(&[]),
            stack.get(..stack_words).unwrap_or(&[]),
            &[],
        ])
    }
}

/// The mapped code, as it was written.
#[derive(Default)]
struct Code {
    count: usize,
    /// Whether some mappings did not fit.
    is_cut: bool,
    /// Mappings of the process that were looked at.
    looks: usize,
}

/// Writes which code is mapped: mappings of files before others, as code without a file may be in
/// hundreds of mappings.
fn code(out: &mut [u64], request: &CopyRequest<'_>) -> Code {
    let room = out.len() / MAPPING_WORDS;
    let mut code = Code::default();
    // From the front, and from the end.
    let (mut files, mut others) = (0usize, 0usize);
    let (looks, is_whole) = each_code(|mapping| {
        let is_file = mapping.key().is_some();
        if files.wrapping_add(others) == room {
            code.is_cut = true;
            match (is_file, others.checked_sub(1)) {
                (true, Some(less)) => others = less,
                (true, None) => return false,
                (false, _) => return true,
            }
        }
        let place = match is_file {
            true => files,
            false => room.wrapping_sub(others).wrapping_sub(1),
        };
        let told = told(&mapping, request);
        let words: &[u64; MAPPING_WORDS] = transmute_ref!(&told);
        let place = out.chunks_exact_mut(MAPPING_WORDS).nth(place);
        for (to, from) in place.unwrap_or(&mut []).iter_mut().zip(words) {
            *to = *from;
        }
        match is_file {
            true => files = files.wrapping_add(1),
            false => others = others.wrapping_add(1),
        }
        true
    });
    for number in 0..others.wrapping_mul(MAPPING_WORDS) {
        let from = room.wrapping_sub(others).wrapping_mul(MAPPING_WORDS);
        let word = out.get(from.wrapping_add(number)).copied().unwrap_or(0);
        if let Some(to) = out.get_mut(files.wrapping_mul(MAPPING_WORDS).wrapping_add(number)) {
            *to = word;
        }
    }
    code.count = files.wrapping_add(others);
    code.is_cut |= !is_whole;
    code.looks = looks;
    code
}

/// A mapping with its object, which is announced if it is new.
fn told(mapping: &Mapping<'_>, request: &CopyRequest<'_>) -> CodeMapping {
    let (object, unmapped) = match request
        .objects
        .identify(mapping, &request.pid, &request.notes)
    {
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

/// Copies memory from `rsp` up, as far as it is present; returns the number of words. Restores
/// return addresses that another tracer has replaced.
fn memory(out: &mut [u64], rsp: u64) -> usize {
    let mut count = 0usize;
    while count < out.len() {
        let address = rsp.wrapping_add((count as u64).wrapping_mul(8));
        // A page is present or not; a word that crosses into the next page ends the copy.
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
