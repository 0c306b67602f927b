//! What the code between two operations on shared memory costs: the plain data it touches, the
//! instructions it executes.
//!
//! The simulated machine charges it; in every other build the calls are empty. A few calls at the
//! places that matter are enough: copies into the log and out of it, pages read and written, the
//! length of a search.

#[cfg(duramen_machine)]
pub use duramen_machine::Category;
#[cfg(duramen_machine)]
pub use duramen_machine::cost::{
    Scope, bind, bind_nvm, flush, map, read, read_racing, scope, stream, unmap, visit, work, write,
};

#[cfg(not(duramen_machine))]
pub use empty::{
    Category, Scope, bind, bind_nvm, flush, map, read, read_racing, scope, stream, unmap, visit, work, write,
};

#[cfg(not(duramen_machine))]
mod empty {
    /// What a thread works on; the categories of time breakdowns.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Category {
        /// The transaction's own work.
        Work,
        /// The log: records and the log buffer.
        Log,
        /// The lock manager.
        Lock,
        /// Latches of pages.
        Latch,
        /// The buffer pool.
        Buffer,
        /// Beginning, committing and aborting transactions.
        Commit,
    }

    /// Puts the caller's time down to a category until it is dropped.
    #[derive(Debug)]
    #[must_use = "the category holds while the value lives"]
    pub struct Scope(());

    /// The caller works on `category` until the value is dropped.
    #[inline(always)]
    pub fn scope(_category: Category) -> Scope {
        Scope(())
    }

    /// The caller reads the `len` bytes at `data`.
    #[inline(always)]
    pub fn read<T: ?Sized>(_data: *const T, _len: usize) {}

    /// The caller reads the `len` bytes at `data`, which others may be changing.
    #[inline(always)]
    pub fn read_racing<T: ?Sized>(_data: *const T, _len: usize) {}

    /// The caller writes the `len` bytes at `data`.
    #[inline(always)]
    pub fn write<T: ?Sized>(_data: *const T, _len: usize) {}

    /// The caller writes the `len` bytes at `data` past the caches.
    #[inline(always)]
    pub fn stream<T: ?Sized>(_data: *const T, _len: usize) {}

    /// The caller sends the lines of the `len` bytes at `data` to memory if they have been written
    /// to.
    #[inline(always)]
    pub fn flush<T: ?Sized>(_data: *const T, _len: usize) {}

    /// The caller executes so many instructions.
    #[inline(always)]
    pub fn work(_instructions: u64) {}

    /// The caller visits something with this number, a page.
    #[inline(always)]
    pub fn visit(_thing: u64) {}

    /// The `len` bytes at `base` are mapped by the caller, `copies` times in a row.
    #[inline(always)]
    pub fn map(_base: *const u8, _len: usize, _copies: usize) {}

    /// What was mapped at `base` is about to be unmapped.
    #[inline(always)]
    pub fn unmap(_base: *const u8) {}

    /// The `len` bytes at `base` lie in the memory of `node`.
    #[inline(always)]
    pub fn bind(_base: *const u8, _len: usize, _node: usize) {}

    /// The `len` bytes at `base` lie in the non-volatile memory of `node`.
    #[inline(always)]
    pub fn bind_nvm(_base: *const u8, _len: usize, _node: usize) {}
}
