//! The consistency conditions of TATP.

use std::collections::BTreeSet;

use super::Tables;
use super::profile::{Profile, START_TIMES};
use super::row::{
    AccessInfo, CallForwarding, DATA_A, END_TIME, SpecialFacility, Subscriber, decode_forwarding_key, decode_kind_key,
    sub_nbr,
};
use super::scale::Scale;
use crate::audit::AuditReport;
use crate::error::Result;
use crate::store::{Access, Connection, Store, Transaction, for_each};

/// Returns the number of call forwardings.
pub(super) fn count_forwardings<S: Store>(store: &S) -> Result<u64> {
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadCommitted)?;
    let mut count = 0;
    for_each(&mut txn, &Tables::open(store)?.call_forwarding, |_, _| count += 1)?;
    txn.commit()?;
    Ok(count)
}

/// Checks all tables; `forwardings` is how many call forwardings there must be, where that is
/// known.
pub(super) fn audit<S: Store>(
    store: &S,
    scale: Scale,
    forwardings: Option<i64>,
    report: &mut AuditReport,
) -> Result<()> {
    let tables = Tables::open(store)?;
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadCommitted)?;
    check_subscribers(&mut txn, &tables, scale, report)?;
    check_index(&mut txn, &tables, scale, report)?;
    check_kinds(&mut txn, &tables.access_info, "access info", scale, report, |profile, found| {
        let there = |(ai_type, row): &(u8, AccessInfo)| found.contains(&(*ai_type, row.to_vec()));
        profile.access_info.iter().all(there) && profile.access_info.len() == found.len()
    })?;
    check_kinds(&mut txn, &tables.special_facility, "special facility", scale, report, |profile, found| {
        // Transactions change data_a and nothing else.
        let fixed =
            |row: &[u8]| row.iter().enumerate().filter(|(at, _)| *at != DATA_A).map(|(_, byte)| *byte).collect();
        let found: BTreeSet<(u8, Vec<u8>)> = found
            .iter()
            .filter(|(_, row)| row.len() == size_of::<SpecialFacility>())
            .map(|(sf_type, row)| (*sf_type, fixed(row)))
            .collect();
        let there = |(sf_type, row): &(u8, SpecialFacility)| found.contains(&(*sf_type, fixed(row)));
        profile.facilities.iter().all(there) && profile.facilities.len() == found.len()
    })?;
    check_forwardings(&mut txn, &tables, forwardings, report)?;
    txn.commit()
}

fn check_subscribers<T: Transaction>(
    txn: &mut T,
    tables: &Tables<T::Table>,
    scale: Scale,
    report: &mut AuditReport,
) -> Result<()> {
    let mut count = 0;
    for_each(txn, &tables.subscriber, |key, row| {
        count += 1;
        let Some(row) = Subscriber::decode(row) else {
            report.problem(format!("subscriber row {count} has the wrong length"));
            return;
        };
        if key != row.s_id.to_be_bytes() {
            report.problem(format!("the row of subscriber {} is stored under another key", row.s_id));
            return;
        }
        let mut expected = Profile::of(row.s_id).subscriber;
        expected.bits[0] = row.bits[0];
        expected.vlr_location = row.vlr_location;
        let holds = row == expected && row.bits[0] < 2 && row.vlr_location > 0;
        report.require(holds, || format!("subscriber {} has wrong column values", row.s_id));
    })?;
    report.require(count == scale.subscribers, || format!("there are {count} subscribers, not {}", scale.subscribers));
    report.fact(format!("subscribers: {count}"));
    Ok(())
}

fn check_index<T: Transaction>(
    txn: &mut T,
    tables: &Tables<T::Table>,
    scale: Scale,
    report: &mut AuditReport,
) -> Result<()> {
    let mut expected = 0;
    for_each(txn, &tables.sub_nbr, |key, row| {
        expected += 1;
        report.require(key == sub_nbr(expected) && row == expected.to_le_bytes(), || {
            format!(
                "entry {expected} of the index maps number {} to the wrong subscriber",
                String::from_utf8_lossy(key)
            )
        });
    })?;
    report.require(u64::from(expected) == scale.subscribers, || {
        format!("the index has {expected} numbers, not {}", scale.subscribers)
    });
    Ok(())
}

/// Checks a table whose rows belong to subscribers: `holds` gets what the subscriber should have,
/// and has.
fn check_kinds<T: Transaction>(
    txn: &mut T,
    table: &T::Table,
    name: &str,
    scale: Scale,
    report: &mut AuditReport,
    holds: impl Fn(&Profile, &[(u8, Vec<u8>)]) -> bool,
) -> Result<()> {
    let mut count = 0;
    let mut owner = 0;
    let mut owners = 0;
    let mut rows = Vec::new();
    let mut check = |s_id: u32, rows: &mut Vec<(u8, Vec<u8>)>| {
        if !rows.is_empty() {
            owners += 1;
            report.require(u64::from(s_id) <= scale.subscribers && holds(&Profile::of(s_id), rows), || {
                format!("subscriber {s_id} has wrong {name} rows")
            });
            rows.clear();
        }
    };
    for_each(txn, table, |key, row| {
        count += 1;
        // An invalid key counts for no subscriber, and so as one of a wrong subscriber.
        let (s_id, kind) = decode_kind_key(key).unwrap_or((u32::MAX, 0));
        if s_id != owner {
            check(owner, &mut rows);
            owner = s_id;
        }
        rows.push((kind, row.to_vec()));
    })?;
    check(owner, &mut rows);
    report.require(owners == scale.subscribers, || {
        format!("{owners} subscribers have {name} rows, not {}", scale.subscribers)
    });
    report.fact(format!("{name}: {count} rows"));
    Ok(())
}

fn check_forwardings<T: Transaction>(
    txn: &mut T,
    tables: &Tables<T::Table>,
    expected: Option<i64>,
    report: &mut AuditReport,
) -> Result<()> {
    let mut facilities = BTreeSet::new();
    for_each(txn, &tables.special_facility, |key, _| facilities.extend(decode_kind_key(key)))?;
    let mut count = 0;
    for_each(txn, &tables.call_forwarding, |key, row| {
        count += 1;
        let (Some((s_id, sf_type, start_time)), Ok(row)) = (decode_forwarding_key(key), CallForwarding::try_from(row))
        else {
            report.problem(format!("call forwarding {count} cannot be decoded"));
            return;
        };
        report.require(facilities.contains(&(s_id, sf_type)), || {
            format!("a call forwarding refers to special facility {sf_type} of subscriber {s_id}, which does not exist")
        });
        let allowed = START_TIMES.contains(&start_time) && (1..=24).contains(&row[END_TIME]);
        report.require(allowed && row[END_TIME + 1..].iter().all(u8::is_ascii_digit), || {
            format!("the call forwarding of subscriber {s_id} at {start_time} has values out of range")
        });
    })?;
    if let Some(expected) = expected {
        report.require(count == expected, || {
            format!("there are {count} call forwardings; the transactions must have left {expected}")
        });
    }
    report.fact(format!("call forwarding: {count} rows"));
    Ok(())
}
