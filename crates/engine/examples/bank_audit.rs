//! A bank whose audit never ends: eight threads transfer money, and one thread adds up all
//! accounts, again and again, in snapshots. The audit stops no transfer, and each sum is right.
//!
//! ```text
//! cargo run --release -p duramen --example bank_audit DIRECTORY [SECONDS]
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen::{Db, Options, Table};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ACCOUNTS: u64 = 100_000;
const OPENING_BALANCE: i64 = 1_000;
const TELLERS: u64 = 8;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args_os().skip(1);
    let directory = PathBuf::from(args.next().ok_or("usage: bank_audit DIRECTORY [SECONDS]")?);
    let seconds = args.next().map_or(Ok(3), |seconds| seconds.to_string_lossy().parse())?;
    let db = Db::open(directory, Options { snapshots: true, ..Options::default() })?;
    let accounts = db.table("accounts")?;
    for batch in (0..ACCOUNTS).step_by(1_000) {
        db.run(|txn| {
            if txn.get(&accounts, &batch.to_be_bytes())?.is_some() {
                return Ok(());
            }
            let mut keys = (batch..batch + 1_000).map(u64::to_be_bytes);
            keys.try_for_each(|key| txn.put(&accounts, &key, &OPENING_BALANCE.to_be_bytes()))
        })?;
    }

    let (is_closing, transfers) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let audits = std::thread::scope(|scope| -> Result<u64, Failure> {
        let (db, accounts, is_closing, transfers) = (&db, &accounts, &is_closing, &transfers);
        let tellers: Vec<_> = (0..TELLERS)
            .map(|teller| scope.spawn(move || serve(db, accounts, teller, is_closing, transfers)))
            .collect();
        let audited = audit_for(db, accounts, Duration::from_secs(seconds));
        is_closing.store(true, Ordering::Relaxed);
        for teller in tellers {
            teller.join().expect("no thread panics")?;
        }
        audited
    })?;
    let (transfers, seconds) = (transfers.into_inner() as f64, began.elapsed().as_secs_f64());
    println!(
        "{:.0} durable transfers a second, while {audits} audits added up {ACCOUNTS} accounts",
        transfers / seconds
    );
    db.close()?;
    Ok(())
}

/// Transfers money until the bank closes.
fn serve(
    db: &Db,
    accounts: &Table,
    teller: u64,
    is_closing: &AtomicBool,
    transfers: &AtomicU64,
) -> duramen::Result<()> {
    let mut number = 0_u64;
    while !is_closing.load(Ordering::Relaxed) {
        let seed = (teller << 32 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let from = seed % ACCOUNTS;
        let to = (from + 1 + (seed >> 32) % (ACCOUNTS - 1)) % ACCOUNTS;
        // A transaction that is the victim of a deadlock is run again.
        db.run(|txn| {
            for (account, amount) in [(from, -1), (to, 1)] {
                let key = account.to_be_bytes();
                let row = txn.get_for_update(accounts, &key)?.expect("the account exists");
                txn.update(accounts, &key, &(balance(&row) + amount).to_be_bytes())?;
            }
            Ok(())
        })?;
        number += 1;
        transfers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Adds up the accounts again and again; returns how often.
fn audit_for(db: &Db, accounts: &Table, time: Duration) -> Result<u64, Failure> {
    let (began, mut audits) = (Instant::now(), 0);
    while began.elapsed() < time {
        let snapshot = db.snapshot()?;
        let mut cursor = snapshot.cursor(accounts, ..);
        let (mut count, mut sum) = (0, 0);
        while let Some((_, row)) = cursor.next()? {
            count += 1;
            sum += balance(row);
        }
        let expected = (ACCOUNTS, ACCOUNTS as i64 * OPENING_BALANCE);
        if (count, sum) != expected {
            return Err(format!("{count} accounts hold {sum}, expected {expected:?}").into());
        }
        audits += 1;
    }
    Ok(audits)
}

fn balance(row: &[u8]) -> i64 {
    i64::from_be_bytes(row.try_into().expect("a balance has eight bytes"))
}
