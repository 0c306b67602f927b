//! The whole state of a simulated disk, behind its one lock.

use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, SplitMix64, trace};
use duramen_types::BLOCK_SIZE;
use std::collections::BTreeMap;
use std::io::ErrorKind;

use super::content::Block;
use super::inode::Inode;
use super::names::{InodeId, NameChange, Names};
use super::plan::{Fault, Kind, Plan, Verdict};
use crate::{DiskError, Result};

/// The name of a simulated disk in messages.
pub(super) const LOCATION: &str = "simulated disk";

#[derive(Debug)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    pub(super) next_inode: InodeId,
    /// Names as programs see them.
    pub(super) names: Names,
    /// Names as a power cut certainly leaves them.
    pub(super) durable_names: Names,
    /// The changes from the durable names to the visible ones, in order.
    pub(super) pending_names: Vec<NameChange>,
    pub(super) plan: Plan,
    /// The operation in which the power went off, if it has.
    pub(super) crashed_in: Option<String>,
    /// Size of the device in blocks.
    pub(super) capacity: Option<u64>,
    pub(super) locked: bool,
    pub(super) rng: SplitMix64,
}

impl State {
    pub(super) fn new(rng: SplitMix64) -> Self {
        Self {
            inodes: BTreeMap::new(),
            next_inode: 0,
            names: Names::default(),
            durable_names: Names::default(),
            pending_names: Vec::new(),
            plan: Plan::default(),
            crashed_in: None,
            capacity: None,
            locked: false,
            rng,
        }
    }

    /// Fails if the power is off; for the calls that are not operations.
    pub(super) fn check_power(&self, operation: &str, file: &str) -> Result<()> {
        match self.crashed_in {
            Some(_) => Err(crash_error(operation, file)),
            None => Ok(()),
        }
    }

    /// Counts an operation and returns what happens to it.
    pub(super) fn begin(&mut self, kind: Kind, operation: impl Fn() -> String, file: &str) -> Result<Verdict> {
        if self.crashed_in.is_some() {
            return Err(crash_error(&operation(), file));
        }
        let verdict = self.plan.next(kind);
        trace::note(|| {
            let outcome = match verdict {
                Verdict::Proceed => String::new(),
                Verdict::Crash => ": THE POWER GOES OFF".to_owned(),
                Verdict::Fail(fault) => format!(": FAILS ({fault:?})"),
            };
            format!("disk: {} `{file}`{outcome}", operation())
        });
        match verdict {
            Verdict::Proceed => {}
            Verdict::Crash => {
                reach(Probe::PowerCut);
                self.crashed_in = Some(format!("{} `{file}`", operation()));
            }
            Verdict::Fail(Fault::ShortRead | Fault::ShortWrite) => reach(Probe::ShortTransfer),
            Verdict::Fail(Fault::FailedSync) => reach(Probe::SyncFailed),
            Verdict::Fail(Fault::Eio | Fault::Enospc | Fault::TooManyFiles) => reach(Probe::OperationFailed),
        }
        Ok(verdict)
    }

    /// Does what [`State::begin`] does for an operation on names, which `change` carries out. All
    /// but syncs take effect as pending changes, so the operation in which the power goes off is
    /// carried out and reported as failed.
    pub(super) fn change_names(
        &mut self,
        kind: Kind,
        operation: &str,
        file: &str,
        change: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        match self.begin(kind, || operation.to_owned(), file)? {
            Verdict::Proceed => change(self),
            Verdict::Crash => change(self).and(Err(crash_error(operation, file))),
            Verdict::Fail(fault) => Err(fault_error(fault, operation, file)),
        }
    }

    /// Makes a change to the names that programs see; it becomes durable later.
    pub(super) fn rename_pending(&mut self, change: NameChange) {
        self.names.apply(&change);
        self.pending_names.push(change);
    }

    /// Returns an open file. Open files are never collected.
    pub(super) fn inode(&self, id: InodeId) -> &Inode {
        self.inodes.get(&id).expect("open and named files are kept")
    }

    /// Does what [`State::inode`] does, for changes.
    pub(super) fn inode_mut(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).expect("open and named files are kept")
    }

    /// Drops files that have no name, will get none at any crash, and are not open.
    pub(super) fn collect(&mut self) {
        let mut named: Vec<InodeId> = self.reachable();
        named.extend(self.names.files.values());
        self.inodes.retain(|id, inode| inode.handles > 0 || named.contains(id));
    }

    /// Returns the files that may have a name after a crash.
    pub(super) fn reachable(&self) -> Vec<InodeId> {
        let pending = self.pending_names.iter().filter_map(NameChange::inode);
        let mut ids: Vec<InodeId> = self.durable_names.files.values().copied().chain(pending).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    pub(super) fn blocks_used(&self) -> u64 {
        self.inodes.values().map(Inode::blocks_used).sum()
    }

    fn blocks_free(&self) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.blocks_used()))
    }

    /// Writes all of `blocks`, continuing short writes.
    pub(super) fn write(&mut self, id: InodeId, first: u64, blocks: &[Arc<Block>], durable: bool) -> Result<()> {
        let mut done = 0;
        while done < blocks.len() {
            done += self.write_call(id, first + done as u64, &blocks[done..], durable)?;
        }
        Ok(())
    }

    /// Makes one write system call: returns how many blocks it wrote, at least one.
    fn write_call(&mut self, id: InodeId, first: u64, blocks: &[Arc<Block>], durable: bool) -> Result<usize> {
        let operation = || {
            let (bytes, offset) = (blocks.len() * BLOCK_SIZE, first * BLOCK_SIZE as u64);
            format!("write {bytes} bytes{} at offset {offset} of", if durable { " durably" } else { "" })
        };
        let file = path(&self.inode(id).name);
        let verdict = self.begin(if durable { Kind::WriteDurable } else { Kind::Write }, operation, &file)?;
        let mut count = blocks.len();
        match verdict {
            Verdict::Crash => {
                self.inode_mut(id).write(first, blocks);
                return Err(crash_error(&operation(), &file));
            }
            Verdict::Fail(fault @ Fault::Eio) if !durable => {
                let reached = self.rng.below(blocks.len() as u64 + 1) as usize;
                if reached > 0 {
                    self.inode_mut(id).write(first, &blocks[..reached]);
                }
                return Err(fault_error(fault, &operation(), &file));
            }
            Verdict::Fail(fault @ (Fault::Eio | Fault::FailedSync)) => {
                self.inode_mut(id).write_cached(first, blocks);
                return Err(fault_error(fault, &operation(), &file));
            }
            Verdict::Fail(fault @ (Fault::Enospc | Fault::TooManyFiles | Fault::ShortRead)) => {
                return Err(fault_error(fault, &operation(), &file).of_write());
            }
            Verdict::Fail(Fault::ShortWrite) => count = (count / 2).max(1),
            Verdict::Proceed => {}
        }
        if self.capacity.is_some() {
            count = self.inode(id).blocks_that_fit(first, count, self.blocks_free());
            if count == 0 {
                reach(Probe::DiskFull);
                return Err(fault_error(Fault::Enospc, &operation(), &file).of_write());
            }
        }
        let inode = self.inode_mut(id);
        match durable {
            true => inode.write_durable(first, &blocks[..count]),
            false => inode.write(first, &blocks[..count]),
        }
        Ok(count)
    }

    /// Fills `buf` from `offset`, continuing short reads.
    pub(super) fn read(&mut self, id: InodeId, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let (wanted, at) = (buf.len() - done, offset + done as u64);
            let operation = || format!("read {wanted} bytes at offset {at} of");
            let file = path(&self.inode(id).name);
            let count = match self.begin(Kind::Read, operation, &file)? {
                Verdict::Crash => return Err(crash_error(&operation(), &file)),
                Verdict::Fail(Fault::ShortRead) => (wanted / 2).next_multiple_of(BLOCK_SIZE).min(wanted),
                Verdict::Fail(fault) => return Err(fault_error(fault, &operation(), &file)),
                Verdict::Proceed => wanted,
            };
            let content = self.inode(id).volatile();
            if at + wanted as u64 > content.len() {
                return Err(DiskError::end_of_file(wanted, at, file, content.len()));
            }
            content.read(&mut buf[done..done + count], at);
            done += count;
        }
        Ok(())
    }

    /// Makes a file's changes durable.
    pub(super) fn sync(&mut self, id: InodeId) -> Result<()> {
        let file = path(&self.inode(id).name);
        match self.begin(Kind::Sync, || "sync".into(), &file)? {
            Verdict::Proceed => {
                self.inode_mut(id).sync();
                Ok(())
            }
            Verdict::Crash => Err(crash_error("sync", &file)),
            Verdict::Fail(fault) => {
                self.inode_mut(id).fail_sync();
                Err(fault_error(fault, "sync", &file).of_write())
            }
        }
    }

    /// Changes a file's length; with `reserve` the file only grows, and its space is reserved.
    pub(super) fn resize(&mut self, id: InodeId, len: u64, reserve: bool) -> Result<()> {
        let file = path(&self.inode(id).name);
        let operation =
            if reserve { format!("allocate {len} bytes for") } else { format!("set the length to {len} of") };
        let kind = if reserve || len > self.inode(id).volatile().len() { Kind::Grow } else { Kind::Other };
        let verdict = self.begin(kind, || operation.clone(), &file)?;
        if let Verdict::Fail(fault) = verdict {
            return Err(fault_error(fault, &operation, &file));
        }
        if reserve && self.inode(id).blocks_to_reserve(len) > self.blocks_free() {
            reach(Probe::DiskFull);
            return Err(fault_error(Fault::Enospc, &operation, &file));
        }
        match reserve {
            true => self.inode_mut(id).reserve(len),
            false => self.inode_mut(id).set_len(len),
        }
        self.check_power(&operation, &file)
    }
}

/// Returns the path of a file, for messages.
pub(super) fn path(name: &str) -> String {
    format!("{LOCATION}/{name}")
}

/// Returns the error with which every call fails when the power is off.
pub(super) fn crash_error(operation: &str, file: &str) -> DiskError {
    DiskError::new(operation, file, "simulated crash", ErrorKind::Other)
}

/// Returns the error with which `fault` makes a call fail.
pub(super) fn fault_error(fault: Fault, operation: &str, file: &str) -> DiskError {
    let (reason, kind) = match fault {
        Fault::Eio => ("Input/output error (simulated)", ErrorKind::Other),
        Fault::Enospc => ("No space left on device (simulated)", ErrorKind::StorageFull),
        Fault::TooManyFiles => ("Too many open files (simulated)", ErrorKind::WouldBlock),
        Fault::FailedSync => ("Input/output error during sync (simulated)", ErrorKind::Other),
        Fault::ShortRead | Fault::ShortWrite => unreachable!("short transfers are continued, not reported"),
    };
    DiskError::new(operation, file, reason, kind)
}
