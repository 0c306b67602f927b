//! Throughput of all schemes by the length of a barrier: what P5 and P6 judge.
//!
//! Both claims are about the same figure of the paper. In a run of both, the thread measures once
//! and keeps the series.

use super::measure::{SETTINGS, curves, near_instant, points};
use super::world::World;
use crate::contender::CONTENDERS;
use crate::error::Result;
use crate::experiment::{Context, Effort};
use crate::figure::{Axis, Figure, Series, Shape};
use crate::kept::Kept;

/// Microseconds.
const BARRIERS: &[f64] = &[0.0, 0.5, 1.0, 2.0, 5.0];

/// The transactions that write.
pub(super) const WORKLOADS: [&str; 3] = ["tatp:update-location", "tpcb", "tpcc:new-order"];

/// What was measured.
#[derive(Clone, Default)]
pub(super) struct Measured {
    pub(super) setting: Vec<String>,
    /// Of each workload, in thousands of transactions per second.
    pub(super) curves: Vec<(&'static str, Vec<Series>)>,
}

thread_local! {
    /// What this thread has measured.
    static KEPT: Kept<(World, Effort), Measured> = const { Kept::new() };
}

/// Measures, or returns what the thread measured before.
pub(super) fn measured(context: &mut Context<'_>, world: World) -> Result<Measured> {
    let key = (world, context.effort());
    if let Some(mut kept) = KEPT.with(|kept| kept.find(&key)) {
        context.expect(1);
        kept.setting.push("P5 and P6 judge the same series, which were measured once.".to_owned());
        return context.measure("judging the series that were measured before".to_owned(), || Ok(kept));
    }
    let measured = measure(context, world)?;
    KEPT.with(|kept| kept.keep(key, measured.clone()));
    Ok(measured)
}

fn measure(context: &mut Context<'_>, world: World) -> Result<Measured> {
    let ground = world.ground(context);
    let barriers = context.pick(BARRIERS, &[0.0, 1.0, 5.0], &[0.0, 5.0]);
    let workloads = context.pick(&WORKLOADS[..], &WORKLOADS, &WORKLOADS[1..2]);
    let points = points(ground.rounds(), CONTENDERS.len() + 1, barriers);
    context.expect(workloads.len() * (ground.dirty_pages().len() + points));
    let mut measured = Measured { setting: ground.setting(), curves: Vec::new() };
    measured.setting.push(SETTINGS.to_owned());
    for &workload in workloads {
        context.prepare(&format!("populating {workload}"));
        let site = ground.site(workload)?;
        let (tuned, what) = near_instant(context, &*ground, (workload, &*site))?;
        measured.setting.push(what);
        let mut contenders = vec![tuned];
        contenders.extend_from_slice(CONTENDERS);
        let series = curves(context, (workload, &*site), ground.rounds(), &contenders, barriers)?;
        context.prepare("auditing");
        site.audit()?;
        measured.curves.push((workload, series));
    }
    Ok(measured)
}

/// Returns the paper's Figure 5 of one workload.
pub(super) fn figure(id: &str, workload: &str, series: Vec<Series>) -> Figure {
    Figure {
        name: format!("{id}-{}", workload.replace(':', "-")),
        title: format!("Throughput by the length of a persist barrier, {workload}"),
        x: Axis::linear("persist barrier (us)"),
        y: Axis::linear("throughput (thousands of transactions/s)"),
        shape: Shape::Lines,
        series,
    }
}
