// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where functions of a file are left, a line each: the offsets of their returns and of the jumps
//! behind which returns are not seen, or why these are not known. To be held against objdump.
//!
//!   exits FILE [NAME...]

use nsprobe_probes::{plan, DebugFiles, ProbeQuery, Refused, Sink};
use nsprobe_spec::Spec;
use nsprobe_symbolize::{Binary, DebugSet};
use std::error::Error;
use std::fs::File;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("usage: exits FILE [NAME...]")?;
    let path = Path::new(&path);
    let binary = Binary::open(File::open(path)?, path)?;
    let mut names: Vec<String> = words.collect();
    if names.is_empty() {
        let functions = binary.functions().iter();
        names.extend(functions.map(|function| function.name.to_string()));
        names.sort();
        names.dedup();
    }
    for name in names {
        match exits(&binary, path, &name) {
            Ok(lines) => lines.iter().for_each(|line| println!("{line}")),
            Err(why) => println!("{name}: {why}"),
        }
    }
    Ok(())
}

fn exits(binary: &Binary, path: &Path, name: &str) -> Result<Vec<String>, String> {
    let query = ProbeQuery {
        spec: Spec::parse(name).map_err(|error| error.to_string())?,
        typed: name.to_owned(),
        path: path.display().to_string(),
        sink: Sink::Record,
        at_return: true,
        max_probes: usize::MAX,
        inlined: false,
        exact: false,
        fast_nops: false,
        changes: Vec::new(),
        return_probes: false,
        force: false,
    };
    let files = DebugFiles {
        set: &DebugSet::default(),
        notes: &[],
    };
    let found = plan(binary, Some(files), &query).map_err(|refused| match refused {
        Refused::Because(why) => why.join(": "),
        other => format!("{other:?}"),
    })?;
    let lines = found.probes.iter().map(|probe| {
        let exits = probe.exits.iter();
        let returns = exits.clone().flat_map(|exits| &exits.returns);
        let returns: Vec<String> = returns.map(|place| format!("{:#x}", place.0)).collect();
        let left = exits.flat_map(|exits| &exits.left);
        let left = left.map(|(place, decides)| match decides {
            Some(_) => format!("{:#x}?", place.0),
            None => format!("{:#x}", place.0),
        });
        let left: Vec<String> = left.collect();
        let (returns, left) = (returns.join(" "), left.join(" "));
        format!("{}: returns [{returns}], left [{left}]", probe.function)
    });
    Ok(lines.collect())
}
