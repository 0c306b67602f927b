//! Duramen itself. The [`duramen_workloads::Store`] is the workloads' own.

use std::path::Path;

use duramen::{CommitMode, Db, Options};
use duramen_workloads::Result;

use super::{CACHE_BYTES, Durability, Info, Isolation, OwnCounts, Peer};

pub(super) const USE_OF_THREADS: &str = "one thread per client, `commit()`; relaxed: `CommitMode::Async`";

impl Peer for Db {
    const INFO: Info = Info {
        isolation: Isolation::Serializable,
        use_: "as many threads as processors carry all clients with `commit_async()`; relaxed: `CommitMode::Async`",
    };

    fn open(home: &Path, durability: Durability) -> Result<Self> {
        let commit = match durability {
            Durability::Durable => CommitMode::Pipelined,
            Durability::Relaxed => CommitMode::Async,
        };
        Ok(Db::open(home, Options { commit, pool_bytes: CACHE_BYTES, ..Options::default() })?)
    }

    fn close(self) -> Result<()> {
        Ok(Db::close(self)?)
    }

    fn own_counts(&self) -> Option<OwnCounts> {
        let disk = self.metrics().disk;
        Some(OwnCounts { syncs: disk.syncs, written: disk.written_bytes })
    }
}
