//! The format of a record.
//!
//! [`super::header`] has the layouts of headers. The payload follows the header, and zeros follow
//! the payload up to a multiple of 8 bytes. All numbers are little-endian. Records follow each
//! other without gaps, across segments too.
//!
//! The checksum, CRC-32C, covers a seed and all of the record behind the checksum, padding
//! included. The thread that inserts the record or the one that flushes it computes the checksum
//! ([`crate::Sealing`]); on disk it is always present. The seed is the record's LSN plus a number
//! derived from the identity of the database and the log. So a record is valid only where it was
//! written: leftovers from an earlier use of a recycled segment, or from another log, are not.
//!
//! A header states the backlog: how much of the log was not durable yet when the record was sealed.
//! A flush that seals records states it, too, so that a thread does not compute it while it keeps
//! others waiting for their space. The backlog lets recovery tell a torn tail from damage. A flush
//! starts only when the previous flush is durable, so a crash leaves holes in the last flush at
//! most. If a valid record behind a hole states that the log was durable beyond the hole, something
//! other than a crash has destroyed hardened records.

use duramen_sync::cost;
use duramen_types::{
    Block, Gsn, LogAddress, LogId, Lsn, PageId, TxnId, crc32c_append, crc32c_words, crc32c_words_of_three, planted,
};

use super::header::{self, Backlog, Fields, Header, Layout};
use super::identity::Identity;

/// Payloads up to this size are copied inline; a call would take longer than the copy.
pub(crate) const SMALL_PAYLOAD: usize = 128;

/// Flag of a sync record: the tails of all logs end its payload (see [`crate::Log`]). Users of the
/// log do not see it.
pub(crate) const FLAG_SYNCHRONIZES: u8 = 0x80;

/// Bytes of the boundary before the tails.
pub(crate) const BOUNDARY_BYTES: usize = 8;

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
    /// The transaction's previous record, which the log still holds, or zero.
    pub prev: LogAddress,
    /// The record's GSN must exceed this one: that of the page and transaction before the change.
    pub after: Gsn,
    /// The payload: at most [`crate::WalOptions::max_payload`] bytes.
    pub payload: &'a [u8],
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
    /// The boundary that a sync record states, or its GSN.
    pub(crate) boundary: Gsn,
    /// A position up to which the log was durable when the record was sealed, if stated.
    pub(crate) durable_before: Option<Lsn>,
}

impl RecordRef<'_> {
    /// Returns the boundary of the epoch that a sync record of several logs has ended, or its own
    /// GSN if an earlier version wrote it: the logs can be cut behind this GSN.
    #[inline]
    pub fn boundary(&self) -> Option<Gsn> {
        (!self.tails.is_empty()).then_some(self.boundary)
    }

    /// Returns the record's log and its start.
    pub fn address(&self) -> LogAddress {
        LogAddress::of(self.log, self.lsn)
    }
}

/// Writes `record`, with at most `MAX_PAYLOAD`, into `space`, which is as long as the record and at
/// `lsn` in a log that is durable up to `durable`. [`seal`] adds the checksum, and the position if
/// it is not given.
#[inline(always)]
pub(crate) fn encode<const MAX_PAYLOAD: usize>(
    space: &mut [u8],
    layout: Layout,
    record: &NewRecord<'_>,
    lsn: Lsn,
    gsn: Gsn,
    durable: Option<Lsn>,
) {
    let payload = record.payload;
    assert_eq!(space.len(), layout.record_bytes(payload.len()), "the space fits the record");
    let (header, rest) = space.split_at_mut(layout.bytes());
    if !payload.len().is_multiple_of(8)
        && let Some(last) = rest.last_chunk_mut::<8>()
    {
        // The bytes of the last word that the payload does not fill are padding.
        *last = [0; 8];
    }
    let body = &mut rest[..payload.len()];
    if MAX_PAYLOAD <= SMALL_PAYLOAD {
        copy_small(body, payload);
    } else {
        body.copy_from_slice(payload);
    }
    let NewRecord { kind, flags, txn, page, prev, .. } = *record;
    layout.encode(header, &Fields { gsn, txn, page, prev, kind, flags, payload: payload.len() }, lsn, durable);
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
        81..=96 => ends::<64, 32>(to, from),
        97..=128 => ends::<64, 64>(to, from),
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
/// it into the record. Before that, each states that the log was durable up to `durable`, if that
/// is given.
///
/// # Panics
/// If `records` does not contain whole records.
pub(crate) fn seal(records: &mut [u8], identity: &Identity, from: Lsn, durable: Option<Lsn>) {
    let (words, behind) = records.as_chunks_mut::<8>();
    assert!(behind.is_empty(), "what is released is records");
    let lsn = |at: usize| from.advance(8 * at as u64);
    let (mut at, mut backlog) = (0, durable.map(Backlog::behind));
    while at < words.len() {
        // Three at a time: see `crc32c_words_of_three`. The last ones may be missing.
        let mut bounds = [at; 4];
        for i in 0..3 {
            let rest = words[at..].as_flattened();
            if !rest.is_empty() {
                let length = Header::at(rest).and_then(|header| header.length()).filter(|length| *length <= rest.len());
                let length = length.expect("what is released is records");
                cost::read(rest.as_ptr(), length);
                cost::work(checksum_instructions(length));
                if let Some(backlog) = &mut backlog {
                    backlog.state(&mut words[at..], lsn(at));
                }
                at += length / 8;
            }
            bounds[i + 1] = at;
        }
        let block = |at, end| unsealed(&words[at..end], lsn(at), identity);
        let [a, b, c, end] = bounds;
        if c < end {
            let crcs = crc32c_words_of_three([block(a, b), block(b, c), block(c, end)]);
            [a, b, c].into_iter().zip(crcs).for_each(|(at, crc)| put_checksum(&mut words[at], crc));
        } else {
            for (at, end) in [(a, b), (b, c)].into_iter().filter(|(at, end)| at < end) {
                let crc = crc32c_words(unsealed(&words[at..end], lsn(at), identity));
                put_checksum(&mut words[at], crc);
            }
        }
    }
}

/// Returns what the checksum of a record at `lsn` covers. `words` are the record's.
#[inline]
fn unsealed<'a>(words: &'a [[u8; 8]], lsn: Lsn, identity: &Identity) -> Block<'a> {
    let [_, _, _, _, half @ ..] = words[0];
    (identity.seed_at(lsn), u32::from_le_bytes(half), &words[1..])
}

#[inline]
fn put_checksum(first: &mut [u8; 8], crc: u32) {
    first[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Returns whether `bytes`, as many as [`Header::length`] states, are the record written at `lsn`.
pub(crate) fn is_intact(bytes: &[u8], identity: &Identity, lsn: Lsn) -> bool {
    let crc = crc32c_append(identity.seed_at(lsn), &bytes[4..]);
    let in_place = Header::at(bytes).is_some_and(|header| header.is_in_place(identity, lsn));
    (bytes[..4] == crc.to_le_bytes() && in_place) || planted!(IgnoreLogChecksum)
}

/// Reads the record at `lsn`, of which `bytes` are the whole.
pub(crate) fn decode<'a>(bytes: &'a [u8], identity: &Identity, lsn: Lsn) -> Option<RecordRef<'a>> {
    let (layout, fields, durable_before) = header::decode(bytes, identity, lsn)?;
    let Fields { gsn, txn, page, prev, kind, mut flags, payload } = fields;
    let mut payload = bytes.get(layout.bytes()..layout.bytes() + payload)?;
    let (mut tails, mut boundary): (&[u8], _) = (&[], gsn);
    if identity.count > 1 && flags & FLAG_SYNCHRONIZES != 0 {
        (payload, tails) = payload.split_at_checked(payload.len().checked_sub(tails_bytes(identity.count))?)?;
        flags &= !FLAG_SYNCHRONIZES;
        // Sync records of earlier versions have zero for their own log, and no boundary.
        let own = 8 * usize::from(identity.log.get());
        if tails[own..own + 8] != [0; 8] {
            let (rest, stated) = payload.split_last_chunk()?;
            (payload, boundary) = (rest, Gsn::new(u64::from_le_bytes(*stated)).max(gsn));
        }
    }
    let (log, end) = (identity.log, lsn.advance(bytes.len() as u64));
    Some(RecordRef { log, lsn, end, gsn, txn, page, prev, kind, flags, payload, tails, boundary, durable_before })
}

#[cfg(test)]
mod tests;
