//! The end of a log in memory, for its device.

use crate::buffer::positions::Space;
use crate::buffer::ring::Ring;
use crate::insert::AnyInsertion;

/// The buffer of one log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'a> {
    pub(crate) ring: &'a Ring,
    pub(crate) space: &'a Space,
    pub(crate) insertion: &'a AnyInsertion,
}

impl Tail<'_> {
    /// Brings `released` up to date, where that is put off.
    pub(crate) fn collect(&self) {
        self.insertion.collect(self.space);
    }
}
