//! The observer that learns how much of the log has been read in search of its end.

use std::fmt;

use duramen_sync::Arc;
use duramen_types::Lsn;

use crate::format::record::RecordRef;

/// Bytes read between two calls.
const STEP: u64 = 4 << 20;

/// A function called from time to time, with the number of bytes read since the previous call,
/// while the log searches for the ends of its streams. With several logs, several threads may call
/// it at the same time.
#[derive(Clone)]
pub struct ReadObserver(Arc<dyn Fn(u64) + Send + Sync>);

impl ReadObserver {
    /// Makes an observer that calls `told`.
    pub fn new(told: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }
}

impl fmt::Debug for ReadObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadObserver")
    }
}

/// Two are equal if they are the same function.
impl PartialEq for ReadObserver {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ReadObserver {}

/// Progress of reading one log.
#[derive(Debug)]
pub(crate) struct Meter<'o> {
    observer: Option<&'o ReadObserver>,
    told: u64,
}

impl<'o> Meter<'o> {
    /// Starts counting at `from`.
    pub(crate) fn new(observer: Option<&'o ReadObserver>, from: Lsn) -> Self {
        Self { observer, told: from.get() }
    }

    /// Counts a record that has been read.
    #[inline]
    pub(crate) fn pass(&mut self, record: &RecordRef<'_>) {
        let read = record.end.get().saturating_sub(self.told);
        if read >= STEP {
            self.told = record.end.get();
            if let Some(ReadObserver(told)) = self.observer {
                told(read);
            }
        }
    }
}
