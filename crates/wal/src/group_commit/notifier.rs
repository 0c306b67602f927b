//! The notifier: the thread that wakes tasks and calls functions when their records are hardened.
//! It does nothing else: this foreign code may take long, and may even drop the log.

use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Mutex};
use duramen_types::planted;

use crate::group_commit::wake::{Waiters, Wake};
use crate::wake_event::WakeEvent;

#[derive(Debug, Default)]
pub(crate) struct Notifier {
    resolved: Mutex<Vec<Wake>>,
    event: WakeEvent,
}

/// Waiters that need not wait any more, and that have still to be woken.
#[derive(Debug)]
#[must_use = "the waiters sleep until `Notifier::wake` gets this"]
pub(crate) struct Resolved {
    threads: Vec<Arc<Parker>>,
    /// Whether the notifier has been given others.
    has_foreign: bool,
}

impl Notifier {
    /// Removes from `waiters` those whose position `is_over` accepts. The caller holds the lock of
    /// `waiters`, releases it, and then calls [`Notifier::wake`].
    pub(crate) fn take_resolved<P: Ord + Copy>(
        &self,
        waiters: &mut Waiters<P>,
        is_over: impl Fn(P) -> bool,
    ) -> Resolved {
        let (threads, foreign) = waiters.take(is_over);
        let has_foreign = !foreign.is_empty();
        // Under the lock of `waiters`: once the log has failed and this function has been called,
        // no new waiters arrive, and the notifier may be stopped.
        if has_foreign {
            self.resolved.lock().extend(foreign);
        }
        Resolved { threads, has_foreign }
    }

    /// Wakes the threads among these waiters, and the notifier if it has to notify others.
    pub(crate) fn wake(&self, resolved: Resolved) {
        resolved.threads.iter().for_each(|parker| parker.unpark());
        if resolved.has_foreign && !planted!(NotifierNotWoken) {
            self.event.wake();
        }
    }

    /// Lets the notifier end once it has notified all waiters. No new waiters arrive afterwards.
    pub(crate) fn stop(&self) {
        self.event.stop();
    }

    pub(crate) fn run(&self) {
        loop {
            let is_stopped = self.event.is_stopped();
            let wakes = self.take();
            if wakes.is_empty() {
                if is_stopped {
                    return;
                }
                self.event.wait(None);
            }
            wakes.into_iter().for_each(|wake| {
                reach(Probe::NotifierTold);
                wake.tell();
            });
        }
    }

    pub(crate) fn take(&self) -> Vec<Wake> {
        std::mem::take(&mut *self.resolved.lock())
    }
}
