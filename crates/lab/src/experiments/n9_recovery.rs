//! N9: recovery from several logs, by page and by transaction.

use std::path::Path;
use std::time::Duration;

use duramen::{CommitMode, Db, InsertDesign, Options, Partition, RecoveryReport, Txn};
use duramen_sync::thread::available_parallelism;
use duramen_workloads::{Limit, RunOptions, Tpcb, Workload, run, tpcb};

use crate::bed::{Bed, System};
use crate::bounds::{Bound, Check, median};
use crate::error::{Error, Result};
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// Redo and undo by several threads.
pub(super) struct Recovery;

const WRITER: System = System::new("writing the logs", CommitMode::Pipelined, InsertDesign::Hybrid);
const LOGS: u16 = 4;
const LAYOUTS: [(&str, Partition); 2] = [("by page", Partition::Page), ("by transaction", Partition::RoundRobin)];
const POOL_BYTES: usize = 512 << 20;
/// The time of a pass.
type Micros = fn(&RecoveryReport) -> u64;

const UNFINISHED: &str = "unfinished";

/// How much there is to recover.
#[derive(Clone, Copy, Debug)]
struct Amount {
    scale: tpcb::Scale,
    /// Transactions that have committed.
    committed: u64,
    /// Transactions that have not committed, and what each has changed.
    unfinished: (u64, u64),
}

impl Experiment for Recovery {
    fn about(&self) -> About {
        About {
            id: "N9",
            title: "redo, with analysis, and undo by several threads, four logs by page and by transaction",
            source: "Scalable Logging through Emerging Non-Volatile Memory (VLDB 2014), section 3.2 and Table 1",
            world: "native",
            found: "with logs by page, redo is parallel at once, but undo must go from log to log; with logs by \
                    transaction, redo is parallel after a stage that sorts by page, and undo is simple and parallel",
            wanted: "with either layout redo and undo are faster with two threads; redo takes no longer by page, \
                undo no longer by transaction",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "with logs by page, analysis, which is one pass with redo, records a transaction for each log in which it \
             changed pages; with logs by transaction, only once. For 490 MB of log and one thread, the medians of four \
             rounds are: reading 0.66 s by page and 0.60 s by transaction, redo with analysis 2.07 s and 1.97 s, which \
             would be within the bound",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let most = available_parallelism().clamp(2, 8);
        let threads: Vec<usize> = (1..=most).collect();
        let rounds = context.pick(7, 3, 1);
        let branches = context.pick(20, 10, 1);
        let amount = Amount {
            scale: tpcb::Scale {
                accounts_per_branch: context.pick(20_000, 10_000, 50),
                ..tpcb::Scale::standard(branches)
            },
            committed: context.pick(300_000, 60_000, 300),
            unfinished: context.pick((128, 1_500), (128, 300), (4, 10)),
        };
        context.expect(rounds * LAYOUTS.len() * threads.len());
        let mut beds = Vec::new();
        for (name, partition) in LAYOUTS {
            context.prepare(&format!("populating and interrupting, {name}"));
            let pool_bytes = context.pick(POOL_BYTES, POOL_BYTES, POOL_BYTES / 16);
            let bed = Bed::with_logs(pool_bytes, (LOGS, partition))?.without_checkpoints();
            amount.leave_behind(&bed)?;
            beds.push(bed);
        }
        let mut reports = vec![vec![Vec::new(); threads.len()]; LAYOUTS.len()];
        for _ in 0..rounds {
            for (at, &threads) in threads.iter().enumerate() {
                for ((name, _), (layout, bed)) in LAYOUTS.iter().zip(beds.iter().enumerate()) {
                    let what = format!("{name}, {threads} threads");
                    reports[layout][at].push(context.measure(what, || recover(bed, threads, amount.unfinished.0))?);
                }
            }
        }
        let passes: [(&str, Micros); 2] =
            [("redo", |report| report.redo_micros), ("undo", |report| report.undo_micros)];
        // A line for each layout, of one number from the rounds of each point.
        let lines = |micros: Micros, of: &dyn Fn(Vec<f64>) -> f64| -> Vec<Series> {
            let line = |((name, _), points): (&(&str, Partition), &Vec<Vec<RecoveryReport>>)| {
                let seconds =
                    points.iter().map(|rounds| of(rounds.iter().map(|one| micros(one) as f64 / 1e6).collect()));
                Series::ours(*name, threads.iter().map(|threads| *threads as f64).zip(seconds).collect())
            };
            LAYOUTS.iter().zip(&reports).map(line).collect()
        };
        let checks_of = |round: usize| -> Vec<Check> {
            let of_pass = |(pass, micros): &(&str, Micros)| {
                let series = lines(*micros, &|rounds| rounds[round]);
                let mut checks: Vec<Check> = series.iter().map(|series| speed_up(pass, series)).collect();
                checks.push(beside(pass, &series[0], &series[1]));
                checks
            };
            passes.iter().flat_map(of_pass).collect()
        };
        let checks = Check::of_rounds((0..rounds).map(checks_of).collect());
        let figure = |(pass, micros): &(&str, Micros)| Figure {
            name: format!("N9-{pass}"),
            title: format!("{pass} of {LOGS} logs"),
            x: Axis::linear("threads"),
            y: Axis::linear("time (s)"),
            shape: Shape::Lines,
            series: lines(*micros, &median),
        };
        let figures = passes.iter().map(figure).collect();
        Ok(Findings { setting: amount.setting(&beds[0], &reports, rounds), figures, checks })
    }
}

fn speed_up(pass: &str, series: &Series) -> Check {
    let speed_up = series.at(1.0).unwrap_or(f64::NAN) / series.at(2.0).unwrap_or(f64::NAN);
    Check::new(format!("{pass} {}: one thread by two", series.name), "parallel", speed_up, Bound::AtLeast(1.2))
}

/// Checks that the layout that should be simpler takes no longer.
fn beside(pass: &str, page: &Series, transaction: &Series) -> Check {
    let (what, simple, other) = if pass == "redo" {
        ("by page by that by transaction", page, transaction)
    } else {
        ("by transaction by that by page", transaction, page)
    };
    let ratio = simple.at(1.0).unwrap_or(f64::NAN) / other.at(1.0).unwrap_or(f64::NAN);
    Check::new(format!("time of {pass} {what}, one thread"), "simpler", ratio, Bound::AtMost(1.1))
}

impl Amount {
    /// Leaves a database as a crash leaves it.
    fn leave_behind(&self, bed: &Bed) -> Result<()> {
        let workload: Box<dyn Workload<Db>> = Box::new(Tpcb::new(self.scale, None));
        bed.load(&*workload)?;
        let (transactions, changes) = self.unfinished;
        let rig = bed.open(&WRITER, Duration::ZERO)?;
        let table = rig.db().create_table(UNFINISHED)?;
        let key = |transaction: u64, change: u64| [transaction.to_be_bytes(), change.to_be_bytes()].concat();
        for transaction in 0..transactions {
            let mut txn = rig.db().begin();
            for change in 0..changes {
                txn.insert(&table, &key(transaction, change), &[0; 100])?;
            }
            txn.commit()?;
        }
        // Everything from here on is to be recovered.
        rig.db().checkpoint()?;
        let options = RunOptions {
            clients: 64,
            rate: None,
            agents: crate::bed::agents(CommitMode::Pipelined, 64),
            limit: Limit::Transactions(self.committed),
            seed: 1,
            observe_every: Duration::from_secs(1),
        };
        run(rig.db(), &*workload, &options, &mut |_| {})?;
        let mut open: Vec<Txn> = (0..transactions).map(|_| rig.db().begin()).collect();
        for change in 0..changes {
            for (transaction, txn) in open.iter_mut().enumerate() {
                txn.update(&table, &key(transaction as u64, change), &[1; 100])?;
            }
        }
        // A commit that waits hardens everything before it, in all logs.
        let mut last = rig.db().begin();
        last.insert(&table, b"the last", b"one")?;
        last.commit()?;
        // Dropping a transaction rolls nothing back once the database is closed.
        drop(rig);
        drop(open);
        Ok(())
    }

    fn setting(&self, bed: &Bed, reports: &[Vec<Vec<RecoveryReport>>], rounds: usize) -> Vec<String> {
        let (transactions, changes) = self.unfinished;
        let logs = LAYOUTS.iter().zip(reports).map(|((name, _), reports)| {
            let RecoveryReport { bytes, records, redone, .. } = reports[0][0];
            format!("{name} {} MB of log, {records} records, {redone} changes repeated", bytes / 1_000_000)
        });
        let logs: Vec<String> = logs.collect();
        vec![
            bed.setting(),
            format!(
                "TPC-B, {}, {} transactions since the last checkpoint; {transactions} others, of {changes} changes \
                 each, are interrupted. Copies of the crashed database are opened with these numbers of threads: {}. \
                 Points are the medians of {rounds} rounds, and so are the parts of the finding.",
                self.scale,
                self.committed,
                logs.join("; ")
            ),
        ]
    }
}

/// Opens a copy of the crashed database with so many threads.
fn recover(bed: &Bed, threads: usize, losers: u64) -> Result<RecoveryReport> {
    let parent = bed.path().parent().unwrap_or(bed.path());
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| Error::ResultFile { operation: "copy", path, reason: error.to_string() }
    };
    let copy = tempfile::Builder::new().prefix("duramen-lab-").tempdir_in(parent).map_err(failed(parent))?;
    copy_directory(bed.path(), copy.path()).map_err(failed(bed.path()))?;
    let options = Options { pool_bytes: POOL_BYTES, recovery_threads: Some(threads), ..Options::default() };
    let db = Db::open(copy.path(), options)?;
    let report = db.metrics().recovery;
    drop(db);
    if report.losers != losers {
        return Err(Error::Audit(format!("{} transactions were rolled back, and {losers} interrupted", report.losers)));
    }
    Ok(report)
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir(&to)?;
            copy_directory(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}
