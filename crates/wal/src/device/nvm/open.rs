//! The ring of a log that is opened: what it holds is brought to the segments first.

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_types::Lsn;

use crate::device::flush::Flusher;
use crate::device::nvm::ring::{Found as InRing, NvmRing};
use crate::error::{Result, WalError};
use crate::format::record::Identity;
use crate::options::{LogDevice, Sealing, WalOptions};
use crate::segments::files::SegmentFiles;
use crate::segments::pool::{Limits, Segments};
use crate::segments::recover::Found;

/// A ring, and what has been found in it.
#[derive(Debug)]
pub(crate) struct FoundRing {
    pub(super) ring: NvmRing,
    pub(super) found: InRing,
}

impl FoundRing {
    /// The ring for a new log, if it is to have one.
    pub(crate) fn for_new(options: &WalOptions, identity: &Identity) -> Result<Option<Self>> {
        let LogDevice::Nvm(nvm) = &options.device else { return Ok(None) };
        let ring = NvmRing::open(&nvm.of_log(identity.log)?, options.ring_bytes, options.generation, false)?;
        let found = ring.find(identity, 0)?;
        Ok(Some(Self { ring, found }))
    }

    /// The ring for the log that has been found, if it is to have one; what it holds of the log is
    /// in the segments when this returns.
    pub(crate) fn find(
        disk: &Arc<dyn Disk>,
        options: &WalOptions,
        identity: &Identity,
        found: &mut Found,
    ) -> Result<Option<Self>> {
        let LogDevice::Nvm(nvm) = &options.device else {
            if found.ring != 0 {
                return Err(WalError::RingNeeded { location: disk.location(), number: found.ring });
            }
            return Ok(None);
        };
        let exists = found.ring != 0;
        let ring = NvmRing::open(&nvm.of_log(identity.log)?, options.ring_bytes, options.generation, exists)?;
        let in_ring = ring.find(identity, found.ring)?;
        if let Some((from, to)) = in_ring.tail {
            // It is brought to the segments again if the power goes off soon, and must not be less
            // then.
            ring.make_durable(from, to);
        }
        let this = Self { ring, found: in_ring };
        if let Some((from, to)) = in_ring.tail
            && from < to
        {
            let limits = limits(options, Some(&this));
            let segments = Segments::new(Arc::clone(&found.home), Arc::clone(&found.files), found.start, limits);
            // What is in the ring has been acknowledged: it must find room.
            segments.lift_limit(true);
            let writer = Flusher::new(Arc::clone(&found.files), Sealing::AtInsertion);
            let last = found.files.span().map(|(_, last)| last);
            writer.write(&this.ring.buffer(), &segments, from.get(), to.get())?;
            // A segment that is made takes the place of a spare with its number.
            found.spares.retain(|spare| Some(*spare) <= last || !found.files.has(*spare));
        }
        Ok(Some(this))
    }

    /// Has the ring hold nothing, before the log is cut somewhere in the segments: what the ring
    /// holds now would otherwise be brought there again, should the cutting be interrupted.
    pub(crate) fn empty(&mut self, files: &SegmentFiles) -> Result<()> {
        if let Some((from, to)) = self.found.tail
            && from < to
        {
            self.ring.take(&files.identity, &self.found, to, &files.last_block(to)?);
            self.found.tail = Some((to, to));
        }
        Ok(())
    }

    /// Refuses a ring that does not reach as far as the segments do: it is not as it was left.
    pub(crate) fn check_end(&self, end: Lsn) -> Result<()> {
        match self.found.tail {
            Some((_, to)) if to != end => Err(self.ring.refuse(format!(
                "the log ends at {to} there, and at {end} in the segments: the ring has lost hardened records"
            ))),
            _ => Ok(()),
        }
    }
}

/// The bounds on segments, if the end of the log is in this ring.
pub(crate) fn limits(options: &WalOptions, ring: Option<&FoundRing>) -> Limits {
    Limits {
        max_bytes: options.max_bytes,
        spare_segments: options.spare_segments,
        ring_bytes: options.ring_bytes as u64,
        ring: ring.map_or(0, |ring| ring.found.number),
    }
}
