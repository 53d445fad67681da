// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promise: a file's build-id is taken from notes that make sense and are in memory, or left to
//! the reader.

use super::capsule::Folder;
use super::stacks::{build_id_of, WITH_CALLER};
use crate::module::Module;
use crate::records::Records;
use crate::session::{Session, PAGE, RING_BYTES};
use crate::sys;
use crate::victim::Victim;
use nsprobe_common::abi;
use nsprobe_common::record::ObjectRecord;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

/// The build-id in the files that [`elf_file`] makes.
const BUILD_ID: [u8; 20] = *b"a build-id of theirs";
/// Bytes of the note that has it.
const NOTE_BYTES: u64 = 36;
/// push %rbp; mov %rsp,%rbp; call *%rsi; pop %rbp; ret
pub(super) const CODE: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3];
/// Where they have their code.
const CODE_AT: usize = 4 * PAGE + 1024;

/// A file with this number of program headers (System V gABI, chapters "ELF Header" to "Note
/// Section"), the first of which gives the number of bytes of notes.
fn elf_file(headers: u16, note_bytes: u64) -> Vec<u8> {
    const NOTE_AT: usize = 4 * PAGE;
    let mut bytes = vec![0; 5 * PAGE];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(0, b"\x7fELF\x02\x01");
    put(32, &64u64.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &headers.to_le_bytes());
    put(64, &4u32.to_le_bytes());
    put(72, &(NOTE_AT as u64).to_le_bytes());
    put(96, &note_bytes.to_le_bytes());
    for (at, word) in [4u32, BUILD_ID.len() as u32, 3].into_iter().enumerate() {
        put(NOTE_AT + 4 * at, &word.to_le_bytes());
    }
    put(NOTE_AT + 12, b"GNU\0");
    put(NOTE_AT + 16, &BUILD_ID);
    put(CODE_AT, &CODE);
    bytes
}

/// What a session reports of a file through whose code its victim calls.
fn seen_on_the_way(file: &str, words: &[&str]) -> (Session, ObjectRecord) {
    let code_at = CODE_AT.to_string();
    let words = [&[file, code_at.as_str()], words].concat();
    let mut victim = Victim::start("through_file", &words);
    let session = Session::with_rings(RING_BYTES);
    let function = victim.function("in_the_middle");
    session.probe(victim.file(), &function, WITH_CALLER);
    victim.call(1);
    let inode = fs::metadata(file).expect("it is there").ino();
    let objects = Records::of(&session).objects;
    let object = objects.values().find(|of| of.identity.ino == inode);
    (session, *object.expect("the caller is in the file"))
}

test! { full, a_build_id_is_that_of_sound_notes, module }
/// Of a file that contradicts itself, or has more program headers than are looked at, there
/// is none.
fn a_build_id_is_that_of_sound_notes() {
    let _module = Module::load();
    let folder = Folder::new("notes");
    let file = folder.path("file");
    for (headers, note_bytes, is_there) in [
        (1, NOTE_BYTES, true),
        (256, NOTE_BYTES, true),
        (257, NOTE_BYTES, false),
        (1, NOTE_BYTES - 1, false),
        (1, 16, false),
    ] {
        fs::write(&file, elf_file(headers, note_bytes)).expect("there is room");
        let (_session, object) = seen_on_the_way(&file, &[]);
        let wanted = if is_there { &BUILD_ID[..] } else { &[] };
        let told = build_id_of(&object);
        assert_eq!(told, wanted, "{headers} headers, {note_bytes} bytes");
    }
}

test! { full, a_build_id_that_is_not_in_memory_is_left_to_the_reader, module }
/// The handler waits for no page. Who reads gets the file, where the build-id is as well.
fn a_build_id_that_is_not_in_memory_is_left_to_the_reader() {
    let _module = Module::load();
    let folder = Folder::new("notes");
    let file = folder.path("file");
    let bytes = elf_file(1, NOTE_BYTES);
    fs::write(&file, &bytes).expect("there is room");
    let (session, object) = seen_on_the_way(&file, &["forget"]);
    assert_eq!(build_id_of(&object), b"");
    let held = session.object(object.id, abi::OBJECT_FD).expect("held");
    let mut read = Vec::new();
    let mut held = fs::File::from(sys::adopt(held.fd));
    held.read_to_end(&mut read).expect("it is open for reading");
    assert_eq!(read, bytes);
    let (_session, object) = seen_on_the_way(&file, &[]);
    assert_eq!(build_id_of(&object), BUILD_ID);
}
