//! A disk in memory that crashes, tears, reorders, loses, corrupts, fills up and fails on request.
//!
//! Every file has a *durable* content, which a power cut certainly leaves, and the list of changes
//! since that a power cut may lose; names likewise. The rules are the media assumptions of
//! [`crate::Disk`] at their worst:
//!
//! - An un-synced write may be lost, kept, or kept in part, sector by sector; overlapping writes in
//!   any order.
//! - [`File::sync`](crate::File::sync) makes the completed writes and the length of its file
//!   durable, and no names.
//! - A durable write that returned is durable with the length that it needs. A durable write in
//!   flight at the crash counts as an un-synced write.
//! - Only a sync of its directory makes the creation, removal or renaming of a name durable. Files
//!   may be synced before they have a durable name; after a crash they are then gone unless the
//!   name happens to be kept. A rename is atomic. Name changes are kept or lost independently of
//!   each other.
//! - A length change is durable after a sync of the file; a shrinking and later changes stay in
//!   order.
//! - What is discarded is overwritten with garbage.
//!
//! **Operations** are numbered from 0, one per simulated system call: open (either mode), list,
//! create directory, remove, rename, sync of a directory; and of files every read, write and
//! durable write (each range of a batch, each continuation of a short transfer), sync, allocate,
//! `set_len`, discard. Calls answered from memory (`exists`, `len`, `path`, counters) and the lock
//! are not operations. A failed open counts as an operation too.
//!
//! Everything is deterministic for one seed and one order of calls.

mod content;
mod file;
mod image;
mod inode;
mod names;
mod pace;
mod plan;
mod state;

pub use image::CrashChoice;
pub use pace::Pace;
pub use plan::Fault;

use duramen_sync::{Arc, Mutex, SplitMix64, trace};
use duramen_types::{BLOCK_SIZE, planted};
use std::io::ErrorKind;

use crate::checks::{assert_directory_name, assert_name, directory_of};
use crate::counters::Counters;
use crate::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
use content::Content;
use file::SimFile;
use inode::Inode;
use names::{InodeId, NameChange};
use pace::Pacer;
use plan::{Kind, Verdict};
use state::{LOCATION, State, crash_error, fault_error, path};

/// A simulated disk; clones are handles of the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    counters: Counters,
    /// `None`: operations take no time.
    pacer: Option<Pacer>,
}

impl Shared {
    /// Carries out an operation at the device's speed.
    fn paced<R>(&self, durable: bool, operation: impl FnOnce() -> R) -> R {
        match &self.pacer {
            Some(pacer) => pacer.paced(durable, operation),
            None => operation(),
        }
    }
}

/// Releases the lock when dropped.
struct SimLock(Arc<Shared>);

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.state.lock().locked = false;
    }
}

impl SimDisk {
    /// Makes an empty disk without a size limit. The seed decides how much of a failed write is
    /// done.
    pub fn new(seed: u64) -> Self {
        Self::with_state(State::new(SplitMix64::new(seed)), None)
    }

    /// Does what [`SimDisk::new`] does, for a device whose operations take time. Its images have
    /// the same speed.
    pub fn with_pace(seed: u64, pace: Pace) -> Self {
        Self::with_state(State::new(SplitMix64::new(seed)), Some(Pacer::new(pace, seed)))
    }

    fn with_state(state: State, pacer: Option<Pacer>) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::new(state), counters: Counters::default(), pacer }) }
    }

    fn with_state_of_image(&self, state: State) -> Self {
        Self::with_state(state, self.shared.pacer.as_ref().map(Pacer::another))
    }

    /// Returns the number of operations so far, which is the number of the next one.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().plan.operations()
    }

    /// Turns the power off at operation `operation`, or at the next one if that has passed. The
    /// operation itself may have any effect that is not durable; it and every later call fail with
    /// reason "simulated crash".
    pub fn crash_at(&self, operation: u64) {
        self.shared.state.lock().plan.crash_at(operation);
    }

    /// Turns the power off now, between two operations.
    pub fn crash(&self) {
        self.shared.state.lock().crashed_in.get_or_insert_with(|| "no operation".to_owned());
    }

    /// Returns the operation in which the power went off ("sync `simulated disk/data`"), if it has.
    pub fn crashed_in(&self) -> Option<String> {
        self.shared.state.lock().crashed_in.clone()
    }

    /// Plans a fault for the first operation from number `operation` on that the fault fits, or, if
    /// `persistent`, for all of them.
    pub fn fail_at(&self, operation: u64, fault: Fault, persistent: bool) {
        self.shared.state.lock().plan.fail_at(operation, fault, persistent);
    }

    /// Removes all planned faults and the planned crash.
    pub fn clear_faults(&self) {
        self.shared.state.lock().plan.clear();
    }

    /// Limits the device to `bytes`, rounded down to blocks. Files occupy the blocks that were
    /// written or allocated; a write that does not fit writes the blocks that do and fails.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.state.lock().capacity = Some(bytes / BLOCK_SIZE as u64);
    }

    /// Returns the bytes of the device in use. Removed files count until their removal is durable
    /// and they are closed.
    pub fn used(&self) -> u64 {
        self.shared.state.lock().blocks_used() * BLOCK_SIZE as u64
    }

    /// Returns the number of independent changes that a crash now would lose, keep or tear: the
    /// units of [`CrashChoice`].
    pub fn unsynced(&self) -> usize {
        image::unsynced(&self.shared.state.lock())
    }

    /// Returns the disk as found after a power cut at this moment (or at the moment when the power
    /// went off). It is a separate disk: powered, unlocked, without planned faults and limits, its
    /// operations numbered from 0.
    pub fn crash_image(&self, choice: &CrashChoice) -> Self {
        trace::note(|| format!("disk: what a power cut leaves ({choice:?}) becomes another disk"));
        self.with_state_of_image(image::after_crash(&self.shared.state.lock(), choice))
    }

    /// Returns a copy of the disk as programs see it, as if everything had been synced; otherwise
    /// like [`SimDisk::crash_image`].
    pub fn image(&self) -> Self {
        self.with_state_of_image(image::all_synced(&self.shared.state.lock()))
    }

    /// Returns the names of all files, with their directories, sorted. Works without power, too.
    pub fn file_names(&self) -> Vec<String> {
        self.shared.state.lock().names.files.keys().cloned().collect()
    }

    /// Returns what a power cut certainly leaves of a file, under the name that programs see. Works
    /// without power, too.
    pub fn durable_bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.shared.state.lock();
        let content = state.inode(*state.names.files.get(name)?).durable();
        let mut bytes = vec![0; usize::try_from(content.len()).expect("simulated files fit into memory")];
        content.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Inverts bit `bit` (0 to 7) of byte `byte` on the medium. Reads see it, unless the block has
    /// an un-synced newer version. Works without power, too.
    ///
    /// # Panics
    /// If the file does not exist or its durable content does not reach that far.
    pub fn flip_bit(&self, name: &str, byte: u64, bit: u8) {
        let mut state = self.shared.state.lock();
        let id = *state.names.files.get(name).unwrap_or_else(|| panic!("there is no file `{name}`"));
        let inode = state.inode_mut(id);
        assert!(byte < inode.durable().len() && bit < 8, "bit {bit} of byte {byte} of `{name}` does not exist");
        inode.flip_bit(byte, bit);
    }

    fn open_existing(state: &mut State, name: &str, file: &str) -> Result<InodeId> {
        const OPERATION: &str = "open";
        match state.begin(Kind::Open, || OPERATION.into(), file)? {
            Verdict::Crash => Err(crash_error(OPERATION, file)),
            Verdict::Fail(fault) => Err(fault_error(fault, OPERATION, file)),
            Verdict::Proceed => state.names.files.get(name).copied().ok_or_else(|| not_found(OPERATION, file)),
        }
    }

    fn create_new(state: &mut State, name: &str, file: &str) -> Result<InodeId> {
        let inode = state.next_inode;
        state.change_names(Kind::Create, "create", file, |state| {
            if state.names.exists(name) {
                return Err(DiskError::new("create", file, "it already exists", ErrorKind::AlreadyExists));
            }
            if !state.names.has_directory(directory_of(name)) {
                return Err(not_found("create", file));
            }
            state.next_inode += 1;
            state.inodes.insert(inode, Inode::synced(name.to_owned(), Content::default(), 0));
            state.rename_pending(NameChange::Create { name: name.to_owned(), inode });
            Ok(())
        })?;
        Ok(inode)
    }

    fn sync_names_of(&self, directory: &str) -> Result<()> {
        let file = path(directory);
        let mut state = self.shared.state.lock();
        match state.begin(Kind::SyncDirectory, || "sync the directory".into(), &file)? {
            Verdict::Crash => return Err(crash_error("sync the directory", &file)),
            Verdict::Fail(fault) => return Err(fault_error(fault, "sync the directory", &file).of_write()),
            Verdict::Proceed => {}
        }
        if !state.names.has_directory(directory) {
            return Err(not_found("sync the directory", &file));
        }
        let (durable, pending) =
            std::mem::take(&mut state.pending_names).into_iter().partition(|change| change.directory() == directory);
        state.pending_names = pending;
        let durable: Vec<NameChange> = durable;
        durable.iter().for_each(|change| state.durable_names.apply(change));
        state.collect();
        drop(state);
        self.shared.counters.count_sync();
        Ok(())
    }
}

impl Disk for SimDisk {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        assert_name(name);
        let file = path(name);
        let mut state = self.shared.state.lock();
        let inode = match mode {
            OpenMode::Existing => Self::open_existing(&mut state, name, &file)?,
            OpenMode::CreateNew => Self::create_new(&mut state, name, &file)?,
        };
        state.inode_mut(inode).handles += 1;
        Ok(Arc::new(SimFile::new(self, inode)))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        assert_name(name);
        let state = self.shared.state.lock();
        state.check_power("look for", &path(name))?;
        Ok(state.names.exists(name))
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        assert_directory_name(directory);
        let file = path(directory);
        let mut state = self.shared.state.lock();
        match state.begin(Kind::Open, || "list".into(), &file)? {
            Verdict::Crash => return Err(crash_error("list", &file)),
            Verdict::Fail(fault) => return Err(fault_error(fault, "list", &file)),
            Verdict::Proceed => {}
        }
        if !state.names.has_directory(directory) {
            return Err(not_found("list", &file));
        }
        let inside = state.names.files.keys().filter(|name| directory_of(name) == directory);
        Ok(inside.map(|name| name.rsplit_once('/').map_or(name.as_str(), |(_, leaf)| leaf).to_owned()).collect())
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        assert_name(name);
        assert_directory_name(name);
        let file = path(name);
        self.shared.state.lock().change_names(Kind::Grow, "create the directory", &file, |state| {
            if state.names.files.contains_key(name) {
                let reason = "there is a file of this name";
                return Err(DiskError::new("create the directory", &file, reason, ErrorKind::AlreadyExists));
            }
            if !state.names.has_directory(name) {
                state.rename_pending(NameChange::CreateDirectory { name: name.to_owned() });
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        assert_name(name);
        let file = path(name);
        self.shared.state.lock().change_names(Kind::Other, "remove", &file, |state| {
            let inode = *state.names.files.get(name).ok_or_else(|| not_found("remove", &file))?;
            state.rename_pending(NameChange::Remove { name: name.to_owned(), inode });
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        assert_name(from);
        assert_name(to);
        assert_eq!(directory_of(from), directory_of(to), "renames stay within their directory");
        let (old, file) = (path(from), path(to));
        let operation = format!("rename `{old}` to");
        self.shared.state.lock().change_names(Kind::Other, &operation, &file, |state| {
            let inode = *state.names.files.get(from).ok_or_else(|| not_found(&operation, &file))?;
            if from != to {
                state.rename_pending(NameChange::Rename { to: to.to_owned(), inode });
                state.inode_mut(inode).name = to.to_owned();
            }
            Ok(())
        })
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        assert_directory_name(directory);
        if planted!(SkipDirectorySync) {
            return Ok(());
        }
        self.shared.paced(true, || self.sync_names_of(directory))
    }

    fn lock(&self) -> Result<DiskLock> {
        let mut state = self.shared.state.lock();
        state.check_power("lock", LOCATION)?;
        if state.locked {
            let reason = "it is already open in this process";
            return Err(DiskError::new("lock", LOCATION, reason, ErrorKind::ResourceBusy));
        }
        state.locked = true;
        Ok(DiskLock::new(SimLock(Arc::clone(&self.shared))))
    }

    fn counters(&self) -> DiskCounters {
        self.shared.counters.snapshot()
    }

    fn backend(&self) -> &'static str {
        "simulated"
    }

    fn location(&self) -> String {
        LOCATION.to_owned()
    }
}

fn not_found(operation: &str, file: &str) -> DiskError {
    DiskError::new(operation, file, "it does not exist", ErrorKind::NotFound)
}
