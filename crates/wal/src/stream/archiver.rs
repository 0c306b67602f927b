//! The archiving of an open log: see [`crate::segments::archive`].

use duramen_sync::thread;
use duramen_types::{event, span};

use crate::error::WalError;
use crate::segments::archive::{Archiver, LOOK, RETRY};
use crate::stream::inner::StreamInner;

impl StreamInner {
    /// Wakes the archiver if there is a whole segment for it.
    #[inline]
    pub(crate) fn call_archiver(&self) {
        if let Some(archiver) = &self.archiver
            && archiver.is_due(self.space.durable())
        {
            archiver.event().wake();
        }
    }

    /// Runs the thread that archives a database's only log.
    pub(crate) fn archive(&self) {
        let Some(archiver) = &self.archiver else { return };
        while !archiver.event().is_stopped() {
            if self.space.has_failed() || !archiver.is_due(self.space.durable()) {
                archiver.event().wait(None);
            } else if !self.archive_next() {
                archiver.event().wait_out(RETRY);
            }
        }
    }

    /// Copies the next segment, which is due, and recycles the segments that may then be recycled;
    /// returns whether the copy has succeeded.
    pub(crate) fn archive_next(&self) -> bool {
        let Some(archiver) = &self.archiver else { return true };
        let copied = {
            let _span = span!("archive");
            archiver.copy_next()
        };
        match copied {
            Ok(()) => {
                self.segments.retention.archive_failed(None);
                self.recycle_archived();
                true
            }
            Err(error) => {
                self.cannot_archive(error);
                false
            }
        }
    }

    /// Notes why the next segment cannot be archived at present.
    pub(crate) fn cannot_archive(&self, reason: WalError) {
        event!(WARN, "cannot archive the log at present", reason = reason);
        self.segments.retention.archive_failed(Some(reason.to_string()));
        if let Some(archiver) = &self.archiver {
            archiver.fail(reason);
        }
    }

    /// Recycles the segments that have been archived.
    pub(crate) fn recycle_archived(&self) {
        let Some(archiver) = &self.archiver else { return };
        self.segments.retention.archived(archiver.admits());
        self.recycle_admitted();
    }

    /// Recycles the segments that nothing holds any more.
    pub(crate) fn recycle_admitted(&self) {
        if self.space.has_failed() {
            return;
        }
        match self.segments.recycle_admitted() {
            // Recycling is retried with the next segment that is archived, and at the next
            // checkpoint.
            Err(error) if error.is_passing() => {}
            Err(error) => self.fail(error),
            Ok(()) => {}
        }
    }

    /// Returns the archiver if it has work that it can do as far as is known.
    pub(crate) fn archiver_at_work(&self) -> Option<&Archiver> {
        let archiver = self.archiver.as_ref()?;
        let is_at_work = archiver.is_due(self.space.durable()) && archiver.failure().is_none();
        (is_at_work && !self.space.has_failed()).then_some(archiver)
    }

    /// Waits until everything that can be archived has been archived, or until the archive fails.
    /// For a database's only log.
    pub(crate) fn await_archive(&self) {
        while let Some(archiver) = self.archiver_at_work() {
            archiver.event().wake();
            thread::sleep(LOOK);
        }
        // The archiver may not have recycled yet.
        self.recycle_archived();
    }
}
