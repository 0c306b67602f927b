//! The counters by name, for programs that show or record all of them.

use super::{HeapMetrics, Metrics, PcmMetrics, TierMetrics};

impl Metrics {
    /// Returns names and values. Values are whole numbers, except for a few words; a name that ends
    /// in `bytes` tells the unit, and one with `LSN` or `GSN` a position in the log. Counters of
    /// parts that the database does not have are missing.
    ///
    /// ```
    /// # let db = duramen::Db::in_memory(duramen::Options::small()).unwrap();
    /// let named = db.metrics().named();
    /// assert!(named.contains(&("commits", "0".to_owned())));
    /// ```
    pub fn named(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![("I/O", self.backend.to_owned())];
        if self.logs > 1 {
            all.push(("logs divided by", self.log_partition.to_string()));
        }
        let mut add = |named: &[(&'static str, u64)]| all.extend(named.iter().map(|(name, n)| (*name, n.to_string())));
        let Self { disk, log, .. } = self;
        add(&[
            ("reads", disk.reads),
            ("read bytes", disk.read_bytes),
            ("writes", disk.writes),
            ("written bytes", disk.written_bytes),
            ("syncs", disk.syncs),
        ]);
        match (&self.heap, &self.pcm) {
            (Some(heap), _) => add(&of_heap(heap)),
            (None, Some(pcm)) => add(&of_pcm(pcm)),
            (None, None) => {
                add(&[
                    ("logs", self.logs.into()),
                    ("log start (LSN)", log.start.get()),
                    ("log durable (LSN)", log.durable.get()),
                    ("log end (LSN)", log.end.get()),
                    ("log segments", log.segments_live),
                ]);
                if !log.archived.is_zero() {
                    add(&[("log archived below (LSN)", log.archived.get())]);
                }
                if self.logs > 1 {
                    add(&[("all logs complete before (GSN)", log.hardened_gsn.get())]);
                }
                add(&[
                    ("log records", log.records),
                    ("log bytes", log.bytes),
                    ("log flushes", log.flushes),
                    ("log flushed bytes", log.flushed_bytes),
                    ("waits for the log", log.hardening_waits),
                ]);
            }
        }
        if let Some(tier) = &self.page_tier {
            add(&of_tier(tier));
        }
        add(&[
            ("pages in memory, at most", self.pool_pages),
            ("dirty pages", self.dirty_pages),
            ("pages still to be redone", self.unredone_pages),
            ("page reads", self.page_reads),
            ("page writes", self.page_writes),
            ("evictions", self.evictions),
            ("checkpoints", self.checkpoints),
            ("commits", self.commits),
            ("aborts", self.aborts),
            ("deadlocks", self.deadlocks),
            ("transactions that write", self.writing),
            ("lock waits", self.lock_waits),
            ("lock waits, nanoseconds", self.lock_wait_nanos),
            ("lock timeouts", self.lock_timeouts),
            ("snapshots", self.snapshots),
            ("snapshots too old", self.snapshots_too_old),
            ("version bytes", self.version_bytes),
        ]);
        all
    }
}

fn of_heap(heap: &HeapMetrics) -> [(&'static str, u64); 8] {
    [
        ("heap pages", heap.pages),
        ("changes of pages", heap.changes),
        ("barriers", heap.barriers),
        ("batches", heap.batches),
        ("batch bytes", heap.batch_bytes),
        ("transactions carried", heap.carried),
        ("journal bytes", heap.journal_bytes),
        ("journals that are free, bytes", heap.journal_bytes_free),
    ]
}

fn of_pcm(pcm: &PcmMetrics) -> [(&'static str, u64); 15] {
    [
        ("PCM slots", pcm.slots),
        ("PCM slots that are free", pcm.slots_free),
        ("pages in PCM", pcm.pages),
        ("tuples in PCM", pcm.tuples),
        ("PCM slots with tuples", pcm.tuple_slots),
        ("reads in PCM", pcm.hits),
        ("reads that PCM missed", pcm.misses),
        ("records read as tuples", pcm.tuple_hits),
        ("pages written to PCM", pcm.written),
        ("tuples written to PCM", pcm.tuples_written),
        ("pages left to tuples", pcm.left_to_tuples),
        ("pages written back", pcm.written_back),
        ("structure changes", pcm.structure_changes),
        ("stored bytes", pcm.bytes_stored),
        ("barriers", pcm.barriers),
    ]
}

fn of_tier(tier: &TierMetrics) -> [(&'static str, u64); 7] {
    [
        ("page tier, slots", tier.slots),
        ("page tier, pages", tier.pages),
        ("page tier, reads", tier.hits),
        ("page tier, reads that it missed", tier.misses),
        ("page tier, pages written", tier.written),
        ("page tier, pages written back", tier.written_back),
        ("page tier, written bytes", tier.bytes_written),
    ]
}
