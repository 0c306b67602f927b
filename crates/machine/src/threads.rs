//! Threads and their computer, as the threads themselves see them.

use std::any::Any;
use std::io;

use crate::fiber::Fiber;
use crate::run::{self, world, world_then_wait};
use crate::thread::{State, Wait};
use crate::world::{End, World};
use crate::{Breakdown, Time, Visits};

pub use crate::thread::ThreadId;

/// Starts a simulated thread.
///
/// # Errors
/// The host has no memory for another stack.
pub fn spawn(name: &str, body: impl FnOnce() + 'static) -> io::Result<ThreadId> {
    world_then_wait(World::turn);
    let body = run::body(body);
    world(|world| {
        let call = world.description.wake_call();
        world.spend(call);
        Ok(world.start(name.to_owned(), Fiber::new(body)?))
    })
}

/// Waits until a thread has ended. The first call returns its panic, if any.
pub fn join(thread: ThreadId) -> Option<Box<dyn Any + Send>> {
    world_then_wait(World::turn);
    world_then_wait(|world| {
        if world.thread_mut(thread).state == State::Ended {
            return false;
        }
        let current = world.current_id();
        world.thread_mut(thread).joiners.push(current);
        world.block(Wait::End(thread), Time::NEVER);
        true
    });
    world(|world| world.thread_mut(thread).panic.take())
}

/// Returns whether a thread has ended.
pub fn has_ended(thread: ThreadId) -> bool {
    world_then_wait(World::turn);
    world(|world| world.thread_mut(thread).state == State::Ended)
}

/// Returns the calling thread.
pub fn current() -> ThreadId {
    world(|world| world.current_id())
}

/// Calls `f` with a count that the calling thread has for itself, at first zero. Takes no time.
pub fn with_nesting<R>(f: impl FnOnce(&mut u32) -> R) -> R {
    world(|world| f(&mut world.current().nesting))
}

/// Returns the name of the calling thread.
pub fn current_name() -> String {
    world(|world| world.current().name.clone())
}

/// Sleeps for `time`.
pub fn sleep(time: Time) {
    world_then_wait(World::turn);
    world_then_wait(|world| {
        let deadline = world.current().now + time;
        world.block(Wait::Sleep, deadline);
        true
    });
}

/// Lets other threads have the caller's context.
pub fn yield_now() {
    world_then_wait(World::give_way);
}

/// Charges the caller for a system call of this duration.
pub fn system_call(time: Time) {
    world(|world| world.spend(time));
}

/// Returns the context that the caller runs on.
pub fn context() -> usize {
    world(|world| world.current().context)
}

/// Returns the memory node (socket) of the context that the caller runs on.
pub fn node() -> usize {
    world(|world| {
        let context = world.current().context;
        world.description.socket_of(context)
    })
}

/// Returns the number of memory nodes of the computer.
pub fn nodes() -> usize {
    world(|world| world.description.nodes())
}

/// Returns the number of contexts of the computer.
pub fn contexts() -> usize {
    world(|world| world.description.contexts())
}

/// Returns the next of the caller's own random numbers.
pub fn random() -> u64 {
    world(|world| {
        let state = &mut world.current().chance;
        let mut chance = crate::schedule::Chance::new(*state);
        let number = chance.next();
        *state = number;
        number
    })
}

/// Returns the time that the caller has had a context for.
pub fn processor_time() -> Time {
    world(|world| world.current().on_processor)
}

/// What all threads have used so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Time on contexts.
    pub processor: Time,
    /// Times that a thread gave up its context to wait.
    pub voluntary_switches: u64,
    /// Times that a thread's slice was over.
    pub involuntary_switches: u64,
    /// Where the time on contexts went.
    pub breakdown: Breakdown,
    /// Visits to pages.
    pub visits: Visits,
    /// Requests that private caches could not answer: to other caches and to memory.
    pub off_core: u64,
}

/// Returns what all threads have used so far.
pub fn usage() -> Usage {
    world(|world| {
        let off_core = world.off_core_requests();
        let mut usage = Usage { visits: world.visits, off_core, ..Usage::default() };
        for thread in &world.threads {
            usage.processor += thread.on_processor;
            usage.voluntary_switches += thread.voluntary_switches;
            usage.involuntary_switches += thread.involuntary_switches;
            usage.breakdown.merge(&thread.breakdown);
        }
        usage
    })
}

/// Ends the run because the caller cannot continue. No stack is unwound, and nothing that a thread
/// holds is dropped.
pub fn abort(why: &str) -> ! {
    world_then_wait(|world| {
        world.note(why);
        why.clone_into(&mut world.abortion);
        world.end = Some(End::Aborted);
        true
    });
    unreachable!("an aborted run is not resumed")
}

/// Switches the power off: no simulated thread continues, and nothing that the threads hold is
/// dropped.
pub fn stop() -> ! {
    world_then_wait(|world| {
        world.end = Some(End::Stopped);
        true
    });
    unreachable!("a stopped run is not resumed")
}
