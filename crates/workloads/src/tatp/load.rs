//! Populates a TATP database: a few thousand subscribers with all their rows are a portion.

use std::ops::Range;

use super::Tables;
use super::profile::Profile;
use super::row::{forwarding_key, kind_key, subscriber_key};
use super::scale::Scale;
use crate::error::Result;
use crate::population::{Loader, Population};
use crate::store::Store;

/// Subscribers of one portion.
const PORTION: u64 = 5_000;
/// Rows of a subscriber on average, in quarters: subscriber, number, 2.5 access infos, 2.5
/// facilities, 3.75 forwardings.
const QUARTER_ROWS: u64 = 43;

#[derive(Clone)]
pub(super) struct SubscriberPopulation<T> {
    tables: Tables<T>,
    scale: Scale,
}

impl<T> SubscriberPopulation<T> {
    /// Makes the tables that are not there.
    pub(super) fn prepare<S: Store<Table = T>>(store: &S, scale: Scale) -> Result<Self> {
        Ok(Self { tables: Tables::with(|name| store.make_table(name))?, scale })
    }

    fn subscribers(&self, portion: u64) -> Range<u64> {
        portion * PORTION + 1..((portion + 1) * PORTION).min(self.scale.subscribers) + 1
    }
}

impl<S: Store> Population<S> for SubscriberPopulation<S::Table> {
    fn portions(&self) -> u64 {
        self.scale.subscribers.div_ceil(PORTION)
    }

    fn rows(&self, portion: u64) -> u64 {
        let Range { start, end } = self.subscribers(portion);
        (end - start) * QUARTER_ROWS / 4
    }

    fn load(&self, portion: u64, loader: &mut Loader<'_, S>) -> Result<()> {
        let tables = &self.tables;
        for s_id in self.subscribers(portion) {
            let s_id = s_id as u32;
            let profile = Profile::of(s_id);
            loader.put(&tables.subscriber, &subscriber_key(s_id), &profile.subscriber.encode())?;
            loader.put(&tables.sub_nbr, &profile.subscriber.sub_nbr, &s_id.to_le_bytes())?;
            for (ai_type, row) in profile.access_info {
                loader.put(&tables.access_info, &kind_key(s_id, ai_type), &row)?;
            }
            for (sf_type, row) in profile.facilities {
                loader.put(&tables.special_facility, &kind_key(s_id, sf_type), &row)?;
            }
            for (sf_type, start_time, row) in profile.forwardings {
                loader.put(&tables.call_forwarding, &forwarding_key(s_id, sf_type, start_time), &row)?;
            }
        }
        Ok(())
    }
}
