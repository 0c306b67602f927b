//! Options of a log.

use std::time::Duration;

use duramen_pmem::{Domain, DrainBy, Guarantee, Placement, Source, Survive, Timing};
use duramen_types::{BLOCK_SIZE, LogId};

use crate::error::{Result, WalError};
use crate::format::header::{MAX_RECORD_BYTES, MOST_HEADER_BYTES};
use crate::insert::InsertDesign;
use crate::observer::ReadObserver;
use crate::segments::archive::Archive;

/// When the log is flushed: as soon as one of the three limits is reached and the device is idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupCommit {
    /// Flushes when this number of requests to harden wait. With 1, the default, the log flushes a
    /// lone request at once; when many threads commit at the same time, a flush waits for a group
    /// of them. If the requests come from blocked threads, it waits for three quarters of the
    /// committing threads, for at most twice the duration of a flush. Otherwise it waits for half
    /// of them, or until a thread with commits in flight waits for one of these commits, for at
    /// most four times the duration of a flush. Any other number is taken literally.
    pub transactions: usize,
    /// Flushes when this number of bytes, or up to a quarter more, is in the buffer, even if no
    /// thread waits.
    pub bytes: usize,
    /// Flushes when a request has waited this long.
    pub time: Duration,
}

impl Default for GroupCommit {
    fn default() -> Self {
        Self { transactions: 1, bytes: 1 << 20, time: Duration::from_millis(1) }
    }
}

/// Which thread computes the checksums of records, and states in them how far the log was durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sealing {
    /// The thread that flushes, just before the bytes go to the device. This shortens an insertion
    /// by a third if the flushing core shares a cache with those that insert. If not, moving the
    /// records to its cache and the buffer back takes longer than the checksums. The default.
    #[default]
    AtFlush,
    /// The thread that inserts. This also detects records that change in the log buffer while they
    /// wait for a flush, and suits a device that receives bytes without a flush.
    AtInsertion,
}

/// Where the end of the log is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LogDevice {
    /// In segment files: a commit waits for a write. The default.
    #[default]
    File,
    /// In a ring in persistent memory: a commit needs no system call. A full ring is de-staged to
    /// segment files.
    Nvm(NvmOptions),
}

/// The persistent memory for the ring of a log. It must not be lost while the log is in use: after
/// a crash it holds hardened records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NvmOptions {
    /// The file or device. A file that does not exist is created. One that exists must be at least
    /// one page of 4096 bytes longer than [`WalOptions::ring_bytes`], and either be a ring already
    /// or contain only zeros in that many bytes.
    pub source: Source,
    /// The sources of the second and further logs. By default their files have the name of the
    /// first followed by the number of the log.
    pub further: Vec<Source>,
    /// The persistence domain on which the log relies.
    pub domain: Domain,
    /// What hardened records must survive, or else the log is not opened. By default a power cut.
    pub survive: Survive,
    /// The platform's guarantee, stated by the user for platforms where it cannot be detected.
    pub stated: Option<Guarantee>,
    /// The memory node on which the ring should lie.
    pub placement: Placement,
    /// The latencies of a simulated device.
    pub timing: Timing,
    /// How the log drains stragglers where caches are volatile.
    pub drain: DrainBy,
    /// Whether the log stays in the ring (default no): the segments are not written when the ring
    /// fills up, and recycling alone makes room. [`WalOptions::max_bytes`] is then at most three
    /// quarters of the ring, so a log that is full reports [`WalError::Full`]. There is one log,
    /// without an archive, and nothing holds it back ([`crate::Log::hold`]). What is inserted
    /// beyond the limit, by recovery for example, is de-staged if the ring has no room for it.
    pub stays: bool,
}

impl NvmOptions {
    /// Returns options for a ring in `source`, in this `domain`, that survives power cuts.
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
            stays: false,
        }
    }

    /// Returns the largest [`WalOptions::max_bytes`] of a log that stays in a ring of this size.
    pub const fn most_bytes(ring_bytes: usize) -> u64 {
        ring_bytes as u64 / 4 * 3
    }

    fn validate(&self) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(1);
        let Timing { write, barrier, read, .. } = self.timing;
        if [write, barrier, read].into_iter().any(|time| time > LONGEST) {
            return Err(WalError::invalid("device", "each time of the timing model must be at most one second"));
        }
        let mut sources = self.further.iter().chain([&self.source]);
        if sources.any(|source| matches!(source, Source::File(path) if path.as_os_str().is_empty())) {
            return Err(WalError::invalid("device", "the path of a region is empty; name a file or device"));
        }
        Ok(())
    }

    /// Returns the options for the ring of one of several logs.
    pub(crate) fn of_log(&self, log: LogId) -> Result<Self> {
        let number = usize::from(log.get());
        let stated = std::iter::once(&self.source).chain(&self.further).nth(number);
        let source = match (stated, &self.source) {
            (Some(source), _) => source.clone(),
            (None, Source::File(path)) => {
                let mut path = path.clone().into_os_string();
                path.push(number.to_string());
                Source::File(path.into())
            }
            (None, Source::Anonymous) => Source::Anonymous,
            (None, Source::Simulated(_)) => {
                let reason = format!("log {number} needs its own region; name it in `further`");
                return Err(WalError::invalid("device", reason));
            }
        };
        Ok(Self { source, ..self.clone() })
    }
}

/// The largest number of logs of a database.
pub const MAX_LOGS: u16 = 24;

/// Options of a log. The defaults suit a database on a local disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalOptions {
    /// Number of streams of which the log consists (1 to 24). Each has its own buffer, daemon and
    /// segments; the other options apply to each. One stream, the default, costs least; several pay
    /// off where threads of several sockets insert.
    pub logs: u16,
    /// How threads insert.
    pub insert: InsertDesign,
    /// Where the end of the log is kept.
    pub device: LogDevice,
    /// Which thread computes the checksums of records: with the device `nvm`, always the inserter.
    pub sealing: Sealing,
    /// Bytes of the log buffer: a power of two, at least 64 KiB. A record takes at most a quarter.
    pub ring_bytes: usize,
    /// Slots of the consolidation array (1 to 64), in the designs that have one.
    pub array_slots: usize,
    /// Consolidation arrays (1 to 64): a thread uses that of its memory node, so that only one
    /// thread of each group crosses to another socket. The default, 1, suits one memory node.
    pub arrays: usize,
    /// Slots in the pool from which the array is refilled: at least twice as many as all arrays
    /// have, at most 65,536. A slot outside the array is in use from when its group gets its log
    /// address until that space is released. When all slots are in use, insertions wait.
    pub slot_pool: usize,
    /// Size of a segment file in bytes: a multiple of 4096, at least 64 KiB. An existing log keeps
    /// the size with which it was created.
    pub segment_bytes: u64,
    /// The largest total of segment files in use at a time, in bytes: at least two segments. When
    /// it is used up, [`crate::Log::reserve`] reports [`WalError::Full`] until the log is recycled.
    pub max_bytes: u64,
    /// Number of recycled segments that are kept to be used again; more are removed. A log of which
    /// no more are recycled at a time makes no new ones, which would be filled with zeros first.
    /// With 0 there is no background work on segments: a reservation that needs one makes it.
    pub spare_segments: usize,
    /// When the log is flushed.
    pub group_commit: GroupCommit,
    /// Where segments are copied before they are recycled. By default they are not copied.
    pub archive: Option<Archive>,
    /// A function that learns how much has been read when the log is opened. None by default.
    pub read_observer: Option<ReadObserver>,
    /// The kind of the sync records that several logs insert themselves. Such a record states only
    /// that the logs are synchronized.
    pub sync_record_kind: u8,
    /// The generation of the rings: a ring that holds an end of the log must be of this or the next
    /// one. An older ring has been put back and lacks what was hardened since. Zero, the default,
    /// if there are no generations. See [`crate::Log::stamp_rings`].
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
            sync_record_kind: 0,
            generation: 0,
        }
    }
}

/// The smallest segment and the smallest ring, in bytes.
const MIN_BYTES: u64 = 64 << 10;

impl WalOptions {
    /// Checks that the values can work together.
    ///
    /// # Errors
    /// [`WalError::InvalidOption`], naming the first value that cannot.
    pub fn validate(&self) -> Result<()> {
        let check = |is_valid, option, reason| match is_valid {
            true => Ok(()),
            false => Err(WalError::invalid(option, reason)),
        };
        check((1..=MAX_LOGS).contains(&self.logs), "logs", "it must be from 1 to 24")?;
        let is_in_order = self.logs == 1 || self.insert != InsertDesign::Reserved;
        let reason = "`reserved` does not assign log space in order, but several logs must keep their records in the \
                      order of their GSNs; choose another design, or use one log";
        check(is_in_order, "insert", reason)?;
        let is_ring = self.ring_bytes.is_power_of_two() && (MIN_BYTES..=1 << 36).contains(&(self.ring_bytes as u64));
        check(is_ring, "ring_bytes", "it must be a power of two from 64 KiB to 64 GiB")?;
        check((1..=64).contains(&self.array_slots), "array_slots", "it must be from 1 to 64")?;
        check((1..=64).contains(&self.arrays), "arrays", "it must be from 1 to 64")?;
        let has_slots = (2 * self.array_slots * self.arrays..=65_536).contains(&self.slot_pool);
        check(has_slots, "slot_pool", "it must be from twice the slots of all arrays to 65536")?;
        let is_segment =
            self.segment_bytes.is_multiple_of(BLOCK_SIZE as u64) && (MIN_BYTES..=1 << 40).contains(&self.segment_bytes);
        check(is_segment, "segment_bytes", "it must be a multiple of 4096 from 64 KiB to 1 TiB")?;
        check(self.max_bytes >= 2 * self.segment_bytes, "max_bytes", "it must hold at least two segments")?;
        let GroupCommit { transactions, bytes, time } = self.group_commit;
        check(transactions > 0, "group_commit.transactions", "it must be at least 1")?;
        let reason = "it must be at most 10 seconds: it bounds the latency of a lone commit";
        check(time <= Duration::from_secs(10), "group_commit.time", reason)?;
        check(bytes > 0, "group_commit.bytes", "it must be at least 1")?;
        if let LogDevice::Nvm(nvm) = &self.device {
            nvm.validate()?;
            let is_alone = !nvm.stays || self.logs == 1 && self.archive.is_none();
            check(is_alone, "device", "a log that stays in its ring is the only one, and has no archive")?;
            let fits = !nvm.stays || self.max_bytes <= NvmOptions::most_bytes(self.ring_bytes);
            check(fits, "max_bytes", "a log that stays in its ring has at most three quarters of the ring")?;
        }
        Ok(())
    }

    /// Returns the longest payload that a record can have with these options, in bytes.
    pub fn max_payload(&self) -> usize {
        (self.ring_bytes / 4).min(MAX_RECORD_BYTES) - MOST_HEADER_BYTES
    }
}
