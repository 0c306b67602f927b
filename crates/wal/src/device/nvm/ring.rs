//! The log device `nvm`: the log buffer in persistent memory, so that a commit needs no system
//! call.
//!
//! A record is hardened when it and all before it lie in the ring, durably. With durable caches
//! whoever inserts makes what it has filled in durable before it releases it, so the released part
//! of the log *is* the hardened part. With volatile caches that would be a barrier for each record;
//! [`crate::device::nvm::passive`] has the protocol that needs one for each commit. Segments are
//! written when the ring fills up, by big sequential writes (*de-staging*), and their space is then
//! used again.
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
//! page 1 and following: the ring. The byte of an LSN lies at `lsn mod ring_bytes`
//! ```
//!
//! Numbers are little-endian. The three words from 128 on change by themselves, each in one piece.
//!
//! # The ring belongs to the log
//! While it is in use, it may hold the only copy of hardened records. So the headers of the
//! segments name it, and the log is not opened without it; and a ring in use is not given to
//! another log. When the log is closed in order, everything is de-staged and both are free.
//!
//! A region that has no header is only taken if all of it is zero: anything else may be somebody's.
//!
//! # Recovery
//! The log goes on in the ring from the de-staged position, up to the first position that holds no
//! valid record. That part is made durable, since it may not be if only the process has ended, and
//! written to the segments, from the beginning of its first block, which the ring has kept; from
//! then on recovery reads one log, from files. A crash meanwhile changes nothing: it is done again.
//! Then everything behind the end is erased in the ring, since whole records may lie behind a hole,
//! durably, before the de-staged position moves; so it is never in front of what could pass for a
//! record.
//!
//! A valid record behind the end that says that the log was hardened beyond the end when it was
//! filled in (its backlog, see [`crate::format::record`]) proves damage, and the log refuses to
//! open.

use duramen_pmem::{Domain, DrainBy, Drained, Mode, Region, RegionOptions, drain_processors};
use duramen_sync::{Arc, clock};
use duramen_types::{BLOCK_SIZE, Lsn, crc32c, planted};

use crate::buffer::ring::Ring;
use crate::error::{Result, WalError};
use crate::format::record::{HEADER_BYTES, Header, Identity, decode, is_intact};
use crate::options::NvmOptions;

/// Where the ring begins in the region.
const RING: u64 = BLOCK_SIZE as u64;
const MAGIC: [u8; 8] = *b"DURAMRNG";
const VERSION: u32 = 1;
/// Bytes of the part of the header that is written once.
const FIXED: usize = 64;
const DESTAGED: u64 = 128;
const STATE: u64 = 136;
const GENERATION: u64 = 144;

/// Bytes that the whole region has.
pub(crate) const fn region_bytes(ring_bytes: usize) -> u64 {
    RING + ring_bytes as u64
}

/// A ring in persistent memory.
#[derive(Debug)]
pub(crate) struct NvmRing {
    region: Arc<Region>,
    ring_bytes: u64,
    streams: bool,
    drain: DrainBy,
    /// That of the log's owner when the ring was opened.
    generation: u64,
}

/// What the ring is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Blank,
    InUse,
    Clean,
}

/// What is found in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// The ring's number.
    pub(crate) number: u64,
    /// The end of the log that the ring holds, from its de-staged position, if anything has to be
    /// de-staged.
    pub(crate) tail: Option<(Lsn, Lsn)>,
}

impl NvmRing {
    /// Opens the region; it `exists` if it belongs to a log already.
    pub(crate) fn open(options: &NvmOptions, ring_bytes: usize, generation: u64, exists: bool) -> Result<Self> {
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
                timing: options.timing,
            },
        )?;
        Ok(Self {
            region: Arc::new(region),
            ring_bytes: ring_bytes as u64,
            streams: options.domain == Domain::VolatileCache,
            drain: options.drain,
            generation,
        })
    }

    /// The ring as the log's buffer.
    pub(crate) fn buffer(&self) -> Ring {
        Ring::in_region(Arc::clone(&self.region), RING, self.ring_bytes as usize)
    }

    /// Bytes of the ring.
    pub(crate) fn bytes(&self) -> u64 {
        self.ring_bytes
    }

    /// A warning, if what is in the ring does not survive a power cut.
    pub(crate) fn shortfall(&self) -> Option<String> {
        self.region.shortfall()
    }

    /// The error that the ring is not to be used, for this reason.
    pub(crate) fn refuse(&self, reason: String) -> WalError {
        WalError::WrongRing { location: self.region.location().to_owned(), reason }
    }

    fn at(&self, lsn: Lsn) -> u64 {
        RING + (lsn.get() & (self.ring_bytes - 1))
    }

    // ----- while the log is open -----

    /// Whether records are to be made elsewhere and brought by [`NvmRing::put`], past the caches.
    #[inline]
    pub(crate) fn streams(&self) -> bool {
        self.streams
    }

    /// Streams a record to its place. It is durable after a fence of this thread, or when all
    /// processors have been drained.
    #[inline]
    pub(crate) fn put(&self, lsn: Lsn, record: &[u8]) {
        self.region.stream(self.at(lsn), &[record]);
    }

    /// The memory that it lies in.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// A record of `len` bytes has been stored in its place: makes it durable.
    pub(crate) fn stored(&self, lsn: Lsn, len: usize) {
        self.region.wrote_bytes(self.at(lsn), len);
        if !planted!(RingFenceDropped) {
            self.region.persist(self.at(lsn), len);
        }
    }

    /// The log below `lsn` is in the segments.
    pub(crate) fn set_destaged(&self, lsn: Lsn) {
        self.region.store_word(DESTAGED, lsn.get().to_le());
        self.region.persist(DESTAGED, 8);
    }

    /// Everything has been de-staged, and nothing will be inserted any more.
    pub(crate) fn set_clean(&self) {
        self.set_state(State::Clean);
    }

    /// The ring belongs to this generation from now on.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.region.store_word(GENERATION, generation.to_le());
        self.region.persist(GENERATION, 8);
    }

    /// Whether the ring is of the generation that counts, or of the next. One that is not was put
    /// back: what was hardened since is not in it.
    fn is_of_generation(&self) -> bool {
        let (found, named) = (self.found_generation(), self.generation);
        named == 0 || found == named || found == named.saturating_add(1) || planted!(GenerationIgnored)
    }

    fn found_generation(&self) -> u64 {
        u64::from_le(self.region.read_word(GENERATION))
    }

    fn set_state(&self, state: State) {
        self.region.store_word(STATE, (state as u64).to_le());
        self.region.persist(STATE, 8);
    }

    // ----- when it is opened -----

    /// What the ring holds of the log of `identity`, whose segments name the ring `expected`, or
    /// none if that is zero. Changes nothing.
    pub(crate) fn find(&self, identity: &Identity, expected: u64) -> Result<Found> {
        let missing = |what: String| {
            let other = format!("the end of the log is in another ring, with the number {expected:016x}; {what}");
            Err(self.refuse(other))
        };
        let fresh = Found { number: new_number(identity), tail: None };
        let Some(header) = self.header()? else {
            return if expected == 0 { Ok(fresh) } else { missing("this one is empty".to_owned()) };
        };
        let is_own = header.database == identity.database && header.log == identity.log.get();
        match (header.state, is_own) {
            (State::InUse, false) => {
                let reason = "another log uses the ring, and it may be the only copy of that log's end; name another \
                              file or device, or open and close the database that it belongs to";
                Err(self.refuse(reason.to_owned()))
            }
            (_, false) if expected != 0 => missing("this one belonged to another log".to_owned()),
            (_, false) => Ok(fresh),
            (_, true) if expected != 0 && header.number != expected => {
                missing(format!("this one has the number {:016x}", header.number))
            }
            (_, true) if expected != 0 && !self.is_of_generation() => {
                let (found, named) = (self.found_generation(), self.generation);
                let older = if found < named { "the ring" } else { "the database" };
                Err(self.refuse(format!(
                    "the ring is of generation {found}, and the database of {named}: {older} is an older copy of what was \
                     there; put that back"
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
            // Given up, or taken just before the segments could name it.
            (_, true) => Ok(Found { number: header.number, tail: None }),
        }
    }

    /// Makes durable what has been found of the log in `[from, to)`. It can be seen, but if the
    /// process has ended and the power has not, it may be in a cache, or have been streamed and not
    /// fenced.
    pub(crate) fn make_durable(&self, from: Lsn, to: Lsn) {
        // Whether processors can be drained makes no difference: who has ended runs on none of
        // them.
        let _: Drained = drain_processors([&*self.region], self.drain);
        self.region.persist(self.at(from), (to.get() - from.get()) as usize);
    }

    /// Makes the ring that of the log of `identity`, which ends at `end` and is in the segments up
    /// to there. `block` is the part of the log's last block before the end. `found` is what was in
    /// the ring.
    pub(crate) fn take(&self, identity: &Identity, found: &Found, end: Lsn, block: &[u8]) {
        let kept = end.get() - block.len() as u64;
        self.claim();
        // What the ring holds from its de-staged position on is erased only when that position has
        // moved.
        let held = found.tail.map_or(kept, |(from, _)| from.get() / RING * RING);
        self.erase(end.get(), held + self.ring_bytes);
        if !block.is_empty() {
            self.region.store(self.at(Lsn::new(kept)), &[block]);
            self.region.persist(self.at(Lsn::new(kept)), block.len());
        }
        self.set_generation(self.generation);
        self.set_destaged(end);
        self.erase((held + self.ring_bytes).max(end.get()), kept + self.ring_bytes);
        let number = found.number;
        let mut fixed = [0; FIXED];
        fixed[..8].copy_from_slice(&MAGIC);
        fixed[8..12].copy_from_slice(&VERSION.to_le_bytes());
        fixed[16..32].copy_from_slice(&identity.database);
        fixed[32..34].copy_from_slice(&identity.log.get().to_le_bytes());
        fixed[40..48].copy_from_slice(&number.to_le_bytes());
        fixed[48..56].copy_from_slice(&self.ring_bytes.to_le_bytes());
        let crc = crc32c(&fixed);
        fixed[12..16].copy_from_slice(&crc.to_le_bytes());
        let mut found = [0; FIXED];
        self.region.read(0, &mut found);
        if found != fixed {
            // The header is no ring's while it changes.
            self.set_state(State::Blank);
            self.region.store(0, &[&fixed]);
            self.region.persist(0, FIXED);
        }
        self.set_state(State::InUse);
    }

    /// GsnIndex a blank region as a ring, durably, before anything else is put into it: from then
    /// on it is not blank.
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
        let mut at = from;
        while at < to {
            let len = (to - at).min(ZEROS.len() as u64);
            self.region.stream(self.at(Lsn::new(at)), &[&ZEROS[..len as usize]]);
            at += len;
        }
        self.region.fence();
    }

    fn header(&self) -> Result<Option<RingHeader>> {
        let mut fixed = [0; FIXED];
        self.region.read(0, &mut fixed);
        let state = match u64::from_le(self.region.read_word(STATE)) {
            0 => State::Blank,
            1 => State::InUse,
            2 => State::Clean,
            _ => return Err(self.refuse(not_a_ring())),
        };
        if state == State::Blank && (fixed[..8] == MAGIC || self.is_blank()) {
            // Or the ring was being taken when the power went off.
            return Ok(None);
        }
        if state == State::Blank || fixed[..8] != MAGIC {
            return Err(self.refuse(not_a_ring()));
        }
        let u64_at = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&fixed[at..at + 8]);
            u64::from_le_bytes(field)
        };
        let (version, crc) = (u64_at(8) as u32, (u64_at(8) >> 32) as u32);
        if version != VERSION {
            return Err(WalError::WrongVersion { found: version, supported: VERSION });
        }
        let mut unsealed = fixed;
        unsealed[12..16].fill(0);
        let destaged = u64::from_le(self.region.read_word(DESTAGED));
        if crc32c(&unsealed) != crc || destaged < RING || !destaged.is_multiple_of(8) || destaged >> 62 != 0 {
            return Err(self.refuse("its header is damaged".to_owned()));
        }
        let mut database = [0; 16];
        database.copy_from_slice(&fixed[16..32]);
        let (number, ring_bytes) = (u64_at(40), u64_at(48));
        Ok(Some(RingHeader {
            database,
            log: u64_at(32) as u16,
            number,
            ring_bytes,
            state,
            destaged: Lsn::new(destaged),
        }))
    }

    /// Whether all of it is zero.
    fn is_blank(&self) -> bool {
        static ZEROS: [u8; RING as usize] = [0; RING as usize];
        // SAFETY: the log is not open yet, so nobody writes to the region.
        let all = unsafe { self.region.bytes(0, region_bytes(self.ring_bytes as usize) as usize) };
        all.chunks(ZEROS.len()).all(|block| *block == ZEROS[..block.len()])
    }

    /// Where the records end that follow each other from `from`.
    fn end_of_records(&self, identity: &Identity, from: Lsn) -> Result<Lsn> {
        // The ring holds what is not de-staged, and the block in which that begins.
        let limit = from.get() / RING * RING + self.ring_bytes;
        let mut end = from;
        while let Some(record) = self.record_at(identity, end, limit) {
            end = record.end;
        }
        let mut at = end.get() + 8;
        while at < limit {
            let durable_before = self.record_at(identity, Lsn::new(at), limit).and_then(|record| record.durable_before);
            if durable_before.is_some_and(|durable| durable > end) {
                let reason = format!("hardened records are missing: the log ends at {end}, but goes on at {at}");
                return Err(self.refuse(reason));
            }
            at += 8;
        }
        Ok(end)
    }

    /// The record at `lsn`, if a valid one that ends before `limit` is there.
    fn record_at(&self, identity: &Identity, lsn: Lsn, limit: u64) -> Option<crate::format::record::RecordRef<'_>> {
        let left = usize::try_from(limit.checked_sub(lsn.get())?).ok()?;
        // SAFETY: the log is not open yet, so nobody writes to the ring.
        let bytes = unsafe { self.region.bytes(self.at(lsn), left.min(HEADER_BYTES)) };
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

fn not_a_ring() -> String {
    "it is neither blank nor a ring of a log; name another file or device, or fill this one with zeros if nobody needs \
     what it holds"
        .to_owned()
}

/// A number for a new ring. It need only be different.
fn new_number(identity: &Identity) -> u64 {
    let seeds = [clock::wall_micros(), clock::Instant::now().nanos(), identity.seed_at(Lsn::ZERO)];
    let mixed = seeds.into_iter().fold(0_u64, |mix, seed| {
        let mix = (mix ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mix ^ mix >> 29
    });
    mixed | 1
}
