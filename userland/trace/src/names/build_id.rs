// SPDX-License-Identifier: MIT OR Apache-2.0
//! Build-ids: that of a mapped file, by its notes alone, as nothing else of it is parsed; and
//! that of an object as the kernel read it.

use libnsprobe::common::abi::ObjectIdentity;
use libnsprobe::common::elf_note;
use nix::sys::statfs::{fstatfs, FUSE_SUPER_MAGIC};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The build-id of a file. A container's own file server may let a reader
/// wait for ever: such files are left alone.
pub fn of(file: &File) -> Option<Vec<u8>> {
    if fstatfs(file).ok()?.filesystem_type() == FUSE_SUPER_MAGIC {
        return None;
    }
    let read = |offset: u64, out: &mut [u8]| file.read_exact_at(out, offset).is_ok();
    let id = elf_note::find(read).ok()?;
    Some(id.as_bytes().to_vec())
}

/// The build-id that the kernel read from the mapping.
pub(crate) fn build_id(identity: &ObjectIdentity) -> &[u8] {
    let length = identity.build_id_len as usize;
    identity.build_id.get(..length).unwrap_or_default()
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
