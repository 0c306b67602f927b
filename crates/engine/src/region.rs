//! Regions of persistent memory that belong to a database: how a new one is made without harm to
//! what is there already, and how an existing one is opened.
//!
//! Heaps and the memory of [`crate::Scheme::PcmLogging`] begin alike: with a magic word, and with
//! their state at [`STATE_AT`].

use duramen_pmem::{Domain, Guarantee, Mode, Placement, PmemError, Region, RegionOptions, Source, Survive, Timing};

use crate::error::{Error, Result};
use crate::options::{HeapOptions, PcmOptions};

/// Offset of the word with the state.
pub(crate) const STATE_AT: u64 = 192;

/// The least bytes of a region that can be such.
pub(crate) const LEAST: u64 = 64 << 10;

/// The length of a region is a multiple of this.
const MAPPED: u64 = 4096;

/// The state of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum State {
    Blank = 0,
    BeingMade = 1,
    InUse = 2,
    Clean = 3,
}

impl State {
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        [Self::Blank, Self::BeingMade, Self::InUse, Self::Clean].into_iter().find(|state| *state as u64 == word)
    }
}

/// A region, as the options name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionPlace<'o> {
    pub(crate) source: &'o Source,
    pub(crate) domain: Domain,
    pub(crate) survive: Survive,
    pub(crate) stated: Option<Guarantee>,
    pub(crate) placement: Placement,
    pub(crate) timing: Timing,
    /// What messages call it.
    pub(crate) what: &'static str,
    /// The word that it begins with.
    pub(crate) magic: u64,
    /// Size of the header that is written once, in bytes.
    pub(crate) fixed: usize,
}

impl<'o> RegionPlace<'o> {
    /// Returns the region of a heap.
    pub(crate) fn of_heap(options: &'o HeapOptions, magic: u64, fixed: usize) -> Self {
        let HeapOptions { source, domain, survive, stated, placement, timing, .. } = options;
        let (domain, survive, stated) = (*domain, *survive, *stated);
        Self { source, domain, survive, stated, placement: *placement, timing: *timing, what: "heap", magic, fixed }
    }

    /// Returns the region of a database with [`crate::Scheme::PcmLogging`].
    pub(crate) fn of_pcm(options: &'o PcmOptions, magic: u64, fixed: usize) -> Self {
        let PcmOptions { source, domain, survive, stated, placement, timing, .. } = options;
        let (domain, survive, stated) = (*domain, *survive, *stated);
        Self { source, domain, survive, stated, placement: *placement, timing: *timing, what: "PCM", magic, fixed }
    }

    /// Opens the region with `len` bytes.
    pub(crate) fn open(&self, len: u64, mode: Mode) -> Result<Region, PmemError> {
        Region::open(
            self.source,
            &RegionOptions {
                len: len.next_multiple_of(MAPPED),
                mode,
                ring_from: None,
                domain: self.domain,
                survive: self.survive,
                stated: self.stated,
                placement: self.placement,
                populate: false,
                timing: self.timing,
            },
        )
    }

    /// Checks that a new region of `len` bytes could be made, before anything is made.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the source holds something else, or a region in use, or if the
    /// directory of its file does not exist.
    pub(crate) fn check_new(&self, len: u64) -> Result<()> {
        match self.source {
            Source::File(path) if path.parent().is_some_and(|home| !home.as_os_str().is_empty() && !home.exists()) => {
                let path = path.display();
                Err(invalid(format!("the directory of the {} `{path}` does not exist; create it", self.what)))
            }
            // Whether memory survives what it must can be found out only with a file.
            Source::File(path) if !path.exists() => {
                let tried = self.open(LEAST, Mode::Create).map(drop);
                // The file of another program that was quicker stays.
                if matches!(tried, Ok(()) | Err(PmemError::NotDurable { .. })) {
                    let _ = std::fs::remove_file(path);
                }
                Ok(tried?)
            }
            _ => self.unused(len).map(drop),
        }
    }

    /// Opens a new region of `len` bytes, which must not be in use.
    ///
    /// # Errors
    /// As [`RegionPlace::check_new`].
    pub(crate) fn unused(&self, len: u64) -> Result<Region> {
        let region = match self.open(len, Mode::Create) {
            // Nothing can be in a file that did not exist.
            Ok(region) if matches!(self.source, Source::File(_)) => return Ok(region),
            Err(PmemError::AlreadyExists { .. }) => {
                match self.open(len, Mode::OpenOrCreate) {
                    // What an interrupted creation left may be too short, and is not made longer
                    // before it is known to be that.
                    Err(PmemError::TooSmall { len: found, .. }) if found >= LEAST => {
                        self.check_unused(&self.open(found / MAPPED * MAPPED, Mode::Open)?)?;
                        self.open(len, Mode::Grow)?
                    }
                    region => region?,
                }
            }
            region => region?,
        };
        self.check_unused(&region)?;
        Ok(region)
    }

    /// Checks that a region may be made a new one: it is blank, or what an interrupted making left.
    fn check_unused(&self, region: &Region) -> Result<()> {
        let refused = |what: &str, remedy: &str| Err(invalid(format!("`{}` {what}; {remedy}", region.location())));
        if word_of(region, 0) == self.magic {
            return match State::from_word(word_of(region, STATE_AT)) {
                Some(State::Blank | State::BeingMade) => Ok(()),
                _ => {
                    let what = format!("is the {} of a database", self.what);
                    refused(&what, "open that database, or name another file")
                }
            };
        }
        let mut bytes = vec![0; 1 << 20];
        let mut at = 0;
        while at < region.len() {
            let part = &mut bytes[..(region.len() - at).min(1 << 20) as usize];
            region.read(at, part);
            if at == 0 {
                // A torn header: its first word is missing, and nothing was stored behind it.
                part[8..self.fixed].fill(0);
            }
            if part.iter().any(|byte| *byte != 0) {
                return refused("holds something else", "name a file that does not exist, or one filled with zeros");
            }
            at += 1 << 20;
        }
        Ok(())
    }
}

/// Returns the word at offset `at`, which is aligned.
pub(crate) fn word_of(region: &Region, at: u64) -> u64 {
    let mut bytes = [0; 8];
    region.read(at, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn invalid(reason: String) -> Error {
    Error::InvalidOption { option: "scheme", reason }
}
