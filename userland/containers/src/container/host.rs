// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where runtimes keep their state on this machine: root's directories, and those of users that run
//! containers.

use super::known::Findings;
use super::state_file::StateFolder;
use crate::{Result, TargetError};
use std::path::{Path, PathBuf};

/// Longest `/etc/passwd` and most users whose directories are looked at.
const USERS_MAX: usize = 1000;

/// The machine, as its files describe it.
pub(super) struct Host {
    /// `/`, but for tests.
    root: PathBuf,
    /// Whether root's own state is read.
    is_root: bool,
    /// Users that may have state of their own, without root.
    pub(super) users: Vec<User>,
}

/// A user's directories, as far as they are there.
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) home: Option<StateFolder>,
    /// Directory for state that lasts as long as the user is logged in.
    pub(super) run: Option<StateFolder>,
}

impl Host {
    /// This machine: all users when we are root, else ourselves alone.
    pub(super) fn this(findings: &mut Findings) -> Host {
        let us = nix::unistd::geteuid().as_raw();
        Host::below(Path::new("/"), us, findings)
    }

    /// A machine whose root is that directory, as user `us` sees it.
    pub(super) fn below(root: &Path, us: u32, findings: &mut Findings) -> Host {
        let mut host = Host {
            root: root.to_owned(),
            is_root: us == 0,
            users: Vec::new(),
        };
        let etc = findings.note(host.folder("/etc"));
        let passwd = etc.and_then(|etc| findings.note(etc.text("passwd")));
        let all = passwd_users(&passwd.unwrap_or_default());
        let wanted = all
            .into_iter()
            .filter(|(uid, _)| *uid != 0 && (us == 0 || *uid == us));
        for (uid, home) in wanted.take(USERS_MAX) {
            let home = match std::env::var_os("HOME") {
                Some(home) if us != 0 => PathBuf::from(home),
                _ => home,
            };
            let user = host.user(uid, &home, findings);
            host.users.push(user);
        }
        host
    }

    fn user(&self, uid: u32, home: &Path, findings: &mut Findings) -> User {
        // Programs that run as a user of their own have the whole machine for a home.
        let has_home = home.components().count() > 1 && home.is_absolute();
        let home = Some(home).filter(|_| has_home);
        User {
            uid,
            home: home.and_then(|home| findings.note(self.folder_of_user(home))),
            run: findings.note(self.folder_of_user(Path::new(&format!("/run/user/{uid}")))),
        }
    }

    /// A directory of root's; `None` when there is none, or when we are not root.
    pub(super) fn folder(&self, path: impl AsRef<Path>) -> Result<Option<StateFolder>> {
        match (StateFolder::open(&self.path(path.as_ref())), self.is_root) {
            // It is another's, who is not asked for.
            (Err(TargetError::StateUnreadable { .. }), false) => Ok(None),
            (folder, _) => folder,
        }
    }

    /// A directory of a user's.
    pub(super) fn folder_of_user(&self, path: &Path) -> Result<Option<StateFolder>> {
        let path = self.path(path);
        // Most users have none, which needs no look at the mounts.
        match path.symlink_metadata() {
            Ok(_) => StateFolder::of_user(&path),
            Err(_) => Ok(None),
        }
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// Uid and home of every user in the text of `/etc/passwd`. Users from elsewhere
/// (LDAP) are not found: a static program has no NSS.
fn passwd_users(text: &str) -> Vec<(u32, PathBuf)> {
    let user = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let uid = fields.next()?.parse().ok()?;
        Some((uid, fields.nth(2)?.into()))
    };
    text.lines().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_from_the_text_of_passwd() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\nbroken\nme:x:1000:1000:Me,,,:/home/me:/bin/sh\n+\n";
        let users = passwd_users(text);
        assert_eq!(users, [(0, "/root".into()), (1000, "/home/me".into())]);
    }
}
