//! The background threads of one stream: the flush daemon; the segment preallocator, which creates
//! segments ahead of need; and the notifier. (The streams of a log share one archiver: see
//! [`crate::several::archiving`].) They are separate because creating a segment takes much longer
//! than a flush that a committer waits for, and the notifier and the archive may take any time.

use std::time::Duration;

use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Backoff};

use crate::device::Purpose;
use crate::error::Result;
use crate::group_commit::policy::Due;
use crate::stream::inner::{FailOnPanic, StreamInner};
use crate::threads::Threads;

/// The daemon's pause between checks of an awaited record whose filling thread is descheduled.
const FILL_WAIT: Duration = Duration::from_micros(50);

pub(crate) fn start(shared: &Arc<StreamInner>, threads: &Threads) -> Result<()> {
    let start = |name: &str, body: fn(&StreamInner)| {
        let shared = Arc::clone(shared);
        threads.start(name, move || body(&shared))
    };
    start("duramen-log-flush", flush_loop)?;
    start("duramen-log-notify", |shared| shared.notifier.run())?;
    if shared.options.spare_segments > 0 {
        start("duramen-log-segments", preallocate_loop)?;
    }
    Ok(())
}

/// Stops the threads and waits for them to end. If a function that the notifier runs calls this, it
/// waits for the other threads only. The log has failed or is closed. A second call does nothing.
pub(crate) fn stop(shared: &StreamInner, threads: &Threads) {
    shared.daemon.stop();
    shared.segments.hurry();
    shared.preallocator.stop();
    shared.notifier.stop();
    threads.join();
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
