//! What the code between two operations on shared memory costs: data touched and instructions
//! executed.
//!
//! Calls from outside a run do nothing.

use crate::Category;
use crate::arena;
use crate::memory::Bulk;
use crate::run::{is_simulated, world, world_then_wait};
use crate::world::World;

/// Instructions that stand for the code around a small read of a page: calibrated against native
/// runs.
const RACING_READ: u64 = 4;

/// Charges the caller for reading the `len` bytes at `data`.
#[inline]
pub fn read<T: ?Sized>(data: *const T, len: usize) {
    touch(data.cast::<u8>() as usize, len, Bulk::Read);
}

/// Charges the caller for reading the `len` bytes at `data`, which other threads may be changing:
/// under schedules that look for bugs, those threads may run before the read.
#[inline]
pub fn read_racing<T: ?Sized>(data: *const T, len: usize) {
    if is_simulated() {
        world_then_wait(World::turn_among_races);
        world(|world| {
            world.compute(RACING_READ);
            world.touch(data.cast::<u8>() as usize, len, Bulk::Read);
        });
    }
}

/// Charges the caller for writing the `len` bytes at `data`.
#[inline]
pub fn write<T: ?Sized>(data: *const T, len: usize) {
    touch(data.cast::<u8>() as usize, len, Bulk::Write);
}

/// Charges the caller for writing the `len` bytes at `data` past the caches.
#[inline]
pub fn stream<T: ?Sized>(data: *const T, len: usize) {
    touch(data.cast::<u8>() as usize, len, Bulk::Stream);
}

fn touch(address: usize, len: usize, how: Bulk) {
    if is_simulated() {
        world(|world| world.touch(address, len, how));
    }
}

/// Charges the caller for this number of instructions.
#[inline]
pub fn work(instructions: u64) {
    if is_simulated() {
        world(|world| world.compute(instructions));
    }
}

/// Records a visit of the caller to the page with this number. The model counts visits, and those
/// that come from another socket than the visit before.
#[inline]
pub fn visit(thing: u64) {
    if is_simulated() {
        world(|world| world.visit(thing));
    }
}

/// Records that the caller has mapped the `len` bytes at `base`, `copies` times in a row.
pub fn map(base: *const u8, len: usize, copies: usize) {
    if is_simulated() {
        world(|world| world.lines.map(base as usize, len, copies));
        arena::own(base as usize, len * copies);
    }
}

/// Records that the mapping at `base` is about to be removed.
pub fn unmap(base: *const u8) {
    arena::disown(base as usize);
}

/// Binds the `len` bytes at `base` to the memory of `node`. Unbound memory belongs to the node that
/// touches it first.
pub fn bind(base: *const u8, len: usize, node: usize) {
    if is_simulated() {
        world(|world| world.bind(base as usize, len, node, false));
    }
}

/// Binds the `len` bytes at `base` to the non-volatile memory of `node`, or to its other memory if
/// it has none.
pub fn bind_nvm(base: *const u8, len: usize, node: usize) {
    if is_simulated() {
        world(|world| world.bind(base as usize, len, node, true));
    }
}

/// Sends the lines of the `len` bytes at `data` to memory if they have been written to; a fence
/// waits for that.
#[inline]
pub fn flush<T: ?Sized>(data: *const T, len: usize) {
    touch(data.cast::<u8>() as usize, len, Bulk::Flush);
}

/// Keeps the caller busy for this time.
#[inline]
pub fn busy(time: crate::Time) {
    if is_simulated() {
        world(|world| world.spend(time));
    }
}

/// Charges the caller's time to a category until the value is dropped.
#[derive(Debug)]
#[must_use = "the category holds while the value lives"]
pub struct Scope(Option<Category>);

/// Charges the caller's time to `category` from now on.
#[inline]
pub fn scope(category: Category) -> Scope {
    Scope(is_simulated().then(|| world(|world| std::mem::replace(&mut world.current().category, category))))
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(category) = self.0
            && is_simulated()
        {
            world(|world| world.current().category = category);
        }
    }
}
