//! When a background thread has to be woken.

use duramen_sync::CachePadded;
use duramen_sync::atomic::{AtomicBool, Ordering, fence};

use crate::wake_event::WakeEvent;

/// An event of a thread that looks for work by itself as long as there is any: it is woken only if that thread has said that
/// there is none. Most calls look at one word that seldom changes.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    pub(crate) event: WakeEvent,
    is_set: CachePadded<AtomicBool>,
}

impl Alarm {
    /// Tells the thread that there is work, which the caller has just made known.
    pub(crate) fn ring(&self) {
        // Either the thread, which looks once more after it has said that there is none, finds the work, or this finds that it
        // sleeps.
        fence(Ordering::SeqCst);
        if !self.is_set.load(Ordering::Relaxed) && !self.is_set.swap(true, Ordering::AcqRel) {
            self.event.wake();
        }
    }

    /// Whether the thread has been told that there is work, and has not said since that there is none.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// What `work` finds. If that is nothing, the thread is told of the next.
    pub(crate) fn look<T>(&self, work: impl Fn() -> Option<T>) -> Option<T> {
        if let Some(found) = work() {
            return Some(found);
        }
        self.is_set.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        let found = work();
        if found.is_some() {
            self.is_set.store(true, Ordering::Release);
        }
        found
    }
}

/// No interleaving leaves a thread asleep that has work.
#[cfg(all(test, duramen_loom))]
mod models {
    use duramen_sync::atomic::AtomicU64;
    use duramen_sync::{Arc, thread};

    use super::*;

    #[test]
    fn an_alarm_reaches_who_has_seen_no_work() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = Arc::new((Alarm::default(), AtomicU64::new(0)));
            let worker = Arc::clone(&shared);
            let worker = thread::spawn("worker", move || {
                let (alarm, work) = &*worker;
                let mut done = 0;
                while done < 2 {
                    if !alarm.is_set() {
                        alarm.event.wait(None);
                        continue;
                    }
                    let found = alarm.look(|| Some(work.load(Ordering::Acquire)).filter(|found| *found > done));
                    done = found.unwrap_or(done);
                }
            });
            for _ in 0..2 {
                shared.1.fetch_add(1, Ordering::AcqRel);
                shared.0.ring();
            }
            worker.unwrap().join().unwrap();
        });
    }
}
