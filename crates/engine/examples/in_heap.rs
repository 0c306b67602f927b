//! A database in a heap in persistent memory: changes are made in place, without a log.
//!
//! ```text
//! cargo run --release -p duramen --example in_heap DIRECTORY [HEAP]
//! ```
//!
//! The first run creates the database in `DIRECTORY`, which must not exist yet. Its heap is the
//! file or device `HEAP`; without one, a file in the directory. Each run transfers amounts between
//! accounts on two threads. It then ends in the middle of another transfer, without closing the
//! database. The next run rolls that transfer back, and checks that no money has appeared or
//! vanished.
//!
//! Where the heap is not in persistent memory, its data survives the process and no power cut:
//! [`Survive::Process`] accepts that. A program with persistent memory leaves the field out.

use std::path::{Path, PathBuf};
use std::time::Instant;

use duramen::pmem::{Domain, Source, Survive};
use duramen::{Db, Error, HeapOptions, Options, Scheme, Table, Txn};

const HEAP_BYTES: u64 = 64 << 20;
const ACCOUNTS: u64 = 10_000;
const OPENING_BALANCE: i64 = 1_000;
const THREADS: u64 = 2;
const TRANSFERS: u64 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let directory = args.next().ok_or("usage: in_heap DIRECTORY [HEAP]")?;
    let db = open(&directory, args.next().unwrap_or_else(|| directory.join("heap")))?;
    let accounts = populate(&db)?;
    let recovery = db.metrics().recovery;
    println!("opened; transactions rolled back: {}", recovery.losers);
    check(&db, &accounts)?;

    let began = Instant::now();
    std::thread::scope(|scope| {
        let (db, accounts) = (&db, &accounts);
        let spawn = |thread| scope.spawn(move || transfer_many(db, accounts, thread));
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{} durable transfers, {:.0} a second", THREADS * TRANSFERS, (THREADS * TRANSFERS) as f64 / seconds);
    check(&db, &accounts)?;

    let mut last = db.begin();
    add(&mut last, &accounts, 0, -OPENING_BALANCE)?;
    println!("ending in the middle of a transfer");
    // Neither the transaction nor the database is dropped.
    std::process::exit(0);
}

fn open(directory: &Path, heap: PathBuf) -> duramen::Result<Db> {
    let heap = HeapOptions {
        survive: Survive::Process,
        ..HeapOptions::new(Source::File(heap), HEAP_BYTES, Domain::VolatileCache)
    };
    Db::open(directory, Options { scheme: Scheme::InPlace(heap), ..Options::default() })
}

/// Returns the table of the accounts. Makes those that are not there yet.
fn populate(db: &Db) -> duramen::Result<Table> {
    let accounts = match db.open_table("accounts") {
        Err(Error::NoSuchTable { .. }) => db.create_table("accounts")?,
        opened => opened?,
    };
    for batch in (0..ACCOUNTS).step_by(500) {
        db.run(|txn| {
            if txn.get(&accounts, &batch.to_be_bytes())?.is_some() {
                return Ok(());
            }
            let mut keys = (batch..batch + 500).map(u64::to_be_bytes);
            keys.try_for_each(|key| txn.put(&accounts, &key, &OPENING_BALANCE.to_be_bytes()))
        })?;
    }
    Ok(accounts)
}

fn transfer_many(db: &Db, accounts: &Table, thread: u64) -> duramen::Result<()> {
    for number in 0..TRANSFERS {
        let seed = (thread << 32 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let from = seed % ACCOUNTS;
        let to = (from + 1 + (seed >> 32) % (ACCOUNTS - 1)) % ACCOUNTS;
        // A transaction that is the victim of a deadlock is run again.
        db.run(|txn| {
            add(txn, accounts, from, -1)?;
            add(txn, accounts, to, 1)
        })?;
    }
    Ok(())
}

fn add(txn: &mut Txn, accounts: &Table, account: u64, amount: i64) -> duramen::Result<()> {
    let key = account.to_be_bytes();
    let row = txn.get_for_update(accounts, &key)?.expect("the account exists");
    txn.update(accounts, &key, &(balance(&row) + amount).to_be_bytes())?;
    Ok(())
}

fn balance(row: &[u8]) -> i64 {
    i64::from_be_bytes(row.try_into().expect("a balance has eight bytes"))
}

/// Fails if the accounts do not hold what they held at first, all of them together.
fn check(db: &Db, accounts: &Table) -> Result<(), Box<dyn std::error::Error>> {
    let (mut count, mut sum) = (0, 0);
    let mut txn = db.begin();
    for account in txn.scan(accounts, ..) {
        count += 1;
        sum += balance(&account?.1);
    }
    txn.commit()?;
    let expected = (ACCOUNTS, ACCOUNTS as i64 * OPENING_BALANCE);
    if (count, sum) != expected {
        return Err(format!("{count} accounts hold {sum}, expected {expected:?}").into());
    }
    Ok(())
}
