//! The hunt for planted bugs: with each deliberate defect of the engine switched on, the suites
//! must fail; and what failed must pass with the defect switched off, else it shows nothing.

use std::fmt;
use std::time::{Duration, Instant};

use duramen::Isolation;
use duramen::pmem::Domain;
use duramen_types::planted::{Bug, plant};

use crate::circumstances::Circumstances;
use crate::corruption::Specimen;
use crate::crash::{Only, Thoroughness, count_operations, try_point};
use crate::harness::{Budget, Coverage, forget_engine_panics};
use crate::isolation::anomalies::{self, Setting};
use crate::isolation::lists::{Shape, try_history};
use crate::misplaced::Album;
use crate::workloads;
use crate::world::LogEnd;
use duramen_test_support::Rng;

/// A suite that may notice a bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// The crash sweep over this workload.
    Crash(&'static str),
    /// Bits of a closed database flip.
    FlipsOfClosed,
    /// Bits of the log of a crashed database flip.
    FlipsOfLog,
    /// Files, rings and pages in the wrong place.
    Misplaced,
    /// Single pages as they were earlier.
    StalePages,
    /// Random programs interleaved.
    Programs,
    /// Random histories of lists.
    Lists,
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(workload) => write!(f, "crash sweep, {workload}"),
            Self::FlipsOfClosed => f.write_str("bit flips, closed"),
            Self::FlipsOfLog => f.write_str("bit flips, log"),
            Self::Misplaced => f.write_str("misplaced"),
            Self::StalePages => f.write_str("stale pages"),
            Self::Programs => f.write_str("random programs"),
            Self::Lists => f.write_str("list histories"),
        }
    }
}

/// Returns where the end of the log is kept in runs that can notice a bug: in each of these places
/// it has to be noticed.
pub fn places(bug: Bug) -> &'static [LogEnd] {
    const VOLATILE: LogEnd = LogEnd::Ring(Domain::VolatileCache);
    const CACHED: [LogEnd; 4] = [LogEnd::HEAPS[0], LogEnd::HEAPS[1], LogEnd::HEAPS[2], LogEnd::HEAPS[3]];
    const PAPER: [LogEnd; 2] = [CACHED[2], CACHED[3]];
    const PCMS: [LogEnd; 3] = [LogEnd::PCMS[0], LogEnd::PCMS[1], LogEnd::PCMS[3]];
    const TUPLES: [LogEnd; 3] = [LogEnd::PCMS[8], LogEnd::PCMS[9], LogEnd::PCMS[13]];
    // In a small memory, hunts of a minute did not catch this bug.
    const MANY_TUPLES: [LogEnd; 2] = [TUPLES[0], TUPLES[1]];
    const TIERS: [LogEnd; 5] = [LogEnd::Files, LogEnd::TIERS[0], LogEnd::TIERS[1], LogEnd::TIERS[2], LogEnd::TIERS[3]];
    match bug {
        Bug::RingFenceDropped => &[LogEnd::Ring(Domain::DurableCache), VOLATILE],
        Bug::OwnLogHardenedOnly => &[LogEnd::Files, VOLATILE],
        // These bugs concern passive group commit.
        _ if Bug::MEMORY.contains(&bug) => &[VOLATILE],
        Bug::OlderVersionWins => &[TIERS[0], TIERS[1], TIERS[2], TIERS[3], TIERS[4], PCMS[1]],
        _ if Bug::TIER.contains(&bug) => &TIERS,
        // Only the barriers of the paper have page logs, and entries without a change.
        Bug::PageLogUnfenced | Bug::EntryLeft => &PAPER,
        Bug::LineForgotten => &LogEnd::LOGLESS,
        Bug::SectionIgnored
        | Bug::CommitOutsideSection
        | Bug::CarriedForgotten
        | Bug::CarriedOverwritten
        | Bug::BatchAcknowledgedEarly
        | Bug::HalfReusedEarly
        | Bug::StagedPageDropped => &LogEnd::BATCHES,
        Bug::TupleSpaceUnchecked => &MANY_TUPLES,
        Bug::TupleUnfenced | Bug::OlderTupleWins => &TUPLES,
        _ if Bug::PCM.contains(&bug) => &PCMS,
        // Where caches are durable, a fence is still needed; a flush is not.
        // Where pages are read matters to none of these bugs.
        _ if Bug::SCHEMES.contains(&bug) => &CACHED,
        _ => &[LogEnd::Files],
    }
}

/// Returns the suites that are most likely to notice a bug with the end of the log at this place.
fn likely(bug: Bug, log: LogEnd) -> Vec<Suite> {
    use Suite::{Crash, FlipsOfClosed, FlipsOfLog, Lists, Misplaced, Programs, StalePages};
    match bug {
        Bug::SkipLogSync | Bug::AcknowledgeBeforeFlush | Bug::SkipRedo => vec![Crash("bank"), Crash("mixed")],
        Bug::IgnoreLogChecksum => vec![FlipsOfLog, Crash("recycle"), Crash("mixed")],
        // Many flips are repaired, or hit bytes that mean nothing.
        Bug::IgnorePageChecksum => vec![FlipsOfClosed; 6],
        Bug::ForgetCompensation => vec![Crash("steal"), Crash("mixed"), Crash("full-pages"), Crash("ghosts")],
        Bug::SkipWalRule | Bug::SkipUndo => vec![Crash("steal"), Crash("interleaved"), Crash("checkpoints")],
        Bug::IgnorePageGsn => vec![Crash("checkpoints"), Crash("steal"), Crash("recycle"), Crash("merges")],
        Bug::CheckpointForgetsDirtyPages => vec![Crash("checkpoints"), Crash("recycle"), Crash("interleaved")],
        Bug::CheckpointForgetsTransactions => vec![Crash("interleaved"), Crash("checkpoints"), Crash("steal")],
        Bug::SkipDoubleWrite | Bug::WrittenPageTakenForNew | Bug::ChangedLinesForgotten => {
            vec![Crash("checkpoints"), Crash("steal"), Crash("recycle")]
        }
        Bug::SkipDataSync => vec![Crash("checkpoints"), Crash("recycle"), Crash("steal"), Crash("reopens")],
        Bug::RecycleTooEarly => vec![Crash("recycle"), Crash("checkpoints"), Crash("interleaved")],
        Bug::SkipGapLock | Bug::SkipReadLock => vec![Programs, Lists],
        Bug::SkipDirectorySync => vec![Crash("recycle"), Crash("bank"), Crash("reopens")],
        Bug::RingFenceDropped => vec![Crash("bank"), Crash("mixed")],
        Bug::ForgetDeferredFrees => vec![Crash("tables"), Crash("overflow")],
        // Behind volatile caches, this bug shows soon when several threads commit.
        Bug::OwnLogHardenedOnly if log != LogEnd::Files => vec![Lists; 8],
        // They need several logs, which two of three seeds have.
        Bug::HoleKept | Bug::OwnLogHardenedOnly | Bug::EpochNotEnded => {
            vec![Crash("interleaved"), Crash("steal"), Crash("mixed"), Crash("splits")]
        }
        Bug::PageTimeIgnored => vec![Crash("mixed"), Crash("checkpoints"), Crash("merges")],
        // Of two seeds, one has instant recovery.
        Bug::PageNotRedoneOnFetch => vec![Crash("mixed"), Crash("bank"), Crash("steal")],
        Bug::CheckpointForgetsUnredone => vec![Crash("mixed"), Crash("splits"), Crash("keys"), Crash("interleaved")],
        Bug::GenerationIgnored | Bug::StaleAreaPutBack => vec![Misplaced; 8],
        Bug::VersionsNotCompared | Bug::FencesNotCompared => vec![StalePages; 8],
        // In files, a third of the seeds have a tier.
        Bug::OlderVersionWins if matches!(log, LogEnd::Pcm(_)) => vec![Crash("bank"), Crash("mixed")],
        _ if Bug::TIER.contains(&bug) => vec![Crash("checkpoints"), Crash("steal"), Crash("recycle"), Crash("reopens")],
        // Commits wait for threads that seldom commit, such as the engine's own.
        Bug::StragglerSkipped => vec![Crash("overflow"), Crash("overflow"), Crash("steal"), Crash("overflow"), Lists],
        // Another thread, or the next structure change, stores before the lines are durable.
        Bug::HomeUnfenced => vec![Crash("splits"), Lists, Crash("mixed"), Lists],
        // The first record of a short transaction is torn, and one of an earlier lease is there.
        Bug::LeaseReused => vec![Crash("bank"), Crash("interleaved"), Crash("keys"), Crash("mixed")],
        // Many actions of several pages.
        Bug::SectionIgnored => vec![Crash("splits"), Crash("merges"), Lists, Crash("steal")],
        Bug::CommitOutsideSection => vec![Crash("bank"), Lists, Crash("mixed")],
        Bug::CarriedForgotten => vec![Crash("carried"), Crash("interleaved"), Crash("steal")],
        Bug::CarriedOverwritten => vec![Crash("carried"); 4],
        Bug::StagedPageDropped => vec![Crash("steal"), Crash("overflow"), Crash("full-pages")],
        Bug::AllocationKept => vec![Crash("overflow"), Crash("tables")],
        // Transactions that are under way when others commit.
        Bug::XidListedLate => vec![Crash("interleaved"), Crash("interleaved"), Crash("carried"), Crash("mixed")],
        Bug::CoverForgotten => vec![Crash("interleaved"), Crash("steal"), Crash("carried")],
        Bug::AbortUnlistedFirst => vec![Crash("interleaved"), Crash("interleaved"), Crash("ghosts"), Crash("mixed")],
        // Transactions that change several pages.
        Bug::XidReplacedEarly => vec![Crash("mixed"), Crash("splits"), Crash("keys"), Crash("interleaved")],
        Bug::TupleSpaceUnchecked => vec![Crash("full-pages"), Crash("splits"), Crash("mixed"), Crash("steal")],
        Bug::TupleUnfenced => vec![Crash("interleaved"), Crash("carried"), Crash("bank")],
        _ if Bug::PCM.contains(&bug) => vec![Crash("bank"), Crash("mixed"), Crash("keys")],
        _ if Bug::SCHEMES.contains(&bug) => vec![Crash("mixed"), Crash("steal"), Crash("interleaved"), Crash("splits")],
        // Threads that share a ring: one acknowledges what another has not made durable.
        _ if Bug::MEMORY.contains(&bug) => vec![Lists],
        // The simulated machine looks for these: on real threads they show only by chance.
        _ => vec![Lists],
    }
}

/// How a hunt ended.
#[derive(Clone, Debug)]
pub struct Hunted {
    /// The bug.
    pub bug: Bug,
    /// Where the end of the log was kept.
    pub log: LogEnd,
    /// The suite that noticed it, and its message; `None` if none did in time.
    pub caught: Option<(Suite, String)>,
    /// Situations tried until then: crash points, damages, sets of programs, histories.
    pub points: u64,
    /// Databases and executions compared until then.
    pub checks: u64,
    /// What failed with the bug switched off as well.
    pub unrelated: Vec<String>,
    /// Time taken.
    pub time: Duration,
}

/// Plants `bug` and looks for it, with the end of the log at this place, until it is caught or
/// `time` has passed. The switch is global to the process: nothing else may run meanwhile.
pub fn hunt(bug: Bug, log: LogEnd, seed: u64, time: Duration) -> Hunted {
    let start = Instant::now();
    let mut hunted =
        Hunted { bug, log, caught: None, points: 0, checks: 0, unrelated: Vec::new(), time: Duration::ZERO };
    let mut rng = Rng::new(seed);
    let all = workloads::names().into_iter().map(Suite::Crash);
    // The less likely suites run now and then.
    let rounds = [likely(bug, log), likely(bug, log), likely(bug, log), all.collect()];
    for suite in rounds.iter().cycle().flatten() {
        if start.elapsed() >= time || hunted.unrelated.len() >= 3 {
            break;
        }
        if let Some(failure) = attempt(*suite, rng.bits() >> 32, &mut hunted) {
            hunted.caught = Some((*suite, failure));
            break;
        }
    }
    forget_engine_panics();
    hunted.time = start.elapsed();
    hunted
}

/// Runs a piece of a suite with the bug, and on failure again without; gives the failure if it is
/// the bug's.
fn attempt(suite: Suite, seed: u64, hunted: &mut Hunted) -> Option<String> {
    let Hunted { bug, log, .. } = *hunted;
    let mut try_one = |one: &dyn Fn() -> Result<u64, String>| {
        let guard = plant(bug);
        let result = one();
        drop(guard);
        hunted.points += 1;
        match result {
            Ok(checks) => {
                hunted.checks += checks;
                None
            }
            Err(failure) => {
                forget_engine_panics();
                match one() {
                    Ok(_) => Some(failure),
                    Err(unrelated) => {
                        hunted.unrelated.push(unrelated);
                        None
                    }
                }
            }
        }
    };
    match suite {
        Suite::Crash(name) => {
            let workload = workloads::named(name).expect("the workload exists");
            let thoroughness = Thoroughness {
                points: Coverage::Sample(12),
                random_images: 4,
                continued: Coverage::All,
                recovery_points: Coverage::Sample(1),
                limit: Duration::from_secs(20),
                log,
            };
            // Counted without the bug, which may break the run itself.
            let operations = match count_operations(workload, seed, log) {
                Ok(operations) => operations,
                Err(unrelated) => {
                    hunted.unrelated.push(unrelated);
                    return None;
                }
            };
            let points = operations.choose(thoroughness.points, &mut Rng::new(seed));
            points.into_iter().find_map(|op| try_one(&|| try_point(workload, seed, op, thoroughness, Only::default())))
        }
        Suite::FlipsOfClosed | Suite::FlipsOfLog => {
            let specimen = match Specimen::make(seed, suite == Suite::FlipsOfClosed) {
                Ok(specimen) => specimen,
                Err(unrelated) => {
                    hunted.unrelated.push(unrelated);
                    return None;
                }
            };
            let mut rng = Rng::new(seed);
            (0..60).find_map(|_| {
                let damage = specimen.random_flip(&mut rng)?;
                try_one(&|| specimen.try_damage(&damage))
            })
        }
        Suite::Misplaced | Suite::StalePages => {
            // The remaining contents of an area matter, too.
            let guard = plant(bug);
            let album = Album::make(seed);
            drop(guard);
            let album = match album {
                Ok(album) => album,
                Err(unrelated) => {
                    hunted.unrelated.push(unrelated);
                    return None;
                }
            };
            let mut rng = Rng::new(seed);
            let stale = album.stale_pages();
            if suite == Suite::StalePages && stale.is_empty() {
                return None;
            }
            (0..40).find_map(|_| {
                let misplaced =
                    if suite == Suite::StalePages { rng.pick(&stale).clone() } else { album.draw(&mut rng) };
                try_one(&|| album.try_one(&misplaced))
            })
        }
        Suite::Programs => try_one(&|| {
            let budget = Budget::lasting(Duration::from_secs(10));
            let mut tally = anomalies::try_random(40, Setting { log, ..Setting::RANDOM }, seed, &budget);
            tally.failures.pop().map_or(Ok(tally.checks), Err)
        }),
        Suite::Lists => (seed..seed + 5).find_map(|seed| {
            // What a ring is to keep shows when the power goes off, the order of transactions
            // without.
            let crashes = if log == LogEnd::Files { 0 } else { 3 };
            let shape = Shape { crashes, isolation: Isolation::Serializable, ..Shape::of(seed) };
            try_one(&|| try_history(shape, seed, Circumstances { log, ..Circumstances::default() }))
        }),
    }
}
