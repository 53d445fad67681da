// SPDX-License-Identifier: GPL-2.0-only
//! Uprobe consumers that are unregistered before they are freed.
//!
//! A consumer is called in the traced task, with interrupts on and inside a
//! tasks-trace read section. [`Batch`] keeps the rule that every consumer is off
//! its uprobe and a grace period has passed before its memory goes, and pays one
//! grace period for any number of them.

pub(crate) use super::regs::Regs;
use super::{
    cond_resched,
    inode::PinnedInode,
    memory::{self, GFP_REQUEST},
    on_kworker::{self, Caller}, //
    task::Mm,
};
use core::{
    ffi::c_int,
    ptr::NonNull, //
};
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
}

/// A consumer and what it calls; the kernel holds its address.
#[repr(C)]
struct Consumer<H> {
    raw: Opaque<bindings::uprobe_consumer>,
    hook: H,
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
}

impl<H: Hook> Member<H> {
    /// Puts the consumer on its uprobe, and the breakpoint into every process that the hook
    /// requires. Kernel worker.
    fn register(&mut self) -> Result {
        let offset = i64::try_from(self.place.offset)?;
        let semaphore = i64::try_from(self.place.semaphore)?;
        let inode = self.place.inode.as_ptr();
        // SAFETY: The member holds the inode and the consumer's memory, and is kept
        // until the consumer is off the list and a grace period has passed. On failure
        // `uprobe_register` has unregistered the consumer and waited itself.
        let uprobe = from_err_ptr(unsafe {
            bindings::uprobe_register(inode, offset, semaphore, self.consumer.raw.get())
        })?;
        // INVARIANT: The consumer is registered now.
        self.uprobe = NonNull::new(uprobe).map(Uprobe);
        Ok(())
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

/// A consumer that comes to a uprobe and leaves at once, with the wishes of a hook.
#[repr(C)]
struct Visitor<'a, H> {
    raw: Opaque<bindings::uprobe_consumer>,
    hook: &'a H,
}

// SAFETY: As for `Consumer`; the hook is shared.
unsafe impl<H: Sync> Send for Visitor<'_, H> {}
// SAFETY: As for `Consumer`.
unsafe impl<H: Sync> Sync for Visitor<'_, H> {}

impl<'a, H: Hook> Visitor<'a, H> {
    fn new(hook: &'a H) -> Self {
        Visitor {
            raw: Opaque::new(bindings::uprobe_consumer {
                handler: Some(visited),
                filter: Some(visitor_filter::<H>),
                ..pin_init::zeroed()
            }),
            hook,
        }
    }
}

impl<H: Hook> Member<H> {
    /// Has `visitor` come and leave. It may be used again, and freed, only after the next
    /// `uprobe_unregister_sync`. Kernel worker.
    fn visit(&self, visitor: &Visitor<'_, H>) -> Result {
        let offset = i64::try_from(self.place.offset)?;
        let semaphore = i64::try_from(self.place.semaphore)?;
        let inode = self.place.inode.as_ptr();
        // SAFETY: The member holds the inode. The caller keeps the visitor where it is until
        // a grace period has passed. It is on the list of the uprobe that
        // `uprobe_register` gives, until it is taken off here.
        unsafe {
            let uprobe = bindings::uprobe_register(inode, offset, semaphore, visitor.raw.get());
            bindings::uprobe_unregister_nosync(from_err_ptr(uprobe)?, visitor.raw.get());
        }
        Ok(())
    }
}

/// Why consumers could not be registered.
pub(crate) struct Failed {
    /// How many of the prepared ones were registered, for a while.
    pub(crate) before: usize,
    /// What the next one met. `EINTR` when the caller was killed.
    pub(crate) error: Error,
}

/// Consumers: first those that are registered, then those that are prepared to be.
/// Dropping it unregisters all of them; that sleeps.
///
/// Registering and unregistering lock out every `fork` of the machine, for one
/// consumer at a time: waiting forks go between two of them (`dup_mmap_sem` of
/// `kernel/events/uprobes.c` hands itself over in order).
pub(crate) struct Batch<H: Hook> {
    members: KVVec<Member<H>>,
    registered: usize,
}

impl<H: Hook> Batch<H> {
    /// No consumers.
    pub(crate) fn new() -> Self {
        Batch {
            members: KVVec::new(),
            registered: 0,
        }
    }

    /// How many are registered.
    pub(crate) fn len(&self) -> usize {
        self.registered
    }

    /// The hook of this number: those that are registered come first, then the prepared ones.
    pub(crate) fn hook(&self, number: usize) -> Option<&H> {
        self.members.get(number).map(|member| &member.consumer.hook)
    }

    /// Makes a consumer for [`register_prepared`](Self::register_prepared).
    pub(crate) fn prepare(&mut self, place: Place, ends: Ends, hook: H) -> Result {
        let consumer = KBox::new(
            Consumer {
                raw: Opaque::new(bindings::uprobe_consumer {
                    handler: (ends != Ends::Return).then_some(handler::<H>),
                    ret_handler: (ends != Ends::Entry).then_some(ret_handler::<H>),
                    filter: Some(filter::<H>),
                    ..pin_init::zeroed()
                }),
                hook,
            },
            GFP_REQUEST,
        )?;
        let member = Member {
            consumer,
            uprobe: None,
            place,
        };
        memory::push(&mut self.members, member)
    }

    /// Gives up what was prepared.
    pub(crate) fn drop_prepared(&mut self) {
        self.members.truncate(self.registered);
    }

    /// Registers what was prepared, all or none. Task context, sleeps.
    pub(crate) fn register_prepared(&mut self) -> Result<(), Failed> {
        let mut result = Ok(());
        on_kworker::run(&mut |caller| {
            result = self.register_here(caller);
            if result.is_err() {
                let first = self.registered;
                self.unregister_here(first, |_| true);
            }
        });
        match result {
            Ok(()) => self.registered = self.members.len(),
            Err(_) => self.drop_prepared(),
        }
        result
    }

    fn register_here(&mut self, caller: &Caller<'_>) -> Result<(), Failed> {
        let prepared = self.members.iter_mut().skip(self.registered);
        for (before, member) in prepared.enumerate() {
            let registered = match caller.is_killed() {
                true => Err(EINTR),
                false => member.register(),
            };
            registered.map_err(|error| Failed { before, error })?;
            cond_resched();
        }
        Ok(())
    }

    /// Unregisters the consumers whose hook `wanted` selects, and waits until none of their
    /// handlers runs. Nothing may be prepared. Task context, sleeps; never from a handler.
    pub(crate) fn unregister_if(&mut self, mut wanted: impl FnMut(&H) -> bool + Send) {
        on_kworker::run(&mut |_| self.unregister_here(0, &mut wanted));
        self.members.retain(|member| member.uprobe.is_some());
        self.registered = self.members.len();
    }

    /// Asks every hook again which processes need the breakpoint, and inserts and removes
    /// breakpoints. If it fails for one, the others are done all the same. Nothing may be prepared.
    /// Task context, sleeps.
    ///
    /// `uprobe_apply` is for the kernel alone. So another consumer with the same filter joins each
    /// uprobe for a moment: when it joins, breakpoints are inserted where the hook needs them, and
    /// when it leaves, they are removed where no consumer needs them.
    pub(crate) fn ask_again(&mut self) -> Result {
        if self.members.is_empty() {
            return Ok(());
        }
        let mut visitors = memory::room(self.members.len())?;
        for member in self.members.iter() {
            memory::push(&mut visitors, Visitor::new(&member.consumer.hook))?;
        }
        let mut result = Ok(());
        on_kworker::run(&mut |_| {
            for (visitor, member) in visitors.iter().zip(self.members.iter()) {
                let visited = member.visit(visitor);
                result = result.and(visited);
                cond_resched();
            }
            // SAFETY: As in `unregister_here`; afterwards no handler sees the visitors.
            unsafe { bindings::uprobe_unregister_sync() };
        });
        result
    }

    /// Unregisters the consumers from index `first` on that `wanted` selects, with one grace period
    /// for all.
    fn unregister_here(&mut self, first: usize, mut wanted: impl FnMut(&H) -> bool) {
        let mut any = false;
        for member in self.members.iter_mut().skip(first) {
            if wanted(&member.consumer.hook) {
                any |= member.unregister();
                cond_resched();
            }
        }
        if any {
            // SAFETY: We are in task context and not in a handler: this waits until every
            // handler that may have seen the consumers has returned.
            unsafe { bindings::uprobe_unregister_sync() };
        }
    }
}

impl<H: Hook> Drop for Batch<H> {
    fn drop(&mut self) {
        self.unregister_if(|_| true);
    }
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
    // SAFETY: The uprobe core gives a word of its own stack.
    let (Some(regs), Some(call)) = (NonNull::new(regs), unsafe { call.as_mut() }) else {
        return 0;
    };
    // SAFETY: The uprobe core gives the current task's registers, and does not touch
    // them before this returns.
    let regs = unsafe { Regs::from_ptr(regs) };
    let Some(popped) = consumer.hook.returns() else {
        return consumer.hook.hit(regs, call) as c_int;
    };
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
    consumer.hook.wants(&unsafe { Mm::from_ptr(mm) })
}

/// # Safety
///
/// None: a hit is nothing to a [`Visitor`].
unsafe extern "C" fn visited(
    _consumer: *mut bindings::uprobe_consumer,
    _regs: *mut bindings::pt_regs,
    _call: *mut u64,
) -> c_int {
    0
}

/// # Safety
///
/// Called by the uprobe core only, with a registered [`Visitor<H>`] and a valid mm.
unsafe extern "C" fn visitor_filter<H: Hook>(
    consumer: *mut bindings::uprobe_consumer,
    mm: *mut bindings::mm_struct,
) -> bool {
    // SAFETY: `raw` is the first field of a `Visitor` (`repr(C)`), which lives until a
    // grace period after it was unregistered.
    let visitor = unsafe { &*consumer.cast::<Visitor<'_, H>>() };
    let Some(mm) = NonNull::new(mm) else {
        return false;
    };
    // SAFETY: The uprobe core keeps the mm valid during the call.
    visitor.hook.wants(&unsafe { Mm::from_ptr(mm) })
}
