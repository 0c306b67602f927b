//! A7 and A8: insertions by 64 threads of ever larger records, into the log buffer and into memory
//! that stays in a cache.

use super::buffer::{DESIGNS, load, measure, named, on_the_papers, settings};
use super::machines::{Machine, NIAGARA, NIAGARA_AS_MEASURED, SERVER};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings, SIMULATED};
use crate::figure::{Axis, Figure, Series, Shape};
use duramen_wal::measure::BufferLoad;

/// Sensitivity to the record size.
pub(crate) struct RecordSize;

/// The same into thread-local memory.
pub(crate) struct ThreadLocal;

/// Threads: every context of the paper's machine.
const THREADS: usize = 64;
/// Record sizes in bytes, from the smallest to the largest of the paper's.
const SIZES: [usize; 8] = [48, 120, 256, 512, 1024, 2048, 4096, 12_288];
const FEW: [usize; 4] = [48, 512, 4096, 12_288];

fn machines(context: &Context<'_>) -> &'static [Machine] {
    context.pick(&[NIAGARA, NIAGARA_AS_MEASURED, SERVER], &[NIAGARA], &[NIAGARA])
}

impl Experiment for RecordSize {
    fn about(&self) -> About {
        About {
            id: "A7",
            title: "log insertions of 48 bytes to 12 kB by 64 threads, design by design",
            source: "Aether (VLDB Journal 2012), Fig. 9 right",
            world: SIMULATED,
            found: "consolidation (C) beats decoupling (D) for small records and D beats C above about 1 kB; both \
                    together (CD) are best everywhere; in the end all are limited by memory bandwidth",
            wanted: "D overtakes C between 256 bytes and 4 kB, CD is best everywhere",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "C fills its groups one after the other, and one context of this machine copies 0.31 GB/s, as the mutex \
             shows. So the copying of ten to twelve members at a time limits C, and the published memory bandwidth \
             limits D and CD, which reach 10 to 11 GB/s. In the paper that limit is about 2 GB/s, which C reaches \
             here, too",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let sizes = context.pick(&SIZES[..], &FEW, &FEW);
        let machines = machines(context);
        context.expect(sizes.len() * DESIGNS.len() * machines.len());
        let (mut figures, mut findings) = (Vec::new(), Vec::new());
        for &machine in machines {
            let mut all = Vec::new();
            for design in DESIGNS {
                let mut points = Vec::new();
                for &size in sizes {
                    let load = BufferLoad { record_bytes: size, ..load(THREADS) };
                    let rate = measure(context, machine, design, load, &format!("{size} bytes"))?;
                    points.push((size as f64, rate.bytes_per_second() / 1e9));
                }
                all.push(Series::ours(design.1, points));
            }
            findings.extend(on_the_papers(machine, || checks(&all, sizes)));
            figures.push(Figure {
                name: machine.figure("A7"),
                title: format!("Log insertions by {THREADS} threads, {}", machine.title),
                x: Axis::log("record size (bytes)"),
                y: Axis::log("throughput (GB/s)"),
                shape: Shape::Lines,
                series: all,
            });
        }
        Ok(Findings { setting: settings(machines, load(1)), figures, checks: findings })
    }
}

fn checks(series: &[Series], sizes: &[usize]) -> Vec<Check> {
    let [_, c, d, cd, ..] = DESIGNS.map(|(_, name)| named(series, name));
    let at = |series: &Series, size: usize| series.at(size as f64).unwrap_or(f64::NAN);
    // The size from which on D stays ahead.
    let crossing =
        sizes.iter().rev().take_while(|&&size| at(d, size) >= at(c, size)).last().map_or(f64::NAN, |&size| size as f64);
    let worst = sizes.iter().map(|&size| at(cd, size) / at(c, size).max(at(d, size))).fold(f64::INFINITY, f64::min);
    let smallest = sizes.first().copied().unwrap_or_default();
    let most = [c, d, cd].map(Series::last).into_iter().fold(f64::MIN, f64::max);
    let least = [c, d, cd].map(Series::last).into_iter().fold(f64::MAX, f64::min);
    vec![
        Check::new(
            "C by D with the smallest records",
            "above 1",
            at(c, smallest) / at(d, smallest),
            Bound::AtLeast(1.0),
        ),
        Check::new("size from which D is ahead of C, bytes", "about 1,000", crossing, Bound::Within(256.0, 4096.0)),
        Check::new("CD by the better of C and D, at its worst size", "1 or more", worst, Bound::AtLeast(0.95)),
        Check::new(
            "the best by the worst of C, D and CD with the largest records",
            "all limited by bandwidth",
            most / least,
            Bound::AtMost(2.0),
        ),
    ]
}

impl Experiment for ThreadLocal {
    fn about(&self) -> About {
        About {
            id: "A8",
            title: "log insertions into thread-local memory that stays in a cache",
            source: "Aether (VLDB Journal 2012), section 6.3",
            world: SIMULATED,
            found: "without the limit of memory bandwidth, CD continues to scale with the record size, to 21 GB/s, \
                    about 10 times the shared buffer's",
            wanted: "at least 4 times the bandwidth of the shared buffer at 12 kB",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "the shared buffer comes to 10 to 12 GB/s, for which memory reads and writes 21 GB/s in all, its \
             published bandwidth; in the paper it comes to about 2 GB/s. The thread-local memory is limited by \
             the copying of 64 contexts",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let sizes = context.pick(&SIZES[..], &FEW, &FEW);
        let machines = machines(context);
        let designs = [DESIGNS[3], DESIGNS[5]];
        context.expect(sizes.len() * 2 * designs.len() * machines.len());
        let (mut figures, mut findings) = (Vec::new(), Vec::new());
        for &machine in machines {
            let mut all = Vec::new();
            for design in designs {
                for (memory, thread_local) in [("shared buffer", false), ("thread-local", true)] {
                    let mut points = Vec::new();
                    for &size in sizes {
                        let load = BufferLoad { record_bytes: size, thread_local, ..load(THREADS) };
                        let rate = measure(context, machine, design, load, &format!("{memory}, {size} bytes"))?;
                        points.push((size as f64, rate.bytes_per_second() / 1e9));
                    }
                    all.push(Series::ours(format!("{}, {memory}", design.1), points));
                }
            }
            findings.extend(on_the_papers(machine, || local_checks(&all)));
            figures.push(Figure {
                name: machine.figure("A8"),
                title: format!("Log insertions by {THREADS} threads, {}", machine.title),
                x: Axis::log("record size (bytes)"),
                y: Axis::log("throughput (GB/s)"),
                shape: Shape::Lines,
                series: all,
            });
        }
        Ok(Findings { setting: settings(machines, load(1)), figures, checks: findings })
    }
}

/// CD into the shared buffer and into thread-local memory come first in `series`.
fn local_checks(series: &[Series]) -> Vec<Check> {
    let [shared, local, ..] = series else { unreachable!("CD is measured") };
    vec![
        Check::new(
            "thread-local by shared with the largest records",
            "about 10",
            local.last() / shared.last(),
            Bound::AtLeast(4.0),
        ),
        Check::new(
            "thread-local bandwidth, largest by smallest records",
            "goes on scaling",
            local.last() / local.points.first().map_or(f64::NAN, |point| point.1),
            Bound::AtLeast(4.0),
        ),
    ]
}
