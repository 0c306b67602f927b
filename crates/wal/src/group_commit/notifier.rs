//! The notifier: the thread that wakes tasks and calls functions when the records that they wait
//! for are hardened. It does nothing else, because both are foreign code: they may take long, and
//! may even drop the log.

use duramen_sync::Mutex;
use duramen_sync::probe::{Probe, reach};

use crate::group_commit::wake::Wake;
use crate::wake_event::WakeEvent;

/// The waiters that the notifier has to notify.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    resolved: Mutex<Vec<Wake>>,
    event: WakeEvent,
}

impl Notifier {
    /// Hands over waiters. The caller then calls [`Notifier::wake`].
    pub(crate) fn add(&self, resolved: Vec<Wake>) {
        self.resolved.lock().extend(resolved);
    }

    /// Wakes the notifier.
    pub(crate) fn wake(&self) {
        self.event.wake();
    }

    /// Lets the notifier end once it has notified all waiters. No new waiters arrive afterwards.
    pub(crate) fn stop(&self) {
        self.event.stop();
    }

    /// Notifies waiters until the notifier is stopped.
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

    /// Takes the waiters that have to be notified now.
    pub(crate) fn take(&self) -> Vec<Wake> {
        std::mem::take(&mut *self.resolved.lock())
    }
}
