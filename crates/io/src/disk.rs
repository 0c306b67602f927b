//! The traits that every kind of disk implements.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A disk error: the file, the operation, and the system's message.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {operation} `{file}`: {reason}")]
pub struct DiskError {
    /// The operation, as a verb phrase ("write 4096 bytes at offset 8192 of").
    pub operation: String,
    /// The file, as a path that a person can find.
    pub file: String,
    /// The system's message.
    pub reason: String,
    /// The kind of failure, for callers that act on it. [`std::io::ErrorKind::WouldBlock`] stands
    /// for a passing refusal ([`DiskError::is_passing`]).
    pub kind: std::io::ErrorKind,
}

impl DiskError {
    /// Describes `error`, which the system returned for `operation` on `file`.
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

    /// Makes the error of a read beyond the end of a file of `len` bytes.
    pub(crate) fn end_of_file(wanted: usize, offset: u64, file: impl Into<String>, len: u64) -> Self {
        Self::new(
            format!("read {wanted} bytes at offset {offset} of"),
            file,
            format!("the file ends at byte {len}"),
            std::io::ErrorKind::UnexpectedEof,
        )
    }

    /// Returns whether space could not be reserved: the disk or quota is full, or a file may not
    /// have this length. Nothing is lost. This does not include a write or sync that finds no
    /// space: it has failed like any other.
    pub fn is_full(&self) -> bool {
        use std::io::ErrorKind;
        matches!(self.kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
    }

    /// Turns the error into that of a write or a sync: whatever the reason, the content of the disk
    /// is now unknown.
    pub(crate) fn of_write(self) -> Self {
        let kind = if self.is_full() || self.is_passing() { std::io::ErrorKind::Other } else { self.kind };
        Self { kind, ..self }
    }

    /// Returns whether nothing has failed and the same call can succeed later: the process, or the
    /// system, has reached its limit of open files for the moment.
    pub fn is_passing(&self) -> bool {
        self.kind == std::io::ErrorKind::WouldBlock
    }

    /// Returns whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind == std::io::ErrorKind::NotFound
    }
}

/// Result of a disk operation.
pub type Result<T> = std::result::Result<T, DiskError>;

/// How [`Disk::open`] treats an existing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// The file must exist.
    Existing,
    /// The file must not exist; it is created empty. The name is durable only after
    /// [`Disk::sync_directory`].
    CreateNew,
}

/// One directory of files: a database's home. Names are relative, with `/` for the one level of
/// subdirectories that [`Disk::create_directory`] makes.
///
/// `docs/file-format.md` states the media assumptions (what an implementation must guarantee, and
/// what it may do at a crash). In short: a completed sync makes all earlier writes to that file
/// durable. Anything else may be lost, kept, or kept in part (whole 512-byte sectors), in any
/// order. A created, renamed or removed name and a changed length are durable after the directory
/// or the file has been synced.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Returns another handle of the same disk, for a component that opens files later.
    fn handle(&self) -> Arc<dyn Disk>;

    /// Returns whether what is changed is lost with the last handle, so that nothing outside of the
    /// disk may come to depend on it.
    fn forgets(&self) -> bool {
        false
    }

    /// Opens a file for reading and writing.
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Returns whether a file or directory of this name exists.
    fn exists(&self, name: &str) -> Result<bool>;

    /// Returns the names of the files in `directory` (`""` is the home itself), sorted, without
    /// subdirectories.
    fn list(&self, directory: &str) -> Result<Vec<String>>;

    /// Creates a subdirectory; does nothing if it exists.
    fn create_directory(&self, name: &str) -> Result<()>;

    /// Removes a file. Durable after [`Disk::sync_directory`].
    fn remove(&self, name: &str) -> Result<()>;

    /// Renames a file within its directory, replacing a file with the new name. Durable after
    /// [`Disk::sync_directory`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Makes the names in `directory` durable.
    fn sync_directory(&self, directory: &str) -> Result<()>;

    /// Locks the home for one opener; a second one, in this or another process, gets an error of
    /// kind [`std::io::ErrorKind::ResourceBusy`]. The lock is released when the guard is dropped or
    /// the process ends.
    fn lock(&self) -> Result<DiskLock>;

    /// Checks that the home and its subdirectories are still where they were opened. Only a
    /// directory of the operating system can be moved while it is open; other disks have nothing to
    /// check.
    fn verify_home(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the counts of the operations so far.
    fn counters(&self) -> DiskCounters;

    /// Returns how the disk works, for people: `"io_uring"`, `"pwritev2"`, `"simulated"`.
    fn backend(&self) -> &'static str;

    /// Returns where the home is, for messages.
    fn location(&self) -> String;

    /// Returns the home's directory in the operating system, if there is one.
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

    /// Does what [`File::write_at`] does, and the bytes are durable (data, and what is needed to
    /// read it back) when it returns. This is one operation where the system offers it. Earlier
    /// un-synced writes to other ranges are not necessarily made durable.
    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()>;

    /// Writes several ranges, in parallel where the system can, in no particular order. Not durable
    /// until synced.
    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()>;

    /// Makes all completed writes and the length durable (`fdatasync`).
    fn sync(&self) -> Result<()>;

    /// Returns the length in bytes.
    fn len(&self) -> Result<u64>;

    /// Returns whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Extends the file to at least `len` bytes with zeros, whose space is reserved on the device,
    /// so that later writes there cannot run out of space. Durable after [`File::sync`]. Never
    /// shrinks the file.
    fn allocate(&self, len: u64) -> Result<()>;

    /// Extends the file as [`File::allocate`] does, but may leave it to the first write of each
    /// block to make the block a written one in the file system, which then costs more. For files
    /// whose new parts are written in large batches.
    ///
    /// # Errors
    /// As [`File::allocate`].
    fn reserve(&self, len: u64) -> Result<()> {
        self.allocate(len)
    }

    /// Cuts or extends (with a hole) the file to exactly `len` bytes. Durable after [`File::sync`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// Gives the space of a range of blocks back to the file system, if it takes it. What can be
    /// read there afterwards is undefined, and a later write there has to find space again.
    fn discard(&self, _range: Range<u64>) -> Result<()> {
        Ok(())
    }

    /// Checks that the name with which the file was opened still leads to it. See
    /// [`Disk::verify_home`].
    fn verify_name(&self) -> Result<()> {
        Ok(())
    }

    /// Locks the file for this handle until it is closed; if another handle has locked it, returns
    /// an error of kind [`std::io::ErrorKind::ResourceBusy`]. In addition to [`Disk::lock`], for a
    /// file that may be moved to another directory. A disk whose files cannot be moved does
    /// nothing.
    fn lock(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the file's path, for messages.
    fn path(&self) -> String;
}

/// Keeps the home of a [`Disk`] locked until dropped.
pub struct DiskLock(#[allow(dead_code, reason = "held for its drop")] Box<dyn std::any::Any + Send + Sync>);

impl DiskLock {
    /// Wraps the value that releases the lock when it is dropped.
    pub fn new(guard: impl std::any::Any + Send + Sync) -> Self {
        Self(Box::new(guard))
    }
}

impl fmt::Debug for DiskLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskLock")
    }
}

/// Counts of the operations that a [`Disk`] has done since it was opened.
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
    /// Operations that made the device write data durably: syncs of files and directories, and
    /// durable writes.
    pub syncs: u64,
}
