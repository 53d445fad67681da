// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The frames of a stack: their words in a record, how each was found, and why the stack ends.

/// Why a stack has no further frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StackEnd {
    /// No stack was requested.
    None = 0,
    /// The outermost frame: a frame pointer of zero, as the ABI has it.
    Outermost = 1,
    /// The probe's limit of frames.
    Limit = 2,
    /// The next frame's memory cannot be read without a page fault.
    Fault = 3,
    /// The frame pointer is misaligned, not a user address or does not advance:
    /// the function does not keep one.
    BadFramePointer = 4,
    /// The return address is not in executable memory: the function does not
    /// keep a frame pointer.
    NotCode = 5,
    /// The unwind rows of the next frame have no rule that can be carried out, or the task runs
    /// 32-bit code.
    Unsupported = 6,
    /// By its unwind row, the next frame does not lie above the one before.
    BadRow = 7,
    /// The next frame's file has unwind rows, but none for this code.
    NoRow = 8,
    /// The last frame's file has no unwind rows yet; user space continues the walk from the
    /// [`StackCopy`](super::record::StackCopy) in front of the hit.
    Copied = 9,
    /// The next frame's page is not present; a [`LateStack`](super::record::LateStack) with all
    /// frames follows.
    Late = 10,
    /// The copy of the stack ends ([`STACK_COPY_WORDS_MAX`](super::abi::STACK_COPY_WORDS_MAX)). No
    /// record carries this reason: a reader that continues from a copy finds it.
    CopyEnd = 11,
    /// The unwind rows of the next frame's file were not there yet.
    RowsNotReady = 12,
}

impl StackEnd {
    /// The reason with this number.
    pub const fn from_u8(end: u8) -> Option<StackEnd> {
        Some(match end {
            0 => StackEnd::None,
            1 => StackEnd::Outermost,
            2 => StackEnd::Limit,
            3 => StackEnd::Fault,
            4 => StackEnd::BadFramePointer,
            5 => StackEnd::NotCode,
            6 => StackEnd::Unsupported,
            7 => StackEnd::BadRow,
            8 => StackEnd::NoRow,
            9 => StackEnd::Copied,
            10 => StackEnd::Late,
            11 => StackEnd::CopyEnd,
            12 => StackEnd::RowsNotReady,
            _ => return None,
        })
    }

    /// The reason if the walk is not continued.
    pub const fn if_left(self) -> StackEnd {
        match self {
            StackEnd::Copied => StackEnd::RowsNotReady,
            StackEnd::Late => StackEnd::Fault,
            end => end,
        }
    }

    /// Whether frames may be missing.
    pub const fn is_cut(self) -> bool {
        matches!(
            self,
            StackEnd::Fault
                | StackEnd::BadFramePointer
                | StackEnd::NotCode
                | StackEnd::Unsupported
                | StackEnd::BadRow
                | StackEnd::NoRow
                | StackEnd::RowsNotReady
                | StackEnd::CopyEnd
        )
    }
}

/// How a frame's address was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Method {
    /// The instruction pointer of the hit.
    Registers = 0,
    /// The return address on top of the stack at a function's entry.
    StackTop = 1,
    /// The return address after a saved frame pointer.
    FramePointer = 2,
    /// The return address that an unwind row leads to.
    Row = 3,
    /// The instruction that a signal has interrupted.
    Signal = 4,
}

impl Method {
    /// Whether a frame found by `method` is at the instruction itself; otherwise its address
    /// follows a call. `method` is a number from a record.
    pub const fn is_exact(method: u8) -> bool {
        method == Method::Registers as u8 || method == Method::Signal as u8
    }
}

/// Why a frame is a bare address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unmapped {
    /// The mapping has no file: generated code.
    Anonymous = 1,
    /// The session's table of objects is full.
    TableFull = 2,
    /// The mapping could not be looked up.
    NoMapping = 3,
    /// The file offset does not fit into [`OFFSET_BITS`].
    HugeOffset = 4,
    /// The address is in the kernel: stacks of samples in a table begin with its frames.
    Kernel = 5,
}

/// Bits of a frame's word that hold the file offset.
pub const OFFSET_BITS: u32 = 40;
const METHOD_BITS: u32 = 4;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// One frame. In a record it is one word, `object << 44 | method << 40 |
/// offset`; an object of 0 means a bare address in the word that follows, and
/// the offset is then an [`Unmapped`].
///
/// The offset is that of the instruction pointer for [`Method::Registers`] and
/// [`Method::Signal`], and of the return address for all others: subtract one to be
/// inside the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// A place in a mapped file.
    Object {
        /// The object's id.
        id: u32,
        /// Offset in the file, in bytes.
        offset: u64,
        /// How it was found.
        method: u8,
    },
    /// An address in no object.
    Address {
        /// The virtual address.
        address: u64,
        /// An [`Unmapped`].
        why: u8,
        /// How it was found.
        method: u8,
    },
}

impl Frame {
    /// The word of a frame in an object, without its offset, which is less than `1 << OFFSET_BITS`.
    pub const fn place(id: u32, method: Method) -> u64 {
        (id as u64) << (OFFSET_BITS + METHOD_BITS) | (method as u64) << OFFSET_BITS
    }

    /// The words of the frame, and the number of them that are used.
    pub const fn encode(self) -> ([u64; 2], usize) {
        match self {
            Frame::Object { id, offset, method } => {
                let place = (id as u64) << (OFFSET_BITS + METHOD_BITS);
                let method = (method as u64 & 0xf) << OFFSET_BITS;
                ([place | method | (offset & OFFSET_MASK), 0], 1)
            }
            Frame::Address {
                address,
                why,
                method,
            } => (
                [(method as u64 & 0xf) << OFFSET_BITS | why as u64, address],
                2,
            ),
        }
    }

    /// This frame, as found by an unwind row instead of on top of the stack: both are certain.
    pub const fn by_row(self) -> Frame {
        const fn by_row(method: u8) -> u8 {
            if method == Method::StackTop as u8 {
                Method::Row as u8
            } else {
                method
            }
        }
        match self {
            Frame::Object { id, offset, method } => Frame::Object {
                id,
                offset,
                method: by_row(method),
            },
            Frame::Address {
                address,
                why,
                method,
            } => Frame::Address {
                address,
                why,
                method: by_row(method),
            },
        }
    }

    /// The first frame of `words`, and the words after it.
    pub fn decode(words: &[u64]) -> Option<(Frame, &[u64])> {
        let (&word, rest) = words.split_first()?;
        let method = (word >> OFFSET_BITS) as u8 & 0xf;
        let offset = word & OFFSET_MASK;
        match (word >> (OFFSET_BITS + METHOD_BITS)) as u32 {
            0 => {
                let (&address, rest) = rest.split_first()?;
                let why = offset as u8;
                Some((
                    Frame::Address {
                        address,
                        why,
                        method,
                    },
                    rest,
                ))
            }
            id => Some((Frame::Object { id, offset, method }, rest)),
        }
    }
}

/// The frames of a hit, from their words.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a>(pub &'a [u64]);

impl Iterator for Frames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let (frame, rest) = Frame::decode(self.0)?;
        self.0 = rest;
        Some(frame)
    }
}
