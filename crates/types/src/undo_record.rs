//! The layout of an undo record: seven old cache lines and a header line with their addresses
//! (Joshi et al., ATOM, HPCA 2017, section IV-C). The simulated hardware log and the heap for
//! programs (`duramen-heap`) share it.
//!
//! | bytes | content |
//! |---|---|
//! | 0..448 | seven lines; those from the count on are not used |
//! | 448..504 | the addresses of the lines, as words; zero from the count on |
//! | 504..512 | word 7 of the header: bits 0 to 2 count, 3 to 7 owner, 8 to 31 number of the record within its update, 32 to 63 tag |
//!
//! The owner is an atomic update structure of the hardware, or a slot of a heap. The tag ties the
//! record to one update: the hardware has the number of the update there, because its registers say
//! which records are valid. Software has no such registers; its tag is a checksum.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
/// Lines that a record can hold.
pub const ENTRIES: usize = 7;
/// Bytes of a record.
pub const RECORD_BYTES: usize = LINE_BYTES * (ENTRIES + 1);
/// Where the header begins within a record.
pub const HEADER_AT: usize = LINE_BYTES * ENTRIES;
/// The owners that a record can name are below this.
pub const OWNERS: u32 = 32;
/// The numbers that a record can have are below this.
pub const NUMBERS: u32 = 1 << 24;

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UndoHeader {
    addresses: [u64; ENTRIES],
    count: u8,
    owner: u8,
    number: u32,
    /// What ties the record to its update.
    pub tag: u32,
}

impl UndoHeader {
    /// Returns the header of a record of the lines at `addresses`.
    ///
    /// # Panics
    /// When there are no addresses or more than [`ENTRIES`], or when owner or number is not below
    /// its limit.
    pub fn new(addresses: &[u64], owner: u32, number: u32, tag: u32) -> Self {
        assert!((1..=ENTRIES).contains(&addresses.len()), "a record has one to seven lines");
        assert!(owner < OWNERS && number < NUMBERS, "owner and number fit into their bits");
        let mut all = [0; ENTRIES];
        all[..addresses.len()].copy_from_slice(addresses);
        Self { addresses: all, count: addresses.len() as u8, owner: owner as u8, number, tag }
    }

    /// Returns the addresses of the record's lines.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses[..usize::from(self.count)]
    }

    /// Returns the record's owner.
    pub fn owner(&self) -> u32 {
        u32::from(self.owner)
    }

    /// Returns the number of the record within its update, from 0.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the header's bytes.
    pub fn encode(&self) -> [u8; LINE_BYTES] {
        let mut bytes = [0; LINE_BYTES];
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (word, address) in words.iter_mut().zip(self.addresses) {
            *word = address.to_le_bytes();
        }
        let low = u32::from(self.count) | u32::from(self.owner) << 3 | self.number << 8;
        words[ENTRIES] = (u64::from(low) | u64::from(self.tag) << 32).to_le_bytes();
        bytes
    }

    /// Returns the header in these bytes; `None` if they are the header of no record. The tag says
    /// whether the record is valid; it is not checked here.
    pub fn decode(bytes: &[u8; LINE_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        let addresses: [u64; ENTRIES] = std::array::from_fn(word);
        let last = word(ENTRIES);
        let count = (last & 7) as u8;
        let unused = addresses.iter().skip(usize::from(count));
        if count == 0 || unused.into_iter().any(|address| *address != 0) {
            return None;
        }
        let (owner, number) = ((last >> 3 & 31) as u8, last as u32 >> 8);
        Some(Self { addresses, count, owner, number, tag: (last >> 32) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_decoded_as_it_was_encoded() {
        for count in 1..=ENTRIES {
            let addresses: Vec<u64> = (1..=count as u64).map(|line| line * 64).collect();
            let header = UndoHeader::new(&addresses, 31, NUMBERS - 1, 0xDEAD_BEEF);
            assert_eq!(UndoHeader::decode(&header.encode()), Some(header));
            assert_eq!(header.addresses(), addresses);
            assert_eq!((header.owner(), header.number(), header.tag), (31, NUMBERS - 1, 0xDEAD_BEEF));
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        assert_eq!(UndoHeader::decode(&[0; LINE_BYTES]), None);
        let mut bytes = UndoHeader::new(&[64], 0, 0, 0).encode();
        bytes[8] = 1;
        assert_eq!(UndoHeader::decode(&bytes), None, "an address behind the count");
    }

    #[test]
    fn the_last_word_has_the_documented_bits() {
        let bytes = UndoHeader::new(&[128, 64], 3, 5, 7).encode();
        let last = u64::from_le_bytes(bytes[56..].try_into().unwrap());
        assert_eq!(last, 2 | 3 << 3 | 5 << 8 | 7 << 32);
    }
}
