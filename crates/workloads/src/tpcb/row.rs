//! Keys and rows of TPC-B, byte for byte.
//!
//! | table | key | row |
//! |---|---|---|
//! | `tpcb_branch`, `tpcb_teller`, `tpcb_account` | id u64 | 100 bytes: id u64, branch u64, balance i64, filler |
//! | `tpcb_history` | terminal u32, sequence u64 | 50 bytes: teller u64, branch u64, account u64, delta i64, time u64, filler |
//!
//! Keys are big-endian, so that their byte order is their number order; rows are little-endian.
//! Rows repeat their id so that an audit notices a row under the wrong key. Sequences count a
//! terminal's history rows from 1: unique without a counter that all clients would share.

/// Bytes of a branch, teller or account row: the least that the specification allows.
pub const BALANCE_ROW_LEN: usize = 100;
/// Bytes of a history row: the least that the specification allows.
pub const HISTORY_ROW_LEN: usize = 50;

/// Returns the key of a branch, teller or account.
pub fn id_key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// Returns the id in a branch, teller or account key.
pub fn decode_id_key(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.try_into().ok()?))
}

/// Returns the little-endian number at `at`, if the row has it.
fn number(row: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(row.get(at..at + 8)?.try_into().ok()?))
}

/// A row of the branch, teller or account table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BalanceRow {
    /// Number of the branch, teller or account.
    pub id: u64,
    /// The branch it belongs to; a branch belongs to itself.
    pub branch: u64,
    /// Its balance.
    pub balance: i64,
}

impl BalanceRow {
    /// Returns the row as stored.
    pub fn encode(&self) -> [u8; BALANCE_ROW_LEN] {
        let mut row = [b' '; BALANCE_ROW_LEN];
        row[..8].copy_from_slice(&self.id.to_le_bytes());
        row[8..16].copy_from_slice(&self.branch.to_le_bytes());
        row[16..24].copy_from_slice(&self.balance.to_le_bytes());
        row
    }

    /// Returns the row stored as `row`; `None` when it has the wrong length.
    pub fn decode(row: &[u8]) -> Option<Self> {
        if row.len() != BALANCE_ROW_LEN {
            return None;
        }
        Some(Self { id: number(row, 0)?, branch: number(row, 8)?, balance: number(row, 16)?.cast_signed() })
    }
}

/// Key of a history row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HistoryKey {
    /// The terminal (client) that ran the transaction.
    pub terminal: u32,
    /// Which of the terminal's transactions it is, counted from 1.
    pub sequence: u64,
}

impl HistoryKey {
    /// Bytes of an encoded key.
    pub const LEN: usize = 12;

    /// Returns the key as stored.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut key = [0; Self::LEN];
        key[..4].copy_from_slice(&self.terminal.to_be_bytes());
        key[4..].copy_from_slice(&self.sequence.to_be_bytes());
        key
    }

    /// Returns the key stored as `key`; `None` when it has the wrong length.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let (terminal, sequence) = key.split_first_chunk::<4>()?;
        Some(Self { terminal: u32::from_be_bytes(*terminal), sequence: u64::from_be_bytes(sequence.try_into().ok()?) })
    }
}

/// A row of the history table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryRow {
    /// The teller that served the transaction.
    pub teller: u64,
    /// The teller's branch.
    pub branch: u64,
    /// The account, not always of that branch.
    pub account: u64,
    /// What was added to all three balances.
    pub delta: i64,
    /// Wall-clock time in microseconds since 1970.
    pub time: u64,
}

impl HistoryRow {
    /// Returns the row as stored.
    pub fn encode(&self) -> [u8; HISTORY_ROW_LEN] {
        let mut row = [b' '; HISTORY_ROW_LEN];
        let fields = [self.teller, self.branch, self.account, self.delta.cast_unsigned(), self.time];
        for (place, field) in row.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        row
    }

    /// Returns the row stored as `row`; `None` when it has the wrong length.
    pub fn decode(row: &[u8]) -> Option<Self> {
        if row.len() != HISTORY_ROW_LEN {
            return None;
        }
        Some(Self {
            teller: number(row, 0)?,
            branch: number(row, 8)?,
            account: number(row, 16)?,
            delta: number(row, 24)?.cast_signed(),
            time: number(row, 32)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_encoding_and_other_lengths_are_refused() {
        let balance = BalanceRow { id: 7, branch: 3, balance: -999_999 };
        assert_eq!(BalanceRow::decode(&balance.encode()), Some(balance));
        assert_eq!(BalanceRow::decode(&balance.encode()[1..]), None);
        let history = HistoryRow { teller: 1, branch: 2, account: 3, delta: -4, time: u64::MAX };
        assert_eq!(HistoryRow::decode(&history.encode()), Some(history));
        assert_eq!(HistoryRow::decode(&[]), None);
        let key = HistoryKey { terminal: 9, sequence: 1 << 40 };
        assert_eq!(HistoryKey::decode(&key.encode()), Some(key));
        assert_eq!(HistoryKey::decode(&key.encode()[..11]), None);
        assert_eq!(HistoryKey::decode(&[]), None);
    }

    #[test]
    fn key_order_is_number_order() {
        assert!(id_key(255) < id_key(256));
        let key = |terminal, sequence| HistoryKey { terminal, sequence }.encode();
        assert!(key(1, u64::MAX) < key(2, 0));
        assert!(key(1, 255) < key(1, 256));
    }
}
