//! The state of a run, and its scheduler.
//!
//! A thread that is about to touch shared memory takes its *turn* first: under [`Schedule::Time`]
//! it lets all threads with a smaller virtual time run; under the other schedules, threads chosen
//! at random. Between two turns a thread runs alone, so the host needs no synchronisation at all.
//!
//! Threads and contexts: a thread that is woken goes to the context it ran on last, if that is
//! idle, or to any idle one, or queues up where the queue is shortest; a context runs its queue in
//! order, with time slices, and an idle one takes from the queues of others. Under schedules that
//! look for bugs, each thread has a context and all threads share one clock.

use std::collections::VecDeque;
use std::fmt::Write as _;

use corosensei::Yielder;

use crate::fiber::Fiber;
use crate::line::{LINE_BYTES, Line, Lines};
use crate::memory::{Bulk, Memory, Op};
use crate::number_map::NumberMap;
use crate::pipeline::Pipelines;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::schedule::{Chance, Queue};
use crate::thread::{State, Thread, ThreadId, Wait};
use crate::{Description, Schedule, Time, Visits};

/// Time that an operation takes when no figures are wanted.
const STEP: Time = Time::from_nanos(20);
/// The shortest time for which a thread loses its processor.
const SHORTEST_STALL: Time = Time::from_nanos(1000);
/// Operations that a thread has in a row when nothing is charged.
const SHARE: u64 = 10_000;
/// Instructions that stand for the code around each operation on shared memory, and each small read
/// of a page: calibrated against native runs (`duramen lab calibrate`).
const AROUND: u64 = 6;

/// Why a run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Done,
    Stopped,
    Aborted,
    OutOfTime,
    Deadlock,
}

/// A hardware context.
#[derive(Debug, Default)]
struct Context {
    running: Option<ThreadId>,
    queue: VecDeque<ThreadId>,
    slice_start: Time,
}

pub(crate) struct World {
    pub(crate) description: Description,
    pub(crate) memory: Memory,
    pub(crate) pipelines: Pipelines,
    pub(crate) threads: Vec<Thread>,
    contexts: Vec<Context>,
    /// The contexts that threads may run on, in the order in which they get them.
    places: Vec<usize>,
    queue: Queue,
    /// Threads that can run, when chance chooses among them.
    ready: Vec<ThreadId>,
    /// The thread that chance has chosen already.
    chosen: Option<ThreadId>,
    schedule: Schedule,
    chance: Chance,
    /// Operation numbers at which a priority changes, the next one last.
    changes: Vec<u64>,
    /// The lowest priority that any thread has, and none above zero.
    lowest: i64,
    running: ThreadId,
    /// Time of the last turn.
    clock: Time,
    limit: Time,
    max_operations: u64,
    pub(crate) lines: Lines,
    /// Threads that spin until a line changes, each with the number of its wait.
    watchers: NumberMap<u64, Vec<(ThreadId, u64)>>,
    /// Threads that wait at a word, each with the number of its wait.
    pub(crate) words: NumberMap<usize, VecDeque<(ThreadId, u64)>>,
    pub(crate) end: Option<End>,
    pub(crate) visits: Visits,
    /// The socket that something was visited from last.
    visited_from: NumberMap<u64, usize>,
    pub(crate) operations: u64,
    pub(crate) digest: u64,
    seed: u64,
    /// Why a thread could not continue.
    pub(crate) abortion: String,
    pub(crate) probes: Vec<u64>,
    pub(crate) trace: Option<Box<Recorder>>,
}

impl World {
    pub(crate) fn new(plan: &Plan, heap: usize) -> Self {
        let description = plan.description.clone();
        let (seed, changes, steps) = match plan.schedule {
            Schedule::Time | Schedule::Free => (plan.seed, 0, 1),
            Schedule::Random { seed } | Schedule::Stalls { seed, .. } => (seed, 0, 1),
            Schedule::Priorities { seed, changes, steps } => (seed, changes, steps.max(1)),
        };
        let mut chance = Chance::new(seed);
        let mut changes: Vec<u64> = (0..changes).map(|_| chance.below(steps)).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            memory: Memory::new(&description),
            pipelines: Pipelines::new(&description),
            threads: Vec::new(),
            contexts: (0..description.contexts()).map(|_| Context::default()).collect(),
            places: plan.contexts.clone().unwrap_or_else(|| {
                (0..description.contexts()).map(|nth| description.placement(nth) % description.contexts()).collect()
            }),
            description,
            queue: Queue::default(),
            ready: Vec::new(),
            chosen: None,
            schedule: plan.schedule,
            chance,
            changes,
            lowest: 0,
            running: ThreadId(0),
            clock: Time::ZERO,
            limit: plan.limit,
            max_operations: plan.max_operations,
            lines: Lines::new(heap),
            watchers: NumberMap::default(),
            words: NumberMap::default(),
            end: None,
            visits: Visits::default(),
            visited_from: NumberMap::default(),
            operations: 0,
            digest: 0,
            seed: plan.seed,
            abortion: String::new(),
            probes: Vec::new(),
            trace: plan.trace.map(|tracing| Box::new(Recorder::new(tracing))),
        }
    }

    fn by_time(&self) -> bool {
        self.schedule == Schedule::Time
    }

    fn is_free(&self) -> bool {
        self.schedule == Schedule::Free
    }

    pub(crate) fn current(&mut self) -> &mut Thread {
        &mut self.threads[self.running.index()]
    }

    pub(crate) fn current_id(&self) -> ThreadId {
        self.running
    }

    pub(crate) fn thread_mut(&mut self, thread: ThreadId) -> &mut Thread {
        &mut self.threads[thread.index()]
    }

    /// Returns the virtual time of the latest turn.
    pub(crate) fn time(&self) -> Time {
        self.threads.iter().map(|thread| thread.now).fold(self.clock, Time::max)
    }

    pub(crate) fn take_fiber(&mut self, thread: ThreadId) -> Fiber {
        self.thread_mut(thread).fiber.take().expect("a thread that can run has code")
    }

    pub(crate) fn put_fiber(&mut self, thread: ThreadId, fiber: Fiber) {
        self.thread_mut(thread).fiber = Some(fiber);
    }

    /// Records that the running thread has begun; `yielder` suspends it.
    pub(crate) fn started(&mut self, yielder: *const Yielder<(), ()>) {
        self.current().yielder = yielder;
    }

    pub(crate) fn panicked(&mut self, panic: Box<dyn std::any::Any + Send>) {
        self.current().panic = Some(panic);
    }

    // ----- threads and contexts -----

    /// Starts a thread now.
    pub(crate) fn start(&mut self, name: String, fiber: Fiber) -> ThreadId {
        let id = ThreadId(u32::try_from(self.threads.len()).expect("fewer than 2^32 threads"));
        let now = if id.0 == 0 { Time::ZERO } else { self.current().now };
        let context = self.places[id.index() % self.places.len()];
        let priority = (self.chance.next() >> 1) as i64;
        let chance = self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(u64::from(id.0));
        self.threads.push(Thread::new(name, fiber, now, context, priority, chance));
        self.make_ready(id, now);
        self.trace(id, |_| "starts".to_owned());
        id
    }

    /// Ends the running thread.
    pub(crate) fn ended(&mut self, thread: ThreadId) {
        if thread.0 == 0 {
            self.end.get_or_insert(End::Done);
        }
        self.trace(thread, |_| "ends".to_owned());
        let now = self.threads[thread.index()].now;
        self.thread_mut(thread).state = State::Ended;
        for joiner in std::mem::take(&mut self.thread_mut(thread).joiners) {
            self.wake(joiner, now);
        }
        self.leave_context(thread);
    }

    /// Lets the thread, which is not running, continue at `at` or when it gets a context.
    fn make_ready(&mut self, thread: ThreadId, at: Time) {
        if !self.by_time() {
            self.thread_mut(thread).state = State::Ready;
            self.ready.push(thread);
            return;
        }
        self.threads[thread.index()].now = self.threads[thread.index()].now.max(at);
        let home = self.threads[thread.index()].context;
        let idle = |context: &Context| context.running.is_none() && context.queue.is_empty();
        let place = if idle(&self.contexts[home]) {
            Some(home)
        } else {
            self.places.iter().copied().find(|&context| idle(&self.contexts[context]))
        };
        match place {
            Some(context) => self.run_on(thread, context, at),
            None => {
                let shortest = (self.places.iter().copied())
                    .min_by_key(|&context| (self.contexts[context].queue.len(), context != home, context))
                    .expect("a machine has a context");
                self.thread_mut(thread).state = State::Queued;
                self.contexts[shortest].queue.push_back(thread);
            }
        }
    }

    fn run_on(&mut self, thread: ThreadId, context: usize, at: Time) {
        self.contexts[context].running = Some(thread);
        self.contexts[context].slice_start = at;
        let state = &mut self.threads[thread.index()];
        state.context = context;
        state.state = State::Ready;
        state.now = state.now.max(at);
        let (now, wait) = (state.now, state.wait);
        self.queue.push(now, thread, wait);
    }

    /// Gives the context of the thread to the next one.
    fn leave_context(&mut self, thread: ThreadId) {
        if !self.by_time() {
            return;
        }
        let (context, now) = (self.threads[thread.index()].context, self.threads[thread.index()].now);
        assert_eq!(self.contexts[context].running, Some(thread), "a thread leaves the context it is on");
        self.contexts[context].running = None;
        let next = self.contexts[context].queue.pop_front().or_else(|| {
            let busiest = (0..self.contexts.len()).max_by_key(|&other| (self.contexts[other].queue.len(), other))?;
            self.contexts[busiest].queue.pop_front()
        });
        if let Some(next) = next {
            let at = now.max(self.threads[next.index()].now) + self.description.context_switch();
            self.run_on(next, context, at);
        }
    }

    /// Returns whether others wait for the running thread's context and its time slice is over.
    fn slice_is_over(&mut self) -> bool {
        let (context, now) = (self.current().context, self.current().now);
        let context = &self.contexts[context];
        !context.queue.is_empty() && now.saturating_sub(context.slice_start) >= self.description.quantum()
    }

    /// Sends the running thread to the end of its context's queue.
    fn requeue(&mut self) {
        let (thread, context) = (self.running, self.current().context);
        self.current().involuntary_switches += 1;
        self.current().state = State::Queued;
        self.contexts[context].queue.push_back(thread);
        self.leave_context(thread);
    }

    // ----- turns -----

    /// Chooses the thread that runs on.
    pub(crate) fn next(&mut self) -> Result<ThreadId, End> {
        if let Some(end) = self.end {
            return Err(end);
        }
        if self.by_time() {
            while let Some((time, thread, wait)) = self.queue.pop() {
                if self.threads[thread.index()].wait != wait || !self.due(thread, time) {
                    continue;
                }
                if time > self.limit {
                    return Err(End::OutOfTime);
                }
                self.clock = self.clock.max(time);
                self.running = thread;
                return Ok(thread);
            }
            return Err(End::Deadlock);
        }
        while let Some(time) = self.queue.first()
            && (time <= self.clock || self.ready.is_empty() && self.chosen.is_none())
        {
            self.clock = self.clock.max(time);
            let (time, thread, wait) = self.queue.pop().expect("there is a first entry");
            if self.threads[thread.index()].wait == wait && self.due(thread, time) {
                self.ready.push(thread);
            }
        }
        if self.clock > self.limit {
            return Err(End::OutOfTime);
        }
        let Some(thread) = self.chosen.take().or_else(|| self.choose()) else { return Err(End::Deadlock) };
        self.running = thread;
        let clock = self.clock;
        let running = self.current();
        running.now = running.now.max(clock);
        Ok(thread)
    }

    /// Handles the entry of the queue that is due; returns whether its thread continues now.
    fn due(&mut self, thread: ThreadId, time: Time) -> bool {
        let state = self.threads[thread.index()].state;
        match state {
            State::Ready => true,
            State::Spinning => {
                let spinning = self.thread_mut(thread);
                spinning.wait += 1;
                spinning.spend(time, true);
                spinning.state = State::Ready;
                true
            }
            State::Blocked(_) => {
                self.thread_mut(thread).woken = false;
                self.unblock(thread, time);
                false
            }
            State::Queued | State::Ended => false,
        }
    }

    fn choose(&mut self) -> Option<ThreadId> {
        let count = self.ready.len() as u64;
        let at = match (count, self.schedule) {
            (0, _) => return None,
            (1, _) => 0,
            (_, Schedule::Priorities { .. }) => {
                let priority = |at: &usize| self.threads[self.ready[*at].index()].priority;
                (0..self.ready.len()).max_by_key(priority).expect("someone is ready")
            }
            _ => self.chance.below(count) as usize,
        };
        Some(self.ready.swap_remove(at))
    }

    /// Takes the turn of the running thread, which is about to touch shared data. Returns whether
    /// it must wait for it.
    pub(crate) fn turn(&mut self) -> bool {
        self.operations += 1;
        if self.operations > self.max_operations {
            self.end = Some(End::OutOfTime);
            return true;
        }
        let thread = self.running;
        if !self.by_time() {
            self.clock += STEP;
            if std::thread::panicking() || self.is_free() && !self.operations.is_multiple_of(SHARE) {
                return false;
            }
            if self.changes.last().is_some_and(|&change| change <= self.operations) {
                self.changes.pop();
                let low = self.changes.len() as i64;
                self.current().priority = low;
            }
            if let Schedule::Stalls { one_in, .. } = self.schedule
                && self.chance.below(u64::from(one_in)) == 0
            {
                let until = self.clock + SHORTEST_STALL.times(1 << self.chance.below(8));
                let wait = self.current().wait;
                self.queue.push(until, thread, wait);
                return true;
            }
            self.ready.push(thread);
            self.chosen = self.choose();
            // A sleeping thread must get a turn even while one other thread never waits.
            let is_due = self.queue.first().is_some_and(|first| first <= self.clock);
            let waits = self.chosen != Some(thread) || is_due || self.clock > self.limit;
            if !waits {
                self.chosen = None;
                let clock = self.clock;
                let running = self.current();
                running.now = running.now.max(clock);
            }
            return waits;
        }
        if self.slice_is_over() {
            self.requeue();
            return true;
        }
        let (now, wait) = (self.current().now, self.current().wait);
        if now <= self.limit && self.queue.first().is_none_or(|first| first >= now) || std::thread::panicking() {
            self.clock = self.clock.max(now);
            return false;
        }
        self.queue.push(now, thread, wait);
        true
    }

    /// As [`World::turn`], for one of many small reads under an optimistic protocol: only some of
    /// them are turns, and only when no figures are wanted.
    pub(crate) fn turn_among_races(&mut self) -> bool {
        !self.by_time() && !self.is_free() && self.chance.below(8) == 0 && self.turn()
    }

    // ----- waiting -----

    /// Takes the context from the running thread until [`World::wake`] or `deadline`.
    pub(crate) fn block(&mut self, why: Wait, deadline: Time) {
        let thread = self.running;
        self.trace(thread, |threads| match why {
            Wait::Sleep => format!("sleeps until {} us", deadline.nanos() / 1000),
            Wait::Word(_) if deadline == Time::NEVER => "waits".to_owned(),
            Wait::Word(_) => format!("waits until {} us", deadline.nanos() / 1000),
            Wait::End(other) => format!("waits for the end of {}", threads[other.index()].name),
        });
        let blocked = self.current();
        blocked.wait += 1;
        blocked.woken = false;
        blocked.blocked_since = blocked.now;
        blocked.voluntary_switches += 1;
        blocked.state = State::Blocked(why);
        let (wait, deadline) = (blocked.wait, deadline.max(blocked.now));
        if deadline != Time::NEVER {
            self.queue.push(deadline, thread, wait);
        }
        self.leave_context(thread);
    }

    /// Ends the wait of a blocked thread at `at`.
    pub(crate) fn wake(&mut self, thread: ThreadId, at: Time) {
        assert!(matches!(self.threads[thread.index()].state, State::Blocked(_)), "only a blocked thread is woken");
        let waker = self.running;
        self.trace(waker, |threads| format!("wakes {}", threads[thread.index()].name));
        self.thread_mut(thread).woken = true;
        let at = at + self.description.wake();
        self.unblock(thread, at);
    }

    fn unblock(&mut self, thread: ThreadId, at: Time) {
        let blocked = self.thread_mut(thread);
        blocked.wait += 1;
        let time = at.saturating_sub(blocked.blocked_since);
        blocked.breakdown.add_blocked(blocked.category, time);
        self.make_ready(thread, at);
    }

    /// Lets the running thread spin, for `longest` at most, until one of the lines that it has read
    /// changes. Returns whether it waits.
    pub(crate) fn spin(&mut self, longest: Time) -> bool {
        let thread = self.running;
        if self.is_free() {
            self.clock += longest;
            self.ready.push(thread);
            return true;
        }
        let watched = std::mem::take(&mut self.current().watched);
        let pause = self.description.pause();
        let changed = watched.iter().any(|&(line, version)| self.memory.version(line) != version);
        let now = self.current().now;
        if changed || watched.is_empty() {
            let until = now + if changed { pause } else { longest.max(pause) };
            self.current().spend(until, true);
            self.current().watched = watched;
            self.current().watched.clear();
            return false;
        }
        self.current().wait += 1;
        let wait = self.current().wait;
        for &(line, _) in &watched {
            self.watchers.entry(line.0).or_default().push((thread, wait));
        }
        self.current().watched = watched;
        self.current().watched.clear();
        self.current().state = State::Spinning;
        // Other schedules let a thread's own time run ahead of the clock, by which this wait ends.
        let from = if self.by_time() { now } else { now.min(self.clock) };
        let mut until = from + longest.max(pause);
        if self.by_time() {
            let context = &self.contexts[self.threads[thread.index()].context];
            if !context.queue.is_empty() {
                until = until.min((context.slice_start + self.description.quantum()).max(now + pause));
            }
        }
        self.queue.push(until, thread, wait);
        true
    }

    /// Lets the threads continue that spin on a line, which changes at `at`.
    fn changes(&mut self, line: Line, at: Time) {
        if self.watchers.is_empty() {
            return;
        }
        let Some(watchers) = self.watchers.remove(&line.0) else { return };
        for (thread, wait) in watchers {
            let spinning = &mut self.threads[thread.index()];
            if spinning.wait != wait || spinning.state != State::Spinning {
                continue;
            }
            spinning.wait += 1;
            spinning.spend(at, true);
            spinning.state = State::Ready;
            let (now, wait) = (spinning.now, spinning.wait);
            if self.by_time() {
                self.queue.push(now, thread, wait);
            } else {
                self.ready.push(thread);
            }
        }
    }

    /// Offers the context of the running thread to others. Returns whether the thread waits.
    pub(crate) fn give_way(&mut self) -> bool {
        let until = self.current().now + self.description.yield_call();
        self.current().spend(until, true);
        if !self.by_time() {
            // A loop that yields waits for another thread, so all other threads come first.
            self.lowest -= 1;
            self.current().priority = self.lowest;
            if self.is_free() {
                self.ready.push(self.running);
                return true;
            }
            return self.turn();
        }
        let context = self.current().context;
        if self.contexts[context].queue.is_empty() {
            return self.turn();
        }
        self.requeue();
        true
    }

    // ----- what is charged -----

    /// Charges the running thread for an atomic operation, in its turn.
    pub(crate) fn access(&mut self, address: usize, op: Op) {
        if self.is_free() {
            return;
        }
        if self.current().has_on_stack(address) {
            return self.access_stack(op);
        }
        let line = self.lines.of(address);
        let thread = self.running;
        let (now, context) = (self.current().now, self.current().context);
        if let Some(trace) = &mut self.trace {
            trace.operation(thread, &self.threads, op, line, now);
        }
        self.mix(u64::from(thread.0) << 48 ^ line.0 << 3 ^ op as u64 ^ now.picos().rotate_left(20));
        if self.by_time() {
            let computed = self.pipelines.compute(context, AROUND, now);
            let done = self.memory.access(context, line, op, computed);
            self.current().spend(done, false);
        } else {
            self.memory.access(context, line, op, now);
        }
        match op {
            Op::Load => {
                let version = self.memory.version(line);
                self.current().watch(line, version);
            }
            Op::Store | Op::Rmw => self.changes(line, now),
            Op::Fence => {}
        }
    }

    /// Charges the running thread for an atomic operation on its own stack, before it shares the
    /// variable or after it got it back. The compiler decides where on the stack the variable lies
    /// and what shares its line, so no line is looked up.
    fn access_stack(&mut self, op: Op) {
        if self.by_time() {
            let (now, context) = (self.current().now, self.current().context);
            let computed = self.pipelines.compute(context, AROUND, now);
            let done = self.memory.access_private(context, op, computed);
            self.current().spend(done, false);
        }
    }

    /// Charges the running thread for touching plain data.
    pub(crate) fn touch(&mut self, address: usize, len: usize, how: Bulk) {
        if !self.by_time() || len == 0 {
            return;
        }
        let (mut address, end) = (address, address + len);
        while address < end {
            let piece = self.lines.piece(address, end - address);
            let first = self.lines.of(address);
            let lines = (address % LINE_BYTES + piece).div_ceil(LINE_BYTES) as u64;
            let (mut now, context) = (self.current().now, self.current().context);
            let instructions = match how {
                Bulk::Read => 0,
                Bulk::Write | Bulk::Stream => self.description.copy_instructions(),
                Bulk::Flush => 1,
            };
            if instructions > 0 {
                now = self.pipelines.compute(context, lines * instructions, now);
            }
            let done = self.memory.touch(context, first, lines, how, now);
            self.current().spend(done, false);
            address += piece;
        }
    }

    /// Charges the running thread for computing.
    pub(crate) fn compute(&mut self, instructions: u64) {
        if self.by_time() {
            let (now, context) = (self.current().now, self.current().context);
            let done = self.pipelines.compute(context, instructions, now);
            self.current().spend(done, false);
        }
    }

    /// Requests so far that private caches could not answer.
    pub(crate) fn off_core_requests(&self) -> u64 {
        let counters = self.memory.counters();
        let lines_read = counters.memory_read.iter().sum::<u64>() / LINE_BYTES as u64;
        let between_caches =
            counters.transfers_between_cores + counters.transfers_between_clusters + counters.transfers_between_sockets;
        counters.shared_hits + between_caches + lines_read
    }

    /// Records a visit of the running thread to `thing`.
    pub(crate) fn visit(&mut self, thing: u64) {
        if self.by_time() {
            let context = self.current().context;
            let socket = self.description.socket_of(context);
            self.visits.all += 1;
            let before = self.visited_from.insert(thing, socket);
            self.visits.migrated += u64::from(before.is_some_and(|before| before != socket));
        }
    }

    /// Charges the running thread for a system call of this duration.
    pub(crate) fn spend(&mut self, time: Time) {
        let until = self.current().now + time;
        self.current().spend(until, false);
    }

    pub(crate) fn mix(&mut self, number: u64) {
        self.digest = (self.digest.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Binds the `len` bytes at `address` to the memory of `node`, or to its non-volatile memory.
    pub(crate) fn bind(&mut self, address: usize, len: usize, node: usize, nvm: bool) {
        let (mut address, end) = (address, address + len);
        while address < end {
            let piece = self.lines.piece(address, end - address);
            let first = self.lines.of(address);
            let lines = (address % LINE_BYTES + piece).div_ceil(LINE_BYTES) as u64;
            if nvm {
                self.memory.bind_nvm(first, lines, node);
            } else {
                self.memory.bind(first, lines, node);
            }
            address += piece;
        }
    }

    /// Removes from the word at `address` the threads whose wait there is over.
    pub(crate) fn forget(&mut self, address: usize) {
        let Some(mut waiting) = self.words.remove(&address) else { return };
        waiting.retain(|&(thread, wait)| self.threads[thread.index()].wait == wait);
        if !waiting.is_empty() {
            self.words.insert(address, waiting);
        }
    }

    // ----- what is noted -----

    /// Traces an event of `thread`.
    fn trace(&mut self, thread: ThreadId, what: impl FnOnce(&[Thread]) -> String) {
        let now = if self.by_time() { self.threads[thread.index()].now } else { self.clock };
        if let Some(trace) = &mut self.trace {
            trace.event(now, thread, &self.threads, &what(&self.threads));
        }
    }

    /// Traces what the running thread reports.
    pub(crate) fn note(&mut self, what: &str) {
        let thread = self.running;
        self.trace(thread, |_| what.to_owned());
    }

    /// Records that the running thread takes a rare branch.
    pub(crate) fn reach(&mut self, number: usize, name: &str) {
        if self.probes.len() <= number {
            self.probes.resize(number + 1, 0);
        }
        self.probes[number] += 1;
        let thread = self.running;
        self.trace(thread, |_| format!("reaches {name}"));
    }

    /// Returns what each thread does, for people.
    pub(crate) fn waits(&self) -> String {
        let mut text = String::new();
        for (id, thread) in self.threads.iter().enumerate() {
            let what = match thread.state {
                State::Ready => "can run".to_owned(),
                State::Queued => "queues for a context".to_owned(),
                State::Spinning => "spins".to_owned(),
                State::Blocked(Wait::Sleep) => "sleeps".to_owned(),
                State::Blocked(Wait::Word(_)) => "waits to be woken".to_owned(),
                State::Blocked(Wait::End(other)) => {
                    format!("waits for the end of {}", self.threads[other.index()].name)
                }
                State::Ended => continue,
            };
            let _ = writeln!(text, "{id} {}: {what}", thread.name);
        }
        text
    }
}
