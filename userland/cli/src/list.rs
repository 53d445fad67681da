// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe list`: the functions and static probes of a binary.

use crate::args::ListPlan;
use crate::json;
use crate::probes;
use crate::target::Target;
use anyhow::bail;
use nsprobe_plan::UsdtScope;
use nsprobe_symbolize::{escaped, glob_fits, Binary, Function, FunctionKind, Usdt};
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

#[derive(Serialize)]
struct UsdtLine<'a> {
    r#type: &'static str,
    binary: String,
    provider: &'a str,
    name: &'a str,
    arguments: usize,
    file_offset: String,
    semaphore: bool,
}

/// Lists.
pub(crate) fn run(plan: &ListPlan) -> anyhow::Result<ExitCode> {
    let target = Target::find(&plan.who, None)?;
    target.within(list(plan, &target))?;
    Ok(ExitCode::SUCCESS)
}

fn list(plan: &ListPlan, target: &Target) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for opened in target.open(&plan.spec.binary)? {
        let (_, binary) = probes::read(opened.file, &opened.path)?;
        let pattern = plan.spec.pattern.as_deref();
        let probes = usdt(&binary, pattern)?;
        let functions = find(&binary, &opened.path, pattern);
        // Who looks for a static probe need not find a function too.
        let functions = match functions {
            Err(_) if !probes.is_empty() => Vec::new(),
            functions => functions?,
        };
        for function in functions {
            print(&mut out, &opened.path, function, plan.json)?;
        }
        for probe in &probes {
            print_usdt(&mut out, &opened.path, probe, plan.json)?;
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

/// The static probes that fit, each name once.
fn usdt(binary: &Binary, pattern: Option<&str>) -> anyhow::Result<Vec<Usdt>> {
    let glob = match pattern {
        None => "*".to_owned(),
        Some(glob) if glob.contains(['*', '?']) => glob.to_owned(),
        Some(part) => format!("*{part}*"),
    };
    let called = |probe: &Usdt| format!("{}:{}", probe.provider, probe.name);
    let mut probes = binary.usdt()?;
    probes.retain(|probe| glob_fits(&glob, &called(probe)));
    probes.sort_by_key(called);
    probes.dedup_by_key(|probe| called(probe));
    Ok(probes)
}

fn print_usdt(out: &mut impl Write, path: &Path, probe: &Usdt, json: bool) -> io::Result<()> {
    let arguments = UsdtScope::argument_count(probe);
    if !json {
        let name = format!("{}:{}", probe.provider, probe.name);
        let plural = if arguments == 1 { "" } else { "s" };
        return writeln!(out, "{} ({arguments} argument{plural})", escaped(&name));
    }
    let line = UsdtLine {
        r#type: "usdt",
        binary: path.display().to_string(),
        provider: &probe.provider,
        name: &probe.name,
        arguments,
        file_offset: probe.file_offset.to_string(),
        semaphore: probe.semaphore.is_some(),
    };
    json::line(out, &line)
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
