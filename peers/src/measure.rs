//! One measurement: a process of its own, so that no engine's threads, caches or counts touch
//! another's.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use duramen_peers::engines::{Durability, Engine, OwnCounts, Peer, Visit};
use duramen_workloads::{Limit, LoadOutcome, Request, RunOptions, RunReport, Workload, run};
use serde::{Deserialize, Serialize};

use crate::syscalls::{self, Counts};

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) engine: Engine,
    pub(crate) workload: String,
    pub(crate) scale: Option<u64>,
    pub(crate) durability: Durability,
    pub(crate) clients: u32,
    pub(crate) seconds: f64,
    pub(crate) warmup: f64,
    pub(crate) seed: u64,
}

/// What came of it. Scripts rely on these names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) engine: String,
    pub(crate) workload: String,
    pub(crate) scale: String,
    pub(crate) durability: String,
    pub(crate) clients: u32,
    pub(crate) threads: u32,
    pub(crate) run: u32,
    pub(crate) seconds: f64,
    pub(crate) committed: u64,
    /// Attempts that another transaction spoilt.
    pub(crate) aborted: u64,
    pub(crate) tps: f64,
    pub(crate) p50_us: f64,
    pub(crate) p95_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
    /// Bytes that were written by calls of the C library, or, where the engine goes past it, the
    /// engine's own count.
    pub(crate) written: u64,
    /// `write_bytes` of `/proc/self/io`. The kernel counts a whole folio when a part of it is made
    /// dirty.
    pub(crate) write_bytes: Option<u64>,
    /// What made data durable: the C library's calls, or, where the engine goes past it, the
    /// engine's own count.
    pub(crate) syncs: u64,
    /// `libc` or `engine`: who counted.
    pub(crate) counted_by: String,
    pub(crate) calls: Counts,
    /// Context switches of threads that waited.
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// `ok`, or what is wrong.
    pub(crate) audit: String,
}

impl Measurement {
    /// A header and a row for each line of a table that other programs read.
    pub(crate) const CSV_HEADER: &str = "workload,engine,durability,clients,threads,run,seconds,committed,aborted,tps,\
        p50_us,p95_us,p99_us,max_us,written,write_bytes,syncs,counted_by,fsync,fdatasync,msync,sync_file_range,\
        sync_writes,voluntary_switches,involuntary_switches,audit";

    pub(crate) fn csv(&self) -> String {
        let Counts { fsync, fdatasync, msync, sync_file_range, sync_writes, .. } = self.calls;
        let fields = [
            self.workload.clone(),
            self.engine.clone(),
            self.durability.clone(),
            self.clients.to_string(),
            self.threads.to_string(),
            self.run.to_string(),
            self.seconds.to_string(),
            self.committed.to_string(),
            self.aborted.to_string(),
            self.tps.to_string(),
            self.p50_us.to_string(),
            self.p95_us.to_string(),
            self.p99_us.to_string(),
            self.max_us.to_string(),
            self.written.to_string(),
            self.write_bytes.map_or(String::new(), |bytes| bytes.to_string()),
            self.syncs.to_string(),
            self.counted_by.clone(),
            fsync.to_string(),
            fdatasync.to_string(),
            msync.to_string(),
            sync_file_range.to_string(),
            sync_writes.to_string(),
            self.voluntary_switches.to_string(),
            self.involuntary_switches.to_string(),
            format!("\"{}\"", self.audit.replace('"', "\"\"")),
        ];
        fields.join(",")
    }
}

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Makes and populates a database in `home`.
pub(crate) fn load(order: &Order, home: &Path) -> Outcome<()> {
    struct Load<'o>(&'o Order, &'o Path);
    impl Visit for Load<'_> {
        type Output = Outcome<()>;
        fn visit<P: Peer>(self) -> Outcome<()> {
            let Self(order, home) = self;
            let store = P::open(home, order.durability)?;
            let workload = workload(order, &store)?;
            workload.load(&store, &mut |_| {})?;
            Ok(store.close()?)
        }
    }
    order.engine.visit(Load(order, home))
}

/// Runs the workload on the populated database in `home`, and audits it.
pub(crate) fn measure(order: &Order, home: &Path) -> Outcome<Measurement> {
    struct Run<'o>(&'o Order, &'o Path);
    impl Visit for Run<'_> {
        type Output = Outcome<Measurement>;
        fn visit<P: Peer>(self) -> Outcome<Measurement> {
            measure_one::<P>(self.0, self.1)
        }
    }
    order.engine.visit(Run(order, home))
}

fn workload<P: Peer>(order: &Order, store: &P) -> Outcome<Box<dyn Workload<P>>> {
    Ok(Request { scale: order.scale, ..Request::default() }.workload(&order.workload, store)?)
}

/// The counts that are taken before and after.
struct Taken {
    calls: Counts,
    own: Option<OwnCounts>,
    bytes: Option<u64>,
    switches: (u64, u64),
}

impl Taken {
    fn now<P: Peer>(store: &P) -> Self {
        Self {
            calls: Counts::now(),
            own: store.own_counts(),
            bytes: syscalls::bytes_written(),
            switches: syscalls::context_switches(),
        }
    }
}

fn measure_one<P: Peer>(order: &Order, home: &Path) -> Outcome<Measurement> {
    if !syscalls::works() {
        return Err("the calls that sync are not counted: this program was linked in an unforeseen way".into());
    }
    let store = P::open(home, order.durability)?;
    let workload = workload(order, &store)?;
    if workload.load(&store, &mut |_| {})? != LoadOutcome::Present {
        return Err("the database was not populated".into());
    }
    let drive = |seconds: f64, seed: u64| -> Outcome<RunReport> {
        let options = RunOptions {
            clients: order.clients,
            rate: None,
            agents: order.engine.threads(order.clients),
            limit: Limit::Time(Duration::from_secs_f64(seconds)),
            seed,
            observe_every: Duration::from_millis(500),
        };
        Ok(run(&store, &*workload, &options, &mut |_| {})?)
    };
    if order.warmup > 0.0 {
        drive(order.warmup, order.seed ^ 1)?;
    }
    let before = Taken::now(&store);
    let report = drive(order.seconds, order.seed)?;
    let after = Taken::now(&store);
    let audit = workload.audit(&store)?;
    let (name, scale) = (workload.name(), workload.scale());
    drop(workload);
    store.close()?;

    let calls = after.calls.since(before.calls);
    let own = after.own.zip(before.own).map(|(after, before)| OwnCounts {
        syncs: after.syncs - before.syncs,
        written: after.written - before.written,
    });
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let quantile = |quantile| micros(report.latencies.quantile(quantile));
    Ok(Measurement {
        engine: order.engine.name().to_owned(),
        workload: name.to_owned(),
        scale,
        durability: order.durability.name().to_owned(),
        clients: order.clients,
        threads: order.engine.threads(order.clients),
        run: 0,
        seconds: report.elapsed.as_secs_f64(),
        committed: report.committed,
        aborted: report.aborted,
        tps: (report.throughput() * 10.0).round() / 10.0,
        p50_us: quantile(0.50),
        p95_us: quantile(0.95),
        p99_us: quantile(0.99),
        max_us: micros(report.latencies.max()),
        write_bytes: after.bytes.zip(before.bytes).map(|(after, before)| after - before),
        syncs: own.map_or(calls.syncs(), |own| own.syncs),
        written: own.map_or(calls.written, |own| own.written),
        counted_by: if own.is_some() { "engine" } else { "libc" }.to_owned(),
        calls,
        voluntary_switches: after.switches.0 - before.switches.0,
        involuntary_switches: after.switches.1 - before.switches.1,
        audit: audit.to_string(),
    })
}
