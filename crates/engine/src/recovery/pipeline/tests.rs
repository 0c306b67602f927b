//! The pipeline over logs in memory.

use duramen_sync::parallel;

use super::*;
use crate::error::Error;

/// A record: its GSN and its page.
type Entry = (u64, u64);

/// A log, and the highest GSN that was read from it.
struct Source {
    entries: std::vec::IntoIter<Entry>,
    met: u64,
}

impl From<Vec<Entry>> for Source {
    fn from(log: Vec<Entry>) -> Self {
        Self { entries: log.into_iter(), met: 0 }
    }
}

/// Records the repeated entries, bucket by bucket.
struct Recorder {
    buckets: usize,
    repeated: Vec<Mutex<Vec<Entry>>>,
    /// Reading the record with this GSN fails, or repeating it.
    bad_read: u64,
    bad_repeat: u64,
}

impl Recorder {
    fn new(buckets: usize) -> Self {
        let repeated = (0..buckets).map(|_| Mutex::new(Vec::new())).collect();
        Self { buckets, repeated, bad_read: 0, bad_repeat: 0 }
    }
}

fn error() -> Error {
    Error::Io { reason: "bad".into() }
}

impl Stages for Recorder {
    type Source = Source;
    type Run = Vec<Entry>;

    fn run(&self, _: usize) -> Vec<Entry> {
        Vec::new()
    }

    fn read(&self, source: &mut Self::Source, limit: Gsn, run: &mut Vec<Entry>) -> Result<Option<Gsn>> {
        while let Some(&next) = source.entries.as_slice().first() {
            if next.0 >= limit.get() {
                return Ok(Some(Gsn::new(next.0)));
            }
            if next.0 == self.bad_read {
                return Err(error());
            }
            run.push(next);
            source.entries.next();
            source.met = next.0;
        }
        Ok(None)
    }

    fn end_step<'a>(&self, sources: impl Iterator<Item = &'a mut Self::Source>) {
        let (met, to_come) = sources.fold((0, u64::MAX), |(met, to_come), source| {
            let next = source.entries.as_slice().first().map_or(u64::MAX, |entry| entry.0);
            (source.met.max(met), next.min(to_come))
        });
        assert!(met < to_come, "{met} has been met before {to_come}");
    }

    fn left(source: &Source) -> u64 {
        source.entries.len() as u64
    }

    fn size(run: &Vec<Entry>) -> usize {
        run.len()
    }

    fn repeat(&self, window: &[Vec<Entry>], bucket: usize) -> Result<()> {
        let mut all: Vec<Entry> = window.iter().flatten().copied().collect();
        all.retain(|entry| entry.1 as usize % self.buckets == bucket);
        all.sort_unstable();
        if all.iter().any(|entry| entry.0 == self.bad_repeat) {
            return Err(error());
        }
        self.repeated[bucket].lock().extend(all);
        Ok(())
    }

    fn clear(run: &mut Vec<Entry>) {
        run.clear();
    }
}

/// Runs the pipeline; returns the repeated entries by bucket, and the number of windows.
fn run(recorder: Recorder, logs: &[Vec<Entry>], portions: Portions, threads: usize) -> Result<(Vec<Vec<Entry>>, u64)> {
    let sources = logs.iter().map(|log| log.clone().into()).collect();
    let pipeline = Arc::new(Pipeline::new(recorder, sources, portions));
    let shared = Arc::clone(&pipeline);
    parallel::run(threads, "pipeline", move || shared.work()).into_iter().collect::<Result<()>>()?;
    let over = Pipeline::into_over(pipeline);
    let repeated = over.stages.repeated.iter().map(|bucket| bucket.lock().clone()).collect();
    Ok((repeated, over.windows))
}

/// Returns the entries that every run must have repeated.
fn expected(logs: &[Vec<Entry>], buckets: usize) -> Vec<Vec<Entry>> {
    let mut all: Vec<Entry> = logs.iter().flatten().copied().collect();
    all.sort_unstable();
    let bucket = |bucket| all.iter().copied().filter(|entry| entry.1 as usize % buckets == bucket).collect();
    (0..buckets).map(bucket).collect()
}

#[cfg(not(duramen_loom))]
mod threads {
    use super::*;

    /// Returns three logs: one is far ahead at times, one has few records, one is empty.
    fn logs() -> Vec<Vec<Entry>> {
        let dense = (0..2000).map(|number| (10 + 3 * number, number * 7 % 50)).collect();
        let sparse = (0..40).map(|number| (11 + 300 * number, number * 3 % 50)).collect();
        vec![dense, sparse, Vec::new()]
    }

    #[test]
    fn pages_are_repeated_in_the_order_of_time() {
        for threads in [1, 2, 4] {
            for (window_bytes, step, buckets) in [(1, 1, 1), (7, 30, 4), (100, 200, 16), (100_000, 1000, 3)] {
                let portions = Portions { window_bytes, step, buckets, keep: None };
                let (repeated, windows) = run(Recorder::new(buckets), &logs(), portions, threads).unwrap();
                assert_eq!(repeated, expected(&logs(), buckets), "{portions:?}, {threads} threads");
                // Gaps are skipped, and windows do not become larger than a step makes them.
                assert!((1..=2040).contains(&windows), "{portions:?}: {windows}");
                assert_eq!(windows == 1, window_bytes > 2040, "{portions:?}: {windows}");
            }
        }
    }

    #[test]
    fn windows_are_the_same_whatever_the_threads() {
        let portions = Portions { window_bytes: 50, step: 40, buckets: 4, keep: None };
        let alone = run(Recorder::new(4), &logs(), portions, 1).unwrap().1;
        for threads in 2..5 {
            assert_eq!(run(Recorder::new(4), &logs(), portions, threads).unwrap().1, alone);
        }
    }

    #[test]
    fn the_last_window_is_kept() {
        for threads in [1, 3] {
            for (window_bytes, step) in [(1, 1), (100, 200), (100_000, 1000)] {
                let portions = Portions { window_bytes, step, buckets: 1, keep: Some(window_bytes) };
                let sources = logs().into_iter().map(Source::from).collect();
                let pipeline = Arc::new(Pipeline::new(Recorder::new(1), sources, portions));
                let shared = Arc::clone(&pipeline);
                parallel::run(threads, "pipeline", move || shared.work()).into_iter().collect::<Result<()>>().unwrap();
                let over = Pipeline::into_over(pipeline);
                let mut all = over.stages.repeated[0].lock().clone();
                let mut kept = over.kept.expect("there is something to repeat").concat();
                kept.sort_unstable();
                assert_eq!(all.is_empty(), window_bytes > 2040);
                assert_eq!(over.windows == 0, all.is_empty());
                all.extend(kept);
                assert_eq!(all, expected(&logs(), 1)[0], "{portions:?}, {threads} threads");
            }
        }
    }

    #[test]
    fn nothing_to_do_is_done() {
        let portions = Portions { window_bytes: 50, step: 40, buckets: 4, keep: None };
        for logs in [vec![], vec![Vec::new()], vec![Vec::new(); 3]] {
            assert_eq!(run(Recorder::new(4), &logs, portions, 2).unwrap().1, 0);
        }
    }

    #[test]
    fn a_failure_stops_all() {
        let portions = Portions { window_bytes: 50, step: 40, buckets: 4, keep: None };
        for threads in [1, 3] {
            for (bad_read, bad_repeat) in [(3010, 0), (0, 3010)] {
                let recorder = Recorder { bad_read, bad_repeat, ..Recorder::new(4) };
                assert!(run(recorder, &logs(), portions, threads).is_err());
            }
        }
    }
}

#[cfg(duramen_loom)]
mod models {
    use super::*;

    fn check(logs: &'static [&'static [Entry]], portions: Portions, bad_repeat: u64) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        model.check(move || {
            let logs: Vec<Vec<Entry>> = logs.iter().map(|log| log.to_vec()).collect();
            let recorder = Recorder { bad_repeat, ..Recorder::new(portions.buckets) };
            let outcome = run(recorder, &logs, portions, 2);
            match bad_repeat {
                0 => assert_eq!(outcome.unwrap().0, expected(&logs, portions.buckets)),
                _ => assert!(outcome.is_err()),
            }
        });
    }

    /// Two logs whose records alternate, in windows of one record: each record is repeated before
    /// the next.
    #[test]
    fn windows_follow_each_other() {
        let portions = Portions { window_bytes: 1, step: 1, buckets: 1, keep: None };
        check(&[&[(1, 0), (3, 0)], &[(2, 0)]], portions, 0);
    }

    /// Two windows, of which the second is kept while the first is repeated.
    #[test]
    fn the_last_window_is_kept() {
        let portions = Portions { window_bytes: 1, step: 1, buckets: 1, keep: Some(1) };
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(Some(2));
        model.check(move || {
            let sources = vec![Source::from(vec![(1, 0), (3, 0)])];
            let pipeline = Arc::new(Pipeline::new(Recorder::new(1), sources, portions));
            let shared = Arc::clone(&pipeline);
            parallel::run(2, "pipeline", move || shared.work()).into_iter().collect::<Result<()>>().unwrap();
            let over = Pipeline::into_over(pipeline);
            assert_eq!(*over.stages.repeated[0].lock(), [(1, 0)]);
            assert_eq!(over.kept.unwrap().concat(), [(3, 0)]);
        });
    }

    /// One window with two buckets.
    #[test]
    fn buckets_are_shared() {
        let portions = Portions { window_bytes: 10, step: 10, buckets: 2, keep: None };
        check(&[&[(1, 0), (3, 1)], &[(2, 1)]], portions, 0);
    }

    /// No thread waits for a thread that has failed.
    #[test]
    fn a_failure_reaches_the_other_thread() {
        let portions = Portions { window_bytes: 1, step: 1, buckets: 1, keep: None };
        check(&[&[(1, 0), (3, 0)]], portions, 1);
    }
}
