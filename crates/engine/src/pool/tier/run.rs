//! Writing back in runs.
//!
//! On a disk where the place of a write costs more than its length (a hard disk, storage behind a
//! network), a page that leaves the tier takes its neighbourhood along: the aligned group of `run`
//! pages of the data file in which it is. All pages of the tier in this group leave together. What
//! lies between them is read from the data file and written again as it is, so that the group is
//! one write. A tier with a tenth of the data has six pages in a group of 64, and one write instead
//! of six.
//!
//! Only the tier writes to the data file, one batch at a time, so what is read there stays as it is
//! until it is written again. A page between that is damaged, outdated or unreadable, or that
//! nobody has written yet, is left out, and the write has two parts.

use duramen_io::AlignedBuf;
use duramen_types::{PAGE_SIZE, PageId};

use super::super::batch::Batch;
use super::super::page_store::PageStore;
use super::TieredPages;
use super::slots::Slot;

/// Returns how many pages one run of these pages, which are in order, takes from its first to its
/// last.
pub(super) fn span(pages: &[(PageId, Slot)]) -> usize {
    match pages {
        [] => 0,
        [(first, _), .., (last, _)] => (last.get() - first.get() + 1) as usize,
        [_] => 1,
    }
}

impl TieredPages {
    /// Puts pages that leave the tier into `batch`, in the order of their numbers, and between them
    /// the other pages of their runs. `bytes` has those that leave.
    pub(super) fn fill_runs(&self, leaving: &[(PageId, Slot)], bytes: &[u8], batch: &mut Batch) {
        batch.clear();
        let mut bytes = bytes.chunks_exact(PAGE_SIZE);
        for run in leaving.chunk_by(|(a, _), (b, _)| a.get() / self.run == b.get() / self.run) {
            let (first, pages) = (run[0].0, span(run));
            let mut around = AlignedBuf::zeroed(if pages > run.len() { pages * PAGE_SIZE } else { 0 });
            // Nobody waits for these pages here: if they cannot be read, they are left out.
            let is_read = !around.is_empty() && self.file.read_batch(&mut [(first, &mut around)]).is_ok();
            let mut run = run.iter().peekable();
            for at in 0..pages {
                let page = PageId::new(first.get() + at as u64);
                if run.next_if(|(leaving, _)| *leaving == page).is_some() {
                    batch.push_whole(page, bytes.next().expect("there are bytes of each page"));
                } else if is_read {
                    let present = &around[at * PAGE_SIZE..][..PAGE_SIZE];
                    // Not older than recorded: the page of a slot that has decayed is, and so is
                    // one whose write was lost. Writing that again would record the older version.
                    if self.file.verify(page, true, present).is_ok() {
                        batch.push_whole(page, present);
                    }
                }
            }
        }
    }
}
