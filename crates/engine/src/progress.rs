//! Reports the progress of recovery.

use std::fmt;

use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicU64, Ordering};

/// Bytes of log between two calls of the observer.
const STEP_BYTES: u64 = 4 << 20;

/// The pass that recovery is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryPass {
    /// Finding the end of the log, counted in bytes of log. The total is unknown until the pass
    /// ends.
    LogEnd,
    /// Analysis and redo, counted in bytes of log: reading a byte counts one half, and repeating it
    /// the other.
    Redo,
    /// Rolling back transactions that had not committed, and completing those that had; counted in
    /// transactions.
    Undo,
}

/// The progress of one pass of recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RecoveryProgress {
    /// The pass.
    pub pass: RecoveryPass,
    /// The amount that is done.
    pub done: u64,
    /// The total amount, if it is known.
    pub total: Option<u64>,
}

/// A function that recovery calls to report its progress ([`crate::Options::recovery_observer`]):
/// whenever some megabytes of log or a transaction are done, and at the end of redo and of undo.
/// Several threads may call it at the same time, and `done` of one call may then be lower than that
/// of another. The function should be short, because recovery waits for it.
#[derive(Clone)]
pub struct RecoveryObserver(Arc<dyn Fn(RecoveryProgress) + Send + Sync>);

impl RecoveryObserver {
    /// Creates an observer that calls `told`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duramen::{Db, Options, RecoveryObserver, RecoveryPass};
    /// # use duramen_io::{CrashChoice, SimDisk};
    /// # fn main() -> duramen::Result<()> {
    /// # let disk = SimDisk::new(1);
    /// # let db = Db::open_on(Arc::new(disk.clone()), Options::small())?;
    /// # let orders = db.create_table("orders")?;
    /// let mut order = db.begin();
    /// order.put(&orders, b"17", b"two chairs")?;
    /// db.run(|txn| txn.put(&orders, b"18", b"a table"))?;
    /// let after_crash = disk.crash_image(&CrashChoice::Nothing);
    ///
    /// let (sender, told) = std::sync::mpsc::channel();
    /// let observer = RecoveryObserver::new(move |progress| sender.send(progress).unwrap());
    /// let options = Options { recovery_observer: Some(observer), ..Options::small() };
    /// let db = Db::open_on(Arc::new(after_crash), options)?;
    /// let undo = told.try_iter().find(|progress| progress.pass == RecoveryPass::Undo).unwrap();
    /// assert_eq!((undo.done, undo.total), (1, Some(1))); // order 17 was rolled back
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(told: impl Fn(RecoveryProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }
}

impl fmt::Debug for RecoveryObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryObserver")
    }
}

/// Counts the finished work of one pass.
#[derive(Debug)]
pub(crate) struct Gauge {
    observer: Option<RecoveryObserver>,
    pass: RecoveryPass,
    total: Option<u64>,
    /// Number of parts in which each unit is done.
    parts: u64,
    /// Units between two calls of the observer.
    step: u64,
    /// Parts that are done.
    done: AtomicU64,
}

impl Gauge {
    /// Creates a gauge for `total` units, each done in `parts` parts, of which none is done yet.
    pub(crate) fn new(observer: Option<&RecoveryObserver>, pass: RecoveryPass, total: Option<u64>, parts: u64) -> Self {
        let step = if pass == RecoveryPass::Undo { 1 } else { STEP_BYTES };
        Self { observer: observer.cloned(), pass, total, parts, step, done: AtomicU64::new(0) }
    }

    /// Adds `units`, of each of which one part is done.
    pub(crate) fn add(&self, units: u64) {
        let before = self.done.fetch_add(units, Ordering::Relaxed);
        let (before, done) = (before / self.parts, (before + units) / self.parts);
        if before / self.step != done / self.step {
            self.tell(done);
        }
    }

    /// Reports that the pass is done.
    pub(crate) fn finish(&self) {
        self.tell(self.total.unwrap_or_else(|| self.done.load(Ordering::Relaxed) / self.parts));
    }

    fn tell(&self, done: u64) {
        if let Some(RecoveryObserver(told)) = &self.observer {
            told(RecoveryProgress { pass: self.pass, done, total: self.total });
        }
    }
}
