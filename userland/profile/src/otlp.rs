// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenTelemetry's profiles (`opentelemetry/proto/profiles/v1development/profiles.proto`, which is
//! not stable yet): what a collector takes.
//!
//! A profile for each resource: for each container, and one for what is in none. Functions have the
//! names that are known; a place without one is the build-id of its file and an address, for a backend
//! that looks it up.

use crate::attributes::{attribute_value, attributes, resource_attributes, Attributes};
use crate::text::plain;
use crate::{CodePlace, Measure, Profile, Sample, SourcePoint};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io::{Result, Write};

/// What the kernel's code has for a path.
const KERNEL: &str = "[kernel]";

pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> Result<()> {
    out.write_all(&otlp_profiles(profile, None).encode_to_vec())
}

/// The stacks of a profile as those of a machine: a collector's request has the same fields.
pub fn otlp_profiles(profile: &Profile, host: Option<&str>) -> proto::ProfilesData {
    let mut tables = Tables::default();
    let locations = profile.locations.iter();
    let locations: Vec<i32> = locations.map(|at| tables.location(profile, at)).collect();
    let mut resources: BTreeMap<Attributes, Vec<proto::Sample>> = BTreeMap::new();
    for sample in &profile.samples {
        let (of_resource, own) = attributes(&sample.keys);
        let sample = tables.sample(sample, &own, &locations);
        resources.entry(of_resource).or_default().push(sample);
    }
    let resource_profiles = resources.into_iter().map(|(of_resource, samples)| {
        let scope = InstrumentationScope {
            name: "nsprobe".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        proto::ResourceProfiles {
            resource: Some(Resource {
                attributes: resource_attributes(host, &of_resource),
                ..Resource::default()
            }),
            scope_profiles: vec![proto::ScopeProfiles {
                scope: Some(scope),
                profiles: vec![tables.profile(profile, samples)],
                ..proto::ScopeProfiles::default()
            }],
            ..proto::ResourceProfiles::default()
        }
    });
    proto::ProfilesData {
        resource_profiles: resource_profiles.collect(),
        dictionary: Some(tables.dictionary()),
    }
}

/// Things that others name by their numbers; the first one is nothing.
struct Numbered<K> {
    numbers: HashMap<K, i32>,
    next: i32,
}

impl<K> Default for Numbered<K> {
    fn default() -> Numbered<K> {
        Numbered {
            numbers: HashMap::new(),
            next: 1,
        }
    }
}

impl<K: Eq + Hash> Numbered<K> {
    /// Its number, and whether it is new.
    fn number(&mut self, key: K) -> (i32, bool) {
        let next = self.next;
        let number = *self.numbers.entry(key).or_insert(next);
        self.next += i32::from(number == next);
        (number, number == next)
    }
}

#[derive(Default)]
struct Tables {
    strings: (Numbered<String>, Vec<String>),
    mappings: (Numbered<usize>, Vec<proto::Mapping>),
    functions: (Numbered<[i32; 3]>, Vec<proto::Function>),
    attributes: (Numbered<(String, String)>, Vec<proto::KeyValueAndUnit>),
    stacks: (Numbered<Vec<i32>>, Vec<proto::Stack>),
    locations: Vec<proto::Location>,
    /// Locations of frames that are no places in code.
    around: HashMap<&'static str, i32>,
}

impl Tables {
    fn string(&mut self, value: &str) -> i32 {
        if value.is_empty() {
            return 0;
        }
        let value = plain(value).into_owned();
        let (number, is_new) = self.strings.0.number(value.clone());
        if is_new {
            self.strings.1.push(value);
        }
        number
    }

    fn attribute(&mut self, name: &str, value: &str) -> i32 {
        let key = (name.to_owned(), value.to_owned());
        let (number, is_new) = self.attributes.0.number(key);
        if is_new {
            let key_strindex = self.string(name);
            self.attributes.1.push(proto::KeyValueAndUnit {
                key_strindex,
                value: Some(attribute_value(name, value)),
                unit_strindex: 0,
            });
        }
        number
    }

    /// The file of a place. Offsets in it are the addresses of its places.
    fn mapping(&mut self, profile: &Profile, at: usize) -> i32 {
        let (number, is_new) = self.mappings.0.number(at);
        let Some(file) = profile.mappings.get(at).filter(|_| is_new) else {
            return number;
        };
        let filename_strindex = self.string(&file.path);
        let attribute_indices = match file.build_id.as_str() {
            "" => Vec::new(),
            id => vec![self.attribute("process.executable.build_id.gnu", id)],
        };
        self.mappings.1.push(proto::Mapping {
            filename_strindex,
            attribute_indices,
            ..proto::Mapping::default()
        });
        number
    }

    fn function(&mut self, line: &SourcePoint) -> i32 {
        let name_strindex = self.string(&line.name);
        let system_name_strindex = match line.system_name == line.name {
            true => 0,
            false => self.string(&line.system_name),
        };
        let filename_strindex = self.string(line.file.as_deref().unwrap_or(""));
        let key = [name_strindex, system_name_strindex, filename_strindex];
        let (number, is_new) = self.functions.0.number(key);
        if is_new {
            self.functions.1.push(proto::Function {
                name_strindex,
                system_name_strindex,
                filename_strindex,
                start_line: 0,
            });
        }
        number
    }

    fn location(&mut self, profile: &Profile, place: &CodePlace) -> i32 {
        let path = place.mapping.and_then(|at| profile.mappings.get(at));
        let kind = path.map(|file| match file.path.as_str() {
            KERNEL => "kernel",
            _ => "native",
        });
        let kind = kind.map(|kind| self.attribute("profile.frame.type", kind));
        let named = place.lines.iter().filter(|line| line.is_named);
        let lines = named.map(|line| proto::Line {
            function_index: self.function(line),
            line: line.line.map_or(0, i64::from),
            column: 0,
        });
        let lines = lines.collect();
        let mapping_index = place.mapping.map_or(0, |at| self.mapping(profile, at));
        self.add(proto::Location {
            mapping_index,
            address: place.offset,
            lines,
            attribute_indices: kind.into_iter().collect(),
        })
    }

    fn add(&mut self, location: proto::Location) -> i32 {
        self.locations.push(location);
        self.locations.len() as i32
    }

    /// The location of a frame that is no place in code.
    fn around(&mut self, name: &'static str) -> i32 {
        if let Some(known) = self.around.get(name) {
            return *known;
        }
        let function_index = self.function(&SourcePoint {
            name: name.to_owned(),
            system_name: name.to_owned(),
            ..SourcePoint::default()
        });
        let location = self.add(proto::Location {
            lines: vec![proto::Line {
                function_index,
                ..proto::Line::default()
            }],
            ..proto::Location::default()
        });
        self.around.insert(name, location);
        location
    }

    fn sample(&mut self, sample: &Sample, own: &Attributes, locations: &[i32]) -> proto::Sample {
        let stack = sample.stack.iter().filter_map(|at| locations.get(*at));
        let mut stack: Vec<i32> = stack.copied().collect();
        stack.extend(Profile::around(sample).map(|name| self.around(name)));
        let (stack_index, is_new) = self.stacks.0.number(stack.clone());
        if is_new {
            self.stacks.1.push(proto::Stack {
                location_indices: stack,
            });
        }
        let attributes = own.iter();
        proto::Sample {
            stack_index,
            values: sample.values.last().copied().into_iter().collect(),
            attribute_indices: attributes
                .map(|(name, value)| self.attribute(name, value))
                .collect(),
            ..proto::Sample::default()
        }
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            type_strindex: self.string(kind),
            unit_strindex: self.string(unit),
        }
    }

    fn profile(&mut self, profile: &Profile, samples: Vec<proto::Sample>) -> proto::Profile {
        let last = profile.measures.last();
        let sample_type = last.map(|Measure { kind, unit }| self.value_type(kind, unit));
        let period_type = profile
            .period_ns
            .map(|_| self.value_type("cpu", "nanoseconds"));
        proto::Profile {
            sample_type,
            samples,
            time_unix_nano: profile.start_unix_ns,
            duration_nano: profile.duration_ns,
            period_type,
            period: profile
                .period_ns
                .map_or(0, |ns| i64::try_from(ns).unwrap_or(i64::MAX)),
            ..proto::Profile::default()
        }
    }

    fn dictionary(self) -> proto::ProfilesDictionary {
        proto::ProfilesDictionary {
            mapping_table: after_nothing(self.mappings.1),
            location_table: after_nothing(self.locations),
            function_table: after_nothing(self.functions.1),
            link_table: after_nothing(Vec::new()),
            string_table: after_nothing(self.strings.1),
            attribute_table: after_nothing(self.attributes.1),
            stack_table: after_nothing(self.stacks.1),
        }
    }
}

/// What is there, after what stands for nothing.
fn after_nothing<T: Default>(all: Vec<T>) -> Vec<T> {
    [T::default()].into_iter().chain(all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn each_container_has_a_profile_and_all_share_the_dictionary() {
        let profile = sample::profile();
        let data = otlp_profiles(&profile, Some("host"));
        let dictionary = data.dictionary.as_ref().expect("a dictionary");
        assert_eq!(dictionary.string_table[0], "");
        assert_eq!(dictionary.mapping_table[0], proto::Mapping::default());
        let all = data.resource_profiles.iter();
        let sums: Vec<(usize, i64)> = all
            .map(|one| {
                let attributes = &one.resource.as_ref().expect("a resource").attributes;
                let samples = &one.scope_profiles[0].profiles[0].samples;
                let sum = samples.iter().map(|sample| sample.values[0]).sum();
                (attributes.len(), sum)
            })
            .collect();
        let total: i64 = profile.samples.iter().map(|one| one.values[0]).sum();
        assert_eq!(sums.iter().map(|(_, sum)| sum).sum::<i64>(), total);
        // One of them has the name of a container besides.
        assert!(sums.iter().any(|(count, _)| *count == 3), "{sums:?}");
        let name = |index: i32| dictionary.string_table[index as usize].as_str();
        let mut places = dictionary.location_table.iter();
        let place = places.find(|place| place.mapping_index != 0 && !place.lines.is_empty());
        let place = place.expect("a place with a file and a name");
        let function = &dictionary.function_table[place.lines[0].function_index as usize];
        assert!(!name(function.name_strindex).is_empty());
        let file = &dictionary.mapping_table[place.mapping_index as usize];
        assert!(name(file.filename_strindex).starts_with('/'));
        let id = &dictionary.attribute_table[file.attribute_indices[0] as usize];
        assert_eq!(name(id.key_strindex), "process.executable.build_id.gnu");
    }
}
