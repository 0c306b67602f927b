//! What a simulated machine is made of: topology, pipelines, caches, coherence, memory and the
//! operating system's costs.
//!
//! A description is a TOML file (`machines/*.toml`); every line of it cites its source. Quantities
//! are written with the unit that the source uses; here they are whole picoseconds.

mod file;
mod quantity;
#[cfg(test)]
pub(crate) mod tests;

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

use crate::Time;
use crate::line::LINE_BYTES;

const BUILT_IN: [(&str, &str); 6] = [
    ("niagara2", include_str!("../machines/niagara2.toml")),
    ("niagara2-4", include_str!("../machines/niagara2-4.toml")),
    ("xeon-e7-4807", include_str!("../machines/xeon-e7-4807.toml")),
    ("xeon-e5645", include_str!("../machines/xeon-e5645.toml")),
    ("server-2x64", include_str!("../machines/server-2x64.toml")),
    ("atom-mesh", include_str!("../machines/atom-mesh.toml")),
];
const NAMES: [&str; BUILT_IN.len()] = {
    let mut names = [""; BUILT_IN.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = BUILT_IN[at].0;
        at += 1;
    }
    names
};

/// Most cores that a description may have: the directory keeps a bit for each.
pub(crate) const MAX_CORES: usize = 128;
/// Most shared caches that a description may have: the directory keeps a bit for each.
pub(crate) const MAX_CLUSTERS: usize = 16;
/// Most lines that a context may be reading at a time.
pub(crate) const MAX_READS: usize = 64;

/// Why a description cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// No machine of that name is built in.
    #[error("no machine is called `{0}`; there are {names}", names = NAMES.join(", "))]
    Unknown(String),
    /// The text is not TOML, or lacks a field, or has one that does not exist, or a quantity
    /// without its unit.
    #[error("the description cannot be read: {0}")]
    Toml(#[from] Box<toml::de::Error>),
    /// A field's value makes no machine.
    #[error("the description's `{field}` {problem}")]
    Invalid {
        /// The field, with its table.
        field: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
}

/// Where the operating system puts threads as they are started, one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Placement {
    /// On the sockets in turn.
    SpreadSockets,
    /// On the next socket when the one before has a thread on every context.
    FillSockets,
}

/// What happens to a store in the private caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WritePolicy {
    /// It goes on to the shared cache, which performs atomic operations too; no line is allocated
    /// for it.
    Through,
    /// The line becomes this core's alone, and is written back when it leaves.
    Back,
}

/// A set-associative cache with 64-byte lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cache {
    pub(crate) sets: usize,
    pub(crate) ways: usize,
    /// From the load to the use of its data when the line is there.
    pub(crate) latency: Time,
}

/// Non-volatile memory that replaces or stands beside DRAM behind the same controllers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nvm {
    /// From the load to its use, on the socket that has it.
    pub(crate) latency: Time,
    /// From a write's arrival at the controller until it is durable; the controller accepts it
    /// before.
    pub(crate) write_latency: Time,
    /// How long a controller is busy reading a line.
    pub(crate) read_line: Time,
    /// How long a controller is busy writing a line.
    pub(crate) write_line: Time,
}

/// A machine to simulate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    title: String,
    pub(crate) placement: Placement,
    pub(crate) sockets: usize,
    /// Shared caches, each with the cores that share it, in a socket.
    pub(crate) clusters_per_socket: usize,
    pub(crate) cores_per_cluster: usize,
    pub(crate) pipelines_per_core: usize,
    pub(crate) contexts_per_pipeline: usize,

    /// One instruction of a context that has the pipeline to itself, cache misses apart.
    pub(crate) instruction_alone: Time,
    /// How long one instruction keeps the pipeline from other contexts.
    pub(crate) instruction_shared: Time,
    /// What of the latency of a hit in a private cache does not hold a context up: it executes
    /// other instructions meanwhile.
    pub(crate) hidden: Time,
    pause: Time,
    copy_instructions: u64,

    pub(crate) l1: Cache,
    pub(crate) l2: Option<Cache>,
    pub(crate) write_policy: WritePolicy,
    /// How long a line keeps the way from the shared cache into a core busy.
    pub(crate) fill_line: Time,
    /// How long a line keeps the way out of a core busy.
    pub(crate) drain_line: Time,
    /// Lines that one context can be reading at a time when it reads ahead.
    pub(crate) outstanding_reads: usize,

    pub(crate) shared: Cache,
    /// How long a line read keeps the shared cache busy.
    pub(crate) shared_line: Time,
    /// How long a line keeps the way between a shared cache and its socket's memory busy.
    pub(crate) memory_port_line: Option<Time>,

    /// Entries of a context's store buffer.
    pub(crate) store_entries: usize,
    /// Entries taken by a whole line of plain stores.
    pub(crate) stores_per_line: usize,
    /// Lines that the store buffer can be obtaining at a time.
    pub(crate) outstanding_stores: usize,
    /// What a store costs the context that performs it, and least time between two leaving the
    /// buffer.
    pub(crate) store_issue: Time,
    /// Lines that can be on their way to memory by non-temporal stores.
    pub(crate) write_combining: usize,

    /// How long a read of a shared line keeps the line from other contexts.
    pub(crate) service: Time,
    /// A line from the private cache of another core with the same shared cache.
    pub(crate) between_cores: Time,
    /// A line from another shared cache in the same socket.
    pub(crate) between_clusters: Time,
    /// A line from a cache in another socket.
    pub(crate) between_sockets: Time,
    /// An atomic read-modify-write once the line is there: on the core's own line with write-back
    /// caches, all the way to the shared cache and back with write-through caches.
    pub(crate) atomic: Time,
    /// How long such an operation keeps the line from others.
    pub(crate) atomic_service: Time,
    /// A fence once the buffers are empty.
    pub(crate) fence: Time,
    /// How long a line keeps a socket's way to the other sockets busy.
    pub(crate) interconnect_line: Time,

    /// From a load to its use, from the memory of the context's own socket.
    pub(crate) memory_latency: Time,
    /// What the memory of another socket takes longer.
    pub(crate) memory_remote: Time,
    /// From the core until a controller of the same socket has accepted a write.
    pub(crate) memory_accept: Time,
    /// Memory controllers in a socket, which share its memory by line.
    pub(crate) controllers: usize,
    /// How long a controller is busy reading a line.
    pub(crate) read_line: Time,
    /// How long a controller is busy writing a line.
    pub(crate) write_line: Time,
    /// Whether a controller reads and writes at the same time.
    pub(crate) duplex: bool,
    pub(crate) nvm: Option<Nvm>,

    context_switch: Time,
    wake: Time,
    wake_call: Time,
    yield_call: Time,
    quantum: Time,
}

impl Description {
    /// One of the machines that are built in.
    ///
    /// # Errors
    /// [`DescriptionError::Unknown`] lists their names.
    pub fn named(name: &str) -> Result<Self, DescriptionError> {
        let built_in = BUILT_IN.iter().find(|(known, _)| *known == name);
        let (_, text) = built_in.ok_or_else(|| DescriptionError::Unknown(name.to_owned()))?;
        Self::from_toml(text)
    }

    /// Returns the names of the machines that are built in.
    pub fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// Reads a description in the format of `machines/*.toml`.
    ///
    /// # Errors
    /// Says which field is missing, unknown or makes no machine.
    pub fn from_toml(text: &str) -> Result<Self, DescriptionError> {
        toml::from_str::<file::File>(text).map_err(Box::new)?.into_description()
    }

    /// Returns the machine with non-volatile memory whose reads take `latency`, and which otherwise
    /// is as fast as the machine's memory.
    #[must_use]
    pub fn with_nvm_reads(mut self, latency: Duration) -> Self {
        let Self { memory_accept, read_line, write_line, .. } = self;
        self.nvm = Some(Nvm { latency: latency.into(), write_latency: memory_accept, read_line, write_line });
        self
    }

    /// Returns the machine with memory that reads and writes so many bytes per second in all, in
    /// each socket.
    #[must_use]
    pub fn with_memory_bandwidth(mut self, bytes_per_second: NonZeroU64) -> Self {
        let picos = LINE_BYTES as u64 * self.controllers as u64 * 1_000_000_000_000 / bytes_per_second;
        (self.read_line, self.write_line, self.duplex) = (Time::from_picos(picos), Time::from_picos(picos), false);
        self
    }

    /// Returns what the machine is, for people.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Hardware contexts: what an operating system calls processors.
    pub fn contexts(&self) -> usize {
        self.cores() * self.contexts_per_core()
    }

    /// Sockets.
    pub fn sockets(&self) -> usize {
        self.sockets
    }

    /// Returns the number of memory nodes: each socket has its own memory.
    pub fn nodes(&self) -> usize {
        self.sockets
    }

    /// Returns the socket of a context.
    pub fn socket_of(&self, context: usize) -> usize {
        self.core_of(context) / self.cores_per_socket()
    }

    /// Returns the core of a context, counted through all sockets.
    pub fn core_of(&self, context: usize) -> usize {
        context / self.contexts_per_core()
    }

    /// Returns the pipeline of a context, counted through all cores.
    pub fn pipeline_of(&self, context: usize) -> usize {
        context / self.contexts_per_pipeline
    }

    /// Returns the context of the nth started thread: an own core as long as there is one, then an
    /// own pipeline, then a context of a busy one; when all are taken, from the start again.
    pub fn placement(&self, nth_thread: usize) -> usize {
        let nth = nth_thread % self.contexts();
        match self.placement {
            Placement::SpreadSockets => self.placement_on(nth % self.sockets, nth / self.sockets),
            Placement::FillSockets => {
                let per_socket = self.contexts() / self.sockets;
                self.placement_on(nth / per_socket, nth % per_socket)
            }
        }
    }

    /// Returns the context of the nth thread started on one socket only.
    pub fn placement_on(&self, socket: usize, nth_thread: usize) -> usize {
        let per_socket = self.contexts() / self.sockets;
        let mut left = nth_thread % per_socket;
        let mut next = |choices: usize| {
            let choice = left % choices;
            left /= choices;
            choice
        };
        let cluster = next(self.clusters_per_socket);
        let core = next(self.cores_per_cluster);
        let pipeline = next(self.pipelines_per_core);
        let context = next(self.contexts_per_pipeline);
        let core = (socket * self.clusters_per_socket + cluster) * self.cores_per_cluster + core;
        (core * self.pipelines_per_core + pipeline) * self.contexts_per_pipeline + context
    }

    /// One hint of a spin loop.
    pub fn pause(&self) -> Time {
        self.pause
    }

    /// Instructions that copy a line of 64 bytes: loads, stores and the loop around them.
    pub fn copy_instructions(&self) -> u64 {
        self.copy_instructions
    }

    /// From one thread to another on the same context.
    pub fn context_switch(&self) -> Time {
        self.context_switch
    }

    /// From the wake-up call until the woken thread runs on an idle context.
    pub fn wake(&self) -> Time {
        self.wake
    }

    /// Returns what the wake-up call costs the thread that makes it.
    pub fn wake_call(&self) -> Time {
        self.wake_call
    }

    /// A system call that offers the context to others, when there are none.
    pub fn yield_call(&self) -> Time {
        self.yield_call
    }

    /// How long a thread runs on while others wait for its context.
    pub fn quantum(&self) -> Time {
        self.quantum
    }

    pub(crate) fn cores(&self) -> usize {
        self.clusters() * self.cores_per_cluster
    }

    pub(crate) fn clusters(&self) -> usize {
        self.sockets * self.clusters_per_socket
    }

    pub(crate) fn cores_per_socket(&self) -> usize {
        self.clusters_per_socket * self.cores_per_cluster
    }

    pub(crate) fn contexts_per_core(&self) -> usize {
        self.pipelines_per_core * self.contexts_per_pipeline
    }
}
