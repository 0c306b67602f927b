//! Segment files: the geometry of the log, and the header of a segment.
//!
//! A segment file is one header block and then the log's bytes:
//!
//! ```text
//! block 0, of which only the first 512 bytes are used, so that it is written whole or not at all:
//!   0 magic          8 bytes  "DURAMLOG"
//!   8 version        u32      of a whole file, and of one that may still have to grow: 3 and 4; 5 and 6 in one of
//!                             several logs; 1 and 2 if all records have full headers; 3 and 4 also in one of several
//!                             logs whose sync records state no boundaries
//!  12 crc            u32      CRC-32C of the 512 bytes with this field zero
//!  16 database       16 bytes
//!  32 log            u16
//!  34 logs           u16      how many the database has; 0 is as good as 1
//!  36 zeros          4 bytes
//!  40 number         u64      of the segment; also in the file's name
//!  48 base           u64      LSN of the first byte behind the header
//!  56 start          u64      the log's start when the header was written
//!  64 segment_bytes  u64      size of the file when it is whole
//!  72 ring_bytes     u64      size of the log buffer of the process that writes the segment
//!  80 ring           u64      number of the ring in persistent memory that holds the end of the log, or zero: see the
//!                             last segment's
//!  88 file_bytes     u64      in versions 2, 4 and 6: size that the file has at least, a multiple of 4096
//! block 1 and following: the bytes from LSN `base`
//! ```
//!
//! Segment `n` holds the LSNs from `FIRST_LSN + n * (segment_bytes - 4096)`, so a block of LSNs is
//! also a block of the file. The log's start is the highest `start` in any of its segments.
//!
//! The file of the last segment may be shorter than `segment_bytes`: it grows ahead of the log,
//! which ends inside it. A file is durable with its new size before the header states this size, so
//! a file that is shorter than its header states has lost its end.

use duramen_io::{AlignedBuf, File};
use duramen_types::{BLOCK_SIZE, LogId, Lsn, SECTOR_SIZE, crc32c};

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::header::number as number_at;
use crate::format::identity::Identity;

/// Directory of the segments of a database's first log, and of copies of them.
pub(crate) const DIRECTORY: &str = "log";

/// Returns the directory of the segments of a log: `log`, or `log1` and so on for further logs.
pub(crate) fn directory(log: LogId) -> String {
    if log.is_zero() { DIRECTORY.to_owned() } else { format!("log{}", log.get()) }
}

/// Size of a block, and of the header, in bytes.
pub(crate) const BLOCK: u64 = BLOCK_SIZE as u64;

/// LSNs stay below this limit, so additions never overflow, and the highest bit is free for marks.
const LSN_LIMIT: u64 = 1 << 62;

const MAGIC: [u8; 8] = *b"DURAMLOG";
/// The version of a whole file in a database's only log.
const WHOLE: u32 = 3;
/// What is added to the version in one of several logs.
const SEVERAL: u32 = 2;
/// What is added to the version of a file that may have to grow.
const GROWING: u32 = 1;
/// The latest version.
const VERSION: u32 = WHOLE + SEVERAL + GROWING;
/// Offset of the field that whole files lack.
const FILE_BYTES: usize = 88;

/// Maps LSNs to segments and offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) segment_bytes: u64,
}

impl Geometry {
    /// Returns the log bytes in a segment.
    pub(crate) const fn data_bytes(&self) -> u64 {
        self.segment_bytes - BLOCK
    }

    /// Returns the number of the segment that holds `lsn`.
    pub(crate) const fn segment_of(&self, lsn: u64) -> u64 {
        (lsn - FIRST_LSN.get()) / self.data_bytes()
    }

    /// Returns the LSN of the first log byte of segment `number`.
    pub(crate) const fn base(&self, number: u64) -> u64 {
        FIRST_LSN.get() + number * self.data_bytes()
    }

    /// Returns [`Geometry::base`], or `None` if the segment would exceed the possible LSNs.
    fn checked_base(&self, number: u64) -> Option<u64> {
        let limit = number.checked_add(1)?.checked_mul(self.data_bytes())?.checked_add(FIRST_LSN.get())?;
        (limit <= LSN_LIMIT).then(|| self.base(number))
    }

    /// Returns the byte offset of `lsn` in the file of its segment.
    pub(crate) const fn offset(&self, lsn: u64) -> u64 {
        BLOCK + (lsn - FIRST_LSN.get()) % self.data_bytes()
    }

    /// Returns the size of a file of segment `number` up to `lsn`, in whole blocks, at most whole.
    pub(crate) fn bytes_up_to(&self, number: u64, lsn: u64) -> u64 {
        let inside = lsn.saturating_sub(self.base(number)).next_multiple_of(BLOCK);
        BLOCK + inside.min(self.data_bytes())
    }

    /// Makes the error that the log is damaged at `lsn`.
    pub(crate) fn corrupt(&self, lsn: u64, reason: impl Into<String>) -> WalError {
        damaged(self.segment_of(lsn), self.offset(lsn), reason)
    }
}

/// Makes the error that a segment is damaged at this offset of its file.
pub(crate) fn damaged(segment: u64, offset: u64, reason: impl Into<String>) -> WalError {
    WalError::Corrupt { segment, offset, reason: reason.into() }
}

/// Returns the file name of segment `number` of `log`.
pub fn segment_name(log: LogId, number: u64) -> String {
    format!("{}/{number:016x}.log", directory(log))
}

/// Returns the file name of a spare that was, or was to be, segment `number`.
pub(crate) fn spare_name(log: LogId, number: u64) -> String {
    format!("{}/{number:016x}.spare", directory(log))
}

/// The kind of a file in the log directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogFile {
    Segment(u64),
    Spare(u64),
    Foreign,
}

/// Returns the kind of a file, given its name without the directory.
pub(crate) fn classify(name: &str) -> LogFile {
    let number = |ending: &str| {
        let digits = name.strip_suffix(ending)?;
        let lower_hex = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let number = u64::from_str_radix(digits, 16).ok()?;
        // The log never assigns a number so large that its LSNs would overflow.
        (digits.len() == 16 && lower_hex && number < 1 << 44).then_some(number)
    };
    match (number(".log"), number(".spare")) {
        (Some(number), _) => LogFile::Segment(number),
        (_, Some(number)) => LogFile::Spare(number),
        _ => LogFile::Foreign,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) database: [u8; 16],
    pub(crate) log: LogId,
    /// Number of logs of the database; 0 means the same as 1.
    pub(crate) logs: u16,
    pub(crate) number: u64,
    pub(crate) start: Lsn,
    pub(crate) segment_bytes: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) ring: u64,
    /// Size that the file has at least: `segment_bytes` if it is whole.
    pub(crate) file_bytes: u64,
}

impl SegmentHeader {
    /// Makes the header of segment `number`, whose log starts at `start`, in a copy: the file is
    /// whole, and no log writes to it.
    pub(crate) fn of_copy(identity: &Identity, number: u64, start: Lsn, segment_bytes: u64) -> Self {
        let (database, log) = (identity.database, identity.log);
        // One log is written as 0: such logs existed before several logs were possible.
        let logs = if identity.count > 1 { identity.count } else { 0 };
        let (ring_bytes, ring, file_bytes) = (BLOCK, 0, segment_bytes);
        Self { database, log, logs, number, start, segment_bytes, ring_bytes, ring, file_bytes }
    }

    /// Writes the header to its place in `file`.
    pub(crate) fn write(&self, file: &dyn File) -> Result<()> {
        Ok(file.write_at(&[&self.encode()], 0)?)
    }

    /// Writes the header to its place in `file`, durably.
    pub(crate) fn write_durable(&self, file: &dyn File) -> Result<()> {
        Ok(file.write_durable(&[&self.encode()], 0)?)
    }

    fn encode(&self) -> AlignedBuf {
        let mut block = AlignedBuf::zeroed(BLOCK as usize);
        let Self { number, start, segment_bytes, ring_bytes, ring, file_bytes, .. } = *self;
        let several = if self.logs > 1 { SEVERAL } else { 0 };
        let (growing, file_bytes) = if file_bytes == segment_bytes { (0, 0) } else { (GROWING, file_bytes) };
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&(WHOLE + several + growing).to_le_bytes());
        block[16..32].copy_from_slice(&self.database);
        block[32..34].copy_from_slice(&self.log.get().to_le_bytes());
        block[34..36].copy_from_slice(&self.logs.to_le_bytes());
        let base = Geometry { segment_bytes }.base(number);
        let numbers = [number, base, start.get(), segment_bytes, ring_bytes, ring, file_bytes];
        for (field, number) in block[40..FILE_BYTES + 8].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c(&block[..SECTOR_SIZE]);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Reads the header of segment `number` from `block`; checks everything except its identity.
    pub(crate) fn decode(block: &[u8], number: u64) -> Result<Self> {
        let corrupt = |reason: &str| damaged(number, 0, reason);
        let Some(sector) = block.first_chunk::<SECTOR_SIZE>() else { return Err(corrupt("the header is incomplete")) };
        if sector[..8] != MAGIC {
            return Err(corrupt("the file does not begin with the mark of a log segment"));
        }
        let u64_at = |at: usize| number_at(sector, at);
        let (version, stored_crc) = (u64_at(8) as u32, (u64_at(8) >> 32) as u32);
        // Checked before the checksum, which another version may compute differently.
        if !(1..=VERSION).contains(&version) {
            return Err(WalError::WrongVersion { found: version, supported: VERSION });
        }
        let mut checked = *sector;
        checked[12..16].fill(0);
        if crc32c(&checked) != stored_crc {
            return Err(corrupt("the checksum of the header is wrong"));
        }
        let mut database = [0; 16];
        database.copy_from_slice(&sector[16..32]);
        let header = Self {
            database,
            log: LogId::new(u64_at(32) as u16),
            logs: (u64_at(32) >> 16) as u16,
            number: u64_at(40),
            start: Lsn::new(u64_at(56)),
            segment_bytes: u64_at(64),
            ring_bytes: u64_at(72),
            ring: u64_at(80),
            file_bytes: u64_at(if version.is_multiple_of(2) { FILE_BYTES } else { 64 }),
        };
        if header.number != number {
            return Err(corrupt(&format!("the header belongs to segment {:016x}", header.number)));
        }
        let whole = header.segment_bytes.is_multiple_of(BLOCK) && (2 * BLOCK..=1 << 40).contains(&header.segment_bytes);
        let has_size =
            header.file_bytes.is_multiple_of(BLOCK) && (BLOCK..=header.segment_bytes).contains(&header.file_bytes);
        if !whole || !has_size || header.start < FIRST_LSN || !(BLOCK..=1 << 40).contains(&header.ring_bytes) {
            return Err(corrupt("the header contains impossible values"));
        }
        if (Geometry { segment_bytes: header.segment_bytes }).checked_base(number) != Some(u64_at(48)) {
            return Err(corrupt("the LSN in the header does not match the number of the segment"));
        }
        Ok(header)
    }

    /// Returns whether the segment belongs to this log.
    pub(crate) fn is_of(&self, identity: &Identity) -> bool {
        self.database == identity.database && self.log == identity.log && self.logs.max(1) == identity.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            database: *b"0123456789abcdef",
            log: LogId::new(2),
            logs: 3,
            number: 5,
            start: Lsn::new(9000),
            segment_bytes: 65536,
            ring_bytes: 1 << 20,
            ring: 77,
            file_bytes: 65536,
        }
    }

    #[test]
    fn a_file_that_grows_has_a_header_of_its_own() {
        let block = header().encode();
        assert_eq!((block[8], &block[FILE_BYTES..FILE_BYTES + 8]), (5, &[0; 8][..]));
        assert_eq!(SegmentHeader { logs: 1, ..header() }.encode()[8], 3);
        let short = SegmentHeader { file_bytes: 2 * BLOCK, ..header() };
        let block = short.encode();
        assert_eq!((block[8], SegmentHeader::decode(&block, 5).unwrap()), (6, short));
        for file_bytes in [0, BLOCK + 512, 65536 + BLOCK, u64::MAX] {
            let block = SegmentHeader { file_bytes, ..header() }.encode();
            assert!(
                matches!(SegmentHeader::decode(&block, 5), Err(WalError::Corrupt { offset: 0, .. })),
                "{file_bytes}"
            );
        }
    }

    #[test]
    fn headers_of_earlier_versions_are_read() {
        for file_bytes in [65536, 2 * BLOCK] {
            let header = SegmentHeader { file_bytes, ..header() };
            let mut block = header.encode();
            block[8] -= 2;
            block[12..16].fill(0);
            let crc = crc32c(&block[..SECTOR_SIZE]);
            block[12..16].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(SegmentHeader::decode(&block, 5).unwrap(), header);
        }
    }

    #[test]
    fn header_round_trip_and_damage() {
        let mut block = header().encode();
        assert_eq!(SegmentHeader::decode(&block, 5).unwrap(), header());
        assert!(matches!(SegmentHeader::decode(&block, 6), Err(WalError::Corrupt { segment: 6, offset: 0, .. })));
        for byte in 0..SECTOR_SIZE {
            let mut damaged = block.to_vec();
            damaged[byte] ^= 0x10;
            SegmentHeader::decode(&damaged, 5).unwrap_err();
        }
        block[8] = 9;
        assert!(matches!(
            SegmentHeader::decode(&block, 5),
            Err(WalError::WrongVersion { found: 9, supported: VERSION })
        ));
        SegmentHeader::decode(&[0; 100], 5).unwrap_err();
        SegmentHeader::decode(&[0; 4096], 5).unwrap_err();
    }

    /// A matching checksum does not make the numbers plausible.
    #[test]
    fn impossible_headers_are_corrupt() {
        let refused = |header: SegmentHeader, base: u64| {
            let mut block = SegmentHeader { number: 0, ..header }.encode();
            block[40..48].copy_from_slice(&header.number.to_le_bytes());
            block[48..56].copy_from_slice(&base.to_le_bytes());
            block[12..16].fill(0);
            let crc = crc32c(&block[..SECTOR_SIZE]);
            block[12..16].copy_from_slice(&crc.to_le_bytes());
            matches!(SegmentHeader::decode(&block, header.number), Err(WalError::Corrupt { offset: 0, .. }))
        };
        let base = Geometry { segment_bytes: header().segment_bytes }.base(header().number);
        assert!(!refused(header(), base));
        assert!(refused(header(), base + 8));
        assert!(refused(SegmentHeader { ring_bytes: 0, ..header() }, base));
        for number in [(1 << 44) - 1, u64::MAX] {
            for segment_bytes in [64 << 20, 1 << 40] {
                let base = number.wrapping_mul(segment_bytes - BLOCK).wrapping_add(FIRST_LSN.get());
                assert!(
                    refused(SegmentHeader { number, segment_bytes, file_bytes: segment_bytes, ..header() }, base),
                    "{number} {segment_bytes}"
                );
            }
        }
    }

    #[test]
    fn geometry_is_consistent() {
        let geometry = Geometry { segment_bytes: 65536 };
        assert_eq!(geometry.segment_of(FIRST_LSN.get()), 0);
        assert_eq!(geometry.offset(FIRST_LSN.get()), BLOCK);
        for number in 0..4 {
            let base = geometry.base(number);
            assert_eq!((geometry.segment_of(base), geometry.offset(base)), (number, BLOCK));
            let last = geometry.base(number + 1) - 1;
            assert_eq!((geometry.segment_of(last), geometry.offset(last)), (number, 65535));
        }
    }

    #[test]
    fn names() {
        assert_eq!(classify(segment_name(LogId::ZERO, 0xab).strip_prefix("log/").unwrap()), LogFile::Segment(0xab));
        assert_eq!(classify(spare_name(LogId::new(2), 3).strip_prefix("log2/").unwrap()), LogFile::Spare(3));
        for name in ["x.log", "00000000000000AB.log", "ffffffffffffffff.log", "00000000000000ab.txt", "ab.log"] {
            assert_eq!(classify(name), LogFile::Foreign, "{name}");
        }
    }
}
