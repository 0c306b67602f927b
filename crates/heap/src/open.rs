//! Making and opening a heap.
//!
//! # Making
//! The magic is stored first, and made durable: from then on the memory is an unfinished heap and
//! nothing else. Then come the header, the numbers of the slots and the kinds of the slabs, and a
//! barrier; at last the state *made*. What a power cut leaves of this is made again.
//!
//! # Growing
//! A heap that is smaller than the options ask for gets more slabs. They are made free, and a
//! barrier follows, before the number of slabs is raised.

use std::hash::{BuildHasher, RandomState};

use duramen_pmem::{Mode, PmemError, Region, RegionOptions, Source};
use duramen_types::undo_record::LINE_BYTES;

use crate::error::{Error, Result};
use crate::layout::{
    BITMAP_WORDS, FIXED, FLUSHED_AT, Header, HeaderDefect, Kind, LINE, Layout, MADE, MAGIC, SLABS_AT, STATE_AT, VERSION,
};
use crate::medium::{Barrier, Medium};
use crate::options::HeapOptions;
use crate::recovery::{Recovered, recover};
use crate::slabs::full;

/// A slab's kind, and the bitmap of its live objects.
pub(crate) type Found = (Kind, [u64; BITMAP_WORDS as usize]);

/// An open heap's memory, and what is in it.
pub(crate) struct Opened {
    pub(crate) medium: Medium,
    pub(crate) layout: Layout,
    pub(crate) found: Vec<Found>,
    /// The number of each slot's next update.
    pub(crate) next: Vec<u64>,
    pub(crate) recovered: Recovered,
}

/// Opens the heap, and makes it if there is none.
pub(crate) fn open(source: &Source, options: &HeapOptions) -> Result<Opened> {
    options.log.check()?;
    let needed = Layout::smallest(options.log);
    if options.bytes < needed {
        return Err(Error::TooSmall { bytes: options.bytes, needed });
    }
    if options.bytes > 1 << 45 {
        let reason = "it must be at most 32 TiB".to_owned();
        return Err(Error::InvalidOption { option: "bytes", reason });
    }
    let new = Layout::of(Header { id: fresh_id(), log: options.log }, options.bytes);
    // Nothing can be in a file that did not exist.
    match region(source, options, new.len(), Mode::Create) {
        Ok(region) if matches!(source, Source::File(_)) => return make(region, new),
        Ok(region) => drop(region),
        Err(PmemError::AlreadyExists { .. }) => {}
        // Another heap of this memory may be smaller.
        Err(PmemError::TooSmall { .. }) if !matches!(source, Source::File(_)) => {}
        Err(error) => {
            // The file that has just been created to find this out.
            if let (PmemError::NotDurable { .. }, Source::File(path)) = (&error, source) {
                let _ = std::fs::remove_file(path);
            }
            return Err(error.into());
        }
    }
    if matches!(source, Source::Anonymous) {
        return make(region(source, options, new.len(), Mode::OpenOrCreate)?, new);
    }
    match look(source, options)? {
        Some(layout) => open_existing(source, options, layout),
        None => {
            let region = region(source, options, new.len(), Mode::Grow)?;
            check_blank(&region)?;
            make(region, new)
        }
    }
}

fn region(source: &Source, options: &HeapOptions, len: u64, mode: Mode) -> Result<Region, PmemError> {
    let options = RegionOptions {
        mode,
        domain: options.domain,
        survive: options.survive,
        stated: options.stated,
        placement: options.placement,
        populate: false,
        timing: options.timing,
        ..RegionOptions::new(len)
    };
    Region::open(source, &options)
}

/// Returns the layout of the heap in the memory; `None` if one may be made there.
fn look(source: &Source, options: &HeapOptions) -> Result<Option<Layout>> {
    // A file that an interrupted making has left may have no length yet.
    let is_empty = |path: &std::path::Path| path.metadata().is_ok_and(|file| file.is_file() && file.len() == 0);
    if matches!(source, Source::File(path) if is_empty(path)) {
        return Ok(None);
    }
    let region = match region(source, options, FIXED, Mode::Open) {
        Err(PmemError::TooSmall { location, .. }) => return Err(Error::Foreign { location }),
        region => region?,
    };
    let medium = Medium::new(region);
    match medium.read_word(0) {
        0 => Ok(None),
        MAGIC if medium.read_word(STATE_AT) == 0 => match was_in_use(&medium) {
            true => Err(corrupt(&medium, STATE_AT, "the state is missing")),
            false => Ok(None),
        },
        MAGIC => read_layout(&medium).map(Some),
        _ => Err(Error::Foreign { location: medium.location().to_owned() }),
    }
}

/// Returns whether the memory was a whole heap: each opening of one raises the numbers of all
/// slots, which are zero until it has been made.
fn was_in_use(medium: &Medium) -> bool {
    let mut line = [0; LINE_BYTES];
    medium.read(0, &mut line);
    let Ok(header) = Header::decode(&line) else { return false };
    let layout = Layout { header, slabs: 0 };
    let has_number = |at| layout.unseal(at, medium.read_word(at)).is_some_and(|number| number > 0);
    (0..layout.header.log.slots).map(|slot| layout.slot(slot)).take_while(|at| *at < FIXED).any(has_number)
}

fn read_layout(medium: &Medium) -> Result<Layout> {
    let location = medium.location().to_owned();
    let mut line = [0; LINE_BYTES];
    medium.read(0, &mut line);
    let header = Header::decode(&line).map_err(|defect| match defect {
        HeaderDefect::Version(found) => Error::Version { location: location.clone(), found, known: VERSION },
        HeaderDefect::Checksum => corrupt(medium, 0, "the checksum of the header does not match"),
        HeaderDefect::Shape => corrupt(medium, 0, "the header has a log that no heap has"),
    })?;
    let layout = Layout { header, slabs: 0 };
    let unseal = |at, what| layout.unseal(at, medium.read_word(at)).ok_or_else(|| corrupt(medium, at, what));
    if unseal(STATE_AT, "the state")? != MADE {
        return Err(corrupt(medium, STATE_AT, "the state is unknown"));
    }
    let slabs = unseal(SLABS_AT, "the number of slabs")?;
    if slabs == 0 || slabs > 1 << 30 {
        return Err(corrupt(medium, SLABS_AT, "there is no heap with that number of slabs"));
    }
    Ok(Layout { slabs, ..layout })
}

fn open_existing(source: &Source, options: &HeapOptions, layout: Layout) -> Result<Opened> {
    let wanted = Layout::of(layout.header, options.bytes);
    let grown = Layout { slabs: layout.slabs.max(wanted.slabs), ..layout };
    // A heap that is shorter than its header says has lost its end, and must not grow.
    let region_of = |len, mode| region(source, options, len, mode);
    let mut opened = region_of(layout.len(), Mode::Open)?;
    if grown != layout {
        drop(opened);
        opened = region_of(grown.len(), Mode::Grow)?;
    }
    let medium = Medium::new(opened);
    harden_found(&medium, &layout);
    if read_layout(&medium)? != layout {
        // Another process has changed it between the two looks.
        return Err(PmemError::Busy { location: medium.location().to_owned() }.into());
    }
    let (next, recovered) = recover(&medium, &layout)?;
    if grown != layout {
        make_slabs(&medium, &grown, layout.slabs);
        medium.barrier(Barrier::Home);
        medium.persist_word(SLABS_AT, grown.seal(SLABS_AT, grown.slabs), Barrier::End);
    }
    let found = find_slabs(&medium, &grown)?;
    Ok(Opened { medium, layout: grown, found, next, recovered })
}

/// Makes durable what the opening is about to trust. A process may have been killed between a store
/// and its flush, so that what is found may lie in caches only: a word of the header, and
/// everything if the last opening flushed nothing.
fn harden_found(medium: &Medium, layout: &Layout) {
    let flushed = u64::from(medium.flushes());
    let was = layout.unseal(FLUSHED_AT, medium.read_word(FLUSHED_AT));
    medium.flush(0, if was == Some(1) { FIXED } else { layout.len() } as usize);
    medium.barrier(Barrier::Home);
    if was != Some(flushed) {
        medium.persist_word(FLUSHED_AT, layout.seal(FLUSHED_AT, flushed), Barrier::Home);
    }
}

/// Makes a heap in memory that holds nothing, or what an interrupted making has left.
fn make(region: Region, layout: Layout) -> Result<Opened> {
    let medium = Medium::new(region);
    medium.persist_word(0, MAGIC, Barrier::Home);
    medium.store(0, &layout.header.encode());
    medium.store_word(SLABS_AT, layout.seal(SLABS_AT, layout.slabs));
    medium.store_word(FLUSHED_AT, layout.seal(FLUSHED_AT, medium.flushes().into()));
    for slot in 0..layout.header.log.slots {
        let at = layout.slot(slot);
        medium.store_word(at, layout.seal(at, 0));
    }
    medium.flush(0, FIXED as usize);
    make_slabs(&medium, &layout, 0);
    medium.barrier(Barrier::Home);
    medium.persist_word(STATE_AT, layout.seal(STATE_AT, MADE), Barrier::End);
    let found = find_slabs(&medium, &layout)?;
    let next = vec![1; layout.header.log.slots as usize];
    Ok(Opened { medium, layout, found, next, recovered: Recovered::default() })
}

fn make_slabs(medium: &Medium, layout: &Layout, from: u64) {
    for slab in from..layout.slabs {
        let at = layout.slab(slab);
        medium.store_word(at, layout.seal(at, Kind::Free.encode()));
        medium.store(at + LINE, &[0; 2 * LINE_BYTES]);
        medium.flush(at, 3 * LINE_BYTES);
    }
}

/// Reads the kind and the bitmap of each slab.
fn find_slabs(medium: &Medium, layout: &Layout) -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::with_capacity(layout.slabs as usize);
    while (found.len() as u64) < layout.slabs {
        let slab = found.len() as u64;
        let at = layout.slab(slab);
        let kind = layout.unseal(at, medium.read_word(at)).and_then(Kind::decode);
        let kind = match kind {
            Some(Kind::Behind(_)) | None => return Err(corrupt(medium, at, "the kind of a slab")),
            Some(kind) => kind,
        };
        let live = std::array::from_fn(|word| medium.read_word(at + LINE + word as u64 * 8));
        let all = full(kind);
        if live.iter().zip(&all).any(|(live, all)| live & !all != 0) {
            return Err(corrupt(medium, at + LINE, "a bitmap has objects that do not fit into their slab"));
        }
        match kind {
            Kind::Large(slabs) if live[0] == 1 => {
                if u64::from(slabs) > layout.slabs - slab {
                    return Err(corrupt(medium, at, "a large object is larger than the heap"));
                }
                found.push((kind, live));
                found.extend((1..slabs).map(|behind| (Kind::Behind(behind), [0; BITMAP_WORDS as usize])));
            }
            Kind::Large(_) => found.push((Kind::Free, live)),
            kind => found.push((kind, live)),
        }
    }
    Ok(found)
}

/// Checks that memory which begins with zeros, or with an unfinished heap, holds nothing else.
fn check_blank(region: &Region) -> Result<()> {
    let mut bytes = vec![0; 1 << 20];
    region.read(0, &mut bytes[..8]);
    if bytes[..8] == MAGIC.to_le_bytes() {
        return Ok(());
    }
    let mut at = 0;
    while at < region.len() {
        let part = &mut bytes[..(region.len() - at).min(1 << 20) as usize];
        region.read(at, part);
        if part.iter().any(|byte| *byte != 0) {
            return Err(Error::Foreign { location: region.location().to_owned() });
        }
        at += 1 << 20;
    }
    Ok(())
}

fn fresh_id() -> [u8; 16] {
    let random = RandomState::new();
    let half = |which: u64| random.hash_one(which).to_le_bytes();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&half(1));
    id[8..].copy_from_slice(&half(2));
    id
}

fn corrupt(medium: &Medium, offset: u64, reason: &str) -> Error {
    Error::Corrupt { location: medium.location().to_owned(), offset, reason: reason.to_owned() }
}
