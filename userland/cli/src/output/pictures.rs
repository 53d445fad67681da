// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counted stacks as profiles for other tools, from a run as from a capsule.

mod file;

pub(crate) use file::{outputs, PictureFile};

use crate::output::columns::shortened;
use crate::output::text;
use libnsprobe::common::record::{Frame, StackEnd};
use libnsprobe::TableRow;
use nsprobe_profile::{CodeFile, CodePlace, Measure, Profile, Sample, SourcePoint};
use nsprobe_text::escaped;
use nsprobe_trace::hits::view::{is_doubtful, FrameView};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most characters of a title.
const TITLE: usize = 100;

/// The keys and the time of counted stacks.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The words of the command that has counted them.
    pub(crate) command: Vec<String>,
    /// In nanoseconds since 1970.
    pub(crate) start_unix_ns: u64,
    pub(crate) elapsed: Duration,
}

impl About {
    /// This command, which began so long ago.
    pub(crate) fn this_command(elapsed: Duration) -> About {
        let words = std::env::args_os();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let start = now.unwrap_or_default().saturating_sub(elapsed);
        About {
            command: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            start_unix_ns: start.as_nanos() as u64,
            elapsed,
        }
    }
}

/// Meaning of the numbers of rows.
#[derive(Clone, Debug)]
pub(crate) enum Numbers {
    /// Number of calls.
    Calls,
    /// Number of calls, and the sum of this.
    Sum(String),
    /// Number of samples of a CPU, at this period in nanoseconds.
    Cpu { period_ns: u64 },
    /// Number of waits, and their nanoseconds.
    Waits,
    /// Blocks of memory and their bytes, as heap profiles of Go name them.
    Allocated,
}

impl Numbers {
    fn measures(&self) -> Vec<Measure> {
        let measure = |kind: &str, unit: &str| Measure {
            kind: kind.to_owned(),
            unit: unit.to_owned(),
        };
        match self {
            Numbers::Calls => vec![measure("calls", "count")],
            Numbers::Allocated => vec![
                measure("inuse_objects", "count"),
                measure("inuse_space", "bytes"),
            ],
            Numbers::Waits => vec![measure("waits", "count"), measure("off_cpu", "nanoseconds")],
            Numbers::Sum(name) => vec![measure("calls", "count"), measure(name, "count")],
            Numbers::Cpu { .. } => {
                vec![measure("samples", "count"), measure("cpu", "nanoseconds")]
            }
        }
    }

    fn values(&self, row: &TableRow) -> Vec<i64> {
        let count = i64::try_from(row.count).unwrap_or(i64::MAX);
        match self {
            Numbers::Calls => vec![count],
            Numbers::Sum(_) | Numbers::Waits | Numbers::Allocated => vec![count, row.sum],
            Numbers::Cpu { period_ns } => {
                let period = i64::try_from(*period_ns).unwrap_or(i64::MAX);
                vec![count, count.saturating_mul(period)]
            }
        }
    }
}

/// A profile that is made of rows, one after the other.
pub(crate) struct RowsProfile {
    profile: Profile,
    numbers: Numbers,
    mappings: HashMap<CodeFile, usize>,
    locations: HashMap<CodePlace, usize>,
}

impl RowsProfile {
    /// Creates it without rows.
    pub(crate) fn new(about: &About, numbers: Numbers) -> RowsProfile {
        let profile = Profile {
            title: shortened(&escaped(&about.command.join(" ")).to_string(), TITLE),
            measures: numbers.measures(),
            period_ns: match numbers {
                Numbers::Cpu { period_ns } => Some(period_ns),
                _ => None,
            },
            start_unix_ns: about.start_unix_ns,
            duration_ns: about.elapsed.as_nanos() as u64,
            ..Profile::default()
        };
        RowsProfile {
            profile,
            numbers,
            mappings: HashMap::new(),
            locations: HashMap::new(),
        }
    }

    /// A row with the parts of its key and its frames, the innermost first.
    pub(crate) fn add(
        &mut self,
        keys: Vec<(String, String)>,
        frames: &[FrameView],
        row: &TableRow,
    ) {
        let numbered = frames.iter().enumerate();
        let stack = numbered
            .map(|(number, view)| self.location(view, is_doubtful(frames, number)))
            .collect();
        self.profile.samples.push(Sample {
            keys,
            stack,
            truncated: text::cut(StackEnd::from_u8(row.stack_end)).is_some(),
            values: self.numbers.values(row),
        });
    }

    /// Finishes the profile.
    pub(crate) fn finish(self) -> Profile {
        self.profile
    }

    fn location(&mut self, view: &FrameView, is_doubtful: bool) -> usize {
        let (mapping, offset) = match view.frame {
            Frame::Object { offset, .. } => (Some(self.mapping(view)), offset),
            // The kernel's have a path, as it were.
            Frame::Address { address, .. } => {
                let has_path = view.named.path.is_some();
                (has_path.then(|| self.mapping(view)), address)
            }
        };
        let location = CodePlace {
            mapping,
            offset,
            lines: lines(view, is_doubtful),
        };
        let all = &mut self.profile.locations;
        *self.locations.entry(location).or_insert_with_key(|new| {
            all.push(new.clone());
            all.len() - 1
        })
    }

    fn mapping(&mut self, view: &FrameView) -> usize {
        let path = view.named.path.as_ref();
        let mapping = CodeFile {
            path: path.map_or("?".to_owned(), |path| {
                escaped(path.as_os_str().as_encoded_bytes()).to_string()
            }),
            build_id: view.named.build_id.clone(),
        };
        let all = &mut self.profile.mappings;
        *self.mappings.entry(mapping).or_insert_with_key(|new| {
            all.push(new.clone());
            all.len() - 1
        })
    }
}

/// The functions of a frame, the innermost first.
fn lines(view: &FrameView, is_doubtful: bool) -> Vec<SourcePoint> {
    let names = text::names(view, is_doubtful);
    names
        .into_iter()
        .map(|(name, function)| SourcePoint {
            system_name: match function {
                Some(function) => escaped(&function.function).to_string(),
                None => name.clone(),
            },
            name,
            is_named: function.is_some(),
            file: function
                .and_then(|function| function.file.as_ref())
                .map(|file| escaped(file).to_string()),
            line: function.and_then(|function| function.line),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nsprobe_symbolize::SourceFrame;
    use nsprobe_trace::names::named::NamedFrame;
    use std::path::PathBuf;
    use std::rc::Rc;

    fn function(name: &str) -> SourceFrame {
        SourceFrame {
            function: name.to_owned(),
            function_offset: None,
            file: Some("/src/\u{1b}a.cc".to_owned()),
            line: Some(7),
            inlined: false,
        }
    }

    fn view(offset: u64, functions: Vec<SourceFrame>, doubtful: bool) -> FrameView {
        FrameView {
            frame: Frame::Object {
                id: 1,
                offset,
                method: 1,
            },
            named: Rc::new(NamedFrame {
                functions,
                doubtful,
                path: Some(PathBuf::from("/usr/bin/app")),
                build_id: "c0ffee".to_owned(),
                ..NamedFrame::default()
            }),
        }
    }

    fn about() -> About {
        About {
            command: vec!["nsprobe".to_owned(), "x".repeat(200) + "\n"],
            start_unix_ns: 5,
            elapsed: Duration::from_secs(2),
        }
    }

    #[test]
    fn rows_become_samples_that_share_their_places() {
        let long = "std::vector<int, std::allocator<int> >::size()";
        let frames = [
            view(0x10, vec![function(long), function("outer")], false),
            view(0x20, vec![], false),
            view(0x20, vec![], true),
        ];
        let mut rows = RowsProfile::new(&about(), Numbers::Sum("arg1".to_owned()));
        let row = TableRow {
            count: 3,
            sum: -5,
            stack_end: StackEnd::Outermost as u8,
            ..TableRow::default()
        };
        rows.add(vec![], &frames, &row);
        let cut = TableRow {
            stack_end: StackEnd::Limit as u8,
            ..row
        };
        rows.add(vec![], &frames[..2], &cut);
        let profile = rows.finish();
        assert_eq!(profile.title.chars().count(), TITLE);
        assert_eq!(profile.mappings.len(), 1);
        let names: Vec<Vec<&str>> = profile
            .locations
            .iter()
            .map(|at| at.lines.iter().map(|line| &*line.name).collect())
            .collect();
        assert_eq!(
            names,
            [
                &["std::vector<int>::size()", "outer"][..],
                &["[app+0x20]"],
                &["? [app+0x20]"]
            ]
        );
        let line = &profile.locations[0].lines[0];
        assert_eq!(line.system_name, long);
        assert_eq!(line.file.as_deref(), Some("/src/\\x1ba.cc"));
        let [first, second] = &profile.samples[..] else {
            panic!("{:?}", profile.samples)
        };
        assert_eq!((&first.stack[..], first.truncated), (&[0, 1, 2][..], false));
        assert_eq!((&second.stack[..], second.truncated), (&[0, 1][..], true));
        assert_eq!(first.values, [3, -5]);
        assert_eq!(profile.measures[1].kind, "arg1");
    }

    #[test]
    fn places_of_a_function_without_a_name_are_one_function() {
        let unnamed = |offset, start, doubtful| {
            let view = view(offset, vec![], doubtful);
            let named = NamedFrame {
                function_start: start,
                ..NamedFrame::clone(&view.named)
            };
            FrameView {
                named: Rc::new(named),
                ..view
            }
        };
        let frames = [
            unnamed(0x1a40, Some(0x1a00), false),
            unnamed(0x1a48, Some(0x1a00), false),
            unnamed(0x1a50, Some(0x1a00), true),
            unnamed(0x1b00, None, false),
        ];
        let mut rows = RowsProfile::new(&about(), Numbers::Calls);
        for frame in &frames {
            let row = TableRow {
                count: 1,
                ..TableRow::default()
            };
            rows.add(vec![], std::slice::from_ref(frame), &row);
        }
        let profile = rows.finish();
        let functions = &profile.functions(0)[0].functions;
        let own: Vec<(&str, u64)> = functions
            .iter()
            .map(|function| (function.name.as_str(), function.own))
            .collect();
        assert_eq!(
            own,
            [
                ("[app+0x1a00]", 2),
                ("? [app+0x1a00]", 1),
                ("[app+0x1b00]", 1)
            ]
        );
        // Each place is still there for those that look at instructions.
        let offsets: Vec<u64> = profile.locations.iter().map(|at| at.offset).collect();
        assert_eq!(offsets, [0x1a40, 0x1a48, 0x1a50, 0x1b00]);
    }

    #[test]
    fn samples_of_the_cpu_are_times() {
        let numbers = Numbers::Cpu {
            period_ns: 10_000_000,
        };
        let mut rows = RowsProfile::new(&about(), numbers);
        let row = TableRow {
            count: 4,
            ..TableRow::default()
        };
        rows.add(vec![], &[], &row);
        let profile = rows.finish();
        assert_eq!(profile.samples[0].values, [4, 40_000_000]);
        assert_eq!(profile.period_ns, Some(10_000_000));
        assert_eq!(profile.measures[1].unit, "nanoseconds");
    }
}
