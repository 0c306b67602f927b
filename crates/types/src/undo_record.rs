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

/// The header of an undo record: its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UndoHeader([[u8; 8]; RECORD_LINES]);

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
        let mut header = Self::default();
        header.set_last(u64::from(slot) << 3 | u64::from(number) << 8 | u64::from(tag) << 32);
        header
    }

    /// Adds the address of a line, which is a multiple of [`LINE_BYTES`], and returns its number in
    /// the record; nothing if the record is full.
    pub fn push(&mut self, address: u64) -> Option<usize> {
        let index = self.count();
        if index == LINES_PER_RECORD {
            return None;
        }
        self.0[index] = address.to_le_bytes();
        self.set_last(self.last() + 1);
        Some(index)
    }

    /// How many of its lines are valid.
    pub fn count(&self) -> usize {
        (self.last() & 7) as usize
    }

    /// The addresses of its valid lines, oldest first.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = u64> {
        self.0[..self.count()].iter().map(|word| u64::from_le_bytes(*word))
    }

    /// The slot of its update.
    pub fn slot(&self) -> u8 {
        (self.last() >> 3 & 31) as u8
    }

    /// Its number within the update.
    pub fn number(&self) -> u32 {
        (self.last() >> 8) as u32 & (MAX_RECORDS - 1)
    }

    /// The writer's tag.
    pub fn tag(&self) -> u32 {
        (self.last() >> 32) as u32
    }

    /// Sets the writer's tag.
    pub fn set_tag(&mut self, tag: u32) {
        self.set_last(self.last() & u64::from(u32::MAX) | u64::from(tag) << 32);
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; LINE_BYTES] {
        self.0.as_flattened().first_chunk().expect("eight words are a line")
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If the bytes are none. They have no checksum: whether they are valid at all, hardware
    /// registers say, or a checksum in the tag.
    pub fn decode(bytes: &[u8; LINE_BYTES]) -> Result<Self, UndoHeaderError> {
        let mut header = Self::default();
        header.0.as_flattened_mut().copy_from_slice(bytes);
        if header.count() == 0 {
            return Err(UndoHeaderError::Empty);
        }
        match header.addresses().position(|address| !address.is_multiple_of(LINE_BYTES as u64)) {
            Some(index) => Err(UndoHeaderError::Unaligned(index)),
            None => Ok(header),
        }
    }

    fn last(&self) -> u64 {
        u64::from_le_bytes(self.0[LINES_PER_RECORD])
    }

    fn set_last(&mut self, last: u64) {
        self.0[LINES_PER_RECORD] = last.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        let mut header = UndoHeader::new(31, MAX_RECORDS - 1, u32::MAX);
        assert_eq!(UndoHeader::decode(header.bytes()), Err(UndoHeaderError::Empty));
        for index in 0..LINES_PER_RECORD {
            assert_eq!(header.push(64 * index as u64), Some(index));
            assert_eq!(UndoHeader::decode(header.bytes()), Ok(header));
        }
        assert_eq!(header.push(0), None, "a record has seven lines");
        assert_eq!((header.slot(), header.number(), header.tag()), (31, MAX_RECORDS - 1, u32::MAX));
    }

    #[test]
    fn bytes_that_are_no_header_are_refused() {
        let mut header = UndoHeader::new(0, 0, 0);
        header.push(128);
        let mut bytes = *header.bytes();
        bytes[0] = 1;
        assert_eq!(UndoHeader::decode(&bytes), Err(UndoHeaderError::Unaligned(0)));
        assert!(UndoHeader::decode(&[0xff; LINE_BYTES]).is_err());
    }
}
