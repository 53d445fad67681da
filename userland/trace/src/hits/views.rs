// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits with all that output needs to know of them.

use crate::hits::assembler::Ready;
use crate::hits::label::ProbeLabel;
use crate::hits::lookup::{kernel_addresses, whole_stack, Lookup};
use crate::hits::view::{FrameView, HitView, KernelFrame};
use crate::names::address_names::name_addresses;
use crate::names::jit::Moment;
use libnsprobe::common::record::Hit;
use nsprobe_spec::decode;
use std::collections::HashMap;

/// Makes views of hits.
#[derive(Debug)]
pub struct Views {
    labels: HashMap<u32, ProbeLabel>,
    start_ns: u64,
    /// Kept for its memory.
    frames: Vec<FrameView>,
}

impl Views {
    /// For the hits of these probes, in a trace that begins at `start_ns`.
    pub fn new(labels: Vec<ProbeLabel>, start_ns: u64) -> Views {
        let mut views = Views {
            labels: HashMap::new(),
            start_ns,
            frames: Vec::new(),
        };
        views.add(labels);
        views
    }

    /// There are more probes.
    pub fn add(&mut self, labels: Vec<ProbeLabel>) {
        let labels = labels.into_iter();
        self.labels.extend(labels.map(|label| (label.id.0, label)));
    }

    /// The label of a probe.
    pub fn label(&self, probe: u32) -> &str {
        let label = self.labels.get(&probe);
        label.map_or("?", |label| &label.label)
    }

    /// When the trace began.
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Has `take` look at a hit, if its names are there.
    pub fn of<R>(
        &mut self,
        lookup: &mut impl Lookup,
        ready: &Ready<'_>,
        take: impl FnOnce(&HitView<'_>) -> R,
    ) -> Option<R> {
        let details = &ready.details();
        let (hit, frames) = whole_stack(lookup, ready.hit(), details)?;
        if !lookup.prepare(&frames) {
            return None;
        }
        let hit = &hit;
        self.frames.clear();
        let moment = Moment::of(hit);
        self.frames
            .extend(frames.into_iter().map(|frame| FrameView {
                frame,
                named: lookup.name_at(frame, moment),
            }));
        let label = self.labels.get(&hit.probe);
        let text = |part: fn(&ProbeLabel) -> &str| label.map_or("?", part);
        let formats = label.map_or(&[][..], |label| &label.fields);
        let mut values = match formats {
            [] => Vec::new(),
            formats => decode::fields(formats, details.fields),
        };
        if let Some(binary) = label.and_then(|label| label.symbols.as_deref()) {
            name_addresses(&mut values, binary);
        }
        let container = lookup.container(hit);
        Some(take(&HitView {
            hit,
            start_ns: self.start_ns,
            label: text(|label| &label.label),
            binary: text(|label| &label.binary),
            function: text(|label| &label.function),
            elapsed_ns: details.elapsed_ns,
            formats,
            values: &values,
            frames: &self.frames,
            kernel: &kernel_frames(lookup, hit, details.kernel),
            container: container.as_deref(),
        }))
    }
}

/// The kernel's frames with their names, but for the module's own in front.
fn kernel_frames<'a>(
    lookup: &'a impl Lookup,
    hit: &Hit,
    addresses: &[u64],
) -> Vec<KernelFrame<'a>> {
    let frame = |(address, exact)| KernelFrame {
        address,
        symbol: lookup.kernel(address, exact),
    };
    let is_own = |frame: &KernelFrame<'_>| {
        let module = frame.symbol.and_then(|symbol| symbol.module.as_deref());
        module == Some("nsprobe")
    };
    let frames = kernel_addresses(hit, addresses).map(frame);
    frames.skip_while(is_own).collect()
}
