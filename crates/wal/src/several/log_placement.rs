//! The assignment of logs to processors.

use duramen_sync::cpu::CpuLocation;
use duramen_types::LogId;

/// Returns the log, out of `logs`, of the processor at `location`, on a machine with `nodes` nodes
/// that have processors. The nodes get the logs in turn, and the processors of a node its logs.
pub fn log_of_cpu(location: CpuLocation, nodes: usize, logs: usize) -> LogId {
    let node = location.node % nodes.min(logs);
    let of_node = (logs - node).div_ceil(nodes);
    LogId::new((node + nodes * (location.processor % of_node)) as u16)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Regression: on machines whose processor numbers alternate between nodes, half of the logs
    /// got no records. The logs of a node without processors got none either.
    #[test]
    fn every_log_has_processors_of_one_node() {
        for nodes in 1..5 {
            for logs in 1..24 {
                let mut used = BTreeSet::new();
                for node in 0..nodes {
                    let of_node: BTreeSet<LogId> =
                        (0..24).map(|processor| log_of_cpu(CpuLocation { node, processor }, nodes, logs)).collect();
                    assert!(logs < nodes || used.is_disjoint(&of_node), "a log belongs to one node");
                    used.extend(of_node);
                }
                assert_eq!(used, (0..logs as u16).map(LogId::new).collect(), "{nodes} nodes, {logs} logs");
            }
        }
    }
}
