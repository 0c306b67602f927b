//! The headers of records.
//!
//! A record has the shortest header that holds its fields:
//!
//! ```text
//! short, 24 bytes (32 in one of several logs)        full, 48 bytes
//!  0 crc          u32                                 0 crc          u32
//!  4 size         u16  of header and payload          4 length       u32  of the whole record
//!  6 mark         u16  see below                      8 gsn          u64
//!  8 page         u32                                16 transaction  u64
//! 12 prev         u32  distance, in 8 bytes, or 0    24 prev         u64  a LogAddress, or 0
//! 16 transaction  40 bits                            32 page         u64
//! 21 kind         u8                                 40 kind         u8
//! 22 flags        u8                                 41 flags        u8
//! 23 backlog      u8                                 42 backlog      u16
//! 24 gsn          u64  only in one of several logs   44 payload      u32  its length
//! ```
//!
//! The highest bit of the mark is set; in a full header it is the highest bit of the length, which
//! is clear. The other bits are the exclusive or of the lowest bits of the record's LSN, in units
//! of 8 bytes and of 256 KiB: most bytes that are not a header are rejected without computing a
//! checksum. In a full header the GSN serves this end: with one log it is the LSN, and with several
//! logs GSNs run ahead of LSNs.
//!
//! The header is chosen before the record has a position, so it cannot depend on the distance to
//! the transaction's previous record. A record that has a previous one gets a short header if both
//! are in the same log, which has at most [`MOST_LOG_BYTES`], and the previous one is at most this
//! far behind the place where the log was opened.
//!
//! The backlog is how many blocks of the log were not durable yet when the record was sealed,
//! rounded up. A short header states it with four significant bits: fewer than 16 as they are, and
//! `(8 + m) << e` as `8 * (e + 1) + m`. The highest number stands for "too many to state".

use std::hint::black_box;

use duramen_types::{BLOCK_SIZE, Gsn, LogAddress, LogId, Lsn, PageId, TxnId};

use super::identity::Identity;

/// Size of the longest record that any log may hold, in bytes.
pub(crate) const MAX_RECORD_BYTES: usize = 4 << 20;

/// Size of the longest header in bytes.
pub(crate) const MOST_HEADER_BYTES: usize = 48;

/// Size of the shortest header, and so of the shortest record, in bytes.
pub(crate) const LEAST_HEADER_BYTES: usize = 24;

/// The largest log with short headers: half the distance that they can state, in bytes.
const MOST_LOG_BYTES: u64 = 1 << 34;

/// Number of addresses in a log.
const LOG_ADDRESSES: u64 = LogAddress::of(LogId::new(1), Lsn::ZERO).get();

/// Set in the mark of a short header.
const SHORT: u32 = 1 << 31;

/// Stands in a short header for a backlog that is too large to state.
const TOO_MANY: u64 = 255;

/// Bits of a transaction's number that a short header holds.
const TXN_BITS: u32 = 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// 24 bytes: in a log that is the only one.
    Short,
    /// 32 bytes: in one of several logs.
    ShortWithGsn,
    /// 48 bytes: holds any fields.
    Full,
}

/// Chooses the layouts of the records of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layouts {
    short: Layout,
    /// The addresses to which a short header can state the distance: the first, and their number.
    near: (u64, u64),
}

impl Layouts {
    /// Returns the layouts of `log`, opened at `end`: from now on it holds at most `max_bytes`.
    pub(crate) fn of_log(log: LogId, is_only_one: bool, end: Lsn, max_bytes: u64) -> Self {
        let short = if is_only_one { Layout::Short } else { Layout::ShortWithGsn };
        let first = LogAddress::of(log, Lsn::new(end.get().saturating_sub(MOST_LOG_BYTES).next_multiple_of(8)));
        let near = if max_bytes <= MOST_LOG_BYTES { LOG_ADDRESSES - first.lsn().get() } else { 0 };
        Self { short, near: (first.get(), near) }
    }

    /// Returns the layout for a record with these fields and `payload` bytes.
    #[inline]
    pub(crate) fn choose(&self, txn: TxnId, page: PageId, prev: LogAddress, payload: usize) -> Layout {
        if self.is_short(txn, page, prev, payload) { self.short } else { Layout::Full }
    }

    /// Returns whether this is a short layout.
    #[inline(always)]
    pub(crate) fn is_short(&self, txn: TxnId, page: PageId, prev: LogAddress, payload: usize) -> bool {
        let excess = txn.get() >> TXN_BITS | page.get() >> 32 | (payload as u64 + 32) >> 16;
        let (first, near) = self.near;
        let is_near = prev.is_zero() || prev.get().wrapping_sub(first) < near && prev.get().is_multiple_of(8);
        excess == 0 && is_near
    }
}

/// Returns the most bytes that a record with `payload` bytes takes, whatever its header.
pub(crate) const fn most_record_bytes(payload: usize) -> usize {
    Layout::Full.record_bytes(payload)
}

impl Layout {
    #[inline(always)]
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Short => 24,
            Self::ShortWithGsn => 32,
            Self::Full => 48,
        }
    }

    /// Returns the bytes that a record with `payload` bytes takes.
    #[inline(always)]
    pub(crate) const fn record_bytes(self, payload: usize) -> usize {
        // Shorter code than `next_multiple_of`, which checks for overflows.
        (self.bytes() + payload + 7) & !7
    }

    /// Writes the header of a record at `lsn`, without its checksum, into `space`. The log is
    /// durable up to `durable`, if that is to be stated now.
    ///
    /// # Panics
    /// If the layout is short and cannot state the distance from the previous record to `lsn`.
    #[inline(always)]
    pub(crate) fn encode(self, space: &mut [u8], fields: &Fields, lsn: Lsn, durable: Option<Lsn>) {
        let Fields { gsn, txn, page, prev, kind, flags, payload } = *fields;
        let kinds = u64::from(u16::from_le_bytes([kind, flags]));
        let (words, _) = space[..self.bytes()].as_chunks_mut::<8>();
        let first = if self == Self::Full {
            let backlog = durable.map_or(u64::from(u16::MAX), |durable| backlog_in_full(lsn, durable));
            let tail = kinds | backlog << 16 | (payload as u64) << 32;
            let numbers = [gsn.get(), txn.get(), prev.get(), page.get(), tail];
            for (word, number) in words[1..].iter_mut().zip(numbers) {
                *word = number.to_le_bytes();
            }
            self.record_bytes(payload) as u32
        } else {
            let mut distance = 0;
            if !prev.is_zero() {
                distance = lsn.get().wrapping_sub(prev.lsn().get()) / 8;
                assert!(
                    distance.wrapping_sub(1) < u64::from(u32::MAX),
                    "the previous record is one that the log holds"
                );
            }
            words[1] = (page.get() | distance << 32).to_le_bytes();
            let backlog = durable.map_or(TOO_MANY, |durable| coarse(blocks_behind(lsn, durable)));
            words[2] = (txn.get() | kinds << TXN_BITS | backlog << 56).to_le_bytes();
            if self == Self::ShortWithGsn {
                words[3] = gsn.get().to_le_bytes();
            }
            (self.bytes() + payload) as u32 | mark(lsn)
        };
        // Last: the rest is on its way to the cache meanwhile.
        words[0] = (u64::from(first) << 32).to_le_bytes();
    }
}

/// Returns the mark of a short header at `lsn`, in its place in the word.
#[inline(always)]
fn mark(lsn: Lsn) -> u32 {
    SHORT | ((lsn.get() >> 3 ^ lsn.get() >> 18) as u32) << 16
}

/// States in headers of records that follow each other that the log was durable up to a position
/// before they were. Each record pays for this, so the number is computed once for each block.
pub(super) struct Backlog {
    durable: Lsn,
    /// What full and short headers state of records in the block that ends at `until`. The blocks
    /// are counted from `durable`, and each includes its end.
    full: u16,
    short: u8,
    until: Lsn,
}

impl Backlog {
    /// Starts before the first record at `durable` or behind it.
    pub(super) fn behind(durable: Lsn) -> Self {
        Self { durable, full: 0, short: 0, until: durable }
    }

    /// States the backlog of the record at `lsn`, with which `words` begin.
    #[inline]
    pub(super) fn state(&mut self, words: &mut [[u8; 8]], lsn: Lsn) {
        if lsn > self.until {
            let blocks = blocks_behind(lsn, self.durable);
            self.full = backlog_in_full(lsn, self.durable) as u16;
            self.short = coarse(blocks) as u8;
            self.until = self.durable.advance(blocks * BLOCK_SIZE as u64);
        }
        let [.., high] = words[0];
        if u32::from(high) << 24 & SHORT != 0 {
            let word = u64::from_le_bytes(words[2]) & !(0xff << 56) | u64::from(self.short) << 56;
            // The checksum soon reads the word, and a read waits for a write to a part of it. The
            // compiler must not make such a write of this.
            words[2] = black_box(word).to_le_bytes();
        } else {
            // Full headers are rare.
            words[5][2..4].copy_from_slice(&self.full.to_le_bytes());
        }
    }
}

/// Returns the blocks from `durable` to `lsn`, begun ones included.
#[inline(always)]
fn blocks_behind(lsn: Lsn, durable: Lsn) -> u64 {
    // Rounded up in fewer instructions than by `div_ceil`: the sum cannot overflow.
    let behind = lsn.get().saturating_sub(durable.get());
    (behind + (BLOCK_SIZE as u64 - 1)) >> BLOCK_SIZE.trailing_zeros()
}

/// Returns the backlog as a full header states it.
#[inline(always)]
fn backlog_in_full(lsn: Lsn, durable: Lsn) -> u64 {
    blocks_behind(lsn, durable).min(u64::from(u16::MAX))
}

/// Returns a backlog of so many blocks as a short header states it: a floating-point number.
#[inline(always)]
fn coarse(blocks: u64) -> u64 {
    // Few instructions, for each record pays for them: zero needs no case of its own.
    let exponent = (blocks | 8).ilog2() - 3;
    // From 8 to 16; 16 carries into the exponent.
    let significant = (blocks.wrapping_sub(1) >> exponent).wrapping_add(1);
    (u64::from(exponent << 3) + significant).min(TOO_MANY)
}

/// Returns the least number of blocks that a short header may mean by this.
fn fine(stated: u64) -> u64 {
    if stated < 16 { stated } else { (8 | stated & 7) << ((stated >> 3) - 1) }
}

/// What a header states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fields {
    pub(crate) gsn: Gsn,
    pub(crate) txn: TxnId,
    pub(crate) page: PageId,
    pub(crate) prev: LogAddress,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Length of the payload in bytes.
    pub(crate) payload: usize,
}

/// The beginning of a record on disk, which is untrusted until its checksum has been compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'a> {
    least: &'a [u8; LEAST_HEADER_BYTES],
    rest: &'a [u8],
}

impl<'a> Header<'a> {
    /// Returns the header at the start of `bytes`, if they hold a short one. With more bytes,
    /// [`Self::length`] and [`Self::is_in_place`] check more.
    #[inline]
    pub(crate) fn at(bytes: &'a [u8]) -> Option<Self> {
        bytes.split_first_chunk().map(|(least, rest)| Self { least, rest })
    }

    fn word(&self) -> u32 {
        (number(self.least, 0) >> 32) as u32
    }

    /// Returns the length of the whole record, if the header states a possible one.
    #[inline]
    pub(crate) fn length(&self) -> Option<usize> {
        let word = self.word();
        if word & SHORT != 0 {
            let length = ((word & 0xffff) as usize + 7) & !7;
            return (length >= LEAST_HEADER_BYTES).then_some(length);
        }
        let length = word as usize;
        let is_possible = length.is_multiple_of(8) && (MOST_HEADER_BYTES..=MAX_RECORD_BYTES).contains(&length);
        let payload = self.rest.first_chunk::<{ MOST_HEADER_BYTES - LEAST_HEADER_BYTES }>();
        let payload = payload.map(|rest| (number(rest, 16) >> 32) as usize);
        let is_consistent = |payload| payload <= MAX_RECORD_BYTES && Layout::Full.record_bytes(payload) == length;
        (is_possible && payload.is_none_or(is_consistent)).then_some(length)
    }

    /// Returns whether this can be the header of a record at `lsn`.
    pub(crate) fn is_in_place(&self, identity: &Identity, lsn: Lsn) -> bool {
        let word = self.word();
        let runs_ahead = |gsn: u64| gsn == lsn.get() || gsn > lsn.get() && identity.count > 1;
        if word & SHORT == 0 {
            return runs_ahead(number(self.least, 8));
        }
        let gsn = self.rest.first_chunk::<8>().filter(|_| identity.count > 1).map(|gsn| number(gsn, 0));
        word >> 16 == mark(lsn) >> 16 && gsn.is_none_or(runs_ahead)
    }
}

/// Decodes the header of the whole `record`, which is at `lsn` and passes its check. Also returns
/// a position up to which the log was durable when the record was sealed, if it states one.
pub(super) fn decode(record: &[u8], identity: &Identity, lsn: Lsn) -> Option<(Layout, Fields, Option<Lsn>)> {
    let header = Header::at(record)?;
    let is_full = header.word() & SHORT == 0;
    let (layout, fields, backlog) = if is_full { full(record)? } else { short(&header, identity, lsn)? };
    let durable_before = backlog.map(|blocks| Lsn::new(lsn.get().saturating_sub(blocks * BLOCK_SIZE as u64)));
    (record.len() == layout.record_bytes(fields.payload)).then_some((layout, fields, durable_before))
}

/// Returns the number at `at` of a header.
#[inline]
pub(super) fn number<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(field)
}

/// What a header states; and the backlog in blocks, if it states one.
type Stated = (Layout, Fields, Option<u64>);

fn full(record: &[u8]) -> Option<Stated> {
    let header: &[u8; MOST_HEADER_BYTES] = record.first_chunk()?;
    let tail = number(header, 40);
    let backlog = tail >> 16 & 0xffff;
    let fields = Fields {
        gsn: Gsn::new(number(header, 8)),
        txn: TxnId::new(number(header, 16)),
        prev: LogAddress::new(number(header, 24)),
        page: PageId::new(number(header, 32)),
        kind: tail as u8,
        flags: (tail >> 8) as u8,
        payload: (tail >> 32) as usize,
    };
    Some((Layout::Full, fields, (backlog != u64::from(u16::MAX)).then_some(backlog)))
}

fn short(header: &Header<'_>, identity: &Identity, lsn: Lsn) -> Option<Stated> {
    let (layout, gsn) = if identity.count > 1 {
        (Layout::ShortWithGsn, number(header.rest.first_chunk::<8>()?, 0))
    } else {
        (Layout::Short, lsn.get())
    };
    let (places, rest) = (number(header.least, 8), number(header.least, 16));
    let (distance, backlog) = (places >> 32, rest >> 56);
    let prev = match distance {
        0 => LogAddress::ZERO,
        _ => LogAddress::of(identity.log, Lsn::new(lsn.get().checked_sub(8 * distance)?)),
    };
    let fields = Fields {
        gsn: Gsn::new(gsn),
        txn: TxnId::new(rest & ((1 << TXN_BITS) - 1)),
        prev,
        page: PageId::new(places & u64::from(u32::MAX)),
        kind: (rest >> TXN_BITS) as u8,
        flags: (rest >> 48) as u8,
        payload: (header.word() as usize & 0xffff).checked_sub(layout.bytes())?,
    };
    Some((layout, fields, (backlog != TOO_MANY).then(|| fine(backlog))))
}
