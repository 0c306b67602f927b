//! The background threads of a log: the flush daemon; the segment preallocator, which creates
//! segments ahead of need; the notifier; and, if there is an archive, the archiver. (Several logs
//! share one archiver: see [`crate::several::archiving`].)
//!
//! They are separate threads because creating a segment takes much longer than a flush that a
//! committer waits for, and because the time that the notifier or the archive takes is unbounded.

use std::time::Duration;

use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::{JoinHandle, is_current, spawn};
use duramen_sync::{Arc, Backoff, Mutex};

use crate::device::Purpose;
use crate::error::{Result, WalError};
use crate::group_commit::policy::Due;
use crate::stream::inner::{FailOnPanic, StreamInner};

/// How long the daemon sleeps between checks of a record that others wait for and that is still
/// being filled in. The thread that fills it in has been descheduled.
const FILL_WAIT: Duration = Duration::from_micros(50);

/// The running background threads.
#[derive(Debug)]
pub(crate) struct Daemons {
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Daemons {
    /// Starts the threads.
    pub(crate) fn start(shared: &Arc<StreamInner>) -> Result<Self> {
        let daemons = Self { handles: Mutex::new(Vec::new()) };
        let start = || -> Result<()> {
            daemons.spawn("duramen-log-flush", shared, flush_loop)?;
            daemons.spawn("duramen-log-notify", shared, |shared| shared.notifier.run())?;
            if shared.archiver.is_some() && shared.space.clock().is_none() {
                daemons.spawn("duramen-log-archive", shared, archive_loop)?;
            }
            if shared.options.spare_segments > 0 {
                daemons.spawn("duramen-log-segments", shared, preallocate_loop)?;
            }
            Ok(())
        };
        start().inspect_err(|_| daemons.stop(shared))?;
        Ok(daemons)
    }

    fn spawn(&self, name: &str, shared: &Arc<StreamInner>, body: fn(&StreamInner)) -> Result<()> {
        let shared = Arc::clone(shared);
        let handle = spawn(name, move || body(&shared)).map_err(|error| WalError::System {
            what: format!("start the thread `{name}`"),
            reason: error.to_string(),
        })?;
        self.handles.lock().push(handle);
        Ok(())
    }

    /// Stops the threads and waits for them to end. If a function that the notifier runs calls
    /// this, it waits for the other threads only. The log has failed or is closed. A second call
    /// does nothing.
    pub(crate) fn stop(&self, shared: &StreamInner) {
        shared.daemon.stop();
        shared.segments.hurry();
        shared.preallocator.stop();
        shared.notifier.stop();
        if let Some(archiver) = &shared.archiver {
            archiver.event().stop();
        }
        let handles = std::mem::take(&mut *self.handles.lock());
        for handle in handles.into_iter().filter(|handle| !is_current(handle)) {
            // The thread has reported its own panic. The log has failed, and its users get the
            // error.
            let _ = handle.join();
        }
    }
}

fn flush_loop(shared: &StreamInner) {
    let _guard = FailOnPanic::new(shared);
    let mut backoff = Backoff::new();
    while !shared.daemon.is_stopped() {
        match shared.queue.due(&shared.space) {
            Due::Now => {
                let progress = shared.flush(Purpose::Requests);
                shared.queue.end_flush(&shared.space);
                if progress {
                    backoff = Backoff::new();
                } else if backoff.is_long() {
                    reach(Probe::FlushWithoutProgress);
                    shared.daemon.wait(Some(FILL_WAIT));
                } else {
                    backoff.snooze();
                }
            }
            Due::In(time) => shared.daemon.wait(Some(time)),
            Due::Never => shared.daemon.wait(None),
        }
    }
}

fn archive_loop(shared: &StreamInner) {
    let _guard = FailOnPanic::new(shared);
    shared.archive();
}

fn preallocate_loop(shared: &StreamInner) {
    let _guard = FailOnPanic::new(shared);
    while !shared.preallocator.is_stopped() {
        if shared.segments.wants_more(shared.space.end()) {
            shared.segments.add_ahead(|| shared.space.end());
        } else {
            shared.preallocator.wait(None);
        }
    }
}
