//! Operations on memory that threads share. Each is announced before it is performed, and between
//! the announcement and the operation no other simulated thread runs.

use crate::Time;
use crate::memory::Op;
use crate::run::{is_simulated, world, world_then_wait};

/// Announces that the caller loads an atomic variable next.
#[inline]
pub fn load<T>(variable: &T) {
    announce(variable, Op::Load);
}

/// Announces that the caller stores to an atomic variable next.
#[inline]
pub fn store<T>(variable: &T) {
    announce(variable, Op::Store);
}

/// Announces that the caller next reads and writes an atomic variable in one step, or tries to.
#[inline]
pub fn update<T>(variable: &T) {
    announce(variable, Op::Rmw);
}

/// Waits until the caller's earlier stores are visible to all threads.
#[inline]
pub fn fence() {
    announce(&(), Op::Fence);
}

#[inline]
fn announce<T>(variable: &T, op: Op) {
    if !is_simulated() {
        return;
    }
    world_then_wait(|world| world.turn());
    world(|world| world.access(std::ptr::from_ref(variable) as usize, op));
}

/// Spins: waits until another thread writes to one of the last few lines that the caller has loaded
/// from since its last pause, but no longer than `pauses` times the duration of a spin-loop hint.
pub fn pause(pauses: u32) {
    if !is_simulated() {
        std::hint::spin_loop();
        return;
    }
    world_then_wait(|world| world.turn());
    world_then_wait(|world| {
        let longest = world.description.pause().times(u64::from(pauses));
        world.spin(longest)
    });
}

/// Returns the virtual time since the start of the run, if the caller is in one.
pub fn now() -> Option<Time> {
    is_simulated().then(|| world(|world| world.current().now))
}
