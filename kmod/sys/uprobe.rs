// SPDX-License-Identifier: GPL-2.0-only
//! Uprobe consumers that are unregistered before they are freed.
//!
//! A consumer is called in the traced task, with interrupts on and inside a
//! tasks-trace read section. [`batch::Batch`] keeps the rule that every consumer is off
//! its uprobe and a grace period has passed before its memory goes, and pays one
//! grace period for any number of them.

pub(crate) mod batch;
mod failed_spaces;

pub(crate) use super::regs::Regs;
use super::{
    cond_resched,
    inode::PinnedInode,
    memory::GFP_REQUEST,
    on_kworker::Caller,
    task::Mm, //
};
use core::{
    ffi::c_int,
    mem::offset_of,
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering::Relaxed}, //
};
use failed_spaces::FailedSpaces;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// The result of a hit for the process that took it.
#[repr(i32)]
pub(crate) enum Verdict {
    /// Nothing.
    Keep = 0,
    /// This process need not carry the breakpoint, as far as this consumer goes.
    Remove = bindings::UPROBE_HANDLER_REMOVE as i32,
    /// The return of this call is not needed, for [`Ends::Both`].
    Ignore = bindings::UPROBE_HANDLER_IGNORE as i32,
}

/// The ends of a function's calls that a consumer needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Their beginning, or any instruction.
    Entry,
    /// Their return.
    Return,
    /// Both, as one.
    Both,
}

/// What runs when a breakpoint is hit. Neither method may sleep, fault or panic.
pub(crate) trait Hook: Send + Sync + 'static {
    /// The breakpoint was hit by the current task. What is left in `call` comes back
    /// when the function returns, for [`Ends::Both`]; of a consumer that [`returns`](Hook::returns)
    /// it is the return address, or zero.
    fn hit(&self, regs: &Regs<'_>, call: &mut u64) -> Verdict;

    /// Of a consumer on an instruction that returns: the bytes that it takes off the stack.
    fn returns(&self) -> Option<u64>;

    /// The function returned; `call` is what its entry left, for [`Ends::Both`].
    /// `entry` is the address of the breakpoint.
    fn returned(&self, regs: &Regs<'_>, entry: u64, call: Option<u64>);

    /// Whether processes with this address space should carry the breakpoint.
    /// Called under the mm's write lock and uprobe locks.
    fn wants(&self, mm: &Mm) -> bool;

    /// In how many address spaces the kernel could not set the breakpoint, when it last tried.
    fn failed_in(&self, spaces: u32);
}

/// A consumer and what it calls; the kernel holds its address.
#[repr(C)]
struct Consumer<H> {
    raw: Opaque<bindings::uprobe_consumer>,
    hook: H,
    /// Whether its filter admits no address space.
    is_closed: AtomicBool,
    /// A consumer that comes to the uprobe and leaves at once, with the wishes of the hook but for
    /// address spaces that failed.
    visitor: Opaque<bindings::uprobe_consumer>,
    failed: Arc<FailedSpaces>,
}

// SAFETY: The raw consumer belongs to no task; the uprobe core alone uses it, under
// its own locks; the hook is `Send`.
unsafe impl<H: Send> Send for Consumer<H> {}
// SAFETY: Shared references reach the hook, which is `Sync`, and the address of the
// raw consumer.
unsafe impl<H: Sync> Sync for Consumer<H> {}

impl<H> Consumer<H> {
    /// Whether the uprobe has no other consumer, as far as this round of its handlers goes. In
    /// our handler.
    ///
    /// Others are put at the head of the list, which points to them before they are pointed to
    /// from behind: the last comparison sees one that comes while this round begins, and one that
    /// comes later is in no handler of this round.
    fn is_alone(&self) -> bool {
        // SAFETY: We are on the list, whose nodes and head stay until the round is over.
        unsafe {
            let node = &raw const (*self.raw.get()).cons_node;
            let next = (&raw const (*node).next).read_volatile();
            next == (&raw const (*node).prev).read_volatile()
                && (&raw const (*next).next).read_volatile().cast_const() == node
        }
    }
}

/// A uprobe that a consumer of ours keeps alive.
struct Uprobe(NonNull<bindings::uprobe>);

// SAFETY: A uprobe belongs to no task; only its address is kept here.
unsafe impl Send for Uprobe {}
// SAFETY: As above.
unsafe impl Sync for Uprobe {}

/// Where a consumer goes.
#[derive(Clone)]
pub(crate) struct Place {
    /// The file.
    pub(crate) inode: Arc<PinnedInode>,
    /// Offset in it of the instruction.
    pub(crate) offset: u64,
    /// Offset in it of the USDT semaphore, or zero.
    pub(crate) semaphore: u64,
}

/// # Invariants
///
/// `uprobe` is `Some` exactly while `consumer` is on the uprobe's list.
struct Member<H> {
    consumer: KBox<Consumer<H>>,
    uprobe: Option<Uprobe>,
    place: Place,
    /// Why it could not be registered, with `is_partial`.
    refused: Option<Error>,
}

impl<H: Hook> Member<H> {
    /// A consumer that is on no uprobe yet.
    fn new(place: Place, ends: Ends, hook: H, failed: Arc<FailedSpaces>) -> Result<Self> {
        let consumer = Consumer {
            raw: Opaque::new(bindings::uprobe_consumer {
                handler: (ends != Ends::Return).then_some(handler::<H>),
                ret_handler: (ends != Ends::Entry).then_some(ret_handler::<H>),
                filter: Some(filter::<H>),
                ..pin_init::zeroed()
            }),
            hook,
            is_closed: AtomicBool::new(false),
            visitor: Opaque::new(bindings::uprobe_consumer {
                handler: Some(visited),
                filter: Some(visitor_filter::<H>),
                ..pin_init::zeroed()
            }),
            failed,
        };
        Ok(Member {
            consumer: KBox::new(consumer, GFP_REQUEST)?,
            uprobe: None,
            place,
            refused: None,
        })
    }

    /// Puts the consumer on its uprobe, and the breakpoint into every process that the hook
    /// requires; where that fails for a process, into all others. Kernel worker.
    fn register(&mut self, caller: &Caller<'_>) -> Result {
        if self.consumer.failed.is_empty() {
            match self.register_consumer() {
                // It may be that of a process.
                Err(error) if !is_of_the_place(error) => {}
                result => {
                    self.consumer.hook.failed_in(0);
                    return result;
                }
            }
        }
        // No process is asked, so none can fail: what fails is the place.
        self.consumer.is_closed.store(true, Relaxed);
        let registered = self.register_consumer();
        self.consumer.is_closed.store(false, Relaxed);
        registered?;
        let let_in = self.visit_until_done(caller);
        if let_in.is_err() {
            self.unregister();
        }
        let_in
    }

    /// Has the visitor come and leave, until each process has failed or carries the breakpoint if
    /// the hook requires it. The visitor may be used again, and freed, only after the next
    /// `uprobe_unregister_sync`. Kernel worker.
    fn visit_until_done(&self, caller: &Caller<'_>) -> Result {
        let Consumer { hook, failed, .. } = &*self.consumer;
        let mut untried = 0;
        // Each round but the last one leaves out one more, up to `FAILED_MAX`.
        loop {
            failed.begin_pass();
            let Err(error) = self.visit() else { break };
            let Some(space) = failed.last().filter(|_| !is_of_the_place(error)) else {
                return Err(error);
            };
            if caller.is_killed() {
                return Err(EINTR);
            }
            if !failed.leave_out(space) {
                untried = 1;
                break;
            }
            cond_resched();
        }
        hook.failed_in(failed.skipped().wrapping_add(untried));
        Ok(())
    }

    fn visit(&self) -> Result {
        let visitor = self.consumer.visitor.get();
        // SAFETY: As in `register_consumer`. If that succeeds the visitor is on the list of the
        // uprobe until it is taken off here, and is not used before a grace period has passed.
        unsafe {
            let uprobe = self.register_raw(visitor)?;
            bindings::uprobe_unregister_nosync(uprobe.as_ptr(), visitor);
        }
        Ok(())
    }

    fn register_consumer(&mut self) -> Result {
        // SAFETY: The member holds the consumer's memory until the consumer is off the list and a
        // grace period has passed. On failure `uprobe_register` has unregistered the consumer and
        // waited itself.
        let uprobe = unsafe { self.register_raw(self.consumer.raw.get()) }?;
        // INVARIANT: The consumer is registered now.
        self.uprobe = Some(Uprobe(uprobe));
        Ok(())
    }

    /// # Safety
    ///
    /// The consumer is on no list, and is kept until a grace period after it was unregistered.
    unsafe fn register_raw(
        &self,
        consumer: *mut bindings::uprobe_consumer,
    ) -> Result<NonNull<bindings::uprobe>> {
        let offset = i64::try_from(self.place.offset)?;
        let semaphore = i64::try_from(self.place.semaphore)?;
        let inode = self.place.inode.as_ptr();
        // SAFETY: The member holds the inode; the consumer is as the caller says.
        let uprobe = unsafe { bindings::uprobe_register(inode, offset, semaphore, consumer) };
        NonNull::new(from_err_ptr(uprobe)?).ok_or(EINVAL)
    }

    /// Takes the consumer off its uprobe; says whether it was there. Handlers may run
    /// until the next `uprobe_unregister_sync`. Kernel worker.
    fn unregister(&mut self) -> bool {
        let Some(uprobe) = self.uprobe.take() else {
            return false;
        };
        // SAFETY: By the invariant the consumer was on this uprobe's list.
        // INVARIANT: It is not any more, and `uprobe` is `None`.
        unsafe { bindings::uprobe_unregister_nosync(uprobe.0.as_ptr(), self.consumer.raw.get()) };
        true
    }
}

/// Whether the uprobe core refuses an instruction, or its file: no other process would do.
fn is_of_the_place(error: Error) -> bool {
    error == ENOTSUPP || error == ENOEXEC || error == EIO
}

/// # Safety
///
/// Called by the uprobe core only, with a registered [`Consumer<H>`].
unsafe extern "C" fn handler<H: Hook>(
    consumer: *mut bindings::uprobe_consumer,
    regs: *mut bindings::pt_regs,
    call: *mut u64,
) -> c_int {
    // SAFETY: `raw` is the first field of a `Consumer<H>` (`repr(C)`), which lives
    // until a grace period after it was unregistered; the reference is shared only.
    let consumer = unsafe { &*consumer.cast::<Consumer<H>>() };
    // SAFETY: The uprobe core (`handler_chain`) gives the current task's registers, and does not
    // touch them before this returns; and a word of its own stack.
    let (regs, call) = unsafe { (Regs::from_ptr(NonNull::new_unchecked(regs)), &mut *call) };
    match consumer.hook.returns() {
        Some(popped) => hit_of_return(consumer, regs, popped),
        None => consumer.hook.hit(regs, call) as c_int,
    }
}

/// A hit of an instruction that returns, which may do that here.
#[inline(never)]
fn hit_of_return<H: Hook>(consumer: &Consumer<H>, regs: &Regs<'_>, popped: u64) -> c_int {
    let mut address = 0;
    let verdict = consumer.hook.hit(regs, &mut address);
    if address != 0 && consumer.is_alone() {
        regs.return_at_once(popped, address);
    }
    verdict as c_int
}

/// # Safety
///
/// Called by the uprobe core only, with a registered [`Consumer<H>`].
unsafe extern "C" fn ret_handler<H: Hook>(
    consumer: *mut bindings::uprobe_consumer,
    entry: usize,
    regs: *mut bindings::pt_regs,
    call: *mut u64,
) -> c_int {
    // SAFETY: As in `handler`.
    let consumer = unsafe { &*consumer.cast::<Consumer<H>>() };
    // SAFETY: The uprobe core gives the word that `handler` left, or NULL for a
    // consumer that has no `handler`.
    let call = unsafe { call.as_ref() }.copied();
    if let Some(regs) = NonNull::new(regs) {
        // SAFETY: As in `handler`.
        let regs = unsafe { Regs::from_ptr(regs) };
        consumer.hook.returned(regs, entry as u64, call);
    }
    0
}

/// # Safety
///
/// Called by the uprobe core only, with a registered [`Consumer<H>`] and a valid mm.
unsafe extern "C" fn filter<H: Hook>(
    consumer: *mut bindings::uprobe_consumer,
    mm: *mut bindings::mm_struct,
) -> bool {
    // SAFETY: As in `handler`.
    let consumer = unsafe { &*consumer.cast::<Consumer<H>>() };
    let Some(mm) = NonNull::new(mm) else {
        return false;
    };
    // SAFETY: The uprobe core keeps the mm valid during the call.
    !consumer.is_closed.load(Relaxed) && consumer.hook.wants(&unsafe { Mm::from_ptr(mm) })
}

/// # Safety
///
/// None: a hit is nothing to a visitor.
unsafe extern "C" fn visited(
    _consumer: *mut bindings::uprobe_consumer,
    _regs: *mut bindings::pt_regs,
    _call: *mut u64,
) -> c_int {
    0
}

/// # Safety
///
/// Called by the uprobe core only, with the visitor of a [`Consumer<H>`] and a valid mm.
unsafe extern "C" fn visitor_filter<H: Hook>(
    visitor: *mut bindings::uprobe_consumer,
    mm: *mut bindings::mm_struct,
) -> bool {
    // Without the check for overflow of `container_of!`, which could panic.
    let consumer = visitor.wrapping_byte_sub(offset_of!(Consumer<H>, visitor));
    // SAFETY: That is the `Consumer<H>` around it, which lives until a grace period after the
    // visitor was unregistered.
    let consumer = unsafe { &*consumer.cast::<Consumer<H>>() };
    let Some(mm) = NonNull::new(mm) else {
        return false;
    };
    // SAFETY: The uprobe core keeps the mm valid during the call.
    let mm = unsafe { Mm::from_ptr(mm) };
    consumer.hook.wants(&mm) && consumer.failed.lets_in(&mm)
}
