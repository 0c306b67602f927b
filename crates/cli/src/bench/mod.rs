//! `duramen bench`.

mod report;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use duramen::{Db, Options};
use duramen_sync::clock::{Instant, wall_micros};
use duramen_workloads::tpcb::{Ledger, Scale};
use duramen_workloads::{Limit, LoadOutcome, Marker, Progress, RunOptions, RunReport, Tpcb, Workload, run};

use crate::args::BenchArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;
use crate::progress::Narrator;
use report::{Measured, Settings};

/// Branches of a new database when the user does not say.
const DEFAULT_SCALE: u64 = 4;
/// Pause between two refreshes of the live line.
const REFRESH: Duration = Duration::from_millis(250);

pub(crate) fn bench(args: &BenchArgs, out: &mut dyn Write) -> Result<()> {
    let narrator = Narrator::new(args.json);
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("duramen-data").join(args.workload));
    let begin = Instant::now();
    let db = Db::open(&dir, options(args))?;
    let recovery = database::recovery(&db);
    narrator.say(&format!("opened {} in {}", dir.display(), format::latency(begin.elapsed())));
    if let Some(recovery) = &recovery {
        narrator.say(recovery);
    }
    let workload: Box<dyn Workload<Db>> = Box::new(tpcb(args, &db)?);
    load(&*workload, &db, narrator)?;

    let seed = args.seed.unwrap_or_else(wall_micros);
    let before = db.metrics();
    let run = drive(args, &db, &*workload, seed, narrator)?;
    let after = db.metrics();
    narrator.say("auditing");
    let audit = workload.audit(&db)?;
    db.close()?;

    let settings = Settings { workload: workload.name(), scale: workload.scale(), seed, recovery };
    let measured = Measured::new(&run, &before, &after, &audit);
    if args.json {
        report::json(args, &settings, &measured, out)?;
    } else {
        report::table(args, &settings, &measured, out)?;
    }
    if audit.is_ok() { Ok(()) } else { Err(Failure::Damage(format!("the audit failed: {audit}"))) }
}

fn options(args: &BenchArgs) -> Options {
    let mut options = database::options(&args.open);
    options.commit = args.commit;
    options.isolation = args.isolation;
    options.log_insert = args.log_insert;
    if let Some(mb) = args.checkpoint_mb {
        options.checkpoint_bytes = mb << 20;
    }
    if let Some(mb) = args.segment_mb {
        options.log_segment_bytes = mb << 20;
    }
    options
}

/// The workload at the size that the user asks for, else at the size that the database has.
fn tpcb(args: &BenchArgs, db: &Db) -> Result<Tpcb> {
    let mut scale = Marker::read(db)?.map_or(Scale::standard(DEFAULT_SCALE), |marker| marker.scale);
    scale.branches = args.scale.map_or(scale.branches, u64::from);
    scale.accounts_per_branch = args.accounts_per_branch.unwrap_or(scale.accounts_per_branch);
    let tpcb = Tpcb::new(scale);
    Ok(match &args.ledger {
        Some(path) => tpcb.with_ledger(Ledger::append_to(path)?),
        None => tpcb,
    })
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
            narrator.say(&format!("completed a load that was cut off: {} rows in {time}", format::count(rows)));
        }
    }
    Ok(())
}

fn drive(args: &BenchArgs, db: &Db, workload: &dyn Workload<Db>, seed: u64, narrator: Narrator) -> Result<RunReport> {
    let limit = args.transactions.map_or(Limit::Time(Duration::from_secs_f64(args.seconds)), Limit::Transactions);
    let options = RunOptions { clients: args.clients, limit, seed, observe_every: REFRESH };
    let length = match limit {
        Limit::Time(time) => time.as_millis() as u64,
        Limit::Transactions(count) => count,
    };
    let mut bar = narrator.bar("running", length);
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
