// SPDX-License-Identifier: MIT OR Apache-2.0
//! pprof's profiles.

mod proto;

use crate::text::plain;
use crate::{CodePlace, Profile, Sample, SourcePoint};
use flate2::write::GzEncoder;
use flate2::Compression;
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::io::{Result, Write};

/// Files begin at whole pages.
const PAGE: u64 = 4096;

pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&encoded(profile).encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

fn encoded(profile: &Profile) -> proto::Profile {
    let mut tables = ProfileTables::new(profile);
    let locations = profile.locations.iter();
    locations.for_each(|location| tables.add_location(location));
    let samples = profile.samples.iter();
    let samples = samples.map(|sample| tables.sample(sample)).collect();
    let measures = profile.measures.iter();
    let sample_type: Vec<_> = measures
        .map(|measure| tables.value_type(&measure.kind, &measure.unit))
        .collect();
    let period_type = profile
        .period_ns
        .map(|_| tables.value_type("cpu", "nanoseconds"));
    proto::Profile {
        default_sample_type: sample_type.last().map_or(0, |last| last.kind),
        sample_type,
        sample: samples,
        mapping: tables.mappings,
        location: tables.locations,
        function: tables.functions,
        time_nanos: signed(profile.start_unix_ns),
        duration_nanos: signed(profile.duration_ns),
        period_type,
        period: signed(profile.period_ns.unwrap_or(0)),
        string_table: tables.strings.all,
    }
}

/// What others name by their number: strings from 0 on, all else from 1 on.
struct ProfileTables {
    strings: Strings,
    mappings: Vec<proto::Mapping>,
    /// The place in `mappings` of each mapping of the profile.
    places: Vec<usize>,
    locations: Vec<proto::Location>,
    functions: Vec<proto::Function>,
    /// Numbers of functions, by their names and their file.
    known: HashMap<[i64; 3], u64>,
    /// Numbers of the frames that are no locations of the profile.
    around: HashMap<&'static str, u64>,
}

impl ProfileTables {
    /// With all mappings. Each file lies after the one before, as though all of it was mapped:
    /// an address minus its mapping's start is the offset in the file.
    fn new(profile: &Profile) -> ProfileTables {
        let mut ends = vec![0; profile.mappings.len()];
        for location in &profile.locations {
            if let Some(end) = location.mapping.and_then(|at| ends.get_mut(at)) {
                *end = location.offset.saturating_add(1).max(*end);
            }
        }
        let mut strings = Strings::new();
        let mut start = PAGE;
        let mut mappings = Vec::new();
        let mut places = vec![0; profile.mappings.len()];
        for at in program_first(profile) {
            let (Some(mapping), Some(end)) = (profile.mappings.get(at), ends.get(at).copied())
            else {
                continue;
            };
            if let Some(place) = places.get_mut(at) {
                *place = mappings.len();
            }
            let own = profile.locations.iter();
            let lines = own.filter(|location| location.mapping == Some(at));
            let lines: Vec<&SourcePoint> = lines.flat_map(|location| &location.lines).collect();
            let has_files = lines.iter().any(|line| line.file.is_some());
            let limit = start.saturating_add(
                end.max(1)
                    .checked_next_multiple_of(PAGE)
                    .unwrap_or(u64::MAX),
            );
            mappings.push(proto::Mapping {
                id: mappings.len() as u64 + 1,
                memory_start: start,
                memory_limit: limit,
                file_offset: 0,
                filename: strings.number(&mapping.path),
                build_id: strings.number(&mapping.build_id),
                has_functions: lines.iter().any(|line| line.is_named),
                has_filenames: has_files,
                has_line_numbers: lines.iter().any(|line| line.line.is_some()),
                has_inline_frames: has_files,
            });
            start = limit;
        }
        ProfileTables {
            strings,
            mappings,
            places,
            locations: Vec::new(),
            functions: Vec::new(),
            known: HashMap::new(),
            around: HashMap::new(),
        }
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            kind: self.strings.number(kind),
            unit: self.strings.number(unit),
        }
    }

    fn add_location(&mut self, location: &CodePlace) {
        let place = location.mapping.and_then(|at| self.places.get(at));
        let mapping = place.and_then(|place| self.mappings.get(*place));
        let (mapping_id, start) = mapping.map_or((0, 0), |found| (found.id, found.memory_start));
        let lines = location.lines.iter().map(|line| self.line(line)).collect();
        self.locations.push(proto::Location {
            id: self.locations.len() as u64 + 1,
            mapping_id,
            address: start.saturating_add(location.offset),
            line: lines,
        });
    }

    fn line(&mut self, line: &SourcePoint) -> proto::Line {
        let name = self.strings.number(&line.name);
        // pprof takes one that is the same for mangled, and cuts what is in brackets off the name.
        let system_name = match line.system_name == line.name {
            true => 0,
            false => self.strings.number(&line.system_name),
        };
        let filename = self.strings.number(line.file.as_deref().unwrap_or(""));
        let next = self.functions.len() as u64 + 1;
        let known = self.known.entry([name, system_name, filename]);
        let function_id = *known.or_insert(next);
        if function_id == next {
            self.functions.push(proto::Function {
                id: next,
                name,
                system_name,
                filename,
            });
        }
        proto::Line {
            function_id,
            line: line.line.map_or(0, i64::from),
        }
    }

    fn sample(&mut self, sample: &Sample) -> proto::Sample {
        let innermost_first = sample.stack.iter().map(|at| *at as u64 + 1);
        let mut location_id: Vec<u64> = innermost_first.collect();
        location_id.extend(Profile::around(sample).map(|name| self.around(name)));
        let keys = sample.keys.iter();
        let label = keys.map(|(name, value)| proto::Label {
            key: self.strings.number(name),
            text: self.strings.number(value),
        });
        proto::Sample {
            location_id,
            value: sample.values.clone(),
            label: label.collect(),
        }
    }

    /// The number of a frame that is none of the profile's locations.
    fn around(&mut self, name: &'static str) -> u64 {
        if let Some(known) = self.around.get(name) {
            return *known;
        }
        self.add_location(&CodePlace {
            lines: vec![SourcePoint {
                name: name.to_owned(),
                system_name: name.to_owned(),
                ..SourcePoint::default()
            }],
            ..CodePlace::default()
        });
        let id = self.locations.len() as u64;
        self.around.insert(name, id);
        id
    }
}

/// The mappings of a profile, the program that most samples are of in front: pprof takes the first
/// for what the profile is of.
fn program_first(profile: &Profile) -> Vec<usize> {
    let mut weights = vec![0u64; profile.mappings.len()];
    for sample in &profile.samples {
        let locations = sample.stack.iter();
        let locations = locations.filter_map(|at| profile.locations.get(*at));
        let mappings: HashSet<usize> = locations.filter_map(|one| one.mapping).collect();
        for at in mappings {
            if let Some(weight) = weights.get_mut(at) {
                *weight = weight.saturating_add(Profile::weight(sample));
            }
        }
    }
    let is_program = |at: &usize| {
        let path = profile.mappings.get(*at).map_or("", |one| &one.path);
        let name = path.rsplit('/').next().unwrap_or(path);
        path.starts_with('/') && !name.contains(".so")
    };
    let all = 0..profile.mappings.len();
    // Of equal ones the first.
    let weight = |at: &usize| weights.get(*at).copied().unwrap_or(0);
    let program = all.clone().rev().filter(is_program).max_by_key(weight);
    program
        .into_iter()
        .chain(all.filter(|at| Some(*at) != program))
        .collect()
}

/// Strings, each once; the first one is empty.
struct Strings {
    all: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Strings {
        let mut strings = Strings {
            all: Vec::new(),
            numbers: HashMap::new(),
        };
        strings.number("");
        strings
    }

    fn number(&mut self, text: &str) -> i64 {
        let text = plain(text).into_owned();
        let next = self.all.len() as i64;
        *self.numbers.entry(text).or_insert_with_key(|text| {
            self.all.push(text.clone());
            next
        })
    }
}

/// As these files have their numbers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use std::io::Read;

    fn decoded(profile: &Profile) -> proto::Profile {
        let mut out = Vec::new();
        write(profile, &mut out).expect("it takes all");
        let mut bytes = Vec::new();
        let mut gzip = flate2::read::GzDecoder::new(out.as_slice());
        gzip.read_to_end(&mut bytes).expect("it is gzip");
        proto::Profile::decode(bytes.as_slice()).expect("it is a profile")
    }

    fn text(of: &proto::Profile, number: i64) -> &str {
        &of.string_table[number as usize]
    }

    /// The functions of a location, the innermost first, with their files and lines.
    fn functions(of: &proto::Profile, location: u64) -> Vec<String> {
        let lines = of.location[location as usize - 1].line.iter();
        let function = |line: &proto::Line| {
            let function = &of.function[line.function_id as usize - 1];
            assert_eq!(function.id, line.function_id);
            let (name, file) = (text(of, function.name), text(of, function.filename));
            format!("{name} {file}:{}", line.line)
        };
        lines.map(function).collect()
    }

    #[test]
    fn stacks_have_locations_functions_and_labels() {
        let got = decoded(&sample::profile());
        assert_eq!(text(&got, 0), "");
        let [measure] = got.sample_type[..] else {
            panic!("{:?}", got.sample_type)
        };
        assert_eq!(
            (text(&got, measure.kind), text(&got, measure.unit)),
            ("calls", "count")
        );
        assert_eq!(got.default_sample_type, measure.kind);
        let stacks: Vec<_> = got
            .sample
            .iter()
            .map(|sample| (&sample.location_id[..], sample.value[0]))
            .collect();
        assert_eq!(
            stacks,
            [
                (&[1, 2, 3][..], 100),
                (&[1, 2, 5], 40),
                (&[4, 1, 2, 3], 3),
                (&[6], 5),
                (&[3], 0)
            ]
        );
        let [label] = got.sample[0].label[..] else {
            panic!("{:?}", got.sample)
        };
        assert_eq!(
            (text(&got, label.key), text(&got, label.text)),
            ("container", "web; 1")
        );
        assert_eq!(
            functions(&got, 2),
            ["read<a, b> /src/read.h:7", "serve /src/app.c:30"]
        );
        assert_eq!(functions(&got, 4), ["[app+0x40] :0"]);
        assert_eq!(functions(&got, 5), ["[truncated] :0"]);
        assert_eq!(functions(&got, 6), ["[unknown] :0"]);
        assert_eq!(text(&got, got.function[0].system_name), "long parse 7");
        let truncated = got.location[4].line[0].function_id;
        assert_eq!(got.function[truncated as usize - 1].system_name, 0);
        assert_eq!(
            (got.time_nanos, got.duration_nanos),
            (1_800_000_000_000_000_000, 2_500_000_000)
        );
        assert_eq!((&got.period_type, got.period), (&None, 0));
    }

    #[test]
    fn addresses_are_offsets_in_their_files() {
        let got = decoded(&sample::profile());
        let names: Vec<_> = got
            .mapping
            .iter()
            .map(|mapping| (text(&got, mapping.filename), text(&got, mapping.build_id)))
            .collect();
        assert_eq!(
            names,
            [("/usr/bin/app", "00c0ffee"), ("/lib/\\x0ac.so", "00c0ffee")]
        );
        assert!(got.mapping[0].memory_limit <= got.mapping[1].memory_start);
        for (location, offset) in got.location.iter().zip([0x1000, 0x2000, 0x3000]) {
            let mapping = &got.mapping[location.mapping_id as usize - 1];
            assert_eq!(mapping.id, location.mapping_id);
            assert_eq!(location.address - mapping.memory_start, offset);
            assert!(location.address < mapping.memory_limit);
        }
        let last = &got.location[3];
        assert_eq!((last.mapping_id, last.address), (0, 0x7f00));
    }

    #[test]
    fn the_program_is_the_first_mapping_and_flags_are_those_of_its_file() {
        let mut profile = sample::profile();
        profile.mappings.reverse();
        for location in &mut profile.locations {
            location.mapping = location.mapping.map(|at| 1 - at);
        }
        let got = decoded(&profile);
        let first = &got.mapping[0];
        assert_eq!(text(&got, first.filename), "/usr/bin/app");
        assert_eq!(got.location[0].mapping_id, first.id);
        let flags = |of: &proto::Mapping| [of.has_functions, of.has_filenames, of.has_line_numbers];
        assert_eq!(flags(first), [true; 3]);
        assert_eq!(flags(&got.mapping[1]), [true, false, false]);
    }

    #[test]
    fn a_profile_of_the_cpu_has_its_period() {
        let got = decoded(&sample::cpu());
        let kinds: Vec<_> = got
            .sample_type
            .iter()
            .map(|measure| (text(&got, measure.kind), text(&got, measure.unit)))
            .collect();
        assert_eq!(kinds, [("samples", "count"), ("cpu", "nanoseconds")]);
        assert_eq!(text(&got, got.default_sample_type), "cpu");
        assert_eq!(got.period_type, Some(got.sample_type[1]));
        assert_eq!(got.period, 10_000_000);
        assert_eq!(got.sample[0].value, [2, 20_000_000]);
    }

    #[test]
    fn hostile_offsets_do_no_harm() {
        let mut profile = sample::profile();
        profile.locations[0].offset = u64::MAX;
        let got = decoded(&profile);
        assert_eq!(got.mapping[0].memory_limit, u64::MAX);
    }
}
