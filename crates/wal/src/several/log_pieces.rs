//! Several logs, each assembled from pieces: up to which GSN they are complete.
//!
//! As after a crash, the pieces of one log may reach further than the pieces of another. The
//! archive receives the segments of one log at a time, and nothing has cut a log that a crash has
//! left. So the same rule applies as when logs are opened ([`crate::several::open`]).

use duramen_sync::Arc;
use duramen_types::{Gsn, Lsn};

use crate::error::Result;
use crate::format::record::RecordRef;
use crate::segments::log_pieces::LogPieces;
use crate::segments::scan::Scanner;
use crate::segments::sync_records::SyncRecords;

/// Returns the GSN up to which `chains`, a database's logs in order, lack no record: that of a sync
/// record, or `known` if that is higher. Reads log after log and passes each record to `visit`.
///
/// # Errors
/// [`WalError::Corrupt`](crate::WalError::Corrupt) when hardened records are damaged, or the GSNs
/// of a log do not grow; [`WalError::Disk`](crate::WalError::Disk).
pub fn complete_up_to(chains: &[LogPieces], known: Gsn, mut visit: impl FnMut(&RecordRef<'_>)) -> Result<Gsn> {
    let (mut ends, mut found): (Vec<Lsn>, Vec<SyncRecords>) = (Vec::new(), Vec::new());
    for chain in chains {
        let mut sync_records = SyncRecords::keeping(Gsn::ZERO);
        let (mut last, mut disorder) = (Gsn::ZERO, None);
        let cut = chain.find_cut(|record| {
            if record.gsn <= last {
                disorder = Some(record.lsn);
                return true;
            }
            last = record.gsn;
            sync_records.note(record);
            visit(record);
            false
        })?;
        if let Some(lsn) = disorder {
            let corrupt = chain.files.geometry.corrupt(lsn.get(), "the GSNs of the log do not increase");
            return Err(corrupt.in_log(chain.log()));
        }
        ends.push(cut.at);
        found.push(sync_records);
    }
    let mut complete = known;
    for ((chain, sync_records), end) in chains.iter().zip(&found).zip(&ends) {
        let again = || Scanner::hardened(Arc::clone(&chain.files), chain.start(), *end);
        let met = sync_records.last_met(&ends, again).map_err(|error| error.in_log(chain.log()))?;
        complete = complete.max(met.unwrap_or(Gsn::ZERO));
    }
    Ok(complete)
}
