//! Waiting at a word of memory, as the operating system offers it. Locks and condition variables
//! are built on it.

use crate::Time;
use crate::run::{world, world_then_wait};
use crate::thread::{State, Wait};
use crate::world::World;

/// Waits until [`wake`] is called for the word at `address`, but no longer than `timeout`. Does not
/// wait if `unchanged` is false in the caller's turn. Returns whether the caller was woken or did
/// not have to wait.
pub fn wait(address: usize, unchanged: impl FnOnce() -> bool, timeout: Option<Time>) -> bool {
    world_then_wait(World::turn);
    if !unchanged() {
        return true;
    }
    world_then_wait(|world| {
        let call = world.description.wake_call();
        world.spend(call);
        let now = world.current().now;
        let deadline = timeout.map_or(Time::NEVER, |timeout| now + timeout);
        world.block(Wait::Word(address), deadline);
        let (thread, wait) = (world.current_id(), world.current().wait);
        world.words.entry(address).or_default().push_back((thread, wait));
        true
    });
    world(|world| {
        let woken = world.current().woken;
        if !woken {
            world.forget(address);
        }
        woken
    })
}

/// Wakes up to `count` threads that wait at the word at `address`, in the order of their arrival.
/// Returns how many.
pub fn wake(address: usize, count: usize) -> usize {
    world_then_wait(World::turn);
    world(|world| {
        let mut woken = 0;
        while woken < count {
            let Some(waiting) = world.words.get_mut(&address) else { break };
            let Some((thread, wait)) = waiting.pop_front() else {
                world.words.remove(&address);
                break;
            };
            let waiter = &world.threads[thread.index()];
            if waiter.wait == wait && waiter.state == State::Blocked(Wait::Word(address)) {
                let call = world.description.wake_call();
                world.spend(call);
                let now = world.current().now;
                world.wake(thread, now);
                woken += 1;
            }
        }
        woken
    })
}
