// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads from a capsule what output needs, as from a session.

pub mod convert;
mod generated_code;
mod places;

pub use places::CapsulePlaces;

use crate::hits::label::ProbeLabel;
use crate::hits::lookup::{Lookup, NameFrames, Rest};
use crate::hits::view::FrameView;
use crate::names::address_names::AddressNames;
use crate::names::jit::Moment;
use crate::names::named::{bare_address, in_kernel, without_object, NamedFrame};
use crate::placeless::Placeless;
use crate::summary::Summary;
use crate::tasks::Place;
use anyhow::{bail, Context};
use convert::named;
use generated_code::GeneratedNames;
use libnsprobe::common::record::{
    CodeMapping, Frame, Frames, Hit, Method, StackCopy, StackEnd, Unmapped,
};
use nsprobe_capsule::{CapsuleReader, Contents, RestKey};
use nsprobe_symbolize::KernelSymbol;
use nsprobe_text::{counted, escaped};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

/// Damages that are listed one by one.
const DAMAGES_SHOWN: usize = 10;

/// A capsule that was read, but for its records.
pub struct Capsule {
    /// Its records.
    pub reader: CapsuleReader<File>,
    /// All else.
    pub contents: Contents,
}

impl Capsule {
    /// Reads a capsule. Damages go to standard error.
    pub fn open(path: &Path) -> anyhow::Result<Capsule> {
        Capsule::read(open_regular(path, OpenOptions::new().read(true))?, path)
    }

    /// Reads an open one.
    pub fn read(file: File, path: &Path) -> anyhow::Result<Capsule> {
        let read = || {
            let mut reader = CapsuleReader::new(file)?;
            let contents = Contents::read(&mut reader)?;
            Ok::<_, nsprobe_capsule::CapsuleError>(Capsule { reader, contents })
        };
        let capsule = read().with_context(|| format!("cannot read {}", path.display()))?;
        capsule.tell_damages(path);
        Ok(capsule)
    }

    /// Whether the recording is complete.
    pub fn is_whole(&self) -> bool {
        self.contents.damages.is_empty() && self.contents.end.is_some()
    }

    /// Whether it was recorded without a PROBE: there are no hits, but tasks.
    pub fn is_of_tasks(&self) -> bool {
        let contents = &self.contents;
        contents.header.is_some() && contents.probes.is_empty() && contents.hits == 0
    }

    /// Fails when it was recorded without a PROBE.
    pub fn require_hits(&self, path: &Path) -> anyhow::Result<()> {
        if self.is_of_tasks() {
            bail!(
                "{} has no hits: it was recorded without a PROBE; `nsprobe info` shows its tasks, \
                 `nsprobe export ctf` all that they did",
                path.display()
            );
        }
        Ok(())
    }

    /// What its hits are, if none has a place in a file.
    pub fn placeless(&self) -> Option<Placeless> {
        Placeless::of_all(self.labels().iter().map(ProbeLabel::placeless))
    }

    /// Whether stacks were taken.
    pub fn has_stacks(&self) -> bool {
        self.contents
            .header
            .as_ref()
            .is_some_and(|header| header.stack)
    }

    /// When the first hit could come.
    pub fn start_ns(&self) -> u64 {
        self.contents
            .header
            .as_ref()
            .map_or(0, |header| header.start_ns)
    }

    /// Labels of its probes.
    pub fn labels(&self) -> Vec<ProbeLabel> {
        let mut symbols: HashMap<u32, HashMap<u64, String>> = HashMap::new();
        for ((probe, address), name) in &self.contents.symbols {
            let of_probe = symbols.entry(*probe).or_default();
            of_probe.insert(*address, name.clone());
        }
        let probes = self.contents.probes.iter();
        let label = |probe| {
            let mut label = convert::label(probe);
            let names = symbols.remove(&probe.id);
            label.symbols = names.map(|names| Rc::new(names) as Rc<dyn AddressNames>);
            label
        };
        probes.map(label).collect()
    }

    /// Totals of the recording; `None` if it was cut off.
    pub fn summary(&self) -> Option<Summary> {
        let summary = self.contents.summary.as_ref()?;
        Some(convert::summary(summary, &self.labels(), self.has_stacks()))
    }

    /// Reports what is wrong with it besides its damages, and what it had no room for; returns
    /// whether everything that was written is there.
    pub fn tell_missing(&self) -> bool {
        let contents = &self.contents;
        let Some(summary) = &contents.summary else {
            let (what, has) = match self.is_of_tasks() {
                true => ("events", String::new()),
                false => (
                    "hits",
                    format!("; it has {}", counted(contents.hits, "hit")),
                ),
            };
            say(&format!(
                "the recording did not end orderly: its last {what} may be missing, and how many \
                 is not known{has}"
            ));
            return false;
        };
        for (count, what) in [
            (summary.unwritten, "hit"),
            (summary.unwritten_tasks, "task event"),
        ] {
            if count > 0 {
                let count = counted(count, what);
                say(&format!("{count} not in the capsule: there was no room"));
            }
        }
        let there = summary.received.saturating_sub(summary.unwritten);
        if contents.hits != there {
            say(&format!(
                "{} written, but {} in the capsule",
                counted(there, "hit"),
                contents.hits
            ));
        } else if contents.end.is_none() {
            say("the recording did not end orderly: its end is missing");
        }
        contents.hits == there && self.is_whole()
    }

    /// Reports how to name places that were recorded without names; except in `--json`, their
    /// frames say so themselves.
    pub fn tell_unrecorded(&self, path: &Path, is_quiet: bool) {
        let contents = &self.contents;
        let places = contents.places.iter();
        let unrecorded = places.filter(|place| !contents.names.contains_key(place));
        let count = unrecorded.count();
        if count > 0 && !is_quiet {
            say(&format!(
                "{} without a recorded name: `nsprobe symbolize --capsule {}` finds names in the \
                 files",
                counted(count, "place"),
                path.display()
            ));
        }
    }

    fn tell_damages(&self, path: &Path) {
        let damages = &self.contents.damages;
        let path = path.display();
        for damage in damages.iter().take(DAMAGES_SHOWN) {
            say(&format!("{path}: {damage}"));
        }
        if let Some(more @ 1..) = damages.len().checked_sub(DAMAGES_SHOWN) {
            say(&format!(
                "{path}: and {} like these",
                counted(more, "more place")
            ));
        }
    }
}

/// Prints what is wrong, as all errors.
fn say(text: &str) {
    eprintln!("nsprobe: {}", escaped(text));
}

/// Opens a regular file, and nothing else: a named pipe would make us wait.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> anyhow::Result<File> {
    let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let opened = options.custom_flags(nonblocking).open(path);
    let file = opened.with_context(|| format!("cannot open {}", path.display()))?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() {
            "a directory"
        } else {
            "no regular file"
        };
        bail!("{} is {what}", path.display());
    }
    Ok(file)
}

impl AddressNames for HashMap<u64, String> {
    fn name_at(&self, address: u64) -> Option<String> {
        self.get(&address).cloned()
    }
}

/// Answers from a capsule.
pub struct Offline<'a> {
    contents: &'a Contents,
    names: HashMap<(u32, u64, bool), Rc<NamedFrame>>,
    generated: GeneratedNames<'a>,
    /// By the address after a frame's instruction.
    kernel: HashMap<u64, KernelSymbol>,
    places: CapsulePlaces,
    finished: u64,
}

impl<'a> Offline<'a> {
    /// Answers from this one.
    pub fn new(contents: &'a Contents) -> Offline<'a> {
        let kernel = contents.kernel.values();
        Offline {
            contents,
            names: HashMap::new(),
            generated: GeneratedNames::new(&contents.generated),
            kernel: kernel
                .map(|name| (name.address, convert::kernel_symbol(name)))
                .collect(),
            places: CapsulePlaces::new(&contents.containers),
            finished: 0,
        }
    }
}

impl Offline<'_> {
    /// The place of the hit's thread at that time; `None` if unknown.
    pub fn place(&self, hit: &Hit) -> Option<Place> {
        self.places.of_hit(self.contents, hit)
    }

    /// A frame of a hit that can be named without it: generated code is its process's own.
    pub fn settled(&mut self, frame: Frame, hit: &Hit) -> Frame {
        self.generated.settled(frame, Moment::of(hit))
    }
}

impl NameFrames for Offline<'_> {
    fn name(&mut self, frame: Frame) -> Rc<NamedFrame> {
        if let Some((address, exact)) = bare_address(&frame, Unmapped::Kernel) {
            return Rc::new(in_kernel(address, self.kernel(address, exact)));
        }
        let key = match frame {
            Frame::Object { id, offset, method } => (id, offset, Method::is_exact(method)),
            Frame::Address { why, .. } => return Rc::new(without_object(why)),
        };
        let contents = self.contents;
        let known = self.names.entry(key);
        let name = known.or_insert_with(|| {
            let object = contents.objects.get(&key.0);
            Rc::new(named(object, contents.names.get(&key)))
        });
        Rc::clone(name)
    }

    fn name_at(&mut self, frame: Frame, moment: Moment) -> Rc<NamedFrame> {
        let generated = self.generated.name(&frame, moment);
        generated.unwrap_or_else(|| self.name(frame))
    }

    fn view(&mut self, frame: Frame) -> FrameView {
        let settled = self.generated.view(&frame);
        settled.unwrap_or_else(|| FrameView {
            frame,
            named: self.name(frame),
        })
    }
}

impl Lookup for Offline<'_> {
    fn stack(&mut self, id: u32) -> Option<Rc<[u64]>> {
        self.contents
            .stacks
            .get(&id)
            .map(|words| Rc::from(&**words))
    }

    fn rest(&mut self, hit: &Hit, _count: usize) -> Rest {
        let Some((end, words)) = self.contents.rests.get(&rest_key(hit)) else {
            return Rest::Unknown;
        };
        self.finished += 1;
        match StackEnd::from_u8(*end) {
            Some(end) => Rest::Known(Frames(words).collect(), end),
            None => Rest::Unknown,
        }
    }

    fn note_copy(&mut self, _: &StackCopy, _: &[CodeMapping], _: &[u64]) {}

    fn kernel(&self, address: u64, exact: bool) -> Option<&KernelSymbol> {
        self.kernel.get(&address.wrapping_add(exact.into()))
    }

    fn finished(&self) -> u64 {
        self.finished
    }

    fn container(&mut self, hit: &Hit) -> Option<String> {
        let place = self.place(hit)?;
        place.known().map(|known| known.name.clone())
    }
}

/// The key of a hit.
pub(crate) fn rest_key(hit: &Hit) -> RestKey {
    RestKey {
        time_ns: hit.time_ns,
        tid: hit.tid,
        probe: hit.probe,
    }
}
