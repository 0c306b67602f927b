//! Persistent memory instead of a log: heaps, batches, and the memory of PCMLogging.

use std::time::Duration;

use duramen_pmem::{Domain, Guarantee, Placement, Source, Survive, Timing};

use super::{Barriers, CommitMode, Options, Residence, Scheme};
use crate::error::{Error, Result};

/// The batches of [`Scheme::NvramGroupCommit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchOptions {
    /// How long a batch lasts from its first change on (default 5 ms, at most 10 s). It ends
    /// earlier when it fills its log or the pool, or when a table is created or dropped.
    pub period: Duration,
    /// How long the end of a batch waits for transactions under way, while new ones wait to write
    /// (default 200 us, at most 1 s). Undo information of the others is stored with the batch.
    pub drain: Duration,
    /// The part of a new heap that is for batches, in bytes: at least 1 MiB, at most 4 GiB, and at
    /// most half of the heap. A batch takes at most half of it. By default an eighth of the heap,
    /// at least 1 MiB and at most 64 MiB. An existing heap keeps its batch log.
    pub log_bytes: Option<u64>,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self { period: Duration::from_millis(5), drain: Duration::from_micros(200), log_bytes: None }
    }
}

impl BatchOptions {
    /// The smallest heap with batches, in bytes.
    pub const LEAST_HEAP_BYTES: u64 = 4 << 20;

    /// Returns the bytes of the batch log of a new heap of `heap_bytes` bytes.
    pub(crate) fn log_bytes_of(&self, heap_bytes: u64) -> u64 {
        let bytes = self.log_bytes.unwrap_or_else(|| (heap_bytes / 8).clamp(1 << 20, 64 << 20));
        // Each half begins at a multiple of the size of a journal block.
        bytes / (128 << 10) * (128 << 10)
    }
}

/// The heap in persistent memory that holds the pages of a database and the journals of its
/// transactions. It belongs to the database as its files do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeapOptions {
    /// The file or device. With a new database a file that does not exist is created, and one that
    /// exists must contain only zeros.
    pub source: Source,
    /// Size in bytes, at least 2 MiB. An existing heap grows to this size when it is opened, and
    /// never shrinks.
    pub bytes: u64,
    /// The part of a new heap that is for journals, in bytes: at least 1 MiB, and at most half of
    /// the heap. By default a sixteenth, at least 1 MiB and at most 256 MiB. Three quarters of it
    /// are for transactions, and each transaction that writes needs 64 KiB, or more if it changes
    /// much. An existing heap keeps its journals.
    pub journal_bytes: Option<u64>,
    /// The protocol of a change, or of a batch. It may differ from one opening to the next:
    /// recovery reads what either has left.
    pub barriers: Barriers,
    /// Where pages are read. It may differ from one opening to the next.
    pub residence: Residence,
    /// The persistence domain on which the heap relies.
    pub domain: Domain,
    /// What acknowledged commits must survive: if the platform cannot guarantee this, the database
    /// is not opened. By default a power cut.
    pub survive: Survive,
    /// The platform's guarantee, stated by the user for platforms where it cannot be detected.
    pub stated: Option<Guarantee>,
    /// The memory node on which the heap should lie.
    pub placement: Placement,
    /// The latencies of a modelled device.
    pub timing: Timing,
}

impl HeapOptions {
    /// The smallest heap, in bytes.
    pub const LEAST_BYTES: u64 = 2 << 20;

    /// Returns options for a heap of `bytes` bytes in `source` that survives power cuts, on a
    /// platform with `domain`.
    ///
    /// ```
    /// # use duramen::pmem::{Domain, Source, Survive};
    /// # use duramen::{Db, HeapOptions, Options, Scheme};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let file = home.path().join("heap");
    /// let heap = HeapOptions::new(Source::File(file), 4 << 20, Domain::VolatileCache);
    /// assert_eq!((heap.survive, heap.journal_bytes), (Survive::PowerCut, None));
    ///
    /// // The data in an ordinary file survives the process, but no power cut.
    /// let heap = HeapOptions { survive: Survive::Process, ..heap };
    /// let scheme = Scheme::InPlace(heap);
    /// let options = Options { scheme, pool_bytes: 1 << 20, ..Options::default() };
    /// let db = Db::open(home.path().join("db"), options)?;
    /// assert_eq!(db.metrics().heap.unwrap().pages, 376); // beside 1 MiB of journals
    /// # db.close()
    /// # }
    /// ```
    pub fn new(source: Source, bytes: u64, domain: Domain) -> Self {
        Self {
            source,
            bytes,
            journal_bytes: None,
            barriers: Barriers::default(),
            residence: Residence::default(),
            domain,
            survive: Survive::default(),
            stated: None,
            placement: Placement::default(),
            timing: Timing::NONE,
        }
    }
}

/// The persistent memory of [`Scheme::PcmLogging`]. It belongs to the database as its files do:
/// pages in it are nowhere else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PcmOptions {
    /// The file or device. With a new database a file that does not exist is created, and one that
    /// exists must contain only zeros.
    pub source: Source,
    /// Size in bytes, at least 1 MiB. A larger size lets the memory of an existing database grow
    /// when it is opened; it never shrinks. The pages that transactions under way have changed must
    /// have space in it.
    pub bytes: u64,
    /// The protocol. It may differ from one opening to the next: recovery reads what either has
    /// left.
    pub barriers: Barriers,
    /// What a transaction stores when it ends. It may differ from one opening to the next.
    pub granularity: Granularity,
    /// The persistence domain on which the database relies.
    pub domain: Domain,
    /// What acknowledged commits must survive: if the platform cannot guarantee this, the database
    /// is not opened. By default a power cut.
    pub survive: Survive,
    /// The platform's guarantee, stated by the user for platforms where it cannot be detected.
    pub stated: Option<Guarantee>,
    /// The memory node on which the memory should lie.
    pub placement: Placement,
    /// The latencies of a modelled device.
    pub timing: Timing,
}

/// What a transaction stores in the memory of [`crate::Scheme::PcmLogging`] when it ends (Gao et
/// al., *PCMLogging*, CIKM 2011, sections 3.2 and 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Granularity {
    /// The pages that it has changed.
    #[default]
    Page,
    /// The records that it has changed; and the pages that are not leaves, or whose records would
    /// take more space. Where transactions change few records of a page, this stores a tenth and
    /// less, and the memory holds the changes of many more pages.
    Tuple,
}

impl PcmOptions {
    /// The smallest memory, in bytes.
    pub const LEAST_BYTES: u64 = 1 << 20;

    /// The largest memory, in bytes.
    pub const MOST_BYTES: u64 = 16 << 40;

    /// Returns options for `bytes` bytes in `source` that survive power cuts, on a platform with
    /// `domain`.
    ///
    /// ```
    /// # use duramen::pmem::{Domain, Source, Survive};
    /// # use duramen::{Db, Granularity, Options, PcmOptions, Scheme};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let file = home.path().join("pcm");
    /// let pcm = PcmOptions::new(Source::File(file), 1 << 20, Domain::VolatileCache);
    /// assert_eq!((pcm.survive, pcm.granularity), (Survive::PowerCut, Granularity::Page));
    ///
    /// // The data in an ordinary file survives the process, but no power cut.
    /// let pcm = PcmOptions { survive: Survive::Process, ..pcm };
    /// let scheme = Scheme::PcmLogging(pcm);
    /// let options = Options { scheme, pool_bytes: 1 << 20, ..Options::default() };
    /// let db = Db::open(home.path().join("db"), options)?;
    /// assert!(db.metrics().pcm.unwrap().slots > 100);
    /// # db.close()
    /// # }
    /// ```
    pub fn new(source: Source, bytes: u64, domain: Domain) -> Self {
        Self {
            source,
            bytes,
            barriers: Barriers::default(),
            granularity: Granularity::default(),
            domain,
            survive: Survive::default(),
            stated: None,
            placement: Placement::default(),
            timing: Timing::NONE,
        }
    }
}

impl Options {
    /// Checks the options for a heap.
    pub(super) fn validate_heap(&self, heap: &HeapOptions) -> Result<()> {
        let wrong = |option, reason: &str| Err(Error::InvalidOption { option, reason: reason.to_owned() });
        if heap.bytes < HeapOptions::LEAST_BYTES {
            return wrong("scheme", "the heap must have at least 2 MiB");
        }
        if heap.journal_bytes.is_some_and(|bytes| bytes < 1 << 20 || bytes > heap.bytes / 2) {
            return wrong("scheme", "the journals have at least 1 MiB and at most half of the heap");
        }
        if matches!(&heap.source, Source::File(path) if path.as_os_str().is_empty()) {
            return wrong("scheme", "the path of the heap is empty; name a file or device");
        }
        if heap.bytes > 1 << 46 {
            return wrong("scheme", "a heap has at most 64 TiB");
        }
        if heap.source == Source::Anonymous {
            return wrong("scheme", "anonymous memory cannot be opened again: name a file or device for the heap");
        }
        let usual = Self::default();
        match &self.scheme {
            Scheme::NvramGroupCommit(heap, batches) => self.validate_batches(heap, batches)?,
            _ if self.commit == CommitMode::Async => {
                let reason = "`async` leaves out the wait for the log, and the scheme `in-place` has none: use `sync`";
                return wrong("commit", reason);
            }
            _ if heap.residence == Residence::Direct && self.pool_bytes != usual.pool_bytes => {
                return wrong("pool_bytes", "the residence `direct` uses no buffer pool: leave the option out");
            }
            _ if heap.residence == Residence::Direct && !heap.timing.read.is_zero() => {
                return wrong(
                    "scheme",
                    "reads cannot be delayed with the residence `direct`: leave `timing.read` zero",
                );
            }
            _ => {}
        }
        self.validate_without_log("copy the closed database with its heap")
    }

    /// Checks the options for a PCM region.
    pub(super) fn validate_pcm(&self, pcm: &PcmOptions) -> Result<()> {
        let wrong = |option, reason: &str| Err(Error::InvalidOption { option, reason: reason.to_owned() });
        if !(PcmOptions::LEAST_BYTES..=PcmOptions::MOST_BYTES).contains(&pcm.bytes) {
            return wrong("scheme", "the PCM must have at least 1 MiB and at most 16 TiB");
        }
        if matches!(&pcm.source, Source::File(path) if path.as_os_str().is_empty()) {
            return wrong("scheme", "the path of the PCM is empty; name a file or device");
        }
        if pcm.source == Source::Anonymous {
            return wrong("scheme", "anonymous memory cannot be opened again: name a file or device for the PCM");
        }
        if self.commit == CommitMode::Async {
            let reason = "`async` leaves out the wait for the log, and the scheme `pcm-logging` has none: use `sync`";
            return wrong("commit", reason);
        }
        self.validate_without_log("copy the closed database with its PCM")
    }

    /// Checks the options for batches.
    fn validate_batches(&self, heap: &HeapOptions, batches: &BatchOptions) -> Result<()> {
        let wrong = |option, reason: &str| Err(Error::InvalidOption { option, reason: reason.to_owned() });
        if self.commit == CommitMode::Sync {
            let reason = "with `sync`, a transaction would hold its locks until its batch ends, and the batch would \
                          wait for those that wait for these locks: use `elr`";
            return wrong("commit", reason);
        }
        if heap.bytes < BatchOptions::LEAST_HEAP_BYTES {
            return wrong("scheme", "a heap with batches must have at least 4 MiB");
        }
        if batches.period < Duration::from_micros(1) || batches.period > Duration::from_secs(10) {
            return wrong("scheme", "the period of batches is at least 1 us and at most 10 s");
        }
        if batches.drain > Duration::from_secs(1) {
            return wrong("scheme", "the end of a batch waits at most 1 s for transactions under way");
        }
        let bounds = 1 << 20..=(4 << 30).min(heap.bytes / 2);
        if batches.log_bytes.is_some_and(|bytes| !bounds.contains(&bytes)) {
            return wrong("scheme", "the batch log has at least 1 MiB, and at most 4 GiB and half of the heap");
        }
        Ok(())
    }
}
