//! The loop of a run: one event after another.

use super::core_state::{Core, Wait};
use super::crash::Crashes;
use super::events::{Event, Request};
use super::system::System;
use super::{Error, Plan, Report, Setup};

impl System {
    fn handle(&mut self, event: Event) {
        match event {
            Event::BankDone { mc, channel, bank } => {
                self.bank_done(usize::from(mc), usize::from(channel), usize::from(bank));
            }
            Event::TileArrive(request) => self.tile_arrive(request),
            Event::TileLook(request) => self.tile_look(request),
            Event::Fill { request, log } => self.fill(request, log),
            Event::ReadArrives(request) => self.read_arrives(request),
            Event::ReadReturns { request, log } => self.read_returns(request, log),
            Event::WriteArrives { mc, write } => self.write_arrives(usize::from(mc), write),
            Event::FlushArrives { mc, core, line } => self.flush_arrives(usize::from(mc), core, line),
            Event::FlushAck { core, line } => self.flush_acknowledged(usize::from(core), line),
            Event::LogAck { core } => self.log_acknowledged(usize::from(core)),
            Event::BeginArrives { core } => self.begin_arrives(core),
            Event::BeginAck { core, slot } => self.begin_acknowledged(usize::from(core), slot),
            Event::SlotReturns { slot } => self.slot_returns(slot),
            Event::EndArrives { mc, core, slot, outer } => self.end_arrives(usize::from(mc), core, slot, outer),
            Event::EndAck { core } => self.end_acknowledged(usize::from(core)),
            Event::ClearArrives { mc, core, slot, outer } => self.clear_arrives(usize::from(mc), core, slot, outer),
            Event::ClearAck { core } => self.clear_acknowledged(usize::from(core)),
            Event::Grown { mc } => self.log_grown(usize::from(mc)),
            Event::Redo { core, step, number } => self.redo_step(usize::from(core), step, number),
            Event::Schedule { mc, channel } => self.schedule(usize::from(mc), usize::from(channel)),
            Event::Drain { core } => self.drain(usize::from(core)),
            Event::Core { core } => self.advance(usize::from(core)),
        }
    }

    fn waiting(&self) -> String {
        let describe = |(number, core): (usize, &Core)| match core.wait {
            Wait::Ended => None,
            wait => Some(format!("core {number}: {wait:?}, store queue: {}", core.head())),
        };
        self.cores.iter().enumerate().filter_map(describe).collect::<Vec<_>>().join("; ")
    }
}

/// Runs programs on a machine.
///
/// # Errors
/// If the log is full or nothing can go on; see [`Error`]. Crashes that recovery does not mend are
/// no error but counted in [`Report::crashes`].
pub fn run(plan: &Plan, setup: Setup) -> Result<Report, Error> {
    let mut system = System::new(plan, setup);
    let mut crashes = Crashes::new(plan);
    let (mut events, mut digest) = (0u64, 0u64);
    while let Some((at, event)) = system.events.pop() {
        crashes.before(&system, at);
        system.now = at;
        events += 1;
        digest = (digest ^ at ^ word(event)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        system.handle(event);
        crashes.after(&system);
        if system.error.is_some() || crashes.is_enough() {
            break;
        }
    }
    let ended = system.cores.iter().all(|core| core.wait == Wait::Ended);
    let waiting = system.waiting();
    for core in &mut system.cores {
        if let Some(fiber) = core.fiber.take() {
            fiber.discard();
        }
    }
    if let Some(error) = system.error {
        return Err(error);
    }
    if !ended && !crashes.is_enough() {
        return Err(Error::Stuck { cycle: system.now, waiting });
    }
    let busiest_link = system.mesh.busiest() * 1000 / system.now.max(1);
    if busiest_link > 500 {
        return Err(Error::Link(busiest_link));
    }
    let (start, before) = system.measured.start.unwrap_or_default();
    let (end, after) = system.measured.end.unwrap_or((system.now, system.counters));
    Ok(Report {
        cycles: end - start,
        counters: after.since(&before),
        total: system.counters,
        all_cycles: system.now,
        events,
        digest,
        crashes: crashes.report(),
        busiest_link,
        image: system.values.coherent[..system.values.scratch as usize].to_vec(),
    })
}

/// A number that tells events apart.
fn word(event: Event) -> u64 {
    let number = |kind: u64, a: u64, b: u64| kind << 56 | a << 40 | b;
    let of = |kind, request: Request| number(kind, u64::from(request.core), u64::from(request.line));
    match event {
        Event::BankDone { mc, channel, bank } => number(1, u64::from(mc), u64::from(channel) << 8 | u64::from(bank)),
        Event::TileArrive(request) => of(2, request),
        Event::TileLook(request) => of(3, request),
        Event::Fill { request, log } => of(4 + u64::from(log), request),
        Event::ReadArrives(request) => of(6, request),
        Event::ReadReturns { request, log } => of(7 + u64::from(log), request),
        Event::WriteArrives { mc, write } => number(9, u64::from(mc), u64::from(write)),
        Event::FlushArrives { core, line, .. } => number(10, u64::from(core), u64::from(line)),
        Event::FlushAck { core, line } => number(11, u64::from(core), u64::from(line)),
        Event::LogAck { core } => number(12, u64::from(core), 0),
        Event::BeginArrives { core } => number(13, u64::from(core), 0),
        Event::BeginAck { core, slot } => number(14, u64::from(core), u64::from(slot)),
        Event::SlotReturns { slot } => number(15, 0, u64::from(slot)),
        Event::EndArrives { mc, core, slot, .. } => number(16, u64::from(core), u64::from(mc) << 8 | u64::from(slot)),
        Event::EndAck { core } => number(17, u64::from(core), 0),
        Event::ClearArrives { mc, core, slot, .. } => number(18, u64::from(core), u64::from(mc) << 8 | u64::from(slot)),
        Event::ClearAck { core } => number(19, u64::from(core), 0),
        Event::Grown { mc } => number(20, u64::from(mc), 0),
        Event::Redo { core, step, number: of } => number(21 + u64::from(step), u64::from(core), u64::from(of)),
        Event::Schedule { mc, channel } => number(40, u64::from(mc), u64::from(channel)),
        Event::Drain { core } => number(41, u64::from(core), 0),
        Event::Core { core } => number(42, u64::from(core), 0),
    }
}
