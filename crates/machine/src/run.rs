//! A run: simulated threads, from the first one's start to its end.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Once;

use corosensei::Yielder;

use crate::Time;
use crate::arena::{self, Heap};
use crate::breakdown::Breakdown;
use crate::fiber::Fiber;
use crate::memory::Counters;
use crate::plan::Plan;
use crate::thread::ThreadId;
use crate::world::{End, World};

/// How a run went.
#[derive(Debug)]
pub struct Report<T> {
    /// How it ended, with what the first thread returned.
    pub outcome: Outcome<T>,
    /// Virtual time that has passed.
    pub time: Time,
    /// Operations on shared memory.
    pub operations: u64,
    /// Where the time of all threads went.
    pub breakdown: Breakdown,
    /// What the memory did.
    pub memory: Counters,
    /// Of everything that happened, in order: two runs with the same digest took the same path.
    pub digest: u64,
    /// How often each rare branch was taken ([`crate::probe`]), by number; those with higher
    /// numbers never.
    pub probes: Vec<u64>,
    /// The trace, if one was wanted.
    pub trace: Vec<String>,
    /// What the threads have allocated and not freed; `outcome` may point into it.
    heap: Box<Heap>,
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// The first thread returned. Others that had not ended were stopped where they were.
    Done(T),
    /// [`crate::threads::stop`] was called: the power is off.
    Stopped,
    /// [`crate::threads::abort`] was called: a thread could not continue, and gave a reason.
    Aborted(String),
    /// A limit of the plan was reached.
    OutOfTime(String),
    /// Every thread waited for another: what each one waited for, a line each.
    Deadlock(String),
}

impl<T> Report<T> {
    /// Returns the number of bytes of address space that the run's heap has taken.
    pub fn heap_bytes(&self) -> u64 {
        self.heap.used() as u64
    }
}

thread_local! {
    /// The run that this host thread is in.
    static WORLD: Cell<Option<NonNull<World>>> = const { Cell::new(None) };
}

/// Returns whether the caller is a simulated thread.
#[inline]
pub fn is_simulated() -> bool {
    WORLD.get().is_some()
}

/// Calls `f`; what it allocates belongs to the host and outlives the run. `f` must do nothing that
/// waits for other threads.
pub fn on_host<R>(f: impl FnOnce() -> R) -> R {
    let heap = arena::switch(None);
    let result = f();
    arena::switch(heap);
    result
}

/// Calls `f` with the run that the caller is in. What `f` allocates belongs to the host.
#[inline]
pub(crate) fn world<R>(f: impl FnOnce(&mut World) -> R) -> R {
    let mut world = WORLD.get().expect("the caller is a simulated thread");
    let heap = arena::switch(None);
    // SAFETY: the world lives as long as it is set, only this host thread uses it, and `f` neither
    // suspends nor comes back here.
    let result = f(unsafe { world.as_mut() });
    arena::switch(heap);
    result
}

/// As [`world`]; then, if `f` returns true, other simulated threads run on the host thread until
/// this one's turn comes.
#[inline]
pub(crate) fn world_then_wait(f: impl FnOnce(&mut World) -> bool) {
    let yielder = world(|world| f(world).then(|| world.current().fiber_yielder()));
    if let Some(yielder) = yielder {
        // SAFETY: the yielder lives on the running fiber's own stack.
        unsafe { (*yielder).suspend(()) };
    }
}

/// Runs the body of a fiber, `work`, and keeps its panic for the thread that joins it.
pub(crate) fn body(work: impl FnOnce() + 'static) -> impl FnOnce(*const Yielder<(), ()>) + 'static {
    move |yielder| {
        world(|world| world.started(yielder));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            world(|world| world.panicked(panic));
        }
    }
}

/// Returns what a simulated thread has panicked with, in a form that may outlive its run.
fn outlive(panic: Box<dyn Any + Send>, heap: Box<Heap>) -> Box<dyn Any + Send> {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        return Box::new(*text);
    }
    if let Some(text) = panic.downcast_ref::<String>() {
        return Box::new(text.clone());
    }
    // It lies in the heap.
    std::mem::forget(heap);
    panic
}

/// Lets panics be reported with the host's memory: backtraces are made with tables that are kept.
fn report_panics_on_host() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| on_host(|| report(info))));
    });
}

/// Runs `main` as the first simulated thread, to its end.
///
/// # Panics
/// When `main` does; when the caller is itself a simulated thread.
pub fn run<T: 'static>(plan: &Plan, main: impl FnOnce() -> T + 'static) -> Report<T> {
    assert!(!is_simulated(), "a simulated machine cannot run within another");
    report_panics_on_host();
    let mut heap = Heap::new();
    let mut world = Box::new(World::new(plan, heap.base()));
    let result = std::rc::Rc::new(Cell::new(None));
    let slot = std::rc::Rc::clone(&result);
    let fiber = Fiber::new(body(move || slot.set(Some(main())))).expect("the host has memory for a stack");
    world.start("main".to_owned(), fiber);
    WORLD.set(Some(NonNull::from(&mut *world)));
    let heap_pointer = NonNull::from(&mut *heap);
    let end = loop {
        match world.next() {
            Ok(thread) => {
                let mut fiber = world.take_fiber(thread);
                arena::switch(Some(heap_pointer));
                let ended = fiber.resume();
                arena::switch(None);
                if ended {
                    fiber.discard();
                    world.ended(thread);
                } else {
                    world.put_fiber(thread, fiber);
                }
            }
            Err(end) => break end,
        }
    };
    WORLD.set(None);
    let panic = world.thread_mut(ThreadId(0)).panic.take();
    let mut breakdown = Breakdown::default();
    for thread in &mut world.threads {
        breakdown.merge(&thread.breakdown);
        if let Some(fiber) = thread.fiber.take() {
            fiber.discard();
        }
    }
    if let Some(panic) = panic {
        resume_unwind(outlive(panic, heap));
    }
    let outcome = match end {
        End::Done => Outcome::Done(result.take().expect("the first thread has returned")),
        End::Stopped => Outcome::Stopped,
        End::Aborted => Outcome::Aborted(std::mem::take(&mut world.abortion)),
        End::OutOfTime => Outcome::OutOfTime(world.waits()),
        End::Deadlock => Outcome::Deadlock(world.waits()),
    };
    Report {
        outcome,
        time: world.time(),
        operations: world.operations,
        breakdown,
        memory: world.memory.counters(),
        digest: world.digest,
        probes: std::mem::take(&mut world.probes),
        trace: world.trace.take().map(|trace| trace.finish()).unwrap_or_default(),
        heap,
    }
}
