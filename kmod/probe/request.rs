// SPDX-License-Identifier: GPL-2.0-only
//! Validates requests for probes, and says what is wrong with them.

use crate::{
    common::{
        abi::{
            Probe as ProbeRequest,
            Refusal,
            FRAMES_MAX,
            PROBE_AT_ENTRY,
            PROBE_BEGIN,
            PROBE_CALL,
            PROBE_COPIES,
            PROBE_END,
            PROBE_ENTRY,
            PROBE_FREEZES,
            PROBE_GO,
            PROBE_KERNEL_STACK,
            PROBE_LATE,
            PROBE_LEAVE,
            PROBE_LOCKS,
            PROBE_MAY_HANG,
            PROBE_RETURN,
            PROBE_RETURN_ONLY,
            PROBE_SAMPLE,
            PROBE_STACK,
            PROBE_STACK_IDS,
            PROBE_WAIT,
            PROBE_WAKE,
            SAMPLE_HZ_MAX,
            SINK_COUNT,
            SINK_RECORD,
            SINK_SPAN,
            SINK_TABLE, //
        },
        instruction::{is_system_call, popped_by_return, INSTRUCTION_BYTES_MAX},
        program::Summary,
        table::Kind, //
    },
    context::Context,
    probe::{
        program::Program,
        Role,
        Sink, //
    },
    sys::{
        eremote,
        inode::{PinnedInode, ReadableFile, Unusable},
        task::{is_capable, may_modify, CAP_SYSLOG},
        uprobe::Ends, //
    },
    table::Table, //
};
use kernel::{
    alloc::AllocError,
    prelude::*,
    sync::Arc, //
};

/// Bytes of a USDT semaphore, which is a `u16`.
const SEMAPHORE_BYTES: u64 = 2;

/// An error, and the reason.
pub(crate) struct Refused(pub(crate) Error, pub(crate) Refusal);

impl Refused {
    /// Whether the place of the probe is what is wrong.
    pub(crate) fn is_of_place(&self) -> bool {
        matches!(
            self.1,
            Refusal::OutsideFile
                | Refusal::Kernel
                | Refusal::BadSemaphore
                | Refusal::SemaphoreConflict
                | Refusal::SystemCall
                | Refusal::NeedsAnswer
        )
    }

    /// Says in `requests`, those of one call, that they are refused.
    pub(crate) fn tell(&self, requests: &mut [ProbeRequest]) {
        for request in requests {
            request.id = 0;
            request.refused = self.1 as u32;
            request.error = self.0.to_errno().unsigned_abs();
        }
    }
}

/// Whether two requests that follow each other are of one call.
pub(crate) fn is_one_call(one: &ProbeRequest, next: &ProbeRequest) -> bool {
    one.call != 0 && one.call == next.call
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let reason = if error == ENOMEM {
            Refusal::NoMemory
        } else {
            Refusal::None
        };
        Refused(error, reason)
    }
}

impl From<AllocError> for Refused {
    fn from(_: AllocError) -> Self {
        Refused(ENOMEM, Refusal::NoMemory)
    }
}

impl From<Unusable> for Refused {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::BadFd => Refused(EBADF, Refusal::BadFd),
            Unusable::NotRegular => Refused(EINVAL, Refusal::NotRegular),
        }
    }
}

/// Whether the program of one end of a probe (or none) fits the probe's sink and spans. `delivers`
/// says whether hits of that end reach the sink.
pub(crate) fn program_fits(
    program: Option<Summary>,
    sink: &Sink,
    spans: Option<&Table>,
    delivers: bool,
    request: &ProbeRequest,
) -> bool {
    let summary = program.unwrap_or_default();
    let ends_well = match (summary.ends_span, spans.map(Table::shape)) {
        (None, _) => true,
        (Some(words), Some(shape)) => {
            shape.kind == Kind::Spans && shape.key_words == words as usize
        }
        (Some(_), None) => false,
    };
    let keys = summary.key_words as usize;
    let sinks_well = match sink {
        Sink::Record | Sink::Count => keys == 0 && !summary.gives_value,
        Sink::Table(_) | Sink::Span(_) if !delivers => true,
        Sink::Table(table) | Sink::Span(table) => {
            let shape = table.shape();
            // By their ids they are kept elsewhere.
            let with_stack = request.flags & (PROBE_STACK | PROBE_STACK_IDS) == PROBE_STACK;
            let frames = match request.max_frames {
                0 => FRAMES_MAX,
                frames => frames,
            };
            shape.key_words == keys
                && with_stack == (shape.max_frames != 0)
                && (!with_stack || frames <= shape.max_frames)
                && summary.fields == 0
        }
    };
    ends_well && sinks_well
}

/// Whether probes of this kind have no place in a file.
pub(crate) fn is_placeless(kind: u32) -> bool {
    matches!(kind, PROBE_SAMPLE | PROBE_WAIT | PROBE_WAKE)
}

/// The ends of calls where a probe of this kind is hit, and its role in a call.
fn kind_of(request: &ProbeRequest) -> Option<(Ends, Role)> {
    Some(match request.kind {
        PROBE_ENTRY => (Ends::Entry, Role::Whole),
        kind if is_placeless(kind) => (Ends::Entry, Role::Whole),
        PROBE_RETURN => (Ends::Return, Role::Whole),
        PROBE_CALL => (Ends::Both, Role::Whole),
        PROBE_BEGIN => (Ends::Entry, Role::Begin),
        PROBE_END => (Ends::Entry, Role::End),
        PROBE_LEAVE => (Ends::Entry, Role::Leave),
        _ => return None,
    })
}

/// Validates a request for a probe by itself.
pub(crate) fn validate(request: &ProbeRequest) -> Result<(Ends, Role), Refused> {
    let finished_later = PROBE_COPIES | PROBE_LATE;
    let of_stacks = finished_later | PROBE_STACK_IDS;
    let of_records = PROBE_STACK_IDS | PROBE_KERNEL_STACK;
    let of_any = PROBE_STACK | PROBE_AT_ENTRY | PROBE_RETURN_ONLY | PROBE_FREEZES | PROBE_MAY_HANG;
    let of_kind = match request.kind {
        PROBE_WAIT => PROBE_LOCKS,
        PROBE_BEGIN | PROBE_END | PROBE_LEAVE => PROBE_GO,
        _ => 0,
    };
    let known_flags = of_any | of_stacks | of_records | of_kind;
    let is_recorded = request.sink == SINK_RECORD;
    let of_records = match (request.kind, request.sink) {
        (kind, SINK_TABLE) if is_placeless(kind) => PROBE_STACK_IDS,
        (_, SINK_SPAN) => PROBE_KERNEL_STACK,
        _ => of_records,
    };
    let unknown = Refused(EINVAL, Refusal::UnknownValue);
    let Some((ends, role)) = kind_of(request) else {
        return Err(unknown);
    };
    let returns = ends != Ends::Entry || role == Role::End;
    let runs_never = !returns && request.return_program != 0
        || (ends == Ends::Return || role == Role::End) && request.entry_program != 0;
    let goes_nowhere = matches!(role, Role::Begin | Role::Leave);
    if runs_never
        || request.flags & !known_flags != 0
        || request.flags & PROBE_RETURN_ONLY != 0 && ends != Ends::Both
        || (request.call == 0) != (role == Role::Whole)
        || goes_nowhere
            && (request.sink != SINK_COUNT || request.flags & (PROBE_STACK | PROBE_FREEZES) != 0)
        || request.flags & of_stacks != 0 && request.flags & PROBE_STACK == 0
        || request.flags & of_records != 0 && !is_recorded
        || request.flags & finished_later != 0 && !is_recorded && request.sink != SINK_TABLE
        || request.max_frames > FRAMES_MAX
        || request.report_offset > request.offset && !matches!(role, Role::End | Role::Leave)
    {
        return Err(unknown);
    }
    if request.flags & PROBE_KERNEL_STACK != 0 && !is_capable(CAP_SYSLOG) {
        return Err(Refused(EPERM, Refusal::MayNotSeeKernel));
    }
    Ok((ends, role))
}

/// Validates a request for samples or waits by itself, beyond the checks for all requests.
pub(crate) fn validate_placeless(request: &ProbeRequest) -> Result<(), Refused> {
    let has_place = request.fd != -1 || request.report_offset != 0 || request.semaphore != 0;
    let has_limits = request.every != 0 || request.rate != 0 || request.runaway != 0;
    if has_place
        || has_limits
        || request.flags & (PROBE_AT_ENTRY | PROBE_FREEZES | PROBE_MAY_HANG) != 0
        || request.sink == SINK_SPAN
        || request.span != 0
    {
        return Err(Refused(EINVAL, Refusal::UnknownValue));
    }
    match request.offset {
        _ if matches!(request.kind, PROBE_WAIT | PROBE_WAKE) => Ok(()),
        1..=SAMPLE_HZ_MAX => Ok(()),
        _ => Err(Refused(EINVAL, Refusal::BadFrequency)),
    }
}

/// Validates the offsets of a probe in a file of `file_bytes`.
pub(crate) fn validate_offsets(request: &ProbeRequest, file_bytes: u64) -> Result<(), Refused> {
    if request.offset >= file_bytes {
        return Err(Refused(ENOEXEC, Refusal::OutsideFile));
    }
    let semaphore = request.semaphore;
    let inside = semaphore
        .checked_add(SEMAPHORE_BYTES)
        .is_some_and(|end| end <= file_bytes);
    let apart = semaphore.abs_diff(request.offset) >= INSTRUCTION_BYTES_MAX as u64;
    let aligned = semaphore % SEMAPHORE_BYTES == 0;
    if semaphore != 0 && !(inside && apart && aligned) {
        return Err(Refused(EINVAL, Refusal::BadSemaphore));
    }
    Ok(())
}

/// Checks that the file can carry breakpoints, and that putting them in waits for the kernel alone:
/// no process of the machine can fork meanwhile. Reads nothing of the file.
pub(crate) fn validate_file_system(
    request: &ProbeRequest,
    inode: &PinnedInode,
) -> Result<(), Refused> {
    if !inode.has_pages() {
        return Err(Refused(EIO, Refusal::Kernel));
    }
    if request.flags & PROBE_MAY_HANG == 0 && !inode.kernel_answers() {
        return Err(Refused(eremote(), Refusal::NeedsAnswer));
    }
    Ok(())
}

/// Checks that the kernel can step over the instruction at a file offset: the kernel checks that as
/// well, but wrongly (see [`is_system_call`]). For a return, gives the bytes that it takes off the
/// stack.
pub(crate) fn validate_instruction(
    file: &ReadableFile,
    offset: u64,
) -> Result<Option<u64>, Refused> {
    let mut bytes = [0; INSTRUCTION_BYTES_MAX];
    let read = file.read(offset, &mut bytes);
    match bytes.get(..read) {
        // The offset is inside the file: a file system that returns no bytes carries no probes.
        None | Some([]) => Err(Refused(EIO, Refusal::Kernel)),
        Some(bytes) if is_system_call(bytes) => Err(Refused(ENOEXEC, Refusal::SystemCall)),
        Some(bytes) => Ok(popped_by_return(bytes)),
    }
}

/// Checks that the programs of entry and return may make their writes.
pub(crate) fn validate_writes(
    context: &Context,
    request: &ProbeRequest,
    programs: [&Option<Arc<Program>>; 2],
) -> Result<(), Refused> {
    let [entry, at_return] =
        programs.map(|program| program.as_ref().map(|p| p.summary()).unwrap_or_default());
    if !entry.writes && !at_return.writes {
        return match request.max_writes {
            0 => Ok(()),
            _ => Err(Refused(EINVAL, Refusal::UnknownValue)),
        };
    }
    // Of the session once, of its caller and the kernel again.
    let may = context.may_modify.as_ref().is_some_and(|may| *may) && may_modify().is_ok();
    if !may {
        return Err(Refused(EPERM, Refusal::MayNotWrite));
    }
    let is_at_entry = request.flags & PROBE_AT_ENTRY != 0;
    if request.kind == PROBE_LEAVE || is_placeless(request.kind) {
        return Err(Refused(EINVAL, Refusal::Mismatch));
    }
    if at_return.returns || entry.returns && !is_at_entry {
        return Err(Refused(EINVAL, Refusal::NotAtEntry));
    }
    if request.max_writes == 0 {
        return Err(Refused(EINVAL, Refusal::NoWriteLimit));
    }
    Ok(())
}

/// Translates an error of `uprobe_register`.
pub(crate) fn refused_by_kernel(error: Error) -> Refused {
    if error == ENOMEM {
        Refused(error, Refusal::NoMemory)
    } else if error == EINVAL {
        // The other causes of this error were checked before, or are those of a process.
        Refused(error, Refusal::SemaphoreConflict)
    } else if error == ENOTSUPP {
        // An error number that user space does not know, for instructions such as `int3`.
        Refused(ENOEXEC, Refusal::Kernel)
    } else {
        Refused(error, Refusal::Kernel)
    }
}
