// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that explain the others: containers, files, and changes to probes.

use super::columns::owned;
use libnsprobe::common::record::{OffRecord, WriteRecord};
use nsprobe_capsule::Contents;
use nsprobe_ctf::{Channel, ChannelId, CtfError, EventClass, EventId, Field, Trace, Type, Value};

/// The channel of these events.
pub(super) struct Notes {
    container: EventId,
    object: EventId,
    write: EventId,
    off: EventId,
}

impl Notes {
    /// With a channel of their own.
    pub(super) fn new(trace: &mut Trace) -> Result<Notes, CtfError> {
        let channel = trace.channel(Channel {
            name: "notes".to_owned(),
            context: Vec::new(),
        });
        let number = || Type::unsigned(32);
        Ok(Notes {
            container: class(
                trace,
                channel,
                "nsprobe_container",
                vec![
                    ("ns_inum", number()),
                    ("name", Type::Text),
                    ("cgroup", Type::unsigned(64)),
                    ("runtime", Type::Text),
                    ("id", Type::Text),
                ],
            )?,
            object: class(
                trace,
                channel,
                "nsprobe_object",
                vec![
                    ("object", number()),
                    ("build_id", Type::Text),
                    ("path", Type::Text),
                ],
            )?,
            write: class(
                trace,
                channel,
                "nsprobe_write",
                vec![
                    ("probe", Type::Text),
                    ("pid", Type::signed(32)),
                    ("tid", Type::signed(32)),
                    ("place", Type::Text),
                    ("bytes", Type::unsigned(8)),
                    ("done", Type::unsigned(8)),
                    ("before", Type::hex()),
                    ("after", Type::hex()),
                ],
            )?,
            off: class(
                trace,
                channel,
                "nsprobe_off",
                vec![("probe", Type::Text), ("limit", number())],
            )?,
        })
    }

    /// Writes all files at the beginning, and each container at the time it became known.
    pub(super) fn containers_and_objects(
        &self,
        trace: &mut Trace,
        contents: &Contents,
        time_ns: u64,
    ) -> Result<(), CtfError> {
        for container in &contents.containers {
            let text = |text: &Option<String>| owned(text.clone().unwrap_or_default().into_bytes());
            let values = [
                container.pid_namespace.into(),
                text(&container.name),
                container.cgroup.into(),
                text(&container.runtime),
                text(&container.id),
            ];
            let known_ns = container.known_ns.max(time_ns);
            trace.event(self.container, 0, known_ns, &[], &values)?;
        }
        for object in contents.objects.values() {
            let path = object.path.as_ref().map_or(&[][..], |path| &path.0);
            let build_id = match object.build_id.as_str() {
                "" => &object.file_build_id,
                build_id => build_id,
            };
            let values = [object.id.into(), Value::text(build_id), Value::text(path)];
            trace.event(self.object, 0, time_ns, &[], &values)?;
        }
        Ok(())
    }

    /// A probe changed the traced program, or tried to.
    pub(super) fn write(
        &self,
        trace: &mut Trace,
        write: &WriteRecord,
        probe: &str,
    ) -> Result<(), CtfError> {
        let place = crate::output::text::place_of(write);
        let values = [
            Value::text(probe),
            write.pid.into(),
            write.tid.into(),
            Value::text(&place),
            Value::Unsigned(write.bytes.into()),
            Value::Unsigned(write.done.into()),
            write.before.into(),
            write.after.into(),
        ];
        trace.event(self.write, write.cpu, write.time_ns, &[], &values)
    }

    /// A probe was turned off. Its record does not say on which CPU.
    pub(super) fn off(
        &self,
        trace: &mut Trace,
        off: &OffRecord,
        probe: &str,
    ) -> Result<(), CtfError> {
        let values = [Value::text(probe), off.limit.into()];
        trace.event(self.off, 0, off.time_ns, &[], &values)
    }
}

fn class(
    trace: &mut Trace,
    channel: ChannelId,
    name: &str,
    fields: Vec<(&str, Type)>,
) -> Result<EventId, CtfError> {
    let fields = fields.into_iter();
    let class = EventClass {
        name: name.to_owned(),
        fields: fields.map(|(name, kind)| Field::new(name, kind)).collect(),
    };
    trace.class(channel, class)
}
