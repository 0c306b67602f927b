//! TATP, the Telecom Application Transaction Processing benchmark: the home location register of a
//! mobile network.
//!
//! Seven very small transactions over four tables, four in five of them reads. Some inputs make a
//! transaction find nothing or insert what is there; that is foreseen, and such transactions count
//! (see [`crate::Done::declined`]). An index leads from a subscriber's number to its key; it is a
//! table of its own.

mod audit;
mod load;
mod profile;
pub mod row;
mod scale;
mod session;

use duramen_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex};

pub use scale::Scale;

use crate::audit::AuditReport;
use crate::error::Result;
use crate::population;
use crate::random::Chooser;
use crate::store::Store;
use crate::workload::{LoadOutcome, LoadProgress, Session, Workload};

/// The tables.
#[derive(Clone, Debug)]
pub struct Tables<T> {
    /// Subscribers by s_id.
    pub subscriber: T,
    /// The index: s_id by sub_nbr.
    pub sub_nbr: T,
    /// One to four rows for each subscriber.
    pub access_info: T,
    /// One to four rows for each subscriber.
    pub special_facility: T,
    /// None to three rows for each special facility.
    pub call_forwarding: T,
}

impl<T> Tables<T> {
    /// Opens all of them.
    ///
    /// # Errors
    /// [`crate::Error::MissingTable`] when the population has not begun.
    pub fn open<S: Store<Table = T>>(store: &S) -> Result<Self> {
        Self::with(|name| store.table(name))
    }

    fn with(open: impl Fn(&str) -> Result<T>) -> Result<Self> {
        Ok(Self {
            subscriber: open("tatp_subscriber")?,
            sub_nbr: open("tatp_sub_nbr")?,
            access_info: open("tatp_access_info")?,
            special_facility: open("tatp_special_facility")?,
            call_forwarding: open("tatp_call_forwarding")?,
        })
    }
}

/// Which transactions are run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mix {
    /// The specification's: 35 % get subscriber data, 10 % get new destination, 35 % get access
    /// data, 2 % update subscriber data, 14 % update location, 2 % insert and 2 % delete call
    /// forwarding.
    #[default]
    Standard,
    /// Only get subscriber data: one read.
    GetSubscriber,
    /// Only update location: one read, one small update.
    UpdateLocation,
}

/// The TATP workload.
#[derive(Debug)]
pub struct Tatp {
    scale: Scale,
    mix: Mix,
    chooser: Chooser,
    forwardings: Arc<Forwardings>,
}

/// How many call forwardings there must be: those counted when the first session was opened, and
/// what sessions that have ended did since.
#[derive(Default, Debug)]
struct Forwardings {
    counted: Mutex<Option<u64>>,
    added: AtomicI64,
    open_sessions: AtomicU64,
}

impl Forwardings {
    fn add(&self, change: i64) {
        self.added.fetch_add(change, Ordering::Relaxed);
    }

    /// `None` when they were not counted.
    fn expected(&self) -> Option<i64> {
        assert_eq!(self.open_sessions.load(Ordering::Relaxed), 0, "nothing is audited while sessions are open");
        let counted = *self.counted.lock();
        counted.map(|counted| counted.cast_signed() + self.added.load(Ordering::Relaxed))
    }
}

impl Tatp {
    /// TATP at `scale`. Subscribers are drawn from the specification's non-uniform distribution,
    /// or, if `skew` is given, from a Zipfian one with this exponent, 0 being uniform.
    pub fn new(scale: Scale, mix: Mix, skew: Option<f64>) -> Self {
        let chooser = Chooser::with_skew(scale.chooser(), skew);
        Self { scale, mix, chooser, forwardings: Arc::default() }
    }
}

impl<S: Store> Workload<S> for Tatp {
    fn name(&self) -> &'static str {
        match self.mix {
            Mix::Standard => "tatp",
            Mix::GetSubscriber => "tatp:get-subscriber",
            Mix::UpdateLocation => "tatp:update-location",
        }
    }

    fn scale(&self) -> String {
        self.scale.to_string()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &session::KINDS
    }

    fn load(&self, store: &S, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
        population::load(store, self.scale, observe, |store| load::SubscriberPopulation::prepare(store, self.scale))
    }

    fn session(&self, store: &S, _: u32) -> Result<Box<dyn Session>> {
        let mut counted = self.forwardings.counted.lock();
        if counted.is_none() && self.mix == Mix::Standard {
            *counted = Some(audit::count_forwardings(store)?);
        }
        drop(counted);
        Ok(Box::new(session::TatpSession::open(store, self.mix, self.chooser, self.forwardings.clone())?))
    }

    /// Checks that exactly the subscribers, access infos and special facilities of the population
    /// are there, with their first values in all columns that no transaction changes and with
    /// allowed values in the others. The index and the subscribers must agree. Every call
    /// forwarding must belong to a special facility, and there must be as many as the transactions
    /// of this object's sessions have left.
    fn audit(&self, store: &S) -> Result<AuditReport> {
        population::audit(store, self.scale, |report| {
            audit::audit(store, self.scale, self.forwardings.expected(), report)
        })
    }
}
