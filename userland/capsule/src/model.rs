// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the chunks say whose bodies are JSON. Keys are added to and never change their
//! meaning; readers skip those that they do not know.

use crate::generated::GeneratedPlace;
use nsprobe_spec::decode::FieldFormat;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Bytes that most often are text, such as a path: a string of JSON or, when they are no
/// UTF-8, an array of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Text(pub Vec<u8>);

/// What was recorded, when and where.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct RecordingHeader {
    /// The version of nsprobe that has recorded.
    pub nsprobe: String,
    /// The version of the interface to the module, which the records have.
    pub abi: u32,
    /// The module's release.
    pub module: String,
    /// The kernel's release, as `uname -r` gives it.
    pub kernel: String,
    /// The machine's kind, as `uname -m` gives it.
    pub machine: String,
    /// The machine's name.
    pub host: Text,
    /// The command line, word by word.
    pub command: Vec<Text>,
    /// What was traced, for people.
    pub target: String,
    /// When the first hit could come, CLOCK_MONOTONIC in nanoseconds.
    pub start_ns: u64,
    /// That moment in nanoseconds since 1970.
    pub start_real_ns: u64,
    /// Whether stacks were taken.
    pub stack: bool,
    /// Whether the kernel's stacks were taken.
    pub kernel_stack: bool,
    /// Whether names were looked up while it was recorded.
    pub names: bool,
    /// How many hits were asked for; a few more may be there.
    pub count: Option<u64>,
    /// How the kernel was built, as `uname -v` gives it.
    pub kernel_build: String,
    /// How many CPUs were online; 0 where that is not known.
    pub cpus: u32,
    /// The id of the machine's boot (`/proc/sys/kernel/random/boot_id`): moments of capsules
    /// are only those of one clock where it is the same. Empty where it is not known.
    pub boot_id: String,
    /// How far CLOCK_BOOTTIME was ahead of CLOCK_MONOTONIC then, in nanoseconds: how long the
    /// machine had been suspended.
    pub suspended_ns: u64,
}

/// A probe.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RecordedProbe {
    /// Its id in the records.
    pub id: u32,
    /// Which of the probes that the user named it belongs to.
    pub planned: u64,
    /// `whole`, `begin` of calls, or `exit`.
    pub role: String,
    /// `binary:function`.
    pub label: String,
    /// The probed file's path, as the target saw it.
    pub binary: String,
    /// The probed function.
    pub function: String,
    /// Where it is in the file.
    pub offset: u64,
    /// How its fields are read.
    pub fields: Vec<FieldFormat>,
}

/// A mapped file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Object {
    /// Its id in frames.
    pub id: u32,
    /// Its device, inode number and inode generation.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// See `device`.
    pub generation: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// When its inode changed last, in nanoseconds since 1970.
    pub changed_ns: u64,
    /// The build-id as the process mapped it, in hexadecimal; empty when it has none.
    pub build_id: String,
    /// The build-id that the file itself has, where the other is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file_build_id: String,
    /// A process that mapped it.
    pub pid: u32,
    /// Where the file was.
    pub path: Option<Text>,
    /// Which way it was found.
    pub origin: Option<String>,
    /// Why it could not be read.
    pub unusable: Option<String>,
}

/// Names.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct RecordedNames {
    /// Of user space.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<FrameName>,
    /// Of the kernel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<KernelName>,
    /// Functions whose addresses are in fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<SymbolName>,
    /// Of generated code.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<GeneratedName>,
}

/// What is known of a place in a file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct FrameName {
    /// The object.
    pub object: u32,
    /// Where in its file.
    pub offset: u64,
    /// Whether that is the instruction itself; else it is the return address after a call.
    #[serde(skip_serializing_if = "is_false")]
    pub exact: bool,
    /// The functions there, the innermost inlined one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<RecordedFunction>,
    /// Where the names come from, as in docs/json.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which file has them, as `in` of a frame's `source` in docs/json.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found_in: Option<String>,
    /// Its path, when it is not the object's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found_at: Option<Text>,
    /// Where in its file the function begins that has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_start: Option<u64>,
    /// Why there is no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
    /// There is no call in front of the address: the frame may be wrong.
    #[serde(skip_serializing_if = "is_false")]
    pub doubtful: bool,
}

/// What is known of a place in the generated code of a process, from a time on: until a later
/// one is about the same place.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Hash, Serialize)]
#[serde(default)]
pub struct GeneratedName {
    /// The process, as in hits.
    pub pid: u32,
    /// The address, as in frames.
    pub address: u64,
    /// Whether that is the instruction itself; else it is the return address after a call.
    #[serde(skip_serializing_if = "is_false")]
    pub exact: bool,
    /// From when on, CLOCK_MONOTONIC in nanoseconds.
    pub from_ns: u64,
    /// The function there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<RecordedFunction>,
    /// Where the name comes from, as in docs/json.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The file that has it, as the process sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Text>,
    /// Why there is no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
}

impl GeneratedName {
    /// What it is about.
    pub fn place(&self) -> GeneratedPlace {
        GeneratedPlace {
            pid: self.pid,
            address: self.address,
            exact: self.exact,
        }
    }
}

/// A function at a place.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Hash, Serialize)]
#[serde(default)]
pub struct RecordedFunction {
    /// Its readable name.
    pub name: String,
    /// Bytes from its beginning to the place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Whether it was inlined into the next one.
    #[serde(skip_serializing_if = "is_false")]
    pub inlined: bool,
}

/// A function of the kernel.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct KernelName {
    /// The return address in a record.
    pub address: u64,
    /// Where the function begins.
    pub start: u64,
    /// Its name.
    pub name: String,
    /// Its module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

/// A function whose address is in a field.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct SymbolName {
    /// A probe whose file has the function.
    pub probe: u32,
    /// The address by the file's own count.
    pub address: u64,
    /// The name, with the distance from the function's beginning.
    pub name: String,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct Container {
    /// Id of its pid namespace, as in hits; zero when it has none of its own.
    pub pid_namespace_id: u64,
    /// The namespace's inode number, which the kernel gives again.
    pub pid_namespace: u32,
    /// Its name; `None` if only its number is known.
    pub name: Option<String>,
    /// Its first process, as the recording machine numbered it.
    pub pid: u32,
    /// Id of its control group; zero when that is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup: u64,
    /// What runs it, such as `podman`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Its runtime's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The pod that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// When this was known, CLOCK_MONOTONIC in nanoseconds; zero for before the recording.
    #[serde(skip_serializing_if = "is_zero")]
    pub known_ns: u64,
}

/// What a recording came to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Summary {
    /// How long it was.
    pub elapsed_ns: u64,
    /// Why it ended, for people.
    pub ended_by: String,
    /// Hits that came out of the rings.
    pub received: u64,
    /// Of these, hits that are not in the capsule, as there was no room for them.
    pub unwritten: u64,
    /// Recorded hits that others have taken the place of.
    pub overwritten: u64,
    /// Each probe that the user named.
    pub probes: Vec<ProbeTotal>,
    /// Where names came from, a line for each file.
    pub names: Vec<String>,
    /// Events of tasks by kind and outcome; none when they were not recorded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tasks: BTreeMap<String, TaskTotal>,
    /// Recorded events of tasks that are not in the capsule, as there was no room for them.
    #[serde(skip_serializing_if = "is_zero")]
    pub unwritten_tasks: u64,
    /// The recorder's report on unwind rows.
    pub rows: Option<serde_json::Value>,
}

/// The hits of a probe by outcome.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ProbeTotal {
    /// Its id; of several, the first one's.
    pub id: u32,
    /// Its counters, by their names in docs/json.md.
    pub counters: BTreeMap<String, u64>,
    /// Calls that left by a jump to where returns are not seen.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_by_jump: u64,
    /// Calls that were left in another way, were under way at the end, or were not followed.
    #[serde(alias = "unfollowed", skip_serializing_if = "is_zero")]
    pub unreturned: u64,
    /// The counters on each CPU that has any, if hits were lost.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cpus: BTreeMap<u16, BTreeMap<String, u64>>,
}

/// Events of tasks of one kind by outcome.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct TaskTotal {
    /// All.
    pub seen: u64,
    /// Those in a ring.
    pub recorded: u64,
    /// Those of tasks that do not count.
    pub filtered: u64,
    /// Those for which a ring had no room.
    pub lost: u64,
}

/// The recording ended orderly.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(default)]
pub struct RecordingEnd {
    /// Hits that the capsule has.
    pub hits: u64,
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Bytes(Vec<u8>),
        }
        match Either::deserialize(deserializer) {
            Ok(Either::Text(text)) => Ok(Text(text.into_bytes())),
            Ok(Either::Bytes(bytes)) => Ok(Text(bytes)),
            Err(_) => Err(D::Error::custom("neither a string nor bytes")),
        }
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_false(value: &bool) -> bool {
    !value
}
