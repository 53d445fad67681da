// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of the module by hand: neither the library nor the program
//! can hide what the kernel says.

use crate::binary::Function;
use crate::sys::{self, Mapping};
use nix::libc::{MAP_SHARED, PROT_READ, PROT_WRITE};
use nsprobe_common::abi::{
    self, Attach, Counters, Detach, Filter, Info, Object, Probe, Program, Row, Rows, Setup, Table,
};
use nsprobe_common::program::Step;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a ring when a test does not care.
pub(crate) const RING_BYTES: u64 = 1 << 20;

/// `size` of a request struct.
pub(crate) fn size<T>() -> u32 {
    size_of::<T>() as u32
}

/// The numbers and names of all requests, as the source of the interface has them: tests that
/// go through all cannot forget a new one.
pub(crate) fn requests() -> Vec<(u32, &'static str)> {
    const SOURCE: &str = include_str!("../../../common/src/abi.rs");
    let lines = SOURCE.lines();
    let requests = lines.filter_map(|line| line.strip_prefix("pub const NR_"));
    let requests = requests.map(|line| {
        let (name, number) = line.split_once(": u32 = ").expect("name and number");
        let number = number.trim_end_matches(';').parse().expect("a number");
        (number, name)
    });
    let requests: Vec<_> = requests.collect();
    let numbers: Vec<u32> = requests.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, Vec::from_iter(0..numbers.len() as u32));
    assert!(numbers.len() >= 18, "{requests:?}");
    requests
}

/// Opens the device without more.
pub(crate) fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(abi::DEVICE)
}

/// An open file of the device.
pub(crate) struct Session {
    /// The file.
    pub(crate) file: File,
    /// What [`Session::setup`] was answered.
    pub(crate) made: Setup,
}

impl AsRawFd for Session {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// The error number of a refusal; panics when it was none.
pub(crate) fn errno<T>(result: io::Result<T>, what: &str) -> i32 {
    match result {
        Ok(_) => panic!("{what}: was not refused"),
        Err(error) => error.raw_os_error().expect("from a system call"),
    }
}

impl Session {
    /// Opens the device.
    pub(crate) fn open() -> Session {
        Session {
            file: open_device().expect("the device opens for root"),
            made: Setup::default(),
        }
    }

    /// A session with rings.
    pub(crate) fn with_rings(ring_bytes: u64) -> Session {
        let mut session = Session::open();
        session.setup(ring_bytes, 0).expect("rings are made");
        session
    }

    /// What the module is.
    pub(crate) fn info(&self) -> Info {
        let mut info = Info {
            size: size::<Info>(),
            ..Info::default()
        };
        sys::ioctl(self, abi::INFO, &mut info).expect("INFO never fails");
        info
    }

    /// Makes the rings.
    pub(crate) fn setup(&mut self, ring_bytes: u64, flags: u32) -> io::Result<()> {
        self.made = Setup {
            size: size::<Setup>(),
            flags,
            ring_bytes,
            ..Setup::default()
        };
        sys::ioctl(&self.file, abi::SETUP, &mut self.made).map(drop)
    }

    /// Only these processes.
    pub(crate) fn only(&self, pids: &[u32]) -> io::Result<()> {
        let mut filter = Filter {
            size: size::<Filter>(),
            flags: abi::FILTER_PIDS,
            pids: pids.as_ptr() as u64,
            pid_count: pids.len() as u32,
            ..Filter::default()
        };
        self.filter(&mut filter)
    }

    /// Any filter.
    pub(crate) fn filter(&self, filter: &mut Filter) -> io::Result<()> {
        sys::ioctl(self, abi::FILTER, filter).map(drop)
    }

    /// Attaches one probe at the entry of a function; its id.
    pub(crate) fn probe(&self, file: &Path, function: &Function, flags: u32) -> u32 {
        let probe = probe_at(function.offset, flags);
        self.attach(file, probe)
            .unwrap_or_else(|(error, reply)| panic!("{}: {error} {reply:?}", function.name))
    }

    /// Attaches a probe to a file; its id, or the error and the reply.
    pub(crate) fn attach(&self, file: &Path, probe: Probe) -> Result<u32, (io::Error, Attach)> {
        let file = File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut probes = [Probe {
            fd: file.as_raw_fd(),
            ..probe
        }];
        self.attach_all(&mut probes)?;
        Ok(probes[0].id)
    }

    /// Attaches probes whose `fd`s are filled in.
    pub(crate) fn attach_all(&self, probes: &mut [Probe]) -> Result<(), (io::Error, Attach)> {
        self.attach_with(0, probes)
    }

    /// Attaches probes as these flags say.
    pub(crate) fn attach_with(
        &self,
        flags: u32,
        probes: &mut [Probe],
    ) -> Result<(), (io::Error, Attach)> {
        let mut attach = Attach {
            size: size::<Attach>(),
            flags,
            probes: probes.as_mut_ptr() as u64,
            count: probes.len() as u32,
            probe_size: size::<Probe>(),
            ..Attach::default()
        };
        match sys::ioctl(self, abi::ATTACH, &mut attach) {
            Ok(_) => Ok(()),
            Err(error) => Err((error, attach)),
        }
    }

    /// Detaches probes.
    pub(crate) fn detach(&self, ids: &[u32]) -> io::Result<()> {
        let mut detach = Detach {
            size: size::<Detach>(),
            ids: ids.as_ptr() as u64,
            count: ids.len() as u32,
            ..Detach::default()
        };
        sys::ioctl(self, abi::DETACH, &mut detach).map(drop)
    }

    /// A probe's counters on one CPU, or on all.
    pub(crate) fn counters_on(&self, probe: u32, cpu: u32) -> io::Result<Counters> {
        let mut counters = Counters {
            size: size::<Counters>(),
            probe,
            cpu,
            ..Counters::default()
        };
        sys::ioctl(self, abi::COUNTERS, &mut counters)?;
        Ok(counters)
    }

    /// A probe's counters when no hit is in flight: they balance. A handler that
    /// has told the victim's parent of its call by the record may still have to
    /// count it, so this waits for a moment.
    pub(crate) fn counters(&self, probe: u32) -> Counters {
        for _ in 0..3000 {
            let counters = self
                .counters_on(probe, abi::CPU_ALL)
                .expect("its id is valid");
            let done = counters
                .outcomes()
                .iter()
                .map(|(_, count)| count)
                .sum::<u64>();
            assert!(done <= counters.hits, "{counters:?}");
            if done == counters.hits {
                return counters;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("hits of probe {probe} stay unaccounted");
    }

    /// Uploads a program; its id, or the error and the reply.
    pub(crate) fn upload(&self, steps: &[Step], data: &[u8]) -> Result<u32, (io::Error, Program)> {
        let mut program = Program {
            size: size::<Program>(),
            steps: steps.as_ptr() as u64,
            step_count: steps.len() as u32,
            data: data.as_ptr() as u64,
            data_bytes: data.len() as u32,
            ..Program::default()
        };
        match sys::ioctl(self, abi::PROGRAM, &mut program) {
            Ok(_) => Ok(program.id),
            Err(error) => Err((error, program)),
        }
    }

    /// Makes a table; what was answered.
    pub(crate) fn table(&self, table: Table) -> io::Result<Table> {
        let mut table = Table {
            size: size::<Table>(),
            ..table
        };
        sys::ioctl(self, abi::TABLE, &mut table)?;
        Ok(table)
    }

    /// All rows of a table, read `at_once` at a time, and the last answer.
    pub(crate) fn rows(&self, table: &Table, at_once: usize) -> (Vec<TableRow>, Rows) {
        self.rows_with(table, at_once, 0)
    }

    /// The same rows, taken out of the table.
    pub(crate) fn take_rows(&self, table: &Table, at_once: usize) -> (Vec<TableRow>, Rows) {
        self.rows_with(table, at_once, abi::ROWS_TAKE)
    }

    fn rows_with(&self, table: &Table, at_once: usize, flags: u32) -> (Vec<TableRow>, Rows) {
        let row_words = table.row_bytes as usize / 8;
        let mut buffer = vec![0u64; row_words * at_once];
        let mut all = Vec::new();
        let mut rows = Rows {
            size: size::<Rows>(),
            flags,
            table: table.id,
            buffer: buffer.as_mut_ptr() as u64,
            buffer_bytes: (buffer.len() * 8) as u32,
            ..Rows::default()
        };
        loop {
            sys::ioctl(self, abi::ROWS, &mut rows).expect("the table is there");
            let words = buffer.chunks_exact(row_words);
            all.extend(words.take(rows.count as usize).map(TableRow::new));
            if rows.next == 0 {
                return (all, rows);
            }
        }
    }

    /// What an object is; with `OBJECT_FD` its file.
    pub(crate) fn object(&self, id: u32, flags: u32) -> io::Result<Object> {
        let mut object = Object {
            size: size::<Object>(),
            flags,
            id,
            ..Object::default()
        };
        sys::ioctl(self, abi::OBJECT, &mut object)?;
        Ok(object)
    }

    /// Maps every ring.
    pub(crate) fn rings(&self) -> Vec<Ring> {
        (0..self.made.rings)
            .map(|number| Ring::map(self, number))
            .collect()
    }
}

/// A row of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableRow {
    /// Its numbers.
    pub(crate) head: Row,
    /// Its key.
    pub(crate) key: Vec<u64>,
    /// The words of its stack.
    pub(crate) stack: Vec<u64>,
    /// Its histogram.
    pub(crate) buckets: Vec<u64>,
}

impl TableRow {
    fn new(words: &[u64]) -> TableRow {
        let (head, rest) = words.split_at(size_of::<Row>() / 8);
        let head = Row::read_from_bytes(head.as_bytes()).expect("as many bytes");
        let (key, rest) = rest.split_at(head.key_words.into());
        let (stack, buckets) = rest.split_at(head.stack_capacity.into());
        assert_eq!(buckets.len(), head.buckets as usize);
        TableRow {
            head,
            key: key.to_vec(),
            stack: stack[..head.stack_words.into()].to_vec(),
            buckets: buckets.to_vec(),
        }
    }
}

/// A probe without a file.
pub(crate) fn probe_at(offset: u64, flags: u32) -> Probe {
    Probe {
        kind: abi::PROBE_ENTRY,
        flags,
        offset,
        ..Probe::default()
    }
}

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// One CPU's ring, mapped.
pub(crate) struct Ring {
    /// The page that the reader writes.
    pub(crate) consumer: Mapping,
    /// The kernel's page, and the data after it.
    pub(crate) producer: Mapping,
}

impl Ring {
    fn map(session: &Session, number: u32) -> Ring {
        let at = u64::from(number) * session.made.mmap_stride;
        let bytes = PAGE + session.made.ring_bytes as usize;
        let both = PROT_READ | PROT_WRITE;
        Ring {
            consumer: Mapping::new(session, at, PAGE, both, MAP_SHARED).expect("consumer page"),
            producer: Mapping::new(session, at + PAGE as u64, bytes, PROT_READ, MAP_SHARED)
                .expect("producer page and data"),
        }
    }

    /// Where the next record will begin.
    pub(crate) fn produced(&self) -> u64 {
        self.producer.word(0)
    }

    /// Records that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.producer.word(8)
    }

    /// Hits whose records others have taken the place of.
    pub(crate) fn overwritten(&self) -> u64 {
        self.producer.word(24)
    }

    /// Bytes of data.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.producer.word(16)
    }

    /// The words of the records that are finished; they count as read when
    /// `take`.
    pub(crate) fn read(&self, take: bool) -> Vec<u64> {
        let mut words = Vec::new();
        let mut position = self.consumer.word(0);
        let mask = self.data_bytes() - 1;
        let word = |position: u64| self.producer.word(PAGE + (position & mask) as usize);
        while position != self.produced() {
            let header = word(position) as u32;
            if header & nsprobe_common::record::BUSY != 0 {
                break;
            }
            let length = u64::from(header & nsprobe_common::record::LENGTH);
            assert!(
                length >= 8 && length % 8 == 0 && length <= self.data_bytes(),
                "a record of {length} bytes at {position} (header {header:#x})"
            );
            words.extend((0..length / 8).map(|i| word(position + i * 8)));
            position += length;
        }
        if take {
            self.consumer.set_word(0, position);
        }
        words
    }
}
