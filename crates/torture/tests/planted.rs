//! Every deliberate defect of the engine is noticed. A planted bug is there for the whole process,
//! so each hunt is a process of its own: this program once more, with the one test.
//!
//! ```sh
//! RUSTFLAGS="--cfg duramen_planted" cargo test --profile instrumented --target-dir target/planted \
//!     -p duramen-torture --test planted
//! ```
#![cfg(duramen_planted)]

use std::process::Command;
use std::time::Duration;

use duramen_test_support::{announced_seed, is_long};
use duramen_torture::hunt::{hunt, places};
use duramen_types::planted::Bug;

/// Set in a process that hunts.
const HUNTING: &str = "DURAMEN_HUNTING";

fn must_be_caught(test: &str, bug: Bug) {
    let seed = announced_seed(&format!("hunt for {bug:?}"));
    // A sample: about a third of the bugs in each run, each in one of its places.
    if !is_long() && !seed.is_multiple_of(6) {
        return println!("{bug:?} is not hunted in this run; with DURAMEN_LONG=1 all bugs are");
    }
    if std::env::var_os(HUNTING).is_some() {
        return hunt_for(bug, seed);
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", test, "--nocapture"]).env(HUNTING, "1").env("DURAMEN_SEED", seed.to_string());
    let output = alone.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    println!("{out}{err}");
    assert!(output.status.success() && out.contains("1 passed"), "the hunt for {bug:?} failed: see above");
}

fn hunt_for(bug: Bug, seed: u64) {
    let all = places(bug);
    let one = (seed / 6) as usize % all.len();
    for log in if is_long() { all } else { &all[one..=one] } {
        // Each is found within some seconds on an idle machine.
        let hunted = hunt(bug, *log, seed, Duration::from_secs(240));
        let tried = format!("{} points, {} checks, {:.1?}", hunted.points, hunted.checks, hunted.time);
        assert!(hunted.unrelated.is_empty(), "these fail without {bug:?} too:\n{}", hunted.unrelated.join("\n"));
        match hunted.caught {
            Some((suite, failure)) => println!("{bug:?}, log: {log}: caught by {suite} after {tried}:\n  {failure}"),
            None => panic!("{bug:?}, log: {log}: was not noticed in {tried}"),
        }
    }
}

macro_rules! hunts {
    ($($test:ident: $bug:ident,)*) => {
        $(#[test] fn $test() { must_be_caught(stringify!($test), Bug::$bug); })*

        #[test]
        fn every_bug_is_hunted() {
            let all = [Bug::DURABILITY, Bug::MEMORY, Bug::FILES, Bug::TIER, Bug::SCHEMES, Bug::PCM].concat();
            assert_eq!([$(Bug::$bug),*].as_slice(), all);
        }
    };
}

hunts! {
    skip_log_sync: SkipLogSync,
    acknowledge_before_flush: AcknowledgeBeforeFlush,
    ignore_log_checksum: IgnoreLogChecksum,
    ignore_page_checksum: IgnorePageChecksum,
    forget_compensation: ForgetCompensation,
    skip_wal_rule: SkipWalRule,
    skip_undo: SkipUndo,
    skip_redo: SkipRedo,
    ignore_page_gsn: IgnorePageGsn,
    checkpoint_forgets_dirty_pages: CheckpointForgetsDirtyPages,
    checkpoint_forgets_transactions: CheckpointForgetsTransactions,
    skip_double_write: SkipDoubleWrite,
    written_page_taken_for_new: WrittenPageTakenForNew,
    changed_lines_forgotten: ChangedLinesForgotten,
    skip_data_sync: SkipDataSync,
    recycle_too_early: RecycleTooEarly,
    skip_gap_lock: SkipGapLock,
    skip_read_lock: SkipReadLock,
    skip_directory_sync: SkipDirectorySync,
    growth_unsynced: GrowthUnsynced,
    ring_fence_dropped: RingFenceDropped,
    forget_deferred_frees: ForgetDeferredFrees,
    hole_kept: HoleKept,
    own_log_hardened_only: OwnLogHardenedOnly,
    epoch_not_ended: EpochNotEnded,
    page_time_ignored: PageTimeIgnored,
    page_not_redone_on_fetch: PageNotRedoneOnFetch,
    checkpoint_forgets_unredone: CheckpointForgetsUnredone,
    own_fence_only: OwnFenceOnly,
    dirty_bit_ignored: DirtyBitIgnored,
    straggler_skipped: StragglerSkipped,
    generation_ignored: GenerationIgnored,
    stale_area_put_back: StaleAreaPutBack,
    versions_not_compared: VersionsNotCompared,
    fences_not_compared: FencesNotCompared,
    older_version_wins: OlderVersionWins,
    tier_unsynced: TierUnsynced,
    line_forgotten: LineForgotten,
    home_before_journal: HomeBeforeJournal,
    home_unfenced: HomeUnfenced,
    freed_unfenced: FreedUnfenced,
    home_time_ignored: HomeTimeIgnored,
    lease_reused: LeaseReused,
    page_log_unfenced: PageLogUnfenced,
    entry_left: EntryLeft,
    section_ignored: SectionIgnored,
    commit_outside_section: CommitOutsideSection,
    carried_forgotten: CarriedForgotten,
    carried_overwritten: CarriedOverwritten,
    batch_acknowledged_early: BatchAcknowledgedEarly,
    half_reused_early: HalfReusedEarly,
    staged_page_dropped: StagedPageDropped,
    xid_listed_late: XidListedLate,
    xid_replaced_early: XidReplacedEarly,
    abort_unlisted_first: AbortUnlistedFirst,
    cover_forgotten: CoverForgotten,
    stolen_unfenced: StolenUnfenced,
    allocation_kept: AllocationKept,
    tuple_unfenced: TupleUnfenced,
    older_tuple_wins: OlderTupleWins,
    tuple_space_unchecked: TupleSpaceUnchecked,
}
