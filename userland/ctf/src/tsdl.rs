// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text `metadata`, in the trace stream description language (TSDL; CTF 1.8, section 7),
//! worded as that of lttng-modules: some readers go by its names of types.

use crate::trace::{Description, EnvironmentValue};
use crate::types::{Channel, EventClass, Field, Type};
use nsprobe_text::escaped;
use std::fmt::Write;

const HEAD: &str = r"/* CTF 1.8 */

typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; } := unsigned long;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
typealias integer { size = 27; align = 1; signed = false; } := uint27_t;

";

const TYPES: &str = r"typealias integer {
	size = 27; align = 1; signed = false;
	map = clock.monotonic.value;
} := uint27_clock_monotonic_t;

typealias integer {
	size = 32; align = 8; signed = false;
	map = clock.monotonic.value;
} := uint32_clock_monotonic_t;

typealias integer {
	size = 64; align = 8; signed = false;
	map = clock.monotonic.value;
} := uint64_clock_monotonic_t;

struct packet_context {
	uint64_clock_monotonic_t timestamp_begin;
	uint64_clock_monotonic_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	uint64_t packet_seq_num;
	unsigned long events_discarded;
	uint32_t cpu_id;
};

struct event_header_large {
	enum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
	variant <id> {
		struct {
			uint32_clock_monotonic_t timestamp;
		} compact;
		struct {
			uint32_t id;
			uint64_clock_monotonic_t timestamp;
		} extended;
	} v;
} align(8);

";

/// The metadata of a trace with these channels, each with its classes of events.
pub(crate) fn metadata(
    description: &Description,
    channels: &[(Channel, Vec<EventClass>)],
) -> String {
    let mut text = HEAD.to_owned();
    trace(&mut text, description);
    text.push_str(TYPES);
    for (id, (channel, _)) in channels.iter().enumerate() {
        stream(&mut text, id, channel);
    }
    for (id, (_, classes)) in channels.iter().enumerate() {
        for (number, class) in classes.iter().enumerate() {
            event(&mut text, id, number, class);
        }
    }
    text
}

/// Appends a line. Writing to a string does not fail.
macro_rules! line {
    ($text:expr, $($format:tt)*) => {{
        let _ = writeln!($text, $($format)*);
    }};
}

fn trace(text: &mut String, description: &Description) {
    line!(text, "trace {{");
    line!(text, "\tmajor = 1;");
    line!(text, "\tminor = 8;");
    line!(text, "\tuuid = \"{}\";", uuid(&description.uuid));
    line!(text, "\tbyte_order = le;");
    line!(text, "\tpacket.header := struct {{");
    line!(text, "\t\tuint32_t magic;");
    line!(text, "\t\tuint8_t  uuid[16];");
    line!(text, "\t\tuint32_t stream_id;");
    line!(text, "\t\tuint64_t stream_instance_id;");
    line!(text, "\t}};\n}};\n");
    line!(text, "env {{");
    for (name, value) in &description.environment {
        match value {
            EnvironmentValue::Number(number) => line!(text, "\t{name} = {number};"),
            EnvironmentValue::Text(value) => line!(text, "\t{name} = {};", quoted(value)),
        }
    }
    line!(text, "}};\n");
    line!(text, "clock {{");
    line!(text, "\tname = \"monotonic\";");
    line!(text, "\tdescription = \"Monotonic Clock\";");
    line!(text, "\tfreq = 1000000000; /* Frequency, in Hz */");
    line!(
        text,
        "\t/* clock value offset from Epoch is: offset * (1/freq) */"
    );
    line!(text, "\toffset = {};", description.clock_offset_ns);
    line!(text, "}};\n");
}

fn stream(text: &mut String, id: usize, channel: &Channel) {
    line!(text, "stream {{");
    line!(text, "\tid = {id};");
    line!(text, "\tevent.header := struct event_header_large;");
    line!(text, "\tpacket.context := struct packet_context;");
    if !channel.context.is_empty() {
        line!(text, "\tevent.context := struct {{");
        fields(text, &channel.context);
        line!(text, "\t}};");
    }
    line!(text, "}};\n");
}

fn event(text: &mut String, stream: usize, number: usize, class: &EventClass) {
    line!(text, "event {{");
    line!(text, "\tname = {};", quoted(&class.name));
    line!(text, "\tid = {number};");
    line!(text, "\tstream_id = {stream};");
    line!(text, "\tfields := struct {{");
    fields(text, &class.fields);
    line!(text, "\t}};\n}};\n");
}

fn fields(text: &mut String, fields: &[Field]) {
    for field in fields {
        for line in field.declarations() {
            line!(text, "\t\t{line}");
        }
    }
}

impl Field {
    /// Its declarations. Names have an underline in front, which readers take away: a name
    /// may be a word of the language.
    pub fn declarations(&self) -> Vec<String> {
        let name = self.name();
        match self.kind() {
            Type::Name { bytes } => {
                vec![format!(
                    "{} _{name}[{bytes}];",
                    integer(8, true, 10, "UTF8")
                )]
            }
            Type::Sequence {
                length_bits,
                element,
            } => vec![
                format!(
                    "{} __{name}_length;",
                    integer(*length_bits, false, 10, "none")
                ),
                format!("{} _{name}[ __{name}_length ];", simple(element)),
            ],
            kind => vec![format!("{} _{name};", simple(kind))],
        }
    }
}

/// The type of one value.
fn simple(kind: &Type) -> String {
    match kind {
        Type::Integer { bits, signed, base } => integer(*bits, *signed, *base, "none"),
        Type::Float => "floating_point { exp_dig = 11; mant_dig = 53; align = 8; }".to_owned(),
        Type::Text => "string".to_owned(),
        // Elements of sequences are neither.
        Type::Name { .. } | Type::Sequence { .. } => String::new(),
    }
}

fn integer(bits: u8, signed: bool, base: u8, encoding: &str) -> String {
    let signed = u8::from(signed);
    format!(
        "integer {{ size = {bits}; align = 8; signed = {signed}; encoding = {encoding}; \
         base = {base}; }}"
    )
}

/// A string of the language, in ASCII. What is not harmless is escaped twice: readers show it
/// as [`escaped`] would have.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in escaped(text).to_string().chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            character => {
                let _ = write!(quoted, "\\\\u{{{:x}}}", u32::from(character));
            }
        }
    }
    quoted.push('"');
    quoted
}

/// As RFC 9562 writes it.
fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_nowhere_but_at_their_end() {
        for (text, shown) in [
            ("a:b", "\"a:b\""),
            ("a\"; };", "\"a\\\"; };\""),
            ("a\\b", "\"a\\\\\\\\b\""),
            ("a\nb", "\"a\\\\nb\""),
            ("ä", "\"\\\\u{e4}\""),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }

    #[test]
    fn uuids_are_written_as_usual() {
        let bytes: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid(&bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
