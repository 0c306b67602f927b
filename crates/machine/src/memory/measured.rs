//! The built-in machines beside what others measured on the real ones, apart from what their
//! descriptions say.

use super::*;
use crate::pipeline::Pipelines;

fn machine(name: &str) -> Description {
    Description::named(name).expect("built in")
}

/// Nanoseconds that a read-modify-write takes when two contexts take turns on a line.
fn ping_pong(machine: &Description, contexts: [usize; 2]) -> f64 {
    let mut memory = Memory::new(machine);
    let mut now = Time::ZERO;
    let mut begin = Time::ZERO;
    for turn in 0..120 {
        if turn == 20 {
            begin = now;
        }
        now = memory.access(contexts[turn % 2], Line(0), Op::Rmw, now);
    }
    (now - begin).picos() as f64 / 1000.0 / 100.0
}

/// Gigabytes per second, counted as STREAM does, that some contexts move by a = b + c over long
/// arrays of their own, with so many instructions for each line of a.
fn triad(machine: &Description, contexts: usize, lines_each: u64, instructions: u64) -> f64 {
    const PIECE: u64 = 128;
    const ARRAY: u64 = (1 << 20) + 640;
    let (mut memory, mut pipelines) = (Memory::new(machine), Pipelines::new(machine));
    let mut nows = vec![Time::ZERO; contexts];
    for piece in 0..lines_each / PIECE {
        for (nth, now) in nows.iter_mut().enumerate() {
            let context = machine.placement(nth);
            let array = |which: u64| Line((nth as u64 * 3 + which) * ARRAY + piece * PIECE);
            let read = memory.touch(context, array(0), PIECE, Bulk::Read, *now);
            let read = memory.touch(context, array(1), PIECE, Bulk::Read, read);
            let written = memory.touch(context, array(2), PIECE, Bulk::Write, read);
            *now = pipelines.compute(context, PIECE * instructions, written);
        }
    }
    let end = nows.into_iter().max().expect("a context");
    (contexts as u64 * lines_each * 64 * 3) as f64 / (end.picos() as f64 / 1000.0)
}

#[track_caller]
fn within(ours: f64, measured: f64, share: f64) {
    assert!((ours / measured - 1.0).abs() <= share, "{ours:.1} against {measured}");
}

#[test]
fn compare_and_swap_on_westmere_ex() {
    // David et al., SOSP 2013, Table 2: 120 cycles in the die and 324 cycles at 2.13 GHz one hop
    // away.
    let machine = machine("xeon-e7-4807");
    within(ping_pong(&machine, [0, 2]) * 1.86, 120.0, 0.1);
    within(ping_pong(&machine, [0, 12]) * 2.13, 324.0, 0.1);
}

#[test]
fn the_triad_on_niagara_ii() {
    // Hager, Zeiser, Wellein 2008: about 16 GB/s with 64 threads; one thread is limited by the
    // latency of its misses.
    let machine = machine("niagara2");
    within(triad(&machine, 64, 4096, 30), 16.0, 0.15);
    assert!(triad(&machine, 1, 4096, 30) < 1.0);
}

#[test]
fn the_triad_on_westmere_ep() {
    // AnandTech 2010: about 12 GB/s with one thread and 21 GB/s per socket with all. An
    // out-of-order core computes while it waits for memory, so nothing is charged for that.
    let machine = machine("xeon-e5645");
    within(triad(&machine, 1, 100_000, 0), 12.0, 0.3);
    within(triad(&machine, 12, 50_000, 0), 21.0, 0.3);
}
