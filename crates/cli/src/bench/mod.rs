//! `duramen bench`.

mod barrier;
mod device_sync;
mod disk;
mod log_insert;
mod report;
mod scans;
mod together;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duramen::{BackupReport, CommitMode, Db, Options, TierOptions, TierPlace};
use duramen_sync::clock::{Instant, wall_micros};
use duramen_sync::thread::{JoinHandle, available_parallelism, spawn};
use duramen_workloads::tpcb::Ledger;
use duramen_workloads::{Limit, LoadOutcome, Progress, Request, RunOptions, RunReport, Workload, run};

use crate::args::BenchArgs;
use crate::axes::{BARRIER_BENCH, DEVICE_SYNC_BENCH, LOG_INSERT_BENCH};
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;
use crate::progress::Narrator;
use report::{Measured, Settings};
use scans::Scans;

/// Pause between two refreshes of the live line.
const REFRESH: Duration = Duration::from_millis(250);

pub(crate) fn bench(args: &BenchArgs, out: &mut dyn Write) -> Result<()> {
    let narrator = Narrator::new(args.json);
    if args.workload == LOG_INSERT_BENCH {
        return log_insert::bench(args, narrator, out);
    }
    if args.workload == DEVICE_SYNC_BENCH {
        return device_sync::bench(args, out);
    }
    if args.workload == BARRIER_BENCH {
        return barrier::bench(args, narrator, out);
    }
    if args.record_bytes.is_some() {
        return Err(Failure::Usage(format!(
            "`--record-bytes` applies to `{LOG_INSERT_BENCH}`, not to `{}`",
            args.workload
        )));
    }
    if args.ledger.is_some() && args.workload != "tpcb" {
        return Err(Failure::Usage(format!("only `tpcb` supports `--ledger`, not `{}`", args.workload)));
    }
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("duramen-data").join(family(args.workload)));
    let begin = Instant::now();
    let scheme = database::scheme(&dir, &args.open);
    if !["wal", "no-pcm"].contains(&scheme) && args.segment_mb.is_some() {
        let reason = format!("`--segment-mb` is for a log in files; the scheme `{scheme}` has no log there");
        return Err(Failure::Usage(reason));
    }
    let disk = disk::Disk::of(&dir, args)?;
    let db = disk.open(options(&dir, args)?, narrator)?;
    database::warn_of_shortfall(&db);
    let recovery = database::recovery(&db);
    let found = db.metrics();
    if found.logs != args.logs || found.logs > 1 && found.log_partition != args.partition {
        return Err(Failure::Usage(format!(
            "the database {} has {} logs (partition: {}), which cannot change; name another directory, or give these \
             values with `--logs` and `--partition`",
            dir.display(),
            found.logs,
            found.log_partition
        )));
    }
    narrator.say(&format!("opened {} in {}", dir.display(), format::latency(begin.elapsed())));
    if let Some(recovery) = &recovery {
        narrator.say(&format!("recovery: {recovery}"));
    }
    let workload = workload(args, &db)?;
    load(&*workload, &db, narrator)?;
    disk.slow_down(args.disk_delay_ms.unwrap_or_default());

    let seed = args.seed.unwrap_or_else(wall_micros);
    if args.warmup > 0.0 {
        let time = Limit::Time(Duration::from_secs_f64(args.warmup));
        // With other inputs than the run.
        drive("warming up", args, &db, &*workload, time, !seed, narrator)?;
    }
    let (before, random_before) = (db.metrics(), disk.random_writes());
    let backup = args.backup.as_ref().map(|to| backup_meanwhile(&db, to)).transpose()?;
    let limit = args.transactions.map_or(Limit::Time(Duration::from_secs_f64(args.seconds)), Limit::Transactions);
    let scans = args.scans.map(|count| Scans::start(&db, count)).transpose()?;
    let run = drive("running", args, &db, &*workload, limit, seed, narrator)?;
    let scanned = scans.map(Scans::finish).transpose()?;
    let backup = backup.map(join).transpose()?;
    let after = db.metrics();
    let random_writes = disk.random_writes().zip(random_before).map(|(after, before)| after - before);
    disk.slow_down(Duration::ZERO);
    narrator.say("auditing");
    let audit = workload.audit(&db)?;
    db.close()?;

    let (workload, scale, kinds) = (workload.name(), workload.scale(), workload.kinds());
    let settings = Settings { workload, scheme, scale, kinds, seed, recovery, backup, scanned };
    let measured = Measured::new(&run, (&before, &after), &audit, random_writes);
    if args.json {
        report::json(args, &settings, &measured, out)?;
    } else {
        report::table(args, &settings, &measured, out)?;
    }
    if audit.is_ok() { Ok(()) } else { Err(Failure::Damage(format!("the audit failed: {audit}"))) }
}

/// Takes a backup on a thread of its own.
fn backup_meanwhile(db: &Db, to: &Path) -> Result<JoinHandle<duramen::Result<BackupReport>>> {
    let (db, to) = (db.clone(), to.to_owned());
    spawn("duramen-backup", move || db.backup(to, |_| {}))
        .map_err(|error| Failure::Run(format!("cannot start a thread for the backup: {error}")))
}

fn join(backup: JoinHandle<duramen::Result<BackupReport>>) -> Result<BackupReport> {
    Ok(backup.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}

/// Refuses the options on the command line that a benchmark without a database does not have.
fn refuse_all_but(known: &[&str], args: &BenchArgs) -> Result<()> {
    let Some(option) = args.given.iter().find(|given| !known.contains(&given.as_str())) else { return Ok(()) };
    let known: Vec<_> = known.iter().map(|known| format!("`--{known}`")).collect();
    Err(Failure::Usage(format!(
        "`--{option}` does not apply to `{}`, whose options are {}",
        args.workload,
        known.join(", ")
    )))
}

/// Returns the workload without its variant: `tatp` of `tatp:update-location`. Variants share a
/// database.
fn family(workload: &str) -> &str {
    workload.split(':').next().unwrap_or(workload)
}

fn options(dir: &Path, args: &BenchArgs) -> Result<Options> {
    let mut options = database::options_with_tier(dir, &args.open, args.tier_region.is_some())?;
    options.commit = args.commit;
    options.isolation = args.isolation;
    options.log_insert = args.log_insert.unwrap_or_default();
    options.snapshots = args.snapshots;
    options.logs = args.logs;
    options.log_partition = args.partition;
    options.recovery_target = args.recovery_target_ms.map(Duration::from_millis);
    options.checkpoint_bytes = args.checkpoint_mb.map(|mb| mb << 20);
    options.dirty_pages = args.dirty_pages.map(|pages| usize::try_from(pages).unwrap_or(usize::MAX));
    if let Some(mb) = args.tier_mb {
        let absolute = |path: &Path| std::path::absolute(path).map_err(Failure::from);
        let directory = args.tier.as_deref().map(absolute).transpose()?;
        let bytes = mb << 20;
        options.page_tier = Some(match (directory, &args.tier_region) {
            (_, Some(path)) => {
                TierOptions { place: TierPlace::Memory(database::tier_memory(path, &args.open)?), bytes }
            }
            (Some(directory), _) => TierOptions::in_directory(directory, bytes),
            (None, None) => TierOptions::at_home(bytes),
        });
    }
    options.tier_run_pages = args.tier_run.unwrap_or(options.tier_run_pages);
    if let Some(mb) = args.segment_mb {
        options.log_segment_bytes = mb << 20;
    }
    Ok(options)
}

/// Returns the workload as the user asks for it.
fn workload(args: &BenchArgs, db: &Db) -> Result<Box<dyn Workload<Db>>> {
    let request = Request {
        scale: args.scale.map(u64::from),
        skew: args.skew,
        rows_per_unit: args.rows_per_unit,
        ledger: args.ledger.as_deref().map(Ledger::append_to).transpose()?,
    };
    Ok(request.workload(args.workload, db)?)
}

fn load(workload: &dyn Workload<Db>, db: &Db, narrator: Narrator) -> Result<()> {
    let begin = Instant::now();
    let mut bar = None;
    let outcome = workload.load(db, &mut |progress| {
        bar.get_or_insert_with(|| narrator.bar("loading", progress.total)).load(progress);
    })?;
    if let Some(bar) = bar {
        bar.finish();
    }
    let time = format::latency(begin.elapsed());
    match outcome {
        LoadOutcome::Present => {}
        LoadOutcome::Loaded { rows } => narrator.say(&format!("loaded {} rows in {time}", format::count(rows))),
        LoadOutcome::Resumed { rows } => {
            narrator.say(&format!("completed an interrupted load: {} rows in {time}", format::count(rows)));
        }
    }
    Ok(())
}

/// Returns the number of threads that carry the clients.
fn agents(args: &BenchArgs) -> u32 {
    let agents = args.agents.unwrap_or_else(|| match args.commit {
        CommitMode::Sync | CommitMode::Elr => args.clients,
        CommitMode::Pipelined | CommitMode::Async => u32::try_from(available_parallelism()).unwrap_or(u32::MAX),
    });
    agents.min(args.clients)
}

fn drive(
    what: &'static str,
    args: &BenchArgs,
    db: &Db,
    workload: &dyn Workload<Db>,
    limit: Limit,
    seed: u64,
    narrator: Narrator,
) -> Result<RunReport> {
    let options = RunOptions {
        clients: args.clients,
        agents: agents(args),
        rate: args.rate,
        limit,
        seed,
        observe_every: REFRESH,
    };
    let length = match limit {
        Limit::Time(time) => time.as_millis() as u64,
        Limit::Transactions(count) => count,
    };
    let mut bar = narrator.bar(what, length);
    let mut before = Progress { elapsed: Duration::ZERO, committed: 0, aborted: 0 };
    let report = run(db, workload, &options, &mut |now| {
        // Clients that end wake the observer, too; a rate over a few microseconds says nothing.
        if now.elapsed.saturating_sub(before.elapsed) >= REFRESH / 2 {
            let position = match limit {
                Limit::Time(_) => now.elapsed.as_millis() as u64,
                Limit::Transactions(_) => now.committed,
            };
            bar.run(position, now, before);
            before = now;
        }
    });
    bar.finish();
    Ok(report?)
}
