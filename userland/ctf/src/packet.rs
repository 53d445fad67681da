// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of a stream, and the headers of events, as lttng-modules lays them out
//! (`struct packet_header` of its ring buffer's client; the metadata says the same).

/// What every packet begins with (CTF 1.8, section 5.1).
const MAGIC: u32 = 0xc1fc_1fc1;
/// The number of a class in front of a header with a long number and the whole time.
const EXTENDED: u16 = u16::MAX;
/// Bytes of a packet's header and context.
const HEADER_BYTES: usize = 4 + 16 + 4 + 8 + 6 * 8 + 4;
/// A packet with this number of bytes takes no more events.
const FULL_BYTES: usize = 32 << 10;

/// A stream, as packets name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamIdentity {
    pub(crate) uuid: [u8; 16],
    pub(crate) channel: u32,
    /// Its number among all streams.
    pub(crate) instance: u64,
    pub(crate) cpu: u32,
}

/// A packet that is being filled, and what its stream has come to.
#[derive(Debug)]
pub(crate) struct Packet {
    identity: StreamIdentity,
    /// Times of the first and the last event of this packet; none without events.
    times: Option<(u64, u64)>,
    /// The time of the last event of the stream.
    latest: u64,
    /// Packets before this one.
    number: u64,
    /// Events of the stream that were lost.
    discarded: u64,
    /// Events were lost in front of this packet, and no packet reports them yet.
    untold: bool,
    /// Header, context and events.
    bytes: Vec<u8>,
}

impl Packet {
    /// The first packet of a stream.
    pub(crate) fn first(identity: StreamIdentity) -> Packet {
        Packet {
            identity,
            times: None,
            latest: 0,
            number: 0,
            discarded: 0,
            untold: false,
            bytes: vec![0; HEADER_BYTES],
        }
    }

    /// The time of the last event of the stream, or of the last loss.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Appends an event, which is not older than the last. Returns whether the packet must be
    /// written.
    pub(crate) fn event(&mut self, time_ns: u64, class: u32, body: &[u8]) -> bool {
        self.header(time_ns, class);
        self.bytes.extend(body);
        let (first, _) = self.times.unwrap_or((time_ns, time_ns));
        self.times = Some((first, time_ns));
        self.latest = time_ns;
        // Readers place a loss between the ends of two packets: it must not seem longer than
        // it was.
        self.untold || self.bytes.len() >= FULL_BYTES
    }

    /// The large header: 16 bits of number and 32 of time, where these are enough.
    fn header(&mut self, time_ns: u64, class: u32) {
        let known = self.times.map(|(_, last)| last);
        // A reader knows the time at which the packet begins, which is that of its first event.
        let passed = time_ns - known.unwrap_or(time_ns);
        match u16::try_from(class) {
            Ok(class) if class != EXTENDED && passed <= u64::from(u32::MAX) => {
                self.bytes.extend(class.to_le_bytes());
                self.bytes.extend((time_ns as u32).to_le_bytes());
            }
            _ => {
                self.bytes.extend(EXTENDED.to_le_bytes());
                self.bytes.extend(class.to_le_bytes());
                self.bytes.extend(time_ns.to_le_bytes());
            }
        }
    }

    /// Events were lost up to `time_ns`. Returns whether the packet must be written before they are
    /// counted: so that it does not seem to lack them, and, when it is the first, because readers
    /// take the difference from one packet to the next.
    pub(crate) fn ends_at_loss(&mut self, time_ns: u64) -> bool {
        let is_wanted = self.times.is_some() || self.number == 0;
        self.latest = self.latest.max(time_ns);
        is_wanted
    }

    /// Counts lost events.
    pub(crate) fn loss(&mut self, count: u64) {
        self.discarded = self.discarded.saturating_add(count);
        self.untold = true;
    }

    /// Whether it must be written, at the end.
    pub(crate) fn is_wanted(&self) -> bool {
        self.times.is_some() || self.untold
    }

    /// Its bytes; [`next`](Self::next) is to follow.
    pub(crate) fn finished(&mut self) -> &[u8] {
        let (begin, end) = self.times.unwrap_or((self.latest, self.latest));
        let bits = 8 * self.bytes.len() as u64;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC.to_le_bytes());
        header.extend(self.identity.uuid);
        header.extend(self.identity.channel.to_le_bytes());
        header.extend(self.identity.instance.to_le_bytes());
        // Content and packet are of the same size: there is no padding.
        for number in [begin, end, bits, bits, self.number, self.discarded] {
            header.extend(number.to_le_bytes());
        }
        header.extend(self.identity.cpu.to_le_bytes());
        debug_assert_eq!(header.len(), HEADER_BYTES);
        self.bytes.splice(..HEADER_BYTES, header);
        &self.bytes
    }

    /// Begins the next packet.
    pub(crate) fn next(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
        self.times = None;
        self.untold = false;
        self.number += 1;
    }
}
