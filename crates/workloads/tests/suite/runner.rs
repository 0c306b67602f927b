//! The runner with a workload that does nothing but fail now and then.

use std::time::Duration;

use duramen::{Db, Options};
use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_workloads::store::{Acknowledge, Pending};
use duramen_workloads::{
    AuditReport, Done, Error, Executed, Limit, LoadOutcome, LoadProgress, Result, RunOptions, Session, Workload, run,
};
use rand::RngExt;
use rand::rngs::StdRng;

/// Each transaction fails `failures` times before it succeeds; the inputs of all clients are added
/// up.
#[derive(Debug, Default)]
struct Flaky {
    failures: u64,
    inputs: Arc<AtomicU64>,
}

struct FlakySession {
    db: Db,
    failures: u64,
    left: u64,
    input: u64,
    inputs: Arc<AtomicU64>,
}

impl Workload<Db> for Flaky {
    fn name(&self) -> &'static str {
        "flaky"
    }

    fn scale(&self) -> String {
        String::new()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["flaky"]
    }

    fn load(&self, _: &Db, _: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
        Ok(LoadOutcome::Present)
    }

    fn session(&self, db: &Db, _: u32) -> Result<Box<dyn Session>> {
        let (db, inputs) = (db.clone(), self.inputs.clone());
        Ok(Box::new(FlakySession { db, failures: self.failures, left: 0, input: 0, inputs }))
    }

    fn audit(&self, _: &Db) -> Result<AuditReport> {
        Ok(AuditReport::new())
    }
}

impl Session for FlakySession {
    fn draw(&mut self, rng: &mut StdRng) {
        self.left = self.failures;
        self.input = rng.random_range(0..1 << 20);
    }

    fn execute(&mut self, _: Acknowledge) -> Result<Executed> {
        if self.left > 0 {
            self.left -= 1;
            return Err(duramen::Error::Deadlock { txn: self.db.begin().id(), of_own_thread: false }.into());
        }
        self.inputs.fetch_add(self.input, Ordering::Relaxed);
        Ok(Executed { done: Done::committed(0), pending: Pending::default() })
    }
}

fn open(home: &tempfile::TempDir) -> Db {
    Db::open(home.path().join("db"), Options { pool_bytes: 4 << 20, ..Options::default() }).unwrap()
}

#[test]
fn retries_are_counted_and_the_limit_is_dealt_out() {
    let home = tempfile::tempdir().unwrap();
    let db = open(&home);
    let flaky = Flaky { failures: 2, ..Flaky::default() };
    let limit = Limit::Transactions(11);
    let options =
        RunOptions { clients: 4, agents: 2, rate: None, limit, seed: 1, observe_every: Duration::from_millis(1) };
    let report = run(&db, &flaky, &options, &mut |_| {}).unwrap();
    assert_eq!((report.committed, report.aborted), (11, 22));
    assert!((report.abort_rate() - 2.0 / 3.0).abs() < 1e-9);
    assert!(report.throughput() > 0.0);
}

#[test]
fn a_seed_fixes_the_inputs_of_every_client() {
    let home = tempfile::tempdir().unwrap();
    let db = open(&home);
    let drawn = |seed| {
        let steady = Flaky::default();
        let limit = Limit::Transactions(300);
        let options =
            RunOptions { clients: 3, agents: 2, rate: None, limit, seed, observe_every: Duration::from_millis(1) };
        run(&db, &steady, &options, &mut |_| {}).unwrap();
        steady.inputs.load(Ordering::Relaxed)
    };
    assert_eq!(drawn(5), drawn(5));
    assert_ne!(drawn(5), drawn(6));
}

#[test]
fn time_runs_out_for_a_transaction_that_never_succeeds() {
    let home = tempfile::tempdir().unwrap();
    let db = open(&home);
    let hopeless = Flaky { failures: u64::MAX, ..Flaky::default() };
    let limit = Limit::Time(Duration::from_millis(50));
    let options =
        RunOptions { clients: 2, agents: 2, rate: None, limit, seed: 1, observe_every: Duration::from_millis(10) };
    let report = run(&db, &hopeless, &options, &mut |_| {}).unwrap();
    assert_eq!(report.committed, 0);
    assert!(report.aborted > 0);
    assert_eq!(report.latencies.max(), Duration::ZERO);
}

#[test]
fn an_error_that_is_not_retryable_names_its_client() {
    #[derive(Debug)]
    struct Broken;
    struct BrokenSession(u32);
    impl Workload<Db> for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn scale(&self) -> String {
            String::new()
        }
        fn kinds(&self) -> &'static [&'static str] {
            &["broken"]
        }
        fn load(&self, _: &Db, _: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
            Ok(LoadOutcome::Present)
        }
        fn session(&self, _: &Db, client: u32) -> Result<Box<dyn Session>> {
            Ok(Box::new(BrokenSession(client)))
        }
        fn audit(&self, _: &Db) -> Result<AuditReport> {
            Ok(AuditReport::new())
        }
    }
    impl Session for BrokenSession {
        fn draw(&mut self, _: &mut StdRng) {}
        fn execute(&mut self, _: Acknowledge) -> Result<Executed> {
            if self.0 == 2 {
                Err(Error::Damaged { reason: "on purpose".into() })
            } else {
                Ok(Executed { done: Done::committed(0), pending: Pending::default() })
            }
        }
    }
    let home = tempfile::tempdir().unwrap();
    let limit = Limit::Time(Duration::from_secs(60));
    let options =
        RunOptions { clients: 3, agents: 2, rate: None, limit, seed: 1, observe_every: Duration::from_millis(10) };
    let error = run(&open(&home), &Broken, &options, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Client { client: 2, .. }), "{error}");
    assert!(error.is_damage());
}

#[test]
fn a_rate_is_kept_and_lateness_counts() {
    let home = tempfile::tempdir().unwrap();
    let db = open(&home);
    let limit = Limit::Transactions(200);
    for agents in [2, 4] {
        let options = RunOptions {
            clients: 4,
            agents,
            rate: Some(1000.0),
            limit,
            seed: 1,
            observe_every: Duration::from_millis(10),
        };
        let report = run(&db, &Flaky::default(), &options, &mut |_| {}).unwrap();
        assert_eq!(report.committed, 200);
        // The last of them begins one millisecond before the time is over.
        assert!(report.elapsed >= Duration::from_millis(199), "{:?}", report.elapsed);
    }
    let options = RunOptions { clients: 1, agents: 1, rate: Some(0.0), limit, seed: 1, observe_every: Duration::MAX };
    assert!(matches!(run(&db, &Flaky::default(), &options, &mut |_| {}), Err(Error::InvalidParameter { .. })));
}
