//! A6: insertions of 120-byte records by ever more threads.

use super::buffer::{DESIGNS, load, measure, named, setting};
use super::machines::{Machine, NIAGARA, SERVER};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::{Axis, Figure, Series, Shape};

/// Scalability of the insertion designs with the number of threads.
pub(crate) struct Threads;

impl Experiment for Threads {
    fn about(&self) -> About {
        About {
            id: "A6",
            title: "log insertions of 120 bytes by 1 to 64 threads, design by design",
            source: "Aether (VLDB Journal 2012), Fig. 9 left",
            world: SIMULATED,
            found: "the mutex saturates and then falls; consolidation (C) starts lower and then scales linearly; \
                    decoupling (D) is better early and degrades; both together (CD) are best and nearly linear, \
                    about 20 times the mutex at 64",
            wanted: "the order of the designs at 1, 4, 16 and 64 threads, and CD at least 10 times the mutex at 64",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let niagara = context.pick(&[1, 2, 4, 8, 16, 24, 32, 48, 64][..], &[1, 4, 16, 64], &[1, 4, 16, 64]);
        let server = context.pick(&[1, 2, 4, 8, 16, 32, 64, 128, 256][..], &[1, 64], &[1]);
        context.expect((niagara.len() + server.len()) * DESIGNS.len());
        let ours = series(context, NIAGARA, niagara)?;
        let checks = checks(&ours);
        let today = series(context, SERVER, server)?;
        let figures = [(NIAGARA, ours), (SERVER, today)].map(|(machine, series)| Figure {
            name: machine.figure("A6"),
            title: format!("Log insertions of 120 bytes, {}", machine.title),
            x: Axis::linear("threads"),
            y: Axis::log("throughput (GB/s)"),
            shape: Shape::Lines,
            series,
        });
        Ok(Findings { setting: vec![setting(NIAGARA), setting(SERVER)], figures: figures.into(), checks })
    }
}

fn series(context: &mut Context<'_>, machine: Machine, threads: &[usize]) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for design in DESIGNS {
        let mut points = Vec::new();
        for &threads in threads {
            let rate = measure(context, machine, design, load(threads), &format!("{threads} threads"))?;
            points.push((threads as f64, rate.bytes_per_second() / 1e9));
        }
        all.push(Series::ours(design.1, points));
    }
    Ok(all)
}

fn checks(series: &[Series]) -> Vec<Check> {
    let ratio = |a: &str, b: &str, threads: f64| {
        named(series, a).at(threads).unwrap_or(f64::NAN) / named(series, b).at(threads).unwrap_or(f64::NAN)
    };
    let (mutex, c, d, cd) = (DESIGNS[0].1, DESIGNS[1].1, DESIGNS[2].1, DESIGNS[3].1);
    let growth = |name: &str| {
        named(series, name).at(64.0).unwrap_or(f64::NAN) / named(series, name).at(16.0).unwrap_or(f64::NAN)
    };
    vec![
        Check::new("CD by the mutex at 64 threads", "about 20", ratio(cd, mutex, 64.0), Bound::AtLeast(10.0)),
        Check::new("CD by the mutex at 16 threads", "above 1", ratio(cd, mutex, 16.0), Bound::AtLeast(1.5)),
        Check::new("C by the mutex at 1 thread", "below 1", ratio(c, mutex, 1.0), Bound::AtMost(1.0)),
        Check::new("D by C at 4 threads", "above 1", ratio(d, c, 4.0), Bound::AtLeast(1.0)),
        Check::new("C by D at 64 threads", "above 1", ratio(c, d, 64.0), Bound::AtLeast(1.0)),
        Check::new("CD by C at 64 threads", "above 1", ratio(cd, c, 64.0), Bound::AtLeast(1.0)),
        Check::new("CD by D at 64 threads", "above 1", ratio(cd, d, 64.0), Bound::AtLeast(1.0)),
        Check::new(
            "the mutex at 64 threads by its peak",
            "falls slowly",
            named(series, mutex).last() / named(series, mutex).peak(),
            Bound::AtMost(1.0),
        ),
        Check::new("C from 16 to 64 threads", "linear: 4", growth(c), Bound::AtLeast(2.0)),
        Check::new("CD from 16 to 64 threads", "near-linear", growth(cd), Bound::AtLeast(2.0)),
    ]
}
