//! Bulk loads, for which the log's files grow without zeros.

use duramen_sync::Arc;

use crate::stream::inner::StreamInner;

/// Notes that a table is loaded in bulk, until it is dropped. The log's files then grow by space
/// that is reserved and not filled with zeros, so that what the load logs is written once.
#[derive(Debug)]
pub struct LogBulkLoad(Vec<Arc<StreamInner>>);

impl LogBulkLoad {
    pub(crate) fn new(streams: &[Arc<StreamInner>]) -> Self {
        streams.iter().for_each(|shared| shared.segments.begin_bulk_load());
        Self(streams.to_vec())
    }
}

impl Drop for LogBulkLoad {
    fn drop(&mut self) {
        self.0.iter().for_each(|shared| shared.segments.end_bulk_load(shared.space.end()));
    }
}
