//! The header of an undo record: where its lines belong.
//!
//! A record has 512 bytes: seven lines of old values and one line of header (ATOM, HPCA 2017,
//! section IV-C). The header is eight little-endian words of 64 bits:
//!
//! | word | bits | content |
//! |---|---|---|
//! | 0-6 | | address in bytes of the line that the old value with this number belongs to |
//! | 7 | 0-2 | how many of the lines are valid, 1 to 7 |
//! | 7 | 3-7 | slot of the update |
//! | 7 | 8-31 | number of the record within its update |
//! | 7 | 32-63 | a tag of the writer: hardware keeps the number of the update there |
//!
//! The paper reserves the bits of word 7 that are not the count. Without slot and number, recovery
//! could not tell to which update a full bucket belongs, and in which order its records were
//! written.

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;

/// Lines of old values in a record.
pub const LINES_PER_RECORD: usize = 7;

/// Lines of a record with its header, which is the last of them.
pub const RECORD_LINES: usize = LINES_PER_RECORD + 1;

/// Slots that a header can name.
pub const MAX_SLOTS: usize = 32;

/// Record numbers are below this.
pub const MAX_RECORDS: u32 = 1 << 24;

/// The header of an undo record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UndoHeader {
    addresses: [u64; LINES_PER_RECORD],
    count: u8,
    slot: u8,
    number: u32,
    tag: u32,
}

/// Why bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndoHeaderError {
    /// It says that no line is valid.
    Empty,
    /// The address with this number is not that of a line.
    Unaligned(usize),
}

impl std::fmt::Display for UndoHeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("the record has no valid line"),
            Self::Unaligned(index) => write!(f, "address {index} of the record is not a multiple of {LINE_BYTES}"),
        }
    }
}

impl std::error::Error for UndoHeaderError {}

impl UndoHeader {
    /// Returns the header of a record without lines. `slot` is below [`MAX_SLOTS`], `number` below
    /// [`MAX_RECORDS`].
    pub fn new(slot: u8, number: u32, tag: u32) -> Self {
        assert!(usize::from(slot) < MAX_SLOTS && number < MAX_RECORDS, "slot {slot} or record {number} does not fit");
        Self { slot, number, tag, ..Self::default() }
    }

    /// Adds the address of a line, which is a multiple of [`LINE_BYTES`], and returns its number in
    /// the record; nothing if the record is full.
    pub fn push(&mut self, address: u64) -> Option<usize> {
        let index = usize::from(self.count);
        *self.addresses.get_mut(index)? = address;
        self.count += 1;
        Some(index)
    }

    /// The addresses of its valid lines, oldest first.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses[..usize::from(self.count)]
    }

    /// The slot of its update.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Its number within the update.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The writer's tag.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Returns its bytes.
    pub fn encode(&self) -> [u8; LINE_BYTES] {
        let mut bytes = [0; LINE_BYTES];
        let last =
            u64::from(self.count) | u64::from(self.slot) << 3 | u64::from(self.number) << 8 | u64::from(self.tag) << 32;
        let words = self.addresses.iter().chain(std::iter::once(&last));
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If the bytes are none. They have no checksum: whether they are valid at all, hardware
    /// registers say, or a checksum in the tag.
    pub fn decode(bytes: &[u8; LINE_BYTES]) -> Result<Self, UndoHeaderError> {
        let mut words = [0u64; 8];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        let last = words[LINES_PER_RECORD];
        let mut header = Self {
            count: (last & 7) as u8,
            slot: (last >> 3 & 31) as u8,
            number: (last >> 8) as u32 & (MAX_RECORDS - 1),
            tag: (last >> 32) as u32,
            ..Self::default()
        };
        header.addresses.copy_from_slice(&words[..LINES_PER_RECORD]);
        if header.count == 0 {
            return Err(UndoHeaderError::Empty);
        }
        match header.addresses().iter().position(|address| !address.is_multiple_of(LINE_BYTES as u64)) {
            Some(index) => Err(UndoHeaderError::Unaligned(index)),
            None => Ok(header),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        let mut header = UndoHeader::new(31, MAX_RECORDS - 1, u32::MAX);
        assert_eq!(UndoHeader::decode(&header.encode()), Err(UndoHeaderError::Empty));
        for index in 0..LINES_PER_RECORD {
            assert_eq!(header.push(64 * index as u64), Some(index));
            assert_eq!(UndoHeader::decode(&header.encode()), Ok(header));
        }
        assert_eq!(header.push(0), None, "a record has seven lines");
        assert_eq!((header.slot(), header.number(), header.tag()), (31, MAX_RECORDS - 1, u32::MAX));
    }

    #[test]
    fn bytes_that_are_no_header_are_refused() {
        let mut header = UndoHeader::new(0, 0, 0);
        header.push(128);
        let mut bytes = header.encode();
        bytes[0] = 1;
        assert_eq!(UndoHeader::decode(&bytes), Err(UndoHeaderError::Unaligned(0)));
        assert!(UndoHeader::decode(&[0xff; LINE_BYTES]).is_err());
    }
}
