//! The machine of the model: a TOML file (`machines/atom-*.toml`) in which every line cites its
//! source.

use serde::Deserialize;

use super::{Cycle, Error};

const BUILT_IN: [(&str, &str); 2] = [
    ("atom-events", include_str!("../../machines/atom-events.toml")),
    ("atom-tiny", include_str!("../../machines/atom-tiny.toml")),
];

/// A machine with hardware logging. All lengths of time are cycles, all sizes lines of 64 bytes.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What it is.
    pub title: String,
    /// The cores.
    pub core: CoreTable,
    /// The private caches.
    pub l1: PrivateTable,
    /// The shared cache.
    pub l2: SharedTable,
    /// The network on the chip.
    pub mesh: MeshTable,
    /// Memory controllers, banks and channels.
    pub memory: MemoryTable,
    /// The log managers.
    pub log: LogTable,
    /// The log of the redo designs.
    pub redo: RedoTable,
    /// Of the file's text: it identifies the parameters.
    #[serde(skip)]
    pub digest: u64,
}

/// Cores: one thread each.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreTable {
    /// Number of cores.
    pub cores: usize,
    /// Cycles of ten instructions, cache misses apart.
    pub cycles_per_ten: u64,
    /// Independent loads in flight, in lines.
    pub reads_at_once: usize,
    /// Entries of the store queue.
    pub store_queue: usize,
    /// Flushes at the head of the store queue that are in flight together.
    pub flushes_at_once: usize,
    /// A locked instruction, once the store queue is empty and the line is there.
    pub locked: Cycle,
    /// How far a front end may be ahead of the model's clock.
    pub run_ahead: Cycle,
}

/// The private cache of a core.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateTable {
    /// Lines.
    pub lines: usize,
    /// Associativity.
    pub ways: usize,
    /// From the load to the use of its data.
    pub latency: Cycle,
}

/// The shared cache, inclusive of the private ones.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedTable {
    /// Tiles; lines go to them in turn.
    pub tiles: usize,
    /// Lines in a tile.
    pub lines: usize,
    /// Associativity.
    pub ways: usize,
    /// An access to a tile.
    pub latency: Cycle,
}

/// The mesh; a core and a tile share a node, the controllers are at the corners.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeshTable {
    /// Rows of nodes.
    pub rows: usize,
    /// Columns of nodes.
    pub columns: usize,
    /// From a node to its neighbour.
    pub hop: Cycle,
    /// Flits of a message with a line.
    pub data_flits: u64,
    /// Most cycles by which chance delays a message; one in sixteen for 16 times as long.
    pub jitter: Cycle,
}

/// Memory behind the controllers.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryTable {
    /// Controllers.
    pub controllers: usize,
    /// Banks of a channel, each busy for the latency of an access.
    pub banks: usize,
    /// Whether a line's bank depends on all bits of its number, not on the lowest ones only.
    pub permuted: bool,
    /// Latency of a read in the bank.
    pub read: Cycle,
    /// Latency of a write in the bank.
    pub write: Cycle,
    /// How long a line occupies the channel.
    pub channel: Cycle,
    /// Comparing a write with the record headers.
    #[serde(rename = "match")]
    pub matching: Cycle,
    /// Reads that a controller holds.
    pub read_queue: usize,
    /// Data writes that a controller holds.
    pub write_queue: usize,
    /// Log writes that a controller holds.
    pub log_queue: usize,
    /// Neighbouring lines behind one controller.
    pub interleave: u32,
    /// Most cycles by which chance lengthens an access to a bank.
    pub jitter: Cycle,
}

/// The log manager of a controller.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogTable {
    /// Updates at a time.
    pub updates: usize,
    /// Buckets that the bit vectors have room for.
    pub buckets: usize,
    /// Buckets that there are at first.
    pub first_limit: usize,
    /// Buckets that the operating system adds at a time.
    pub limit_step: usize,
    /// How long it takes to add them.
    pub grow: Cycle,
    /// Records in a bucket.
    pub records: u16,
    /// Record header registers of an update.
    pub headers: usize,
}

/// The log of the redo designs.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedoTable {
    /// Log lines of a core, in all controllers together, that may wait for retirement.
    pub lines: usize,
}

impl Machine {
    /// Returns a built-in machine: `atom-events` or `atom-tiny`.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn named(name: &str) -> Result<Self, Error> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            Error::Machine(format!("no machine is called `{name}`; there are atom-events and atom-tiny"))
        })?;
        Self::parse(text)
    }

    /// Reads a description.
    ///
    /// # Errors
    /// If the text is no description, or one of a machine that the model cannot be.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut machine: Self = toml::from_str(text).map_err(|error| Error::Machine(error.to_string()))?;
        machine.digest = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        machine.check()?;
        Ok(machine)
    }

    fn check(&self) -> Result<(), Error> {
        let rules = [
            ((1..=32).contains(&self.core.cores), "core.cores is not in 1..=32"),
            (self.core.cores <= self.mesh.rows * self.mesh.columns, "mesh: fewer nodes than cores"),
            (self.l2.tiles <= self.mesh.rows * self.mesh.columns, "mesh: fewer nodes than tiles"),
            (self.l2.tiles > 0, "l2.tiles is zero"),
            (self.l1.ways > 1 && self.l1.lines.is_multiple_of(self.l1.ways), "l1: needs 2 ways, and whole sets"),
            (self.l2.ways > 1 && self.l2.lines.is_multiple_of(self.l2.ways), "l2: needs 2 ways, and whole sets"),
            (self.core.store_queue > 0 && self.core.flushes_at_once > 0, "core: no store queue or no flushes"),
            (self.core.reads_at_once > 0, "core.reads_at_once is zero"),
            ([1, 2, 4].contains(&self.memory.controllers), "memory.controllers is not 1, 2 or 4"),
            (
                !self.memory.permuted || self.memory.banks.is_power_of_two(),
                "memory.permuted: banks are no power of two",
            ),
            (self.memory.banks > 0 && self.memory.channel > 0, "memory: no banks, or a channel without limit"),
            (self.memory.interleave > 0, "memory.interleave is zero"),
            (
                self.memory.read_queue > 0 && self.memory.write_queue > 0 && self.memory.log_queue > 1,
                "memory: a queue is too short; the log queue needs 2 entries",
            ),
            ((1..=32).contains(&self.log.updates), "log.updates is not in 1..=32"),
            ((1..=256).contains(&self.log.buckets), "log.buckets is not in 1..=256"),
            ((1..=self.log.buckets).contains(&self.log.first_limit), "log.first_limit is not in 1..=log.buckets"),
            (self.log.limit_step > 0, "log.limit_step is zero"),
            ((1..0x7fff).contains(&self.log.records), "log.records is not in 1..=32766"),
            (self.log.headers > 0, "log.headers is zero"),
            (self.redo.lines >= 8, "redo.lines is less than 8"),
        ];
        match rules.iter().find(|(kept, _)| !kept) {
            Some((_, broken)) => Err(Error::Machine((*broken).to_owned())),
            None => Ok(()),
        }
    }

    /// The controller behind which a line lies.
    pub(super) fn controller_of(&self, line: u32) -> usize {
        (line / self.memory.interleave) as usize % self.memory.controllers
    }

    /// The tile that a line goes to.
    pub(super) fn tile_of(&self, line: u32) -> usize {
        line as usize % self.l2.tiles
    }

    /// The controller that decides over the updates of a log slot.
    pub(super) fn home_of(&self, update: usize) -> usize {
        update % self.memory.controllers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_machines_are_table_i_and_a_tiny_one() {
        let machine = Machine::named("atom-events").unwrap();
        assert_eq!((machine.core.cores, machine.memory.controllers, machine.memory.write), (32, 4, 360));
        // The sizes of Fig. 4(b): 3.125 KB for each controller, of which 128 bytes are saved.
        let (updates, buckets) = (machine.log.updates, machine.log.buckets);
        assert_eq!(updates * (buckets / 8 + 3 + 64) + buckets / 8, 3200);
        assert_eq!(buckets / 8 + updates * 3, 128);
        assert_eq!(Machine::named("atom-tiny").unwrap().core.cores, 4);
        assert!(Machine::named("none").is_err());
    }

    #[test]
    fn machines_that_the_model_cannot_be_are_refused() {
        let text = include_str!("../../machines/atom-tiny.toml");
        assert!(Machine::parse(&text.replace("controllers = 2", "controllers = 3")).is_err());
        assert!(Machine::parse(&text.replace("updates = 3", "updates = 33")).is_err());
        assert!(Machine::parse(&text.replace("jitter", "trembling")).is_err());
    }
}
