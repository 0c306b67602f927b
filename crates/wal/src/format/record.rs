//! The format of a record.
//!
//! ```text
//!  0 crc          u32   CRC-32C of the seed and of everything that follows, padding included
//!  4 length       u32   of the whole record in bytes, a multiple of 8
//!  8 gsn          u64   global sequence number; with one log, the record's own LSN
//! 16 transaction  u64
//! 24 prev         u64   place of the transaction's previous record, or 0: with one log its LSN
//! 32 page         u64
//! 40 kind         u8    what the payload means; the log does not know
//! 41 flags        u8    likewise
//! 42 backlog      u16   blocks of the log that were not durable yet when the record was filled in
//! 44 payload_len  u32
//! 48 payload, then zeros up to the length
//! ```
//!
//! All numbers are little-endian. Records follow each other without gaps, across segments too.
//! Either the thread that inserts a record or the thread that flushes it computes the checksum
//! ([`crate::Sealing`]); on disk it is always present. The checksum is seeded with the record's LSN
//! plus a number derived from the identity of the database and the log. So a record is valid only
//! where it was written: leftovers from an earlier use of a recycled segment, or from another log,
//! are not.
//!
//! The backlog lets recovery tell a torn tail from damage. A flush starts only when the previous
//! flush is durable, so a crash leaves holes in the last flush at most. Suppose that a valid record
//! behind a hole states that the log was durable beyond the hole when the record was filled in.
//! Then the hole was not there at that time: something other than a crash destroyed hardened
//! records.

use duramen_sync::cost;
use duramen_types::{
    BLOCK_SIZE, Block, Gsn, LogAddress, LogId, Lsn, PageId, TxnId, crc32c_append, crc32c_words, crc32c_words_of_three,
    planted,
};

/// Size of a record's header in bytes.
pub(crate) const HEADER_BYTES: usize = 48;

/// Size of the longest record that any log may hold, in bytes.
pub(crate) const MAX_RECORD_BYTES: usize = 4 << 20;

/// Payloads up to this size are copied inline; a call would take longer than the copy.
pub(crate) const SMALL_PAYLOAD: usize = 128;

/// Flag of a sync record, in one of several logs: the last bytes of its payload are the tails of
/// all logs (see [`crate::Log`]). Users of the log do not see it.
pub(crate) const FLAG_SYNCHRONIZES: u8 = 0x80;

/// Returns the bytes that the tails of `count` logs take.
pub(crate) const fn tails_bytes(count: u16) -> usize {
    8 * count as usize
}

/// A record to be inserted.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// What the payload means, to the user of the log.
    pub kind: u8,
    /// Further information for the user of the log. The highest bit is reserved for the log itself.
    pub flags: u8,
    /// The transaction that inserts the record.
    pub txn: TxnId,
    /// The page that the record concerns, or zero.
    pub page: PageId,
    /// The transaction's previous record, or zero. The log does not interpret it.
    pub prev: LogAddress,
    /// The record's GSN must exceed this one (the GSN of the page and of the transaction before the
    /// change).
    pub after: Gsn,
    /// The payload: at most [`crate::WalOptions::max_payload`] bytes.
    pub payload: &'a [u8],
}

/// A record of the log, copied out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The log that contains the record.
    pub log: LogId,
    /// Where the record starts.
    pub lsn: Lsn,
    /// Where the record ends and the next one starts.
    pub end: Lsn,
    /// The record's position in the global order.
    pub gsn: Gsn,
    /// The transaction that inserted it.
    pub txn: TxnId,
    /// The page that the record concerns, or zero.
    pub page: PageId,
    /// The transaction's previous record, or zero.
    pub prev: LogAddress,
    /// What the payload means, to the user of the log.
    pub kind: u8,
    /// Further information for the user of the log.
    pub flags: u8,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A record of the log, lent by a [`crate::Scanner`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRef<'a> {
    /// The log that contains the record.
    pub log: LogId,
    /// Where the record starts.
    pub lsn: Lsn,
    /// Where the record ends and the next one starts.
    pub end: Lsn,
    /// The record's position in the global order.
    pub gsn: Gsn,
    /// The transaction that inserted it.
    pub txn: TxnId,
    /// The page that the record concerns, or zero.
    pub page: PageId,
    /// The transaction's previous record, or zero.
    pub prev: LogAddress,
    /// What the payload means, to the user of the log.
    pub kind: u8,
    /// Further information for the user of the log.
    pub flags: u8,
    /// The payload.
    pub payload: &'a [u8],
    /// The tails in a sync record of several logs (see [`crate::Log`]); otherwise empty.
    pub(crate) tails: &'a [u8],
    /// A position up to which the log was durable when the record was filled in, if the record
    /// states one.
    pub(crate) durable_before: Option<Lsn>,
}

impl Record {
    /// Returns the record's log and its start.
    pub fn address(&self) -> LogAddress {
        LogAddress::of(self.log, self.lsn)
    }
}

impl RecordRef<'_> {
    /// Returns the record's log and its start.
    pub fn address(&self) -> LogAddress {
        LogAddress::of(self.log, self.lsn)
    }

    /// Copies the record out of the scanner.
    pub fn to_record(&self) -> Record {
        let Self { log, lsn, end, gsn, txn, page, prev, kind, flags, payload, .. } = *self;
        Record { log, lsn, end, gsn, txn, page, prev, kind, flags, payload: payload.to_vec() }
    }
}

/// Identifies the log to which records belong. Besides the position, it seeds the checksums of the
/// log's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) database: [u8; 16],
    pub(crate) log: LogId,
    /// Number of logs of the database.
    pub(crate) count: u16,
    seed: u64,
}

impl Identity {
    /// Returns the identity of one of `count` logs.
    pub(crate) fn one_of(database: [u8; 16], log: LogId, count: u16) -> Self {
        let low = u64::from(crc32c_append(u64::from(log.get()), &database));
        let high = u64::from(crc32c_append(!u64::from(log.get()), &database));
        Self { database, log, count, seed: high << 32 | low }
    }

    pub(crate) fn seed_at(&self, lsn: Lsn) -> u64 {
        self.seed.wrapping_add(lsn.get())
    }
}

/// Returns the bytes that a record with `payload` bytes takes.
pub(crate) const fn record_bytes(payload: usize) -> usize {
    // Shorter code than `next_multiple_of`, which checks for overflows.
    (HEADER_BYTES + payload + 7) & !7
}

/// Writes `record`, with at most `MAX_PAYLOAD`, into `space`, which is as long as the record.
/// `space` is at `lsn` in a log that is durable up to `durable`. The record has no checksum until
/// [`seal`] computes it.
#[inline(always)]
pub(crate) fn encode<const MAX_PAYLOAD: usize>(
    space: &mut [u8],
    record: &NewRecord<'_>,
    lsn: Lsn,
    gsn: Gsn,
    durable: Lsn,
) {
    let (length, payload) = (record_bytes(record.payload.len()), record.payload);
    assert_eq!(space.len(), length, "the space fits the record");
    let kinds = [record.kind, record.flags];
    let tail =
        u64::from(u16::from_le_bytes(kinds)) | u64::from(backlog(lsn, durable)) << 16 | (payload.len() as u64) << 32;
    let words = [gsn.get(), record.txn.get(), record.prev.get(), record.page.get(), tail];
    let (header, rest) = space.split_at_mut(HEADER_BYTES);
    if !payload.len().is_multiple_of(8)
        && let Some(last) = rest.last_chunk_mut::<8>()
    {
        // The bytes of the last word that the payload does not fill are padding.
        *last = [0; 8];
    }
    let (fields, _) = header.as_chunks_mut::<8>();
    for (field, word) in fields[1..].iter_mut().zip(words) {
        *field = word.to_le_bytes();
    }
    let body = &mut rest[..payload.len()];
    if MAX_PAYLOAD <= SMALL_PAYLOAD {
        copy_small(body, payload);
    } else {
        body.copy_from_slice(payload);
    }
    // Last: the rest is on its way to the cache meanwhile.
    fields[0] = ((length as u64) << 32).to_le_bytes();
}

/// Copies at most [`SMALL_PAYLOAD`] bytes, without a call.
#[inline(always)]
fn copy_small(to: &mut [u8], from: &[u8]) {
    /// Copies the first `A` and the last `B` bytes.
    #[inline(always)]
    fn ends<const A: usize, const B: usize>(to: &mut [u8], from: &[u8]) {
        to[..A].copy_from_slice(&from[..A]);
        to[from.len() - B..].copy_from_slice(&from[from.len() - B..]);
    }
    assert!(to.len() == from.len() && from.len() <= SMALL_PAYLOAD, "what is copied fits");
    match from.len() {
        65..=80 => ends::<64, 16>(to, from),
        81..=128 => ends::<64, 64>(to, from),
        33..=64 => ends::<32, 32>(to, from),
        16..=32 => ends::<16, 16>(to, from),
        8..=15 => ends::<8, 8>(to, from),
        4..=7 => ends::<4, 4>(to, from),
        2..=3 => ends::<2, 2>(to, from),
        1 => to[0] = from[0],
        _ => {}
    }
}

/// Charges a simulated machine for copying a record.
#[inline(always)]
pub(crate) fn filled(record: &NewRecord<'_>, space: &[u8]) {
    cost::read(record.payload.as_ptr(), record.payload.len());
    cost::write(space.as_ptr(), space.len());
}

/// Returns roughly how many instructions the checksum of a record of `bytes` takes.
pub(crate) const fn checksum_instructions(bytes: usize) -> u64 {
    40 + bytes as u64 / 8
}

/// Seals whole records that follow each other from `from`: computes the checksum of each and writes
/// it into the record.
///
/// # Panics
/// If `records` does not contain whole records.
pub(crate) fn seal(records: &mut [u8], identity: &Identity, from: Lsn) {
    let mut records = Unsealed { records, lsn: from };
    loop {
        // Three at a time: see `crc32c_words_of_three`.
        match [records.next(), records.next(), records.next()] {
            [Some(mut a), Some(mut b), Some(mut c)] => {
                let crcs = crc32c_words_of_three([&a, &b, &c].map(|record| record.block(identity)));
                [&mut a, &mut b, &mut c].into_iter().zip(crcs).for_each(|(record, crc)| record.put(crc));
            }
            last => {
                for mut record in last.into_iter().flatten() {
                    record.put(crc32c_words(record.block(identity)));
                }
                return;
            }
        }
    }
}

/// Iterates over records that have not been sealed yet.
struct Unsealed<'a> {
    records: &'a mut [u8],
    lsn: Lsn,
}

/// A record that has not been sealed yet.
struct UnsealedRecord<'a> {
    lsn: Lsn,
    words: &'a mut [[u8; 8]],
}

impl<'a> Unsealed<'a> {
    #[inline]
    fn next(&mut self) -> Option<UnsealedRecord<'a>> {
        if self.records.is_empty() {
            return None;
        }
        let (records, lsn) = (std::mem::take(&mut self.records), self.lsn);
        let header = Header::at(records);
        let length = header.and_then(|header| header.length()).filter(|length| *length <= records.len());
        let (record, behind) = records.split_at_mut(length.expect("what is released is records"));
        cost::read(record.as_ptr(), record.len());
        cost::work(checksum_instructions(record.len()));
        self.lsn = lsn.advance(record.len() as u64);
        self.records = behind;
        Some(UnsealedRecord { lsn, words: record.as_chunks_mut().0 })
    }
}

impl UnsealedRecord<'_> {
    #[inline]
    fn block(&self, identity: &Identity) -> Block<'_> {
        (identity.seed_at(self.lsn), 8 * self.words.len() as u32, &self.words[1..])
    }

    #[inline]
    fn put(&mut self, crc: u32) {
        self.words[0][..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Returns the number of blocks from `durable` to `lsn`, rounded up; the largest number stands for
/// "too many to state".
#[inline]
fn backlog(lsn: Lsn, durable: Lsn) -> u16 {
    let blocks = lsn.get().saturating_sub(durable.get()).div_ceil(BLOCK_SIZE as u64);
    blocks.min(u64::from(u16::MAX)) as u16
}

/// The fixed part of a record as found on disk: none of it can be trusted before the checksum has
/// been compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'a>(&'a [u8; HEADER_BYTES]);

impl<'a> Header<'a> {
    /// Returns the header at the start of `bytes`, if there are enough bytes for one.
    pub(crate) fn at(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Self)
    }

    fn u32_at(&self, at: usize) -> u32 {
        let mut field = [0; 4];
        field.copy_from_slice(&self.0[at..at + 4]);
        u32::from_le_bytes(field)
    }

    fn u64_at(&self, at: usize) -> u64 {
        let mut field = [0; 8];
        field.copy_from_slice(&self.0[at..at + 8]);
        u64::from_le_bytes(field)
    }

    /// Returns the length of the whole record, if the lengths in the header are plausible.
    pub(crate) fn length(&self) -> Option<usize> {
        let (length, payload) = (self.u32_at(4) as usize, self.u32_at(44) as usize);
        (length <= MAX_RECORD_BYTES && payload <= MAX_RECORD_BYTES && length == record_bytes(payload)).then_some(length)
    }

    /// Returns the record's GSN.
    pub(crate) fn gsn(&self) -> Gsn {
        Gsn::new(self.u64_at(8))
    }

    /// Returns whether a record at `lsn` can have this GSN. With one log the GSN equals the LSN,
    /// which distinguishes the beginning of a record from other bytes. With several logs, GSNs run
    /// ahead of LSNs.
    pub(crate) fn is_in_place(&self, identity: &Identity, lsn: Lsn) -> bool {
        let gsn = self.gsn().get();
        gsn == lsn.get() || gsn > lsn.get() && identity.count > 1
    }

    /// Returns a position up to which the log was durable when the record at `lsn` was filled in,
    /// if the record states one.
    fn durable_before(&self, lsn: Lsn) -> Option<Lsn> {
        let blocks = u16::from_le_bytes([self.0[42], self.0[43]]);
        (blocks != u16::MAX).then(|| Lsn::new(lsn.get().saturating_sub(u64::from(blocks) * BLOCK_SIZE as u64)))
    }
}

/// Returns whether the record at `lsn` is what was written there. `bytes` are the whole record, as
/// long as [`Header::length`] states.
pub(crate) fn is_intact(bytes: &[u8], identity: &Identity, lsn: Lsn) -> bool {
    let crc = crc32c_append(identity.seed_at(lsn), &bytes[4..]);
    let in_place = Header::at(bytes).is_some_and(|header| header.is_in_place(identity, lsn));
    (bytes[..4] == crc.to_le_bytes() && in_place) || planted!(IgnoreLogChecksum)
}

/// Reads the record at `lsn`, of which `bytes` are the whole.
pub(crate) fn decode<'a>(bytes: &'a [u8], identity: &Identity, lsn: Lsn) -> Option<RecordRef<'a>> {
    let header = Header::at(bytes)?;
    let payload = header.u32_at(44) as usize;
    let (mut flags, mut payload) = (header.0[41], bytes.get(HEADER_BYTES..HEADER_BYTES + payload)?);
    let mut tails: &[u8] = &[];
    if identity.count > 1 && flags & FLAG_SYNCHRONIZES != 0 {
        (payload, tails) = payload.split_at_checked(payload.len().checked_sub(tails_bytes(identity.count))?)?;
        flags &= !FLAG_SYNCHRONIZES;
    }
    Some(RecordRef {
        log: identity.log,
        lsn,
        end: lsn.advance(bytes.len() as u64),
        gsn: header.gsn(),
        txn: TxnId::new(header.u64_at(16)),
        prev: LogAddress::new(header.u64_at(24)),
        page: PageId::new(header.u64_at(32)),
        kind: header.0[40],
        flags,
        payload,
        tails,
        durable_before: header.durable_before(lsn),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: [u8; 16] = *b"sixteen byte id.";

    fn encoded(payload: &[u8], lsn: Lsn) -> Vec<u8> {
        let record = NewRecord {
            kind: 3,
            flags: 4,
            txn: TxnId::new(5),
            page: PageId::new(6),
            prev: LogAddress::new(7),
            after: Gsn::ZERO,
            payload,
        };
        let mut bytes = vec![0xAA; record_bytes(payload.len())];
        let identity = Identity::one_of(IDENTITY, LogId::ZERO, 1);
        encode::<MAX_RECORD_BYTES>(&mut bytes, &record, lsn, Gsn::new(lsn.get()), Lsn::new(4096));
        seal(&mut bytes, &identity, lsn);
        bytes
    }

    #[test]
    fn records_of_every_size_are_sealed() {
        let identity = Identity::one_of(IDENTITY, LogId::ZERO, 1);
        let (mut bytes, mut starts, mut lsn) = (Vec::new(), Vec::new(), Lsn::new(8200));
        let payload = |len: usize| -> Vec<u8> { (0..len).map(|i| (i * 31 + len) as u8).collect() };
        let sizes: Vec<usize> = (0..300).chain([1000, 2047, 2048, 2049, 70_000]).collect();
        for &len in &sizes {
            let record = NewRecord {
                kind: len as u8,
                flags: 1,
                txn: TxnId::new(len as u64),
                page: PageId::new(6),
                prev: LogAddress::new(7),
                after: Gsn::ZERO,
                payload: &payload(len),
            };
            let start = bytes.len();
            starts.push((start, lsn));
            // Earlier bytes must not show through.
            bytes.resize(start + record_bytes(len), 0xAA);
            if len <= SMALL_PAYLOAD {
                encode::<SMALL_PAYLOAD>(&mut bytes[start..], &record, lsn, Gsn::new(lsn.get()), lsn);
            } else {
                encode::<MAX_RECORD_BYTES>(&mut bytes[start..], &record, lsn, Gsn::new(lsn.get()), lsn);
            }
            assert!(!is_intact(&bytes[start..], &identity, lsn), "{len} bytes, not sealed");
            assert!(bytes[start + HEADER_BYTES + len..].iter().all(|byte| *byte == 0), "{len} bytes, padding");
            lsn = lsn.advance(record_bytes(len) as u64);
        }
        seal(&mut bytes, &identity, Lsn::new(8200));
        for (&len, (start, lsn)) in sizes.iter().zip(starts) {
            let record = &bytes[start..start + record_bytes(len)];
            assert!(is_intact(record, &identity, lsn), "{len} bytes");
            let record = decode(record, &identity, lsn).unwrap();
            assert_eq!((record.payload, record.txn.get()), (&payload(len)[..], len as u64));
        }
    }

    #[test]
    #[should_panic(expected = "what is released is records")]
    fn only_whole_records_are_sealed() {
        let mut bytes = encoded(b"payload", Lsn::new(8200));
        bytes.resize(bytes.len() + 48, 0);
        seal(&mut bytes, &Identity::one_of(IDENTITY, LogId::ZERO, 1), Lsn::new(8200));
    }

    #[test]
    fn what_is_encoded_decodes_in_its_place_only() {
        let lsn = Lsn::new(8200);
        let bytes = encoded(b"payload", lsn);
        let header = Header::at(&bytes).unwrap();
        assert_eq!(header.length(), Some(56));
        assert_eq!(header.durable_before(lsn), Some(Lsn::new(8)));
        assert!(is_intact(&bytes, &Identity::one_of(IDENTITY, LogId::ZERO, 1), lsn));
        let record = decode(&bytes, &Identity::one_of(IDENTITY, LogId::ZERO, 1), lsn).unwrap();
        assert_eq!((record.lsn, record.end, record.gsn), (lsn, Lsn::new(8256), Gsn::new(8200)));
        assert_eq!((record.txn, record.page, record.prev), (TxnId::new(5), PageId::new(6), LogAddress::new(7)));
        assert_eq!((record.kind, record.flags, record.payload), (3, 4, &b"payload"[..]));

        let elsewhere = [
            (Identity::one_of(IDENTITY, LogId::ZERO, 1), Lsn::new(8208)),
            (Identity::one_of(IDENTITY, LogId::new(1), 1), lsn),
            (Identity::one_of(*b"sixteen byte id!", LogId::ZERO, 1), lsn),
        ];
        for (identity, lsn) in elsewhere {
            assert!(!is_intact(&bytes, &identity, lsn));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let lsn = Lsn::new(4096);
        let bytes = encoded(b"some payload", lsn);
        let identity = Identity::one_of(IDENTITY, LogId::ZERO, 1);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let length = Header::at(&damaged).unwrap().length();
            assert!(length != Some(bytes.len()) || !is_intact(&damaged, &identity, lsn), "bit {bit}");
        }
    }

    #[test]
    fn a_record_with_the_gsn_of_another_place_is_not_intact() {
        let lsn = Lsn::new(8200);
        let mut bytes = encoded(b"payload", lsn);
        let identity = Identity::one_of(IDENTITY, LogId::ZERO, 1);
        bytes[8..16].copy_from_slice(&8208u64.to_le_bytes());
        let crc = crc32c_append(identity.seed_at(lsn), &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        assert!(!is_intact(&bytes, &identity, lsn));
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(Header::at(&[0; 64]).unwrap().length(), None);
        assert!(Header::at(&[0; 47]).is_none());
    }
}
