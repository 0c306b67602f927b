//! A12: the consolidation array on four sockets.

use super::buffer::{DESIGNS, load, measure, named, setting};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::{Axis, Figure, Series, Shape};
use duramen_wal::measure::BufferLoad;

/// Scalability over several sockets.
pub(crate) struct Sockets;

const FOUR: &str = "niagara2-4";
const SERVER: &str = "server-2x64";
type Layout = fn(usize) -> (usize, usize);
/// What is compared, and how many arrays and logs a machine with so many sockets has then.
const LAYOUTS: [(&str, Layout); 3] =
    [("CD-Vanilla", |_| (1, 1)), ("CD-Socket", |sockets| (sockets, 1)), ("log per socket", |sockets| (1, sockets))];

impl Experiment for Sockets {
    fn about(&self) -> About {
        About {
            id: "A12",
            title: "log insertions of 120 bytes over several sockets: one array, an array per socket, a log per socket",
            source: "Aether (VLDB Journal 2012), Fig. 13",
            world: SIMULATED,
            found: "plain CD loses half of its throughput with each of the first threads and collapses past 32; an array per socket cures \
                    the collapse, not the first loss; a log per socket is linear",
            wanted: "all three shapes",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let threads = context.pick(&[1, 2, 4, 8, 16, 32, 64, 128, 256][..], &[1, 4, 32, 256], &[1, 4, 32, 256]);
        let machines: &[(&str, usize)] = context.pick(&[(FOUR, 4), (SERVER, 2)][..], &[(FOUR, 4)], &[(FOUR, 4)]);
        context.expect(threads.len() * LAYOUTS.len() * machines.len());
        let (mut figures, mut findings) = (Vec::new(), Vec::new());
        for &(machine, sockets) in machines {
            let mut series = Vec::new();
            for (name, layout) in LAYOUTS {
                let (arrays, logs) = layout(sockets);
                let mut points = Vec::new();
                for &threads in threads {
                    let load = BufferLoad { arrays, logs, ..load(threads) };
                    let what = format!("{name}, {threads} threads");
                    let rate = measure(context, machine, DESIGNS[3], load, &what)?;
                    points.push((threads as f64, rate.bytes_per_second() / 1e9));
                }
                series.push(Series::ours(name, points));
            }
            if machine == FOUR {
                findings = checks(&series);
            }
            figures.push(Figure {
                name: if machine == FOUR { "A12".into() } else { format!("A12-{machine}") },
                title: format!("CD over sockets, {machine}"),
                x: Axis::log("threads"),
                y: Axis::log("throughput (GB/s)"),
                shape: Shape::Lines,
                series,
            });
        }
        Ok(Findings { setting: machines.iter().map(|machine| setting(machine.0)).collect(), figures, checks: findings })
    }
}

fn checks(series: &[Series]) -> Vec<Check> {
    let at = |name: &str, threads: f64| named(series, name).at(threads).unwrap_or(f64::NAN);
    let [vanilla, socket, logs] = LAYOUTS.map(|(name, _)| name);
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
