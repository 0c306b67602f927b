//! The memory node of a region.

use duramen_sync::{cost, cpu};

use crate::mapping::Mapping;

/// The requested memory nodes for a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// The system chooses: for new memory, the node of the thread that opens the region.
    #[default]
    Anywhere,
    /// All memory on this node.
    Node(usize),
    /// The pages on all nodes in turn.
    Striped,
}

/// The outcome of a [`Placement`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placed {
    /// No placement was requested.
    Anywhere,
    /// The memory is on the requested nodes.
    AsAsked,
    /// The machine has only one node.
    OneNode,
    /// The system refused the placement, for this reason, and chose the nodes itself.
    Refused(String),
}

/// The policies of the system call `mbind`.
const MPOL_BIND: libc::c_int = 2;
const MPOL_INTERLEAVE: libc::c_int = 3;
/// Also moves pages that exist already.
const MPOL_MF_MOVE: libc::c_uint = 2;

/// Places `mapping` on the requested nodes.
pub(crate) fn place(mapping: &Mapping, placement: Placement) -> Placed {
    let nodes = nodes();
    simulate(mapping, placement, nodes);
    let (policy, mask) = match placement {
        Placement::Anywhere => return Placed::Anywhere,
        Placement::Node(node) if node >= nodes => {
            return Placed::Refused(format!("there is no memory node {node}; the machine has {nodes}"));
        }
        _ if nodes == 1 => return Placed::OneNode,
        Placement::Node(node) => (MPOL_BIND, 1_u64 << node),
        Placement::Striped => (MPOL_INTERLEAVE, u64::MAX >> (64 - nodes)),
    };
    if cfg!(duramen_machine) {
        return Placed::AsAsked;
    }
    // SAFETY: the memory is ours, and the mask is read before the call returns.
    let refused = unsafe {
        let (memory, len, bits) = (mapping.at(0), mapping.reach(), libc::c_ulong::from(64_u8) + 1);
        libc::syscall(libc::SYS_mbind, memory, len, policy, &raw const mask, bits, MPOL_MF_MOVE)
    };
    if refused == 0 { Placed::AsAsked } else { Placed::Refused(std::io::Error::last_os_error().to_string()) }
}

/// Places the memory on the simulated machine, where regions are always non-volatile memory.
fn simulate(mapping: &Mapping, placement: Placement, nodes: usize) {
    const PAGE: usize = 4096;
    match placement {
        Placement::Striped => {
            for page in 0..mapping.len() / PAGE {
                cost::bind_nvm(mapping.at(page * PAGE), PAGE, page % nodes);
            }
        }
        Placement::Node(node) => cost::bind_nvm(mapping.at(0), mapping.len(), node.min(nodes - 1)),
        Placement::Anywhere => cost::bind_nvm(mapping.at(0), mapping.len(), cpu::node()),
    }
}

/// Returns the number of memory nodes of the machine, at most 64.
pub(crate) fn nodes() -> usize {
    cpu::nodes().clamp(1, 64)
}
