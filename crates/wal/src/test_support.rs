//! Functions that tests of several modules share.

/// Runs every interleaving of `body` with this number of preemptions.
#[cfg(duramen_loom)]
pub(crate) fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(body);
}

/// Runs `work` on a thread that ends afterwards.
#[cfg(not(duramen_loom))]
pub(crate) fn on_another_thread<T: Send + Sync + 'static>(
    shared: &duramen_sync::Arc<T>,
    work: impl FnOnce(&T) + Send + 'static,
) {
    let shared = duramen_sync::Arc::clone(shared);
    duramen_sync::thread::spawn("other", move || work(&shared)).unwrap().join().unwrap();
}

/// Returns what a power cut at this moment certainly leaves of a memory of `len` bytes.
pub(crate) fn what_is_sure(memory: &duramen_pmem::SimMemory, len: u64) -> duramen_pmem::Region {
    let sure = memory.crash_image(duramen_pmem::Survivors::Nothing, None);
    duramen_pmem::Region::open(&duramen_pmem::Source::Simulated(sure), &duramen_pmem::RegionOptions::new(len)).unwrap()
}
