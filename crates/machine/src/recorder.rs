//! A readable trace of a run: what threads report, when they wait and continue, and which rare
//! branches they take.
//!
//! Between two such events threads perform operations on shared memory, and under schedules that
//! look for bugs they switch at nearly each of them. A line sums them up, unless every operation is
//! wanted ([`Tracing::operations`]). Tracing changes nothing: with or without, a plan takes the
//! same path.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

use crate::Time;
use crate::line::Line;
use crate::memory::Op;
use crate::thread::{Thread, ThreadId};

/// What of a run is traced.
#[derive(Clone, Copy, Debug)]
pub struct Tracing {
    /// Lines kept: the last ones.
    pub lines: usize,
    /// Each operation on shared memory has a line.
    pub operations: bool,
}

/// Collects the lines.
pub(crate) struct Recorder {
    tracing: Tracing,
    lines: VecDeque<String>,
    left_out: u64,
    /// Since the last line.
    quiet: Quiet,
    last: Option<ThreadId>,
}

/// What is summed up.
#[derive(Default)]
struct Quiet {
    operations: u64,
    turns: u64,
    threads: BTreeSet<ThreadId>,
}

impl Recorder {
    pub(crate) fn new(tracing: Tracing) -> Self {
        Self { tracing, lines: VecDeque::new(), left_out: 0, quiet: Quiet::default(), last: None }
    }

    fn push(&mut self, line: String) {
        if self.lines.len() == self.tracing.lines.max(1) {
            self.lines.pop_front();
            self.left_out += 1;
        }
        self.lines.push_back(line);
    }

    /// Records that `thread` performs an operation on shared memory.
    pub(crate) fn operation(&mut self, thread: ThreadId, threads: &[Thread], op: Op, line: Line, now: Time) {
        if self.tracing.operations {
            let name = &threads[thread.index()].name;
            self.push(format!("{} {name:<20}   {op:?} {:#x}", stamp(now), line.0));
            return;
        }
        self.quiet.operations += 1;
        self.quiet.turns += u64::from(self.last != Some(thread));
        self.quiet.threads.insert(thread);
        self.last = Some(thread);
    }

    /// Records an event of `thread` that has a line of its own.
    pub(crate) fn event(&mut self, now: Time, thread: ThreadId, threads: &[Thread], what: &str) {
        let quiet = std::mem::take(&mut self.quiet);
        if quiet.turns > 1 {
            let names: Vec<&str> = quiet.threads.iter().map(|thread| threads[thread.index()].name.as_str()).collect();
            let (operations, turns) = (quiet.operations, quiet.turns);
            self.push(format!("{:14} ... {operations} operations in {turns} turns of {}", "", names.join(", ")));
        }
        let name = &threads[thread.index()].name;
        self.push(format!("{} {name:<20} {what}", stamp(now)));
    }

    /// Returns the lines, the first of which may say how many came before.
    pub(crate) fn finish(self) -> Vec<String> {
        let left_out = (self.left_out > 0).then(|| format!("({} earlier lines are left out)", self.left_out));
        left_out.into_iter().chain(self.lines).collect()
    }
}

/// Microseconds, with the digits that tell neighbours apart.
fn stamp(time: Time) -> String {
    let mut text = String::new();
    let _ = write!(text, "{:>10}.{:03}", time.nanos() / 1000, time.nanos() % 1000);
    text
}
