//! All schemes with every size of PCM: what C1, C2 and C3 judge.
//!
//! The three claims are about the same runs. In a run of several, the thread measures once and
//! keeps the counts.

use duramen_sync::Arc;

use super::setup::{EVERY, Setup, has_room_for_pages};
use super::{BASIC, LOGGING, LOGGING_PAGES, NO_PCM};
use crate::error::Result;
use crate::experiment::{Context, Effort};
use crate::figure::{Axis, Figure, Series, Shape};
use crate::kept::Kept;
use crate::pcm::{
    Conventional, Counts, Division, Granularity, LINE_BYTES, Logging, Nanos, Replayed, Scheme, Trace, replay,
};

/// Shares of the PCM that are the log pool, of which PCMBasic gets the best.
const LOG_SHARES: &[f64] = &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7];

/// What was counted of one scheme.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) counts: Counts,
    pub(super) time: Nanos,
}

impl Run {
    /// Returns the data pages transferred for each committed transaction.
    pub(super) fn data_ios(&self) -> f64 {
        self.each(self.counts.data_ios())
    }

    /// Returns `count` for each committed transaction.
    pub(super) fn each(&self, count: u64) -> f64 {
        count as f64 / self.counts.committed as f64
    }

    /// Returns the share of the accesses that DRAM could not serve, and PCM could not either, in
    /// percent.
    pub(super) fn miss_rate(&self) -> f64 {
        100.0 * self.counts.misses as f64 / self.counts.lookups as f64
    }

    /// Returns the kB written to PCM for each committed transaction.
    pub(super) fn pcm_kb(&self) -> f64 {
        self.each(self.counts.pcm_lines * LINE_BYTES) / 1e3
    }

    /// Returns the committed transactions per second.
    pub(super) fn throughput(&self) -> f64 {
        self.counts.committed as f64 / (self.time as f64 / 1e9)
    }
}

/// The schemes with one size of PCM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// PCM in percent of the data.
    pub(super) percent: f64,
    pub(super) basic: Run,
    pub(super) logging: Run,
    /// At the granularity of pages, unless the PCM is too small for it.
    pub(super) pages: Option<Run>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) setting: Vec<String>,
    pub(super) no_pcm: Run,
    /// From the smallest to the largest.
    pub(super) sizes: Vec<Size>,
}

impl Measured {
    pub(super) fn smallest(&self) -> &Size {
        self.sizes.first().expect("there is a size")
    }

    pub(super) fn largest(&self) -> &Size {
        self.sizes.last().expect("there is a size")
    }

    /// Returns a figure with a line for each scheme with PCM, and one for NoPCM if wanted.
    pub(super) fn lines(&self, name: &str, title: &str, y: Axis, with_no_pcm: bool, of: fn(&Run) -> f64) -> Figure {
        let line = |name: &str, run: &dyn Fn(&Size) -> Option<Run>| {
            let points = self.sizes.iter().filter_map(|size| Some((size.percent, of(&run(size)?))));
            Series::ours(name, points.collect())
        };
        let mut series = vec![
            line(BASIC, &|size| Some(size.basic)),
            line(LOGGING, &|size| Some(size.logging)),
            line(LOGGING_PAGES, &|size| size.pages),
        ];
        series.retain(|series| !series.points.is_empty());
        if with_no_pcm {
            series.push(line(NO_PCM, &|_| Some(self.no_pcm)));
        }
        Figure {
            name: name.into(),
            title: title.into(),
            x: Axis::linear("PCM (% of the data)"),
            y,
            shape: Shape::Lines,
            series,
        }
    }
}

thread_local! {
    /// What this thread has measured.
    static KEPT: Kept<Effort, Arc<Measured>> = const { Kept::new() };
}

/// Measures, or returns what the thread measured before.
pub(super) fn measured(context: &mut Context<'_>) -> Result<Arc<Measured>> {
    let effort = context.effort();
    if let Some(kept) = KEPT.with(|kept| kept.find(&effort)) {
        context.expect(1);
        return context.measure("judging the counts that were taken before".to_owned(), || Ok(kept));
    }
    let measured = Arc::new(measure(context)?);
    KEPT.with(|kept| kept.keep(effort, measured.clone()));
    Ok(measured)
}

/// A replay to be made, of PCM of size number `size`.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    NoPcm,
    Basic { size: usize, log_share: f64 },
    Logging { size: usize, granularity: Granularity },
}

fn measure(context: &mut Context<'_>) -> Result<Measured> {
    let log_shares = context.pick(LOG_SHARES, &[0.1, 0.4, 0.7], &[0.4]);
    let setup = Setup::new(context)?;
    let setup_of = setup.describe();
    let Setup { trace, clients, frames, sizes, bytes } = setup;
    let mut kinds = vec![Kind::NoPcm];
    for (size, &bytes) in bytes.iter().enumerate() {
        kinds.extend(log_shares.iter().map(|&log_share| Kind::Basic { size, log_share }));
        kinds.push(Kind::Logging { size, granularity: Granularity::Tuple });
        if has_room_for_pages(bytes) {
            kinds.push(Kind::Logging { size, granularity: Granularity::Page });
        }
    }
    context.expect(2 + kinds.len());
    let mut replays = Vec::new();
    for kind in kinds {
        let mut scheme = scheme(kind, &trace, frames, &bytes);
        let replayed = context.measure(describe(kind, sizes), || Ok(replay(&trace, &mut *scheme, clients, EVERY)))?;
        replays.push((kind, replayed));
    }

    // Counting begins when the PCM is full under all schemes.
    let from = replays.iter().filter_map(|(_, replayed)| replayed.full_after).max().unwrap_or(0);
    let from = from.min(trace.len() * 3 / 4);
    let never_full: Vec<String> = replays
        .iter()
        .filter(|(_, replayed)| replayed.full_after.is_none_or(|full| full > from))
        .map(|(kind, _)| describe(*kind, sizes))
        .collect();
    let run = |replayed: &Replayed| {
        let (counts, time) = replayed.after(from);
        Run { counts, time }
    };
    let find = |wanted: Kind| replays.iter().find(|(kind, _)| *kind == wanted).map(|(_, replayed)| run(replayed));
    let mut best_shares = Vec::new();
    let mut checkpoints = Vec::new();
    let mut measured = Vec::new();
    for (size, share) in sizes.iter().enumerate() {
        let basics = log_shares.iter().map(|&log_share| (log_share, find(Kind::Basic { size, log_share })));
        let basics = basics.filter_map(|(log_share, run)| Some((log_share, run?)));
        let (log_share, basic) =
            basics.min_by(|a, b| a.1.data_ios().total_cmp(&b.1.data_ios())).expect("there is a division");
        checkpoints.push(format!("{:.2}", 100.0 * basic.each(basic.counts.checkpoints)));
        best_shares.push((log_share, format!("{:.0} % at {:.2} %", log_share * 100.0, share * 100.0)));
        let logging = find(Kind::Logging { size, granularity: Granularity::Tuple }).expect("it was replayed");
        let pages = find(Kind::Logging { size, granularity: Granularity::Page });
        measured.push(Size { percent: share * 100.0, basic, logging, pages });
    }
    // What checkpoints cost where they are most frequent.
    let log = (bytes[0] as f64 * best_shares[0].0) as u64;
    let endless = Division { log: u64::MAX, pool: bytes[0] - log };
    let mut endless = Conventional::new(&trace, frames, Some(endless));
    let what = format!("{BASIC} without checkpoints");
    let without_checkpoints = context.measure(what, || Ok(replay(&trace, &mut endless, clients, EVERY)))?;
    let without_checkpoints = run(&without_checkpoints);
    let shares: Vec<String> = best_shares.into_iter().map(|(_, best)| best).collect();
    let no_pcm = find(Kind::NoPcm).expect("it was replayed");

    let mut setting = vec![
        setup_of,
        format!("Counts begin after {from} transactions, when the PCM is full under all schemes."),
        format!(
            "The best log pool of PCMBasic, of {} shares tried, by the size of the PCM: {}.",
            log_shares.len(),
            shares.join("; ")
        ),
        format!(
            "It takes {} checkpoints for 100 transactions. With a log pool without limit, and the same buffer pool, it \
             would take none, and transfer {:.2} data pages per transaction instead of {:.2} with the smallest PCM; \
             NoPCM, which takes none, {:.2}.",
            checkpoints.join(", "),
            without_checkpoints.data_ios(),
            measured[0].basic.data_ios(),
            no_pcm.data_ios(),
        ),
        restarts(&measured),
    ];
    if !never_full.is_empty() {
        setting.push(format!("Not full when the counts begin: {}.", never_full.join("; ")));
    }
    setting.push("`docs/pcm-simulation.md` has the parameters. C1, C2 and C3 judge the same replays.".to_owned());
    Ok(Measured { setting, no_pcm, sizes: measured })
}

/// Says how often deadlocks took transactions back.
fn restarts(sizes: &[Size]) -> String {
    let percent = |run: &Run| 100.0 * run.each(run.counts.restarted);
    let size = sizes.last().expect("there is a size");
    let pages = size.pages.as_ref().map_or(String::new(), |run| format!(", and {:.2} with page locks", percent(run)));
    format!(
        "With the largest PCM, deadlocks take {:.2} transactions of 100 back with tuple locks{pages}.",
        percent(&size.logging)
    )
}

fn scheme(kind: Kind, trace: &Trace, frames: usize, bytes: &[u64]) -> Box<dyn Scheme> {
    match kind {
        Kind::NoPcm => Box::new(Conventional::new(trace, frames, None)),
        Kind::Basic { size, log_share } => {
            let log = (bytes[size] as f64 * log_share) as u64;
            Box::new(Conventional::new(trace, frames, Some(Division { log, pool: bytes[size] - log })))
        }
        Kind::Logging { size, granularity } => Box::new(Logging::new(trace, frames, granularity, bytes[size])),
    }
}

fn describe(kind: Kind, sizes: &[f64]) -> String {
    let percent = |size: usize| format!("PCM of {:.2} %", sizes[size] * 100.0);
    match kind {
        Kind::NoPcm => NO_PCM.to_owned(),
        Kind::Basic { size, log_share } => format!("{BASIC}, {}, log pool {:.0} %", percent(size), log_share * 100.0),
        Kind::Logging { size, granularity: Granularity::Tuple } => format!("{LOGGING}, {}", percent(size)),
        Kind::Logging { size, granularity: Granularity::Page } => format!("{LOGGING_PAGES}, {}", percent(size)),
    }
}
