//! The network on the chip: a mesh without contention, whose links count what goes over them.

use super::Cycle;
use super::description::Machine;
use crate::schedule::Chance;

/// A message's way takes its distance and its flits; the model charges no contention, and a run
/// whose busiest link is more than half busy is refused.
#[derive(Debug)]
pub(super) struct Mesh {
    columns: usize,
    hop: Cycle,
    data_flits: u64,
    jitter: Cycle,
    chance: Chance,
    /// The node of each controller.
    corners: Vec<usize>,
    /// Flits that have left each node to the east, west, south and north.
    links: Vec<[u64; 4]>,
}

/// A place on the mesh.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    /// A core, and the tile of the same number.
    Tile(usize),
    /// A memory controller.
    Controller(usize),
}

impl Mesh {
    pub(super) fn new(machine: &Machine, seed: u64) -> Self {
        let (rows, columns) = (machine.mesh.rows, machine.mesh.columns);
        let last = rows * columns - 1;
        let corners = [0, columns - 1, last + 1 - columns, last];
        Self {
            columns,
            hop: machine.mesh.hop,
            data_flits: machine.mesh.data_flits,
            jitter: machine.mesh.jitter,
            chance: Chance::new(!seed),
            corners: match machine.memory.controllers {
                1 => vec![corners[0]],
                2 => vec![corners[0], corners[3]],
                _ => corners.to_vec(),
            },
            links: vec![[0; 4]; rows * columns],
        }
    }

    fn number(&self, node: Node) -> usize {
        match node {
            Node::Tile(number) => number,
            Node::Controller(number) => self.corners[number],
        }
    }

    /// Sends a message, with a line or without, and returns how long it takes: at least a cycle.
    pub(super) fn send(&mut self, from: Node, to: Node, data: bool) -> Cycle {
        let flits = if data { self.data_flits } else { 1 };
        let (from, to) = (self.number(from), self.number(to));
        let (mut x, mut y) = (from % self.columns, from / self.columns);
        let (to_x, to_y) = (to % self.columns, to / self.columns);
        let mut hops = 0;
        while (x, y) != (to_x, to_y) {
            let at = &mut self.links[y * self.columns + x];
            if x < to_x {
                at[0] += flits;
                x += 1;
            } else if x > to_x {
                at[1] += flits;
                x -= 1;
            } else if y < to_y {
                at[2] += flits;
                y += 1;
            } else {
                at[3] += flits;
                y -= 1;
            }
            hops += 1;
        }
        let jitter = self.jitter();
        (hops * self.hop + flits - 1).max(1) + jitter
    }

    /// Chance delays messages, one in sixteen of them for long.
    fn jitter(&mut self) -> Cycle {
        if self.jitter == 0 {
            return 0;
        }
        let times = if self.chance.below(16) == 0 { 16 } else { 1 };
        times * self.chance.below(self.jitter)
    }

    /// Flits over the busiest link.
    pub(super) fn busiest(&self) -> u64 {
        self.links.iter().flatten().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_takes_its_hops_and_the_flits_behind_the_first() {
        let mut mesh = Mesh::new(&Machine::named("atom-events").unwrap(), 1);
        assert_eq!(mesh.send(Node::Tile(0), Node::Tile(0), false), 1);
        assert_eq!(mesh.send(Node::Tile(0), Node::Tile(9), false), 6);
        assert_eq!(mesh.send(Node::Tile(0), Node::Controller(3), true), 10 * 3 + 4);
        assert_eq!(mesh.send(Node::Tile(0), Node::Controller(0), true), 4);
        // East from node 0: one flit of the second message and five of the third.
        assert_eq!(mesh.busiest(), 6);
    }
}
