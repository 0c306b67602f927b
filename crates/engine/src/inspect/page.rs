//! Reports on one page of the data file.

use std::fmt;

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_sync::Arc;
use duramen_types::{Gsn, PAGE_SIZE, PageId, TableId};

use super::{describe, text};
use crate::check::Link;
use crate::error::{Error, Result};
use crate::heap;
use crate::open::files::DATA;
use crate::open::tier;
use crate::options::{HeapOptions, PcmOptions};
use crate::page::{self, Node, PageType, SlotFlags, bitmap};
use crate::pool::Stamp;
use crate::storage::overflow::{PAGE_CONTENT, Reference};

/// The contents of a page of the data file, or of persistent memory. `Display` formats it for human
/// readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageReport {
    /// The requested page.
    pub page: PageId,
    /// The page's type: `free`, `bitmap`, `leaf`, `inner`, `overflow`, `stamp`, or `unknown` with a
    /// number.
    pub page_type: String,
    /// The page's height above the leaves of its tree.
    pub level: u8,
    /// The last log record applied to the page.
    pub gsn: Gsn,
    /// The page number in the page's header.
    pub header_page: PageId,
    /// The table that the page belongs to, or zero.
    pub table: TableId,
    /// Whether the page has a checksum. A page of a heap has none, because a change of a line would
    /// cost the checksum of a page.
    pub has_checksum: bool,
    /// Whether the checksum fits the contents and the page is at its own offset; without a
    /// checksum, whether the header is that of the requested page.
    pub checksum_ok: bool,
    /// The checks that the page fails, in words. For a page that fails any check, the report shows
    /// the page's bytes as they are, right or wrong.
    pub defects: Vec<String>,
    /// The page's contents, line by line.
    pub contents: Vec<String>,
}

/// Reads a page of a closed database, damaged or not.
///
/// ```
/// # use std::sync::Arc;
/// # use duramen::{Db, Options, inspect};
/// # use duramen_types::{PAGE_SIZE, PageId};
/// # fn main() -> duramen::Result<()> {
/// # let disk = duramen_io::SimDisk::new(1);
/// # let db = Db::open_on(Arc::new(disk.clone()), Options::small())?;
/// db.create_table("films")?;
/// db.close()?;
/// let catalog = || inspect::page(Arc::new(disk.clone()), PageId::new(2));
/// assert_eq!(catalog()?.page_type, "leaf");
/// assert!(catalog()?.checksum_ok && catalog()?.to_string().contains("films"));
///
/// disk.flip_bit("data", 2 * PAGE_SIZE as u64 + 5_000, 0);
/// assert!(!catalog()?.checksum_ok);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::InvalidOption`] when the data file has no such page; [`Error::OpenFailed`] when it
/// cannot be read.
pub fn page(disk: Arc<dyn Disk>, page: PageId) -> Result<PageReport> {
    let bytes = read(&*disk, page).map_err(|error| error.in_opening(disk.location()))?;
    Ok(report(page, &bytes))
}

fn read(disk: &dyn Disk, page: PageId) -> Result<AlignedBuf> {
    let file = disk.open(DATA, OpenMode::Existing)?;
    let pages = file.len()? / PAGE_SIZE as u64;
    if page.get() >= pages {
        return Err(Error::InvalidOption { option: "page", reason: format!("`{}` has {pages} pages", file.path()) });
    }
    if let Some(bytes) = tier::page(disk, page)? {
        return Ok(bytes);
    }
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    file.read_at(&mut bytes, page.get() * PAGE_SIZE as u64)?;
    Ok(bytes)
}

/// Reads a page of a closed database whose pages are in a heap, damaged or not. Only the source
/// counts among the options.
///
/// ```
/// # use duramen::pmem::{Domain, Source, Survive};
/// # use duramen::{Db, HeapOptions, Options, Scheme, inspect};
/// # use duramen_types::PageId;
/// # fn main() -> duramen::Result<()> {
/// # let home = tempfile::tempdir().unwrap();
/// # let source = Source::File(home.path().join("heap"));
/// # let heap = HeapOptions::new(source, 4 << 20, Domain::VolatileCache);
/// # let heap = HeapOptions { survive: Survive::Process, ..heap };
/// let scheme = Scheme::InPlace(heap.clone());
/// let options = Options { scheme, pool_bytes: 1 << 20, ..Options::default() };
/// let db = Db::open(home.path().join("db"), options)?;
/// db.create_table("accounts")?;
/// db.close()?;
///
/// let catalog = inspect::page_of_heap(&heap, PageId::new(2))?;
/// assert!(catalog.to_string().contains("accounts"));
/// assert!(catalog.checksum_ok && !catalog.has_checksum);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::InvalidOption`] when the heap has no such page; as [`super::heap()`], and
/// [`Error::Corrupt`] when its header is damaged.
pub fn page_of_heap(options: &HeapOptions, page: PageId) -> Result<PageReport> {
    let (region, usable) = super::heap::open(options)?;
    let (location, pages) = (region.location(), region.layout.pages);
    if let Err(defect) = usable {
        let (file, reason) = (location.to_owned(), format!("its pages cannot be found: {defect}"));
        return Err(Error::Corrupt { file, offset: 0, page: Some(page), reason });
    }
    if page.get() >= pages {
        return Err(Error::InvalidOption {
            option: "page",
            reason: format!("the heap `{location}` has {pages} pages"),
        });
    }
    let mut bytes = vec![0; PAGE_SIZE];
    region.read(region.layout.page(page), &mut bytes);
    let defect = heap::defect(page, &bytes).map(|(_, defect)| defect);
    Ok(PageReport { has_checksum: false, ..report_of(page, &bytes, defect) })
}

/// Reads a page of a closed database with PCMLogging, damaged or not: its latest version in the
/// region or, if there is none, that in the data file, with its tuples. The changes of transactions
/// that had not committed are in it. Only the source counts among the options.
///
/// ```
/// # use std::sync::Arc;
/// # use duramen::pmem::{Domain, SimMemory, Source};
/// # use duramen::{Db, Options, PcmOptions, Scheme, inspect};
/// # use duramen_types::PageId;
/// # fn main() -> duramen::Result<()> {
/// # let disk = duramen_io::SimDisk::new(1);
/// # let memory = SimMemory::new(1 << 20, Domain::VolatileCache);
/// # let pcm = PcmOptions::new(Source::Simulated(memory), 1 << 20, Domain::VolatileCache);
/// let scheme = Scheme::PcmLogging(pcm.clone());
/// let options = Options { scheme, pool_bytes: 1 << 20, ..Options::default() };
/// let db = Db::open_on(Arc::new(disk.clone()), options)?;
/// db.create_table("events")?;
/// db.close()?;
///
/// // The data file still has the catalog without the table.
/// let catalog = PageId::new(2);
/// let in_file = inspect::page(Arc::new(disk.clone()), catalog)?;
/// let latest = inspect::page_of_pcm(Arc::new(disk), &pcm, catalog)?;
/// assert!(!in_file.to_string().contains("events") && latest.to_string().contains("events"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`page()`] and [`super::pcm()`].
pub fn page_of_pcm(disk: Arc<dyn Disk>, options: &PcmOptions, page: PageId) -> Result<PageReport> {
    let location = disk.location();
    let of_file = || read(&*disk, page);
    let bytes = super::pcm::open(options)?.latest(page, of_file).map_err(|error| error.in_opening(location))?;
    Ok(report(page, &bytes))
}

fn report(id: PageId, bytes: &[u8]) -> PageReport {
    report_of(id, bytes, page::verify(bytes, id).err().map(|defect| defect.to_string()))
}

/// Reports on a page whose header or checksum has this defect.
fn report_of(id: PageId, bytes: &[u8], defect: Option<String>) -> PageReport {
    let page_type = page::page_type(bytes);
    let checksum_ok = defect.is_none();
    let mut defects = Vec::from_iter(defect);
    let contents = match page_type {
        Some(PageType::Leaf | PageType::Inner) => {
            defects.extend(page::check(bytes).err());
            node_lines(Node(bytes))
        }
        Some(PageType::Bitmap) => bitmap_lines(bytes, id, &mut defects),
        Some(PageType::Overflow) => overflow_lines(bytes, &mut defects),
        Some(PageType::Free) => Vec::new(),
        Some(PageType::Stamp) => {
            let stamp = Stamp::of_page(bytes);
            vec![format!("database {}, generation {}", text::hex(&stamp.database), stamp.generation)]
        }
        None => bytes.chunks(32).take(8).map(text::hex).collect(),
    };
    PageReport {
        page: id,
        page_type: match page_type {
            Some(PageType::Free) => "free".to_owned(),
            Some(PageType::Bitmap) => "bitmap".to_owned(),
            Some(PageType::Leaf) => "leaf".to_owned(),
            Some(PageType::Inner) => "inner".to_owned(),
            Some(PageType::Overflow) => "overflow".to_owned(),
            Some(PageType::Stamp) => "stamp".to_owned(),
            None => format!("unknown {}", bytes[4]),
        },
        level: page::level(bytes),
        gsn: page::gsn(bytes),
        header_page: page::page_id(bytes),
        table: page::table_id(bytes),
        has_checksum: true,
        checksum_ok,
        defects,
        contents,
    }
}

/// Describes fences and slots. Uses only reads that cannot leave the page, whatever its bytes are.
fn node_lines(node: Node<&[u8]>) -> Vec<String> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut lines = Vec::new();
    let lower = node.lower_fence_into(&mut key).then(|| text::key(&key));
    lines.push(format!("lower fence (exclusive): {}", lower.as_deref().unwrap_or("none")));
    let upper = node.upper_fence_into(&mut key).then(|| text::key(&key));
    lines.push(format!("upper fence (inclusive): {}", upper.as_deref().unwrap_or("none")));
    let (slots, used, free) = (node.slot_count(), node.used_space(), node.free_space());
    lines.push(format!("{slots} slots, {used} bytes used, {free} free"));
    for slot in 0..slots {
        node.key_into(slot, &mut key);
        let key = text::key(&key);
        if !node.is_leaf() {
            lines.push(format!("slot {slot}: up to {key}: {}", node.child(slot)));
            continue;
        }
        let flags = node.flags(slot);
        node.value_into(slot, &mut value);
        let value = match Reference::decode(&value) {
            Some(reference) if flags.contains(SlotFlags::OVERFLOW) => describe::reference_text(reference),
            _ => format!("{} bytes", node.value_len(slot)),
        };
        lines.push(format!("slot {slot}: {key}: value {value}{}", describe::flags_text(flags)));
    }
    if !node.is_leaf() {
        lines.push(format!("rightmost: {}", node.child(slots)));
    }
    lines
}

fn bitmap_lines(bytes: &[u8], id: PageId, defects: &mut Vec<String>) -> Vec<String> {
    let (group, _) = bitmap::locate(id);
    if bitmap::bitmap_page(group) != id {
        defects.push(format!("the bitmap of these pages is {}", bitmap::bitmap_page(group)));
    }
    let first = group.saturating_mul(bitmap::GROUP_PAGES);
    let last = first.saturating_add(bitmap::GROUP_PAGES - 1);
    let free = match bitmap::find_clear(bytes, 0) {
        Some(bit) => PageId::new(first.saturating_add(bit.into())).to_string(),
        None => "none".to_owned(),
    };
    vec![format!("for pages {first} to {last}"), format!("{} pages in use, first free: {free}", bitmap::count(bytes))]
}

fn overflow_lines(bytes: &[u8], defects: &mut Vec<String>) -> Vec<String> {
    let link = Link::read(bytes);
    if link.length as usize > PAGE_CONTENT {
        defects.push(format!("an overflow page holds at most {PAGE_CONTENT} bytes, not {}", link.length));
    }
    let next = if link.next.is_zero() { "none".to_owned() } else { link.next.to_string() };
    vec![
        format!("chain {:#x}, place {}", link.chain, link.place),
        format!("{} bytes of the value", link.length),
        format!("next: {next}"),
    ]
}

impl fmt::Display for PageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at level {}, {}, {}", self.page, self.page_type, self.level, self.gsn, self.table)?;
        if self.header_page != self.page {
            write!(f, ", its header names {}", self.header_page)?;
        }
        let checksum = match (self.has_checksum, self.checksum_ok) {
            (false, _) => "none: pages of a heap have no checksums; `duramen check` examines the structure",
            (true, true) => "ok",
            (true, false) => "wrong",
        };
        write!(f, "\nchecksum: {checksum}")?;
        for defect in &self.defects {
            write!(f, "\ndamaged: {defect}")?;
        }
        for line in &self.contents {
            write!(f, "\n{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{NodeMut, PageBuf};
    use proptest::prelude::*;

    fn leaf() -> Vec<u8> {
        let mut bytes = PageBuf::zeroed();
        let (id, table) = (PageId::new(9), TableId::new(16));
        let mut node = NodeMut::init(bytes.page_mut(), PageType::Leaf, 0, id, table, Some(b"k0"), Some(b"k9"));
        for (slot, key) in [b"k1", b"k2", b"k3"].into_iter().enumerate() {
            node.insert(slot, key, &[slot as u8; 50], SlotFlags::NONE).unwrap();
        }
        bytes.to_vec()
    }

    #[test]
    fn a_leaf_is_reported_with_fences_and_slots() {
        let mut bytes = leaf();
        page::seal(&mut bytes, page::DatabaseTag::of(&[3; 16]));
        let report = report(PageId::new(9), &bytes);
        assert!(report.checksum_ok && report.defects.is_empty(), "{report}");
        let text = report.to_string();
        assert!(text.contains("leaf at level 0"), "{text}");
        assert!(text.contains("lower fence (exclusive): 0x6b30 \"k0\" (2 bytes)"), "{text}");
        assert!(text.contains("slot 1: 0x6b32 \"k2\" (2 bytes): value 50 bytes"), "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn garbage_never_panics(seed: u64, page_type in 0..6u8, id: u64) {
            let mut state = seed;
            let mut bytes: Vec<u8> = (0..PAGE_SIZE)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            bytes[4] = page_type;
            let report = report(PageId::new(id), &bytes);
            prop_assert!(!report.checksum_ok && !report.defects.is_empty());
            prop_assert!(!report.to_string().is_empty());
        }

        #[test]
        fn damaged_leaves_never_panic(flips in prop::collection::vec((0..128usize, any::<u8>()), 1..8)) {
            let mut bytes = leaf();
            for (at, value) in flips {
                bytes[at] = value;
            }
            prop_assert!(!report(PageId::new(9), &bytes).to_string().is_empty());
        }
    }
}
