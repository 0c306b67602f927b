//! The trace and the sizes that the experiments share.

use duramen_sync::Arc;
use duramen_workloads::tpcc::Scale;

use crate::error::Result;
use crate::experiment::{Context, Effort};
use crate::kept::Kept;
use crate::pcm::{Granularity, PAGE_BYTES, Recording, Trace, record};

/// DRAM, as a share of the data (PCMLogging, section 4).
pub(super) const DRAM: f64 = 0.026;
/// PCM, as shares of the data: 8, 16, 32 and 64 MB of 2.4 GB.
pub(super) const SIZES: &[f64] = &[0.0033, 0.0067, 0.0133, 0.0267];
/// With fewer slots than this, pages of transactions in progress may fill the PCM.
const LEAST_PAGES: u64 = 256;

/// Transactions between two samples.
pub(super) const EVERY: usize = 100;

/// What is replayed, and on what.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) trace: Arc<Trace>,
    pub(super) clients: usize,
    /// Pages in DRAM.
    pub(super) frames: usize,
    /// PCM, as shares of the data, ...
    pub(super) sizes: &'static [f64],
    /// ... and in bytes.
    pub(super) bytes: Vec<u64>,
}

thread_local! {
    /// What this thread has recorded.
    static KEPT: Kept<Effort, Arc<Trace>> = const { Kept::new() };
}

impl Setup {
    /// Records the trace, as one of the measurements, unless the thread did so before.
    pub(super) fn new(context: &mut Context<'_>) -> Result<Self> {
        let clients = context.pick(50, 50, 4);
        let recording = Recording {
            scale: context.pick(Scale::standard(20), Scale::standard(2), Scale::small(1, 100)),
            clients,
            transactions: context.pick(120_000, 12_000, 1_500),
            pool: context.pick(512 << 20, 128 << 20, 8 << 20),
        };
        let effort = context.effort();
        let what = format!("recording TPC-C, {}", recording.scale);
        let trace =
            context.measure(what, || KEPT.with(|kept| kept.find_or(effort, || Ok(Arc::new(record(recording)?)))))?;
        let sizes: &[f64] = context.pick(SIZES, SIZES, &[0.05, 0.2]);
        let data = (u64::from(trace.stored()) * PAGE_BYTES) as f64;
        Ok(Self {
            clients: clients as usize,
            frames: (f64::from(trace.stored()) * DRAM) as usize,
            sizes,
            bytes: sizes.iter().map(|size| (data * size) as u64).collect(),
            trace,
        })
    }

    /// Describes it in a sentence or two.
    pub(super) fn describe(&self) -> String {
        format!(
            "A trace of TPC-C, {} clients: {} transactions with {} accesses to rows, which the engine ran. Rows are \
             tuples of 128 bytes, 64 to a page, in heap files of {} MB; indexes are left out. DRAM has {} pages, \
             {:.1} % of the data.",
            self.clients,
            self.trace.len(),
            self.trace.accesses(),
            u64::from(self.trace.stored()) * PAGE_BYTES / 1_000_000,
            self.frames,
            DRAM * 100.0,
        )
    }
}

/// Returns whether so many bytes of PCM have room for the pages of all transactions in progress.
pub(super) fn has_room_for_pages(bytes: u64) -> bool {
    bytes / Granularity::Page.slot_bytes() >= LEAST_PAGES
}
