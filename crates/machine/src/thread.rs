//! A simulated thread.

use std::any::Any;
use std::ops::Range;

use corosensei::Yielder;

use crate::Time;
use crate::breakdown::{Breakdown, Category};
use crate::fiber::Fiber;
use crate::line::Line;

/// Number of a simulated thread, in the order of starting; the first one is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadId(pub(crate) u32);

impl ThreadId {
    /// Threads are numbered from zero in the order of their start.
    pub fn number(self) -> u64 {
        u64::from(self.0)
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It runs, or will at the time that the queue says.
    Ready,
    /// It waits for its turn on its context, behind other threads.
    Queued,
    /// It spins on its context until one of the lines that it has read changes.
    Spinning,
    /// It sleeps or waits to be woken; its context is free.
    Blocked(Wait),
    /// It has ended.
    Ended,
}

/// What a blocked thread waits for, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// A point in time.
    Sleep,
    /// A change of the word at this address.
    Word(usize),
    /// The end of a thread.
    End(ThreadId),
}

/// The most lines of a spin loop that are watched.
pub(crate) const WATCHED: usize = 4;

/// A simulated thread.
pub(crate) struct Thread {
    pub(crate) name: String,
    /// Its code, when it is not running.
    pub(crate) fiber: Option<Fiber>,
    stack: Range<usize>,
    /// Suspends its code; lives on its own stack.
    pub(crate) yielder: *const Yielder<(), ()>,
    pub(crate) state: State,
    /// Its virtual time.
    pub(crate) now: Time,
    /// The context it runs on, or ran on last.
    pub(crate) context: usize,
    /// Counts its waits, so that a wake-up for an earlier one is recognised.
    pub(crate) wait: u64,
    /// Since when it is blocked.
    pub(crate) blocked_since: Time,
    /// Whether the last wait ended by a wake-up, not by its deadline.
    pub(crate) woken: bool,
    /// Lines it has loaded from since the last pause, with their versions then.
    pub(crate) watched: Vec<(Line, u64)>,
    /// Threads waiting for its end.
    pub(crate) joiners: Vec<ThreadId>,
    /// Its panic, until a thread takes it.
    pub(crate) panic: Option<Box<dyn Any + Send>>,
    /// The category that its time is charged to.
    pub(crate) category: Category,
    pub(crate) breakdown: Breakdown,
    /// Time that it had a context for.
    pub(crate) on_processor: Time,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// State of its random numbers.
    pub(crate) chance: u64,
    /// A count of its own for the program: how deeply it is nested in sections.
    pub(crate) nesting: u32,
    /// Rank under [`crate::Schedule::Priorities`].
    pub(crate) priority: i64,
}

impl Thread {
    pub(crate) fn new(name: String, fiber: Fiber, now: Time, context: usize, priority: i64, chance: u64) -> Self {
        Self {
            name,
            stack: fiber.stack(),
            fiber: Some(fiber),
            yielder: std::ptr::null(),
            state: State::Queued,
            now,
            context,
            wait: 0,
            blocked_since: Time::ZERO,
            woken: false,
            watched: Vec::new(),
            joiners: Vec::new(),
            panic: None,
            category: Category::Work,
            breakdown: Breakdown::default(),
            on_processor: Time::ZERO,
            voluntary_switches: 0,
            involuntary_switches: 0,
            chance,
            nesting: 0,
            priority,
        }
    }

    /// Suspends its code.
    pub(crate) fn fiber_yielder(&self) -> *const Yielder<(), ()> {
        assert!(!self.yielder.is_null(), "a running thread has begun");
        self.yielder
    }

    /// Returns whether the address lies on its own stack.
    pub(crate) fn has_on_stack(&self, address: usize) -> bool {
        self.stack.contains(&address)
    }

    /// Lets the time pass until `until`, which may lie in the past.
    pub(crate) fn spend(&mut self, until: Time, waiting: bool) {
        let spent = until.saturating_sub(self.now);
        self.now += spent;
        self.on_processor += spent;
        self.breakdown.add(self.category, waiting, spent);
    }

    /// Records that it has read a line.
    pub(crate) fn watch(&mut self, line: Line, version: u64) {
        if let Some(known) = self.watched.iter_mut().find(|known| known.0 == line) {
            known.1 = version;
        } else {
            if self.watched.len() == WATCHED {
                self.watched.remove(0);
            }
            self.watched.push((line, version));
        }
    }
}
