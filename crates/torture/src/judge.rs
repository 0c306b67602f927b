//! The verdict on a damaged database: opening it, reading it and further work must give right
//! answers or an error that names the damage.

use duramen::{Db, Error, Options};
use duramen_io::SimDisk;
use duramen_sync::Arc;

use crate::client::{Client, Stop};
use crate::model::Model;
use crate::workloads;

/// Opens the database on `disk`, compares it with what it may hold, checks it, works on, and opens
/// it once more. Returns how far that went: 1 if the damage was reported, 2 if everything was
/// right.
///
/// # Errors
/// A wrong answer, or an error that does not say that something is damaged.
pub fn judge(disk: &SimDisk, options: &Options, acceptable: &[Model], seed: u64) -> Result<u64, String> {
    let db = match Db::open_on(Arc::new(disk.clone()), options.clone()) {
        Ok(db) => db,
        Err(error) => return honest(&error),
    };
    let found = match Model::read_from(&db) {
        Ok(found) => found,
        Err(error) => return honest(&error),
    };
    if !acceptable.contains(&found) {
        let newest = acceptable.last().and_then(|model| model.difference(&found)).unwrap_or_default();
        return Err(format!("wrong contents without an error: {newest}"));
    }
    match db.check() {
        Ok(report) if report.is_ok() => {}
        Ok(_) => return Ok(1),
        Err(error) => return honest(&error),
    }
    // The database is right so far, so further work must succeed or report the damage.
    let mut client = Client::with(db, disk, options, found);
    let workload = workloads::named("mixed").expect("the workload exists");
    let script = workload.script(seed, &client.oracle.committed);
    match client.run(&script, |_| crate::client::OnError::Stop) {
        Ok(()) => {}
        Err(Stop::Wrong(text)) => return Err(format!("continuing: {text}")),
        Err(Stop::Error { error, .. }) => return honest(&error),
    }
    let committed = client.oracle.committed.clone();
    if let Err(error) = client.close() {
        return honest(&error);
    }
    let reopened = Db::open_on(Arc::new(disk.clone()), options.clone());
    match reopened.and_then(|db| Model::read_from(&db)) {
        Ok(found) => match committed.difference(&found) {
            None => Ok(2),
            Some(difference) => Err(format!("continued, then reopened: {difference}")),
        },
        Err(error) => honest(&error),
    }
}

fn honest(error: &Error) -> Result<u64, String> {
    match error {
        Error::Corrupt { .. } | Error::NotADatabase { .. } | Error::WrongVersion { .. } => Ok(1),
        // The first failure is repeated as the reason of all later ones.
        Error::Poisoned { .. } | Error::Io { .. } | Error::OpenFailed { .. } => Ok(1),
        other => Err(format!("the damage is reported as: {other}")),
    }
}
