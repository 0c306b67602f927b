//! The loader threads.

use std::time::Duration;

use duramen_sync::atomic::Ordering;
use duramen_sync::{Arc, thread};

use super::state::LoadState;
use super::{Loader, Population};
use crate::error::{Error, Result};
use crate::store::Store;
use crate::workload::LoadProgress;

/// Pause between two calls of the observer.
const OBSERVE_EVERY: Duration = Duration::from_millis(100);

/// Loads every portion that is not there; returns how many rows were written.
pub(super) fn load<S: Store, L: Population<S>>(
    store: &S,
    meta: &S::Table,
    population: &L,
    observe: &mut dyn FnMut(LoadProgress),
) -> Result<u64> {
    let shared = Arc::new(LoadState::default());
    let mut loaders = Vec::new();
    for number in 0..(thread::available_parallelism() as u64).min(population.portions()) {
        let (store, meta, population, own) = (store.clone(), meta.clone(), population.clone(), shared.clone());
        let spawned = thread::spawn(&format!("loader-{number}"), move || {
            if let Err(error) = load_portions(&store, &meta, &population, &own) {
                own.fail(error);
            }
            own.waiter.unpark();
        });
        match spawned {
            Ok(loader) => loaders.push(loader),
            Err(error) => {
                shared.fail(Error::Thread(error));
                break;
            }
        }
    }
    let total = (0..population.portions()).map(|portion| population.rows(portion)).sum();
    while !loaders.iter().all(thread::JoinHandle::is_finished) {
        shared.waiter.park_timeout(OBSERVE_EVERY);
        let rows = shared.present.load(Ordering::Relaxed) + shared.written.load(Ordering::Relaxed);
        observe(LoadProgress { rows, total });
    }
    for loader in loaders {
        if let Err(panic) = loader.join() {
            std::panic::resume_unwind(panic);
        }
    }
    match shared.failure.lock().take() {
        Some(error) => Err(error),
        None => Ok(shared.written.load(Ordering::Relaxed)),
    }
}

fn load_portions<S: Store, L: Population<S>>(
    store: &S,
    meta: &S::Table,
    population: &L,
    shared: &LoadState,
) -> Result<()> {
    let mut loader = Loader::new(store, meta, shared)?;
    loop {
        let portion = shared.next_portion.fetch_add(1, Ordering::Relaxed);
        if shared.stopped() || portion >= population.portions() {
            return Ok(());
        }
        if loader.begin(portion)? {
            population.load(portion, &mut loader)?;
            loader.finish()?;
        }
    }
}
