//! The tables of a checkpoint, as they are encoded in log records.

use duramen_types::{Gsn, LogAddress, Lsn, PageId, TxnId};
use duramen_wal::Inserted;

use crate::record::{Kind, Malformed, Reader, put_number};
use crate::txn_state::log::TXN_LIMIT;
use crate::txn_state::table::{TxnEntry, TxnState};

/// Entries of a table in one record.
pub(super) const ENTRIES: usize = 400;

/// The contents of the end record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckpointEnd {
    /// The begin record.
    pub(crate) begin: Lsn,
    /// No transaction before the begin record has this number or a higher one.
    pub(crate) next_txn: TxnId,
}

impl CheckpointEnd {
    /// Length of the longest encoding: two numbers of ten bytes.
    pub(super) const MAX_BYTES: usize = 20;

    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.begin.get());
        put_number(&mut out, self.next_txn.get());
        out
    }

    /// Reads the payload of an end record.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let (begin, next_txn) = (Lsn::new(reader.number()?), TxnId::new(reader.number()?));
        if next_txn > TXN_LIMIT { Err(Malformed) } else { Ok(Self { begin, next_txn }) }
    }
}

pub(super) fn encode_txns(begin: Lsn, entries: &[TxnEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, begin.get());
    for entry in entries {
        put_number(&mut out, entry.txn.get());
        out.push(entry.state as u8);
        put_number(&mut out, entry.first.get());
        put_number(&mut out, entry.last.get());
    }
    out
}

/// Reads a part of the transaction table and the begin record it belongs to.
pub(crate) fn decode_txns(payload: &[u8]) -> Result<(Lsn, Vec<TxnEntry>), Malformed> {
    let mut reader = Reader::new(payload);
    let begin = Lsn::new(reader.number()?);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let entry = TxnEntry {
            txn: TxnId::new(reader.number()?),
            state: TxnState::from_u8(reader.byte()?).ok_or(Malformed)?,
            first: Gsn::new(reader.number()?),
            last: LogAddress::new(reader.number()?),
        };
        if entry.txn.is_zero() || entry.txn >= TXN_LIMIT || entry.state == TxnState::Over {
            return Err(Malformed);
        }
        entries.push(entry);
    }
    Ok((begin, entries))
}

pub(super) fn encode_pages(begin: Lsn, entries: &[(PageId, Gsn)]) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, begin.get());
    for (page, gsn) in entries {
        put_number(&mut out, page.get());
        put_number(&mut out, gsn.get());
    }
    out
}

/// Reads a part of the dirty page table and the begin record it belongs to.
pub(crate) fn decode_pages(payload: &[u8]) -> Result<(Lsn, Vec<(PageId, Gsn)>), Malformed> {
    let mut reader = Reader::new(payload);
    let begin = Lsn::new(reader.number()?);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push((PageId::new(reader.number()?), Gsn::new(reader.number()?)));
    }
    Ok((begin, entries))
}

/// Inserts the records of the checkpoint that a new, empty database begins with; `log` inserts each
/// record.
pub(crate) fn first_checkpoint(mut log: impl FnMut(Kind, &[u8]) -> Inserted, next_txn: TxnId) -> (Inserted, Inserted) {
    let begin = log(Kind::CheckpointBegin, &[]);
    let end = log(Kind::CheckpointEnd, &CheckpointEnd { begin: begin.lsn, next_txn }.encode());
    (begin, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_round_trip() {
        let begin = Lsn::new(5000);
        let txns = [
            TxnEntry {
                txn: TxnId::new(9),
                state: TxnState::Active,
                first: Gsn::new(4096),
                last: LogAddress::new(8000),
            },
            TxnEntry { txn: TxnId::new(10), state: TxnState::Committed, first: Gsn::new(1), last: LogAddress::new(2) },
        ];
        assert_eq!(decode_txns(&encode_txns(begin, &txns)), Ok((begin, txns.to_vec())));
        let pages = [(PageId::new(1), Gsn::new(7)), (PageId::new(1 << 40), Gsn::new(8))];
        assert_eq!(decode_pages(&encode_pages(begin, &pages)), Ok((begin, pages.to_vec())));
        let end = CheckpointEnd { begin, next_txn: TxnId::new(11) };
        assert_eq!(CheckpointEnd::decode(&end.encode()), Ok(end));
        assert_eq!(decode_pages(&[0x80]), Err(Malformed));
        assert_eq!(decode_txns(&[1, 9, 7, 1, 1]), Err(Malformed));
        let over = TxnEntry { state: TxnState::Over, ..txns[0] };
        let impossible = [TxnId::ZERO, TXN_LIMIT, TxnId::MAX].map(|txn| TxnEntry { txn, ..txns[0] });
        for entry in [over].into_iter().chain(impossible) {
            assert_eq!(decode_txns(&encode_txns(begin, &[txns[1], entry])), Err(Malformed), "{entry:?}");
        }
        let end = CheckpointEnd { begin, next_txn: TxnId::MAX };
        assert_eq!(CheckpointEnd::decode(&end.encode()), Err(Malformed));
    }
}
