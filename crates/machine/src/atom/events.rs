//! What happens next: events by cycle, then class, then source, then number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Cycle;

/// What a core wants of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// A copy, for a load.
    Load,
    /// The only copy, for the store at the head of the queue.
    Store,
    /// The only copy, for a locked instruction.
    Lock,
    /// Everything written to it durable; copies stay.
    Flush,
}

/// A core's request for a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) core: u8,
    pub(super) want: Want,
    /// The slot of the update that a store belongs to; [`NO_SLOT`] without.
    pub(super) slot: u8,
    pub(super) line: u32,
}

/// No update.
pub(super) const NO_SLOT: u8 = u8::MAX;

/// Something that happens at a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// A bank has finished its access.
    BankDone { mc: u8, channel: u8, bank: u8 },
    /// A request reaches its tile.
    TileArrive(Request),
    /// The tile has looked the line up.
    TileLook(Request),
    /// Data or permission reach the core; `log` is the log bit that comes with them.
    Fill { request: Request, log: bool },
    /// A read reaches its controller.
    ReadArrives(Request),
    /// The data of a read reach the tile.
    ReadReturns { request: Request, log: bool },
    /// A write reaches its controller: data, or a log entry.
    WriteArrives { mc: u8, write: u32 },
    /// A flush without data reaches its controller.
    FlushArrives { mc: u8, core: u8, line: u32 },
    /// What a core flushed is durable.
    FlushAck { core: u8, line: u32 },
    /// The store at the head may complete.
    LogAck { core: u8 },
    /// A core asks for an update slot.
    BeginArrives { core: u8 },
    /// The core has a slot.
    BeginAck { core: u8, slot: u8 },
    /// A slot comes back.
    SlotReturns { slot: u8 },
    /// The end of an update reaches its home controller.
    EndArrives { mc: u8, core: u8, slot: u8, outer: bool },
    /// The update has been committed.
    EndAck { core: u8 },
    /// A controller is told to clear an update's log.
    ClearArrives { mc: u8, core: u8, slot: u8, outer: bool },
    /// It has.
    ClearAck { core: u8 },
    /// The operating system has added buckets.
    Grown { mc: u8 },
    /// Log lines of a redo design reach a controller, or are durable, or read back.
    Redo { core: u8, step: u8, number: u32 },
    /// A controller looks for the next access.
    Schedule { mc: u8, channel: u8 },
    /// The head of a store queue can go on.
    Drain { core: u8 },
    /// A core's front end goes on.
    Core { core: u8 },
}

impl Event {
    /// Order within a cycle: what banks have done, arrivals, scheduling, store queues, cores.
    fn class(self) -> (u64, u64) {
        match self {
            Self::BankDone { mc, channel, bank } => (0, u64::from(mc) << 8 | u64::from(channel) << 7 | u64::from(bank)),
            Self::TileArrive(request) | Self::TileLook(request) | Self::ReadArrives(request) => {
                (2, u64::from(request.core))
            }
            Self::Fill { request, .. } | Self::ReadReturns { request, .. } => (2, u64::from(request.core)),
            Self::FlushArrives { core, .. } | Self::FlushAck { core, .. } | Self::LogAck { core } => {
                (2, u64::from(core))
            }
            Self::BeginArrives { core } | Self::BeginAck { core, .. } | Self::EndArrives { core, .. } => {
                (2, u64::from(core))
            }
            Self::EndAck { core } | Self::ClearArrives { core, .. } | Self::ClearAck { core } => (2, u64::from(core)),
            Self::Redo { core, .. } => (2, u64::from(core)),
            Self::WriteArrives { mc, .. } | Self::Grown { mc } => (2, 64 + u64::from(mc)),
            Self::SlotReturns { slot } => (2, 128 + u64::from(slot)),
            Self::Schedule { mc, channel } => (3, u64::from(mc) << 1 | u64::from(channel)),
            Self::Drain { core } => (4, u64::from(core)),
            Self::Core { core } => (5, u64::from(core)),
        }
    }
}

#[derive(Debug)]
struct Entry(Cycle, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Entry>>,
    pushed: u64,
}

impl Events {
    pub(super) fn push(&mut self, at: Cycle, event: Event) {
        let (class, source) = event.class();
        self.pushed += 1;
        self.heap.push(Reverse(Entry(at, class << 56 | source << 44 | (self.pushed & ((1 << 44) - 1)), event)));
    }

    pub(super) fn pop(&mut self) -> Option<(Cycle, Event)> {
        self.heap.pop().map(|Reverse(Entry(at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_cycle_then_class_then_source_then_number() {
        let mut events = Events::default();
        events.push(5, Event::Core { core: 0 });
        events.push(5, Event::Drain { core: 3 });
        events.push(5, Event::Drain { core: 1 });
        events.push(5, Event::BankDone { mc: 1, channel: 0, bank: 2 });
        events.push(5, Event::LogAck { core: 2 });
        events.push(4, Event::Core { core: 9 });
        let order: Vec<Event> = std::iter::from_fn(|| events.pop().map(|(_, event)| event)).collect();
        assert_eq!(
            order,
            [
                Event::Core { core: 9 },
                Event::BankDone { mc: 1, channel: 0, bank: 2 },
                Event::LogAck { core: 2 },
                Event::Drain { core: 1 },
                Event::Drain { core: 3 },
                Event::Core { core: 0 },
            ]
        );
    }
}
