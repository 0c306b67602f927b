//! How lines change hands.

use super::directory::{Entry, Home};
use super::{Line, Memory, Place};
use crate::Time;
use crate::description::WritePolicy;
use crate::line::LINE_BYTES;

/// Lines that can wait at a controller to be written before those wait that take their places in
/// the cache.
const WRITE_QUEUE: u64 = 16;

/// Where a line comes from that a core does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The shared cache of its cluster.
    Shared,
    /// The private cache of another core there.
    Core(usize),
    /// Another cluster's cache in the socket.
    Cluster,
    /// A cache in that socket.
    Socket(usize),
    Memory,
}

impl Memory {
    /// Loads from a line. Returns the time when the value is there.
    pub(super) fn read(&mut self, context: usize, line: Line, now: Time) -> Time {
        let Place { core, cluster, .. } = self.places[context];
        let mut entry = *self.directory.entry(line);
        if entry.sharers() & 1 << core != 0 {
            // A context's own store is in its buffer, and forwarded; a neighbour's must have
            // arrived.
            let arriving = entry.owner() == Some(core) && !entry.written_by(context);
            let begin = if arriving { self.free(&entry, now) } else { now };
            let latency = self.hit(core, line, self.description.l1.latency);
            return begin + latency.saturating_sub(self.description.hidden);
        }
        let begin = self.free(&entry, now);
        let source = self.source(&entry, cluster);
        let at = self.ways(context, line, source, begin);
        let at = self.delay(at, |memory, at| memory.cores[core].fill.line(at));
        let arrival = at + self.latency(context, line, source);
        let arrival = arrival.max(self.put(core, cluster, line, &mut entry, at));
        let everyones = source == Source::Shared
            || matches!(source, Source::Cluster | Source::Socket(_)) && entry.owner().or(entry.dirty()).is_none();
        let back = self.description.write_policy == WritePolicy::Back;
        let alone = back && entry.sharers() == 1 << core && entry.clusters == 1 << cluster;
        entry.free_at = if everyones && !alone { at + self.description.service } else { arrival };
        entry.set_owner(alone.then_some(core));
        *self.directory.entry(line) = entry;
        arrival
    }

    /// Returns whether the context may write the line at once.
    pub(super) fn is_owned(&mut self, context: usize, line: Line) -> bool {
        self.directory.entry(line).owner() == Some(self.places[context].core)
    }

    /// Makes the line the core's alone and writes it. Returns the time when that is done.
    pub(super) fn own(&mut self, context: usize, line: Line, now: Time) -> Time {
        let Place { core, cluster, socket } = self.places[context];
        let mut entry = *self.directory.entry(line);
        if entry.owner() == Some(core) {
            let begin = if entry.written_by(context) { now } else { self.free(&entry, now) };
            entry.set_dirty(Some(cluster));
            entry.write(context);
            *self.directory.entry(line) = entry;
            return begin + self.hit(core, line, Time::ZERO);
        }
        let begin = self.free(&entry, now);
        let has = entry.sharers() & 1 << core != 0;
        let last = self.farthest(&entry, core, cluster, socket);
        let mut arrival = begin + last;
        if !has {
            let source = self.source(&entry, cluster);
            let at = self.ways(context, line, source, begin);
            let at = self.delay(at, |memory, at| memory.cores[core].fill.line(at));
            arrival = arrival.max(at + self.latency(context, line, source));
        } else if last == Time::ZERO {
            self.counters.shared_hits += 1;
            arrival += self.description.shared.latency;
        }
        self.end_copies(&mut entry, line, core, cluster);
        arrival = arrival.max(self.put(core, cluster, line, &mut entry, begin));
        entry.set_owner(Some(core));
        entry.set_dirty(Some(cluster));
        entry.write(context);
        entry.free_at = arrival;
        *self.directory.entry(line) = entry;
        arrival
    }

    /// Performs `count` stores to a line in the shared cache. Returns the time when that has
    /// acknowledged them.
    pub(super) fn store_through(&mut self, context: usize, line: Line, count: usize, now: Time) -> Time {
        let (arrival, at) = self.write_shared(context, line, count, now, false);
        let mut entry = *self.directory.entry(line);
        entry.free_at = at.map_or(arrival, |at| at + self.description.service);
        *self.directory.entry(line) = entry;
        arrival
    }

    /// Performs an atomic read-modify-write operation. Returns the time when the context has its
    /// result.
    pub(super) fn atomic(&mut self, context: usize, line: Line, now: Time) -> Time {
        let (done, free_at) = match self.description.write_policy {
            WritePolicy::Back => {
                let arrival = self.own(context, line, now);
                (arrival + self.description.atomic, arrival + self.description.atomic_service)
            }
            WritePolicy::Through => {
                let (arrival, at) = self.write_shared(context, line, 1, now, true);
                let begin = at.unwrap_or(arrival);
                (begin + self.description.atomic, begin + self.description.atomic_service)
            }
        };
        self.directory.entry(line).free_at = free_at;
        done
    }

    /// Writes a line to memory past the caches. Returns the time when it is durable there, if the
    /// memory is.
    pub(super) fn write_around(&mut self, context: usize, line: Line, now: Time) -> Time {
        let Place { core, socket, .. } = self.places[context];
        let mut entry = *self.directory.entry(line);
        let begin = self.free(&entry, now);
        for sharer in bits(entry.sharers()) {
            self.counters.invalidations += u64::from(sharer != core);
            self.take(sharer, line);
        }
        for holder in bits(u128::from(entry.clusters)) {
            self.clusters[holder].tags.remove(line);
        }
        entry.set_sharers(0);
        entry.clusters = 0;
        entry.set_owner(None);
        entry.set_dirty(None);
        let home = self.directory.home(line, socket);
        let at = self.delay(begin, |memory, at| {
            let at = memory.cores[core].drain.line(at);
            memory.write_back(socket, home, line, at)
        });
        self.counters.streamed[home.node] += LINE_BYTES as u64;
        let accepted = self.accepted(home, socket, at);
        entry.write(context);
        entry.free_at = accepted;
        *self.directory.entry(line) = entry;
        accepted
    }

    /// Writes a line that a cache has changed back to memory, and leaves it in the caches. Returns
    /// the time when it is durable there, if the memory is.
    pub(super) fn clean(&mut self, context: usize, line: Line, now: Time) -> Time {
        let Place { core, socket, .. } = self.places[context];
        let mut entry = *self.directory.entry(line);
        let begin = self.free(&entry, now);
        if entry.dirty().is_none() {
            return begin;
        }
        let home = self.directory.home(line, socket);
        let at = self.delay(begin, |memory, at| {
            let at = memory.cores[core].drain.line(at);
            memory.write_back(socket, home, line, at)
        });
        entry.set_dirty(None);
        *self.directory.entry(line) = entry;
        self.accepted(home, socket, at)
    }

    /// Returns the time when a controller has accepted what set out for it at `at`.
    fn accepted(&self, home: Home, socket: usize, at: Time) -> Time {
        let mut accepted = at + self.description.memory_accept;
        if home.node != socket {
            accepted += self.description.memory_remote;
        }
        if home.nvm {
            accepted += self.description.nvm.map_or(Time::ZERO, |nvm| nvm.write_latency);
        }
        accepted
    }

    /// Writes in the shared cache of the context's cluster. Returns the time when it is
    /// acknowledged and, if no other cache had to give the line up or send it, when it reached the
    /// shared cache.
    fn write_shared(
        &mut self,
        context: usize,
        line: Line,
        count: usize,
        now: Time,
        atomic: bool,
    ) -> (Time, Option<Time>) {
        let Place { core, cluster, socket } = self.places[context];
        let mut entry = *self.directory.entry(line);
        let begin = self.free(&entry, now);
        let at = self.delay(begin, |memory, at| memory.cores[core].drain.parts(at, count as u64));
        let source = self.source(&entry, cluster);
        let elsewhere = entry.clusters & !(1 << cluster) != 0;
        let arrived = self.ways_to_cluster(context, line, source, at);
        let mut arrival = arrived + self.latency(context, line, source);
        if elsewhere {
            arrival = arrival.max(at + self.farthest(&entry, core, cluster, socket));
        }
        let kept = if atomic { 0 } else { entry.sharers() & 1 << core };
        if atomic {
            self.take(core, line);
        }
        self.end_copies(&mut entry, line, core, cluster);
        entry.set_sharers(kept);
        entry.set_dirty(Some(cluster));
        entry.write(context);
        arrival = arrival.max(self.put_shared(cluster, line, &mut entry, at));
        *self.directory.entry(line) = entry;
        (arrival, (source == Source::Shared && !elsewhere).then_some(at))
    }

    // ----- times -----

    /// Waits until the line is free.
    fn free(&mut self, entry: &Entry, now: Time) -> Time {
        let begin = now.max(entry.free_at);
        self.counters.line_waits += begin - now;
        begin
    }

    /// Counts what others' use of a way costs.
    fn delay(&mut self, at: Time, ways: impl FnOnce(&mut Self, Time) -> Time) -> Time {
        let begin = ways(self, at);
        self.counters.bandwidth_waits += begin - at;
        begin
    }

    /// A line that is in the core's private caches, where the first level takes `first`.
    fn hit(&mut self, core: usize, line: Line, first: Time) -> Time {
        if self.cores[core].first.use_line(line) {
            self.counters.first_level_hits += 1;
            return first;
        }
        self.counters.second_level_hits += 1;
        let core = &mut self.cores[core];
        core.second.as_mut().expect("a core that has a line has it in a cache").use_line(line);
        core.first.insert(line);
        self.description.l2.expect("there is a second level").latency
    }

    fn source(&self, entry: &Entry, cluster: usize) -> Source {
        let per_socket = self.description.clusters_per_socket;
        let socket = cluster / per_socket;
        if entry.clusters & 1 << cluster != 0 {
            return entry.owner().map_or(Source::Shared, Source::Core);
        }
        if entry.clusters == 0 {
            return Source::Memory;
        }
        let near = entry.clusters & self.clusters_of(socket);
        let any = if near != 0 { near } else { entry.clusters };
        let owner = entry.owner().map(|owner| owner / self.description.cores_per_cluster);
        let from = owner.or(entry.dirty()).unwrap_or(any.trailing_zeros() as usize) / per_socket;
        if from == socket { Source::Cluster } else { Source::Socket(from) }
    }

    /// Takes the line along the ways from its source to the context's core. Returns the time when
    /// it can set out.
    fn ways(&mut self, context: usize, line: Line, source: Source, begin: Time) -> Time {
        let cluster = self.places[context].cluster;
        match source {
            Source::Shared => {
                self.counters.shared_hits += 1;
                self.delay(begin, |memory, at| memory.clusters[cluster].reads.line(at))
            }
            Source::Core(owner) => {
                self.counters.transfers_between_cores += 1;
                self.delay(begin, |memory, at| memory.cores[owner].drain.line(at))
            }
            _ => self.ways_to_cluster(context, line, source, begin),
        }
    }

    /// The same as far as the shared cache.
    fn ways_to_cluster(&mut self, context: usize, line: Line, source: Source, begin: Time) -> Time {
        let Place { cluster, socket, .. } = self.places[context];
        match source {
            Source::Shared | Source::Core(_) => {
                self.counters.shared_hits += 1;
                begin
            }
            Source::Cluster => {
                self.counters.transfers_between_clusters += 1;
                begin
            }
            Source::Socket(from) => {
                self.counters.transfers_between_sockets += 1;
                self.delay(begin, |memory, at| memory.links[from].line(at))
            }
            Source::Memory => {
                let home = self.directory.home(line, socket);
                self.counters.memory_read[home.node] += LINE_BYTES as u64;
                self.delay(begin, |memory, at| {
                    let controller = memory.controller(home, line);
                    let controller = &mut memory.controllers[controller];
                    let reads = if home.nvm { &mut controller.nvm_reads } else { &mut controller.reads };
                    let mut at = reads.line(at);
                    if home.node != socket {
                        at = memory.links[home.node].line(at);
                    }
                    memory.clusters[cluster].memory_port.line(at)
                })
            }
        }
    }

    /// Writes a line to its home's controller. Returns the time when it can set out.
    fn write_back(&mut self, socket: usize, home: Home, line: Line, mut at: Time) -> Time {
        if home.node != socket {
            at = self.links[socket].line(at);
        }
        self.counters.memory_written[home.node] += LINE_BYTES as u64;
        let controller = self.controller(home, line);
        let controller = &mut self.controllers[controller];
        if home.nvm {
            controller.nvm_writes.line(at)
        } else {
            controller.writes.as_mut().unwrap_or(&mut controller.reads).line(at)
        }
    }

    fn latency(&mut self, context: usize, line: Line, source: Source) -> Time {
        let socket = self.places[context].socket;
        match source {
            Source::Shared => self.description.shared.latency,
            Source::Core(_) => self.description.between_cores,
            Source::Cluster => self.description.between_clusters,
            Source::Socket(_) => self.description.between_sockets,
            Source::Memory => {
                let home = self.directory.home(line, socket);
                let local = match self.description.nvm {
                    Some(nvm) if home.nvm => nvm.latency,
                    _ => self.description.memory_latency,
                };
                if home.node == socket { local } else { local + self.description.memory_remote }
            }
        }
    }

    /// Returns the time to end the farthest copy that others have.
    fn farthest(&mut self, entry: &Entry, core: usize, cluster: usize, socket: usize) -> Time {
        let elsewhere = entry.clusters & !(1 << cluster);
        if elsewhere & !self.clusters_of(socket) != 0 {
            self.description.between_sockets
        } else if elsewhere != 0 {
            self.description.between_clusters
        } else if entry.sharers() & !(1 << core) != 0 {
            self.description.between_cores
        } else {
            Time::ZERO
        }
    }

    // ----- copies and owners -----

    /// Ends all copies but the core's own.
    fn end_copies(&mut self, entry: &mut Entry, line: Line, core: usize, cluster: usize) {
        let others = entry.sharers() & !(1 << core);
        for other in bits(others) {
            self.counters.invalidations += 1;
            self.take(other, line);
        }
        for other in bits(u128::from(entry.clusters & !(1 << cluster))) {
            self.clusters[other].tags.remove(line);
        }
        entry.set_sharers(entry.sharers() & 1 << core);
        entry.clusters &= 1 << cluster;
    }

    /// Puts a line into the core's caches and its cluster's. Returns the time when there is room
    /// for it at the earliest.
    fn put(&mut self, core: usize, cluster: usize, line: Line, entry: &mut Entry, at: Time) -> Time {
        let room = self.put_shared(cluster, line, entry, at);
        if entry.sharers() & 1 << core != 0 {
            return room;
        }
        entry.set_sharers(entry.sharers() | 1 << core);
        let caches = &mut self.cores[core];
        let gone = match &mut caches.second {
            None => caches.first.insert(line),
            Some(second) => {
                let gone = second.insert(line);
                if let Some(gone) = gone {
                    caches.first.remove(gone);
                }
                caches.first.insert(line);
                gone
            }
        };
        let Some(gone) = gone else { return room };
        let mut left = *self.directory.entry(gone);
        left.set_sharers(left.sharers() & !(1 << core));
        if left.owner() == Some(core) {
            left.set_owner(None);
            if left.dirty().is_some() {
                self.cores[core].drain.line(at);
            }
        }
        *self.directory.entry(gone) = left;
        room
    }

    /// Puts a line into a cluster's cache. Returns the time when there is room for it at the
    /// earliest.
    fn put_shared(&mut self, cluster: usize, line: Line, entry: &mut Entry, at: Time) -> Time {
        let bit = 1 << cluster;
        if entry.clusters & bit != 0 {
            self.clusters[cluster].tags.use_line(line);
            return at;
        }
        entry.clusters |= bit;
        let Some(gone) = self.clusters[cluster].tags.insert(line) else { return at };
        let mut left = *self.directory.entry(gone);
        let cores = self.description.cores_per_cluster;
        let here = (u128::MAX >> (128 - cores)) << (cluster * cores);
        for core in bits(left.sharers() & here) {
            self.take(core, gone);
        }
        left.set_sharers(left.sharers() & !here);
        left.clusters &= !bit;
        if left.owner().is_some_and(|owner| here & 1 << owner != 0) {
            left.set_owner(None);
        }
        let owes = left.dirty() == Some(cluster);
        if owes {
            left.set_dirty(None);
        }
        *self.directory.entry(gone) = left;
        if !owes {
            return at;
        }
        let socket = cluster / self.description.clusters_per_socket;
        let home = self.directory.home(gone, socket);
        let written = self.write_back(socket, home, gone, at);
        let line = match self.description.nvm {
            Some(nvm) if home.nvm => nvm.write_line,
            _ => self.description.write_line,
        };
        at.max(written.saturating_sub(line.times(WRITE_QUEUE)))
    }

    /// Takes a line out of a core's private caches.
    fn take(&mut self, core: usize, line: Line) {
        let caches = &mut self.cores[core];
        caches.first.remove(line);
        if let Some(second) = &mut caches.second {
            second.remove(line);
        }
    }

    // ----- places -----

    fn clusters_of(&self, socket: usize) -> u16 {
        let per_socket = self.description.clusters_per_socket;
        (u16::MAX >> (16 - per_socket)) << (socket * per_socket)
    }

    fn controller(&self, home: Home, line: Line) -> usize {
        home.node * self.description.controllers + (line.0 % self.description.controllers as u64) as usize
    }
}

/// Returns the numbers of the bits that are set, lowest first.
fn bits(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        bit
    })
}
