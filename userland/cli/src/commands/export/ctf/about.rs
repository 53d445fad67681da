// SPDX-License-Identifier: MIT OR Apache-2.0
//! The metadata of a trace.

use crate::args::CtfPlan;
use nsprobe_capsule::model::{RecordingHeader, Text};
use nsprobe_ctf::{Description, EnvironmentValue, UNKNOWN_OFFSET};
use nsprobe_trace::recording::capsule::Capsule;

/// As lttng-modules describes its traces: Trace Compass has analyses for those.
pub(super) fn description(capsule: &Capsule, plan: &CtfPlan) -> Description {
    let header = capsule.contents.header.as_ref();
    let (id, _) = capsule.reader.resume();
    let text = |part: fn(&RecordingHeader) -> String| header.map_or_else(|| "?".to_owned(), part);
    let [major, minor, patch] = plan.shape.version();
    let texts = [
        ("hostname", text(|header| lossy(&header.host))),
        ("domain", "kernel".to_owned()),
        ("sysname", "Linux".to_owned()),
        ("kernel_release", text(|header| header.kernel.clone())),
        ("kernel_version", text(|header| header.machine.clone())),
        ("tracer_name", "lttng-modules".to_owned()),
        ("trace_buffering_scheme", "global".to_owned()),
        ("trace_name", name_of(plan)),
        ("nsprobe_version", text(|header| header.nsprobe.clone())),
        ("nsprobe_target", text(|header| header.target.clone())),
    ];
    let numbers = [
        ("tracer_major", major),
        ("tracer_minor", minor),
        ("tracer_patchlevel", patch),
    ];
    let texts = texts.map(|(name, text)| (name, EnvironmentValue::Text(text)));
    let numbers = numbers.map(|(name, number)| (name, EnvironmentValue::Number(number)));
    Description {
        uuid: uuid(id, header.map_or(0, |header| header.start_real_ns)),
        clock_offset_ns: header.map_or(UNKNOWN_OFFSET, |header| {
            let offset = i128::from(header.start_real_ns) - i128::from(header.start_ns);
            i64::try_from(offset).unwrap_or(UNKNOWN_OFFSET)
        }),
        environment: texts.into_iter().chain(numbers).collect(),
    }
}

fn name_of(plan: &CtfPlan) -> String {
    let name = plan.file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn lossy(text: &Text) -> String {
    String::from_utf8_lossy(&text.0).into_owned()
}

/// Derived from the capsule's own number and time, so that the same capsule gives the same trace: a
/// UUID of version 8 (RFC 9562, section 5.8).
fn uuid(id: u64, start_real_ns: u64) -> [u8; 16] {
    let bits = (u128::from(id) << 64) | u128::from(start_real_ns);
    let version = (bits & !(0xf << 76)) | (8 << 76);
    let variant = (version & !(0x3 << 62)) | (2 << 62);
    variant.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_of_which_version_it_is() {
        let bytes = uuid(u64::MAX, u64::MAX);
        assert_eq!((bytes[6] >> 4, bytes[8] >> 6), (8, 2));
        assert_ne!(uuid(1, 2), uuid(2, 2));
        assert_ne!(uuid(1, 2), uuid(1, 3));
    }
}
