//! Archive, backup and restore through crashes: a database has several lives and is archived
//! throughout; in one of them a backup is taken. At the end the suite restores it to its end and to
//! earlier moments, and compares the results with the recorded contents. It also restores from what
//! a crash has left, before the database is opened again.

use std::time::Duration;

use duramen::{Archive, BackupReport, Db, Error, Gsn, LogDevice, Options, Restore, RestoreTo};
use duramen_io::{Fault, SimDisk};
use duramen_sync::Arc;

use crate::client::{Client, OnError, Stop};
use crate::crash::{compare, images, open_and_compare};
use crate::harness::{Phase, guarded};
use crate::model::Model;
use crate::step::Step;
use crate::workloads;
use crate::world::{LogEnd, World};
use duramen_test_support::Rng;

/// Longest time that a history may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Steps of a script that run without a look.
const PIECE: usize = 25;

/// A database with its archive, what has been backed up, and what it held at moments.
struct History {
    world: World,
    archive: SimDisk,
    options: Options,
    backup: Option<(SimDisk, BackupReport, Model)>,
    /// Positions below which everything was hardened, and the contents there.
    moments: Vec<(Gsn, Model)>,
}

impl History {
    fn options(&self) -> Options {
        let archive = Archive::on(Arc::new(self.archive.clone()));
        Options { archive: Some(archive), ..self.world.options(&self.options) }
    }

    /// Notes what the database holds, if the log has nothing that a crash could lose. Transactions
    /// under way are losers.
    fn note(&mut self, client: &Client) -> Result<(), Error> {
        let Some(db) = client.db() else { return Ok(()) };
        if self.options.logs > 1 {
            // What all logs have is known only at sync records.
            db.checkpoint()?;
        }
        let log = db.metrics().log;
        let is_hardened = self.options.logs > 1 || log.hardened_gsn == log.end_gsn;
        if is_hardened && !self.world.is_unheard() {
            self.moments.push((log.hardened_gsn, client.oracle.committed.clone()));
        }
        Ok(())
    }

    /// Runs a script, records moments and may take a backup; the power may go off. Returns the
    /// contents that are permitted afterwards.
    fn live(&mut self, mut client: Client, script: &[Step], rng: &mut Rng) -> Result<Vec<Model>, String> {
        let pieces = script.chunks(PIECE).collect::<Vec<_>>();
        let backup_at = (self.backup.is_none() || rng.percent(20)).then(|| rng.within(0..pieces.len() + 1));
        let crash_at = rng.within(0..2 * pieces.len());
        for (number, piece) in pieces.into_iter().enumerate() {
            if number == crash_at {
                self.world.crash_soon(rng);
            }
            // A database is not opened with an archive that cannot be read.
            let opens = piece.iter().any(|step| matches!(step, Step::Reopen | Step::Restart));
            self.archive.clear_faults();
            if rng.percent(10) && !opens {
                self.archive.fail_at(self.archive.operations() + rng.within(0..20) as u64, Fault::Eio, false);
            }
            match client.run(piece, |_| OnError::Stop) {
                Ok(()) => {}
                Err(Stop::Wrong(text)) => return Err(text),
                Err(Stop::Error { step, error, in_flight }) => {
                    self.is_of_the_crash(&error).map_err(|error| format!("{step}: {error}"))?;
                    let committed = client.oracle.committed.clone();
                    return Ok(std::iter::once(committed).chain(in_flight.map(|model| *model)).collect());
                }
            }
            if rng.percent(40)
                && let Err(error) = self.note(&client)
            {
                self.is_of_the_crash(&error).map_err(|error| format!("note: {error}"))?;
                return Ok(vec![client.oracle.committed.clone()]);
            }
            if backup_at == Some(number)
                && let Some(db) = client.db()
            {
                let backup = SimDisk::new(rng.bits());
                match db.backup_to(&backup, |_| {}) {
                    Ok(report) => self.backup = Some((backup, report, client.oracle.committed.clone())),
                    Err(error) => {
                        self.is_of_the_crash(&error).map_err(|error| format!("backup: {error}"))?;
                        return Ok(vec![client.oracle.committed.clone()]);
                    }
                }
            }
        }
        client.abort_all();
        let committed = client.oracle.committed.clone();
        if let Err(error) = client.close() {
            self.is_of_the_crash(&error).map_err(|error| format!("close: {error}"))?;
        }
        Ok(vec![committed])
    }

    fn is_of_the_crash(&self, error: &Error) -> Result<(), String> {
        let is_dead = matches!(
            error,
            Error::Io { .. } | Error::Poisoned { .. } | Error::OpenFailed { .. } | Error::CopyFailed { .. }
        );
        match self.world.disk.crashed_in() {
            Some(_) if is_dead => Ok(()),
            Some(_) => Err(format!("a dead disk is reported as: {error}")),
            None => Err(format!("fails before any crash: {error}")),
        }
    }

    /// Restores, opens and compares.
    fn check(&self, restore: Restore, expected: &[Model]) -> Result<(), String> {
        let target = SimDisk::new(1);
        restore.into_disk(&target, |_| {}).map_err(|error| format!("cannot be restored: {error}"))?;
        let options = Options { create: false, log_device: LogDevice::File, ..self.options.clone() };
        open_and_compare(&target, &options, expected).map(|_| ())
    }

    /// Returns the backup, if there is one, with the archive and the log as they are now.
    fn with_all(&self) -> Option<Restore> {
        let (backup, _, _) = self.backup.as_ref()?;
        let (archive, log) = (self.archive.clone(), self.world.disk.clone());
        Some(Restore::from_disk(Arc::new(backup.clone())).archive_on(Arc::new(archive)).log_on(Arc::new(log)))
    }
}

fn history(seed: u64, phase: &Phase) -> Result<u64, String> {
    let mut rng = Rng::new(seed);
    let workload = *rng.pick(&workloads::all());
    let repeat = format!("torture restore --seed {seed} (workload {})", workload.name());
    let end = *rng.pick(&[LogEnd::Files, LogEnd::Files, LogEnd::RINGS[0], LogEnd::RINGS[1]]);
    let options = Options {
        log_segment_bytes: 64 << 10,
        checkpoint_bytes: Some(*rng.pick(&[64 << 10, 256 << 10])),
        ..workload.options(seed)
    };
    let world = World::new(workload.disk(seed), end, &options);
    let mut history = History { world, archive: SimDisk::new(seed ^ 1), options, backup: None, moments: Vec::new() };
    let mut candidates = vec![Model::default()];
    let lives = rng.within(2..6);
    for life in 0..lives {
        phase.enter(format!("[{repeat}] life {life}"));
        let db = Db::open_on(Arc::new(history.world.disk.clone()), history.options())
            .map_err(|error| format!("does not open: {error}"))?;
        let model = compare(&db, &candidates)?;
        let script = workload.script(rng.bits(), &model);
        let client = Client::with(db, &history.world.disk, &history.options(), model);
        candidates = history.live(client, &script, &mut rng)?;
        history.world.disk.crash();
        let image = *rng.pick(&images(history.world.unsure(), 2, &mut rng.clone()));
        history.archive = history.archive.crash_image(&image.0);
        history.world = history.world.crash_image(&image.0);
        if end == LogEnd::Files
            && let Some(restore) = history.with_all()
        {
            phase.enter(format!("[{repeat}] restoring what the crash after life {life} has left"));
            history.check(restore, &candidates)?;
        }
    }
    phase.enter(format!("[{repeat}] the last life"));
    let db = Db::open_on(Arc::new(history.world.disk.clone()), history.options())
        .map_err(|error| format!("does not open: {error}"))?;
    let last = compare(&db, &candidates)?;
    db.await_archive();
    db.close().map_err(|error| format!("does not close: {error}"))?;

    let Some((backup, report, at_backup)) = &history.backup else { return Ok(1) };
    let from = || Restore::from_disk(Arc::new(backup.clone()));
    let with_all = || history.with_all().expect("there is a backup");
    phase.enter(format!("[{repeat}] restoring to the end of the backup"));
    let one = std::slice::from_ref;
    history.check(from(), one(at_backup))?;
    phase.enter(format!("[{repeat}] restoring to the end"));
    history.check(with_all(), one(&last))?;
    let mut checks = 3;
    let moments: Vec<_> = history.moments.iter().filter(|(gsn, _)| *gsn >= report.end).collect();
    for (gsn, expected) in moments.iter().rev().step_by(1 + moments.len() / 6) {
        phase.enter(format!("[{repeat}] restoring to {gsn}, backup to {}", report.end));
        history.check(with_all().to(RestoreTo::Gsn(*gsn)), one(expected))?;
        checks += 1;
    }
    Ok(checks)
}

/// One history.
///
/// # Errors
/// What is wrong and how to repeat it.
pub fn try_history(seed: u64) -> Result<u64, String> {
    guarded(LIMIT, move |phase| history(seed, phase))
}
