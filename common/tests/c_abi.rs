// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The C header and the reference are what the Rust sources say.
//!
//! `include/nsprobe.h` and the tables of `docs/abi.md` are written from the
//! sources of this crate, comments included; these tests fail when either file
//! is not what would be written now. `UPDATE=1 cargo test -p nsprobe-common
//! --test c_abi` writes them. The C compiler then has the last word: it is
//! asked to agree with rustc on every size, offset and constant, as a 64-bit
//! and as a 32-bit compiler.
#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

mod c_abi {
    pub(crate) mod layout;
    pub(crate) mod reference;
    pub(crate) mod source;
    pub(crate) mod write;
}
use c_abi::{layout, reference, source, write};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares a file with what it should be, or writes it when `UPDATE` is set.
fn check_or_update(path: &str, wanted: &str) {
    let file = project().join(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, wanted).unwrap();
        return;
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    let differs = found
        .lines()
        .zip(wanted.lines())
        .position(|(found, wanted)| found != wanted)
        .unwrap_or(found.lines().count().min(wanted.lines().count()));
    assert!(
        found == wanted,
        "{path} is not what the sources of common/ say (first at line {}):\n  \
         found:  {:?}\n  wanted: {:?}\n\
         write it anew with: UPDATE=1 cargo test -p nsprobe-common --test c_abi",
        differs + 1,
        found.lines().nth(differs),
        wanted.lines().nth(differs),
    );
}

#[test]
fn the_header_is_what_the_sources_say() {
    check_or_update("include/nsprobe.h", &write::header(&source::read()));
}

#[test]
fn the_reference_is_what_the_sources_say() {
    let path = "docs/abi.md";
    let text = fs::read_to_string(project().join(path)).unwrap();
    check_or_update(path, &reference::filled_in(&text));
}

/// What hits end as, wherever it is written.
#[test]
fn the_conservation_law_is_one() {
    let ends = nsprobe_common::abi::Counters::default().outcomes();
    let law = format!("`hits = {}`", ends.map(|(name, _)| name).join(" + "));
    for path in ["docs/abi.md", "ARCHITECTURE.md", "kmod/probe/handler.rs"] {
        let text = fs::read_to_string(project().join(path)).unwrap();
        let words = text.split_whitespace().filter(|word| *word != "//!");
        let text = words.collect::<Vec<_>>().join(" ");
        assert!(text.contains(&law), "{path} has another law than {law}");
    }
}

/// A struct, field or constant that the sources have and `layout` does not
/// know would escape the comparison with the C compiler.
#[test]
fn the_layout_names_everything_in_the_sources() {
    let mut named = Vec::new();
    for layout in layout::structs() {
        named.push(layout.name.to_string());
        named.extend(
            layout
                .fields
                .iter()
                .map(|f| format!("{}.{}", layout.name, f.name)),
        );
    }
    named.extend(layout::constants().iter().map(|(name, _)| name.to_string()));
    let mut written = Vec::new();
    for item in source::read() {
        match item.what {
            source::What::Struct(fields) => {
                written.push(item.name.clone());
                written.extend(fields.iter().map(|f| format!("{}.{}", item.name, f.name)));
            }
            source::What::Constant(..) => written.push(item.name),
            source::What::Enum(variants) => written.extend(
                variants
                    .iter()
                    .map(|v| format!("{}::{}", item.name, v.name)),
            ),
        }
    }
    let missing: Vec<_> = written
        .iter()
        .filter(|name| !named.contains(name))
        .collect();
    let gone: Vec<_> = named
        .iter()
        .filter(|name| !written.contains(name))
        .collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "common/tests/c_abi/layout.rs lacks {missing:?} and has too much: {gone:?}"
    );
}

/// The kernel's bindgen, whose C parser is another one: what it makes of the header has the sizes,
/// offsets and constants that rustc has.
#[test]
fn bindgen_reads_the_header_back() {
    let read = "exec scripts/enter.sh \"$(scripts/sdk.sh root)/root\" \"$PWD\" \"$PWD\" \
                bindgen --no-doc-comments include/nsprobe.h";
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", read]).current_dir(project()).output();
    let output = output.unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{why}");
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");

    let mut wanted = Vec::new();
    for layout in layout::structs() {
        let name = format!("nsprobe_{}", write::snake(layout.name));
        let bytes = layout.bytes;
        wanted.push(format!("size_of::<{name}>() - {bytes}usize]"));
        wanted.extend(layout.fields.iter().map(|field| {
            let (field, offset) = (field.name, field.offset);
            format!("offset_of!({name}, {field}) - {offset}usize]")
        }));
    }
    for (name, value) in layout::constants() {
        match (name.split_once("::"), value) {
            // Not evaluated: requests, by macros with arguments, and what is made of sizes.
            (None, layout::Value::Number(number)) if !write::COMMANDS.contains(&name) => {
                let name = write::c_constant(name);
                let is_evaluated = text.contains(&format!("pub const {name}: "));
                let line = match u32::try_from(number) {
                    Ok(number) => format!("pub const {name}: u32 = {number};"),
                    Err(_) if number == u64::MAX => format!("pub const {name}: i32 = -1;"),
                    Err(_) => format!("pub const {name}: u64 = {number};"),
                };
                wanted.extend((is_evaluated || !name.contains("_BYTES_")).then_some(line));
            }
            (Some((of, variant)), layout::Value::Number(number)) => {
                let of_c = format!("nsprobe_{}", write::snake(of));
                let variant = write::c_enumerator(of, variant);
                wanted.push(format!("pub const {of_c}_{variant}: {of_c} = {number};"));
            }
            _ => {}
        }
    }
    let differ: Vec<_> = wanted.iter().filter(|line| !text.contains(*line)).collect();
    assert!(differ.is_empty(), "bindgen has none of {differ:#?}");
}

#[test]
fn the_example_compiles_without_a_warning() {
    let example = project().join("examples/reader.c");
    let include = project().join("include");
    let program = fs::read_to_string(example).unwrap();
    let program = program.replace(
        "../include/nsprobe.h",
        include.join("nsprobe.h").to_str().unwrap(),
    );
    gcc("-m64", &program).unwrap();
}

#[test]
fn a_64_bit_compiler_agrees() {
    compile("-m64").unwrap();
}

#[test]
fn a_32_bit_compiler_agrees() {
    compile("-m32").unwrap();
}

fn compile(mode: &str) -> Result<(), String> {
    let mut program = write::header(&source::read()) + "#include <stddef.h>\n";
    for line in layout::assertions() {
        program.push_str(&line);
        program.push('\n');
    }
    gcc(mode, &program)
}

/// Whether the C compiler takes a program; only its front end runs, so that
/// no C library for the other word size is needed.
fn gcc(mode: &str, program: &str) -> Result<(), String> {
    let source = std::env::temp_dir().join(format!("nsprobe-abi{mode}-{}.c", std::process::id()));
    fs::write(&source, program).unwrap();
    let output = nsprobe_testing::compiler("cc")
        .args([
            mode,
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
        ])
        // Debian keeps <asm/…> of either word size in the 64-bit folder.
        .args(["-idirafter", "/usr/include/x86_64-linux-gnu"])
        .arg(&source)
        .output()
        .unwrap();
    let _ = fs::remove_file(source);
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
