//! Drives a workload with many clients and measures it.
//!
//! Clients have no think time. They are dealt out to threads (`agent.rs`), which prepare, meet at a
//! gate, start together and run until the limit is reached or a client meets an error that a retry
//! does not mend. Each client counts for itself, on a cache line of its own; the calling thread
//! samples the counts for progress, so that measuring adds no shared write.

use duramen_sync::Arc;
use duramen_sync::atomic::Ordering;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::agent::{Agent, Pace};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::histogram::Latencies;
use crate::measurement::{Limit, Progress, RunOptions, RunReport, Tally};
use crate::run_queue::RunQueue;
use crate::run_state::RunState;
use crate::store::Store;
use crate::workload::Workload;

/// Runs `workload` on a loaded `store`; `observe` is called on the calling thread.
///
/// # Errors
/// [`Error::InvalidParameter`] for no clients; the first non-retryable error of a client, after all
/// have stopped.
pub fn run<S: Store>(
    store: &S,
    workload: &dyn Workload<S>,
    options: &RunOptions,
    observe: &mut dyn FnMut(Progress),
) -> Result<RunReport> {
    if options.clients == 0 || options.agents == 0 {
        return Err(Error::InvalidParameter { reason: "a run needs at least one client and one thread".into() });
    }
    if options.rate.is_some_and(|rate| !(1e-3..=1e9).contains(&rate)) {
        return Err(Error::InvalidParameter {
            reason: "the rate must be from 0.001 to 10^9 transactions per second".into(),
        });
    }
    let kinds = workload.kinds().len();
    let shared = Arc::new(RunState::new(options.clients));
    let pace = options.rate.map(|rate| Pace::new(rate, options.clients));
    let clients = dealt_out(store, workload, options)?;
    let mut agents = Vec::new();
    let mut started = Ok(());
    for (number, clients) in clients.into_iter().enumerate() {
        match Agent::new(number, RunQueue::new(clients), kinds, pace, shared.clone()).start() {
            Ok(agent) => agents.push(agent),
            Err(error) => {
                started = Err(error);
                break;
            }
        }
    }
    if started.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    let start = shared.gate.open(agents.len());
    if started.is_ok() {
        shared.watch(start, options, observe);
    }
    let mut latencies = Latencies::new();
    let mut tallies = vec![Tally::default(); kinds];
    let mut end = start;
    let mut queues = Vec::new();
    for agent in agents {
        match agent.join() {
            Ok(done) => {
                latencies.merge(&done.latencies);
                tallies.iter_mut().zip(&done.tallies).for_each(|(all, one)| all.add(*one));
                end = end.max(done.end);
                queues.push(done.queue);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    // The sessions must have ended when the caller audits.
    drop(queues);
    started?;
    if let Some(error) = shared.gate.state.lock().failure.take() {
        return Err(error);
    }
    let progress = shared.progress(start);
    assert_eq!(progress.committed, latencies.count(), "every commit has a latency");
    let Progress { committed, aborted, .. } = progress;
    Ok(RunReport { elapsed: end.since(start), committed, aborted, latencies, tallies })
}

/// Returns the clients of each agent, dealt out in turn. They are made agent by agent, so that
/// neighbours in memory belong to one agent.
fn dealt_out<S: Store>(store: &S, workload: &dyn Workload<S>, options: &RunOptions) -> Result<Vec<Vec<Client>>> {
    let agents = options.agents.min(options.clients);
    let client = |id| {
        let rng = StdRng::seed_from_u64(client_seed(options.seed, id));
        Ok(Client::new(id, workload.session(store, id)?, rng, quota(options, id)))
    };
    let of_agent = |agent| (agent..options.clients).step_by(agents as usize).map(client).collect();
    (0..agents).map(of_agent).collect()
}

/// Spreads the seeds of clients far apart.
fn client_seed(seed: u64, client: u32) -> u64 {
    seed ^ (u64::from(client) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns how many transactions a client may commit.
fn quota(options: &RunOptions, client: u32) -> u64 {
    let clients = u64::from(options.clients);
    match options.limit {
        Limit::Time(_) => u64::MAX,
        Limit::Transactions(all) => all / clients + u64::from(u64::from(client) < all % clients),
    }
}
