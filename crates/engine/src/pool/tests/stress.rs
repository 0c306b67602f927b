//! Many threads, few frames.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use duramen_sync::clock::Instant;
use duramen_sync::thread;

use super::super::Interrupt;
use super::*;

const PAGES: u64 = 1000;

fn spawn(
    fixture: &Arc<Fixture>,
    seed: u64,
    body: impl FnOnce(&Fixture, &mut StdRng) + Send + 'static,
) -> thread::JoinHandle<()> {
    let fixture = Arc::clone(fixture);
    thread::spawn("pool-stress", move || body(&fixture, &mut StdRng::seed_from_u64(seed))).unwrap()
}

/// Returns mostly one of a few hot pages, so that threads compete.
fn any_page(rng: &mut StdRng) -> PageId {
    let bound = if rng.random_bool(0.5) { 20 } else { PAGES };
    PageId::new(rng.random_range(1..=bound))
}

fn run(kind: Kind, frames: usize, writers: u64, readers: u64, rounds: u64) {
    let config = PoolConfig {
        frames,
        max_dirty_percent: 50,
        cleaner_interval: std::time::Duration::from_millis(1),
        ..PoolConfig::default()
    };
    let fixture = Arc::new(Fixture::over(kind, config));
    fixture.pool.start_cleaner().unwrap();
    fixture.create_pages(PAGES);
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..writers)
        .map(|seed| {
            spawn(&fixture, seed, move |fixture, rng| {
                for round in 0..rounds {
                    let id = any_page(rng);
                    match round % 3 {
                        0 => fixture.increment(id).unwrap(),
                        // Takes two latches at once, in the order of the ids.
                        1 => {
                            let mut first = fixture.pool.exclusive(id).unwrap();
                            let other = PageId::new(PAGES - id.get() % 7);
                            let mut second = (id < other).then(|| fixture.pool.exclusive(other).unwrap());
                            fixture.increment_guard(&mut first);
                            second.iter_mut().for_each(|second| fixture.increment_guard(second));
                        }
                        _ => loop {
                            match fixture.pool.optimistic(id) {
                                Ok(read) => {
                                    if let Ok(mut guard) = read.upgrade() {
                                        break fixture.increment_guard(&mut guard);
                                    }
                                }
                                Err(Interrupt::Restart) => {}
                                Err(Interrupt::Failed(error)) => panic!("{error}"),
                            }
                        },
                    }
                }
            })
        })
        .collect();
    let readers: Vec<_> = (0..readers)
        .map(|seed| {
            let done = Arc::clone(&done);
            spawn(&fixture, 100 + seed, move |fixture, rng| {
                let mut seen = HashMap::new();
                while !done.load(Ordering::Relaxed) {
                    let id = any_page(rng);
                    let now = if rng.random_bool(0.1) {
                        fixture.counter(id).unwrap()
                    } else {
                        let Ok(read) = fixture.pool.optimistic(id) else { continue };
                        let found = counter(&read.page(), id);
                        if read.validate().is_err() {
                            continue;
                        }
                        found.unwrap()
                    };
                    let before = seen.insert(id, now).unwrap_or(0);
                    assert!(before <= now, "{id} went back from {before} to {now}");
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|thread| thread.join().unwrap());
    done.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|thread| thread.join().unwrap());

    fixture.pool.stop_cleaner();
    fixture.pool.flush_all().unwrap();
    assert_eq!(fixture.pool.metrics().dirty, 0);
    let fixture = Arc::into_inner(fixture).expect("all threads are gone").reopen(64);
    let history = std::mem::take(&mut *fixture.log.history.lock());
    for raw in 1..=PAGES {
        let id = PageId::new(raw);
        assert_eq!(fixture.counter(id).unwrap(), history[&id].len() as u64 - 1, "{id}");
    }
}

#[test]
fn counts_are_exact_with_64_frames() {
    run(Kind::Files, 64, 4, 3, 2000);
}

#[test]
fn counts_are_exact_with_64_frames_that_are_never_dirty() {
    run(Kind::Memory, 64, 4, 3, 2000);
}

#[test]
fn counts_are_exact_with_everything_in_memory() {
    run(Kind::Files, 2000, 3, 2, 4000);
}

#[test]
fn counts_are_exact_with_everything_in_memory_and_never_dirty() {
    run(Kind::Memory, 2000, 3, 2, 4000);
}

/// Checkpoints, cleaning and changes run at once. At no moment does the disk lack a change from
/// before a page's bound, or have a change that the log might lose.
#[test]
fn checkpoints_see_correct_bounds() {
    const PAGES: u64 = 100;
    let config = PoolConfig {
        frames: 64,
        max_dirty_percent: 30,
        cleaner_interval: std::time::Duration::from_millis(1),
        ..PoolConfig::default()
    };
    let fixture = Arc::new(Fixture::with_config(config));
    fixture.pool.start_cleaner().unwrap();
    fixture.create_pages(PAGES);
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|seed| {
            let done = Arc::clone(&done);
            spawn(&fixture, seed, move |fixture, rng| {
                while !done.load(Ordering::Relaxed) {
                    fixture.increment(PageId::new(rng.random_range(1..=PAGES))).unwrap();
                }
            })
        })
        .collect();
    for round in 0..60 {
        let begin = fixture.log.end();
        let dirty: HashMap<_, _> = fixture.pool.dirty_pages().into_iter().collect();
        if round % 10 == 0 {
            fixture.pool.flush_before(begin).unwrap();
        }
        let durable = fixture.disk.durable_bytes("data").unwrap();
        let hardened = fixture.log.hardened.load(Ordering::Acquire);
        let history = fixture.log.history.lock();
        for raw in 1..=PAGES {
            let id = PageId::new(raw);
            let bound = if round % 10 == 0 { begin } else { dirty.get(&id).copied().unwrap_or(begin).min(begin) };
            let needed = history[&id].iter().filter(|gsn| **gsn < bound.get()).count();
            let bytes = durable.get(raw as usize * PAGE_SIZE..).and_then(|rest| rest.get(..PAGE_SIZE));
            let Some(bytes) = bytes.filter(|bytes| bytes.iter().any(|byte| *byte != 0)) else {
                assert_eq!(needed, 0, "{id} is not on disk");
                continue;
            };
            page::verify(bytes, id).unwrap();
            assert!(page::gsn(bytes).get() < hardened, "{id} is ahead of the log");
            let have = 1 + counter(bytes, id).unwrap() as usize;
            assert!(have >= needed, "{id}: {have} of {needed} changes below {bound:?} are on disk");
        }
    }
    done.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|thread| thread.join().unwrap());
    fixture.pool.stop_cleaner();
}

/// The sort read a frame's page at each comparison while other threads replaced pages. The order
/// was inconsistent, and the sort panicked.
#[test]
fn frames_may_get_other_pages_while_they_are_sorted() {
    let fixture = Fixture::new(256);
    let pool = &fixture.pool;
    let mut frames: Vec<_> = pool.frames.ids().collect();
    let start = Instant::now();
    let is_over = || start.elapsed() > Duration::from_millis(300);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1_u64;
            while !is_over() {
                for frame in pool.frames.ids() {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    pool.frames.header(frame).page.store(number >> 32, Ordering::Relaxed);
                }
            }
        });
        while !is_over() {
            pool.sort_by_page(&mut frames);
        }
    });
    pool.frames.ids().for_each(|frame| pool.frames.header(frame).page.store(0, Ordering::Relaxed));
}
