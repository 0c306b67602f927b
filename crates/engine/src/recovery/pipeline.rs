//! Several logs, read by several threads and repeated by several threads: a pipeline of two stages
//! (Scalable logging through NVM, section 3.2).
//!
//! The first stage reads logs and sorts what they say into buckets, by page; the second takes
//! bucket after bucket. Between them are *windows*: all records with GSNs in a range, of all logs.
//! A window is repeated while the next one is read, and windows are repeated one after the other.
//! So what a page gets is in the order of GSNs, whatever log it is from: within a window the second
//! stage sorts a bucket, and a later window has higher GSNs only.
//!
//! A window is read in *steps*. A step is a range of GSNs as well, and each log is read up to its
//! end by some thread; when all have been, it is seen how much memory the window uses by now. A
//! record's GSN is no less than its log has bytes behind the one before ([`duramen_wal::Log`]), so
//! what a step may add is bounded by its range and the number of logs. Ranges without records are
//! skipped. What is in which window depends on the logs alone and not on how fast threads are.
//!
//! Any thread does either: whoever has nothing to do reads on, or else takes a bucket. One thread
//! can do it all.
//!
//! The last window may be kept rather than repeated: see `on_demand.rs`. It takes as much as there
//! is memory for; those before it are as small as usual, since large ones are repeated more slowly:
//! they leave the processor's caches.

use duramen_sync::{Arc, Condvar, Mutex, MutexGuard, thread};
use duramen_types::Gsn;

use crate::error::Result;

/// What is done in the two stages.
pub(super) trait Stages: Send + Sync + 'static {
    /// A log that is being read.
    type Source: Send;
    /// What one log has in one window.
    type Run: Send + Sync;

    /// An empty run for the log with this number.
    fn run(&self, log: usize) -> Self::Run;

    /// Adds the log's next records to `run`, as long as their GSNs are below `limit`; returns the
    /// GSN of the next one, or `None` at the end of the log.
    fn read(&self, source: &mut Self::Source, limit: Gsn, run: &mut Self::Run) -> Result<Option<Gsn>>;

    /// A step is over: all logs have been read up to the same GSN.
    fn end_step<'a>(&self, sources: impl Iterator<Item = &'a mut Self::Source>)
    where
        Self::Source: 'a;

    /// Bytes that are left to be read of a log.
    fn left(source: &Self::Source) -> u64;

    /// Memory that a run uses, in bytes; zero if it has nothing to repeat.
    fn size(run: &Self::Run) -> usize;

    /// Repeats a bucket of a window. Different threads do so for different buckets at the same
    /// time, and one after the other for the same bucket.
    fn repeat(&self, window: &[Self::Run], bucket: usize) -> Result<()>;

    /// Empties a run of a window that has been repeated.
    fn clear(run: &mut Self::Run);
}

/// How much is done at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portions {
    /// A window is closed when it uses so many bytes of memory. There are two.
    pub(super) window_bytes: usize,
    /// GSNs in a step.
    pub(super) step: u64,
    /// Buckets in a window.
    pub(super) buckets: usize,
    /// The last window is not repeated but left ([`Over::kept`]); it may use so many bytes of
    /// memory.
    pub(super) keep: Option<usize>,
}

/// A pipeline that has come to its end.
pub(super) struct Over<S: Stages> {
    pub(super) stages: S,
    /// The logs, read to their ends.
    pub(super) sources: Vec<S::Source>,
    /// The last window, if it had something to repeat and was kept.
    pub(super) kept: Option<Vec<S::Run>>,
    /// Windows that have been repeated.
    pub(super) windows: u64,
}

/// The pipeline, shared by the threads that work on it.
pub(super) struct Pipeline<S: Stages> {
    stages: S,
    portions: Portions,
    state: Mutex<State<S>>,
    changed: Condvar,
}

struct State<S: Stages> {
    /// The logs; `None` while a thread reads one.
    logs: Vec<Option<Log<S>>>,
    /// Whether a window is being read; if so, the number of the first log that nobody has read in
    /// this step, up to which GSN the step goes, and how many logs are being read.
    is_reading: bool,
    next_log: usize,
    limit: Gsn,
    readers: usize,
    /// Bytes of log that were left when the window that is being read began.
    window_from: u64,
    /// A window that has been read while the one before was not yet repeated.
    waiting: Option<Vec<S::Run>>,
    /// The window that is being repeated, the first bucket that nobody has taken up, and how many
    /// are being repeated.
    window: Option<Arc<Vec<S::Run>>>,
    next_bucket: usize,
    repeaters: usize,
    /// Runs for the next window: their memory is used again.
    empty: Option<Vec<S::Run>>,
    /// The last window, if it is not to be repeated.
    kept: Option<Vec<S::Run>>,
    windows: u64,
    /// A thread has failed: all stop.
    failed: bool,
}

struct Log<S: Stages> {
    source: S::Source,
    run: S::Run,
    /// GSN of the next record.
    next: Option<Gsn>,
}

enum Task<S: Stages> {
    Read { number: usize, log: Log<S>, limit: Gsn },
    Repeat { window: Arc<Vec<S::Run>>, bucket: usize },
}

impl<S: Stages> Pipeline<S> {
    pub(super) fn new(stages: S, sources: Vec<S::Source>, portions: Portions) -> Self {
        // The first step reads nothing, and finds out where each log begins.
        let log = |(number, source)| Some(Log { source, run: stages.run(number), next: None });
        let logs: Vec<_> = sources.into_iter().enumerate().map(log).collect();
        let state = State {
            is_reading: !logs.is_empty(),
            next_log: 0,
            limit: Gsn::ZERO,
            readers: 0,
            window_from: logs.iter().flatten().map(|log| S::left(&log.source)).sum(),
            waiting: None,
            window: None,
            next_bucket: 0,
            repeaters: 0,
            empty: None,
            kept: None,
            windows: 0,
            failed: false,
            logs,
        };
        Self { stages, portions, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// What is left when all threads have worked to the end and have let go of it.
    pub(super) fn into_over(pipeline: Arc<Self>) -> Over<S> {
        let Self { stages, state, .. } = Arc::into_inner(pipeline).expect("the threads are gone");
        let mut state = state.lock();
        let sources = state.logs.drain(..).map(|log| log.expect("nobody reads any more").source).collect();
        Over { stages, sources, kept: state.kept.take(), windows: state.windows }
    }

    /// Works until everything has been repeated, together with other threads that call this.
    pub(super) fn work(&self) -> Result<()> {
        let _alarm = Alarm(self);
        let mut state = self.state.lock();
        loop {
            if state.failed || state.is_over() {
                return Ok(());
            }
            let done = match self.next_task(&mut state) {
                None => {
                    self.changed.wait(&mut state);
                    continue;
                }
                Some(Task::Read { number, mut log, limit }) => {
                    drop(state);
                    let next = self.stages.read(&mut log.source, limit, &mut log.run);
                    state = self.state.lock();
                    next.map(|next| {
                        log.next = next;
                        self.has_read(&mut state, number, log);
                    })
                }
                Some(Task::Repeat { window, bucket }) => {
                    drop(state);
                    let repeated = self.stages.repeat(&window, bucket);
                    // Who is the last to take the lock finds nobody else with the window.
                    drop(window);
                    state = self.state.lock();
                    repeated.map(|()| self.has_repeated(&mut state))
                }
            };
            if done.is_err() {
                state.failed = true;
                self.changed.notify_all();
                return done;
            }
        }
    }

    fn next_task(&self, state: &mut State<S>) -> Option<Task<S>> {
        if state.is_reading && state.next_log < state.logs.len() {
            let (number, limit) = (state.next_log, state.limit);
            state.next_log += 1;
            state.readers += 1;
            let log = state.logs[number].take().expect("each log is read once in a step");
            return Some(Task::Read { number, log, limit });
        }
        let window = state.window.as_ref().filter(|_| state.next_bucket < self.portions.buckets)?;
        let task = Task::Repeat { window: Arc::clone(window), bucket: state.next_bucket };
        state.next_bucket += 1;
        state.repeaters += 1;
        Some(task)
    }

    /// Takes a log back that has been read to the end of the step.
    fn has_read(&self, state: &mut MutexGuard<'_, State<S>>, number: usize, log: Log<S>) {
        state.logs[number] = Some(log);
        state.readers -= 1;
        if state.readers > 0 || state.next_log < state.logs.len() {
            return;
        }
        self.stages.end_step(state.logs.iter_mut().flatten().map(|log| &mut log.source));
        let next = state.logs().filter_map(|log| log.next).min();
        let used: usize = state.logs().map(|log| S::size(&log.run)).sum();
        let left: u64 = state.logs().map(|log| S::left(&log.source)).sum();
        let most = match self.portions.keep {
            Some(most) if all_fits(used, state.window_from.saturating_sub(left), left, most) => most,
            _ => self.portions.window_bytes,
        };
        if used >= most || (next.is_none() && used > 0) {
            state.window_from = left;
            let mut empty = state.empty.take().into_iter().flatten();
            let mut fresh = |number| empty.next().unwrap_or_else(|| self.stages.run(number));
            let logs = state.logs.iter_mut().flatten().enumerate();
            let runs = logs.map(|(number, log)| std::mem::replace(&mut log.run, fresh(number))).collect();
            state.is_reading = false;
            if next.is_none() && self.portions.keep.is_some() {
                state.kept = Some(runs);
                self.changed.notify_all();
                return;
            }
            state.windows += 1;
            state.waiting = Some(runs);
            self.repeat_next(state);
        } else {
            self.read_on(state);
        }
    }

    /// Begins the next step, if the logs go on.
    fn read_on(&self, state: &mut MutexGuard<'_, State<S>>) {
        let next = state.logs().filter_map(|log| log.next).min();
        state.is_reading = next.is_some();
        if let Some(next) = next {
            state.limit = Gsn::new(next.get().saturating_add(self.portions.step));
            state.next_log = 0;
        }
        self.changed.notify_all();
    }

    /// Has the window that waits repeated, if none is, and the next one read.
    fn repeat_next(&self, state: &mut MutexGuard<'_, State<S>>) {
        if state.window.is_none()
            && let Some(window) = state.waiting.take()
        {
            state.window = Some(Arc::new(window));
            state.next_bucket = 0;
            self.read_on(state);
        }
    }

    fn has_repeated(&self, state: &mut MutexGuard<'_, State<S>>) {
        state.repeaters -= 1;
        if state.repeaters > 0 || state.next_bucket < self.portions.buckets {
            return;
        }
        let window = state.window.take().expect("a bucket of it has been repeated");
        let mut runs = Arc::into_inner(window).expect("nobody has the window any more");
        runs.iter_mut().for_each(S::clear);
        state.empty = Some(runs);
        self.repeat_next(state);
        // It may have been the last.
        self.changed.notify_all();
    }
}

/// Whether what is left of the logs will fit the window, too, if it takes as much memory as what
/// has been read for it does.
fn all_fits(used: usize, read: u64, left: u64, most: usize) -> bool {
    used as u128 * u128::from(read + left) <= most as u128 * u128::from(read)
}

impl<S: Stages> State<S> {
    fn logs(&self) -> impl Iterator<Item = &Log<S>> {
        self.logs.iter().flatten()
    }

    fn is_over(&self) -> bool {
        !self.is_reading && self.waiting.is_none() && self.window.is_none()
    }
}

/// Has the others stop when a thread panics.
struct Alarm<'a, S: Stages>(&'a Pipeline<S>);

impl<S: Stages> Drop for Alarm<'_, S> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state.lock().failed = true;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
