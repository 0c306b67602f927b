//! Telling how far recovery is.

use std::fmt;

use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicU64, Ordering};

/// Bytes of log from one call to the next.
const STEP_BYTES: u64 = 4 << 20;

/// What recovery is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryPass {
    /// Finding the end of the log; counted in bytes of log. How many there are shows at the end.
    LogEnd,
    /// Analysis and redo; counted in bytes of log, one half when they are read and the other when
    /// they are repeated.
    Redo,
    /// Rolling back what had not committed, and completing what had; counted in transactions.
    Undo,
}

/// How far a pass of recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RecoveryProgress {
    /// Which one.
    pub pass: RecoveryPass,
    /// What is done.
    pub done: u64,
    /// What there is to be done, if that is known.
    pub total: Option<u64>,
}

/// A function that recovery tells how far it is ([`crate::Options::recovery_observer`]): whenever
/// some megabytes of log or a transaction are done, and at the end of redo and of undo. Several
/// threads may call it at the same time, and `done` of one call may then be lower than that of
/// another. It should not take long, since recovery waits for it.
#[derive(Clone)]
pub struct RecoveryObserver(Arc<dyn Fn(RecoveryProgress) + Send + Sync>);

impl RecoveryObserver {
    /// Has `told` called.
    pub fn new(told: impl Fn(RecoveryProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }
}

impl fmt::Debug for RecoveryObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryObserver")
    }
}

/// Counts what is done of one pass.
#[derive(Debug)]
pub(crate) struct Gauge {
    observer: Option<RecoveryObserver>,
    pass: RecoveryPass,
    total: Option<u64>,
    /// Each unit is done in so many parts.
    parts: u64,
    /// Units from one call to the next.
    step: u64,
    /// Parts that are done.
    done: AtomicU64,
}

impl Gauge {
    /// Nothing is done yet, of `total` units in so many parts.
    pub(crate) fn new(observer: Option<&RecoveryObserver>, pass: RecoveryPass, total: Option<u64>, parts: u64) -> Self {
        let step = if pass == RecoveryPass::Undo { 1 } else { STEP_BYTES };
        Self { observer: observer.cloned(), pass, total, parts, step, done: AtomicU64::new(0) }
    }

    /// One part of so many units has been done.
    pub(crate) fn add(&self, units: u64) {
        let before = self.done.fetch_add(units, Ordering::Relaxed);
        let (before, done) = (before / self.parts, (before + units) / self.parts);
        if before / self.step != done / self.step {
            self.tell(done);
        }
    }

    /// All is done.
    pub(crate) fn finish(&self) {
        self.tell(self.total.unwrap_or_else(|| self.done.load(Ordering::Relaxed) / self.parts));
    }

    fn tell(&self, done: u64) {
        if let Some(RecoveryObserver(told)) = &self.observer {
            told(RecoveryProgress { pass: self.pass, done, total: self.total });
        }
    }
}
