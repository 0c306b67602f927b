//! ATOM: hardware undo logging for atomic regions, as a model in which every step is an event
//! (Joshi and others, HPCA 2017).
//!
//! Programs run on simulated cores and touch simulated memory only through [`Cpu`]. Their stores
//! go through store queues, caches with log bits, a directory, memory controllers with log managers
//! and banks, and arrive in memory with their real values. So a crash can be observed at any cycle
//! ([`CrashPlan`]): recovery runs on nothing but memory and the critical state, and an exact oracle
//! compares every line.
//!
//! All times are whole cycles, and events of one cycle have a fixed order, so a run depends on
//! nothing but its [`Plan`] and its programs.
//!
//! This model stands beside that of `memory`, which fixes the outcome of a request when it is made
//! and has no values. [`docs/atom.md`](../../../../docs/atom.md) tells which decisions are the
//! paper's, and which are made here where the paper leaves something open.
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `description`, `machines/atom-*.toml` | the machine, each parameter with its source |
//! | `events`, `system`, `run` | the order of events; the state of a run; its loop |
//! | `core_state`, `lines`, `queues`, `log_state`, `slots`, `backend` | the state of each part, on which the modules below act |
//! | `cpu`, `front_end`, `store_queue` | programs; their cores up to and from the store queue, with the module that initiates log writes (LogI) |
//! | `cache`, `hierarchy`, `mesh` | tags; private and shared caches with the directory; the network |
//! | `controller` | queues, channels and banks of a memory controller |
//! | `log_manager`, `commit` | LogM: records, buckets, locks; slots, phases, the commit point |
//! | `redo` | the redo designs that ATOM is compared with |
//! | `nvm`, `critical` | values; what survives power in a controller |
//! | `recovery`, `crash` | the recovery routine; crashes at any event and the oracle |
//! | `fault`, `counters` | faults that crash tests must notice; counts |

mod backend;
mod cache;
mod commit;
mod controller;
mod core_state;
mod counters;
mod cpu;
mod crash;
mod critical;
mod description;
mod events;
mod fault;
mod front_end;
mod hierarchy;
mod lines;
mod log_manager;
mod log_state;
mod mesh;
mod nvm;
mod queues;
mod recovery;
mod redo;
mod run;
mod slots;
mod store_queue;
mod system;

pub use counters::Counters;
pub use cpu::{Cpu, Lock};
pub use crash::{CrashPlan, CrashReport, Probes};
pub use critical::CriticalState;
pub use description::{CoreTable, LogTable, Machine, MemoryTable, MeshTable, PrivateTable, RedoTable, SharedTable};
pub use fault::Fault;
pub use recovery::{Geometry, Image, Place, Recovered, RecoveryError, recover};
pub use run::run;

/// A length of time, or a moment, in cycles of the cores' clock.
pub type Cycle = u64;

/// Bytes of a cache line.
pub const LINE_BYTES: usize = duramen_types::undo_record::LINE_BYTES;

/// The value of a line.
pub type Bytes = [u8; LINE_BYTES];

/// When a store may complete, and what makes an update atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    /// Undo log; a store completes when its entry is durable (III-B).
    Base,
    /// Undo log; a store completes when the controller has locked its line (III-C).
    Atom,
    /// As [`Design::Atom`]; of lines fetched for a store, controllers log what they read (III-D).
    AtomOpt,
    /// No log; updates are flushed but not atomic.
    NonAtomic,
    /// Redo log of every store, applied in place by the controllers (V).
    Redo,
    /// As [`Design::Redo`], with a second channel behind each controller for the log (VI-D).
    RedoTwoChannels,
}

impl Design {
    /// Whether stores are logged for undo.
    pub fn is_undo(self) -> bool {
        matches!(self, Self::Base | Self::Atom | Self::AtomOpt)
    }

    /// Whether stores are logged for redo.
    pub fn is_redo(self) -> bool {
        matches!(self, Self::Redo | Self::RedoTwoChannels)
    }
}

/// Which stores of a region are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All of them, with those to the stack: one for ten instructions. The paper has no filter.
    All,
    /// Those of the programs' data.
    Persistent,
}

/// How many bytes a store of a program writes. The paper does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreWidth {
    /// Four: a word takes two stores.
    Half,
    /// Eight: a word.
    Word,
    /// Sixteen, where a program writes bytes: two neighbouring words take one store.
    Pair,
}

/// What a run depends on, besides its programs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The machine.
    pub machine: Machine,
    /// The design.
    pub design: Design,
    /// What is logged.
    pub scope: Scope,
    /// How wide stores are.
    pub stores: StoreWidth,
    /// A planted fault.
    pub fault: Option<Fault>,
    /// Of the latencies' jitter and the fates of interrupted writes.
    pub seed: u64,
    /// Operations before the measured part, over all programs.
    pub warm_up: u64,
    /// Operations of the measured part; then programs are told to end.
    pub operations: u64,
    /// Crashes to observe.
    pub crashes: CrashPlan,
}

impl Plan {
    /// Returns a run of `operations` without crashes, in which everything is logged.
    pub fn new(machine: Machine, design: Design, operations: u64) -> Self {
        Self {
            machine,
            design,
            scope: Scope::All,
            stores: StoreWidth::Word,
            fault: None,
            seed: 1,
            warm_up: 0,
            operations,
            crashes: CrashPlan::None,
        }
    }
}

/// A program: it calls [`Cpu::done`] after each operation and returns once that says so.
pub type Program = Box<dyn FnOnce(&mut Cpu)>;

/// What a run begins with.
pub struct Setup {
    /// Programs' memory, line by line.
    pub image: Vec<Bytes>,
    /// Number of locks.
    pub locks: usize,
    /// A program for each core, at most as many as there are cores.
    pub programs: Vec<Program>,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { image, locks, programs } = self;
        write!(f, "Setup({} lines, {locks} locks, {} programs)", image.len(), programs.len())
    }
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Report {
    /// Cycles of the measured part.
    pub cycles: Cycle,
    /// Counts of the measured part.
    pub counters: Counters,
    /// Counts of the whole run.
    pub total: Counters,
    /// Cycles of the whole run.
    pub all_cycles: Cycle,
    /// Events of the whole run.
    pub events: u64,
    /// Of every event, in order: two runs with the same digest took the same path.
    pub digest: u64,
    /// What the crashes showed.
    pub crashes: CrashReport,
    /// Share of the time, in thousandths, that the busiest link of the mesh was used.
    pub busiest_link: u64,
    /// What programs see at the end, line by line.
    pub image: Vec<Bytes>,
}

/// Why a run did not end as it should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The machine's description cannot be used.
    #[error("the machine's description: {0}")]
    Machine(String),
    /// An update needs more log than the bit vectors can name.
    #[error("the log of controller {controller} is full: {buckets} buckets are all that its bit vectors can name")]
    LogFull {
        /// The controller.
        controller: usize,
        /// Its buckets.
        buckets: usize,
    },
    /// Nothing can go on, and programs have not ended.
    #[error("at cycle {cycle} nothing can go on: {waiting}")]
    Stuck {
        /// When.
        cycle: Cycle,
        /// What the cores wait for.
        waiting: String,
    },
    /// A read returned another value than the line was left with.
    #[error("at cycle {cycle} memory returned an old value of line {line}")]
    Stale {
        /// When.
        cycle: Cycle,
        /// The line.
        line: u32,
    },
    /// A link of the mesh was busier than a model without contention can have it.
    #[error("a link of the mesh was busy for {0} thousandths of the time: contention must be modelled")]
    Link(u64),
}
