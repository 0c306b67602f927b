//! Populates a TPC-B database.
//!
//! Loader threads take whole branches. Of each branch the accounts come first, in ascending batches of one transaction
//! each, the branch row and its tellers last in one transaction. So what is there of a branch that was cut off is a
//! prefix of its accounts, and loading goes on behind the last of them.

use std::time::Duration;

use duramen::{Db, Table};
use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::thread::{self, Parker};
use duramen_sync::{Arc, Mutex};

use super::row::{BalanceRow, decode_id_key, id_key};
use super::scale::{Marker, Scale};
use super::{META, Tables, read_marker};
use crate::error::{Error, Result};
use crate::workload::{LoadOutcome, LoadProgress};

/// Rows inserted by one transaction.
const BATCH: u64 = 1_000;
/// Pause between two calls of the observer.
const OBSERVE_EVERY: Duration = Duration::from_millis(100);

pub(super) fn load(db: &Db, scale: Scale, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
    scale.validate()?;
    let found = read_marker(db)?;
    if let Some(marker) = found {
        if marker.scale != scale {
            return Err(Error::WrongScale { found: marker.scale.to_string(), wanted: scale.to_string() });
        }
        if marker.complete {
            return Ok(LoadOutcome::Present);
        }
    }
    let meta = open_or_create(db, META)?;
    let tables = Tables::with(|name| open_or_create(db, name))?;
    if found.is_none() {
        write_marker(db, &meta, Marker { scale, complete: false })?;
    }
    let rows = load_branches(db, &tables, scale, observe)?;
    write_marker(db, &meta, Marker { scale, complete: true })?;
    db.checkpoint()?;
    Ok(if found.is_some() { LoadOutcome::Resumed { rows } } else { LoadOutcome::Loaded { rows } })
}

fn open_or_create(db: &Db, name: &str) -> Result<Table> {
    match db.create_table(name) {
        Err(duramen::Error::TableExists { .. }) => Ok(db.open_table(name)?),
        other => Ok(other?),
    }
}

fn write_marker(db: &Db, meta: &Table, marker: Marker) -> Result<()> {
    let mut txn = db.begin();
    txn.put(meta, Marker::KEY, &marker.encode())?;
    Ok(txn.commit()?)
}

/// What the loader threads share.
struct Shared {
    next_branch: AtomicU64,
    present: AtomicU64,
    inserted: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Unparked by a loader that is done.
    waiter: Parker,
}

/// Loads every branch; returns how many rows had to be inserted.
fn load_branches(db: &Db, tables: &Tables, scale: Scale, observe: &mut dyn FnMut(LoadProgress)) -> Result<u64> {
    let shared = Arc::new(Shared {
        next_branch: AtomicU64::new(0),
        present: AtomicU64::new(0),
        inserted: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
        waiter: Parker::new(),
    });
    let threads = (thread::available_parallelism() as u64).min(scale.branches);
    let mut loaders = Vec::new();
    for number in 0..threads {
        let loader = Loader { db: db.clone(), tables: tables.clone(), scale, shared: shared.clone() };
        let name = format!("loader-{number}");
        let spawned = thread::spawn(&name, move || {
            if let Err(error) = loader.work() {
                loader.shared.stop.store(true, Ordering::Relaxed);
                loader.shared.failure.lock().get_or_insert(error);
            }
            loader.shared.waiter.unpark();
        });
        match spawned {
            Ok(loader) => loaders.push(loader),
            Err(error) => {
                shared.stop.store(true, Ordering::Relaxed);
                shared.failure.lock().get_or_insert(Error::Thread(error));
                break;
            }
        }
    }
    let total = scale.rows();
    while !loaders.iter().all(thread::JoinHandle::is_finished) {
        shared.waiter.park_timeout(OBSERVE_EVERY);
        let rows = shared.present.load(Ordering::Relaxed) + shared.inserted.load(Ordering::Relaxed);
        observe(LoadProgress { rows, total });
    }
    for loader in loaders {
        if let Err(panic) = loader.join() {
            std::panic::resume_unwind(panic);
        }
    }
    match shared.failure.lock().take() {
        Some(error) => Err(error),
        None => Ok(shared.inserted.load(Ordering::Relaxed)),
    }
}

struct Loader {
    db: Db,
    tables: Tables,
    scale: Scale,
    shared: Arc<Shared>,
}

impl Loader {
    fn work(&self) -> Result<()> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let branch = self.shared.next_branch.fetch_add(1, Ordering::Relaxed);
            if branch >= self.scale.branches {
                break;
            }
            self.load_branch(branch)?;
        }
        Ok(())
    }

    fn load_branch(&self, branch: u64) -> Result<()> {
        let accounts = self.scale.accounts_of(branch);
        let tellers = self.scale.tellers_of(branch);
        let rows = self.scale.rows() / self.scale.branches;
        let Some(mut next) = self.first_missing_account(branch)? else {
            self.shared.present.fetch_add(rows, Ordering::Relaxed);
            return Ok(());
        };
        self.shared.present.fetch_add(next - accounts.start, Ordering::Relaxed);
        let row = |id| BalanceRow { id, branch, balance: 0 }.encode();
        while next < accounts.end && !self.shared.stop.load(Ordering::Relaxed) {
            let batch = next..accounts.end.min(next + BATCH);
            self.commit(|txn| {
                batch.clone().try_for_each(|id| txn.insert(&self.tables.account, &id_key(id), &row(id)))
            })?;
            self.shared.inserted.fetch_add(batch.end - batch.start, Ordering::Relaxed);
            next = batch.end;
        }
        if next < accounts.end {
            return Ok(());
        }
        self.commit(|txn| {
            tellers.clone().try_for_each(|id| txn.insert(&self.tables.teller, &id_key(id), &row(id)))?;
            txn.insert(&self.tables.branch, &id_key(branch), &row(branch))
        })?;
        self.shared.inserted.fetch_add(1 + self.scale.tellers_per_branch, Ordering::Relaxed);
        Ok(())
    }

    /// Where loading `branch` goes on; `None` when all of it is there.
    fn first_missing_account(&self, branch: u64) -> Result<Option<u64>> {
        let accounts = self.scale.accounts_of(branch);
        let mut txn = self.db.begin();
        if txn.get(&self.tables.branch, &id_key(branch))?.is_some() {
            return Ok(None);
        }
        let (first, end) = (id_key(accounts.start), id_key(accounts.end));
        let last = txn.scan_rev(&self.tables.account, &first[..]..&end[..]).next().transpose()?;
        let Some((key, _)) = last else { return Ok(Some(accounts.start)) };
        match decode_id_key(&key) {
            Some(id) => Ok(Some(id + 1)),
            None => Err(Error::Damaged { reason: format!("an account key has {} bytes", key.len()) }),
        }
    }

    /// Runs `work` as one transaction, again while it fails in a way that running it again can mend.
    fn commit(&self, work: impl Fn(&mut duramen::Txn) -> duramen::Result<()>) -> Result<()> {
        loop {
            let mut txn = self.db.begin();
            match work(&mut txn).and_then(|()| txn.commit()) {
                Err(error) if error.is_retryable() => thread::yield_now(),
                other => return Ok(other?),
            }
        }
    }
}
