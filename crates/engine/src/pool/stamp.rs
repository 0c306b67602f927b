//! Stamps: the database and the generation that a file belongs to (see `generation.rs`).

use duramen_io::{AlignedBuf, File};
use duramen_types::{PAGE_SIZE, PageId, TableId};

use crate::error::{Error, Result};
use crate::page::{self, DatabaseTag, Lines, PageDefect, PageMut, PageType};

/// The advice for a file that does not have the expected generation.
pub(crate) const REMEDY: &str = "put the original file back if it still exists";

const DATABASE: usize = page::PAGE_HEADER_SIZE;
const GENERATION: usize = DATABASE + 16;

/// Names the database and the generation that a file belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) database: [u8; 16],
    pub(crate) generation: u64,
}

impl Stamp {
    /// Writes the stamp of a data file, durably. The stamp lies in one sector, so it cannot be
    /// torn.
    pub(crate) fn write(self, data: &dyn File) -> duramen_io::Result<()> {
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        let mut lines = Lines::NONE;
        let mut page = PageMut::new(&mut bytes, &mut lines);
        page::init_header(&mut page, PageType::Stamp, 0, PageId::ZERO, TableId::ZERO);
        page.put(DATABASE, &self.database);
        page.put(GENERATION, &self.generation.to_le_bytes());
        page::seal(&mut bytes, DatabaseTag::of(&self.database));
        data.write_durable(&[&bytes], 0)
    }

    /// Returns the stamp in a page of this kind.
    pub(crate) fn of_page(page: &[u8]) -> Self {
        let database = page[DATABASE..GENERATION].try_into().expect("sixteen bytes");
        let generation = page[GENERATION..GENERATION + 8].try_into().expect("eight bytes");
        Self { database, generation: u64::from_le_bytes(generation) }
    }

    /// Reads the stamp of a data file.
    pub(crate) fn read(data: &dyn File) -> Result<Self> {
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        data.read_at(&mut bytes, 0)?;
        let defect = match page::verify(&bytes, PageId::ZERO) {
            Ok(()) if page::page_type(&bytes) == Some(PageType::Stamp) => return Ok(Self::of_page(&bytes)),
            Ok(()) => "another page is in its place".to_owned(),
            Err(PageDefect::Blank) => "it is blank, as in files of formats without stamps".to_owned(),
            Err(defect) => defect.to_string(),
        };
        let reason = format!("its stamp, which tells how old the file is, is unusable: {defect}; {REMEDY}");
        Err(Error::Corrupt { file: data.path(), offset: 0, page: None, reason })
    }
}
