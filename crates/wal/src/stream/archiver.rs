//! The archiving of one open stream: see [`crate::segments::archive`]. The thread is that of the
//! whole log: see [`crate::several::archiving`].

use duramen_types::{event, span};

use crate::error::WalError;
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

    /// Copies the next segment, which is due, and recycles what it may; returns whether it copied.
    pub(crate) fn archive_next(&self) -> bool {
        let Some(archiver) = &self.archiver else { return true };
        let copied = {
            let _span = span!("archive");
            archiver.copy_next()
        };
        if let Err(error) = copied {
            self.cannot_archive(error);
            return false;
        }
        self.segments.retention.archive_failed(None);
        self.recycle_archived();
        true
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
        // After a passing error, the next archived segment or checkpoint retries the recycling.
        if !self.space.has_failed()
            && let Err(error) = self.segments.recycle_admitted()
            && !error.is_passing()
        {
            self.fail(error);
        }
    }
}
