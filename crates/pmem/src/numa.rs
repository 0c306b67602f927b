//! On which memory node a region lies.

use duramen_sync::{cost, cpu};

use crate::mapping::Mapping;

/// Where the memory of a region is to lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Wherever the system puts it: for new memory that is the node of the thread that opens the
    /// region.
    #[default]
    Anywhere,
    /// On this node.
    Node(usize),
    /// Page by page on all nodes in turn.
    Striped,
}

/// The outcome of a [`Placement`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placed {
    /// Nothing was asked for.
    Anywhere,
    /// The memory lies where it was asked to.
    AsAsked,
    /// The machine has one node, so that there is nothing to choose.
    OneNode,
    /// The system refused, and the memory lies anywhere; why.
    Refused(String),
}

/// The policies of the system call `mbind`.
const MPOL_BIND: libc::c_int = 2;
const MPOL_INTERLEAVE: libc::c_int = 3;
/// Pages that are there already are moved.
const MPOL_MF_MOVE: libc::c_uint = 2;

/// Puts `mapping` in its place.
pub(crate) fn place(mapping: &Mapping, placement: Placement) -> Placed {
    let nodes = nodes();
    simulate(mapping, placement, nodes);
    let (policy, mask) = match placement {
        Placement::Anywhere => return Placed::Anywhere,
        Placement::Node(node) if node >= nodes => {
            return Placed::Refused(format!("there is no memory node {node}; there are {nodes}"));
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
