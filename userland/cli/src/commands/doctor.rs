// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nsprobe doctor`: what nsprobe needs of this machine, one line per check, with the command that
//! mends it.

mod machine;

use libnsprobe::{Device, Error};
use machine::{Machine, Module};
use nsprobe_containers::{Containers, Runtime};
use nsprobe_text::{counted, escaped};
use nsprobe_trace::rights;
use nsprobe_unwind::Cache;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// nsprobe works, with less than it could.
    Note,
    /// nsprobe cannot trace.
    Bad,
}

/// One line, and what to do about it.
#[derive(Debug)]
struct Check {
    verdict: Verdict,
    subject: &'static str,
    found: String,
    mend: Option<String>,
}

impl Check {
    fn good(subject: &'static str, found: impl Into<String>) -> Check {
        Check {
            verdict: Verdict::Good,
            subject,
            found: found.into(),
            mend: None,
        }
    }

    fn note(
        subject: &'static str,
        found: impl Into<String>,
        mend: impl Into<Option<String>>,
    ) -> Check {
        Check {
            verdict: Verdict::Note,
            mend: mend.into(),
            ..Check::good(subject, found)
        }
    }

    fn bad(subject: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Check {
        Check {
            verdict: Verdict::Bad,
            mend: Some(mend.into()),
            ..Check::good(subject, found)
        }
    }
}

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let machine = Machine::this();
    let lacking = rights::lacking();
    let signing = signing(&machine);
    let checks = [
        kernel(&machine),
        module(&machine, signing.verdict),
        signing,
        capabilities(&lacking),
        device(&machine, &lacking, || {
            Device::open().map(|device| device.info().release.clone())
        }),
        namespaces(&machine),
        control_groups(&machine),
        containers(),
        parser(&machine),
        cache(&machine),
    ];
    let mut out = BufWriter::new(io::stdout().lock());
    out.write_all(shown(&checks).as_bytes())?;
    out.flush()?;
    let bad = checks.iter().filter(|check| check.verdict == Verdict::Bad);
    Ok(match bad.count() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn shown(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Good => "ok",
            Verdict::Note => "note",
            Verdict::Bad => "FAIL",
        };
        let found = escaped(&check.found);
        let _ = writeln!(text, "{verdict:<5} {:<14} {found}", check.subject);
        if let Some(mend) = &check.mend {
            let _ = writeln!(text, "{:20} -> {}", "", escaped(mend));
        }
    }
    let of = |verdict| {
        checks
            .iter()
            .filter(|check| check.verdict == verdict)
            .count()
    };
    let _ = match (of(Verdict::Bad), of(Verdict::Note)) {
        (0, 0) => writeln!(text, "nsprobe can trace here"),
        (0, notes) => writeln!(
            text,
            "nsprobe can trace here, with {}",
            counted(notes, "note")
        ),
        (bad, _) => writeln!(
            text,
            "nsprobe cannot trace here: {} failed",
            counted(bad, "check")
        ),
    };
    text
}

fn kernel(machine: &Machine) -> Check {
    const SUBJECT: &str = "kernel";
    const MEND: &str = "apt install -t trixie-backports linux-image-amd64, and boot it";
    let release = &machine.release;
    if machine.processor != "x86_64" {
        let found = format!("{release} for {}: nsprobe needs x86_64", machine.processor);
        return Check::bad(SUBJECT, found, "run it on an x86-64 machine");
    }
    if machine.is_too_old() {
        return Check::bad(
            SUBJECT,
            format!("{release}: nsprobe needs Linux 7.2 or later"),
            MEND,
        );
    }
    if machine.has_module_loaded() {
        return Check::good(SUBJECT, release);
    }
    match machine.config() {
        Some(config) if config.lines().any(|line| line == "CONFIG_RUST=y") => {
            Check::good(SUBJECT, release)
        }
        Some(_) => Check::bad(
            SUBJECT,
            format!("{release} has no Rust (CONFIG_RUST), in which the module is written"),
            MEND,
        ),
        None => Check::note(
            SUBJECT,
            format!("{release}; whether it has Rust is not known, as its configuration is absent"),
            MEND.to_owned(),
        ),
    }
}

fn module(machine: &Machine, signing: Verdict) -> Check {
    const SUBJECT: &str = "module";
    let release = &machine.release;
    if machine.has_module_loaded() {
        return Check::good(SUBJECT, "loaded");
    }
    let modules = machine.modules();
    if modules.iter().any(|module| &module.release == release) {
        return match signing {
            Verdict::Bad => Check::note(SUBJECT, "not loaded: this kernel refuses it", None),
            _ => Check::bad(SUBJECT, "not loaded", "modprobe nsprobe"),
        };
    }
    let others: Vec<&str> = modules.iter().map(|one| one.release.as_str()).collect();
    let found = match others[..] {
        [] => "none is installed".to_owned(),
        _ => format!(
            "none for this kernel; there is one for {}",
            others.join(", ")
        ),
    };
    let mend = match machine.is_debians() {
        true if machine.has_dkms_source() => {
            format!("dkms autoinstall -k {release}, which says what is missing")
        }
        true => format!(
            "apt install ./nsprobe-modules-{release}_*.deb, which `make packages KVER={release}` \
             builds; or ./nsprobe-dkms_*.deb"
        ),
        false => "boot one of Debian's backports kernels: docs/kernels.md".into(),
    };
    Check::bad(SUBJECT, found, mend)
}

/// Whether the kernel takes the module that is there.
fn signing(machine: &Machine) -> Check {
    const SUBJECT: &str = "signature";
    let lockdown = machine.lockdown();
    let state = match (machine.is_secure_boot(), lockdown.as_str()) {
        (Some(true), _) => format!("Secure Boot is on, lockdown: {lockdown}"),
        (_, "none") if !machine.enforces_signatures() => "not asked for by this kernel".to_owned(),
        (_, "none") => "asked for (module.sig_enforce)".to_owned(),
        _ => format!("lockdown: {lockdown}"),
    };
    if lockdown == "confidentiality" {
        let found = format!("{state}, under which nothing can be traced");
        return Check::bad(SUBJECT, found, "boot with lockdown=integrity or less");
    }
    if machine.has_module_loaded() || lockdown == "none" && !machine.enforces_signatures() {
        return Check::good(SUBJECT, state);
    }
    let modules = machine.modules();
    let ours = |module: &&Module| module.release == machine.release;
    let Some(module) = modules.iter().find(ours) else {
        return Check::note(
            SUBJECT,
            format!("{state}: the module has to be signed"),
            None,
        );
    };
    match machine.signer(&module.path) {
        None => Check::bad(
            SUBJECT,
            format!("{state}, and the module is not signed"),
            "make packages SIGN_KEY=KEY.pem SIGN_CERT=CERT.pem, with a key that this machine trusts",
        ),
        Some(signer) if machine.trusts(&signer) => {
            Check::good(SUBJECT, format!("{state}; the module is signed by '{signer}'"))
        }
        Some(signer) => Check::bad(
            SUBJECT,
            format!("{state}, and the kernel has no key of '{signer}', who signed the module"),
            "openssl x509 -in CERT.pem -outform DER -out CERT.der; mokutil --import CERT.der; reboot",
        ),
    }
}

fn capabilities(lacking: &[&str]) -> Check {
    const SUBJECT: &str = "capabilities";
    match lacking {
        [] => Check::good(SUBJECT, "those of a tracer"),
        _ => Check::bad(
            SUBJECT,
            format!("this process lacks {}", lacking.join(" and ")),
            "run nsprobe as root; a container needs --privileged",
        ),
    }
}

fn device(
    machine: &Machine,
    lacking: &[&str],
    open: impl FnOnce() -> Result<String, Error>,
) -> Check {
    const SUBJECT: &str = "device";
    // What stands above says why it would fail.
    if !machine.has_module_loaded() || !lacking.is_empty() {
        return Check::note(SUBJECT, "not opened", None);
    }
    match open() {
        Ok(release) => {
            let changes = match machine.allows_changes() {
                true => ", programs may be changed (allow_modify)",
                false => "",
            };
            Check::good(
                SUBJECT,
                format!("/dev/nsprobe, of module {release}{changes}"),
            )
        }
        Err(error @ Error::Version { .. }) => {
            let mend = "install the packages of one release, then: rmmod nsprobe; modprobe nsprobe";
            Check::bad(SUBJECT, error.to_string(), mend)
        }
        Err(error) => Check::bad(
            SUBJECT,
            error.to_string(),
            "run nsprobe as root on the host",
        ),
    }
}

fn namespaces(machine: &Machine) -> Check {
    const SUBJECT: &str = "namespaces";
    let inner = machine.inner_namespaces();
    match inner[..] {
        [] => Check::good(SUBJECT, "those of the host"),
        _ => Check::bad(
            SUBJECT,
            format!(
                "nsprobe runs in a container, in a {} namespace of its own",
                inner.join(" and a ")
            ),
            "run it on the host, or in a container with --privileged --pid=host",
        ),
    }
}

fn control_groups(machine: &Machine) -> Check {
    const SUBJECT: &str = "control groups";
    match machine.has_unified_groups() {
        true => Check::good(SUBJECT, "version 2"),
        false => Check::note(
            SUBJECT,
            "not version 2: services and control groups are no targets, and names of containers may \
             be missing",
            "boot with systemd.unified_cgroup_hierarchy=1".to_owned(),
        ),
    }
}

fn containers() -> Check {
    const SUBJECT: &str = "containers";
    let containers = match Containers::take() {
        Ok(containers) => containers,
        Err(error) => return Check::note(SUBJECT, error.to_string(), None),
    };
    let mut runtimes: BTreeMap<&str, usize> = BTreeMap::new();
    for one in containers.iter().filter(|one| one.is_running()) {
        if one.runtime != Runtime::Bare {
            *runtimes.entry(one.runtime.name()).or_default() += 1;
        }
    }
    let each: Vec<String> = runtimes
        .iter()
        .map(|(name, n)| format!("{n} of {name}"))
        .collect();
    let found = match each[..] {
        [] => "none runs".to_owned(),
        _ => each.join(", "),
    };
    match containers.problems().len() {
        0 => Check::good(SUBJECT, found),
        problems => Check::note(
            SUBJECT,
            format!(
                "{found}; {} about the runtimes' files",
                counted(problems, "problem")
            ),
            "nsprobe containers names them".to_owned(),
        ),
    }
}

fn parser(machine: &Machine) -> Check {
    const SUBJECT: &str = "parser";
    match machine.has_seccomp() {
        true => Check::good(SUBJECT, "files are parsed without privileges (seccomp)"),
        false => Check::bad(
            SUBJECT,
            "this kernel has no seccomp, under which files of containers are parsed",
            "boot a kernel with CONFIG_SECCOMP_FILTER, or give --no-sandbox each time",
        ),
    }
}

fn cache(machine: &Machine) -> Check {
    const SUBJECT: &str = "cache";
    let Some(folder) = machine.cache() else {
        return Check::note(
            SUBJECT,
            "none: unwind rows are computed in each run",
            "set NSPROBE_CACHE to a folder of yours".to_owned(),
        );
    };
    let (shown, free) = (folder.display(), machine.free_bytes(&folder));
    match free {
        Some(free) if free < Cache::BYTES_MAX => Check::note(
            SUBJECT,
            format!(
                "{shown}: {} MB are free, and it takes up to {}",
                free >> 20,
                Cache::BYTES_MAX >> 20
            ),
            "make room, or set NSPROBE_CACHE to another folder".to_owned(),
        ),
        _ => Check::good(SUBJECT, shown.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::ops::Deref;
    use std::path::PathBuf;

    const RELEASE: &str = "7.2.12+deb13-amd64";

    /// A machine of some files, which go with it.
    struct Made(Machine, PathBuf);

    impl Deref for Made {
        type Target = Machine;
        fn deref(&self) -> &Machine {
            &self.0
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.1);
        }
    }

    fn machine(name: &str, files: &[(&str, &[u8])]) -> Made {
        let name = format!("nsprobe-doctor-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it is ours");
            fs::write(path, text).expect("it is ours");
        }
        Made(Machine::at(root.clone(), RELEASE), root)
    }

    fn says(check: &Check, verdict: Verdict, words: &str) {
        assert_eq!(check.verdict, verdict, "{check:?}");
        let text = format!("{} -> {}", check.found, check.mend.as_deref().unwrap_or(""));
        assert!(text.contains(words), "{check:?} without {words}");
    }

    #[test]
    fn a_kernel_without_rust_is_told_from_one_that_has_it() {
        let config = format!("boot/config-{RELEASE}");
        let old = Machine::at("/nowhere".into(), "6.12.48+deb13-amd64");
        says(&kernel(&old), Verdict::Bad, "7.2 or later");
        let bare = machine("bare", &[]);
        says(&kernel(&bare), Verdict::Note, "not known");
        let without = machine("without", &[(&config, b"# CONFIG_RUST is not set\n")]);
        says(&kernel(&without), Verdict::Bad, "trixie-backports");
        let with = machine("with", &[(&config, b"CONFIG_RUST=y\n")]);
        says(&kernel(&with), Verdict::Good, RELEASE);
    }

    #[test]
    fn a_module_is_looked_for_where_it_may_lie() {
        let none = machine("none", &[]);
        says(
            &module(&none, Verdict::Good),
            Verdict::Bad,
            "make packages KVER=7.2.12+deb13-amd64",
        );
        let dkms = machine("dkms", &[("usr/src/nsprobe-0.1.0/dkms.conf", b"")]);
        says(
            &module(&dkms, Verdict::Good),
            Verdict::Bad,
            "dkms autoinstall -k 7.2.12+deb13-amd64",
        );
        let other = "lib/modules/7.2.9+deb13-amd64/updates/nsprobe.ko.xz";
        let other = machine("other", &[(other, b"")]);
        says(
            &module(&other, Verdict::Good),
            Verdict::Bad,
            "there is one for 7.2.9+deb13-amd64",
        );
        let ours = format!("lib/modules/{RELEASE}/updates/dkms/nsprobe.ko");
        let ours = machine("ours", &[(&ours, b"")]);
        says(
            &module(&ours, Verdict::Good),
            Verdict::Bad,
            "modprobe nsprobe",
        );
        says(&module(&ours, Verdict::Bad), Verdict::Note, "refuses it");
        let loaded = machine("loaded", &[("sys/module/nsprobe/refcnt", b"0\n")]);
        says(&module(&loaded, Verdict::Good), Verdict::Good, "loaded");
    }

    #[test]
    fn a_signature_is_asked_for_where_the_kernel_wants_one() {
        let ours = format!("lib/modules/{RELEASE}/updates/nsprobe.ko");
        let lockdown = "sys/kernel/security/lockdown";
        let lax = machine(
            "lax",
            &[
                (lockdown, b"[none] integrity confidentiality\n"),
                (&ours, b""),
            ],
        );
        says(&signing(&lax), Verdict::Good, "not asked for");
        let locked: [(&str, &[u8]); 2] = [
            (lockdown, b"none [integrity] confidentiality\n"),
            (&ours, b"no ELF file"),
        ];
        says(
            &signing(&machine("locked", &locked)),
            Verdict::Bad,
            "SIGN_KEY",
        );
        let secure: (&str, &[u8]) = (machine::SECURE_BOOT, &[6, 0, 0, 0, 1]);
        let secure = machine("secure", &[locked[0], locked[1], secure]);
        says(&signing(&secure), Verdict::Bad, "Secure Boot is on");
        let enforced: (&str, &[u8]) = ("sys/module/module/parameters/sig_enforce", b"Y\n");
        says(
            &signing(&machine("enforced", &[enforced, locked[1]])),
            Verdict::Bad,
            "sig_enforce",
        );
        let closed: (&str, &[u8]) = (lockdown, b"none integrity [confidentiality]\n");
        says(
            &signing(&machine("closed", &[closed])),
            Verdict::Bad,
            "nothing can be traced",
        );
        let keys =
            b"0a1b I------     1 perm 1f010000     0     0 asymmetri Somebody: 01ab: X509.rsa\n";
        let keys = machine("keys", &[("proc/keys", keys)]);
        assert!(keys.trusts("Somebody") && !keys.trusts("Some"));
    }

    #[test]
    fn what_is_bad_is_counted_and_comes_with_what_mends_it() {
        let checks = [
            Check::good("kernel", RELEASE),
            capabilities(&["CAP_PERFMON"]),
            Check::note("device", "not opened", None),
        ];
        assert_eq!(
            shown(&checks),
            "ok    kernel         7.2.12+deb13-amd64\n\
             FAIL  capabilities   this process lacks CAP_PERFMON\n\
             \x20                    -> run nsprobe as root; a container needs --privileged\n\
             note  device         not opened\n\
             nsprobe cannot trace here: 1 check failed\n"
        );
    }
}
