//! A workload whose transactions are timed from their begin to their acknowledgement.
//!
//! The runner's own latencies include the wait of a client for a thread. The paper on the NVRAM era
//! leaves that out, and with as many clients as group commit needs, it would be most of a latency.
//! Sessions keep their latencies to themselves until they end, so that threads do not meet.

use std::time::Duration;

use duramen::Db;
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, Mutex};
use duramen_workloads::store::Acknowledge;
use duramen_workloads::{AuditReport, Executed, Latencies, LoadOutcome, LoadProgress, Result, Session, Workload};
use rand::rngs::StdRng;

/// A workload, and the latencies of the sessions that have ended.
#[derive(Debug)]
pub(crate) struct Timed<'w> {
    workload: &'w dyn Workload<Db>,
    latencies: Arc<Mutex<Latencies>>,
}

impl<'w> Timed<'w> {
    pub(crate) fn new(workload: &'w dyn Workload<Db>) -> Self {
        Self { workload, latencies: Arc::new(Mutex::new(Latencies::new())) }
    }

    /// Returns the time that this share of the transactions does not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        self.latencies.lock().quantile(share)
    }
}

impl Workload<Db> for Timed<'_> {
    fn name(&self) -> &'static str {
        self.workload.name()
    }

    fn scale(&self) -> String {
        self.workload.scale()
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.workload.kinds()
    }

    fn load(&self, db: &Db, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
        self.workload.load(db, observe)
    }

    fn session(&self, db: &Db, client: u32) -> Result<Box<dyn Session>> {
        let session = self.workload.session(db, client)?;
        Ok(Box::new(TimedSession { session, begun: None, own: Vec::new(), all: self.latencies.clone() }))
    }

    fn audit(&self, db: &Db) -> Result<AuditReport> {
        self.workload.audit(db)
    }
}

struct TimedSession {
    session: Box<dyn Session>,
    /// When the first attempt of the current transaction began.
    begun: Option<Instant>,
    own: Vec<Duration>,
    all: Arc<Mutex<Latencies>>,
}

impl Session for TimedSession {
    fn draw(&mut self, rng: &mut StdRng) {
        self.session.draw(rng);
    }

    fn execute(&mut self, acknowledge: Acknowledge) -> Result<Executed> {
        self.begun.get_or_insert_with(Instant::now);
        self.session.execute(acknowledge)
    }

    fn acknowledged(&mut self) -> Result<()> {
        if let Some(begun) = self.begun.take() {
            self.own.push(Instant::now().since(begun));
        }
        self.session.acknowledged()
    }
}

impl Drop for TimedSession {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        self.own.iter().for_each(|latency| all.record(*latency));
    }
}

#[cfg(test)]
mod tests {
    use duramen_workloads::Error;
    use rand::SeedableRng;

    use super::*;

    /// Each attempt takes 5 ms and fails.
    struct Slow;

    impl Session for Slow {
        fn draw(&mut self, _: &mut StdRng) {}

        fn execute(&mut self, _: Acknowledge) -> Result<Executed> {
            duramen_sync::thread::sleep(Duration::from_millis(5));
            Err(Error::Thread(std::io::Error::other("an attempt fails")))
        }
    }

    #[test]
    fn a_latency_runs_from_the_first_attempt_and_leaves_out_what_lies_between_transactions() {
        let all = Arc::new(Mutex::new(Latencies::new()));
        let mut session = TimedSession { session: Box::new(Slow), begun: None, own: Vec::new(), all: all.clone() };
        session.draw(&mut StdRng::seed_from_u64(1));
        for attempts in [2, 1] {
            (0..attempts).for_each(|_| drop(session.execute(Acknowledge::OnReturn).unwrap_err()));
            session.acknowledged().unwrap();
            duramen_sync::thread::sleep(Duration::from_secs(1));
        }
        assert!(session.own[0] >= Duration::from_millis(10), "{:?}", session.own);
        drop(session);
        let all = all.lock();
        assert_eq!(all.count(), 2);
        assert!(all.max() < Duration::from_secs(1), "{:?}", all.max());
    }
}
