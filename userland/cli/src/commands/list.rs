// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe list`: the functions and static probes of a binary.

use crate::args::ListPlan;
use crate::output::json;
use nsprobe_probes::{ListedFunction, ListedUsdt, Listing};
use nsprobe_text::{counted, escaped};
use nsprobe_trace::attach::mapped::Mapped;
use nsprobe_trace::attach::probes::parsed::{open, Parsed};
use nsprobe_trace::attach::probes::refusal::because;
use nsprobe_trace::attach::target::Target;
use nsprobe_trace::names::search::DebugSearch;
use nsprobe_worker::{ChildLimits, Options, Worker};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

#[derive(Serialize)]
struct FunctionLine<'a> {
    r#type: &'static str,
    binary: &'a str,
    name: &'a str,
    symbol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    file_offset: String,
    size: u64,
}

#[derive(Serialize)]
struct UsdtLine<'a> {
    r#type: &'static str,
    binary: &'a str,
    provider: &'a str,
    name: &'a str,
    arguments: u32,
    file_offset: String,
    semaphore: bool,
}

pub(crate) fn run(plan: &ListPlan) -> anyhow::Result<ExitCode> {
    let target = Target::find(&plan.who)?;
    target.within(list(plan, &target))?;
    Ok(ExitCode::SUCCESS)
}

fn list(plan: &ListPlan, target: &Target) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let parser = Worker::new(Options {
        sandbox: plan.sandbox,
        ..Options::default()
    });
    let search = DebugSearch::new(target.viewers(), plan.debuginfod, false)?;
    let opened = target.open(&plan.spec.binary, &Mapped::by_links())?;
    for note in opened.notes {
        eprintln!("nsprobe: {}", escaped(&note));
    }
    for opened in opened.files {
        let listed = Listed {
            path: opened.path.display().to_string(),
            json: plan.json,
        };
        let object = open(&parser, ChildLimits::default(), opened.file, &opened.path)?;
        let mut parsed = Parsed::new(object, &opened.path);
        let pattern = plan.spec.pattern.as_deref();
        let mut from = Some(0);
        while let Some(first) = from {
            let listing = parsed.list(pattern, first, &search, target)?;
            let listing = listing.map_err(because)?;
            listed.write(&mut out, &listing)?;
            from = listing.next;
        }
    }
    out.flush()?;
    Ok(())
}

/// A file whose functions are listed.
struct Listed {
    /// As the target sees it.
    path: String,
    json: bool,
}

impl Listed {
    fn write(&self, out: &mut impl Write, listing: &Listing) -> io::Result<()> {
        for function in &listing.functions {
            self.function(out, function)?;
        }
        for probe in &listing.usdt {
            self.usdt(out, probe)?;
        }
        Ok(())
    }

    fn usdt(&self, out: &mut impl Write, probe: &ListedUsdt) -> io::Result<()> {
        let arguments = probe.arguments;
        if !self.json {
            let name = format!("{}:{}", probe.provider, probe.name);
            let arguments = counted(arguments, "argument");
            return writeln!(out, "{} ({arguments})", escaped(&name));
        }
        let line = UsdtLine {
            r#type: "usdt",
            binary: &self.path,
            provider: &probe.provider,
            name: &probe.name,
            arguments,
            file_offset: probe.file_offset.to_string(),
            semaphore: probe.has_semaphore,
        };
        json::line(out, &line)
    }

    fn function(&self, out: &mut impl Write, function: &ListedFunction) -> io::Result<()> {
        if !self.json {
            return writeln!(out, "{}", escaped(&function.name));
        }
        let line = FunctionLine {
            r#type: "function",
            binary: &self.path,
            name: &function.name,
            symbol: &function.symbol,
            version: function.version.as_deref(),
            file_offset: function.file_offset.to_string(),
            size: function.size,
        };
        json::line(out, &line)
    }
}
