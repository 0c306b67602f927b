//! Ten thousand sessions that commit durably, on two threads.
//!
//! ```text
//! cargo run --release -p duramen --example async_sessions [SESSIONS [SECONDS]]
//! ```
//!
//! Each session is a task of an async executor: it transfers an amount between two accounts,
//! commits with [`duramen::Txn::commit_async`], and awaits the commit before it begins its next
//! transaction. While thousands of commits are on their way to the disk, the two threads run other
//! sessions. At the end every acknowledged transfer must be there, and no money may have appeared
//! or vanished.
//!
//! A transaction begins and ends between two `await`s, so no task holds locks while it is not
//! running: a thread that waits for a lock waits for the other thread, and never for a task in the
//! executor's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_executor::Executor;
use duramen::{Commit, Db, Error, Options, Table};

const ACCOUNTS: u64 = 100_000;
const OPENING_BALANCE: i64 = 1_000;
const THREADS: usize = 2;

struct Bank {
    db: Db,
    accounts: Table,
    transfers: Table,
    acknowledged: AtomicU64,
    closing: AtomicBool,
}

impl Bank {
    /// Moves one unit; returns the commit on its way.
    fn transfer(&self, session: u64, number: u64) -> Result<Commit, Error> {
        let seed = (session << 32 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let from = seed % ACCOUNTS;
        let to = (from + 1 + (seed >> 32) % (ACCOUNTS - 1)) % ACCOUNTS;
        let mut txn = self.db.begin();
        for (account, amount) in [(from, -1), (to, 1)] {
            let key = account.to_be_bytes();
            let row = txn.get_for_update(&self.accounts, &key)?.expect("the account exists");
            txn.update(&self.accounts, &key, &(balance(&row) + amount).to_be_bytes())?;
        }
        txn.put(&self.transfers, &session.to_be_bytes(), &number.to_be_bytes())?;
        Ok(txn.commit_async())
    }
}

fn balance(row: &[u8]) -> i64 {
    i64::from_be_bytes(row.try_into().expect("a balance has eight bytes"))
}

async fn session(bank: Arc<Bank>, id: u64) -> Result<u64, Error> {
    let mut number = 0;
    while !bank.closing.load(Ordering::Relaxed) {
        match bank.transfer(id, number + 1) {
            Ok(commit) => commit.await?,
            // Two transfers that go opposite ways may wait for each other.
            Err(error) if error.is_retryable() => continue,
            Err(error) => return Err(error),
        }
        number += 1;
        bank.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    Ok(number)
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (sessions, seconds) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(5));
    let home = tempfile::tempdir_in(".").expect("a directory can be made here");
    let db = Db::open(home.path().join("bank"), Options::default())?;
    let (accounts, transfers) = (db.create_table("accounts")?, db.create_table("transfers")?);
    for batch in (0..ACCOUNTS).step_by(1_000) {
        let mut txn = db.begin();
        for account in batch..batch + 1_000 {
            txn.insert(&accounts, &account.to_be_bytes(), &OPENING_BALANCE.to_be_bytes())?;
        }
        txn.commit()?;
    }
    let bank =
        Arc::new(Bank { db, accounts, transfers, acknowledged: AtomicU64::new(0), closing: AtomicBool::new(false) });

    let executor = Executor::new();
    let before = bank.db.metrics();
    let start = Instant::now();
    // The second thread works until the first one has seen the last session end.
    let (done, ended) = async_channel::bounded::<()>(1);
    let outcomes = std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..sessions).map(|id| executor.spawn(session(Arc::clone(&bank), id))).collect();
        let all = async {
            let mut outcomes = Vec::new();
            for task in tasks {
                outcomes.push(task.await);
            }
            outcomes
        };
        scope.spawn(|| futures_lite::future::block_on(executor.run(ended.recv())));
        scope.spawn(|| {
            for second in 1..=seconds {
                std::thread::sleep(Duration::from_secs(1));
                println!("{second} s: {} transfers acknowledged", bank.acknowledged.load(Ordering::Relaxed));
            }
            bank.closing.store(true, Ordering::Relaxed);
        });
        let outcomes = futures_lite::future::block_on(executor.run(all));
        drop(done);
        outcomes
    });
    let elapsed = start.elapsed();
    let after = bank.db.metrics();
    let flushes = after.log.flushes - before.log.flushes;
    let acknowledged = bank.acknowledged.load(Ordering::Relaxed);
    println!(
        "{sessions} sessions on {THREADS} threads: {acknowledged} transfers in {:.1} s, {:.0} a second, \
         {:.0} in each flush",
        elapsed.as_secs_f64(),
        acknowledged as f64 / elapsed.as_secs_f64(),
        acknowledged as f64 / flushes as f64,
    );

    // The database is not closed: it is opened anew from its log, as after a crash.
    let lasts: Vec<u64> = outcomes.into_iter().collect::<Result<_, _>>()?;
    drop(bank);
    let db = Db::open(home.path().join("bank"), Options::default())?;
    let (accounts, transfers) = (db.open_table("accounts")?, db.open_table("transfers")?);
    let mut txn = db.begin();
    let mut money = 0;
    for entry in txn.scan(&accounts, ..) {
        money += balance(&entry?.1);
    }
    assert_eq!(money, ACCOUNTS as i64 * OPENING_BALANCE, "money is neither made nor lost");
    for (id, last) in (0..sessions).zip(lasts) {
        let row = txn.get(&transfers, &id.to_be_bytes())?;
        assert_eq!(row.map_or(0, |row| balance(&row)), last as i64, "the last transfer of session {id}");
    }
    txn.commit()?;
    println!("reopened from the log: all money is there, and every session's last transfer");
    db.close()
}
