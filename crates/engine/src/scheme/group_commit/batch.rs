//! The batch thread: it decides when a batch ends, and makes it durable.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Backoff, CachePadded, Condvar, Mutex};
use duramen_types::{PAGE_SIZE, TxnId, planted};

use super::Inner;
use super::format::{Composer, LineKind, Summary, half_of};
use super::stacks::Carrying;
use crate::error::Error;
use crate::heap::{Heap, LINE, Word};
use crate::options::Barriers;
use crate::page::Lines;
use crate::pool::{Staging, Taken};

/// What wakes the batch thread.
#[derive(Debug, Default)]
pub(super) struct BatchEvent {
    /// Whether the batch has anything that must become durable.
    has_work: CachePadded<AtomicBool>,
    /// Whether somebody wants the batch to end at once.
    is_urgent: AtomicBool,
    state: Mutex<Told>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    has_work: bool,
    is_urgent: bool,
    is_closing: bool,
    is_stopped: bool,
}

impl BatchEvent {
    /// Says that the batch has something that must become durable. Called in a section.
    #[inline]
    pub(super) fn note_work(&self) {
        if !self.has_work.load(Ordering::Relaxed) && !self.has_work.swap(true, Ordering::Relaxed) {
            self.ring(|told| told.has_work = true);
        }
    }

    /// Asks for the end of the batch.
    pub(super) fn hurry(&self) {
        if !self.is_urgent.load(Ordering::Relaxed) && !self.is_urgent.swap(true, Ordering::AcqRel) {
            self.ring(|told| told.is_urgent = true);
        }
    }

    /// Tells the thread to end the last batch, and then to stop; or to stop at once.
    pub(super) fn stop(&self, with_last_batch: bool) {
        self.ring(|told| if with_last_batch { told.is_closing = true } else { told.is_stopped = true });
    }

    fn ring(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut self.state.lock());
        self.changed.notify_one();
    }
}

/// The counters of the batch thread.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) batches: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) carried: AtomicU64,
}

/// Sees to it that nobody waits for the batch thread when it has ended, for whatever reason.
struct Ended<'i>(&'i Inner);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        // The first reason counts.
        self.0.acks.fail(Error::Poisoned { reason: "the thread that ends batches panicked".to_owned() });
        self.0.is_draining.store(false, Ordering::Release);
        self.0.staging().abandon();
    }
}

/// Ends batches until it is told to stop.
pub(super) fn batch_loop(inner: &Inner) {
    let _guard = Ended(inner);
    let mut ending = Ending::default();
    loop {
        let told = wait_for_work(inner);
        if told.is_stopped || (told.is_closing && !told.has_work) {
            inner.acks.fail(Error::Closed);
            return;
        }
        ending.end_batch(inner);
    }
}

/// Waits until the batch is due; returns why.
fn wait_for_work(inner: &Inner) -> Told {
    let event = &inner.event;
    let staging = inner.staging();
    let mut told = event.state.lock();
    let mut due: Option<Instant> = None;
    loop {
        if told.is_stopped || told.is_urgent || told.is_closing || staging.is_full() {
            break;
        }
        if !told.has_work {
            event.changed.wait(&mut told);
            continue;
        }
        // A batch lasts one period from its first change on.
        let now = Instant::now();
        let end = *due.get_or_insert_with(|| now.after(inner.options.period));
        if end.nanos() <= now.nanos() {
            break;
        }
        event.changed.wait_for(&mut told, end.since(now));
    }
    *told
}

/// What the batch thread keeps from batch to batch.
#[derive(Debug, Default)]
struct Ending {
    composer: Composer,
    /// The new lines of the batch, if its record has the old ones.
    news: Vec<u8>,
    /// Frames that could not be found clean when their lines were home.
    lingering: Vec<Taken>,
}

impl Ending {
    /// Ends the batch and makes it durable.
    fn end_batch(&mut self, inner: &Inner) {
        drain(inner);
        let staging = inner.staging();
        staging.close();
        let batch = inner.batch.load(Ordering::Relaxed);
        let has_work = inner.event.has_work.load(Ordering::Relaxed);
        {
            let mut told = inner.event.state.lock();
            (told.has_work, told.is_urgent) = (false, false);
            inner.event.is_urgent.store(false, Ordering::Relaxed);
            inner.event.has_work.store(false, Ordering::Relaxed);
        }
        if !has_work {
            reopen(inner);
            self.finish(inner, Vec::new());
            return;
        }
        let is_paper = inner.barriers == Barriers::Paper;
        let kind = if is_paper { LineKind::Old } else { LineKind::New };
        let taken = self.take(inner, kind);
        let carrying = inner.stacks.carry(&inner.heap);
        let summary = Summary {
            batch,
            next_txn: TxnId::new(inner.next_txn.load(Ordering::Relaxed)),
            groups: inner.groups.load(Ordering::Relaxed),
        };
        self.composer.end(kind, summary, &carrying.carried);
        inner.batch.store(batch + 1, Ordering::Relaxed);
        inner.counters.batches.fetch_add(1, Ordering::Relaxed);
        inner.counters.bytes.fetch_add(self.composer.len(), Ordering::Relaxed);
        inner.counters.carried.fetch_add(carrying.carried.len() as u64, Ordering::Relaxed);
        if !is_paper {
            reopen(inner);
        }
        if planted!(BatchAcknowledgedEarly) {
            inner.acks.publish(batch);
            duramen_sync::thread::sleep(Duration::from_micros(300));
        }
        self.write(&inner.heap, batch, &carrying);
        if is_paper {
            inner.heap.set(Word::LoggedBatch, batch);
            self.bring_home(&inner.heap, &taken);
            inner.heap.set(Word::CommittedBatch, batch);
        }
        // A thread that has waited for the batch finds the space that it gives back.
        inner.stacks.is_durable(carrying);
        inner.acks.publish(batch);
        if is_paper {
            reopen(inner);
        } else {
            self.bring_home(&inner.heap, &taken);
        }
        self.finish(inner, taken);
    }

    /// Takes what is staged: the new lines for their pages and, in the record, these or the old
    /// ones.
    fn take(&mut self, inner: &Inner, kind: LineKind) -> Vec<Taken> {
        let Self { composer, news, .. } = self;
        composer.begin();
        news.clear();
        let mut old = vec![0; PAGE_SIZE];
        inner.pool.take_staged(|page, lines, bytes| {
            if kind == LineKind::New {
                return composer.add_page(page, lines, bytes);
            }
            for run in lines.runs() {
                let part = run.start * LINE as usize..run.end * LINE as usize;
                news.extend_from_slice(&bytes[part.clone()]);
                inner.heap.read(inner.heap.layout.page(page) + part.start as u64, &mut old[part]);
            }
            composer.add_page(page, lines, &old);
        })
    }

    /// Stores the record and the undo blocks that it lists, and makes them durable.
    fn write(&mut self, heap: &Heap, batch: u64, carrying: &Carrying) {
        let (at, most) = half_of(heap, if planted!(HalfReusedEarly) { 0 } else { batch });
        assert!(self.composer.len() <= most, "a batch of {} bytes is larger than half of its log", self.composer.len());
        for (at, bytes) in &carrying.stores {
            heap.store(*at, &[bytes]);
        }
        let (head, lines) = self.composer.seal(heap.header.database);
        heap.stream(at, head);
        heap.stream(at + head.len() as u64, lines);
        heap.barrier();
    }

    /// Stores the lines of the batch to their pages, and makes them durable.
    fn bring_home(&self, heap: &Heap, taken: &[Taken]) {
        let mut rest = if self.news.is_empty() { self.composer.lines() } else { &self.news[..] };
        for Taken { page, lines, .. } in taken {
            let (contents, behind) = rest.split_at(lines.count() as usize * LINE as usize);
            store_lines(heap, *page, *lines, contents);
            rest = behind;
        }
        heap.barrier();
    }

    /// Says that the lines of the batch are home.
    fn finish(&mut self, inner: &Inner, taken: Vec<Taken>) {
        self.lingering.extend(taken);
        inner.pool.staged_are_home(&mut self.lingering);
    }
}

/// Lets actions, and then new writers, go on.
fn reopen(inner: &Inner) {
    inner.is_draining.store(false, Ordering::Release);
    inner.pool.open_sections();
}

/// Stores lines of a page in the heap, past the caches: the page is read from its frame.
pub(super) fn store_lines(heap: &Heap, page: duramen_types::PageId, lines: Lines, contents: &[u8]) {
    let mut rest = contents;
    for run in lines.runs() {
        let (bytes, behind) = rest.split_at(run.len() * LINE as usize);
        heap.stream_page(page, run.start * LINE as usize, bytes);
        rest = behind;
    }
}

/// Lets transactions under way end, for a limited time: each one that ends need not be carried.
/// New ones wait where they reserve space.
fn drain(inner: &Inner) {
    let limit = inner.options.drain;
    if limit == Duration::ZERO || inner.stacks.count() == 0 {
        return;
    }
    inner.is_draining.store(true, Ordering::Release);
    let start = Instant::now();
    let mut backoff = Backoff::new();
    while inner.stacks.count() != 0 && start.elapsed() < limit {
        backoff.snooze();
    }
}

impl Inner {
    pub(super) fn staging(&self) -> &Staging {
        self.pool.staging().expect("the pool's store is staged")
    }
}
