//! A graph of imports, and its circles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The names that one node imports from another, each with the place of its first mention.
pub(crate) type Names = BTreeMap<String, String>;

/// Imports between named nodes.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    edges: BTreeMap<String, BTreeMap<String, Names>>,
}

impl Graph {
    /// Adds that `from` imports `name` from `to`, as `place` shows.
    pub(crate) fn add(&mut self, from: &str, to: &str, name: &str, place: &str) {
        let names = self.edges.entry(from.to_owned()).or_default().entry(to.to_owned()).or_default();
        names.entry(name.to_owned()).or_insert_with(|| place.to_owned());
    }

    /// The imports among `nodes`.
    pub(crate) fn among(&self, nodes: &BTreeSet<String>) -> impl Iterator<Item = (&String, &String, &Names)> {
        let from = nodes.iter().filter_map(|node| self.edges.get_key_value(node));
        let edges = from.flat_map(|(from, edges)| edges.iter().map(move |(to, names)| (from, to, names)));
        edges.filter(|(_, to, _)| nodes.contains(*to))
    }

    /// The circles, the largest first: each a set of at least two nodes that all reach each other.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<String>> {
        let mut search = Search::default();
        for node in self.edges.keys() {
            if !search.numbers.contains_key(node.as_str()) {
                search.visit(self, node);
            }
        }
        search.circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        search.circles
    }

    /// A shortest way around inside `circle`; it ends where it begins.
    pub(crate) fn way_around(&self, circle: &BTreeSet<String>) -> Vec<String> {
        let ways = circle.iter().filter_map(|start| self.way_back(start, circle));
        ways.min_by_key(Vec::len).unwrap_or_default()
    }

    /// A shortest way from `start` back to it inside `circle`.
    fn way_back(&self, start: &String, circle: &BTreeSet<String>) -> Option<Vec<String>> {
        let mut came_from: BTreeMap<&String, &String> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for next in self.edges.get(node)?.keys().filter(|next| circle.contains(*next)) {
                if next == start {
                    let mut way = vec![start.clone(), node.clone()];
                    while way.last() != Some(start) {
                        way.push(came_from[&way[way.len() - 1]].clone());
                    }
                    way.reverse();
                    return Some(way);
                }
                if !came_from.contains_key(next) {
                    came_from.insert(next, node);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

/// Tarjan's search for strongly connected components.
#[derive(Default)]
struct Search<'a> {
    numbers: BTreeMap<&'a str, usize>,
    stack: Vec<&'a str>,
    circles: Vec<BTreeSet<String>>,
}

impl<'a> Search<'a> {
    /// Visits `node` and what it reaches; returns the lowest number on the stack that it reaches.
    fn visit(&mut self, graph: &'a Graph, node: &'a str) -> usize {
        let number = self.numbers.len();
        let depth = self.stack.len();
        let mut lowest = number;
        self.numbers.insert(node, number);
        self.stack.push(node);
        for next in graph.edges.get(node).into_iter().flat_map(BTreeMap::keys) {
            match self.numbers.get(next.as_str()) {
                None => lowest = lowest.min(self.visit(graph, next)),
                Some(&seen) if self.stack.contains(&next.as_str()) => lowest = lowest.min(seen),
                Some(_) => {}
            }
        }
        if lowest == number {
            let circle: BTreeSet<String> = self.stack.drain(depth..).map(str::to_owned).collect();
            if circle.len() > 1 {
                self.circles.push(circle);
            }
        }
        lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in edges {
            graph.add(from, to, "X", "1");
        }
        graph
    }

    #[test]
    fn a_graph_without_circles_has_none() {
        assert!(graph(&[("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]).circles().is_empty());
    }

    #[test]
    fn circles_are_found_apart_and_sorted_by_size() {
        let graph = graph(&[("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "c"), ("e", "f")]);
        let circles: Vec<Vec<String>> =
            graph.circles().into_iter().map(|circle| circle.into_iter().collect()).collect();
        assert_eq!(circles, [vec!["c", "d", "e"], vec!["a", "b"]]);
    }

    #[test]
    fn the_way_around_is_a_shortest_one() {
        let graph = graph(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("c", "b")]);
        let circles = graph.circles();
        assert_eq!(circles.len(), 1);
        assert_eq!(graph.way_around(&circles[0]), ["b", "c", "b"]);
        assert_eq!(graph.among(&circles[0]).count(), 5);
    }
}
