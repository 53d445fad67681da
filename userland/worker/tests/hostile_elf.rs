// SPDX-License-Identifier: MIT OR Apache-2.0
//! ELF-03, 04, 06 and 07: files made to exhaust or to crash a parser. Each has an answer,
//! or loses its own child, in bounded time; the next file has its names.

use crate::support::dwarf;
use crate::support::elf::{
    self, compressed, program, section, set_u16, symbols, u64_at, zstd, Section, TEXT,
};
use crate::support::trial::{assert_fatal, name, note, with, Trial, MEMORY_BYTES_MAX};
use std::fs::OpenOptions;

#[test]
fn elf_03_a_sparse_file_is_too_big() {
    let trial = Trial::new("sparse");
    // The largest that the file system takes, up to 8 EiB.
    let path = trial.folder.file("sparse", &with(Vec::new()));
    let sparse = OpenOptions::new().write(true).open(&path).unwrap();
    let sizes = [i64::MAX as u64, 8 << 40, 1 << 40, 1 << 36];
    assert!(sizes.iter().any(|size| sparse.set_len(*size).is_ok()));
    let error = trial.at(&path).unwrap_err().to_string();
    assert!(error.contains("too big"), "{error}");
    assert!(trial.memory() < MEMORY_BYTES_MAX);
}

#[test]
fn elf_03_sections_beyond_the_file_cost_no_memory() {
    let trial = Trial::new("sizes");
    let huge = |name, offset, bytes| Section {
        lies: Some((offset, bytes)),
        ..section(name, Vec::new())
    };
    for (offset, bytes) in [
        (TEXT, 1 << 40),
        (u64::MAX, 1 << 20),
        (TEXT, u64::MAX),
        (1 << 62, 64),
    ] {
        let sections = vec![
            huge(".debug_info", offset, bytes),
            huge(".debug_abbrev", offset, bytes),
            huge(".eh_frame", offset, bytes),
        ];
        let outcome = trial.of(&with(sections));
        let said = note(&outcome);
        assert!(
            said.contains("too big") || said.contains("end of the file"),
            "{said}"
        );
    }
    // All at the same place.
    let sections = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
        ".debug_str",
        ".eh_frame",
    ];
    let outcome = trial.of(&with(sections.map(|name| huge(name, 0, 0x2000)).to_vec()));
    assert_ne!(note(&outcome), "");
    assert!(trial.memory() < MEMORY_BYTES_MAX);
}

#[test]
fn elf_03_as_many_sections_as_there_can_be() {
    let trial = Trial::new("sections");
    let mut bytes = with(Vec::new());
    let table = u64_at(&bytes, 40);
    let headers = bytes.split_off(table);
    let count = headers.len() / 64;
    // Each is another symbol table of a megabyte.
    let symbols = headers[(count - 3) * 64..(count - 2) * 64].to_vec();
    for (fill, is_fatal) in [([0; 64].to_vec(), false), (symbols, true)] {
        let mut many = bytes.clone();
        let mut headers = headers.clone();
        let mut fill = fill;
        fill[24..32].copy_from_slice(&0u64.to_le_bytes());
        fill[32..40].copy_from_slice(&(1u64 << 20).to_le_bytes());
        while headers.len() < 65_535 * 64 {
            headers.extend(&fill);
        }
        // The number of sections is in section 0, as is that of their names.
        headers[32..40].copy_from_slice(&65_535u64.to_le_bytes());
        headers[40..44].copy_from_slice(&(count as u32 - 1).to_le_bytes());
        many.extend(&headers);
        many.resize(many.len() + (1 << 20), 0);
        set_u16(&mut many, 60, 0);
        set_u16(&mut many, 62, 0xffff);
        match trial.of(&many) {
            Ok(answers) => assert_eq!(name(&answers[1]), "code"),
            outcome => {
                assert!(is_fatal);
                let error = outcome.unwrap_err().to_string();
                assert!(
                    error.contains("no answer") || error.contains("malformed"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn elf_03_numbers_of_sections_that_lead_nowhere() {
    let trial = Trial::new("numbers");
    // SHN_XINDEX where section 0 names one that is not there.
    let mut bytes = with(Vec::new());
    set_u16(&mut bytes, 62, 0xffff);
    let first = u64_at(&bytes, 40);
    bytes[first + 40..first + 44].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(name(&trial.of(&bytes).unwrap()[1]), "code");
    // Symbols of section SHN_XINDEX, and of none that there is.
    for number in [0xffff, 0xfeff] {
        let mut sections = symbols(2, &[(b"code", TEXT, 64)]);
        set_u16(&mut sections[0].data, 24 + 6, number);
        assert_eq!(name(&trial.of(&program(&sections)).unwrap()[1]), "code");
    }
    // Names in a section that is the table itself, or none.
    for link in [2, 0, u32::MAX] {
        let mut sections = symbols(2, &[(b"code", TEXT, 64)]);
        sections[0].link = link;
        let _ = trial.of(&program(&sections));
    }
    // More sections than there can be.
    let mut bytes = with(Vec::new());
    set_u16(&mut bytes, 60, 0);
    bytes[first + 32..first + 40].copy_from_slice(&u64::MAX.to_le_bytes());
    let error = trial.of(&bytes).unwrap_err().to_string();
    assert!(error.contains("too big"), "{error}");
    assert!(trial.memory() < MEMORY_BYTES_MAX);
}

/// `bytes` zeros, as zlib writes them.
fn zlib(bytes: usize) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn elf_04_streams_that_are_longer_than_they_say() {
    let trial = Trial::new("longer");
    // 16 GiB in 512 KiB: object #950. And 64 MiB in 64 KiB.
    for (how, stream) in [(2, zstd(&[], 0, 16 << 30)), (1, zlib(64 << 20))] {
        for declared in [64, 0, 1 << 20] {
            let outcome = trial.of(&with(vec![
                compressed(".debug_info", how, declared, &stream),
                section(".debug_abbrev", dwarf::abbreviations()),
            ]));
            let said = note(&outcome);
            // Nothing is as good as what cannot be read.
            assert!(declared == 0 || !said.is_empty());
        }
    }
    assert!(trial.memory() < MEMORY_BYTES_MAX, "{}", trial.memory());
}

#[test]
fn elf_04_sizes_that_lie() {
    let trial = Trial::new("lies");
    for how in [1, 2, 3, u32::MAX] {
        for declared in [16 << 30, u64::MAX, (512 << 20) + 1, 64 << 20] {
            let outcome = trial.of(&with(vec![
                compressed(".debug_info", how, declared, &zstd(&[], 7, 100)),
                compressed(".eh_frame", how, declared, &zlib(1 << 20)),
            ]));
            assert_ne!(note(&outcome), "");
        }
    }
    // A header that is cut short.
    let mut cut = compressed(".debug_info", 2, 64, &[]);
    cut.data.truncate(20);
    assert_ne!(note(&trial.of(&with(vec![cut]))), "");
}

#[test]
#[ignore = "full run: gigabytes of sections"]
fn elf_04_all_sections_are_as_large_as_they_may_be() {
    let trial = Trial::new("large");
    let stream = zstd(&[], 0, 512 << 20);
    let names = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
        ".debug_str",
        ".debug_ranges",
    ];
    let sections = names.map(|name| compressed(name, 2, 512 << 20, &stream));
    match trial.of(&with(sections.to_vec())) {
        outcome @ Ok(_) => assert_eq!(
            note(&outcome),
            "its DWARF takes more than 2048 MB of memory"
        ),
        // On a slow machine the parser is ended at its time limit, before it comes to that.
        outcome => assert_fatal(&outcome),
    }
}

#[test]
fn elf_06_symbols_that_make_no_sense() {
    let trial = Trial::new("symbols");
    let long = vec![b'n'; 1 << 20];
    let list: Vec<(&[u8], u64, u64)> = vec![
        (&long, TEXT, 4096),
        (b"zero", TEXT + 16, 0),
        (b"wraps", TEXT + 32, u64::MAX),
        (b"behind", u64::MAX, u64::MAX),
        (b"before", TEXT + 8, 100),
        (b"before", TEXT + 8, 100),
        (b"", TEXT, 1),
        (b"\xff\xfe\x1b[2J", TEXT, 4096),
    ];
    let mut sections = symbols(2, &list);
    let answers = trial.of(&program(&sections)).unwrap();
    // One without a length is but a mark in one that has it.
    assert_eq!(name(&answers[3]), "before");
    assert!(answers
        .iter()
        .flat_map(|answer| &answer.found)
        .all(|found| { found.frames[0].function.len() <= 64 << 10 }));
    // Names past the end of their table.
    for symbol in sections[0].data.chunks_exact_mut(24) {
        symbol[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    }
    assert!(trial.of(&program(&sections)).unwrap()[1].found.is_err());
    assert!(trial.memory() < MEMORY_BYTES_MAX);
}

#[test]
#[ignore = "full run: twenty million symbols"]
fn elf_06_twenty_million_symbols_in_a_small_file() {
    let trial = Trial::new("millions");
    // Each has the section, the address and the name 0x02020202…, and all of them a name.
    let table = Section {
        kind: elf::SYMTAB,
        link: 3,
        ..compressed(".symtab", 2, 480 << 20, &zstd(&[], 2, 480 << 20))
    };
    let mut name = vec![0; 0x202_0202];
    name.extend(b"name");
    let (told, rest) = (name.len() as u64, 0x100_0000);
    let names = Section {
        kind: elf::STRTAB,
        ..compressed(".strtab", 2, told + rest, &zstd(&name, 0, rest))
    };
    let mut bytes = program(&[table, names]);
    // One segment that has room for that address.
    for at in [96, 104] {
        bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    }
    match trial.of(&bytes) {
        Ok(answers) => assert!(answers[1].found.is_err()),
        outcome => assert_fatal(&outcome),
    }
}

/// Names that have brought demanglers down, and where that was told.
const MANGLED: &[&str] = &[
    // rustc-demangle #9 and #47.
    "_ZN2222222222222222222222EE",
    "_RNvB_1a",
    // cpp_demangle #92, #133 and #282.
    "_Z18convertCase_helperIN14QUnicodeTables14CasefoldTraitsEtET0_S2_",
    "_ZNK7mozilla6layers19CapturedBufferState20ForEachTextureClientIZNS0_21CompositorBridgeChild21NotifyBeginAsyncPaintI6RefPtrIS1_EEEvRT_EUlS7_E_EEvS6_",
    "_ZN13QConcatenableI14QStringBuilderIS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_IS0_I7QStringS1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_ES1_EE8appendToI5QCharEEvRKS15_RPT_",
    // symbolic #477.
    "_ZUlzjjlZZL1zStUlSt7j_Z3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjfjzL4t3kjIIjfjtUlSt7j_Z3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjfjzL4t3kjIIjfjzL4t7IjIjjzjjzSt7j_Z3kjIIjfjzStfjzSt7j_ZA3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjfjzL4t3kjIIjzL4t7IjIjjzjjzSt7j_Z3kjIIjfjzStfjzSt7j_ZA3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjIjL1vfIIEEEjzjjfjzSt7j_Z3kjIIjfjzL4t3kjIIjfjzL4t7IjIjL1vfIIEEEjzjjSI",
];

#[test]
fn elf_07_names_that_grow_without_bound() {
    let trial = Trial::new("mangled");
    let mut names: Vec<String> = MANGLED.iter().map(|name| (*name).to_owned()).collect();
    names.extend([
        // cpp_demangle #215: operators upon operators.
        format!("_ZA{}", "na".repeat(1500)),
        format!("_ZtE{}", "o".repeat(4000)),
        // Each level doubles what the one before it said.
        format!("_Z1f1AI{}E", "S_S0_".repeat(800)),
        format!("_Z1fI{}E", "1AIS_S_E".repeat(400)),
        // Back references of Rust's, each to all before it.
        format!("_RNvC1a{}", "INvB0_1a".repeat(400)),
        format!("_RI{}", "TB_B_E".repeat(600)),
        format!("_RM{}", "N".repeat(4000)),
        "_".to_owned() + &"R".repeat(4000),
        format!("_Z{}", "N".repeat(4000)),
        format!("_ZN{}E", "9999999999999999".repeat(200)),
        "_Z".repeat(2000),
    ]);
    for raw in names {
        let sections = symbols(2, &[(raw.as_bytes(), TEXT, 4096)]);
        let answers = trial.of(&program(&sections)).unwrap();
        assert!((1..=64 << 10).contains(&name(&answers[1]).len()), "{raw}");
    }
    assert!(trial.memory() < MEMORY_BYTES_MAX, "{}", trial.memory());
}
