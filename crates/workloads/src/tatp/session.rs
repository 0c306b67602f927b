//! The seven transactions of TATP.

use std::hint::black_box;
use std::ops::ControlFlow;

use duramen_sync::Arc;
use duramen_sync::atomic::Ordering;
use rand::RngExt;
use rand::rngs::StdRng;

use super::profile::{START_TIMES, forwarding};
use super::row::{
    CallForwarding, DATA_A, END_TIME, IS_ACTIVE, NUMBER_LEN, SpecialFacility, Subscriber, forwarding_key, kind_key,
    sub_nbr, subscriber_key,
};
use super::{Forwardings, Mix, Tables};
use crate::error::{Error, Result};
use crate::random::Chooser;
use crate::store::{Access, Acknowledge, Connection, Pending, ScanRange, Store, Transaction};
use crate::workload::{Done, Executed, Session};

/// The kinds of transactions.
pub(super) const KINDS: [&str; 7] = [
    "get-subscriber-data",
    "get-new-destination",
    "get-access-data",
    "update-subscriber-data",
    "update-location",
    "insert-call-forwarding",
    "delete-call-forwarding",
];

/// Inputs of one transaction; the order is that of [`KINDS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inputs {
    GetSubscriberData { s_id: u32 },
    GetNewDestination { s_id: u32, sf_type: u8, start_time: u8, end_time: u8 },
    GetAccessData { s_id: u32, ai_type: u8 },
    UpdateSubscriberData { s_id: u32, bit: u8, sf_type: u8, data_a: u8 },
    UpdateLocation { sub_nbr: [u8; NUMBER_LEN], vlr_location: u32 },
    InsertCallForwarding { sub_nbr: [u8; NUMBER_LEN], sf_type: u8, start_time: u8, row: CallForwarding },
    DeleteCallForwarding { sub_nbr: [u8; NUMBER_LEN], sf_type: u8, start_time: u8 },
}

impl Inputs {
    /// Draws a transaction of `mix`, and its inputs.
    fn draw(mix: Mix, subscribers: &Chooser, rng: &mut StdRng) -> Self {
        let s_id = subscribers.draw(rng) as u32 + 1;
        let percent = match mix {
            Mix::Standard => rng.random_range(0..100),
            Mix::GetSubscriber => 0,
            Mix::UpdateLocation => 82,
        };
        // Written out, as every number drawn costs as much as a good part of a transaction.
        match percent {
            0..35 => Self::GetSubscriberData { s_id },
            35..45 => Self::GetNewDestination {
                s_id,
                sf_type: rng.random_range(1..=4),
                start_time: START_TIMES[rng.random_range(0..START_TIMES.len())],
                end_time: rng.random_range(1..=24),
            },
            45..80 => Self::GetAccessData { s_id, ai_type: rng.random_range(1..=4) },
            80..82 => Self::UpdateSubscriberData {
                s_id,
                bit: rng.random_range(0..2),
                sf_type: rng.random_range(1..=4),
                data_a: rng.random(),
            },
            82..96 => Self::UpdateLocation { sub_nbr: sub_nbr(s_id), vlr_location: rng.random_range(1..=u32::MAX) },
            96..98 => Self::InsertCallForwarding {
                sub_nbr: sub_nbr(s_id),
                sf_type: rng.random_range(1..=4),
                start_time: START_TIMES[rng.random_range(0..START_TIMES.len())],
                row: forwarding(rng, 0, 24),
            },
            _ => Self::DeleteCallForwarding {
                sub_nbr: sub_nbr(s_id),
                sf_type: rng.random_range(1..=4),
                start_time: START_TIMES[rng.random_range(0..START_TIMES.len())],
            },
        }
    }

    fn kind(&self) -> usize {
        match self {
            Self::GetSubscriberData { .. } => 0,
            Self::GetNewDestination { .. } => 1,
            Self::GetAccessData { .. } => 2,
            Self::UpdateSubscriberData { .. } => 3,
            Self::UpdateLocation { .. } => 4,
            Self::InsertCallForwarding { .. } => 5,
            Self::DeleteCallForwarding { .. } => 6,
        }
    }
}

/// One client.
pub(super) struct TatpSession<S: Store> {
    connection: S::Connection,
    tables: Tables<S::Table>,
    mix: Mix,
    subscribers: Chooser,
    inputs: Inputs,
    forwardings: Arc<Forwardings>,
    /// Call forwardings inserted, less those deleted.
    added: i64,
}

impl<S: Store> TatpSession<S> {
    pub(super) fn open(store: &S, mix: Mix, subscribers: Chooser, forwardings: Arc<Forwardings>) -> Result<Self> {
        let (connection, tables) = (store.connect()?, Tables::open(store)?);
        forwardings.open_sessions.fetch_add(1, Ordering::Relaxed);
        let inputs = Inputs::GetSubscriberData { s_id: 1 };
        Ok(Self { connection, tables, mix, subscribers, inputs, forwardings, added: 0 })
    }
}

impl<S: Store> Drop for TatpSession<S> {
    fn drop(&mut self) {
        self.forwardings.add(self.added);
        self.forwardings.open_sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Store> Session for TatpSession<S> {
    fn draw(&mut self, rng: &mut StdRng) {
        self.inputs = Inputs::draw(self.mix, &self.subscribers, rng);
    }

    fn execute(&mut self, acknowledge: Acknowledge) -> Result<Executed> {
        let (connection, tables) = (&mut self.connection, &self.tables);
        let (succeeded, pending) = match self.inputs {
            Inputs::GetSubscriberData { s_id } => get_subscriber_data(connection, tables, s_id, acknowledge)?,
            Inputs::GetNewDestination { s_id, sf_type, start_time, end_time } => {
                get_new_destination(connection, tables, s_id, sf_type, start_time, end_time, acknowledge)?
            }
            Inputs::GetAccessData { s_id, ai_type } => get_access_data(connection, tables, s_id, ai_type, acknowledge)?,
            Inputs::UpdateSubscriberData { s_id, bit, sf_type, data_a } => {
                update_subscriber_data(connection, tables, s_id, bit, sf_type, data_a, acknowledge)?
            }
            Inputs::UpdateLocation { sub_nbr, vlr_location } => {
                update_location(connection, tables, &sub_nbr, vlr_location, acknowledge)?
            }
            Inputs::InsertCallForwarding { sub_nbr, sf_type, start_time, row } => {
                let (done, pending) =
                    insert_call_forwarding(connection, tables, &sub_nbr, sf_type, start_time, &row, acknowledge)?;
                self.added += i64::from(done);
                (done, pending)
            }
            Inputs::DeleteCallForwarding { sub_nbr, sf_type, start_time } => {
                let (done, pending) =
                    delete_call_forwarding(connection, tables, &sub_nbr, sf_type, start_time, acknowledge)?;
                self.added -= i64::from(done);
                (done, pending)
            }
        };
        Ok(Executed { done: Done { kind: self.inputs.kind(), declined: !succeeded }, pending })
    }
}

/// Whether the transaction succeeded, and its acknowledgement.
type Outcome = Result<(bool, Pending)>;

#[inline]
fn get_subscriber_data<C: Connection>(
    connection: &mut C,
    tables: &Tables<C::Table>,
    s_id: u32,
    acknowledge: Acknowledge,
) -> Outcome {
    let mut txn = connection.begin(Access::ReadOnly)?;
    let row = txn.get(&tables.subscriber, &subscriber_key(s_id), Subscriber::decode)?;
    black_box(row.flatten().ok_or_else(|| damaged("subscriber", s_id))?);
    Ok((true, txn.commit_for(acknowledge)?))
}

/// Returns the numbers to which a call at `start_time` is forwarded until after `end_time`.
#[inline]
fn get_new_destination<C: Connection>(
    connection: &mut C,
    tables: &Tables<C::Table>,
    s_id: u32,
    sf_type: u8,
    start_time: u8,
    end_time: u8,
    acknowledge: Acknowledge,
) -> Outcome {
    let mut txn = connection.begin(Access::ReadOnly)?;
    let active = txn.get(&tables.special_facility, &kind_key(s_id, sf_type), |row| row.get(IS_ACTIVE) == Some(&1))?;
    let mut found = false;
    if active == Some(true) {
        let (first, last) = (forwarding_key(s_id, sf_type, 0), forwarding_key(s_id, sf_type, start_time + 1));
        let range = ScanRange::new(&first, &last).limit(START_TIMES.len());
        txn.scan(&tables.call_forwarding, range, |_, row| {
            if let Ok(row) = CallForwarding::try_from(row)
                && end_time < row[END_TIME]
            {
                black_box(row);
                found = true;
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok((found, txn.commit_for(acknowledge)?))
}

#[inline]
fn get_access_data<C: Connection>(
    connection: &mut C,
    tables: &Tables<C::Table>,
    s_id: u32,
    ai_type: u8,
    acknowledge: Acknowledge,
) -> Outcome {
    let mut txn = connection.begin(Access::ReadOnly)?;
    let row =
        txn.get(&tables.access_info, &kind_key(s_id, ai_type), |row| super::row::AccessInfo::try_from(row).ok())?;
    let found = black_box(row).is_some();
    Ok((found, txn.commit_for(acknowledge)?))
}

#[inline]
fn update_subscriber_data<C: Connection>(
    connection: &mut C,
    tables: &Tables<C::Table>,
    s_id: u32,
    bit: u8,
    sf_type: u8,
    data_a: u8,
    acknowledge: Acknowledge,
) -> Outcome {
    let mut txn = connection.begin(Access::ReadWrite)?;
    txn.modify(&tables.subscriber, &subscriber_key(s_id), |row| set(row, Subscriber::BIT_1, &[bit]))?
        .flatten()
        .ok_or_else(|| damaged("subscriber", s_id))?;
    let facility = kind_key(s_id, sf_type);
    match txn.modify(&tables.special_facility, &facility, |row| set(row, DATA_A, &[data_a]))? {
        Some(changed) => changed.ok_or_else(|| damaged("special facility", s_id))?,
        None => {
            return Ok((false, txn.abort_for(acknowledge)?));
        }
    }
    Ok((true, txn.commit_for(acknowledge)?))
}

#[inline]
fn update_location<C: Connection>(
    connection: &mut C,
    tables: &Tables<C::Table>,
    sub_nbr: &[u8; NUMBER_LEN],
    vlr_location: u32,
    acknowledge: Acknowledge,
) -> Outcome {
    let mut txn = connection.begin(Access::ReadWrite)?;
    let s_id = find_subscriber(&mut txn, tables, sub_nbr)?;
    let place = vlr_location.to_le_bytes();
    txn.modify(&tables.subscriber, &subscriber_key(s_id), |row| set(row, Subscriber::VLR_LOCATION, &place))?
        .flatten()
        .ok_or_else(|| damaged("subscriber", s_id))?;
    Ok((true, txn.commit_for(acknowledge)?))
}

/// Inserts a call forwarding, unless there is one or the subscriber has no such special facility.
#[inline]
fn insert_call_forwarding<C: Connection>(
    connection: &mut C,
    tables: &Tables<C::Table>,
    sub_nbr: &[u8; NUMBER_LEN],
    sf_type: u8,
    start_time: u8,
    row: &CallForwarding,
    acknowledge: Acknowledge,
) -> Outcome {
    let mut txn = connection.begin(Access::ReadWrite)?;
    let s_id = find_subscriber(&mut txn, tables, sub_nbr)?;
    let (first, last) = (kind_key(s_id, 0), kind_key(s_id, u8::MAX));
    let mut offered = false;
    txn.scan(&tables.special_facility, ScanRange::new(&first, &last), |key, _| {
        offered |= key.last() == Some(&sf_type);
        ControlFlow::Continue(())
    })?;
    let done = offered && txn.insert(&tables.call_forwarding, &forwarding_key(s_id, sf_type, start_time), row)?;
    let pending = if done { txn.commit_for(acknowledge)? } else { txn.abort_for(acknowledge)? };
    Ok((done, pending))
}

#[inline]
fn delete_call_forwarding<C: Connection>(
    connection: &mut C,
    tables: &Tables<C::Table>,
    sub_nbr: &[u8; NUMBER_LEN],
    sf_type: u8,
    start_time: u8,
    acknowledge: Acknowledge,
) -> Outcome {
    let mut txn = connection.begin(Access::ReadWrite)?;
    let s_id = find_subscriber(&mut txn, tables, sub_nbr)?;
    let done = txn.delete(&tables.call_forwarding, &forwarding_key(s_id, sf_type, start_time))?;
    let pending = if done { txn.commit_for(acknowledge)? } else { txn.abort_for(acknowledge)? };
    Ok((done, pending))
}

/// Looks the number up in the index.
#[inline]
fn find_subscriber<T: Transaction>(txn: &mut T, tables: &Tables<T::Table>, sub_nbr: &[u8; NUMBER_LEN]) -> Result<u32> {
    let found = txn.get(&tables.sub_nbr, sub_nbr, |row| Some(u32::from_le_bytes(row.try_into().ok()?)))?;
    found.flatten().ok_or_else(|| Error::Damaged {
        reason: format!("the index has no subscriber with the number {}", String::from_utf8_lossy(sub_nbr)),
    })
}

/// Overwrites the bytes at `at`, if the row has them.
fn set(row: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    row.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
    Some(())
}

fn damaged(what: &str, s_id: u32) -> Error {
    Error::Damaged { reason: format!("{what} {s_id} of TATP is missing or has the wrong length") }
}

const _: () = assert!(size_of::<SpecialFacility>() == 8 && size_of::<Inputs>() <= 40);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tatp::Scale;
    use rand::SeedableRng;

    #[test]
    fn the_mix_is_the_specification_s() {
        let chooser = Scale::standard(1).chooser();
        let mut rng = StdRng::seed_from_u64(3);
        let mut counts = [0u32; 7];
        for _ in 0..100_000 {
            counts[Inputs::draw(Mix::Standard, &chooser, &mut rng).kind()] += 1;
        }
        for (count, percent) in counts.iter().zip([35, 10, 35, 2, 14, 2, 2]) {
            assert!(count.abs_diff(percent * 1_000) < 500, "{counts:?}");
        }
        assert_eq!(Inputs::draw(Mix::GetSubscriber, &chooser, &mut rng).kind(), 0);
        assert_eq!(Inputs::draw(Mix::UpdateLocation, &chooser, &mut rng).kind(), 4);
    }
}
