// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hits as events: `nsprobe:FILE:FUNCTION`, with the context that LTTng gives its events.

use super::columns::{self, owned, Column};
use libnsprobe::common::record::{Frame, StackEnd};
use nsprobe_capsule::Contents;
use nsprobe_ctf::{
    Channel, ChannelId, CtfError, EventClass, EventId, Field, FieldNames, Trace, Type, Value,
};
use nsprobe_symbolize::SourceFrame;
use nsprobe_trace::hits::view::{FrameView, HitView, KernelFrame};
use nsprobe_trace::hits::words::end_name;
use std::collections::HashMap;
use std::path::Path;

/// Fields that are not the user's.
const ABSENT: &str = "absent";
const ELAPSED: &str = "elapsed_ns";
const STACK_OBJECTS: &str = "stack_objects";
const STACK_OFFSETS: &str = "stack_offsets";
const STACK_NAMES: &str = "stack_names";
const STACK_END: &str = "stack_end";
const KERNEL_STACK: &str = "kernel_stack";
const KERNEL_STACK_NAMES: &str = "kernel_stack_names";

/// In place of a name that is not known.
const UNKNOWN: &str = "?";

/// The channel of hits.
pub(super) struct Hits {
    channel: ChannelId,
    /// By probe, and whether they are returns.
    classes: HashMap<(u32, bool), Class>,
    has_stacks: bool,
    has_kernel_stacks: bool,
}

/// Hits of a probe.
struct Class {
    id: EventId,
    columns: Vec<Column>,
}

impl Hits {
    /// Creates the channel and event classes for a capsule.
    pub(super) fn new(trace: &mut Trace, contents: &Contents) -> Hits {
        let header = contents.header.as_ref();
        Hits {
            channel: trace.channel(Channel {
                name: "nsprobe".to_owned(),
                context: vec![
                    Field::new("procname", Type::Name { bytes: 16 }),
                    Field::new("pid", Type::signed(32)),
                    Field::new("tid", Type::signed(32)),
                    Field::new("vpid", Type::signed(32)),
                    Field::new("vtid", Type::signed(32)),
                    Field::new("pid_ns", Type::unsigned(32)),
                    Field::new("container", Type::Text),
                ],
            }),
            classes: HashMap::new(),
            has_stacks: header.is_some_and(|header| header.stack),
            has_kernel_stacks: header.is_some_and(|header| header.kernel_stack),
        }
    }

    pub(super) fn channel(&self) -> ChannelId {
        self.channel
    }

    pub(super) fn write(&mut self, trace: &mut Trace, view: &HitView<'_>) -> anyhow::Result<()> {
        // Unknown probes share one class: there may be any number of them.
        let probe = if view.label == UNKNOWN {
            0
        } else {
            view.hit.probe
        };
        let key = (probe, view.is_return());
        if !self.classes.contains_key(&key) {
            let class = self.class(trace, view)?;
            self.classes.insert(key, class);
        }
        let class = self.classes.get(&key).ok_or(CtfError::NoClass)?;
        let values = self.values(class, view);
        trace.event(
            class.id,
            view.hit.cpu.into(),
            view.hit.time_ns,
            &context(view),
            &values,
        )?;
        Ok(())
    }

    /// The event class of hits like this one.
    fn class(&self, trace: &mut Trace, view: &HitView<'_>) -> Result<Class, CtfError> {
        let mut names = FieldNames::default();
        names.reserve(&[ABSENT, ELAPSED, STACK_OBJECTS, STACK_OFFSETS]);
        names.reserve(&[STACK_NAMES, STACK_END, KERNEL_STACK, KERNEL_STACK_NAMES]);
        let (columns, mut fields) = columns::of(view.formats, &mut names);
        if view.is_return() {
            fields.push(Field::new(ELAPSED, Type::unsigned(64)));
        }
        if has_absent(view) {
            fields.push(Field::new(ABSENT, Type::Text));
        }
        let sequence = |name, kind| Field::new(name, Type::sequence(kind));
        if self.has_stacks {
            fields.extend([
                sequence(STACK_OBJECTS, Type::unsigned(32)),
                sequence(STACK_OFFSETS, Type::hex()),
                sequence(STACK_NAMES, Type::Text),
                Field::new(STACK_END, Type::Text),
            ]);
        }
        if self.has_kernel_stacks {
            fields.push(sequence(KERNEL_STACK, Type::hex()));
            fields.push(sequence(KERNEL_STACK_NAMES, Type::Text));
        }
        let name = name_of(view);
        let id = trace.class(self.channel, EventClass { name, fields })?;
        Ok(Class { id, columns })
    }

    fn values(&self, class: &Class, view: &HitView<'_>) -> Vec<Value<'static>> {
        let mut values = Vec::new();
        let mut absent: Vec<&str> = Vec::new();
        for ((format, column), value) in view.formats.iter().zip(&class.columns).zip(view.values) {
            if !column.push(value, &mut values) {
                absent.push(&format.name);
            }
        }
        if view.is_return() {
            values.push(view.elapsed_ns.unwrap_or(0).into());
            if view.elapsed_ns.is_none() {
                absent.push(ELAPSED);
            }
        }
        if has_absent(view) {
            values.push(owned(absent.join(",").into_bytes()));
        }
        if self.has_stacks {
            stack(view, &mut values);
        }
        if self.has_kernel_stacks {
            kernel_stack(view.kernel, &mut values);
        }
        values
    }
}

fn context(view: &HitView<'_>) -> [Value<'static>; 7] {
    let hit = view.hit;
    [
        owned(hit.comm.to_vec()),
        hit.pid.into(),
        hit.tid.into(),
        hit.ns_pid.into(),
        hit.ns_tid.into(),
        hit.pidns_inum.into(),
        owned(view.container.unwrap_or_default().into()),
    ]
}

/// Whether a part of such a hit may be absent.
fn has_absent(view: &HitView<'_>) -> bool {
    !view.formats.is_empty() || view.is_return()
}

/// The event's name. It is escaped when it is written, not before.
fn name_of(view: &HitView<'_>) -> String {
    let file = Path::new(view.binary).file_name();
    let file = file.map_or(UNKNOWN.into(), |file| file.to_string_lossy());
    let end = if view.is_return() { "%return" } else { "" };
    format!("nsprobe:{file}:{}{end}", view.function)
}

/// Appends the stack: for each frame the object, zero where there is none, the offset in its
/// file or else the address, and the functions; and why there are no more.
fn stack(view: &HitView<'_>, values: &mut Vec<Value<'static>>) {
    let (mut objects, mut offsets) = (Vec::new(), Vec::new());
    for view in view.frames {
        let (object, offset) = match view.frame {
            Frame::Object { id, offset, .. } => (id, offset),
            Frame::Address { address, .. } => (0, address),
        };
        objects.push(Value::from(object));
        offsets.push(Value::from(offset));
    }
    let names = view.frames.iter().map(frame_name);
    let end = end_name(StackEnd::from_u8(view.hit.stack_end));
    values.extend([
        Value::List(objects),
        Value::List(offsets),
        Value::List(names.map(|name| owned(name.into_bytes())).collect()),
        owned(end.into()),
    ]);
}

/// The functions of a frame, the innermost inlined one first.
fn frame_name(view: &FrameView) -> String {
    let functions = view.named.functions.iter();
    let names: Vec<String> = functions.map(function_name).collect();
    names.join(" in ")
}

fn function_name(function: &SourceFrame) -> String {
    match function.function_offset {
        Some(offset) => format!("{}+{offset:#x}", function.function),
        None => function.function.clone(),
    }
}

fn kernel_stack(frames: &[KernelFrame<'_>], values: &mut Vec<Value<'static>>) {
    let addresses = frames.iter().map(|frame| Value::from(frame.address));
    values.push(Value::List(addresses.collect()));
    let name = |frame: &KernelFrame<'_>| {
        let name = frame.symbol.map(|symbol| {
            let offset = frame.address.wrapping_sub(symbol.address);
            format!("{}+{offset:#x}", symbol.name)
        });
        owned(name.unwrap_or_default().into_bytes())
    };
    values.push(Value::List(frames.iter().map(name).collect()));
}
