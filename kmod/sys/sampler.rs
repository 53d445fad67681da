// SPDX-License-Identifier: GPL-2.0-only
//! Samples of tasks: a perf event on each online CPU interrupts it many times per second.
//!
//! An event of the CPU clock is an interrupt, one of cycles an NMI. A task that was in user space
//! samples itself on its way back there, where it may wait for pages ([`later`](super::later)). A
//! task that was in the kernel may sleep and keep such a job, so it is sampled in the interrupt,
//! or, out of an NMI, in one that the CPU sends to itself.

use super::{
    by_interrupt::{is_readable, with_user_regs, ByInterrupt, Interrupting},
    helpers,
    memory::{self, GFP_REQUEST},
    regs::Regs,
    task::Current, //
    task_work::{Slots, TaskWork, SLOTS_OF_CPU},
};
use core::{
    ffi::{c_int, c_uint, c_void},
    ptr::NonNull,
    sync::atomic::{
        AtomicBool,
        AtomicI32,
        AtomicPtr,
        Ordering::{AcqRel, Relaxed, Release}, //
    },
};
use kernel::{
    bindings,
    container_of,
    cpu::nr_cpu_ids,
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// The least maximum of tasks that are on their way to user space with a sample to take.
const SAMPLES_MAX: usize = 256;
/// How many times, one millisecond each, the end waits for them.
const WAITS_MAX: usize = 100;

/// What an event interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Nothing: the CPU is idle.
    Idle,
    /// A kernel thread, or a worker that the kernel made of a process's thread.
    KernelThread,
    /// A task.
    Task,
}

/// Takes samples: [`TaskWork::run`] does so in task context.
pub(crate) trait Sampled: TaskWork<Job: Copy> {
    /// The current CPU was interrupted. Returns the job that takes a sample, or `None` for no
    /// sample. Any context.
    fn interrupted(&self, stopped: Stopped, by_clock: bool) -> Option<Self::Job>;

    /// Takes the sample of a task that was interrupted at `ip` in the kernel, with its user
    /// registers. Interrupt context.
    fn sample_in_kernel(&self, job: &Self::Job, regs: &Regs<'_>, ip: u64);

    /// The sample cannot be taken. Any context.
    fn miss(&self, job: &Self::Job);
}

/// Takes samples while it lives.
pub(crate) struct Sampler<H: Sampled> {
    /// Dropped first, so that the events end first.
    events: Pin<KBox<Events>>,
    taker: KBox<Taker<H>>,
}

impl<H: Sampled> Sampler<H> {
    /// Samples each CPU `hz` times per second. Task context, sleeps.
    pub(crate) fn start(hz: u64, hook: Arc<H>) -> Result<Self> {
        let cpus = nr_cpu_ids() as usize;
        let taker = KBox::new(
            Taker {
                slots: Slots::new(SAMPLES_MAX.max(SLOTS_OF_CPU.saturating_mul(cpus)))?,
                by_interrupt: memory::made_for_each_cpu(|| Ok(ByInterrupt::new(hook.clone())))?,
                hook,
            },
            GFP_REQUEST,
        )?;
        let context = core::ptr::from_ref(&*taker).cast_mut().cast();
        // SAFETY: The taker stays where it is until the events have ended and their works are done:
        // see `drop`, and below.
        match unsafe { Events::start(hz, interrupted::<H>, context) } {
            Ok(events) => Ok(Sampler { events, taker }),
            Err(error) => {
                // Some CPUs may have begun.
                taker.wait_for_interrupts();
                Err(error)
            }
        }
    }
}

impl<H: Sampled> Drop for Sampler<H> {
    fn drop(&mut self) {
        self.events.as_ref().get_ref().stop();
        self.taker.wait_for_interrupts();
        for _ in 0..WAITS_MAX {
            if self.taker.slots.are_free() {
                break;
            }
            // SAFETY: Task context.
            unsafe { bindings::msleep(1) };
        }
    }
}

/// The context of the events.
struct Taker<H: Sampled> {
    slots: Arc<Slots<H>>,
    /// For each CPU: takes the samples that begin in an NMI.
    by_interrupt: KVVec<ByInterrupt<H>>,
    hook: Arc<H>,
}

impl<H: Sampled> Taker<H> {
    /// Waits for the works that are queued. Task context, after the last event.
    fn wait_for_interrupts(&self) {
        self.by_interrupt.iter().for_each(ByInterrupt::wait);
    }

    /// # Safety
    ///
    /// `regs` must be those that the current CPU was interrupted with.
    unsafe fn interrupted(&self, regs: *mut bindings::pt_regs, by_clock: bool) {
        let Some(job) = self.hook.interrupted(stopped(), by_clock) else {
            return;
        };
        // SAFETY: The registers are valid, as the caller says.
        let (in_user, ip) = unsafe { (helpers::nsprobe_in_user(regs), (*regs).ip as u64) };
        // SAFETY: No preconditions.
        let in_nmi = unsafe { helpers::nsprobe_in_nmi() };
        let left = match (in_user, in_nmi) {
            _ if !is_readable() => false,
            (true, _) => match self.slots.take() {
                Some(reservation) => reservation.queue(self.hook.clone(), job),
                None => false,
            },
            (false, true) => self.leave_to_interrupt(ip, job),
            (false, false) => with_user_regs(|regs| self.hook.sample_in_kernel(&job, regs, ip)),
        };
        if !left {
            self.hook.miss(&job);
        }
    }

    fn leave_to_interrupt(&self, ip: u64, job: H::Job) -> bool {
        let cpu = Current::get().cpu_hint() as usize;
        self.by_interrupt
            .get(cpu)
            .is_some_and(|on| on.leave(Current::get().address(), InKernel { ip, job }))
    }
}

/// A sample of a task in the kernel that is still to be taken.
#[derive(Clone, Copy)]
pub(crate) struct InKernel<J> {
    ip: u64,
    job: J,
}

impl<H: Sampled> Interrupting for H {
    type Left = InKernel<H::Job>;

    fn run(&self, left: &InKernel<H::Job>, regs: &Regs<'_>) {
        self.sample_in_kernel(&left.job, regs, left.ip);
    }

    fn miss(&self, left: &InKernel<H::Job>) {
        Sampled::miss(self, &left.job);
    }
}

/// # Safety
///
/// Called by perf only, for an event of [`Events`] whose context is a [`Taker<H>`].
unsafe extern "C" fn interrupted<H: Sampled>(
    event: *mut c_void,
    _data: *mut c_void,
    regs: *mut bindings::pt_regs,
) {
    // SAFETY: The event is valid; its context is a taker that outlives it; perf gives the
    // registers that the CPU was interrupted with.
    unsafe {
        let taker = &*helpers::nsprobe_sampler(event).cast::<Taker<H>>();
        taker.interrupted(regs, helpers::nsprobe_is_by_clock(event));
    }
}

fn stopped() -> Stopped {
    // SAFETY: The current task is valid; these of its flags are fixed.
    let flags = unsafe { (*Current::get().as_non_null().as_ptr()).flags };
    if flags & bindings::PF_IDLE != 0 {
        Stopped::Idle
    } else if flags & (bindings::PF_KTHREAD | bindings::PF_USER_WORKER) != 0 {
        Stopped::KernelThread
    } else {
        Stopped::Task
    }
}

/// The function that perf calls.
type Interrupted = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut bindings::pt_regs);

/// An event on each CPU that is online.
///
/// # Invariants
///
/// While `node` is in the list of [`STATE`], `online` and `offline` are called with it, which
/// keep in `on` what runs. It stays where it is.
struct Events {
    node: Opaque<bindings::hlist_node>,
    hz: u64,
    interrupted: Interrupted,
    context: *mut c_void,
    /// The running events, by CPU.
    on: KVVec<AtomicPtr<c_void>>,
    /// Once set, a CPU comes online even if its event cannot be made.
    has_started: AtomicBool,
    has_stopped: AtomicBool,
}

// SAFETY: The events belong to no task; the context is only handed on.
unsafe impl Send for Events {}
// SAFETY: As above; the list's lock protects the node.
unsafe impl Sync for Events {}

impl Events {
    /// # Safety
    ///
    /// `interrupted` may be called with `context` by perf, until [`stop`](Self::stop) is over.
    unsafe fn start(
        hz: u64,
        interrupted: Interrupted,
        context: *mut c_void,
    ) -> Result<Pin<KBox<Self>>> {
        let events = KBox::pin(
            Events {
                node: Opaque::zeroed(),
                hz,
                interrupted,
                context,
                on: memory::made_for_each_cpu(|| Ok(AtomicPtr::new(core::ptr::null_mut())))?,
                has_started: AtomicBool::new(false),
                has_stopped: AtomicBool::new(true),
            },
            GFP_REQUEST,
        )?;
        let state = STATE.load(Relaxed);
        // SAFETY: The state was set up with `online` and `offline` for nodes of `Events`; this
        // one stays where it is until it is taken out. Task context.
        to_result(unsafe { bindings::__cpuhp_state_add_instance(state, events.node.get(), true) })?;
        events.has_stopped.store(false, Relaxed);
        events.has_started.store(true, Relaxed);
        Ok(events)
    }

    /// Ends all events: no call is running afterwards. Task context, sleeps.
    fn stop(&self) {
        if self.has_stopped.swap(true, Relaxed) {
            return;
        }
        let state = STATE.load(Relaxed);
        // SAFETY: It is in the state's list, and `offline` is called for each CPU.
        unsafe { bindings::__cpuhp_state_remove_instance(state, self.node.get(), true) };
    }

    /// Makes the event of a CPU: of its cycles, or else of its clock.
    fn begin(&self, cpu: u32) -> Result {
        let Some(on) = self.on.get(cpu as usize) else {
            return Ok(());
        };
        let begin = |by_clock| {
            // SAFETY: As `start`'s caller says. Task context.
            from_err_ptr(unsafe {
                helpers::nsprobe_sampling(
                    cpu as c_int,
                    self.hz,
                    by_clock,
                    self.interrupted,
                    self.context,
                )
            })
        };
        let event = begin(false).or_else(|_| begin(true))?;
        on.store(event, Release);
        Ok(())
    }

    fn end(&self, cpu: u32) {
        extern "C" {
            /// `include/linux/perf_event.h`: ends an event, and waits for its handler. Sleeps.
            fn perf_event_release_kernel(event: *mut c_void) -> c_int;
        }
        let on = self.on.get(cpu as usize);
        let event = on.map(|on| on.swap(core::ptr::null_mut(), AcqRel));
        if let Some(event) = event.and_then(NonNull::new) {
            // SAFETY: `begin` made it, and there is no other reference to it. Task context.
            unsafe { perf_event_release_kernel(event.as_ptr()) };
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The CPU hotplug state that events follow.
static STATE: AtomicI32 = AtomicI32::new(0);

/// The module's registration for CPU hotplug.
pub(crate) struct Ready(());

impl Ready {
    /// For the module, once.
    pub(crate) fn new() -> Result<Self> {
        type OfCpu = unsafe extern "C" fn(c_uint) -> c_int;
        type OfInstance = unsafe extern "C" fn(c_uint, *mut bindings::hlist_node) -> c_int;
        // SAFETY: Of a state with instances the kernel calls both with the node, too
        // (`cpuhp_setup_state_multi` of include/linux/cpuhotplug.h casts so).
        let call = |of: OfInstance| unsafe { core::mem::transmute::<OfInstance, OfCpu>(of) };
        // SAFETY: The functions take any node of `Events`, and no other ones are added.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                c"nsprobe:online".as_char_ptr(),
                false,
                Some(call(online)),
                Some(call(offline)),
                true,
            )
        };
        to_result(state.min(0))?;
        STATE.store(state, Relaxed);
        Ok(Ready(()))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: `new` has set it up; no instance is left, as no session is.
        unsafe { bindings::__cpuhp_remove_state(STATE.load(Relaxed), false) };
    }
}

/// # Safety
///
/// `node` is that of an [`Events`] in the state's list.
unsafe fn events_of<'a>(node: *mut bindings::hlist_node) -> &'a Events {
    let node = node.cast::<Opaque<bindings::hlist_node>>();
    // SAFETY: By this function's contract; `Opaque` has the layout of what is in it.
    unsafe { &*container_of!(node, Events, node) }
}

/// # Safety
///
/// As for [`events_of`]. On the CPU, in task context.
unsafe extern "C" fn online(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: By this function's contract.
    let events = unsafe { events_of(node) };
    match events.begin(cpu) {
        // The module must not keep a CPU offline.
        Err(error) if !events.has_started.load(Relaxed) => error.to_errno(),
        _ => 0,
    }
}

/// # Safety
///
/// As for [`online`].
unsafe extern "C" fn offline(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: By this function's contract.
    unsafe { events_of(node) }.end(cpu);
    0
}
