//! Which remedy is for which full log, and what a copy that stands still does to writers.

use super::*;
use crate::options::Options;
use crate::{Db, Table};
use duramen_io::SimDisk;
use duramen_sync::Arc;

const FREE: View = View {
    behind_transactions: true,
    fits_alone: true,
    is_space_to_come: false,
    gives_way: false,
    behind_checkpoint: true,
    has_in_doubt: false,
    has_deferred_frees: false,
    in_checkpoint: false,
    retainer: None,
};

const KEPT: View = View { behind_transactions: false, fits_alone: false, behind_checkpoint: false, ..FREE };
const SHARED: View = View { fits_alone: true, ..KEPT };

#[test]
fn what_stands_in_the_way_is_seen_to() {
    let archive = |has_failed| Some(Retainer::Archive { has_failed });
    let expected = [
        (KEPT, Remedy::Refuse(Culprit::Itself)),
        (View { is_space_to_come: true, ..KEPT }, Remedy::Refuse(Culprit::Itself)),
        (View { has_in_doubt: true, has_deferred_frees: true, ..KEPT }, Remedy::FinishInDoubt),
        (View { has_deferred_frees: true, ..KEPT }, Remedy::RetryDeferredFrees),
        (View { in_checkpoint: true, ..KEPT }, Remedy::AwaitCheckpoint),
        (View { is_space_to_come: true, gives_way: true, ..SHARED }, Remedy::AwaitOthers),
        (View { gives_way: true, ..SHARED }, Remedy::Refuse(Culprit::Transactions)),
        (SHARED, Remedy::LetGiveWay),
        // A transaction keeps the log, whatever else does.
        (View { retainer: archive(false), ..KEPT }, Remedy::Refuse(Culprit::Itself)),
        (View { behind_checkpoint: false, retainer: archive(false), ..FREE }, Remedy::Checkpoint),
        (View { retainer: archive(false), ..FREE }, Remedy::AwaitCopies),
        (View { retainer: Some(Retainer::Backup), has_in_doubt: true, ..FREE }, Remedy::AwaitCopies),
        (View { retainer: archive(true), ..FREE }, Remedy::Refuse(Culprit::Log)),
        (View { in_checkpoint: true, ..FREE }, Remedy::AwaitCheckpoint),
        (FREE, Remedy::TryAgain),
    ];
    for (view, remedy) in expected {
        assert_eq!(view.remedy(Tried::default()), remedy, "{view:?}");
    }
}

/// Each remedy that does not help is given up some time.
#[test]
fn nothing_is_tried_for_ever() {
    let tried = |remedies: &[Remedy]| {
        let mut tried = Tried::default();
        remedies.iter().for_each(|remedy| tried.note(*remedy));
        tried
    };
    let deferred = View { has_deferred_frees: true, ..KEPT };
    assert_eq!(deferred.remedy(tried(&[Remedy::RetryDeferredFrees])), Remedy::Refuse(Culprit::Itself));
    assert_eq!(FREE.remedy(tried(&[Remedy::TryAgain])), Remedy::Recycle);
    assert_eq!(FREE.remedy(tried(&[Remedy::TryAgain, Remedy::Recycle])), Remedy::Refuse(Culprit::Log));
    let others = [Remedy::TryAgain, Remedy::Recycle, Remedy::AwaitCopies];
    assert_eq!(FREE.remedy(tried(&others)), Remedy::TryAgain, "it was not in a row");
    let dirty = View { behind_checkpoint: false, ..FREE };
    let mut often = tried(&[Remedy::Checkpoint; MOST_CHECKPOINTS as usize - 1]);
    assert_eq!(dirty.remedy(often), Remedy::Checkpoint);
    assert_eq!(dirty.remedy(Tried { in_vain: true, ..often }), Remedy::Refuse(Culprit::Pages));
    often.note(Remedy::Checkpoint);
    assert_eq!(dirty.remedy(often), Remedy::Refuse(Culprit::Log));
}

#[test]
fn what_stands_still_is_noticed() {
    let (mut watch, start) = (Watch::default(), Instant::now());
    let mut look = |value, millis| watch.unchanged(value, start.after(Duration::from_millis(millis))).as_millis();
    assert_eq!(look(1, 0), 0);
    assert_eq!(look(1, 700), 700);
    assert_eq!(look(1, 1_500), 1_500);
    assert_eq!(look(2, 1_600), 0, "it has got on");
    assert_eq!(look(2, 2_000), 400);
    assert_eq!(look(2, 4_000), 0, "nobody has looked meanwhile");
    assert_eq!(look(2, 4_900), 900);
}

/// Writers wait for a backup that stands still only until that is certain, and then the error names
/// it.
#[test]
fn a_backup_that_stands_still_is_named() {
    let options = Options {
        log_segment_bytes: 256 << 10,
        log_max_bytes: 2 << 20,
        checkpoint_bytes: Some(512 << 10),
        ..Options::small()
    };
    let db = Db::open_on(Arc::new(SimDisk::new(5)), options).unwrap();
    let table = db.create_table("rows").unwrap();
    let mut version = 0_u32;
    let mut write = |db: &Db, table: &Table| {
        // An unchanged value is not logged.
        version += 1;
        db.run(|txn| (0..20).try_for_each(|row| txn.put(table, &[row], &version.to_be_bytes().repeat(250))))
    };
    write(&db, &table).unwrap();
    let mut refused = Vec::new();
    let backup = db.backup_to(&SimDisk::new(6), |_| {
        if refused.is_empty() {
            let begun = Instant::now();
            let error = std::iter::repeat_with(|| write(&db, &table)).find_map(Result::err).unwrap();
            refused.push((error, begun.elapsed()));
            // By now it is certain that the backup stands still.
            let begun = Instant::now();
            refused.push((write(&db, &table).unwrap_err(), begun.elapsed()));
        }
    });
    backup.unwrap();
    let [(first, waited), (second, not_waited)] = &refused[..] else { panic!("{refused:?}") };
    for error in [first, second] {
        assert!(matches!(error, Error::Full { reason } if reason.contains("a backup under way")), "{error}");
    }
    assert!(first.to_string().contains("nothing has been copied for"), "{first}");
    assert!(*waited >= COPY_STALL_LIMIT * 9 / 10 && *not_waited < COPY_STALL_LIMIT / 2, "{waited:?}, {not_waited:?}");
    write(&db, &table).unwrap();
    db.close().unwrap();
}
