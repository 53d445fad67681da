// SPDX-License-Identifier: GPL-2.0-only
//! The rings of a session: one for each possible CPU, so that writers seldom contend. Appending
//! runs in any context but NMI. A full ring counts the records that it lost and announces the gap
//! in front of the next record that fits.
//!
//! Any task may write to any ring: the CPU is only a hint, and a migration between reading it and
//! reserving is harmless.

mod one_ring;

use crate::{
    common::{
        record::WriteRecord,
        ring::Geometry, //
    },
    ring::one_ring::Ring,
    sys::{
        self,
        irq_wake::IrqWake,
        lock::{raw_lock, RawLock},
        memory::{self, Blamed, GFP_REQUEST},
        pages::RingPages, //
    },
};
use core::sync::atomic::{AtomicBool, Ordering};
use kernel::{
    cpu::nr_cpu_ids,
    fs::File,
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*,
    static_lock_class,
    sync::poll::{PollCondVar, PollTable}, //
};

pub(crate) struct Rings {
    rings: KVec<Ring>,
    geometry: Geometry,
    watermark: u64,
    overwrite: bool,
    frozen: AtomicBool,
    /// Held while all rings are frozen or thawed, so that they all end in one state.
    freezing: RawLock<()>,
}

impl Rings {
    /// Makes one ring for each possible CPU.
    pub(crate) fn new(geometry: Geometry, watermark: u64, overwrite: bool) -> Result<Self> {
        let count = nr_cpu_ids() as usize;
        let bytes = RingPages::stride(geometry).saturating_mul(count as u64);
        memory::look_for(bytes)?;
        let _blamed = Blamed::new();
        let mut rings = KVec::with_capacity(count, GFP_REQUEST)?;
        for _ in 0..count {
            rings.push(Ring::new(geometry, overwrite)?, GFP_REQUEST)?;
        }
        Ok(Rings {
            rings,
            geometry,
            watermark: watermark.max(1),
            overwrite,
            frozen: AtomicBool::new(false),
            freezing: raw_lock!(()),
        })
    }

    /// The rings, indexed by CPU.
    pub(crate) fn as_slice(&self) -> &[Ring] {
        &self.rings
    }

    /// Distance between two rings in the device's file, in bytes.
    pub(crate) fn stride(&self) -> u64 {
        RingPages::stride(self.geometry)
    }

    /// Bytes of data in each ring.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.geometry.data_bytes()
    }

    /// Appends to the ring of `cpu` a record whose body is `first` and then `parts`; calls `wake` to
    /// wake the reader when the watermark is reached.
    #[inline(always)]
    pub(crate) fn append<const N: usize>(
        &self,
        cpu: u32,
        kind: u16,
        (first, parts): (&[u64; N], &[&[u64]]),
        now_ns: u64,
        wake: impl Fn(),
    ) -> bool {
        let Some(ring) = self.rings.get(cpu as usize) else {
            return false;
        };
        let end = ring.append(kind, first, parts, now_ns);
        if self.overwrite {
            // A ring that overwrites is not read before it is frozen.
            return end.is_some();
        }
        let Some(end) = end else {
            // A full ring is above any watermark.
            wake();
            return false;
        };
        self.wake_at_watermark(ring, end, wake);
        true
    }

    #[inline(always)]
    fn wake_at_watermark(&self, ring: &Ring, end: u64, wake: impl Fn()) {
        if ring.unread_until(end) >= self.watermark {
            wake();
        }
    }

    /// Makes a change, if there is room for its record in the ring of `cpu`, and appends that:
    /// `make` runs under the ring's lock, with interrupts off, and gives the record's body. Returns
    /// whether there was room.
    pub(crate) fn append_change(
        &self,
        cpu: u32,
        now_ns: u64,
        make: impl FnOnce() -> WriteRecord,
        wake: impl Fn(),
    ) -> bool {
        let Some(ring) = self.rings.get(cpu as usize) else {
            return false;
        };
        let end = ring.append_change(now_ns, make);
        match end {
            Some(end) => self.wake_at_watermark(ring, end, wake),
            None => wake(),
        }
        end.is_some()
    }

    /// Whether a ring holds enough for the reader, or rings that overwrite are frozen.
    pub(crate) fn is_ready(&self) -> bool {
        if self.overwrite {
            return self.is_frozen();
        }
        self.rings.iter().any(|ring| ring.used() >= self.watermark)
    }

    /// Whether the rings overwrite.
    pub(crate) fn overwrite(&self) -> bool {
        self.overwrite
    }

    /// Whether records stay where they are until they are read.
    pub(crate) fn is_readable(&self) -> bool {
        !self.overwrite || self.is_frozen()
    }

    /// Whether rings that overwrite are frozen, or are being frozen.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    /// Freezes or thaws all rings; wakes the reader when they are frozen. Any context but NMI; to
    /// thaw, task context.
    pub(crate) fn freeze(&self, freeze: bool, waiter: &Waiter) {
        if !self.overwrite {
            return;
        }
        if !freeze {
            self.rings.iter().for_each(Ring::see_all_committed);
        }
        let guard = self.freezing.lock();
        // Set this first, so that a task that finds a ring frozen finds this set, too.
        self.frozen.store(freeze, Ordering::Release);
        for ring in &self.rings {
            ring.freeze(freeze);
        }
        drop(guard);
        if freeze {
            waiter.wake();
        }
    }

    /// Maps the device's file from page `page_offset` on.
    pub(crate) fn map(&self, page_offset: usize, vma: &VmaNew) -> Result {
        let stride = usize::try_from(self.stride())? / PAGE_SIZE;
        let (ring, first) = match (
            page_offset.checked_div(stride),
            page_offset.checked_rem(stride),
        ) {
            (Some(ring), Some(first)) => (self.rings.get(ring).ok_or(EINVAL)?, first),
            _ => return Err(EINVAL),
        };
        ring.map(first, vma)
    }
}

/// The wait queue of the reader.
///
/// `armed` keeps writers from waking a reader that is not asleep: the reader sets it and then looks
/// at the rings; a writer publishes and then looks at it. With a full barrier between the two steps
/// on both sides, one of them sees the other.
#[pin_data]
pub(crate) struct Waiter {
    armed: AtomicBool,
    #[pin]
    queue: IrqWake,
}

impl Waiter {
    /// A queue without a waiter.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Waiter {
            armed: AtomicBool::new(false),
            queue <- IrqWake::new(c"nsprobe::Waiter", static_lock_class!()),
        })
    }

    /// Wakes the reader if it may be asleep. Task or interrupt context, but not under the run
    /// queue's lock.
    pub(crate) fn wake(&self) {
        if self.disarm() {
            match sys::in_interrupt() {
                // On PREEMPT_RT, interrupt context cannot take the queue's lock.
                true => self.queue.wake_soon(),
                false => self.queue.notify_all(),
            }
        }
    }

    /// Wakes the reader from an interrupt, in any context but NMI and under any lock.
    pub(crate) fn wake_soon(&self) {
        if self.disarm() {
            self.queue.wake_soon();
        }
    }

    /// Whether the reader may be asleep; if so, this caller alone has to wake it.
    #[inline(always)]
    fn disarm(&self) -> bool {
        sys::full_barrier();
        self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::Relaxed)
    }

    /// Makes writers wake the reader; look at the rings after this.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
        sys::full_barrier();
    }

    /// Registers the reader with a poll.
    pub(crate) fn register(&self, file: &File, table: &PollTable<'_>) {
        table.register_wait(file, &self.queue);
    }

    /// The queue to sleep on.
    pub(crate) fn queue(&self) -> &PollCondVar {
        &self.queue
    }
}
