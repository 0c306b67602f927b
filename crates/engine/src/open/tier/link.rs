//! The file `tier`, which says where the page tier of a database is.
//!
//! A [`LinkFile`]. Version 1 is for a tier in a directory. Version 2 is for one in persistent
//! memory, and has three further bytes:
//!
//! | field | values |
//! |---|---|
//! | persistence domain | 0 durable caches, 1 volatile caches |
//! | what its pages must survive | 0 nothing, 1 the process, 2 a power cut |
//! | the platform's guarantee as stated | 0 not stated, 1 durable caches, 2 volatile caches, 3 the page cache, 4 none |

use std::path::Path;

use duramen_io::Disk;
use duramen_pmem::{Domain, Guarantee, Source, Survive};

use crate::checkpoint::control::Control;
use crate::error::{Error, Result};
use crate::open::files::{TIER, TIER_NEW};
use crate::open::link::LinkFile;
use crate::options::{TierMemory, TierPlace};
use crate::pool::REMEDY;

const LINK: LinkFile =
    LinkFile { name: TIER, new_name: TIER_NEW, magic: b"DURATLNK", target: "page tier", further: &[0, 3] };

const DOMAINS: [Domain; 2] = [Domain::DurableCache, Domain::VolatileCache];
const SURVIVALS: [Survive; 3] = [Survive::Nothing, Survive::Process, Survive::PowerCut];
const GUARANTEES: [Option<Guarantee>; 5] = [
    None,
    Some(Guarantee::DurableCache),
    Some(Guarantee::VolatileCache),
    Some(Guarantee::PageCache),
    Some(Guarantee::Nothing),
];

/// The contents of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Link {
    /// A tier that can be found with what the link says.
    Place(TierPlace),
    /// A tier in memory without a name, which only the options can name.
    Nameless,
}

/// Writes the file.
pub(super) fn write(disk: &dyn Disk, control: &Control, place: &TierPlace) -> Result<()> {
    let text = text(place)?;
    match place {
        TierPlace::Memory(memory) => LINK.write(disk, control.database, text, &attributes(memory)),
        _ => LINK.write(disk, control.database, text, &[]),
    }
}

/// Returns how the link names a place; refuses one that it cannot name.
pub(super) fn text(place: &TierPlace) -> Result<&str> {
    let path: &Path = match place {
        TierPlace::Home => return Ok(""),
        TierPlace::Directory(path) => path,
        TierPlace::Memory(memory) => match &memory.source {
            Source::File(path) => path,
            Source::Simulated(_) => return Ok(""),
            Source::Anonymous => {
                return Err(invalid("anonymous memory cannot be opened again: name a file or device for the tier"));
            }
        },
    };
    if !path.is_absolute() {
        return Err(invalid("a page tier needs an absolute path, which the database keeps"));
    }
    let text = path.to_str().ok_or_else(|| invalid("the path of a page tier must be UTF-8"))?;
    if !LINK.fits(text) {
        return Err(invalid("the path of the page tier is too long"));
    }
    Ok(text)
}

/// Reads the file, if it exists.
pub(super) fn read(disk: &dyn Disk, control: &Control) -> Result<Option<Link>> {
    let Some(linked) = LINK.read(disk, control.database)? else { return Ok(None) };
    let &[domain, survive, stated] = &linked.further[..] else {
        let place = if linked.path.is_empty() { TierPlace::Home } else { TierPlace::Directory(linked.path.into()) };
        return Ok(Some(Link::Place(place)));
    };
    if linked.path.is_empty() {
        return Ok(Some(Link::Nameless));
    }
    let of = usize::from;
    let (domain, survive, stated) = (DOMAINS.get(of(domain)), SURVIVALS.get(of(survive)), GUARANTEES.get(of(stated)));
    let (Some(domain), Some(survive), Some(stated)) = (domain, survive, stated) else {
        let reason = format!("it does not say where the page tier is; {REMEDY}");
        return Err(Error::Corrupt { file: TIER.to_owned(), offset: 0, page: None, reason });
    };
    let memory = TierMemory::new(Source::File(linked.path.into()), *domain);
    Ok(Some(Link::Place(TierPlace::Memory(TierMemory { survive: *survive, stated: *stated, ..memory }))))
}

fn attributes(memory: &TierMemory) -> [u8; 3] {
    let place = |found: Option<usize>| found.expect("every value has a number") as u8;
    [
        place(DOMAINS.iter().position(|domain| *domain == memory.domain)),
        place(SURVIVALS.iter().position(|survive| *survive == memory.survive)),
        place(GUARANTEES.iter().position(|stated| *stated == memory.stated)),
    ]
}

fn invalid(reason: &str) -> Error {
    Error::InvalidOption { option: "page_tier", reason: reason.to_owned() }
}
