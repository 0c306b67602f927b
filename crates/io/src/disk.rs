//! The traits every kind of disk implements.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// What goes wrong on a disk: which file, what was tried, what the system said.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {operation} `{file}`: {reason}")]
pub struct DiskError {
    /// What was tried, as a verb phrase ("write 4096 bytes at offset 8192 of").
    pub operation: String,
    /// The file, as a path a person can find.
    pub file: String,
    /// What the system said.
    pub reason: String,
    /// The kind of failure, for callers that act on it. [`std::io::ErrorKind::WouldBlock`] stands
    /// for a refusal that passes ([`DiskError::is_passing`]).
    pub kind: std::io::ErrorKind,
}

impl DiskError {
    /// Describes `error`, which the system returned when it was asked to `operation` the `file`.
    pub(crate) fn system(operation: impl Into<String>, file: impl Into<String>, error: &std::io::Error) -> Self {
        let is_out_of_handles = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        let kind = if is_out_of_handles { std::io::ErrorKind::WouldBlock } else { error.kind() };
        Self { operation: operation.into(), file: file.into(), reason: error.to_string(), kind }
    }

    /// Describes a failure that a disk found itself.
    pub(crate) fn new(
        operation: impl Into<String>,
        file: impl Into<String>,
        reason: impl Into<String>,
        kind: std::io::ErrorKind,
    ) -> Self {
        Self { operation: operation.into(), file: file.into(), reason: reason.into(), kind }
    }

    /// The error of a read that wants bytes which the file of `len` bytes does not have.
    pub(crate) fn end_of_file(wanted: usize, offset: u64, file: impl Into<String>, len: u64) -> Self {
        Self::new(
            format!("read {wanted} bytes at offset {offset} of"),
            file,
            format!("the file ends at byte {len}"),
            std::io::ErrorKind::UnexpectedEof,
        )
    }

    /// Whether space could not be set aside: the disk or quota is full, or a file may not be as
    /// long as that. Nothing is lost. A write or sync that finds no space is none of these: it has
    /// failed like any other.
    pub fn is_full(&self) -> bool {
        use std::io::ErrorKind;
        matches!(self.kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
    }

    /// The same for a write or a sync: whatever the reason, nobody knows what is on the disk now.
    pub(crate) fn of_write(self) -> Self {
        let kind = if self.is_full() || self.is_passing() { std::io::ErrorKind::Other } else { self.kind };
        Self { kind, ..self }
    }

    /// Whether nothing has failed and the same can succeed later: the process, or the system, may
    /// not have more files open at this moment.
    pub fn is_passing(&self) -> bool {
        self.kind == std::io::ErrorKind::WouldBlock
    }

    /// Whether the file is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind == std::io::ErrorKind::NotFound
    }
}

/// Result of a disk operation.
pub type Result<T> = std::result::Result<T, DiskError>;

/// How [`Disk::open`] treats what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file must not exist; it is created empty. The name is durable only after
    /// [`Disk::sync_directory`].
    CreateNew,
}

/// One directory of files: a database's home. Names are relative, with `/` for the one level of
/// subdirectory that [`Disk::create_directory`] makes.
///
/// Media assumptions (what an implementation must give, and what it may do at a crash) are in
/// `docs/file-format.md`. In short: a completed sync makes all earlier writes to that file durable;
/// anything else may be lost, kept, kept in part (whole 512-byte sectors), in any order; a created,
/// renamed or removed name and a changed length are durable after the directory or the file has
/// been synced.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Another handle of the same disk, for a component that opens files later.
    fn handle(&self) -> Arc<dyn Disk>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Whether a file or directory of this name exists.
    fn exists(&self, name: &str) -> Result<bool>;

    /// Names of the files in `directory` (`""` is the home itself), sorted, without subdirectories.
    fn list(&self, directory: &str) -> Result<Vec<String>>;

    /// Makes a subdirectory; none is needed if it exists.
    fn create_directory(&self, name: &str) -> Result<()>;

    /// Removes a file. Durable after [`Disk::sync_directory`].
    fn remove(&self, name: &str) -> Result<()>;

    /// Renames a file within its directory, replacing what has the new name. Durable after
    /// [`Disk::sync_directory`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Makes the names in `directory` durable.
    fn sync_directory(&self, directory: &str) -> Result<()>;

    /// Takes the home for one opener; a second one, of this or another process, gets an error of
    /// kind [`std::io::ErrorKind::ResourceBusy`]. Released when the guard is dropped or the process
    /// ends.
    fn lock(&self) -> Result<DiskLock>;

    /// Checks that where the home was found is still where it is, and so for its subdirectories.
    /// Nobody but the system can move a directory away from under a disk: others have nothing to
    /// check.
    fn verify_home(&self) -> Result<()> {
        Ok(())
    }

    /// What was done so far.
    fn counters(&self) -> DiskCounters;

    /// How the disk works, for people: `"io_uring"`, `"pwritev2"`, `"simulated"`.
    fn backend(&self) -> &'static str;

    /// Where the home is, for messages.
    fn location(&self) -> String;

    /// The directory of the operating system that the home is, if it is one.
    fn directory(&self) -> Option<PathBuf> {
        None
    }
}

/// One open file. Offsets, lengths and buffer addresses are multiples of
/// [`duramen_types::BLOCK_SIZE`] for reads and writes (see [`crate::AlignedBuf`]); implementations
/// check this with assertions. All methods may be called from many threads at once; overlapping
/// writes in flight at the same time have no defined order.
pub trait File: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset`. Ending early because the file ends there is an error of kind
    /// [`std::io::ErrorKind::UnexpectedEof`]; short reads of the system are continued.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Reads several ranges, in parallel where the system can.
    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()>;

    /// Writes `parts` one after another from `offset`. Not durable until synced. Short writes are
    /// continued.
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()>;

    /// As [`File::write_at`], and durable (data, and what is needed to read it back) when it
    /// returns: one operation where the system offers it. Earlier un-synced writes to other ranges
    /// are not necessarily made durable.
    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()>;

    /// Writes several ranges, in parallel where the system can, in no particular order. Not durable
    /// until synced.
    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()>;

    /// Makes all completed writes and the length durable (`fdatasync`).
    fn sync(&self) -> Result<()>;

    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Extends the file to at least `len` bytes of zeros with its space reserved on the device, so
    /// that later writes there cannot run out of space. Durable after [`File::sync`]. Never
    /// shrinks.
    fn allocate(&self, len: u64) -> Result<()>;

    /// Cuts or extends (with a hole) the file to exactly `len` bytes. Durable after [`File::sync`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// Checks that the name by which it was opened still leads to this file. See
    /// [`Disk::verify_home`].
    fn verify_name(&self) -> Result<()> {
        Ok(())
    }

    /// Takes the file for this handle until it is closed; another handle that has it is an error of
    /// kind [`std::io::ErrorKind::ResourceBusy`]. Beside [`Disk::lock`], for a file that may be
    /// moved to another directory. A disk whose files cannot be has nothing to do.
    fn lock(&self) -> Result<()> {
        Ok(())
    }

    /// The file's path, for messages.
    fn path(&self) -> String;
}

/// Keeps the home of a [`Disk`] locked until dropped.
pub struct DiskLock(#[allow(dead_code, reason = "held for its drop")] Box<dyn std::any::Any + Send + Sync>);

impl DiskLock {
    /// Wraps whatever releases the lock when it is dropped.
    pub fn new(guard: impl std::any::Any + Send + Sync) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskLock")
    }
}

/// Counts of the operations a [`Disk`] has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write operations, durable ones included.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Operations that told the device to make data durable: syncs of files and directories, and
    /// durable writes.
    pub syncs: u64,
}
