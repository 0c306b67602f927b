//! The positions of processors among the memory nodes of a machine.

/// A processor by its node and its number within the node. Both count from zero without gaps; nodes
/// with memory but without processors are left out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuLocation {
    /// The node, among those that have processors.
    pub node: usize,
    /// The processor, among those of its node.
    pub processor: usize,
}

/// The topology of all processors of a machine.
#[derive(Debug)]
#[cfg(not(any(duramen_loom, duramen_machine)))]
pub(crate) struct CpuTopology {
    /// By number of the processor.
    topology: Vec<CpuLocation>,
    nodes: usize,
}

#[cfg(not(any(duramen_loom, duramen_machine)))]
impl CpuTopology {
    /// Builds the topology from the lists of processors of each node, as the system writes them:
    /// `0-3,8`.
    pub(crate) fn of_nodes<'a>(lists: impl IntoIterator<Item = &'a str>) -> Self {
        let (mut topology, mut nodes) = (Vec::new(), 0);
        for list in lists {
            let mut processor = 0;
            for number in processors(list) {
                if topology.len() <= number {
                    topology.resize(number + 1, CpuLocation::default());
                }
                topology[number] = CpuLocation { node: nodes, processor };
                processor += 1;
            }
            nodes += usize::from(processor > 0);
        }
        Self { topology, nodes: nodes.max(1) }
    }

    /// Returns the number of nodes that have processors; at least one.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the location of a processor; a processor without a node counts as one of the first
    /// node.
    pub(crate) fn of(&self, processor: usize) -> CpuLocation {
        self.topology.get(processor).copied().unwrap_or(CpuLocation { node: 0, processor })
    }
}

/// The largest number of processors that a machine is assumed to have.
#[cfg(not(any(duramen_loom, duramen_machine)))]
const MOST: usize = 1 << 14;

#[cfg(not(any(duramen_loom, duramen_machine)))]
fn processors(list: &str) -> impl Iterator<Item = usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse::<usize>().ok()?.min(MOST))
    };
    list.trim().split(',').filter_map(range).flatten()
}

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests {
    use super::*;

    #[test]
    fn processors_are_numbered_within_their_node() {
        // Alternating numbers, a node with only memory, and two threads per core.
        let topology = CpuTopology::of_nodes(["0,2,4-6\n", "", "\n", "1,3,7-8\n"]);
        assert_eq!(topology.nodes(), 2);
        let found: Vec<(usize, usize)> = (0..9)
            .map(|processor| topology.of(processor))
            .map(|location| (location.node, location.processor))
            .collect();
        assert_eq!(found, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3)]);
        assert_eq!(topology.of(100), CpuLocation { node: 0, processor: 100 });
        let none = CpuTopology::of_nodes(["x-", "-"]);
        assert_eq!((none.nodes(), none.of(3)), (1, CpuLocation { node: 0, processor: 3 }));
    }
}
