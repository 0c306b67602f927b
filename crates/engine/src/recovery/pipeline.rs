//! Several threads read several logs and repeat their changes, in a pipeline of two stages
//! (Scalable logging through NVM, section 3.2).
//!
//! The first stage reads logs and sorts their operations into buckets, by page. The second stage
//! repeats bucket after bucket. Between the stages are *windows*: all records of all logs with GSNs
//! in a range. One window is repeated while the next one is read, and windows are repeated one
//! after the other. So a page gets its changes in the order of GSNs, whatever log they are from:
//! within a window the second stage sorts a bucket, and a later window has only higher GSNs.
//!
//! A window is read in *steps*. A step is a range of GSNs too, and some thread reads each log up to
//! the end of that range. When all logs have been read that far, the pipeline checks how much
//! memory the window uses. A record's GSN exceeds that of the record before it by at least the
//! bytes between them in the log ([`duramen_wal::Log`]). So the range of a step and the number of
//! logs bound the memory that the step may add. Ranges without records are skipped. The contents of
//! each window depend on the logs alone, not on the speed of the threads.
//!
//! Any thread can do the work of either stage: an idle thread reads on, or else takes a bucket. One
//! thread can do everything.
//!
//! The last window may be kept rather than repeated: see `on_demand.rs`. It may use all the memory
//! that it is given. The windows before it keep their usual size, because larger ones do not fit
//! the processor's caches and are repeated more slowly.

use duramen_sync::{Arc, Condvar, Mutex, MutexGuard, thread};
use duramen_types::Gsn;

use crate::error::Result;

/// The work of the two stages.
pub(super) trait Stages: Send + Sync + 'static {
    /// A log that is being read.
    type Source: Send;
    /// The operations that one log has in one window.
    type Run: Send + Sync;

    /// Returns an empty run for the log with this number.
    fn run(&self, log: usize) -> Self::Run;

    /// Adds the log's next records to `run`, as long as their GSNs are below `limit`. Returns the
    /// GSN of the next record, or `None` at the end of the log.
    fn read(&self, source: &mut Self::Source, limit: Gsn, run: &mut Self::Run) -> Result<Option<Gsn>>;

    /// Ends a step: all logs have been read up to the same GSN.
    fn end_step<'a>(&self, sources: impl Iterator<Item = &'a mut Self::Source>)
    where
        Self::Source: 'a;

    /// Returns the bytes of a log that are still to be read.
    fn left(source: &Self::Source) -> u64;

    /// Returns the memory that a run uses, in bytes; zero if the run has nothing to repeat.
    fn size(run: &Self::Run) -> usize;

    /// Repeats a bucket of a window. Different threads repeat different buckets at the same time;
    /// calls for the same bucket come one after the other.
    fn repeat(&self, window: &[Self::Run], bucket: usize) -> Result<()>;

    /// Empties a run of a window that has been repeated.
    fn clear(run: &mut Self::Run);
}

/// The sizes in which work is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portions {
    /// A window is closed when it uses this many bytes of memory. There are two windows.
    pub(super) window_bytes: usize,
    /// Number of GSNs in a step.
    pub(super) step: u64,
    /// Number of buckets in a window.
    pub(super) buckets: usize,
    /// If set, the last window is kept rather than repeated ([`Over::kept`]), and may use this many
    /// bytes of memory.
    pub(super) keep: Option<usize>,
}

/// The result of a pipeline that has ended.
pub(super) struct Over<S: Stages> {
    pub(super) stages: S,
    /// The logs, read to their ends.
    pub(super) sources: Vec<S::Source>,
    /// The last window, if it was kept and has something to repeat.
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
    /// The logs; `None` while a thread reads the log.
    logs: Vec<Option<Log<S>>>,
    /// Whether a window is being read. If so, the next fields hold the number of the first log that
    /// no thread has read in this step, the GSN up to which the step goes, and the number of logs
    /// being read.
    is_reading: bool,
    next_log: usize,
    limit: Gsn,
    readers: usize,
    /// Bytes of log that were left when the present window was begun.
    window_from: u64,
    /// A window that was read completely before the previous one was repeated.
    waiting: Option<Vec<S::Run>>,
    /// The window that is being repeated, the first bucket that no thread has taken, and the number
    /// of buckets being repeated.
    window: Option<Arc<Vec<S::Run>>>,
    next_bucket: usize,
    repeaters: usize,
    /// Runs for the next window, whose memory is reused.
    empty: Option<Vec<S::Run>>,
    /// The last window, if it is kept rather than repeated.
    kept: Option<Vec<S::Run>>,
    windows: u64,
    /// Whether a thread has failed; then all threads stop.
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
        // The first step reads nothing; it finds the GSN at which each log begins.
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

    /// Returns the results when all threads have ended and dropped their references.
    pub(super) fn into_over(pipeline: Arc<Self>) -> Over<S> {
        let Self { stages, state, .. } = Arc::into_inner(pipeline).expect("the threads are gone");
        let mut state = state.lock();
        let sources = state.logs.drain(..).map(|log| log.expect("nobody reads any more").source).collect();
        Over { stages, sources, kept: state.kept.take(), windows: state.windows }
    }

    /// Works until everything has been repeated, together with other threads that call this.
    pub(super) fn work(&self) -> Result<()> {
        let _stop_on_panic = StopOnPanic(self);
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
                    // The thread that takes the lock last finds no other thread with the window.
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

    /// Takes back a log that has been read to the end of the step.
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

    /// Begins the next step, if the logs have more records.
    fn read_on(&self, state: &mut MutexGuard<'_, State<S>>) {
        let next = state.logs().filter_map(|log| log.next).min();
        state.is_reading = next.is_some();
        if let Some(next) = next {
            state.limit = Gsn::new(next.get().saturating_add(self.portions.step));
            state.next_log = 0;
        }
        self.changed.notify_all();
    }

    /// If no window is being repeated, starts to repeat the waiting one and to read the next.
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
        // The window may have been the last.
        self.changed.notify_all();
    }
}

/// Returns whether the rest of the logs will fit the window too, if it needs as much memory per
/// byte of log as the part read so far.
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

/// Makes the other threads stop when a thread panics.
struct StopOnPanic<'a, S: Stages>(&'a Pipeline<S>);

impl<S: Stages> Drop for StopOnPanic<'_, S> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state.lock().failed = true;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
