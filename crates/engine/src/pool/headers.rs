//! The header of a frame, and the headers of all frames: of 128 bytes each, which a native build
//! takes from the system when the frame is first used.

use duramen_sync::CachePadded;
use duramen_sync::atomic::{AtomicBool, AtomicU64};

use super::changed_lines::ChangedLines;
use super::latch::Latch;
use super::recovery_gsn::RecoveryGsn;
use crate::zeroed::{Zeroed, ZeroedSlice};

/// The state of a frame and of the page in it.
#[derive(Debug)]
pub(super) struct Header {
    /// Guards the frame's bytes, and the fields below as their comments say.
    pub(super) latch: Latch,
    /// The page in the frame, or 0 for none. Changes only under the exclusive latch, in a section
    /// that increments the version.
    pub(super) page: AtomicU64,
    /// Whether the page is dirty, and from which log record on.
    pub(super) recovery_gsn: RecoveryGsn,
    /// The lines that are not in the store yet, unless the pool reads the store in its place.
    pub(super) changed: ChangedLines,
    /// Whether the page was used since the eviction clock last passed.
    pub(super) referenced: AtomicBool,
    /// The sequence number of this page's arrival among all pages ever brought into a frame.
    /// Changes under the same rule as `page`.
    pub(super) arrival: AtomicU64,
    /// Combines the arrivals of the page and of the page that it was last found to be a child of;
    /// see [`super::Optimistic::is_known_child_of`].
    pub(super) child_of: AtomicU64,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            latch: Latch::new(),
            page: AtomicU64::new(0),
            recovery_gsn: RecoveryGsn::new(),
            changed: ChangedLines::default(),
            referenced: AtomicBool::new(false),
            arrival: AtomicU64::new(0),
            child_of: AtomicU64::new(0),
        }
    }
}

// SAFETY: all fields are atomic integers and booleans, whose representation is that of their value.
unsafe impl Zeroed for CachePadded<Header> {}

/// The headers of all frames.
pub(super) type Headers = ZeroedSlice<CachePadded<Header>>;

// The documents state what the headers take where each page of a store has one.
#[cfg(all(target_arch = "x86_64", not(any(duramen_loom, duramen_machine))))]
const _: () = assert!(size_of::<CachePadded<Header>>() == 128);

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_new_headers() {
        let headers = Headers::new(3).unwrap();
        assert_eq!(headers.len(), 3);
        for header in &*headers {
            assert_eq!(format!("{header:?}"), format!("{:?}", CachePadded::new(Header::default())));
        }
    }
}
