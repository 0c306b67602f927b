//! The log device `nvm`: the log buffer in persistent memory; a commit needs no system call.
//!
//! A record is hardened when it and all records before it lie in the ring, durably. With durable
//! caches, the inserting thread makes its record durable before it releases the record, so the
//! released part of the log *is* the hardened part. With volatile caches that would cost a barrier
//! for each record; the protocol in [`crate::device::nvm::passive`] needs one for each commit. When
//! the ring fills up, large sequential writes bring it to the segments (*de-staging*).
//!
//! ```text
//! page 0, the header:
//!   0 magic       8 bytes  "DURAMRNG"
//!   8 version     u32
//!  12 crc         u32      CRC-32C of the first 64 bytes with this field zero
//!  16 database    16 bytes
//!  32 log         u16, then 6 zero bytes
//!  40 ring        u64      number of the ring, never zero; also in the headers of the segments while the ring is in use
//!  48 ring_bytes  u64
//! 128 de-staged   u64      the log below is in the segments, durably; the end of a record
//! 136 state       u64      0: blank, 1: in use, 2: everything is de-staged
//! 144 generation  u64      which state of the log's owner the ring belongs to; see [`crate::WalOptions::generation`]
//! 152 begin       u64      the log begins here at the earliest; below, the segments may lack records that were recycled
//! page 1 and following: the ring. The byte of an LSN lies at `lsn mod ring_bytes`
//! ```
//!
//! Numbers are little-endian. The words from offset 128 on change independently, each atomically.
//!
//! A log may *stay* in its ring ([`crate::NvmOptions::stays`]). Recycling then moves the de-staged
//! position, so the segments hold nothing of the log, and `begin` says where it begins.
//!
//! # The ring belongs to the log
//! While the ring is in use, it may hold the only copy of hardened records. So the headers of the
//! segments name it, the log does not open without it, and no other log gets it. When the log is
//! closed in order, everything is de-staged and both the log and the ring are free.
//!
//! A region without a header is taken only if it is all zero: it may be another program's data.
//!
//! # Recovery
//! In the ring, the log continues from the de-staged position to the first position that holds no
//! valid record. Opening makes that part durable, because it may not be durable if only the process
//! has ended. It then writes the part to the segments, from the beginning of its first block, which
//! the ring has kept. From then on recovery reads one log, from files. A crash in between changes
//! nothing: opening repeats these steps. Then everything behind the end in the ring is erased,
//! durably, because whole records may lie behind a hole. The de-staged position moves only after
//! that, so it never lies in front of bytes that could pass for a record.
//!
//! A record states how far the log was hardened when the record was filled in (its backlog, see
//! [`crate::format::record`]). A valid record behind the end whose statement lies beyond the end
//! proves damage, and the log refuses to open.

use duramen_pmem::{Domain, DrainBy, Drained, Mode, Region, RegionOptions, Source, can_drain, drain_processors};
use duramen_sync::{Arc, clock};
use duramen_types::{BLOCK_SIZE, Lsn, crc32c, planted};

use crate::buffer::ring::Ring;
use crate::error::{Result, WalError};
use crate::format::header::{Header, MOST_HEADER_BYTES};
use crate::format::identity::Identity;
use crate::format::record::{decode, is_intact};
use crate::options::NvmOptions;

/// Offset of the ring in the region.
const RING: u64 = BLOCK_SIZE as u64;
const MAGIC: [u8; 8] = *b"DURAMRNG";
const VERSION: u32 = 1;
/// Size, in bytes, of the part of the header that is written once.
const FIXED: usize = 64;
const DESTAGED: u64 = 128;
const STATE: u64 = 136;
const GENERATION: u64 = 144;
const BEGIN: u64 = 152;

/// Returns the size of the whole region in bytes.
pub(crate) const fn region_bytes(ring_bytes: usize) -> u64 {
    RING + ring_bytes as u64
}

/// A ring in persistent memory.
#[derive(Debug)]
pub(crate) struct NvmRing {
    pub(crate) region: Arc<Region>,
    pub(crate) ring_bytes: u64,
    /// Whether records are built elsewhere and copied by [`NvmRing::put`], past the caches.
    pub(crate) streams: bool,
    /// Whether the log is to stay in the ring.
    pub(crate) stays: bool,
    drain: DrainBy,
    /// The generation of the log's owner when the ring was opened.
    generation: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Blank,
    InUse,
    Clean,
}

/// The state found in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) number: u64,
    /// The part of the log from the de-staged position to the end, if anything is to be de-staged.
    pub(crate) tail: Option<(Lsn, Lsn)>,
}

impl NvmRing {
    /// Refuses volatile caches if processors cannot be drained: a straggler would block the log.
    pub(crate) fn check_drain(options: &NvmOptions) -> Result<()> {
        let is_simulated = matches!(options.source, Source::Simulated(_));
        if is_simulated || options.domain == Domain::DurableCache || can_drain(options.drain) {
            return Ok(());
        }
        let reason = match options.drain {
            DrainBy::Membarrier => "the system does not let this process use membarrier(2); choose another way",
            DrainBy::Signal => "the program uses or blocks the signal SIGRTMIN+7 itself; choose another way",
        };
        Err(WalError::InvalidOption { option: "drain", reason: reason.to_owned() })
    }

    /// Opens the region. `exists` says that it already belongs to a log.
    pub(crate) fn open(options: &NvmOptions, ring_bytes: usize, generation: u64, exists: bool) -> Result<Self> {
        Self::check_drain(options)?;
        let region = Region::open(
            &options.source,
            &RegionOptions {
                len: region_bytes(ring_bytes),
                mode: if exists { Mode::Open } else { Mode::OpenOrCreate },
                ring_from: Some(RING),
                domain: options.domain,
                survive: options.survive,
                stated: options.stated,
                placement: options.placement,
                populate: true,
                timing: options.timing,
            },
        )?;
        Ok(Self {
            region: Arc::new(region),
            ring_bytes: ring_bytes as u64,
            streams: options.domain == Domain::VolatileCache,
            stays: options.stays,
            drain: options.drain,
            generation,
        })
    }

    /// Returns the ring as the buffer of the log.
    pub(crate) fn buffer(&self) -> Ring {
        Ring::in_region(Arc::clone(&self.region), RING, self.ring_bytes as usize)
    }

    pub(crate) fn refuse(&self, reason: String) -> WalError {
        WalError::WrongRing { location: self.region.location().to_owned(), reason }
    }

    fn at(&self, lsn: Lsn) -> u64 {
        RING + (lsn.get() & (self.ring_bytes - 1))
    }

    // ----- while the log is open -----

    /// Streams a record to its position in the ring. The record is durable after a fence of this
    /// thread, or when all processors have been drained.
    #[inline]
    pub(crate) fn put(&self, lsn: Lsn, record: &[u8]) {
        self.region.stream(self.at(lsn), &[record]);
    }

    /// Makes a record of `len` bytes durable that has been stored at its position in the ring.
    pub(crate) fn stored(&self, lsn: Lsn, len: usize) {
        self.region.wrote_bytes(self.at(lsn), len);
        if !planted!(RingFenceDropped) {
            self.region.persist(self.at(lsn), len);
        }
    }

    fn word(&self, at: u64) -> u64 {
        u64::from_le(self.region.read_word(at))
    }

    /// Changes a word of the header, durably.
    fn set_word(&self, at: u64, value: u64) {
        self.region.store_word(at, value.to_le());
        self.region.persist(at, 8);
    }

    /// Records, durably, that the segments hold the log below `lsn`.
    pub(crate) fn set_destaged(&self, lsn: Lsn) {
        self.set_word(DESTAGED, lsn.get());
    }

    /// Records, durably, that the log begins at `lsn`: the segments need hold nothing below.
    pub(crate) fn forget_below(&self, lsn: Lsn) {
        self.set_word(BEGIN, lsn.get());
        self.set_destaged(lsn);
    }

    /// Returns the position below which the segments may lack records of the log.
    pub(crate) fn begin(&self) -> Lsn {
        Lsn::new(self.word(BEGIN))
    }

    /// Marks the ring as clean: everything has been de-staged, and nothing more will be inserted.
    pub(crate) fn set_clean(&self) {
        self.set_word(STATE, State::Clean as u64);
    }

    /// Assigns the ring to this generation, durably.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.set_word(GENERATION, generation);
    }

    /// Returns whether the ring belongs to the current generation or to the next one. A ring of an
    /// older generation was restored from a copy and lacks the records that were hardened since.
    fn is_of_generation(&self) -> bool {
        let (found, named) = (self.word(GENERATION), self.generation);
        named == 0 || found == named || found == named.saturating_add(1) || planted!(GenerationIgnored)
    }

    // ----- when it is opened -----

    /// Returns what the ring holds of the log of `identity`. The segments of that log name the ring
    /// `expected`, or no ring if that is zero. Changes nothing.
    pub(crate) fn find(&self, identity: &Identity, expected: u64) -> Result<Found> {
        let missing = |what: String| {
            let other = format!("the end of the log is in another ring, number {expected:016x}; {what}");
            Err(self.refuse(other))
        };
        let fresh = Found { number: new_number(identity), tail: None };
        let Some(header) = self.header()? else {
            return if expected == 0 { Ok(fresh) } else { missing("this one is empty".to_owned()) };
        };
        let is_own = header.database == identity.database && header.log == identity.log.get();
        match (header.state, is_own) {
            (State::InUse, false) => {
                let reason = "another log uses the ring, which may hold the only copy of that log's end; name another \
                              file or device, or first open and close the database that the ring belongs to";
                Err(self.refuse(reason.to_owned()))
            }
            (_, false) if expected != 0 => missing("this one belonged to another log".to_owned()),
            (_, false) => Ok(fresh),
            (_, true) if expected != 0 && header.number != expected => {
                missing(format!("this one has number {:016x}", header.number))
            }
            (_, true) if expected != 0 && !self.is_of_generation() => {
                let (found, named) = (self.word(GENERATION), self.generation);
                let older = if found < named { "the ring" } else { "the database" };
                Err(self.refuse(format!(
                    "the ring has generation {found}, but the database has generation {named}: {older} is an older \
                     copy; put the latest one back"
                )))
            }
            (State::InUse, true) if expected != 0 => {
                if header.ring_bytes != self.ring_bytes {
                    let bytes = header.ring_bytes;
                    let reason =
                        format!("the ring in use has {bytes} bytes; open and close the log with that size first");
                    return Err(WalError::InvalidOption { option: "ring_bytes", reason });
                }
                let end = self.end_of_records(identity, header.destaged)?;
                Ok(Found { number: header.number, tail: Some((header.destaged, end)) })
            }
            // The ring was released, or it was taken just before the segments could name it.
            (_, true) => Ok(Found { number: header.number, tail: None }),
        }
    }

    /// Makes the part of the log found in `[from, to)` durable. If only the process has ended, it
    /// may be in a cache, or have been streamed and not fenced.
    pub(crate) fn make_durable(&self, from: Lsn, to: Lsn) {
        // The result does not matter: a process that has ended runs on no processor.
        let _: Drained = drain_processors([&*self.region], self.drain);
        self.region.persist(self.at(from), (to.get() - from.get()) as usize);
    }

    /// Assigns the ring, in the state `found`, to the log of `identity`. The segments hold that log
    /// up to its `end`. `block` is the part of the log's last block before the end.
    pub(crate) fn take(&self, identity: &Identity, found: &Found, end: Lsn, block: &[u8]) {
        let kept = end.get() - block.len() as u64;
        self.claim();
        // The contents from the de-staged position on are erased only after it has moved.
        let held = found.tail.map_or(kept, |(from, _)| from.get() / RING * RING);
        self.erase(end.get(), held + self.ring_bytes);
        if !block.is_empty() {
            self.region.store(self.at(Lsn::new(kept)), &[block]);
            self.region.persist(self.at(Lsn::new(kept)), block.len());
        }
        self.set_generation(self.generation);
        self.set_destaged(end);
        if found.tail.is_none() {
            // An earlier use of the ring, perhaps by another log, has left it.
            self.set_word(BEGIN, 0);
        }
        self.erase((held + self.ring_bytes).max(end.get()), kept + self.ring_bytes);
        let mut fixed = [0; FIXED];
        fixed[..8].copy_from_slice(&MAGIC);
        fixed[8..12].copy_from_slice(&VERSION.to_le_bytes());
        fixed[16..32].copy_from_slice(&identity.database);
        fixed[32..34].copy_from_slice(&identity.log.get().to_le_bytes());
        fixed[40..48].copy_from_slice(&found.number.to_le_bytes());
        fixed[48..56].copy_from_slice(&self.ring_bytes.to_le_bytes());
        let crc = crc32c(&fixed);
        fixed[12..16].copy_from_slice(&crc.to_le_bytes());
        let mut present = [0; FIXED];
        self.region.read(0, &mut present);
        if present != fixed {
            // While the header changes, it is not the header of a ring.
            self.set_word(STATE, State::Blank as u64);
            self.region.store(0, &[&fixed]);
            self.region.persist(0, FIXED);
        }
        self.set_word(STATE, State::InUse as u64);
    }

    /// Marks a blank region as a ring, durably, before anything else makes it not blank.
    fn claim(&self) {
        let mut magic = [0; 8];
        self.region.read(0, &mut magic);
        if magic != MAGIC {
            self.region.store(0, &[&MAGIC]);
            self.region.persist(0, MAGIC.len());
        }
    }

    /// Overwrites `[from, to)` with zeros, durably.
    fn erase(&self, from: u64, to: u64) {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        for at in (from..to).step_by(ZEROS.len()) {
            let len = (to - at).min(ZEROS.len() as u64);
            self.region.stream(self.at(Lsn::new(at)), &[&ZEROS[..len as usize]]);
        }
        self.region.fence();
    }

    fn header(&self) -> Result<Option<RingHeader>> {
        let mut fixed = [0; FIXED];
        self.region.read(0, &mut fixed);
        let has_magic = fixed[..8] == MAGIC;
        let state = match self.word(STATE) {
            // Or the power failed while the ring was being taken.
            0 if has_magic || self.is_blank() => return Ok(None),
            1 if has_magic => State::InUse,
            2 if has_magic => State::Clean,
            _ => {
                let reason = "it is neither blank nor a ring of a log; name another file or device, or fill this one \
                              with zeros if its contents are not needed";
                return Err(self.refuse(reason.to_owned()));
            }
        };
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| fixed[at + byte]));
        let (version, crc) = (u64_at(8) as u32, (u64_at(8) >> 32) as u32);
        if version != VERSION {
            return Err(WalError::WrongVersion { found: version, supported: VERSION });
        }
        let mut unsealed = fixed;
        unsealed[12..16].fill(0);
        let destaged = self.word(DESTAGED);
        if crc32c(&unsealed) != crc || destaged < RING || !destaged.is_multiple_of(8) || destaged >> 62 != 0 {
            return Err(self.refuse("its header is damaged".to_owned()));
        }
        Ok(Some(RingHeader {
            database: std::array::from_fn(|byte| fixed[16 + byte]),
            log: u64_at(32) as u16,
            number: u64_at(40),
            ring_bytes: u64_at(48),
            state,
            destaged: Lsn::new(destaged),
        }))
    }

    /// Returns whether the whole region is zero.
    fn is_blank(&self) -> bool {
        static ZEROS: [u8; RING as usize] = [0; RING as usize];
        // SAFETY: the log is not open yet, so no thread writes to the region.
        let all = unsafe { self.region.bytes(0, region_bytes(self.ring_bytes as usize) as usize) };
        all.chunks(ZEROS.len()).all(|block| *block == ZEROS[..block.len()])
    }

    /// Returns the end of the contiguous records that begin at `from`.
    fn end_of_records(&self, identity: &Identity, from: Lsn) -> Result<Lsn> {
        // The ring holds the part that is not de-staged, and the block in which that part begins.
        let limit = from.get() / RING * RING + self.ring_bytes;
        let mut end = from;
        while let Some(record) = self.record_at(identity, end, limit) {
            end = record.end;
        }
        for at in (end.get() + 8..limit).step_by(8) {
            let durable_before = self.record_at(identity, Lsn::new(at), limit).and_then(|record| record.durable_before);
            if durable_before.is_some_and(|durable| durable > end) {
                let reason = format!("hardened records are missing: the log ends at {end}, but continues at {at}");
                return Err(self.refuse(reason));
            }
        }
        Ok(end)
    }

    /// Returns the record at `lsn`, if there is a valid one that ends before `limit`.
    fn record_at(&self, identity: &Identity, lsn: Lsn, limit: u64) -> Option<crate::format::record::RecordRef<'_>> {
        let left = usize::try_from(limit.checked_sub(lsn.get())?).ok()?;
        // SAFETY: the log is not open yet, so no thread writes to the ring.
        let bytes = unsafe { self.region.bytes(self.at(lsn), left.min(MOST_HEADER_BYTES)) };
        let header = Header::at(bytes).filter(|header| header.is_in_place(identity, lsn))?;
        let length = header.length().filter(|length| *length <= left)?;
        // SAFETY: as above.
        let record = unsafe { self.region.bytes(self.at(lsn), length) };
        if is_intact(record, identity, lsn) { decode(record, identity, lsn) } else { None }
    }
}

/// The header of a ring that is or was in use.
#[derive(Clone, Copy, Debug)]
struct RingHeader {
    database: [u8; 16],
    log: u16,
    number: u64,
    ring_bytes: u64,
    state: State,
    destaged: Lsn,
}

/// Returns a number for a new ring. The number only has to differ from others.
fn new_number(identity: &Identity) -> u64 {
    let seeds = [clock::wall_micros(), clock::Instant::now().nanos(), identity.seed_at(Lsn::ZERO)];
    let mixed = seeds.into_iter().fold(0_u64, |mix, seed| {
        let mix = (mix ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mix ^ mix >> 29
    });
    mixed | 1
}
