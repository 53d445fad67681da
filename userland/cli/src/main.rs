// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe`: the story on one page. Arguments become a plan, the plan runs,
//! and its end becomes an exit code.
//!
//! Started by itself to parse files of containers, or to become a command, it does that and
//! nothing else.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; also when the reader of our output went away |
//! | 1 | it could not be done, or the traced command failed |
//! | 2 | the command line makes no sense |
//! | 128 and a signal's number, as shells say | a second signal ended it, or the first one when \
//! nothing else did |

mod args;
mod commands;
mod output;

use nsprobe_text::escaped;
use nsprobe_trace::rights::Lacking;
use nsprobe_trace::spec::SpecError;
use std::io::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    let ended = match nsprobe_trace::run_as_helper() {
        Some(ended) => ended,
        None => match args::plan() {
            Ok(plan) => commands::run(plan),
            Err(code) => return code,
        },
    };
    match ended {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.downcast_ref::<SpecError>().is_some() => {
            // Several lines, with what comes from elsewhere escaped already.
            eprintln!("nsprobe: {}", spec_error(&error));
            ExitCode::from(2)
        }
        Err(error) if is_of_stdout(&error) => {
            eprintln!("nsprobe: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            // Names in errors come from containers.
            let hint = match is_of_machine(&error) {
                true => "; `nsprobe doctor` checks all that nsprobe needs here",
                false => "",
            };
            eprintln!("nsprobe: {}{hint}", escaped(&sentence(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Whether this machine, or this process, is not fit for tracing.
fn is_of_machine(error: &anyhow::Error) -> bool {
    use libnsprobe::Error::{Denied, NoNode, NotLoaded, Version};
    error.chain().any(|cause| {
        let of_module = cause.downcast_ref::<libnsprobe::Error>();
        cause.is::<Lacking>()
            || matches!(
                of_module,
                Some(NotLoaded | NoNode | Denied(_) | Version { .. })
            )
    })
}

/// The error and its causes on one line. Some errors already include their cause; it is not
/// repeated.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Formats a spec error and the position in the spec that it refers to.
fn spec_error(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(|cause| cause.to_string()).collect();
    causes.join(": ")
}

/// Whether there was no room for our output; other files are named in their errors.
fn is_of_stdout(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| {
        error.kind() == ErrorKind::StorageFull && error.raw_os_error().is_some()
    })
}

/// Whether the reader of our output closed the pipe, as `head` does; this is not a failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_spec_in_a_container_is_told_whole() {
        let wrong = "a:".parse::<nsprobe_trace::spec::ProbeSpec>().unwrap_err();
        let error = anyhow::Error::new(wrong).context("in container web");
        let text = spec_error(&error);
        assert!(text.starts_with("in container web: a probe is"), "{text}");
        assert!(text.ends_with('^'), "{text}");
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = std::io::Error::other("no memory");
        let error = anyhow::Error::new(cause).context("cannot read x: no memory");
        assert_eq!(
            sentence(&error.context("in container web")),
            "in container web: cannot read x: no memory"
        );
    }
}
