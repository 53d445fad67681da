// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: stacks are whole also where their memory was written to the swap, and through
//! the code that the kernel maps into each program; and the kernel's own stack is there on
//! request.

use super::unwind::stacks;
use crate::command;
use crate::module::Module;
use crate::stack::Stack;
use crate::swap::Swap;
use crate::victim;
use serde_json::Value;

test! { core, stacks_in_the_swap_are_taken_late, module, seconds = 180 }
fn stacks_in_the_swap_are_taken_late() {
    const CALLS: usize = 100;
    let _module = Module::load();
    let _swap = Swap::on();
    let path = victim::path("paged_out");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:bottom");
    let count = CALLS.to_string();
    let (stacks, got) = stacks(&[
        "trace", "-v", "--json", "--stack", &spec, "--", path, &count,
    ]);
    // The victim says it on stderr: a pipe that is full takes lines of two writers in pieces.
    let absent: Vec<u64> = got
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("absent ")?.parse().ok())
        .collect();
    println!("pages absent: {absent:?}");
    assert_eq!(
        (stacks.len(), absent.len()),
        (CALLS, CALLS),
        "{}",
        got.stderr
    );
    // The victim looks itself whether its pages were gone.
    let gone = absent.iter().filter(|pages| **pages >= 8).count();
    assert!(gone > CALLS / 2, "{absent:?}");
    let wanted: Vec<String> = ["bottom".to_owned(), "page_out".to_owned()]
        .into_iter()
        .chain((1..=8).map(|level| format!("level_{level:02}")))
        .chain(["main".to_owned()])
        .collect();
    for Stack { frames, end } in &stacks {
        let own = frames.iter().filter(|frame| frame.path == path);
        let names: Vec<&str> = own.map(|frame| frame.name.as_str()).collect();
        assert_eq!(names[..11], wanted, "{frames:#?}");
        assert_eq!((names.last(), end.as_str()), (Some(&"_start"), "outermost"));
    }
    let summary = got
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|line| line["type"] == "summary");
    let late = summary.expect("the last line")["stacks"]["taken_late"].clone();
    println!("{late} taken late");
    assert!(
        late.as_u64().expect("a number") as usize > CALLS / 2,
        "{late}"
    );
    assert!(
        got.stderr.contains("once the pages were there again"),
        "{}",
        got.stderr
    );
}

test! { full, stacks_go_through_the_vdso, module, seconds = 120 }
fn stacks_go_through_the_vdso() {
    let _module = Module::load();
    let path = victim::path("in_vdso");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:ticked");
    let (stacks, got) = stacks(&["trace", "--json", "--stack", &spec, "--", path, "300"]);
    assert!(stacks.len() >= 300, "{}", got.stderr);
    let mut through = 0;
    for Stack { frames, end } in &stacks {
        assert_eq!(end, "outermost", "{frames:#?}");
        let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"_start"), "{frames:#?}");
        assert_eq!(names[..2], ["ticked", "on_signal"]);
        let Some(at) = frames.iter().position(|frame| frame.path == "[vdso]") else {
            continue;
        };
        through += 1;
        assert_eq!(frames[at].how, "signal", "{frames:#?}");
        let outer: Vec<&str> = names[at + 1..]
            .iter()
            .copied()
            .filter(|name| ["ask", "main"].contains(name))
            .collect();
        assert_eq!(outer, ["ask", "main"], "{frames:#?}");
    }
    println!("{through} of {} stacks go through the vDSO", stacks.len());
    assert!(through > 20, "{through}");
}

test! { full, stacks_go_through_generated_code, module }
/// Code in no file has no rows: it is left by its frame pointer, and what it was called by
/// by rows again.
fn stacks_go_through_generated_code() {
    let _module = Module::load();
    let path = victim::path("no_frame_pointers");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf");
    let words = [
        "trace",
        "--json",
        "--stack",
        &spec,
        "--",
        path,
        "generated",
        "20",
    ];
    let (stacks, got) = stacks(&words);
    assert_eq!(stacks.len(), 20, "{got:#?}");
    for Stack { frames, end } in stacks {
        let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
        let wanted = ["leaf", "plain", "?", "with_generated", "chosen", "main"];
        assert_eq!(names[..6], wanted, "{frames:#?}");
        let how: Vec<&str> = frames.iter().map(|frame| frame.how.as_str()).collect();
        assert_eq!(how[2..5], ["unwind-row", "frame-pointer", "unwind-row"]);
        assert_eq!((names.last(), end.as_str()), (Some(&"_start"), "outermost"));
    }
}

test! { core, the_kernels_stack_is_there_on_request, module }
fn the_kernels_stack_is_there_on_request() {
    let _module = Module::load();
    let path = victim::path("no_frame_pointers");
    let path = path.to_str().expect("a plain name");
    let spec = format!("{path}:leaf(n=arg1)");
    for stack in [&["--stack"][..], &[]] {
        let words = [
            &["trace", "--json", "--kernel-stack"][..],
            stack,
            &[&spec, "--", path, "plain", "3"],
        ];
        let got = command::run(&words.concat()).succeeded();
        let lines = got
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let hits: Vec<Value> = lines.filter(|line| line["type"] == "hit").collect();
        assert_eq!(hits.len(), 3, "{got:#?}");
        for hit in &hits {
            assert_eq!(hit["fields"]["n"], 1, "{hit}");
            assert_eq!(hit["stack"].is_array(), !stack.is_empty());
            let kernel = hit["kernel_stack"].as_array().expect("it was asked for");
            let names: Vec<&str> = kernel
                .iter()
                .filter_map(|frame| frame["name"].as_str())
                .collect();
            println!("{names:?}");
            assert!(names.contains(&"uprobe_notify_resume"), "{hit}");
            assert!(
                !names.iter().any(|name| name.contains("nsprobe")),
                "{names:?}"
            );
            let first = kernel[0]["address"].as_str().expect("an address");
            assert!(first.starts_with("0xffffffff"), "{first}");
        }
    }
    let words = ["trace", "--kernel-stack", &spec, "--", path, "plain", "1"];
    let text = command::run(&words).succeeded().stdout;
    assert!(
        text.contains(" k0 ") && text.contains("uprobe_notify_resume+0x"),
        "{text}"
    );
}
