// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe list`: the functions of a binary that can be probed.

use crate::args::ListPlan;
use crate::json;
use crate::probes;
use crate::target::Target;
use anyhow::bail;
use nsprobe_symbolize::{escaped, Binary, Function, FunctionKind};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

#[derive(Serialize)]
struct FunctionLine<'a> {
    r#type: &'static str,
    binary: String,
    name: String,
    symbol: &'a str,
    file_offset: String,
    size: u64,
}

/// Lists.
pub(crate) fn run(plan: &ListPlan) -> anyhow::Result<ExitCode> {
    let target = Target::find(&plan.who)?;
    target.within(list(plan, &target))?;
    Ok(ExitCode::SUCCESS)
}

fn list(plan: &ListPlan, target: &Target) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for opened in target.open(&plan.spec.binary)? {
        let (_, binary) = probes::read(opened.file, &opened.path)?;
        let functions = find(&binary, &opened.path, plan.spec.pattern.as_deref())?;
        for function in functions {
            print(&mut out, &opened.path, function, plan.json)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// The functions that fit: all of them, or those whose name fits the glob or
/// holds the text.
fn find<'a>(
    binary: &'a Binary,
    path: &Path,
    pattern: Option<&str>,
) -> anyhow::Result<Vec<&'a Function>> {
    let shown = path.display();
    if !binary.has_symbols() {
        bail!("{shown} has no symbols (it is stripped): none of its functions has a name");
    }
    let mut found: Vec<&Function> = match pattern {
        None => binary.functions().iter().collect(),
        Some(glob) if glob.contains(['*', '?']) => binary.find_functions(glob),
        Some(part) => binary.find_functions(&format!("*{part}*")),
    };
    // The resolver of an indirect function runs once; a probe there misleads.
    found.retain(|function| function.kind == FunctionKind::Function);
    if let (Some(pattern), true) = (pattern, found.is_empty()) {
        let nearest = binary.nearest(pattern, 3);
        let nearest = match nearest.is_empty() {
            true => String::new(),
            false => format!(" (similar: {})", nearest.join(", ")),
        };
        bail!("no function of {shown} fits {pattern}{nearest}");
    }
    Ok(found)
}

fn print(out: &mut impl Write, path: &Path, function: &Function, json: bool) -> io::Result<()> {
    let name = function.demangled();
    if !json {
        return writeln!(out, "{}", escaped(&name));
    }
    let line = FunctionLine {
        r#type: "function",
        binary: path.display().to_string(),
        name,
        symbol: &function.name,
        file_offset: function.file_offset.to_string(),
        size: function.size,
    };
    json::line(out, &line)
}
