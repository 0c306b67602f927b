//! The experiments, a file each.

mod a11_components;
mod a13_synchronization;
mod a15_distributed;
mod a16_dependencies;
mod a17_breakdown;
mod a1_elr_skew;
mod a2_elr_tpcc;
mod a3_switches;
mod a4_pipelining;
pub(crate) mod atom;
mod bank;
mod n9_recovery;
mod nvram;
mod pcm;
mod several_logs;
pub(crate) mod simulated;
mod sweep;
mod traced;

use crate::experiment::Experiment;
use nvram::World;

/// All experiments, in the order of their claims.
pub const EXPERIMENTS: &[&dyn Experiment] = &[
    &a1_elr_skew::ElrSkew,
    &simulated::a1_elr_skew::ElrSkew,
    &a2_elr_tpcc::ElrTpcc,
    &a3_switches::Switches,
    &a4_pipelining::Pipelining,
    &simulated::a5_log_contention::LogContention,
    &simulated::a6_threads::Threads,
    &simulated::a7_record_size::RecordSize,
    &simulated::a7_record_size::ThreadLocal,
    &simulated::a9_skew::Skew,
    &simulated::a10_slots::Slots,
    &a11_components::Components,
    &simulated::a11_components::Components,
    &simulated::a12_sockets::Sockets,
    &a13_synchronization::Synchronization,
    &simulated::a13_synchronization::Synchronization,
    &simulated::a14_migration::Migration,
    &a15_distributed::Distributed,
    &simulated::a15_distributed::Distributed,
    &a16_dependencies::Dependencies,
    &a17_breakdown::Breakdown,
    &simulated::a11_components::Bars,
    &simulated::n_distributed::WriteIntensive,
    &simulated::n_distributed::WriteDelay,
    &simulated::n_distributed::Breakdowns,
    &simulated::n_distributed::FullMixes,
    &simulated::n_distributed::PassiveGroupCommit,
    &simulated::n_distributed::Stragglers,
    &simulated::n_distributed::OffCore,
    &simulated::n_distributed::Allocation,
    &simulated::s1_snapshots::Snapshots,
    &n9_recovery::Recovery,
    &nvram::Recovery(World::Native),
    &nvram::Recovery(World::Simulated),
    &traced::LinesPerLatch,
    &traced::Latency,
    &nvram::Reads,
    &traced::Caching,
    &nvram::Barriers(World::Native),
    &nvram::Barriers(World::Simulated),
    &nvram::MuchData,
    &nvram::Crossing(World::Native),
    &nvram::Crossing(World::Simulated),
    &nvram::BreakEven(World::Native),
    &nvram::BreakEven(World::Simulated),
    &nvram::Period,
    &pcm::DiskIos,
    &pcm::MissRate,
    &pcm::WriteTraffic,
    &pcm::Recovering,
    &pcm::Counted,
    &atom::Small,
    &atom::Large,
    &atom::Full,
    &atom::Sourced,
    &atom::Redo,
    &atom::Entries,
    &atom::Latency,
    &atom::OrderEntering,
    &atom::Collation,
    &atom::Crashes,
];

/// Returns the experiment for the claim `id`, in capitals or not.
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    EXPERIMENTS.iter().copied().find(|experiment| experiment.about().id.eq_ignore_ascii_case(id))
}

#[cfg(test)]
mod tests;
