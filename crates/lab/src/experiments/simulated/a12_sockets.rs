//! A12: the consolidation array on four sockets.

use super::buffer::{DESIGNS, load, measure, named, setting};
use super::machines::{FOUR_SOCKETS, SERVER};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::{Axis, Figure, Series, Shape};
use duramen::InsertDesign;
use duramen_wal::measure::BufferLoad;

/// Scalability over several sockets.
pub(crate) struct Sockets;

type Layout = fn(usize) -> (usize, usize);
/// What is compared: with a design, and so many arrays and logs for a machine with so many sockets.
const LAYOUTS: [(&str, (InsertDesign, &str), Layout); 5] = [
    ("CD-Vanilla", DESIGNS[3], |_| (1, 1)),
    ("CD-Socket", DESIGNS[3], |sockets| (sockets, 1)),
    ("log per socket", DESIGNS[3], |sockets| (1, sockets)),
    ("reserved", DESIGNS[5], |_| (1, 1)),
    ("reserved, log per socket", DESIGNS[5], |sockets| (1, sockets)),
];

impl Experiment for Sockets {
    fn about(&self) -> About {
        About {
            id: "A12",
            title: "log insertions of 120 bytes over several sockets: one array, an array per socket, a log per socket",
            source: "Aether (VLDB Journal 2012), Fig. 13",
            world: SIMULATED,
            found: "plain CD loses half of its throughput with each of the first threads and collapses past 32; \
                    an array per socket cures the collapse, not the first loss; a log per socket is linear",
            wanted: "all three shapes",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let threads = context.pick(&[1, 2, 4, 8, 16, 32, 64, 128, 256][..], &[1, 4, 32, 256], &[1, 4, 32, 256]);
        let machines = context.pick(&[FOUR_SOCKETS, SERVER][..], &[FOUR_SOCKETS], &[FOUR_SOCKETS]);
        context.expect(threads.len() * LAYOUTS.len() * machines.len());
        let (mut figures, mut findings) = (Vec::new(), Vec::new());
        for &machine in machines {
            let mut series = Vec::new();
            for (name, design, layout) in LAYOUTS {
                let (arrays, logs) = layout(machine.sockets);
                let mut points = Vec::new();
                for &threads in threads {
                    let load = BufferLoad { arrays, logs, ..load(threads) };
                    let what = format!("{name}, {threads} threads");
                    let rate = measure(context, machine, design, load, &what)?;
                    points.push((threads as f64, rate.bytes_per_second() / 1e9));
                }
                series.push(Series::ours(name, points));
            }
            if machine == FOUR_SOCKETS {
                findings = checks(&series);
            }
            figures.push(Figure {
                name: machine.figure("A12"),
                title: format!("Log insertions over sockets, {}", machine.title),
                x: Axis::log("threads"),
                y: Axis::log("throughput (GB/s)"),
                shape: Shape::Lines,
                series,
            });
        }
        Ok(Findings { setting: machines.iter().copied().map(setting).collect(), figures, checks: findings })
    }
}

fn checks(series: &[Series]) -> Vec<Check> {
    let at = |name: &str, threads: f64| named(series, name).at(threads).unwrap_or(f64::NAN);
    let [vanilla, socket, logs, ..] = LAYOUTS.map(|(name, ..)| name);
    vec![
        Check::new("one array, 4 threads by 1", "about 0.25", at(vanilla, 4.0) / at(vanilla, 1.0), Bound::AtMost(0.6)),
        Check::new(
            "one array, 256 threads by 32",
            "collapses",
            at(vanilla, 256.0) / at(vanilla, 32.0),
            Bound::AtMost(0.8),
        ),
        Check::new(
            "an array per socket, 4 threads by 1",
            "the first loss stays",
            at(socket, 4.0) / at(socket, 1.0),
            Bound::AtMost(0.6),
        ),
        Check::new(
            "an array per socket, 256 threads by 32",
            "no collapse",
            at(socket, 256.0) / at(socket, 32.0),
            Bound::AtLeast(0.9),
        ),
        Check::new(
            "a log per socket, 256 threads by 4",
            "linear",
            at(logs, 256.0) / at(logs, 4.0),
            Bound::AtLeast(8.0),
        ),
        Check::new("a log per socket, 4 threads by 1", "linear: 4", at(logs, 4.0) / at(logs, 1.0), Bound::AtLeast(2.5)),
    ]
}
