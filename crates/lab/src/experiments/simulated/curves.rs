//! The whole engine with ever more threads, on machine after machine.

use std::time::Duration;

use super::engine::{Measured, Populated, Shares};
use super::machines::{FOUR_SOCKETS, NIAGARA, SERVER};
use super::setup::{Bench, Setup};
use crate::error::Result;
use crate::experiment::Context;
use crate::figure::{Axis, Figure, Series, Shape};

/// A workload on a machine, by these numbers of threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    pub(super) bench: Bench,
    pub(super) threads: &'static [u32],
}

impl Sweep {
    /// Returns the sweeps of a workload on all machines: the paper's, four of it, and one of today.
    /// The first is for a database of size `scale`, the others have `larger`.
    pub(super) fn all(
        context: &Context<'_>,
        workload: &'static str,
        (scale, larger): (u64, u64),
        rows_per_unit: u64,
    ) -> Vec<Self> {
        let millis = |full, quick, tiny| Duration::from_millis(context.pick(full, quick, tiny));
        let (time, more_work) = (millis(10, 4, 2), Duration::ZERO);
        let bench =
            Bench { machine: NIAGARA, workload, scale, rows_per_unit, skew: None, in_flight: 64, time, more_work };
        let more = Bench { scale: larger, in_flight: 16, ..bench };
        let mut all = vec![
            Self { bench, threads: context.pick(&[1, 4, 16, 32, 60, 64], &[1, 16, 60], &[16]) },
            Self {
                bench: Bench { machine: FOUR_SOCKETS, time: millis(4, 2, 1), ..more },
                threads: context.pick(&[1, 4, 16, 64, 256], &[4, 64, 256], &[8]),
            },
        ];
        let today =
            Self { bench: Bench { machine: SERVER, time: millis(2, 1, 1), ..more }, threads: &[1, 4, 16, 64, 256] };
        all.extend(context.pick(Some(today), None, None));
        all
    }

    /// Populates a database and measures these systems.
    pub(super) fn measure<'a>(&self, context: &mut Context<'_>, setups: &'a [Setup]) -> Result<Curves<'a>> {
        let mut populated: Vec<Populated> = Vec::new();
        let mut measured = Vec::new();
        for &setup in setups {
            if !populated.iter().any(|with| with.logs() == setup.logs) {
                populated.push(Populated::with_logs(self.bench, setup.logs));
            }
            let with = populated.iter().find(|with| with.logs() == setup.logs).expect("it was just made");
            let line: Result<_> = self.threads.iter().map(|&threads| with.measure(context, setup, threads)).collect();
            measured.push(line?);
        }
        Ok(Curves { setups, threads: self.threads, measured })
    }
}

/// Returns a figure of stacked shares: a bar for each of `measured`, by its name.
pub(super) fn breakdown(name: &str, title: &str, measured: &[(String, Measured)]) -> Figure {
    type Share = fn(&Shares) -> f64;
    let parts: [(&str, Share); 6] = [
        ("log contention", |shares| shares.log_contention),
        ("log work", |shares| shares.log_work),
        ("waiting for locks", |shares| shares.lock_waits),
        ("other contention", |shares| shares.other_contention),
        ("other work", |shares| shares.other_work),
        ("idle", Shares::idle),
    ];
    let series = parts.map(|(part, share)| {
        let points = measured.iter().enumerate();
        Series::ours(part, points.map(|(at, (_, measured))| (at as f64, share(&measured.shares) * 100.0)).collect())
    });
    Figure {
        name: name.into(),
        title: title.into(),
        x: Axis::linear("threads"),
        y: Axis::linear("share of the threads' time (%)"),
        shape: Shape::Stacks(measured.iter().map(|(name, _)| name.clone()).collect()),
        series: series.into(),
    }
}

/// Systems beside each other, over numbers of threads.
pub(super) struct Curves<'a> {
    setups: &'a [Setup],
    threads: &'a [u32],
    /// For each system, for each number of threads.
    measured: Vec<Vec<Measured>>,
}

impl<'a> Curves<'a> {
    /// Measures them; each system for each number of threads is one measurement.
    pub(super) fn measure(
        context: &mut Context<'_>,
        populated: &Populated,
        setups: &'a [Setup],
        threads: &'a [u32],
    ) -> Result<Self> {
        let mut measured = Vec::new();
        for &setup in setups {
            let line: Result<_> = threads.iter().map(|&threads| populated.measure(context, setup, threads)).collect();
            measured.push(line?);
        }
        Ok(Self { setups, threads, measured })
    }

    /// Returns the measurements of system number `at`, with the threads of each.
    pub(super) fn of(&self, at: usize) -> impl Iterator<Item = (u32, Measured)> + '_ {
        self.threads.iter().copied().zip(self.measured[at].iter().copied())
    }

    /// Of system number `at` with most threads.
    pub(super) fn last(&self, at: usize) -> Measured {
        self.measured[at].last().copied().unwrap_or_default()
    }

    /// Of system number `at` with so many threads.
    pub(super) fn with(&self, at: usize, threads: u32) -> Measured {
        self.of(at).find(|(number, _)| *number == threads).map(|(_, measured)| measured).unwrap_or_default()
    }

    /// Returns the largest throughput of system number `at`.
    pub(super) fn peak(&self, at: usize) -> f64 {
        self.measured[at].iter().map(|measured| measured.throughput).fold(f64::NAN, f64::max)
    }

    /// Returns a figure with a line for each system.
    fn lines(&self, name: &str, title: &str, y: &str, value: fn(&Measured) -> f64) -> Figure {
        let line = |(at, setup): (usize, &Setup)| {
            let points = self.of(at).map(|(threads, measured)| (f64::from(threads), value(&measured)));
            Series::ours(setup.name, points.collect())
        };
        Figure {
            name: name.into(),
            title: title.into(),
            x: Axis::linear("threads"),
            y: Axis::linear(y),
            shape: Shape::Lines,
            series: self.setups.iter().enumerate().map(line).collect(),
        }
    }

    /// Returns the commits per second.
    pub(super) fn throughput(&self, name: &str, title: &str) -> Figure {
        self.lines(name, title, "commits (thousands/s)", |measured| measured.throughput / 1e3)
    }

    /// Visits to pages that come from another socket than the one before.
    pub(super) fn migrations(&self, name: &str, title: &str) -> Figure {
        self.lines(name, title, "visits that come from another socket (%)", |measured| measured.migrations * 100.0)
    }

    /// Requests that private caches cannot answer.
    pub(super) fn off_core(&self, name: &str, title: &str) -> Figure {
        self.lines(name, title, "requests that leave the core, per commit", |measured| measured.off_core)
    }

    /// How rarely stragglers are drained.
    pub(super) fn commits_per_drain(&self, name: &str, title: &str) -> Figure {
        self.lines(name, title, "commits for each draining of stragglers", |measured| measured.commits_per_drain)
    }

    /// For each system, where the time goes, a bar for each number of threads.
    pub(super) fn breakdowns(&self, name: &str, title: &str) -> Vec<Figure> {
        let figure = |(at, setup): (usize, &Setup)| {
            let bars: Vec<(String, Measured)> =
                self.of(at).map(|(threads, measured)| (threads.to_string(), measured)).collect();
            breakdown(&format!("{name}-{}", setup.name), &format!("{title}, {}", setup.name), &bars)
        };
        self.setups.iter().enumerate().map(figure).collect()
    }
}
