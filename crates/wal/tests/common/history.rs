//! A workload on a log that may end at any moment, and a check of what must be left of it.

use duramen_io::{CrashChoice, SimDisk};
use duramen_types::Lsn;
use duramen_wal::{FIRST_LSN, Log, Result, WalError, WalOptions};

use super::{DATABASE, OneStream, Rng, arc, assert_intact, insert, read_all, record_bytes};

/// The workload's state at the moment of the crash.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Start and end of every record inserted, in order; a record's number is its index here.
    pub inserted: Vec<(Lsn, Lsn)>,
    /// Everything below this position is hardened.
    pub hardened: Lsn,
    /// The log starts at one of these positions.
    pub start: Lsn,
    pub next_start: Lsn,
}

/// Continues the log in `disk` until an error, or for `steps` steps.
pub fn work(disk: &SimDisk, options: &WalOptions, history: &mut History, seed: u64, steps: u64) -> Result<()> {
    let wal = if history.hardened.is_zero() {
        let wal = match Log::open(&arc(disk), options, DATABASE, None) {
            Err(WalError::NoLog { .. }) => Log::create(&arc(disk), options, DATABASE)?,
            other => other?,
        };
        history.hardened = FIRST_LSN;
        history.start = FIRST_LSN;
        history.next_start = FIRST_LSN;
        wal
    } else {
        Log::open(&arc(disk), options, DATABASE, None)?
    };
    check_contents(&wal, history)?;
    let mut random = Rng::new(seed);
    for _ in 0..steps {
        let size = match random.below(5) {
            0 => random.below(16_000),
            1 => random.below(4000),
            _ => random.below(400),
        };
        // Exactly this much, and no more in advance: if that fails, a second attempt makes up for
        // it.
        wal.reserve_beyond_limit(record_bytes(size as usize))?;
        let number = history.inserted.len() as u64;
        let inserted = insert(&wal, number, size as usize);
        wal.unreserve(record_bytes(size as usize));
        history.inserted.push((inserted.lsn, inserted.end));
        if random.below(3) == 0 {
            wal.wait_hardened(inserted.gsn, None)?;
            // A ring in persistent memory does not report that the power is off.
            if disk.crashed_in().is_some() {
                return Err(WalError::Closed);
            }
            history.hardened = inserted.end;
        }
        let hardened = history.inserted.iter().filter(|(_, end)| *end <= history.hardened);
        if let Some((lsn, _)) = hardened.rev().nth(7).filter(|_| random.below(6) == 0) {
            history.next_start = *lsn.max(&history.start);
            wal.recycle_to(*lsn)?;
            history.start = history.next_start;
        }
    }
    Ok(())
}

/// Checks an opened log against `history`, and updates `history` to it.
pub fn check_contents(wal: &Log, history: &mut History) -> Result<()> {
    assert!([history.start, history.next_start].contains(&wal.start()), "start {} of {history:?}", wal.start());
    assert!(wal.end() >= history.hardened, "hardened records are lost: {} of {history:?}", wal.end());
    assert_eq!(wal.durable(), wal.end());
    let records = read_all(wal, wal.start()).inspect_err(|error| {
        assert!(matches!(error, WalError::Disk(_)), "everything up to the end is valid: {error}");
    })?;
    let first = history.inserted.iter().position(|(lsn, _)| *lsn == wal.start()).unwrap_or(history.inserted.len());
    for (record, (number, (lsn, end))) in records.iter().zip(history.inserted.iter().enumerate().skip(first)) {
        assert_eq!((record.lsn, record.end, record.txn.get()), (*lsn, *end, number as u64));
        assert_intact(record);
    }
    let kept = first + records.len();
    assert!(kept <= history.inserted.len(), "records that nobody inserted");
    assert_eq!(wal.end(), records.last().map_or(wal.start(), |record| record.end));
    history.inserted.truncate(kept);
    history.hardened = wal.end();
    history.start = wal.start();
    history.next_start = wal.start();
    Ok(())
}

pub fn choices(seed: u64) -> impl Iterator<Item = CrashChoice> {
    let fixed = [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Subset(1), CrashChoice::Subset(2)];
    fixed.into_iter().chain((0..4).map(move |draw| CrashChoice::Random(seed * 16 + draw)))
}
