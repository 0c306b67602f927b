//! An executor for one future.

use std::pin::pin;
// A `Waker` is made of the standard library's reference count.
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use duramen_sync::thread::Parker;

#[derive(Default)]
struct Unpark(Parker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `future` on the calling thread, which sleeps until the future's waker is called.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let sleeper = Arc::new(Unpark::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => sleeper.0.park(),
        }
    }
}
