//! The judge of list histories accepts good histories and finds each kind of violation.

use super::history::{Element, Event, Kind, Level, ListKey, Lists, Record, Status, Violation, check};
use Event::{Append, Scan};

/// Transactions that overlap all others, so that real time orders none.
fn history(transactions: Vec<(Status, Vec<Event>)>) -> Vec<Record> {
    transactions.into_iter().map(|(status, events)| Record { begun: 0, events, status }).collect()
}

const OK: Status = Status::Committed(100);

fn read(key: ListKey, list: &[Element]) -> Event {
    Event::Read(key, list.to_vec())
}

fn lists(lists: &[(ListKey, &[Element])]) -> Lists {
    lists.iter().map(|(key, list)| (*key, list.to_vec())).collect()
}

fn judge(transactions: Vec<(Status, Vec<Event>)>, last: &[(ListKey, &[Element])]) -> Result<(), Violation> {
    check(&history(transactions), &lists(last), Level::StrictlySerializable)
}

fn cycle_kind(transactions: Vec<(Status, Vec<Event>)>, last: &[(ListKey, &[Element])]) -> Kind {
    match judge(transactions, last) {
        Err(Violation::Cycle { kind, .. }) => kind,
        other => panic!("a cycle was expected, not {other:?}"),
    }
}

#[test]
fn a_good_history_passes() {
    let transactions = vec![
        (OK, vec![read(1, &[]), Append(1, 10), read(1, &[10]), Append(2, 11)]),
        (OK, vec![read(1, &[10]), Append(1, 20), Append(1, 21)]),
        (OK, vec![Scan(1, 9, lists(&[(1, &[10, 20, 21]), (2, &[11])]))]),
        (Status::Aborted, vec![Append(1, 30)]),
        (Status::Unknown, vec![Append(2, 40)]),
        (Status::Unknown, vec![Append(2, 50), Append(3, 51)]),
    ];
    assert_eq!(judge(transactions, &[(1, &[10, 20, 21]), (2, &[11, 50]), (3, &[51])]), Ok(()));
}

#[test]
fn g0_interleaved_appends() {
    let kind = cycle_kind(
        vec![(OK, vec![Append(1, 10), Append(2, 11)]), (OK, vec![Append(1, 20), Append(2, 21)])],
        &[(1, &[10, 20]), (2, &[21, 11])],
    );
    assert_eq!(kind, Kind::G0);
}

#[test]
fn g1a_aborted_read() {
    let aborted = (Status::Aborted, vec![Append(1, 10)]);
    let seen = judge(vec![aborted.clone(), (OK, vec![read(1, &[10])])], &[]);
    assert!(matches!(seen, Err(Violation::AbortedRead(_))), "{seen:?}");
    let left = judge(vec![aborted], &[(1, &[10])]);
    assert!(matches!(left, Err(Violation::AbortedRead(_))), "{left:?}");
}

#[test]
fn g1b_intermediate_read() {
    let found = judge(vec![(OK, vec![Append(1, 10), Append(1, 11)]), (OK, vec![read(1, &[10])])], &[(1, &[10, 11])]);
    assert!(matches!(found, Err(Violation::IntermediateRead(_))), "{found:?}");
}

#[test]
fn g1c_circular_information_flow() {
    let kind = cycle_kind(
        vec![(OK, vec![Append(1, 10), read(2, &[20])]), (OK, vec![Append(2, 20), read(1, &[10])])],
        &[(1, &[10]), (2, &[20])],
    );
    assert_eq!(kind, Kind::G1c);
}

#[test]
fn g_single_read_skew_and_lost_update() {
    let skew = cycle_kind(
        vec![(OK, vec![Append(1, 10), Append(2, 11)]), (OK, vec![read(1, &[10]), read(2, &[])])],
        &[(1, &[10]), (2, &[11])],
    );
    assert_eq!(skew, Kind::GSingle);
    // Both read the empty list and append; the second append is next after the first.
    let lost = cycle_kind(
        vec![(OK, vec![read(1, &[]), Append(1, 10)]), (OK, vec![read(1, &[]), Append(1, 20)])],
        &[(1, &[10, 20])],
    );
    assert_eq!(lost, Kind::GSingle);
}

#[test]
fn g2_write_skew_on_items_and_on_ranges() {
    let items = cycle_kind(
        vec![(OK, vec![read(1, &[]), Append(2, 10)]), (OK, vec![read(2, &[]), Append(1, 20)])],
        &[(1, &[20]), (2, &[10])],
    );
    assert_eq!(items, Kind::G2);
    let phantoms = cycle_kind(
        vec![(OK, vec![Scan(0, 9, lists(&[])), Append(5, 10)]), (OK, vec![Scan(0, 9, lists(&[])), Append(6, 20)])],
        &[(5, &[10]), (6, &[20])],
    );
    assert_eq!(phantoms, Kind::G2);
}

#[test]
fn a_longer_cycle_is_found() {
    let kind = cycle_kind(
        vec![
            (OK, vec![read(1, &[]), Append(2, 10)]),
            (OK, vec![read(2, &[]), Append(3, 20)]),
            (OK, vec![read(3, &[]), Append(1, 30)]),
            (OK, vec![read(4, &[])]),
        ],
        &[(1, &[30]), (2, &[10]), (3, &[20])],
    );
    assert_eq!(kind, Kind::G2);
}

#[test]
fn a_stale_read_breaks_real_time_only() {
    let record = |begun, status, events| Record { begun, events, status };
    let records =
        vec![record(1, Status::Committed(2), vec![Append(1, 10)]), record(3, Status::Committed(4), vec![read(1, &[])])];
    let last = lists(&[(1, &[10])]);
    match check(&records, &last, Level::StrictlySerializable) {
        Err(Violation::Cycle { kind: Kind::RealTime, explanation }) => {
            assert!(explanation.contains("T0 was acknowledged before T1 began"), "{explanation}");
        }
        other => panic!("a stale read was expected, not {other:?}"),
    }
    // The same reads are fine if the reader began before the acknowledgement.
    let mut overlapping = records;
    overlapping[1].begun = 1;
    assert_eq!(check(&overlapping, &last, Level::StrictlySerializable), Ok(()));
}

#[test]
fn losses_and_torn_transactions() {
    let lost = judge(vec![(OK, vec![Append(1, 10)])], &[]);
    assert!(matches!(lost, Err(Violation::Lost(_))), "{lost:?}");
    let torn = judge(vec![(Status::Unknown, vec![Append(1, 10), Append(2, 11)])], &[(1, &[10])]);
    assert!(matches!(torn, Err(Violation::Torn(_))), "{torn:?}");
    // An acknowledged transaction saw what the crash took away.
    let undone = judge(vec![(Status::Unknown, vec![Append(1, 10)]), (OK, vec![read(1, &[10])])], &[]);
    assert!(matches!(undone, Err(Violation::AbortedRead(_))), "{undone:?}");
}

#[test]
fn own_writes_versions_and_garbage() {
    let internal = judge(vec![(OK, vec![Append(1, 10), read(1, &[])])], &[(1, &[10])]);
    assert!(matches!(internal, Err(Violation::Internal(_))), "{internal:?}");
    let versions = judge(
        vec![(OK, vec![Append(1, 10)]), (OK, vec![Append(1, 20)]), (OK, vec![read(1, &[20])])],
        &[(1, &[10, 20])],
    );
    assert!(matches!(versions, Err(Violation::Incompatible(_))), "{versions:?}");
    let nobody = judge(vec![(OK, vec![read(1, &[77])])], &[]);
    assert!(matches!(nobody, Err(Violation::Garbage(_))), "{nobody:?}");
    let twice = judge(vec![(OK, vec![Append(1, 10)])], &[(1, &[10, 10])]);
    assert!(matches!(twice, Err(Violation::Garbage(_))), "{twice:?}");
    let outside = judge(vec![(OK, vec![Scan(3, 4, lists(&[(1, &[10])]))]), (OK, vec![Append(1, 10)])], &[(1, &[10])]);
    assert!(matches!(outside, Err(Violation::Garbage(_))), "{outside:?}");
}

#[test]
fn read_committed_allows_skew_and_forbids_g1c() {
    let last = lists(&[(1, &[20]), (2, &[10])]);
    let skew = history(vec![(OK, vec![read(1, &[]), Append(2, 10)]), (OK, vec![read(2, &[]), Append(1, 20)])]);
    assert_eq!(check(&skew, &last, Level::ReadCommitted), Ok(()));
    let circular = history(vec![(OK, vec![Append(2, 10), read(1, &[20])]), (OK, vec![Append(1, 20), read(2, &[10])])]);
    assert!(matches!(check(&circular, &last, Level::ReadCommitted), Err(Violation::Cycle { kind: Kind::G1c, .. })));
}
