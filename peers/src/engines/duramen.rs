//! Duramen itself. The [`duramen_workloads::Store`] is the workloads' own.

use std::path::Path;

use duramen::{CommitMode, Db, Options, Table};
use duramen_workloads::Result;

use super::{Durability, Info, Isolation, OwnCounts, Peer};

pub(super) const USE_OF_THREADS: &str = "one thread per client, `commit()`; relaxed: `CommitMode::Async`";

impl Peer for Db {
    const INFO: Info = Info {
        isolation: Isolation::Serializable,
        use_: "as many threads as processors carry all clients with `commit_async()`; relaxed: `CommitMode::Async`",
    };

    fn open_with(home: &Path, durability: Durability, cache: usize) -> Result<Self> {
        let commit = match durability {
            Durability::Durable => CommitMode::Pipelined,
            Durability::Relaxed => CommitMode::Async,
        };
        Ok(Db::open(home, Options { commit, pool_bytes: cache, ..Options::default() })?)
    }

    fn open_for_readers(home: &Path, cache: usize) -> Result<Self> {
        let commit = CommitMode::Pipelined;
        Ok(Db::open(home, Options { commit, pool_bytes: cache, snapshots: true, ..Options::default() })?)
    }

    fn read_range(&self, table: &Table, start: &[u8], end: &[u8], mut visit: impl FnMut(&[u8])) -> Result<()> {
        let snapshot = self.snapshot()?;
        let mut cursor = snapshot.cursor(table, start..end);
        while let Some((_, row)) = cursor.next()? {
            visit(row);
        }
        Ok(())
    }

    fn delete_range(&self, table: &Table, start: &[u8], end: &[u8]) -> Result<()> {
        Ok(self.run(|txn| txn.delete_range(table, start..end).map(drop))?)
    }

    fn load_sorted(&self, name: &str, rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<Option<()>> {
        let mut load = self.bulk_load(name)?;
        for (key, row) in rows {
            load.add(&key, &row)?;
        }
        load.finish()?;
        Ok(Some(()))
    }

    fn close(self) -> Result<()> {
        Ok(Db::close(self)?)
    }

    fn own_counts(&self) -> Option<OwnCounts> {
        let disk = self.metrics().disk;
        Some(OwnCounts { syncs: disk.syncs, written: disk.written_bytes })
    }
}
