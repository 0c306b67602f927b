//! Directed graphs: strongly connected components and short cycles.

use std::collections::VecDeque;

/// A directed graph on the nodes `0..n`.
#[derive(Clone, Debug)]
pub struct Graph {
    successors: Vec<Vec<usize>>,
}

impl Graph {
    /// Returns a graph without edges.
    pub fn new(nodes: usize) -> Self {
        Self { successors: vec![Vec::new(); nodes] }
    }

    /// Adds an edge.
    pub fn add(&mut self, from: usize, to: usize) {
        self.successors[from].push(to);
    }

    /// Returns a shortest cycle, as nodes each with an edge to the next and the last to the first;
    /// `None` if there is no cycle.
    pub fn shortest_cycle(&self) -> Option<Vec<usize>> {
        let components = self.components();
        let mut size = vec![0; components.len()];
        components.iter().for_each(|component| size[*component] += 1);
        let nodes = 0..self.successors.len();
        let on_cycle = nodes.filter(|node| size[components[*node]] > 1 || self.successors[*node].contains(node));
        on_cycle.filter_map(|node| self.shortest_cycle_through(node, &components)).min_by_key(Vec::len)
    }

    fn shortest_cycle_through(&self, start: usize, components: &[usize]) -> Option<Vec<usize>> {
        let mut came_from = vec![None; self.successors.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for next in self.successors[node].iter().copied().filter(|next| components[*next] == components[start]) {
                if next == start {
                    let mut cycle = vec![node];
                    while let Some(previous) = came_from[cycle[cycle.len() - 1]] {
                        cycle.push(previous);
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if came_from[next].is_none() {
                    came_from[next] = Some(node);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    /// Returns the number of the strongly connected component of each node (Tarjan: Depth-first
    /// search and linear graph algorithms, 1972), without recursion.
    pub fn components(&self) -> Vec<usize> {
        const UNSEEN: usize = usize::MAX;
        let count = self.successors.len();
        let mut index = vec![UNSEEN; count];
        let mut low = vec![0; count];
        let mut component = vec![UNSEEN; count];
        let mut stack = Vec::new();
        let (mut next_index, mut next_component) = (0, 0);
        for root in 0..count {
            if index[root] != UNSEEN {
                continue;
            }
            // Nodes on the path from the root, each with the number of successors already followed.
            let mut path = vec![(root, 0)];
            while let Some((node, followed)) = path.last_mut() {
                let node = *node;
                if *followed == 0 && index[node] == UNSEEN {
                    index[node] = next_index;
                    low[node] = next_index;
                    next_index += 1;
                    stack.push(node);
                }
                if let Some(next) = self.successors[node].get(*followed).copied() {
                    *followed += 1;
                    if index[next] == UNSEEN {
                        path.push((next, 0));
                    } else if component[next] == UNSEEN {
                        low[node] = low[node].min(index[next]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    low[*parent] = low[*parent].min(low[node]);
                }
                if low[node] == index[node] {
                    while let Some(member) = stack.pop() {
                        component[member] = next_component;
                        if member == node {
                            break;
                        }
                    }
                    next_component += 1;
                }
            }
        }
        component
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph {
        let mut graph = Graph::new(nodes);
        edges.iter().for_each(|(from, to)| graph.add(*from, *to));
        graph
    }

    #[test]
    fn a_tree_has_no_cycle() {
        let graph = graph(5, &[(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]);
        assert_eq!(graph.shortest_cycle(), None);
        let mut components = graph.components();
        components.sort_unstable();
        assert_eq!(components, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_shorter_of_two_cycles_is_found() {
        let graph = graph(7, &[(0, 1), (1, 2), (2, 3), (3, 0), (3, 4), (4, 5), (5, 4), (5, 6)]);
        let mut cycle = graph.shortest_cycle().expect("there are two");
        cycle.sort_unstable();
        assert_eq!(cycle, [4, 5]);
        let components = graph.components();
        assert_eq!(components[0], components[2]);
        assert_ne!(components[3], components[4]);
    }

    #[test]
    fn an_edge_to_itself_is_a_cycle() {
        assert_eq!(graph(2, &[(0, 1), (1, 1)]).shortest_cycle(), Some(vec![1]));
    }

    #[test]
    fn components_agree_with_reachability() {
        let mut rng = duramen_test_support::Rng::new(5);
        for _ in 0..200 {
            let nodes = rng.within(1..9);
            let edges: Vec<_> = (0..rng.within(0..16)).map(|_| (rng.within(0..nodes), rng.within(0..nodes))).collect();
            let graph = graph(nodes, &edges);
            let mut reach = vec![vec![false; nodes]; nodes];
            edges.iter().for_each(|(from, to)| reach[*from][*to] = true);
            for via in 0..nodes {
                for from in 0..nodes {
                    for to in 0..nodes {
                        reach[from][to] |= reach[from][via] && reach[via][to];
                    }
                }
            }
            let components = graph.components();
            for a in 0..nodes {
                for b in 0..nodes {
                    let together = a == b || (reach[a][b] && reach[b][a]);
                    assert_eq!(components[a] == components[b], together, "{edges:?}: {a} and {b}");
                }
            }
            assert_eq!(graph.shortest_cycle().is_some(), (0..nodes).any(|node| reach[node][node]), "{edges:?}");
        }
    }
}
