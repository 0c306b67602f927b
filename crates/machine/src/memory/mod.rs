//! Caches, coherence and memory: the cost of touching a line, by context and time.
//!
//! **Caches.** Each core has one or two private levels, a cluster of cores shares a last level, a
//! socket has one or several clusters and its own memory. All are set-associative with exact LRU,
//! and inclusive: a line that leaves the shared cache leaves the private ones behind it.
//!
//! **Coherence** (MESI, by a directory). Reading brings a copy; the only copy of a line may be
//! written at once. Writing ends all other copies. With write-through private caches (UltraSPARC
//! T2) the shared cache performs stores and atomic operations itself. Moving a line costs a
//! transfer, by distance: another core of the cluster, another cluster, another socket, memory here
//! or there. Transfers of one line follow each other: the next begins when the line is free.
//! Reading a line that all cores may share keeps it only briefly.
//!
//! **Stores** are posted: the context goes on, the store leaves its buffer in order when the line
//! is there. It waits for room when the buffer is full. Atomic operations and fences wait until the
//! buffers are empty. Non-temporal stores pass through write-combining buffers to the memory
//! controller, and end every cached copy.
//!
//! **Bandwidth.** The ways into and out of a core, the shared cache, its port to memory, the ways
//! between sockets and the controllers move one line at a time ([`channel`]). Writing a line that
//! is not cached reads it first; a written line costs a write when it leaves the shared cache, and
//! what takes its place waits if too many such writes wait already.
//!
//! Memory belongs to the node of the context that first touches its 4 KiB page, unless it was
//! bound.
//!
//! **Simplifications**, to keep in mind when a figure looks odd:
//! - The outcome of a request is fixed when it is made. A context inside a long copy is ahead of
//!   the others, so a later request may have an earlier time. It then finds the caches as the copy
//!   leaves them, but it may use ways and controllers before the copy does.
//! - A context waits for what it reads before it continues: only the lines of one touch, and posted
//!   stores, overlap. An out-of-order core would hide more.
//! - Latencies are averages over a socket or a mesh: no banks, no rings, no DRAM pages, no refresh;
//!   sockets are all equally far. The directory is never full; its look-ups cost nothing but the
//!   latencies given.
//! - After another socket reads a modified line, the modifying socket remains responsible for
//!   writing it back (as in MOESI).
//! - AMD's last level is modelled as inclusive, though it holds what its cores' second levels have
//!   evicted.
//! - No instruction fetches, no translation look-aside buffers, no hardware prefetch but of the
//!   lines of one touch and of those behind a stream of writes.
//! - A core's contexts share its private caches without competing for their bandwidth, but for that
//!   of the ways in and out.
//! - A line of plain data that is written in part counts as written whole: it fills the store
//!   buffer as a whole line does.
//! - A copy for reading that is still on its way to a core is there already for the core's other
//!   contexts.
//! - The context that has waited longest for a line gets it next: no core's neighbours are
//!   favoured.

mod buffers;
mod cache;
mod channel;
mod coherence;
mod counters;
mod directory;
#[cfg(test)]
mod measured;
#[cfg(test)]
mod tests;

pub use self::counters::Counters;

use self::buffers::Buffers;
use self::cache::Tags;
use self::channel::Channel;
use self::directory::{Directory, Home};
use crate::description::{MAX_READS, WritePolicy};
use crate::line::Line;
use crate::{Description, Time};

/// An atomic operation on a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// A load; the context waits for its value.
    Load,
    /// A store; the context does not wait.
    Store,
    /// A read-modify-write operation; a full fence before it.
    Rmw,
    /// No line at all: waits for everything stored before.
    Fence,
}

/// How plain data is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bulk {
    /// Loads that do not depend on each other.
    Read,
    /// Stores of whole lines.
    Write,
    /// Non-temporal stores of whole lines.
    Stream,
    /// Written lines are sent to memory, and stay in the caches.
    Flush,
}

/// The memory system of a machine.
#[derive(Debug)]
pub(crate) struct Memory {
    description: Description,
    /// Of each context.
    places: Vec<Place>,
    directory: Directory,
    cores: Vec<Core>,
    clusters: Vec<Cluster>,
    /// The way out of each socket to the others.
    links: Vec<Channel>,
    /// Of each node in turn.
    controllers: Vec<Controller>,
    /// Of each context.
    buffers: Vec<Buffers>,
    /// The line behind the last one that a context wrote plain data to.
    streams: Vec<u64>,
    counters: Counters,
}

/// Where a context is, counted through the machine.
#[derive(Clone, Copy, Debug)]
struct Place {
    core: usize,
    cluster: usize,
    socket: usize,
}

#[derive(Debug)]
struct Core {
    first: Tags,
    second: Option<Tags>,
    fill: Channel,
    drain: Channel,
}

#[derive(Debug)]
struct Cluster {
    tags: Tags,
    reads: Channel,
    memory_port: Channel,
}

/// A memory controller.
#[derive(Debug)]
struct Controller {
    /// Reads, and writes unless there is a way of their own for them.
    reads: Channel,
    writes: Option<Channel>,
    nvm_reads: Channel,
    nvm_writes: Channel,
}

/// Lines that are fetched in advance of a stream of writes.
const PREFETCH: u64 = 4;

impl Memory {
    pub(crate) fn new(description: &Description) -> Self {
        let machine = description;
        let core = |_| Core {
            first: Tags::new(&machine.l1, false),
            second: machine.l2.as_ref().map(|l2| Tags::new(l2, false)),
            fill: Channel::new(machine.fill_line),
            drain: Channel::with_parts(machine.drain_line, machine.stores_per_line as u64),
        };
        let cluster = |_| Cluster {
            tags: Tags::new(&machine.shared, true),
            reads: Channel::new(machine.shared_line),
            memory_port: Channel::new(machine.memory_port_line.unwrap_or(Time::ZERO)),
        };
        let (nvm_read, nvm_write) = machine.nvm.map_or((Time::ZERO, Time::ZERO), |nvm| (nvm.read_line, nvm.write_line));
        let controller = |_| Controller {
            reads: Channel::new(machine.read_line),
            writes: machine.duplex.then(|| Channel::new(machine.write_line)),
            nvm_reads: Channel::new(nvm_read),
            nvm_writes: Channel::new(nvm_write),
        };
        let buffers = |_| Buffers::new(machine.store_entries, machine.outstanding_stores, machine.write_combining);
        let place = |context| {
            let core = machine.core_of(context);
            Place { core, cluster: core / machine.cores_per_cluster, socket: machine.socket_of(context) }
        };
        Self {
            places: (0..machine.contexts()).map(place).collect(),
            directory: Directory::default(),
            cores: (0..machine.cores()).map(core).collect(),
            clusters: (0..machine.clusters()).map(cluster).collect(),
            links: (0..machine.sockets()).map(|_| Channel::new(machine.interconnect_line)).collect(),
            controllers: (0..machine.nodes() * machine.controllers).map(controller).collect(),
            buffers: (0..machine.contexts()).map(buffers).collect(),
            streams: vec![u64::MAX; machine.contexts()],
            counters: Counters::new(machine.nodes()),
            description: description.clone(),
        }
    }

    /// Performs one atomic operation of a context on a line; to be called in the order of `now`.
    /// Returns the time when the context continues.
    pub(crate) fn access(&mut self, context: usize, line: Line, op: Op, now: Time) -> Time {
        match op {
            Op::Load => self.read(context, line, now),
            Op::Store => self.store(context, line, 1, now) + self.description.store_issue,
            Op::Rmw => {
                self.counters.atomics += 1;
                let begin = self.drained(context, now);
                self.atomic(context, line, begin)
            }
            Op::Fence => self.drained(context, now) + self.description.fence,
        }
    }

    /// Performs an atomic operation on a line that is in the first cache of the context's core and
    /// nowhere else.
    pub(crate) fn access_private(&mut self, context: usize, op: Op, now: Time) -> Time {
        match op {
            Op::Load => now + self.description.l1.latency.saturating_sub(self.description.hidden),
            Op::Store => now + self.description.store_issue,
            Op::Rmw => self.drained(context, now) + self.description.atomic,
            Op::Fence => self.drained(context, now) + self.description.fence,
        }
    }

    /// Touches plain data: `lines` lines from `first`. Returns the time when the context continues.
    pub(crate) fn touch(&mut self, context: usize, first: Line, lines: u64, how: Bulk, now: Time) -> Time {
        let touched = (first.0..first.0 + lines).map(Line);
        match how {
            Bulk::Read => {
                let mut arrivals = [now; MAX_READS];
                let mut done = now;
                let mut slot = 0;
                for line in touched {
                    arrivals[slot] = self.read(context, line, arrivals[slot]);
                    done = done.max(arrivals[slot]);
                    slot = if slot + 1 == self.description.outstanding_reads { 0 } else { slot + 1 };
                }
                done
            }
            Bulk::Write => {
                let stores = self.description.stores_per_line;
                let done = touched.fold(now, |at, line| self.store(context, line, stores, at));
                self.prefetch(context, first, lines, done);
                done
            }
            Bulk::Stream => touched.fold(now, |at, line| self.stream(context, line, at)),
            Bulk::Flush => touched.fold(now, |at, line| self.flush(context, line, at)),
        }
    }

    /// Changes with every write to the line.
    pub(crate) fn version(&self, line: Line) -> u64 {
        u64::from(self.directory.version(line))
    }

    /// Binds the pages of the lines to a memory node; without, a page belongs to the node that
    /// touches it first.
    pub(crate) fn bind(&mut self, first: Line, lines: u64, node: usize) {
        self.bind_to(first, lines, Home { node, nvm: false });
    }

    /// Makes the pages of the lines non-volatile memory of a node; DRAM, on a machine that has no
    /// other.
    pub(crate) fn bind_nvm(&mut self, first: Line, lines: u64, node: usize) {
        let nvm = self.description.nvm.is_some();
        self.bind_to(first, lines, Home { node, nvm });
    }

    fn bind_to(&mut self, first: Line, lines: u64, home: Home) {
        assert!(home.node < self.description.nodes(), "a node of the machine");
        self.directory.bind(first, lines, home);
    }

    /// Returns what has been done so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters.clone()
    }

    // ----- what a context posts -----

    /// Posts `count` stores to a line. Returns the time when the buffer has taken the last.
    fn store(&mut self, context: usize, line: Line, count: usize, now: Time) -> Time {
        let posted = self.buffers[context].room(count, now);
        self.counters.full_buffer_waits += posted - now;
        let arrival = if self.is_owned(context, line) {
            self.own(context, line, posted)
        } else {
            let ask = self.buffers[context].may_ask(posted);
            let arrival = match self.description.write_policy {
                WritePolicy::Back => self.own(context, line, ask),
                WritePolicy::Through => self.store_through(context, line, count, ask),
            };
            self.buffers[context].asked(arrival);
            arrival
        };
        self.buffers[context].store(count, arrival, self.description.store_issue);
        posted
    }

    /// Sends a line past the caches. Returns the time when a write-combining buffer has taken it.
    fn stream(&mut self, context: usize, line: Line, now: Time) -> Time {
        let posted = self.buffers[context].may_stream(now);
        self.counters.full_buffer_waits += posted - now;
        let accepted = self.write_around(context, line, posted);
        self.buffers[context].stream(accepted);
        posted
    }

    /// Sends a line to memory if it has been written to. Returns the time when one of the buffers
    /// that streams use has taken it.
    fn flush(&mut self, context: usize, line: Line, now: Time) -> Time {
        let posted = self.buffers[context].may_stream(now);
        self.counters.full_buffer_waits += posted - now;
        let accepted = self.clean(context, line, posted);
        self.buffers[context].stream(accepted);
        posted
    }

    /// A context that writes on where it has written before gets the next lines in advance, where
    /// the hardware does that.
    fn prefetch(&mut self, context: usize, first: Line, lines: u64, now: Time) {
        let next = first.0 + lines;
        let goes_on = (first.0..=first.0 + 1).contains(&self.streams[context]);
        self.streams[context] = next;
        let prefetches = self.description.outstanding_reads > 1 && self.description.write_policy == WritePolicy::Back;
        if goes_on && prefetches {
            for line in (next..next + PREFETCH).map(Line) {
                if !self.is_owned(context, line) {
                    self.own(context, line, now);
                }
            }
        }
    }

    /// Returns the time when the context's buffers are empty.
    fn drained(&mut self, context: usize, now: Time) -> Time {
        let empty = self.buffers[context].empty(now);
        self.counters.drain_waits += empty - now;
        empty
    }
}
