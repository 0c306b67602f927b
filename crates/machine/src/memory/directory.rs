//! The state that the coherence protocol keeps of each line.

use super::Line;
use crate::Time;

const CHUNK_LINES: usize = 4096;
/// Lines of an operating system's page: memory is bound to nodes by pages.
const PAGE_LINES: usize = 64;

/// A line's entry. Cores and shared caches are counted through the machine.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Entry {
    /// Cores that have the line in their private caches, by bit.
    sharers: [u64; 2],
    /// When the line is available to the next context that needs it.
    pub(super) free_at: Time,
    /// Counts the writes.
    pub(super) version: u32,
    /// Shared caches that hold the line, by bit: those of all cores that have it, at least.
    pub(super) clusters: u16,
    /// The context that wrote last, plus one.
    writer: u16,
    /// The only core that has the line and may write it, plus one.
    owner: u8,
    /// The shared cache that must write the line back to memory, plus one; that of the owner while
    /// the owner has written to the line.
    dirty: u8,
}

const _: () = assert!(size_of::<Entry>() == 40);

impl Entry {
    pub(super) fn sharers(&self) -> u128 {
        u128::from(self.sharers[0]) | u128::from(self.sharers[1]) << 64
    }

    pub(super) fn set_sharers(&mut self, sharers: u128) {
        self.sharers = [sharers as u64, (sharers >> 64) as u64];
    }

    pub(super) fn owner(&self) -> Option<usize> {
        (self.owner != 0).then(|| usize::from(self.owner) - 1)
    }

    pub(super) fn set_owner(&mut self, core: Option<usize>) {
        self.owner = core.map_or(0, |core| core as u8 + 1);
    }

    pub(super) fn dirty(&self) -> Option<usize> {
        (self.dirty != 0).then(|| usize::from(self.dirty) - 1)
    }

    pub(super) fn set_dirty(&mut self, cluster: Option<usize>) {
        self.dirty = cluster.map_or(0, |cluster| cluster as u8 + 1);
    }

    pub(super) fn written_by(&self, context: usize) -> bool {
        usize::from(self.writer) == context + 1
    }

    pub(super) fn write(&mut self, context: usize) {
        self.writer = context as u16 + 1;
        self.version = self.version.wrapping_add(1);
    }
}

/// Where a page's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Home {
    pub(super) node: usize,
    pub(super) nvm: bool,
}

#[derive(Debug)]
struct Chunk {
    entries: Box<[Entry]>,
    /// Of each page: 0 if no context has touched it, else the node plus one; the highest bit is set
    /// for non-volatile memory.
    homes: [u8; CHUNK_LINES / PAGE_LINES],
}

const NVM: u8 = 0x80;

/// The entries of all lines, made as they are first used.
#[derive(Default, Debug)]
pub(super) struct Directory {
    chunks: Vec<Option<Chunk>>,
}

impl Directory {
    pub(super) fn entry(&mut self, line: Line) -> &mut Entry {
        &mut self.chunk(line).entries[line.0 as usize % CHUNK_LINES]
    }

    /// Returns the state of the line, which may never have been used.
    pub(super) fn version(&self, line: Line) -> u32 {
        let chunk = self.chunks.get(line.0 as usize / CHUNK_LINES).and_then(Option::as_ref);
        chunk.map_or(0, |chunk| chunk.entries[line.0 as usize % CHUNK_LINES].version)
    }

    /// Returns the home of the line. The node of `toucher` becomes the home of a page that no
    /// context has touched.
    pub(super) fn home(&mut self, line: Line, toucher: usize) -> Home {
        let home = self.home_byte(line);
        if *home & !NVM == 0 {
            *home |= toucher as u8 + 1;
        }
        Home { node: usize::from(*home & !NVM) - 1, nvm: *home & NVM != 0 }
    }

    /// Binds the pages of the lines to a node.
    pub(super) fn bind(&mut self, first: Line, lines: u64, home: Home) {
        let byte = (home.node as u8 + 1) | if home.nvm { NVM } else { 0 };
        let pages = PAGE_LINES as u64;
        for page in first.0 / pages..(first.0 + lines).div_ceil(pages) {
            *self.home_byte(Line(page * pages)) = byte;
        }
    }

    fn home_byte(&mut self, line: Line) -> &mut u8 {
        &mut self.chunk(line).homes[line.0 as usize % CHUNK_LINES / PAGE_LINES]
    }

    fn chunk(&mut self, line: Line) -> &mut Chunk {
        let number = line.0 as usize / CHUNK_LINES;
        if self.chunks.get(number).is_none_or(Option::is_none) {
            self.make(number);
        }
        self.chunks[number].as_mut().expect("made just now")
    }

    #[cold]
    fn make(&mut self, number: usize) {
        if number >= self.chunks.len() {
            self.chunks.resize_with(number + 1, || None);
        }
        let entries = vec![Entry::default(); CHUNK_LINES].into();
        self.chunks[number] = Some(Chunk { entries, homes: [0; CHUNK_LINES / PAGE_LINES] });
    }
}
