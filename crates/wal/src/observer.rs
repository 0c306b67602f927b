//! Who is told how much of the log has been read to find its end.

use std::fmt;

use duramen_sync::Arc;
use duramen_types::Lsn;

use crate::format::record::RecordRef;

/// Bytes from one call to the next.
const STEP: u64 = 4 << 20;

/// A function that is called now and then while ends of logs are looked for, with the bytes that
/// have been read since it was called last. Of several logs, several threads may call it at the
/// same time.
#[derive(Clone)]
pub struct ReadObserver(Arc<dyn Fn(u64) + Send + Sync>);

impl ReadObserver {
    /// Has `told` called.
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

/// How far the reading of one log is.
#[derive(Debug)]
pub(crate) struct Meter<'o> {
    observer: Option<&'o ReadObserver>,
    told: u64,
}

impl<'o> Meter<'o> {
    /// Reading begins at `from`.
    pub(crate) fn new(observer: Option<&'o ReadObserver>, from: Lsn) -> Self {
        Self { observer, told: from.get() }
    }

    /// Takes note of a record that has been read.
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
