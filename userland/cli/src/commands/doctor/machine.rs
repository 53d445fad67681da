// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel and the file system say of a machine.

use nix::sys::statvfs::statvfs;
use nix::sys::utsname::uname;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable of UEFI: four bytes of attributes, then 1 when Secure Boot is on.
pub(super) const SECURE_BOOT: &str =
    "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// The inode numbers of the initial namespaces (include/uapi/linux/nsfs.h).
const INITIAL: [(&str, u64); 2] = [("pid", 0xEFFF_FFFC), ("user", 0xEFFF_FFFD)];

/// A machine by its files.
pub(super) struct Machine {
    root: PathBuf,
    pub(super) release: String,
    pub(super) processor: String,
}

/// A file of the module, and the kernel that it lies with.
pub(super) struct Module {
    pub(super) release: String,
    pub(super) path: PathBuf,
}

impl Machine {
    pub(super) fn this() -> Machine {
        let names = uname().ok();
        let text = |name: Option<&std::ffi::OsStr>| {
            name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        };
        Machine {
            root: "/".into(),
            release: text(names.as_ref().map(|names| names.release())),
            processor: text(names.as_ref().map(|names| names.machine())),
        }
    }

    /// One whose files lie below a folder.
    #[cfg(test)]
    pub(super) fn at(root: PathBuf, release: &str) -> Machine {
        Machine {
            root,
            release: release.to_owned(),
            processor: "x86_64".to_owned(),
        }
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// The first kernel that the module is written for is 7.2.
    pub(super) fn is_too_old(&self) -> bool {
        let mut numbers = self
            .release
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        version < (7, 2)
    }

    /// Whether packages of the module can be made for this kernel.
    pub(super) fn is_debians(&self) -> bool {
        !self.is_too_old() && self.release.contains("+deb13-")
    }

    /// The kernel's configuration.
    pub(super) fn config(&self) -> Option<String> {
        let release = &self.release;
        self.text(&format!("boot/config-{release}"))
            .or_else(|| self.text(&format!("lib/modules/{release}/config")))
    }

    pub(super) fn has_module_loaded(&self) -> bool {
        self.root.join("sys/module/nsprobe").exists()
    }

    pub(super) fn allows_changes(&self) -> bool {
        let allowed = self.text("sys/module/nsprobe/parameters/allow_modify");
        allowed.is_some_and(|value| ["1", "Y"].contains(&value.trim()))
    }

    /// The installed modules, of all kernels.
    pub(super) fn modules(&self) -> Vec<Module> {
        let mut found = Vec::new();
        let kernels = fs::read_dir(self.root.join("lib/modules"));
        for kernel in kernels.into_iter().flatten().flatten() {
            let places = ["updates", "updates/dkms", "extra"];
            let names = [
                "nsprobe.ko",
                "nsprobe.ko.xz",
                "nsprobe.ko.zst",
                "nsprobe.ko.gz",
            ];
            let mut paths = places.iter().flat_map(|place| {
                let folder = kernel.path().join(place);
                names.map(|name| folder.join(name))
            });
            if let Some(path) = paths.find(|path| path.exists()) {
                let release = kernel.file_name().to_string_lossy().into_owned();
                found.push(Module { release, path });
            }
        }
        found.sort_by(|one, other| one.release.cmp(&other.release));
        found
    }

    /// Whether dkms has the module's source.
    pub(super) fn has_dkms_source(&self) -> bool {
        let folders = fs::read_dir(self.root.join("usr/src"));
        let mut folders = folders.into_iter().flatten().flatten();
        folders.any(|folder| {
            let name = folder.file_name();
            name.as_encoded_bytes().starts_with(b"nsprobe-")
                && folder.path().join("dkms.conf").exists()
        })
    }

    /// None where there is no such variable: without UEFI.
    pub(super) fn is_secure_boot(&self) -> Option<bool> {
        let variable = fs::read(self.root.join(SECURE_BOOT)).ok()?;
        Some(variable.get(4) == Some(&1))
    }

    /// `none`, `integrity` or `confidentiality`: the one in brackets.
    pub(super) fn lockdown(&self) -> String {
        let states = self
            .text("sys/kernel/security/lockdown")
            .unwrap_or_default();
        let chosen = states.split_whitespace().find_map(|state| {
            let state = state.strip_prefix('[')?;
            state.strip_suffix(']')
        });
        chosen.unwrap_or("none").to_owned()
    }

    pub(super) fn enforces_signatures(&self) -> bool {
        let enforces = self.text("sys/module/module/parameters/sig_enforce");
        enforces.is_some_and(|value| value.trim() == "Y")
    }

    /// By which name the module's signer goes, as modinfo says.
    pub(super) fn signer(&self, module: &Path) -> Option<String> {
        let out = Command::new("modinfo")
            .args(["-F", "signer"])
            .arg(module)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .output();
        let signer = String::from_utf8_lossy(&out.ok()?.stdout).trim().to_owned();
        Some(signer).filter(|signer| !signer.is_empty())
    }

    /// Whether one of the kernel's keys has this name. The list shows all keys to root.
    pub(super) fn trusts(&self, signer: &str) -> bool {
        let keys = self.text("proc/keys").unwrap_or_default();
        let description = format!(" {signer}: ");
        keys.lines()
            .any(|key| key.contains(" asymmetri ") && key.contains(&description))
    }

    /// The kinds of namespaces in which this process is not the host's.
    pub(super) fn inner_namespaces(&self) -> Vec<&'static str> {
        let is_inner = |(kind, inode): &(&str, u64)| {
            let namespace = self.root.join("proc/self/ns").join(kind);
            fs::metadata(namespace).is_ok_and(|namespace| namespace.ino() != *inode)
        };
        INITIAL
            .iter()
            .filter(|one| is_inner(one))
            .map(|(kind, _)| *kind)
            .collect()
    }

    pub(super) fn has_unified_groups(&self) -> bool {
        self.root.join("sys/fs/cgroup/cgroup.controllers").exists()
    }

    pub(super) fn has_seccomp(&self) -> bool {
        self.root
            .join("proc/sys/kernel/seccomp/actions_avail")
            .exists()
    }

    /// Where unwind rows are kept; none for a user who named no folder.
    pub(super) fn cache(&self) -> Option<PathBuf> {
        nsprobe_unwind::Cache::usual_folder()
    }

    /// Bytes that are free in the file system that a folder lies in, or would.
    pub(super) fn free_bytes(&self, folder: &Path) -> Option<u64> {
        let there = folder.ancestors().find(|folder| folder.exists())?;
        let file_system = statvfs(there).ok()?;
        Some(file_system.blocks_available() * file_system.fragment_size())
    }
}
