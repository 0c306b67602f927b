//! Regions: opening, writing and reading them.

use std::ops::Range;
use std::ptr::NonNull;

use duramen_sync::{cost, prefetch, word};

use crate::crash::{Recorder, SimMemory};
use crate::domain::Domain;
use crate::error::{PmemError, Result};
use crate::guarantee::{Guarantee, Survive};
use crate::instructions::{self, Flush, LINE, for_each_line};
use crate::mapping::{Mapping, anonymous_finding};
use crate::numa::{self, Placed};
use crate::options::{RegionOptions, Source};
use crate::timing::Model;

/// Reads of so many bytes request all lines before they copy the first.
const PREFETCHED: usize = 256;

/// Mapped persistent memory. Threads share it by reference. Dropping it unmaps it and writes
/// nothing.
///
/// Offsets count bytes from the region's beginning. A method panics if a range is not within the
/// region, because that is a broken invariant of the caller.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    recorder: Option<Recorder>,
    model: Option<Model>,
    flush: Flush,
    domain: Domain,
    guarantee: Guarantee,
    reason: String,
    placed: Placed,
    location: String,
}

impl Region {
    /// Opens or creates a region.
    ///
    /// # Errors
    /// [`PmemError::NotDurable`] when the data would not survive the failures that
    /// [`RegionOptions::survive`] requires; [`PmemError::Missing`], [`PmemError::AlreadyExists`],
    /// [`PmemError::TooSmall`], [`PmemError::Busy`], [`PmemError::InvalidOption`],
    /// [`PmemError::System`].
    pub fn open(source: &Source, options: &RegionOptions) -> Result<Self> {
        let (len, ring_from) = options.check()?;
        let (mapping, finding, recorder, location) = match source {
            Source::File(path) => {
                let (mapping, finding) = Mapping::file(path, options.mode, options.populate, (len, ring_from))?;
                (mapping, finding, None, path.display().to_string())
            }
            Source::Anonymous => {
                let mapping = Mapping::anonymous(len, ring_from)?;
                (mapping, anonymous_finding(), None, "anonymous memory".to_owned())
            }
            Source::Simulated(memory) => {
                let recorder = memory.attach(options.len)?;
                let mapping = Mapping::anonymous(len, ring_from)?;
                recorder.load(len, |at, value| {
                    // SAFETY: the offset is that of a word of the memory, which no other code has
                    // yet.
                    unsafe { word::store(mapping.at(at).cast(), value) };
                });
                (mapping, memory.finding(), Some(recorder), SimMemory::LOCATION.to_owned())
            }
        };
        let guarantee = options.stated.unwrap_or(finding.guarantee);
        let reason = if options.stated.is_some() { "the option `stated` says so".to_owned() } else { finding.reason };
        if guarantee.survives(options.domain) < options.survive {
            let reason = match (guarantee, options.domain) {
                (Guarantee::VolatileCache, Domain::DurableCache) => {
                    "lines that are never flushed are lost with the caches; use the domain `volatile-cache`".to_owned()
                }
                _ => reason,
            };
            return Err(PmemError::NotDurable { location, wanted: options.survive, guarantee, reason });
        }
        let placed = numa::place(&mapping, options.placement);
        let (model, flush) = (Model::new(&options.timing), Flush::find());
        Ok(Self { mapping, recorder, model, flush, domain: options.domain, guarantee, reason, placed, location })
    }

    // ----- properties -----

    /// Returns the region's size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Returns the domain for which [`Region::persist`] makes data durable.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Returns the platform's guarantee, detected or stated.
    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// Returns a warning if the region's data does not survive a power cut.
    pub fn shortfall(&self) -> Option<String> {
        let survived = self.guarantee.survives(self.domain);
        (survived < Survive::PowerCut)
            .then(|| format!("data in `{}` survives {survived}, but not a power cut: {}", self.location, self.reason))
    }

    /// Returns the outcome of the requested placement.
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// Returns the region's location: a path, or the kind of memory.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Returns the name of the instruction that flushes lines on this processor.
    pub fn flush_instruction(&self) -> &'static str {
        self.flush.name()
    }

    // ----- writing -----

    /// Stores `parts`, one after the other, from offset `at` on, through the caches. Each whole
    /// aligned word of 8 bytes is stored in one piece, and so is each partial word at the ends.
    #[inline]
    pub fn store(&self, at: u64, parts: &[&[u8]]) {
        let bytes = total(parts);
        let range = self.range(at, bytes);
        cost::write(self.mapping.at(range.start), bytes);
        match &self.recorder {
            None => store_words(self.mapping.at(range.start), parts),
            Some(recorder) => recorder.store(false, |record| {
                store_words(self.mapping.at(range.start), parts);
                self.for_each_word(&range, record);
            }),
        }
        self.wrote(bytes);
    }

    /// Stores `parts`, one after the other, from offset `at` on, past the caches. For data that is
    /// not read again soon this is cheaper than [`Region::store`] with a flush. Other threads may
    /// see the parts out of order until the caller has called [`Region::fence`].
    ///
    /// # Panics
    /// When `at` or the number of bytes is not a multiple of 8.
    #[inline]
    pub fn stream(&self, at: u64, parts: &[&[u8]]) {
        let bytes = total(parts);
        assert!(at.is_multiple_of(8) && bytes.is_multiple_of(8), "whole words are streamed");
        let range = self.range(at, bytes);
        cost::stream(self.mapping.at(range.start), bytes);
        match &self.recorder {
            None => stream_words(self.mapping.at(range.start), parts, self.flush),
            Some(recorder) => recorder.store(true, |record| {
                store_words(self.mapping.at(range.start), parts);
                self.for_each_word(&range, record);
            }),
        }
        self.wrote(bytes);
    }

    /// Stores one word, in the processor's byte order.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8.
    #[inline]
    pub fn store_word(&self, at: u64, value: u64) {
        assert!(at.is_multiple_of(8), "words are aligned");
        self.store(at, &[&value.to_ne_bytes()]);
    }

    /// Sends the lines that the `len` bytes from `at` touch to the memory, no matter which thread
    /// stored to them. They are durable after the caller's next [`Region::fence`]; later stores are
    /// not included.
    #[inline]
    pub fn flush(&self, at: u64, len: usize) {
        let range = self.range(at, len);
        let data = self.mapping.at(range.start);
        cost::flush(data, len);
        if let Some(recorder) = &self.recorder {
            recorder.flush(|record| self.for_each_line_word(&range, record));
        }
        // SAFETY: the range is mapped, so its lines are.
        for_each_line(data, len, |line| unsafe { self.flush.line(line) });
    }

    /// Waits until everything that this thread has streamed or flushed is durable. Where caches are
    /// durable, this includes everything that it has stored. None of its later stores becomes
    /// visible or durable before that.
    #[inline]
    pub fn fence(&self) {
        instructions::fence();
        if cfg!(duramen_machine) {
            duramen_sync::atomic::fence(duramen_sync::atomic::Ordering::SeqCst);
        }
        if let Some(recorder) = &self.recorder {
            recorder.fence();
        }
        if let Some(model) = &self.model {
            model.barrier();
        }
    }

    /// Makes durable, in the region's domain, what this thread has stored in the `len` bytes from
    /// `at`: flushes if caches are volatile, and fences.
    #[inline]
    pub fn persist(&self, at: u64, len: usize) {
        if self.domain == Domain::VolatileCache {
            self.flush(at, len);
        }
        self.fence();
    }

    // ----- reading -----

    /// Copies the bytes from offset `at` on to `to`.
    pub fn read(&self, at: u64, to: &mut [u8]) {
        let range = self.range(at, to.len());
        let data = self.mapping.at(range.start);
        cost::read(data, to.len());
        if let Some(model) = &self.model {
            model.read();
        }
        if to.len() >= PREFETCHED {
            for_each_line(data, to.len(), prefetch);
        }
        let mut to = to;
        let mut start = range.start;
        if start.is_multiple_of(8) {
            // SAFETY: the bytes from `start` on are within the range, aligned, and written to as
            // words; `to` is the caller's.
            let copied = unsafe { instructions::copy_lines(to.as_mut_ptr(), self.mapping.at(start), to.len()) };
            (to, start) = (&mut to[copied..], start + copied);
            let (words, last) = to.as_chunks_mut::<8>();
            for bytes in words {
                // SAFETY: an aligned word within the range.
                *bytes = unsafe { word::load(self.mapping.at(start).cast()) }.to_ne_bytes();
                start += 8;
            }
            to = last;
        }
        for_each_part(start, to.len(), |word_at, within, part| {
            // SAFETY: the word is within the mapping, and written to as a word.
            let value = unsafe { word::load(self.mapping.at(word_at).cast()) };
            to[part.clone()].copy_from_slice(&value.to_ne_bytes()[within..within + part.len()]);
        });
    }

    /// Reads one word, in the processor's byte order.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8.
    pub fn read_word(&self, at: u64) -> u64 {
        assert!(at.is_multiple_of(8), "words are aligned");
        let mut bytes = [0; 8];
        self.read(at, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// Lends the `len` bytes from `at`.
    ///
    /// # Safety
    /// No thread writes to the range while the slice lives, under either of its addresses if it is
    /// in a ring. Earlier writes happen before the call (ordered by a lock, or by a release and an
    /// acquire); streamed writes were fenced first.
    pub unsafe fn bytes(&self, at: u64, len: usize) -> &[u8] {
        let range = self.range(at, len);
        // SAFETY: the range is mapped and initialised (zeroed by the system); the caller excludes
        // writers.
        unsafe { std::slice::from_raw_parts(self.mapping.at(range.start), len) }
    }

    /// Returns the address of the `len` bytes from `at`, which is valid as long as the region. Who
    /// reads them there must exclude writers, or discard what it has read while there was one. They
    /// must not be written to: the models would not see it.
    pub fn address(&self, at: u64, len: usize) -> NonNull<u8> {
        let range = self.range(at, len);
        NonNull::new(self.mapping.at(range.start)).expect("a mapping is not at address zero")
    }

    /// Lends the `len` bytes from `at` for writing as ordinary memory. After writing, the caller
    /// must call [`Region::wrote_bytes`].
    ///
    /// # Safety
    /// No other thread reads or writes the range, under either of its addresses, while the slice
    /// lives.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the contract makes the range exclusive")]
    pub unsafe fn bytes_mut(&self, at: u64, len: usize) -> &mut [u8] {
        let range = self.range(at, len);
        // SAFETY: as in `bytes`, and the caller excludes all other accesses.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.at(range.start), len) }
    }

    /// Counts stores to the `len` bytes from `at` through [`Region::bytes_mut`] as one
    /// [`Region::store`], for the models of crashes and of times.
    #[inline]
    pub fn wrote_bytes(&self, at: u64, len: usize) {
        if self.recorder.is_none() && self.model.is_none() {
            return;
        }
        let range = self.range(at, len);
        if let Some(recorder) = &self.recorder {
            recorder.store(false, |record| self.for_each_word(&range, record));
        }
        self.wrote(len);
    }

    // ----- inside -----

    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    #[inline]
    fn wrote(&self, bytes: usize) {
        if let Some(model) = &self.model {
            model.wrote(bytes as u64);
        }
    }

    #[inline(always)]
    fn range(&self, at: u64, len: usize) -> Range<usize> {
        let reach = self.mapping.reach();
        let fits = at <= reach as u64 && len <= reach - at as usize && len <= self.mapping.len();
        assert!(fits, "{len} bytes from {at} are not within a region of {} bytes", self.mapping.len());
        at as usize..at as usize + len
    }

    /// Calls `f` with the offset in the memory itself and the value of each word that the range
    /// touches.
    fn for_each_word(&self, range: &Range<usize>, f: &mut dyn FnMut(usize, u64)) {
        for at in (range.start & !7..range.end).step_by(8) {
            // SAFETY: the word is within the mapping; where a range is exclusive, it is the
            // caller's.
            let value = unsafe { word::load(self.mapping.at(at).cast()) };
            f(self.mapping.canonical(at), value);
        }
    }

    /// Calls `f` with the offset of each word of the lines that the range touches.
    fn for_each_line_word(&self, range: &Range<usize>, f: &mut dyn FnMut(usize)) {
        if range.is_empty() {
            return;
        }
        for at in (range.start & !(LINE - 1)..range.end.next_multiple_of(LINE)).step_by(8) {
            f(self.mapping.canonical(at));
        }
    }
}

fn total(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Splits `len` bytes from `start` into words. Calls `f` with the start of each word, the first
/// byte used within the word, and the range of the bytes that the word holds.
#[inline]
fn for_each_part(start: usize, len: usize, mut f: impl FnMut(usize, usize, Range<usize>)) {
    let mut done = 0;
    while done < len {
        let within = (start + done) % 8;
        let count = (8 - within).min(len - done);
        f(start + done - within, within, done..done + count);
        done += count;
    }
}

/// Stores the parts from `to` on. The range, with the whole words at its ends, is within a mapping.
#[inline]
fn store_words(to: *mut u8, parts: &[&[u8]]) {
    let mut to = to;
    for part in parts {
        let mut rest = *part;
        if (to as usize).is_multiple_of(8) {
            // SAFETY: as many bytes as `rest` has are within what the caller has checked, and
            // aligned.
            let copied = unsafe { instructions::copy_lines(to, rest.as_ptr(), rest.len()) };
            (to, rest) = (to.wrapping_add(copied), &rest[copied..]);
            let (words, last) = rest.as_chunks::<8>();
            for bytes in words {
                // SAFETY: an aligned word within what the caller has checked.
                unsafe { word::store(to.cast(), u64::from_ne_bytes(*bytes)) };
                to = to.wrapping_add(8);
            }
            rest = last;
        }
        store_pieces(to, rest);
        to = to.wrapping_add(rest.len());
    }
}

/// Stores bytes that are not whole aligned words.
fn store_pieces(to: *mut u8, bytes: &[u8]) {
    let offset = to as usize % 8;
    let first = to.wrapping_sub(offset);
    for_each_part(offset, bytes.len(), |at, within, part| {
        let (mut value, mut mask) = ([0; 8], [0; 8]);
        value[within..within + part.len()].copy_from_slice(&bytes[part.clone()]);
        mask[within..within + part.len()].fill(0xFF);
        // SAFETY: an aligned word within the mapping, since pages are whole words.
        unsafe { word::merge(first.wrapping_add(at).cast(), u64::from_ne_bytes(mask), u64::from_ne_bytes(value)) };
    });
}

/// Streams the parts from the aligned address `to` on. The total length is a multiple of 8.
#[inline]
fn stream_words(to: *mut u8, parts: &[&[u8]], flush: Flush) {
    let mut to = to;
    // A word of which earlier parts held only the beginning.
    let (mut word, mut filled) = ([0; 8], 0);
    for part in parts {
        let mut rest = *part;
        if filled > 0 {
            let (first, behind) = rest.split_at(rest.len().min(8 - filled));
            word[filled..filled + first.len()].copy_from_slice(first);
            filled += first.len();
            if filled < 8 {
                continue;
            }
            // SAFETY: an aligned word within what the caller has checked.
            unsafe { instructions::stream(to, &word, flush) };
            (to, rest) = (to.wrapping_add(8), behind);
        }
        let (whole, last) = rest.split_at(rest.len() & !7);
        // SAFETY: `to` is aligned, and the words are within what the caller has checked.
        unsafe { instructions::stream(to, whole, flush) };
        to = to.wrapping_add(whole.len());
        word[..last.len()].copy_from_slice(last);
        filled = last.len();
    }
    debug_assert_eq!(filled, 0, "whole words are streamed");
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
