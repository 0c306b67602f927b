//! Taking traces, and slowing visits down.

#[cfg(not(duramen_trace))]
pub(super) use elsewhere::{Slowed, trace};
#[cfg(duramen_trace)]
pub(super) use here::{Slowed, trace};

#[cfg(duramen_trace)]
mod here {
    use std::time::Duration;

    use duramen::CommitMode;
    use duramen_sync::page_trace;
    use duramen_workloads::{Limit, RunOptions, run};

    use super::super::Trace;
    use crate::contender::{Clients, IN_PLACE};
    use crate::error::Result;
    use crate::nvm_bed::{Job, NvmBed, NvmRig};

    /// Runs this many transactions of one client, twice; the first time warms caches up.
    pub(in super::super) fn trace(bed: &NvmBed, job: Job, transactions: u64) -> Result<Trace> {
        let rig = bed.open(IN_PLACE, CommitMode::Sync, Duration::ZERO)?;
        let workload = job.on(rig.db())?;
        let go = |seed| {
            let limit = Limit::Transactions(transactions);
            let observe_every = Duration::from_secs(1);
            let options = RunOptions { clients: 1, rate: None, agents: 1, limit, seed, observe_every };
            run(rig.db(), &*workload, &options, &mut |_| {})
        };
        page_trace::take();
        page_trace::record(true);
        let warmed = go(1);
        page_trace::record(false);
        warmed?;
        let mut visits = page_trace::take();
        let warm_up = visits.len();
        page_trace::record(true);
        let report = go(2);
        page_trace::record(false);
        let committed = report?.committed;
        visits.append(&mut page_trace::take());
        rig.close()?;
        Ok(Trace::new(visits, warm_up, committed))
    }

    /// An open database whose every visit of a page can take longer.
    pub(in super::super) struct Slowed(NvmRig);

    impl Slowed {
        /// Opens the database, and reads pages into memory for so long.
        pub(in super::super) fn open(bed: &NvmBed, time: Duration) -> Result<Self> {
            let slowed = Self(bed.open(IN_PLACE, CommitMode::Elr, Duration::ZERO)?);
            slowed.throughput(Duration::ZERO, time)?;
            Ok(slowed)
        }

        /// Returns the commits per second of two threads if each visit takes so much longer.
        pub(in super::super) fn throughput(&self, delay: Duration, time: Duration) -> Result<f64> {
            // Some delay is always there, so that all runs look visits up in the same way.
            page_trace::delay_visits(delay.max(Duration::from_nanos(1)));
            let measured = self.0.measure(Clients::blocking(2), time);
            page_trace::delay_visits(Duration::ZERO);
            Ok(measured?.throughput)
        }

        /// Closes the database.
        pub(in super::super) fn close(self) -> Result<()> {
            self.0.close()
        }
    }
}

#[cfg(not(duramen_trace))]
mod elsewhere {
    use std::time::Duration;

    use super::super::Trace;
    use crate::error::{Error, Result};
    use crate::nvm_bed::{Job, NvmBed};

    /// Returns an error: this build takes no traces.
    pub(in super::super) fn trace(_: &NvmBed, _: Job, _: u64) -> Result<Trace> {
        Err(Error::NotTraced)
    }

    /// What this build does not have.
    pub(in super::super) enum Slowed {}

    impl Slowed {
        /// Returns an error: this build slows nothing down.
        pub(in super::super) fn open(_: &NvmBed, _: Duration) -> Result<Self> {
            Err(Error::NotTraced)
        }

        pub(in super::super) fn throughput(&self, _: Duration, _: Duration) -> Result<f64> {
            match *self {}
        }

        pub(in super::super) fn close(self) -> Result<()> {
            match self {}
        }
    }
}
