// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/nsprobe` before anything is set up: open it, ask what it is.

use crate::error::{Error, Result};
use crate::reader::Reader;
use crate::session::{failed, Session};
use crate::sys;
use nix::errno::Errno;
use nsprobe_common::abi::{self, ObjectIdentity, DEVICE, RING_BYTES_MAX, RING_BYTES_MIN};
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

/// The open device.
#[derive(Debug)]
pub struct Device {
    file: File,
    info: Info,
}

/// What the module says of itself.
#[derive(Clone, Debug)]
pub struct Info {
    /// Newest version of the interface that it serves.
    pub version: u32,
    /// Oldest version that it serves.
    pub version_min: u32,
    /// What it can do.
    pub features: Features,
    /// Open sessions, this one included.
    pub sessions: u32,
    /// Attached probes of all sessions.
    pub probes: u32,
    /// Rings of a session.
    pub rings: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The module's release.
    pub release: String,
}

/// A set of `FEATURE_*` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    const NAMES: [(u64, &'static str); 26] = [
        (abi::FEATURE_ENTRY, "entry"),
        (abi::FEATURE_STACK_FP, "stack-fp"),
        (abi::FEATURE_FILTER_PID, "filter-pid"),
        (abi::FEATURE_OBJECT_FD, "object-fd"),
        (abi::FEATURE_RETURN, "return"),
        (abi::FEATURE_PROGRAM, "program"),
        (abi::FEATURE_SINKS, "sinks"),
        (abi::FEATURE_SEMAPHORE, "semaphore"),
        (abi::FEATURE_FILTERS, "filters"),
        (abi::FEATURE_MODIFY, "modify"),
        (abi::FEATURE_LIMITS, "limits"),
        (abi::FEATURE_FLIGHT, "flight"),
        (abi::FEATURE_FOLLOW, "follow"),
        (abi::FEATURE_UNWIND, "unwind"),
        (abi::FEATURE_STACKS, "stacks"),
        (abi::FEATURE_DROP, "drop"),
        (abi::FEATURE_TASKS, "tasks"),
        (abi::FEATURE_EXITS, "exits"),
        (abi::FEATURE_SAMPLES, "samples"),
        (abi::FEATURE_SPANS, "spans"),
        (abi::FEATURE_PARTIAL, "partial"),
        (abi::FEATURE_REMOTE, "remote"),
        (abi::FEATURE_WAITS, "waits"),
        (abi::FEATURE_GO, "go"),
        (abi::FEATURE_HOLD, "hold"),
        (abi::FEATURE_TAKE, "take"),
    ];

    /// The names of the bits that this version knows.
    pub fn names(self) -> Vec<&'static str> {
        let set = Self::NAMES.iter().filter(|(bit, _)| self.0 & bit != 0);
        set.map(|&(_, name)| name).collect()
    }
}

/// Bytes that all rings of a session take together, when nothing else is said.
const USUAL_BYTES: u64 = 4 << 20;

/// How a session's rings are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetupOptions {
    /// Bytes of each CPU's ring, a power of two. Zero: what suits the number of CPUs.
    pub ring_bytes: u64,
    /// Fill of a ring at which a sleeping reader wakes.
    pub watermark_bytes: u64,
    /// Programs may write. Needs CAP_SYS_ADMIN, and a module that was loaded with
    /// `allow_modify=1`. Not with `overwrite`.
    pub modify: bool,
    /// New records take the place of the oldest: they are read once the session is
    /// frozen ([`Session::freeze`]), and not before.
    pub overwrite: bool,
}

impl SetupOptions {
    /// Rings of `ring_bytes`, with the wake-up at a quarter.
    pub fn with_ring_bytes(ring_bytes: u64) -> SetupOptions {
        SetupOptions {
            ring_bytes,
            watermark_bytes: ring_bytes / 4,
            modify: false,
            overwrite: false,
        }
    }

    /// Rings that together take 4 megabytes, but each at least a quarter of one
    /// and at most 2. More would count as memory of the reader, twice, before it is used.
    pub fn usual() -> SetupOptions {
        SetupOptions::with_ring_bytes(0)
    }

    /// These options with sizes that suit the number of rings, where none are given.
    fn for_rings(&self, rings: u32) -> SetupOptions {
        if self.ring_bytes != 0 {
            return *self;
        }
        let each = USUAL_BYTES / u64::from(rings.max(1));
        let ring_bytes = (1u64 << each.max(1).ilog2()).clamp(256 << 10, 2 << 20);
        SetupOptions {
            ring_bytes,
            // Early, so that the reader has begun when much comes.
            watermark_bytes: 64 << 10,
            ..*self
        }
    }

    /// Refuses what no module would take.
    pub fn check(&self) -> Result<()> {
        if self.modify && self.overwrite {
            return Err(Error::ChangesOverwritten);
        }
        let fits = (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&self.ring_bytes);
        if fits && self.ring_bytes.is_power_of_two() {
            Ok(())
        } else {
            Err(Error::RingSize(self.ring_bytes))
        }
    }
}

impl Default for SetupOptions {
    fn default() -> SetupOptions {
        SetupOptions::with_ring_bytes(256 << 10)
    }
}

impl Device {
    /// Opens the device and checks that module and library fit.
    pub fn open() -> Result<Device> {
        let device = Device::open_any_version()?;
        device.info.check()?;
        Ok(device)
    }

    /// Opens the device of a module that may be too old or too new: good for
    /// [`info`](Self::info) only.
    pub fn open_any_version() -> Result<Device> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(DEVICE)
            .map_err(|error| open_error(errno_of(&error), module_is_loaded()))?;
        let info = sys::info(file.as_fd()).map_err(|errno| match errno {
            Errno::ENOTTY | Errno::EINVAL => Error::NotDevice(errno),
            errno => Error::Request {
                request: "INFO",
                errno,
            },
        })?;
        Ok(Device {
            file,
            info: Info::new(&info),
        })
    }

    /// What the module says of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Which file a probe by this descriptor goes into: on overlayfs the one beneath.
    pub fn identify(&self, file: &File) -> Result<ObjectIdentity> {
        let file = sys::file(self.file.as_fd(), file.as_fd());
        Ok(file.map_err(failed("FILE"))?.identity)
    }

    /// The open file, for what needs no rings.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// Makes the rings: the open file becomes a session.
    pub fn setup(self, options: &SetupOptions) -> Result<(Session, Reader)> {
        let options = &options.for_rings(self.info.rings);
        options.check()?;
        let setup = sys::setup(self.file.as_fd(), options)
            .map_err(|errno| setup_error(errno, options, self.info.rings))?;
        let page = self.info.page_bytes as usize;
        let rings = (0..u64::from(setup.rings))
            .map(|ring| {
                let offset = ring.checked_mul(setup.mmap_stride).ok_or(Errno::EOVERFLOW);
                sys::MappedRing::new(self.file.as_fd(), offset?, page, options.ring_bytes)
            })
            .collect::<std::result::Result<Vec<_>, Errno>>()
            .map_err(|errno| Error::Request {
                request: "mmap of the rings",
                errno,
            })?;
        Ok((
            Session::new(self.file),
            Reader::new(rings, !options.overwrite),
        ))
    }
}

impl Info {
    /// Refuses a module that does not speak our version.
    fn check(&self) -> Result<()> {
        let (oldest, newest) = (self.version_min, self.version);
        if (oldest..=newest).contains(&(abi::Version::CURRENT as u32)) {
            return Ok(());
        }
        Err(Error::Version {
            oldest,
            newest,
            release: self.release.clone(),
        })
    }

    fn new(info: &abi::Info) -> Info {
        let name: Vec<u8> = info
            .release
            .iter()
            .copied()
            .take_while(|&b| b != 0)
            .collect();
        Info {
            version: info.version,
            version_min: info.version_min,
            features: Features(info.features),
            sessions: info.sessions,
            probes: info.probes,
            rings: info.rings,
            page_bytes: info.page_size,
            release: String::from_utf8_lossy(&name).into_owned(),
        }
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn module_is_loaded() -> bool {
    Path::new("/sys/module/nsprobe").exists()
}

fn open_error(errno: Errno, loaded: bool) -> Error {
    match errno {
        Errno::ENOENT if loaded => Error::NoNode,
        // A node that outlived its module answers with the other two.
        Errno::ENOENT | Errno::ENXIO | Errno::ENODEV => Error::NotLoaded,
        Errno::EACCES | Errno::EPERM => Error::Denied(errno),
        Errno::EISDIR | Errno::ENOTDIR | Errno::ELOOP => Error::NotDevice(errno),
        errno => Error::Open(errno),
    }
}

fn setup_error(errno: Errno, options: &SetupOptions, rings: u32) -> Error {
    match errno {
        Errno::EACCES if options.modify => Error::MayNotModify,
        Errno::ENOMEM => Error::RingMemory {
            rings,
            bytes: options.ring_bytes,
        },
        Errno::EINVAL | Errno::E2BIG | Errno::ENOSPC => Error::RingSize(options.ring_bytes),
        errno => Error::Request {
            request: "SETUP",
            errno,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_before_the_kernel_is_asked() {
        for bad in [0, 1, 4095, 2048, 5000, 1 << 29, u64::MAX] {
            let error = SetupOptions::with_ring_bytes(bad).check().unwrap_err();
            assert!(error.to_string().contains("power of two"), "{error}");
        }
        for good in [4096, 1 << 18, 1 << 28] {
            SetupOptions::with_ring_bytes(good).check().unwrap();
        }
        let both = SetupOptions {
            modify: true,
            overwrite: true,
            ..SetupOptions::with_ring_bytes(4096)
        };
        let error = both.check().unwrap_err().to_string();
        assert!(error.contains("overwrite"), "{error}");
    }

    /// Both ways: the program of an old release, or its module, may be installed still.
    #[test]
    fn a_module_serves_us_when_our_version_is_one_of_its_own() {
        let ours = abi::Version::CURRENT as u32;
        let check = |version_min, version| {
            let info = abi::Info {
                version_min,
                version,
                ..abi::Info::default()
            };
            Info::new(&info).check()
        };
        for (oldest, newest) in [(ours, ours), (0, ours), (ours, ours + 5), (0, u32::MAX)] {
            check(oldest, newest).unwrap();
        }
        let older = [(0, 0), (0, ours - 1)];
        let newer = [(ours + 1, ours + 1), (ours + 1, u32::MAX)];
        // And what makes no sense.
        for (oldest, newest) in older.into_iter().chain(newer).chain([(ours + 1, ours - 1)]) {
            let text = check(oldest, newest).unwrap_err().to_string();
            let told = format!("serves versions {oldest} to {newest} of the interface");
            assert!(text.contains(&told), "{text}");
            assert!(text.contains(&format!("needs version {ours}")), "{text}");
        }
    }

    #[test]
    fn rings_suit_the_number_of_cpus() {
        let each = |rings| SetupOptions::usual().for_rings(rings).ring_bytes;
        assert_eq!([1, 2, 3].map(each), [2 << 20, 2 << 20, 1 << 20]);
        assert_eq!([8, 64, 4096].map(each), [512 << 10, 256 << 10, 256 << 10]);
        for rings in [0, 1, 7, 8192] {
            SetupOptions::usual().for_rings(rings).check().unwrap();
        }
        let own = SetupOptions::with_ring_bytes(4096);
        assert_eq!(own.for_rings(64), own);
    }

    #[test]
    fn each_failure_to_open_says_what_to_do() {
        let says = |errno, loaded, part: &str| {
            let text = open_error(errno, loaded).to_string();
            assert!(text.contains(part), "{text}");
        };
        says(Errno::ENOENT, false, "modprobe nsprobe");
        says(Errno::ENODEV, true, "modprobe nsprobe");
        says(Errno::ENOENT, true, "run nsprobe on the host");
        says(Errno::EPERM, true, "CAP_PERFMON and CAP_SYS_PTRACE");
        says(Errno::EPERM, true, "locked down");
        says(Errno::EMFILE, true, "cannot open /dev/nsprobe");
    }

    #[test]
    fn features_have_names() {
        assert_eq!(Features(0b101 | 1 << 63).names(), ["entry", "filter-pid"]);
    }
}
