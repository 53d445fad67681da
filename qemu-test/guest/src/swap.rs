// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that is written to a file.

use std::fs;
use std::process::Command;

/// A swap file; gone with the value.
pub(crate) struct Swap(String);

impl Swap {
    /// One of 32 MB, in use.
    pub(crate) fn on() -> Swap {
        let path = format!("/var/tmp/swap-{}", std::process::id());
        let zeroes = vec![0; 32 << 20];
        fs::write(&path, zeroes).expect("/var/tmp is writable");
        let run = |program: &str| {
            let status = Command::new(program).arg(&path).status();
            assert!(
                status.expect("util-linux is in the guest").success(),
                "{program}"
            );
        };
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("it is ours");
        run("mkswap");
        run("swapon");
        Swap(path)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = Command::new("swapoff").arg(&self.0).status();
        let _ = fs::remove_file(&self.0);
    }
}
