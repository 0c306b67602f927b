//! The ring of a log that is being opened. Its contents are first written to the segments.

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_types::Lsn;

use crate::device::flush::Flusher;
use crate::device::nvm::ring::{Found as InRing, NvmRing};
use crate::error::{Result, WalError};
use crate::format::identity::Identity;
use crate::options::{LogDevice, Sealing, WalOptions};
use crate::segments::files::SegmentFiles;
use crate::segments::pool::{Limits, Segments};
use crate::segments::recover::Found;

/// A ring and the state found in it.
#[derive(Debug)]
pub(crate) struct FoundRing {
    pub(crate) ring: NvmRing,
    pub(crate) found: InRing,
}

impl FoundRing {
    /// Opens the ring for a new log, if its device is a ring.
    pub(crate) fn for_new(options: &WalOptions, identity: &Identity) -> Result<Option<Self>> {
        let LogDevice::Nvm(nvm) = &options.device else { return Ok(None) };
        let ring = NvmRing::open(&nvm.of_log(identity.log)?, options.ring_bytes, options.generation, false)?;
        let found = ring.find(identity, 0)?;
        Ok(Some(Self { ring, found }))
    }

    /// Opens the ring for the log that has been found, if its device is a ring. The segments then
    /// hold the part of the log that is in the ring.
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
        let (segment_bytes, max_bytes) = (found.files.geometry.segment_bytes, options.max_bytes);
        if nvm.stays && max_bytes < 2 * segment_bytes {
            let reason = format!(
                "segments of {segment_bytes} bytes are too large for a log of {max_bytes} bytes that stays in its \
                 ring; give it a larger ring"
            );
            return Err(WalError::InvalidOption { option: "max_bytes", reason });
        }
        let ring = NvmRing::open(&nvm.of_log(identity.log)?, options.ring_bytes, options.generation, found.ring != 0)?;
        let this = Self { found: ring.find(identity, found.ring)?, ring };
        let Some((from, to)) = this.found.tail else { return Ok(Some(this)) };
        // If the power fails soon, opening writes this part again, which must not be shorter then.
        this.ring.make_durable(from, to);
        found.start = found.start.max(this.ring.begin());
        if from < to {
            // What is written to the segments now must not become durable before the sizes found.
            found.files.sync()?;
            let limits = limits(options, Some(&this));
            let segments =
                Segments::new(Arc::clone(&found.home), Arc::clone(&found.files), (found.start, from), limits);
            // The records in the ring have been acknowledged, so there must be space for them.
            segments.lift_limit(true);
            let writer = Flusher::new(Arc::clone(&found.files), Sealing::AtInsertion);
            let last = found.files.span().map(|(_, last)| last);
            writer.write(&this.ring.buffer(), &segments, from, to, &mut writer.lock())?;
            // A newly created segment takes the place of the spare with its number.
            found.spares.retain(|spare| Some(*spare) <= last || !found.files.has(*spare));
        }
        Ok(Some(this))
    }

    /// Empties the ring before the log is cut at a position in the segments: if the cut is
    /// interrupted, opening must not write the present contents to the segments again.
    pub(crate) fn empty(&mut self, files: &SegmentFiles) -> Result<()> {
        if let Some((from, to)) = self.found.tail
            && from < to
        {
            self.ring.take(&files.identity, &self.found, to, &files.last_block(to)?);
            self.found.tail = Some((to, to));
        }
        Ok(())
    }

    /// Refuses a ring that does not end with the segments: the log did not leave it in this state.
    pub(crate) fn check_end(&self, end: Lsn) -> Result<()> {
        match self.found.tail {
            Some((_, to)) if to != end => Err(self.ring.refuse(format!(
                "the log ends at {to} in the ring, but at {end} in the segments: the ring has lost hardened records"
            ))),
            _ => Ok(()),
        }
    }
}

/// Returns the limits on segments, given the `ring` that the end of the log lies in.
pub(crate) fn limits(options: &WalOptions, ring: Option<&FoundRing>) -> Limits {
    Limits {
        max_bytes: options.max_bytes,
        spare_segments: options.spare_segments,
        ring_bytes: options.ring_bytes as u64,
        ring: ring.map_or(0, |ring| ring.found.number),
    }
}
