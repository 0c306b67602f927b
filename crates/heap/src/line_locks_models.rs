//! Models of the line locks: every interleaving of two small transactions.

use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::thread;

use super::{LineLocks, Seen};

/// Two lines of one word each, and their locks.
struct Memory {
    locks: LineLocks,
    lines: [AtomicU64; 2],
}

fn memory() -> Arc<Memory> {
    let locks = LineLocks { words: (0..2).map(|_| AtomicU64::new(0)).collect(), clock: AtomicU64::new(0) };
    Arc::new(Memory { locks, lines: [AtomicU64::new(0), AtomicU64::new(0)] })
}

impl Memory {
    /// Reads a line at time `time`; `None` if another transaction is in the way.
    fn read(&self, line: usize, time: u64, owner: u32) -> Option<(u64, u64)> {
        let Seen::Version(version) = self.locks.see(line, owner) else { return None };
        if version > time {
            return None;
        }
        let value = self.lines[line].load(Ordering::Relaxed);
        self.locks.is_unchanged(line, version).then_some((value, version))
    }

    fn write(&self, line: usize, value: u64, owner: u32) -> Option<u64> {
        let Seen::Version(version) = self.locks.see(line, owner) else { return None };
        if !self.locks.lock(line, version, owner) {
            return None;
        }
        self.lines[line].store(value, Ordering::Relaxed);
        Some(version)
    }
}

/// A writer that changes both lines, and rolls back or commits, and a reader of both.
fn both_or_none(commits: bool) {
    loom::model(move || {
        let memory = memory();
        let writer = {
            let memory = memory.clone();
            thread::spawn("writer", move || {
                for line in 0..2 {
                    memory.write(line, 1, 1).expect("there is no other writer");
                }
                if !commits {
                    memory.lines.iter().for_each(|line| line.store(0, Ordering::Relaxed));
                }
                let time = memory.locks.tick();
                (0..2).for_each(|line| memory.locks.release(line, time));
            })
            .unwrap()
        };
        let time = memory.locks.now();
        let seen = (memory.read(0, time, 2), memory.read(1, time, 2));
        if let (Some((first, _)), Some((second, _))) = seen {
            assert_eq!(first, second, "a reader sees all of a transaction or nothing");
            assert!(commits || first == 0, "nobody sees what was rolled back");
        }
        writer.join().unwrap();
    });
}

#[test]
fn models_a_reader_sees_a_commit_whole() {
    both_or_none(true);
}

#[test]
fn models_a_reader_sees_nothing_of_a_rollback() {
    both_or_none(false);
}

/// Two transactions, each of which reads the line that the other one writes: one must notice.
#[test]
fn models_of_two_that_read_what_the_other_writes_one_gives_way() {
    loom::model(|| {
        let memory = memory();
        let transaction = |memory: Arc<Memory>, reads: usize, owner: u32| {
            move || {
                let time = memory.locks.now();
                let (value, read) = memory.read(reads, time, owner)?;
                let writes = 1 - reads;
                let held = memory.write(writes, value + 1, owner)?;
                let now = memory.locks.tick();
                let is_valid = now == time + 1 || memory.locks.is_unchanged(reads, read);
                if !is_valid {
                    memory.lines[writes].store(0, Ordering::Relaxed);
                }
                let _ = held;
                memory.locks.release(writes, now);
                is_valid.then_some(value)
            }
        };
        let first = thread::spawn("first", transaction(memory.clone(), 0, 1)).unwrap();
        let second = transaction(memory, 1, 2)();
        let first = first.join().unwrap();
        if let (Some(first), Some(second)) = (first, second) {
            assert!((first, second) == (1, 0) || (first, second) == (0, 1), "both have read the old state");
        }
    });
}
