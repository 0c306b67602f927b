//! How a log is set up.

use std::time::Duration;

use duramen_pmem::{Domain, DrainBy, Guarantee, Placement, Source, Survive, Timing};
use duramen_types::{BLOCK_SIZE, LogId};

use crate::error::{Result, WalError};
use crate::format::record::{HEADER_BYTES, MAX_RECORD_BYTES};
use crate::insert::InsertDesign;
use crate::observer::ReadObserver;
use crate::segments::archive::Archive;

/// When the log is flushed: as soon as one of the three limits is reached and the device is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupCommit {
    /// Flush when so many requests to harden wait. With 1, the default, a lone request is flushed
    /// at once; when many commit at the same time, a flush waits for a group of them. If they are
    /// blocked threads, it waits for three quarters of those who commit, for at most twice the time
    /// that a flush takes. Otherwise it waits for half of them, or until a thread that has left
    /// commits in flight waits for one of them, for at most four times. Any other number is taken
    /// literally.
    pub transactions: usize,
    /// Flush when so many bytes, or up to a quarter more, are in the buffer, even if nobody waits.
    pub bytes: usize,
    /// Flush when a request has waited so long.
    pub time: Duration,
}

impl Default for GroupCommit {
    fn default() -> Self {
        Self { transactions: 1, bytes: 1 << 20, time: Duration::from_millis(1) }
    }
}

/// Who computes the checksums of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sealing {
    /// Who flushes, just before the bytes go to the device. An insertion takes a third less by
    /// that, if the core that flushes and those that insert share a cache. If they do not, fetching
    /// the records to the one and the buffer back to the others takes longer than the checksums.
    /// The default.
    #[default]
    AtFlush,
    /// Who inserts. It notices as well if records change in the log buffer while they wait for a
    /// flush, and suits a device to which bytes go without one.
    AtInsertion,
}

/// Where the end of the log is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LogDevice {
    /// In segment files: a commit waits for a write. The default.
    #[default]
    File,
    /// In a ring in persistent memory: a commit needs no system call. When the ring fills up,
    /// segment files are written.
    Nvm(NvmOptions),
}

impl LogDevice {
    /// The name that commands use.
    pub fn name(&self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Nvm(_) => "nvm",
        }
    }
}

/// The persistent memory for the ring of a log. It must not be lost while the log is in use: after
/// a crash it holds hardened records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NvmOptions {
    /// The file or device. A file is made if it is not there; one that is must have a page of 4096
    /// bytes more than [`WalOptions::ring_bytes`], at least, and be a ring already or hold nothing
    /// but zeros in so many bytes.
    pub source: Source,
    /// The same of the second log and further ones, if there are several. Without it, their files
    /// have the name of the first with the number of the log behind it.
    pub further: Vec<Source>,
    /// The persistence domain that is relied on.
    pub domain: Domain,
    /// What hardened records must survive: otherwise the log is not opened. A power cut, unless
    /// less is asked for.
    pub survive: Survive,
    /// What the platform guarantees, if that cannot be found out.
    pub stated: Option<Guarantee>,
    /// On which memory node the ring is to lie.
    pub placement: Placement,
    /// Times of a device that is not there.
    pub timing: Timing,
    /// How stragglers are drained where caches are volatile.
    pub drain: DrainBy,
}

impl NvmOptions {
    /// A ring in `source` that survives power cuts, on a platform with `domain`.
    pub fn new(source: Source, domain: Domain) -> Self {
        Self {
            source,
            further: Vec::new(),
            domain,
            survive: Survive::default(),
            stated: None,
            placement: Placement::default(),
            timing: Timing::NONE,
            drain: DrainBy::default(),
        }
    }

    fn validate(&self) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(1);
        let invalid = |reason: &str| Err(WalError::InvalidOption { option: "device", reason: reason.to_owned() });
        let Timing { write, barrier, read, .. } = self.timing;
        if [write, barrier, read].into_iter().any(|time| time > LONGEST) {
            return invalid("each of the times that memory is made to take must be at most a second");
        }
        let mut sources = self.further.iter().chain([&self.source]);
        if sources.any(|source| matches!(source, Source::File(path) if path.as_os_str().is_empty())) {
            return invalid("the path of a region is empty; name a file or device");
        }
        Ok(())
    }

    /// The options for the ring of one of several logs.
    pub(crate) fn of_log(&self, log: LogId) -> Result<Self> {
        let number = log.get();
        let source = match (number.checked_sub(1), &self.source) {
            (None, source) => source.clone(),
            (Some(index), first) => match (self.further.get(usize::from(index)), first) {
                (Some(source), _) => source.clone(),
                (None, Source::File(path)) => {
                    let mut path = path.clone().into_os_string();
                    path.push(number.to_string());
                    Source::File(path.into())
                }
                (None, Source::Anonymous) => Source::Anonymous,
                (None, Source::Simulated(_)) => {
                    let reason = format!("log {number} needs a region of its own: name it in `further`");
                    return Err(WalError::InvalidOption { option: "device", reason });
                }
            },
        };
        Ok(Self { source, ..self.clone() })
    }
}

/// Most logs of a database.
pub const MAX_LOGS: u16 = 24;

/// How a log is set up. The defaults suit a database on a local disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalOptions {
    /// Of how many streams the log consists (1 to 24), each with a buffer, a daemon and segments of
    /// its own, and with what the other options say. One, the default, has the least to do; several
    /// pay where threads of several sockets insert.
    pub logs: u16,
    /// How threads insert.
    pub insert: InsertDesign,
    /// Where the end of the log is kept.
    pub device: LogDevice,
    /// Who computes the checksums of records. With the device `nvm`, it is who inserts.
    pub sealing: Sealing,
    /// Size of the log buffer in bytes: a power of two, at least 64 KiB. A record takes at most a
    /// quarter of it.
    pub ring_bytes: usize,
    /// Slots of the consolidation array (1 to 64), in the designs that have one.
    pub array_slots: usize,
    /// Consolidation arrays (1 to 64): threads use that of their memory node, so that only one of
    /// each group crosses to another socket. 1, the default, is for machines with one.
    pub arrays: usize,
    /// Slots in the pool that takes turns at the array: at least twice as many as all arrays have,
    /// at most 65,536. Beyond the array a slot is in use from when its group gets its place until
    /// that is released; when all are, insertions wait.
    pub slot_pool: usize,
    /// Size of a segment file in bytes: whole blocks of 4096, at least 64 KiB. A log that exists
    /// keeps the size it was created with.
    pub segment_bytes: u64,
    /// Most bytes of segment files in use at a time, at least two segments. When they are used up,
    /// [`crate::Log::reserve`] reports [`WalError::Full`] until the log is recycled.
    pub max_bytes: u64,
    /// How many segments are kept ready ahead of the end of the log, made in the background or
    /// recycled. With 0 there is no background work on segments: they are made when a reservation
    /// needs them.
    pub spare_segments: usize,
    /// When the log is flushed.
    pub group_commit: GroupCommit,
    /// Where segments are copied to before they are recycled; nowhere by default.
    pub archive: Option<Archive>,
    /// Who is told how much has been read when the log is opened; nobody by default.
    pub read_observer: Option<ReadObserver>,
    /// With several logs that end in rings behind durable caches: commits are no synchronizations,
    /// and one serves all who commit meanwhile. That is for threads that do not wait for each of
    /// their commits. Behind volatile caches it is always so.
    pub shared_synchronizations: bool,
    /// With several logs: the kind of the records that they insert by themselves, which say nothing
    /// but that the logs are synchronized.
    pub synchronization_kind: u8,
    /// The generation that rings have to be of, or the next one, if they hold an end of the log:
    /// one that is older has been put back, and lacks what has been hardened since. Zero, the
    /// default, if there are no generations. See [`crate::Log::stamp_rings`].
    pub generation: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            logs: 1,
            insert: InsertDesign::default(),
            device: LogDevice::default(),
            sealing: Sealing::default(),
            ring_bytes: 16 << 20,
            array_slots: 4,
            arrays: 1,
            slot_pool: 256,
            segment_bytes: 64 << 20,
            max_bytes: 16 << 30,
            spare_segments: 2,
            group_commit: GroupCommit::default(),
            archive: None,
            read_observer: None,
            shared_synchronizations: false,
            synchronization_kind: 0,
            generation: 0,
        }
    }
}

/// Smallest segment and smallest ring, in bytes.
const MIN_BYTES: u64 = 64 << 10;

impl WalOptions {
    /// Checks that the values can work together.
    ///
    /// # Errors
    /// [`WalError::InvalidOption`], naming the first one that cannot.
    pub fn validate(&self) -> Result<()> {
        let invalid = |option, reason: &str| Err(WalError::InvalidOption { option, reason: reason.to_owned() });
        if !(1..=MAX_LOGS).contains(&self.logs) {
            return invalid("logs", "it must be from 1 to 24");
        }
        if self.logs > 1 && self.insert == InsertDesign::Reserved {
            let reason = "`reserved` hands out space in no particular turn, and several logs need one to keep their \
                          records in the order of their GSNs; choose another design or one log";
            return invalid("insert", reason);
        }
        if !self.ring_bytes.is_power_of_two() || (self.ring_bytes as u64) < MIN_BYTES || self.ring_bytes > 1 << 36 {
            return invalid("ring_bytes", "it must be a power of two from 64 KiB to 64 GiB");
        }
        if !(1..=64).contains(&self.array_slots) {
            return invalid("array_slots", "it must be from 1 to 64");
        }
        if !(1..=64).contains(&self.arrays) {
            return invalid("arrays", "it must be from 1 to 64");
        }
        if !(2 * self.array_slots * self.arrays..=65_536).contains(&self.slot_pool) {
            return invalid("slot_pool", "it must be from twice the slots of all arrays to 65536");
        }
        if self.segment_bytes < MIN_BYTES
            || !self.segment_bytes.is_multiple_of(BLOCK_SIZE as u64)
            || self.segment_bytes > 1 << 40
        {
            return invalid("segment_bytes", "it must be a multiple of 4096 from 64 KiB to 1 TiB");
        }
        if self.max_bytes < 2 * self.segment_bytes {
            return invalid("max_bytes", "it must hold at least two segments");
        }
        if self.group_commit.transactions == 0 {
            return invalid("group_commit.transactions", "it must be at least 1");
        }
        if self.group_commit.time > Duration::from_secs(10) {
            return invalid(
                "group_commit.time",
                "it must be at most 10 seconds: it bounds the latency of a lone commit",
            );
        }
        if self.group_commit.bytes == 0 {
            return invalid("group_commit.bytes", "it must be at least 1");
        }
        if let LogDevice::Nvm(nvm) = &self.device {
            nvm.validate()?;
        }
        Ok(())
    }

    /// Longest payload that a record can have with these options, in bytes.
    pub fn max_payload(&self) -> usize {
        (self.ring_bytes / 4).min(MAX_RECORD_BYTES) - HEADER_BYTES
    }
}
