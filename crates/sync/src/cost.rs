//! States the cost of the code between two operations on shared memory: the plain data that it
//! touches and the instructions that it executes.
//!
//! The simulated machine charges this cost; in every other build the calls are empty. A few calls
//! at the expensive places suffice: copies into the log and out of it, pages read and written, the
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
    /// The kind of work that a thread does; the categories of time breakdowns.
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

    /// Attributes the caller's time to a category until it is dropped.
    #[derive(Debug)]
    #[must_use = "the category holds while the value lives"]
    pub struct Scope(());

    /// States that the caller works on `category` until the value is dropped.
    #[inline(always)]
    pub fn scope(_category: Category) -> Scope {
        Scope(())
    }

    /// States that the caller reads the `len` bytes at `data`.
    #[inline(always)]
    pub fn read<T: ?Sized>(_data: *const T, _len: usize) {}

    /// States that the caller reads the `len` bytes at `data`, which other threads may be changing.
    #[inline(always)]
    pub fn read_racing<T: ?Sized>(_data: *const T, _len: usize) {}

    /// States that the caller writes the `len` bytes at `data`.
    #[inline(always)]
    pub fn write<T: ?Sized>(_data: *const T, _len: usize) {}

    /// States that the caller writes the `len` bytes at `data` past the caches.
    #[inline(always)]
    pub fn stream<T: ?Sized>(_data: *const T, _len: usize) {}

    /// States that the caller flushes the written lines among the `len` bytes at `data` to memory.
    #[inline(always)]
    pub fn flush<T: ?Sized>(_data: *const T, _len: usize) {}

    /// States that the caller executes this number of instructions.
    #[inline(always)]
    pub fn work(_instructions: u64) {}

    /// States that the caller visits the page, or other object, with this number.
    #[inline(always)]
    pub fn visit(_thing: u64) {}

    /// States that the caller maps the `len` bytes at `base`, `copies` times in a row.
    #[inline(always)]
    pub fn map(_base: *const u8, _len: usize, _copies: usize) {}

    /// States that the caller is about to unmap what was mapped at `base`.
    #[inline(always)]
    pub fn unmap(_base: *const u8) {}

    /// States that the `len` bytes at `base` are in the memory of `node`.
    #[inline(always)]
    pub fn bind(_base: *const u8, _len: usize, _node: usize) {}

    /// States that the `len` bytes at `base` are in the non-volatile memory of `node`.
    #[inline(always)]
    pub fn bind_nvm(_base: *const u8, _len: usize, _node: usize) {}
}
