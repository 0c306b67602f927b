//! Runs transactions until they commit.

use std::time::Duration;

use duramen_sync::thread;

use crate::api::db::Db;
use crate::error::Result;
use crate::options::Isolation;
use crate::txn::Txn;

/// The longest pause before the second attempt; before each later attempt the limit doubles.
const FIRST_PAUSE: Duration = Duration::from_micros(20);

/// How often the limit doubles, to some milliseconds: the time of a few commits on a disk.
const DOUBLINGS: u32 = 8;

impl Db {
    /// Runs a transaction: begins it, calls `work` with it, commits it, and returns what `work`
    /// returned. If an attempt fails with an error that is [retryable](crate::Error::is_retryable),
    /// the transaction is rolled back and `work` is called again with a new transaction. So `work`
    /// should have no effects outside of the database.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = duramen::Db::open(home.path(), duramen::Options::default())?;
    /// let visits = db.create_table("visits")?;
    /// let visit = || {
    ///     db.run(|txn| {
    ///         let seen = txn.get_for_update(&visits, b"home")?.map_or(0, |seen| seen[0]);
    ///         txn.put(&visits, b"home", &[seen + 1])?;
    ///         Ok(seen + 1)
    ///     })
    /// };
    /// # use std::thread;
    /// let seen = thread::scope(|scope| {
    ///     let visitors = [(); 4].map(|()| scope.spawn(visit));
    ///     visitors.map(|visitor| visitor.join().unwrap().unwrap())
    /// });
    /// assert_eq!(seen.iter().max(), Some(&4));
    ///
    /// // Any other error ends it, and nothing of it is done.
    /// let result = db.run(|txn| {
    ///     txn.put(&visits, b"home", &[0])?;
    ///     txn.insert(&visits, b"home", &[1])
    /// });
    /// assert!(matches!(result, Err(duramen::Error::KeyExists)));
    /// assert_eq!(db.run(|txn| txn.get(&visits, b"home"))?, Some(vec![4]));
    /// # db.close()
    /// # }
    /// ```
    ///
    /// The attempts do not starve: each is as old as the first one, and of the transactions in a
    /// deadlock the youngest is the victim. Between attempts there is a pause of a random length,
    /// at most 20 microseconds at first and 5 milliseconds later. There is no limit on the number
    /// of attempts. Only a transaction that waits for another transaction that the calling thread
    /// itself has open gets [`Error::Deadlock`](crate::Error::Deadlock) at once. So does a
    /// transaction whose `work` runs another one that waits for it. A transaction that [does not
    /// wait](Txn::set_lock_wait_limit) gets [`Error::LockTimeout`](crate::Error::LockTimeout) at
    /// once if the calling thread has another transaction open, which may be the reason.
    ///
    /// To undo its changes for a reason of its own, `work` can [roll back](Txn::rollback_to) to a
    /// savepoint that it made at its beginning, and return normally. If `work` panics, the
    /// transaction is rolled back.
    ///
    /// # Errors
    /// The error that `work` returned, if it is not retryable: the transaction is rolled back, and
    /// as after [`Txn::abort`] the caller may act on what `work` has read. Otherwise the errors of
    /// [`Txn::commit`] and [`Txn::abort`]. If `work` does not return an error of the transaction,
    /// the commit fails with [`Error::MustAbort`](crate::Error::MustAbort), so `work` should return
    /// the error.
    pub fn run<R>(&self, work: impl FnMut(&mut Txn) -> Result<R>) -> Result<R> {
        self.run_with(self.engine().options.isolation, work)
    }

    /// Runs a transaction as [`Db::run`] does, with a given isolation level.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// use duramen::Isolation;
    ///
    /// let orders = db.table("orders")?;
    /// db.run(|txn| txn.put(&orders, b"1", b"two chairs"))?;
    /// let count = db.run_with(Isolation::ReadCommitted, |txn| {
    ///     assert_eq!(txn.isolation(), Isolation::ReadCommitted);
    ///     Ok(txn.scan(&orders, ..).count())
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Db::run`].
    pub fn run_with<R>(&self, isolation: Isolation, work: impl FnMut(&mut Txn) -> Result<R>) -> Result<R> {
        Ok(until_committed(|| self.begin_with(isolation), work, Txn::commit)?.0)
    }
}

/// Runs a transaction until `commit` succeeds; returns the results of `work` and `commit`.
pub(super) fn until_committed<R, C>(
    begin: impl Fn() -> Txn,
    mut work: impl FnMut(&mut Txn) -> Result<R>,
    commit: impl Fn(Txn) -> Result<C>,
) -> Result<(R, C)> {
    let mut txn = begin();
    let age = txn.age();
    for attempt in 0.. {
        match work(&mut txn) {
            Ok(value) => match commit(txn) {
                Ok(committed) => return Ok((value, committed)),
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            },
            // The error may be that of another transaction, which `work` has run. The transaction's
            // locks are released before the pause.
            Err(error) if error.is_retryable() && !error.is_of_own_thread() && !txn.waited_for_own_thread() => {
                drop(txn)
            }
            Err(error) => {
                txn.abort()?;
                return Err(error);
            }
        }
        pause(attempt);
        txn = begin();
        txn.set_age(age);
    }
    unreachable!("the attempts have no last one")
}

fn pause(attempt: u32) {
    let longest = (FIRST_PAUSE * (1 << attempt.min(DOUBLINGS))).as_nanos() as u64;
    thread::sleep(Duration::from_nanos(thread::random() % longest));
}
