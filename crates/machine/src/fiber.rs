//! Stacks that take turns on one host thread.

use std::cell::RefCell;
use std::ops::Range;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Bytes of a stack. Only what is used takes memory.
const STACK_BYTES: usize = 1 << 20;

thread_local! {
    /// Stacks of fibers that have ended: making one costs far more than a switch.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// The code of a simulated thread, stopped somewhere.
pub(crate) struct Fiber {
    coroutine: Coroutine<(), (), (), DefaultStack>,
    stack: Range<usize>,
}

impl Fiber {
    /// Returns a fiber that will run `body`, which is called with the fiber's own suspension point.
    pub(crate) fn new(body: impl FnOnce(*const Yielder<(), ()>) + 'static) -> std::io::Result<Self> {
        let stack = match STACKS.with_borrow_mut(Vec::pop) {
            Some(stack) => stack,
            None => DefaultStack::new(STACK_BYTES)?,
        };
        let addresses = stack.limit().get()..stack.base().get();
        let coroutine = Coroutine::with_stack(stack, move |yielder, ()| body(std::ptr::from_ref(yielder)));
        Ok(Self { coroutine, stack: addresses })
    }

    /// Addresses of its stack.
    pub(crate) fn stack(&self) -> Range<usize> {
        self.stack.clone()
    }

    /// Runs it until it suspends or ends; returns whether it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        matches!(self.coroutine.resume(()), CoroutineResult::Return(()))
    }

    /// Gives up the fiber. One that has not ended is stopped where it is: nothing on its stack is
    /// dropped, as after a power cut.
    pub(crate) fn discard(mut self) {
        if !self.coroutine.done() {
            // SAFETY: nothing that is borrowed from the stack is used again: no fiber of the run is
            // resumed any more, and what they have allocated goes with the run's heap.
            unsafe { self.coroutine.force_reset() };
        }
        STACKS.with_borrow_mut(|stacks| stacks.push(self.coroutine.into_stack()));
    }
}
