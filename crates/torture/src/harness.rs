//! The control of suites: a time limit for work that may hang, panics turned into failures,
//! tallies.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use duramen_sync::clock;
use duramen_sync::thread::{self, Parker};
use duramen_sync::{Arc, Mutex, OnceLock};

/// Prefix of the names of threads whose panics are recorded rather than printed.
const WORKER: &str = "torture";
/// Prefix of the names of the engine's own threads.
const ENGINE: &str = "duramen";

/// Where a piece of work is, for the message when it hangs or panics.
#[derive(Clone, Debug, Default)]
pub struct Phase(Arc<Mutex<String>>);

impl Phase {
    /// Says where the work is now.
    pub fn enter(&self, phase: impl Into<String>) {
        *self.0.lock() = phase.into();
    }

    fn text(&self) -> String {
        self.0.lock().clone()
    }
}

/// Runs `work` on a thread of its own and waits no longer than `limit`. A panic, there or on a
/// thread of the engine, and running late become failures; the thread of late work is left behind.
///
/// # Errors
/// Those of `work`, and the two above.
pub fn guarded<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce(&Phase) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    install_hook();
    let phase = Phase::default();
    let result = Arc::new((Mutex::new(None), Parker::new()));
    let worker = (phase.clone(), Arc::clone(&result));
    thread::spawn(WORKER, move || {
        let (phase, result) = worker;
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&phase)));
        let outcome = outcome.unwrap_or_else(|payload| Err(format!("panic: {}", described(&*payload))));
        *result.0.lock() = Some(outcome);
        result.1.unpark();
    })
    .map_err(|error| format!("cannot start a thread: {error}"))?;

    let deadline = clock::Instant::now().after(limit);
    loop {
        // A simulated machine detects by itself that no thread can continue, and reports what each
        // one waits for.
        let woken = match cfg!(duramen_machine) {
            true => {
                result.1.park();
                true
            }
            false => result.1.park_timeout(deadline.since(clock::Instant::now())),
        };
        if let Some(outcome) = result.0.lock().take() {
            let engine_panic = engine_panics().lock().pop();
            let outcome = outcome.and_then(|value| engine_panic.map_or(Ok(value), Err));
            return outcome.map_err(|failure| match phase.text() {
                text if text.is_empty() => failure,
                text => format!("{text}: {failure}"),
            });
        }
        if !woken && clock::Instant::now() >= deadline {
            return Err(format!("{}: hangs (no end after {} s)", phase.text(), limit.as_secs()));
        }
    }
}

/// Discards unreported panics of the engine's threads, which a planted bug was expected to cause.
pub fn forget_engine_panics() {
    engine_panics().lock().clear();
}

fn engine_panics() -> &'static Mutex<Vec<String>> {
    static PANICS: OnceLock<Mutex<Vec<String>>> = OnceLock::new();
    PANICS.get_or_init(Mutex::default)
}

std::thread_local! {
    static LAST_PANIC_AT: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Panics of workers are failures that [`guarded`] reports once; only other panics are printed.
///
/// On a simulated machine a panic ends the run where it is: the data that unwinding would touch may
/// be broken, too.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            #[cfg(duramen_machine)]
            if duramen_machine::is_simulated() {
                duramen_machine::threads::abort(&format!("panic on thread `{}`: {info}", thread::current_name()));
            }
            let name = thread::current_name();
            if name.starts_with(ENGINE) {
                let text = format!("panic on the engine's thread `{name}`: {info}");
                engine_panics().lock().push(text);
            } else if name.starts_with(WORKER) {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                LAST_PANIC_AT.with(|at| *at.borrow_mut() = place);
            } else {
                default(info);
            }
        }));
    });
}

/// Returns the message of a panic caught on this thread, and where it was.
pub fn described(payload: &(dyn Any + Send)) -> String {
    let message = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("without a message");
    LAST_PANIC_AT.with(|at| match at.borrow().as_str() {
        "" => message.to_owned(),
        place => format!("{message} ({place})"),
    })
}

/// What a suite has done so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Situations tried: crash points, faults, flipped bits, interleavings, histories.
    pub points: u64,
    /// Databases reopened and compared, or executions checked.
    pub checks: u64,
    /// What went wrong, each with how to repeat it.
    pub failures: Vec<String>,
}

impl Tally {
    /// One situation, with the number of its checks or what went wrong.
    pub fn of(result: Result<u64, String>) -> Self {
        let (checks, failures) = result.map_or_else(|failure| (0, vec![failure]), |checks| (checks, Vec::new()));
        Self { points: 1, checks, failures }
    }

    /// Adds what another part of the suite has done.
    pub fn add(&mut self, other: Self) {
        self.points += other.points;
        self.checks += other.checks;
        self.failures.extend(other.failures);
    }

    /// Panics with the failures if there are any, or if fewer than `least` checks were made: a
    /// suite that tried nothing has shown nothing.
    ///
    /// # Panics
    /// See above.
    pub fn assert_clean(&self, least: u64) {
        assert!(self.failures.is_empty(), "{} failures of {self}:\n{}", self.failures.len(), self.failures.join("\n"));
        assert!(self.checks >= least, "only {self}, {least} checks wanted");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} points, {} checks", self.points, self.checks)
    }
}

/// How long a suite goes on.
#[derive(Clone, Debug)]
pub struct Budget {
    whole: Duration,
    deadline: Instant,
    most_failures: usize,
    least_checks: u64,
}

impl Budget {
    /// Until `time` has passed or something has failed.
    pub fn lasting(time: Duration) -> Self {
        Self { whole: time, deadline: Instant::now() + time, most_failures: 1, least_checks: 0 }
    }

    /// Returns the same time, but until so many failures.
    #[must_use]
    pub fn with_failures(self, most_failures: usize) -> Self {
        Self { most_failures, ..self }
    }

    /// Returns the same, but on a busy machine also until so many checks.
    #[must_use]
    pub fn with_checks(self, least_checks: u64) -> Self {
        Self { least_checks, ..self }
    }

    /// Returns the same number of failures, but from now on until `time` has passed.
    #[must_use]
    pub fn another(&self, time: Duration) -> Self {
        Self { whole: time, deadline: Instant::now() + time, ..*self }
    }

    /// Returns the time that it lasts from its beginning on.
    pub fn whole(&self) -> Duration {
        self.whole
    }

    /// Returns whether the suite should end.
    pub fn is_spent(&self, tally: &Tally) -> bool {
        let is_over = Instant::now() >= self.deadline && tally.checks >= self.least_checks;
        is_over || tally.failures.len() >= self.most_failures
    }
}

/// Which of a number of possibilities a suite tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// Each.
    All,
    /// About this many, drawn at random.
    Sample(usize),
}

impl Coverage {
    /// Returns the chosen ones of `0..count`: all in order, or a sample in random order.
    pub fn choose(self, count: usize, rng: &mut duramen_test_support::Rng) -> Vec<usize> {
        match self {
            Self::Sample(wanted) if wanted < count => {
                let mut chosen = std::collections::BTreeSet::new();
                while chosen.len() < wanted {
                    chosen.insert(rng.within(0..count));
                }
                let mut chosen: Vec<_> = chosen.into_iter().collect();
                rng.shuffle(&mut chosen);
                chosen
            }
            Self::All | Self::Sample(_) => (0..count).collect(),
        }
    }
}
