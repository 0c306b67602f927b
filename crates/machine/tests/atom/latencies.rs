//! Latencies of single operations on Table I's machine, worked out by hand, and T9.

use std::cell::Cell;
use std::rc::Rc;

use duramen_machine::atom::{Cpu, Design, Lock, Machine, Plan, Report, Scope, Setup, run};

/// Runs one program on core 0.
fn alone(design: Design, lines: usize, program: impl FnOnce(&mut Cpu) + 'static) -> Report {
    let mut plan = Plan::new(Machine::named("atom-events").unwrap(), design, 1);
    plan.scope = Scope::Persistent;
    let program = Box::new(move |cpu: &mut Cpu| {
        program(cpu);
        // A locked instruction waits until the store queue is empty.
        cpu.atomic(Lock(0), |_| ());
        cpu.done();
    });
    run(&plan, Setup { image: vec![[7; 64]; lines], locks: 1, programs: vec![program] }).unwrap()
}

/// Cycles of an update that stores to so many lines of one page, from the core beside their
/// controller.
fn update(design: Design, lines: u64) -> Report {
    alone(design, 64, move |cpu| {
        cpu.atomic(Lock(0), |cpu| {
            for line in 0..lines {
                cpu.store(line * 64, line);
            }
        });
    })
}

#[test]
fn loads_take_what_the_machine_says() {
    let loaded = Rc::new(Cell::new(0));
    let theirs = Rc::clone(&loaded);
    // Line 0 has its tile and its controller at the core's node: 1 cycle to the tile, 30 there, 1
    // to the controller, 24 on the channel and 240 in the bank, 1 to compare addresses, 4 back and
    // 4 to the core: 305 cycles, of which the load itself takes 0.7.
    let report = alone(Design::NonAtomic, 64, move |cpu| {
        theirs.set(cpu.load(0));
    });
    assert_eq!(loaded.get(), u64::from_le_bytes([7; 8]));
    assert_eq!(1 + 30 + 1 + 24 + 240 + 1 + 4 + 4, 305);
    // The other is the lock's line.
    assert_eq!(report.counters.data_reads, 2);
    assert!(report.counters.loads >= 304, "{:?}", report.counters);
}

#[test]
fn a_record_of_seven_entries_takes_eight_writes() {
    let report = update(Design::Atom, 7);
    let counters = report.counters;
    assert_eq!((counters.entries, counters.full_records, counters.full_record_writes), (7, 1, 8));
    assert_eq!((counters.log_lines, counters.headers), (7, 1));
    assert_eq!(counters.data_writes, 7, "each line is flushed");
    // Without collation each entry has a header of its own: BASE.
    let counters = update(Design::Base, 7).counters;
    assert_eq!((counters.entries, counters.log_lines, counters.headers), (7, 7, 7));
}

#[test]
fn designs_wait_for_what_they_must() {
    let cycles = |design| update(design, 1).counters.drain + update(design, 1).cycles;
    let of = |design| {
        let report = update(design, 6);
        (report.counters.entries, report.counters.sourced, report.counters.data_writes, report.counters.log_reads)
    };
    assert_eq!(of(Design::NonAtomic), (0, 0, 6, 0));
    assert_eq!(of(Design::Atom), (6, 0, 6, 0));
    assert_eq!(of(Design::AtomOpt), (6, 6, 6, 0), "all lines come from memory for a store");
    assert!(of(Design::Redo).0 == 6 && of(Design::Redo).1 == 0);
    assert!(cycles(Design::Base) > 0);
}
