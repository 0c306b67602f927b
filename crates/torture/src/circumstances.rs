//! The circumstances of a run: the speed of the disk, whether each opening of the database has the
//! same options, and where the end of its log is.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use duramen::{CommitMode, InsertDesign, Isolation, Options};
use duramen_io::{Pace, SimDisk};
use duramen_types::PAGE_SIZE;

use crate::crash::CrashWorkload;
use crate::model::Model;
use crate::step::Step;
use crate::world::LogEnd;
use duramen_test_support::Rng;

/// The circumstances of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Circumstances {
    /// How fast the disk is; without it, operations take no time.
    pub pace: Option<Pace>,
    /// Whether each opening draws options of its own.
    pub changes: bool,
    /// Where the end of the log is kept, in runs that end with power cuts.
    pub log: LogEnd,
}

impl Circumstances {
    /// Returns random circumstances; half of the time none.
    pub fn of(rng: &mut Rng) -> Self {
        let micros = |micros: u64| Duration::from_micros(micros);
        let pace = rng.percent(30).then(|| Pace {
            usual: micros(*rng.pick(&[1, 20, 200])),
            hang_one_in: *rng.pick(&[0, 30, 300]),
            hang: micros(*rng.pick(&[1000, 20_000])),
        });
        let changes = rng.percent(35);
        let log = if rng.percent(30) { LogEnd::in_memory(rng) } else { LogEnd::Files };
        Self { pace, changes, log }
    }

    /// Returns an empty disk.
    pub fn disk(&self, seed: u64) -> SimDisk {
        self.pace.map_or_else(|| SimDisk::new(seed), |pace| SimDisk::with_pace(seed, pace))
    }

    /// Returns what a database is opened with next, where `options` are the usual ones.
    pub fn options(&self, options: &Options, rng: &mut Rng) -> Options {
        // The options have a generator of their own, so the other random choices do not depend on
        // them.
        let mut aside = rng.clone();
        let recovery_threads = *aside.pick(&[None, Some(1), Some(2), Some(3), Some(5)]);
        let instant_recovery = aside.percent(50);
        let options = if self.changes { changed(options, rng) } else { options.clone() };
        Options { recovery_threads, instant_recovery, ..options }
    }

    /// Circumstances that are a little simpler.
    pub fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        if let Some(pace) = self.pace {
            simpler.push(Self { pace: None, ..*self });
            if pace.hang_one_in > 0 {
                simpler.push(Self { pace: Some(Pace { hang_one_in: 0, ..pace }), ..*self });
            }
        }
        if self.changes {
            simpler.push(Self { changes: false, ..*self });
        }
        if self.log != LogEnd::Files {
            simpler.push(Self { log: LogEnd::Files, ..*self });
        }
        simpler
    }
}

/// Options of the same order of size, each of which may differ from one opening to the next.
fn changed(options: &Options, rng: &mut Rng) -> Options {
    let (slots, arrays) = (rng.within(1..6), *rng.pick(&[1, 1, 2, 4]));
    let mut designs = InsertDesign::ALL.to_vec();
    designs.retain(|design| options.logs == 1 || *design != InsertDesign::Reserved);
    let log_segment_bytes = (options.log_segment_bytes << rng.within(0..3)) / 2;
    Options {
        pool_bytes: (options.pool_bytes * *rng.pick(&[1, 2, 3]) / 2).max(Options::MIN_POOL_PAGES * PAGE_SIZE),
        commit: *rng.pick(&[CommitMode::Sync, CommitMode::Elr, CommitMode::Pipelined]),
        isolation: *rng.pick(&[Isolation::Serializable, Isolation::ReadCommitted]),
        log_insert: *rng.pick(&designs),
        log_buffer_bytes: *rng.pick(&[64 << 10, 128 << 10, 256 << 10, 1 << 20]),
        log_array_slots: slots,
        log_arrays: arrays,
        log_slot_pool: 2 * slots * arrays + *rng.pick(&[0, 1, 20]),
        log_segment_bytes: log_segment_bytes.max(64 << 10),
        checkpoint_bytes: options.checkpoint_bytes.map(|bytes| (bytes << rng.within(0..3)) / 2),
        redo_memory_bytes: Some(*rng.pick(&[4 << 10, 64 << 10, 64 << 20])),
        group_commit_transactions: rng.within(1..4),
        group_commit_bytes: *rng.pick(&[1 << 10, 16 << 10, 1 << 20]),
        group_commit_time: Duration::from_micros(*rng.pick(&[0, 50, 1000])),
        lock_inheritance: rng.percent(70),
        lock_escalation: *rng.pick(&[1, 4, 1024]),
        // Where there was no limit or a long one, a wait may now end before a deadlock is found.
        lock_wait_limit: match options.lock_wait_limit {
            limit if limit.is_none_or(|limit| limit >= Duration::from_secs(10)) => {
                rng.pick(&[None, None, Some(20), Some(1000)]).map(Duration::from_micros)
            }
            limit => limit,
        },
        cleaner_pages_per_second: *rng.pick(&[None, None, Some(1), Some(5000)]),
        ..options.clone()
    }
}

/// A workload's scripts, under circumstances of their own.
pub struct Surrounded {
    /// The workload.
    pub workload: &'static dyn CrashWorkload,
    /// What surrounds it.
    pub circumstances: Circumstances,
}

impl CrashWorkload for Surrounded {
    fn name(&self) -> &'static str {
        self.workload.name()
    }

    fn options(&self, seed: u64) -> Options {
        self.circumstances.options(&self.workload.options(seed), &mut Rng::new(seed ^ 0xf1))
    }

    fn later_options(&self, seed: u64) -> Options {
        self.circumstances.options(&self.workload.options(seed), &mut Rng::new(seed ^ 0xf2))
    }

    fn disk(&self, seed: u64) -> SimDisk {
        self.circumstances.disk(seed)
    }

    fn script(&self, seed: u64, start: &Model) -> Vec<Step> {
        self.workload.script(seed, start)
    }
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = if self.changes { "changes" } else { "fixed" };
        match self.pace {
            None => write!(f, "prompt,{changes},{}", self.log),
            Some(Pace { usual, hang_one_in, hang }) => {
                write!(f, "slow,{},{hang_one_in},{},{changes},{}", usual.as_micros(), hang.as_micros(), self.log)
            }
        }
    }
}

impl FromStr for Circumstances {
    type Err = String;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, String> {
        fn number<T: FromStr>(text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("`{text}` is not a number"))
        }
        let micros = |text| number(text).map(Duration::from_micros);
        let (pace, changes, log) = match text.split(',').collect::<Vec<_>>()[..] {
            ["prompt", changes, log] => (None, changes, log),
            ["slow", usual, hang_one_in, hang, changes, log] => {
                let (usual, hang) = (micros(usual)?, micros(hang)?);
                (Some(Pace { usual, hang_one_in: number(hang_one_in)?, hang }), changes, log)
            }
            _ => {
                return Err(format!(
                    "`{text}` does not describe circumstances; copy them from the plan that a failure prints"
                ));
            }
        };
        match changes {
            "changes" | "fixed" => Ok(Self { pace, changes: changes == "changes", log: log.parse()? }),
            _ => Err(format!("`{changes}` is neither `changes` nor `fixed`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads;

    #[test]
    fn what_is_written_can_be_read() {
        for seed in 0..200 {
            let circumstances = Circumstances::of(&mut Rng::new(seed));
            assert_eq!(circumstances.to_string().parse(), Ok(circumstances));
        }
        assert_eq!("prompt,fixed,file".parse(), Ok(Circumstances::default()));
        for wrong in [
            "",
            "prompt,fixed",
            "prompt,maybe,file",
            "prompt,fixed,tape",
            "slow,1,2,changes,file",
            "slow,1,2,x,changes,file",
        ] {
            assert!(wrong.parse::<Circumstances>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn changed_options_are_legal_and_differ() {
        let mut rng = Rng::new(5);
        for workload in workloads::all() {
            let mut seen = Vec::new();
            for seed in 0..50 {
                let options = changed(&workload.options(seed), &mut rng);
                options.validate().unwrap_or_else(|error| panic!("{options:?}: {error}"));
                assert!(options.log_max_bytes >= 4 * options.log_segment_bytes, "{options:?}");
                seen.push((options.pool_bytes, options.commit, options.log_insert, options.log_buffer_bytes));
            }
            seen.sort_by_key(|options| format!("{options:?}"));
            seen.dedup();
            assert!(seen.len() > 20, "{}", seen.len());
        }
    }

    #[test]
    fn simplest_circumstances_are_the_default() {
        let mut circumstances = (0..).map(|seed| Circumstances::of(&mut Rng::new(seed)));
        let mut circumstances = circumstances
            .find(|found| found.pace.is_some() && found.changes && found.log != LogEnd::Files)
            .expect("there are some");
        while let Some(simpler) = circumstances.simpler().pop() {
            circumstances = simpler;
        }
        assert_eq!(circumstances, Circumstances::default());
    }
}
