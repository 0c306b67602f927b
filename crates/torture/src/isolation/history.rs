//! Judging histories of list appends.
//!
//! Values are lists to which transactions append elements that are used once, so the final list of
//! a key gives the order of its versions, and a list that was read identifies its version. The
//! dependencies between transactions follow (Adya's write, read and anti-dependencies; Kingsbury,
//! Alvaro: Elle: inferring isolation anomalies from experimental observations, VLDB 2020), and a
//! cycle of them is an anomaly. A scan of a range counts as a read of every key in it, and as a
//! read of the empty list where the scan found no record. Phantoms thereby become
//! anti-dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::graph::Graph;

/// A key.
pub type ListKey = u16;
/// What is appended; never twice.
pub type Element = u64;
/// Every key that has a list.
pub type Lists = BTreeMap<ListKey, Vec<Element>>;

/// What a transaction did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Read a list; empty if there is no record.
    Read(ListKey, Vec<Element>),
    /// Appended an element.
    Append(ListKey, Element),
    /// Read the records from the first key to the last, both included.
    Scan(ListKey, ListKey, Lists),
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Its commit was acknowledged at this time.
    Committed(u64),
    /// It has no effect.
    Aborted,
    /// Its commit failed with the disk: it took effect or not, as a whole.
    Unknown,
}

/// One transaction of a history.
#[derive(Clone, Debug)]
pub struct Record {
    /// A time before it began.
    pub begun: u64,
    /// What it did, in order.
    pub events: Vec<Event>,
    /// How it ended.
    pub status: Status,
}

/// The rules that a history must obey.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Serializable, in an order that agrees with real time: a transaction that begins after an
    /// acknowledgement comes later.
    StrictlySerializable,
    /// Read committed: no G0, no G1.
    ReadCommitted,
}

/// What is wrong with a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A transaction did not see its own appends.
    Internal(String),
    /// An element appears that no transaction appended, or it appears twice.
    Garbage(String),
    /// An element of an aborted transaction is visible (G1a).
    AbortedRead(String),
    /// A list was read in the middle of a transaction's appends to it (G1b).
    IntermediateRead(String),
    /// An acknowledged element is missing in the end.
    Lost(String),
    /// A transaction without acknowledgement took effect in part.
    Torn(String),
    /// A list was read that is no earlier version of the final one.
    Incompatible(String),
    /// Dependencies go round in a circle.
    Cycle {
        /// G0, G1c, G-single, G2, or real time.
        kind: Kind,
        /// The dependencies.
        explanation: String,
    },
}

/// Kinds of cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Write dependencies only.
    G0,
    /// Write and read dependencies.
    G1c,
    /// One anti-dependency.
    GSingle,
    /// Several anti-dependencies.
    G2,
    /// Only together with the order in real time.
    RealTime,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(text) => write!(f, "own writes not seen: {text}"),
            Self::Garbage(text) => write!(f, "garbage: {text}"),
            Self::AbortedRead(text) => write!(f, "aborted read (G1a): {text}"),
            Self::IntermediateRead(text) => write!(f, "intermediate read (G1b): {text}"),
            Self::Lost(text) => write!(f, "lost: {text}"),
            Self::Torn(text) => write!(f, "torn transaction: {text}"),
            Self::Incompatible(text) => write!(f, "incompatible versions: {text}"),
            Self::Cycle { kind, explanation } => write!(f, "cycle ({kind:?}):\n{explanation}"),
        }
    }
}

/// Dependencies between transactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Why {
    /// The second appended next after the first.
    Write(ListKey),
    /// The second read what the first appended.
    Read(ListKey),
    /// The second appended next after what the first read.
    Anti(ListKey),
}

/// Judges a history whose final state is `last`.
///
/// # Errors
/// The first violation found.
pub fn check(records: &[Record], last: &Lists, level: Level) -> Result<(), Violation> {
    let versions = Versions::new(records, last)?;
    let mut edges = BTreeMap::new();
    versions.write_edges(&mut edges);
    for (number, record) in records.iter().enumerate() {
        if versions.effective[number] {
            versions.read_edges(number, record, level, &mut edges)?;
        }
    }
    if level == Level::ReadCommitted {
        edges.retain(|_, why| !matches!(why, Why::Anti(_)));
    }
    find_cycle(records, &edges, &versions.effective, level)
}

/// The versions of every key.
struct Versions<'a> {
    last: &'a Lists,
    /// The transaction that appended each element.
    writer: BTreeMap<Element, usize>,
    /// The last element that each transaction appended to each key.
    final_append: BTreeMap<(usize, ListKey), Element>,
    /// Which transactions took effect.
    effective: Vec<bool>,
}

impl<'a> Versions<'a> {
    fn new(records: &[Record], last: &'a Lists) -> Result<Self, Violation> {
        let mut writer = BTreeMap::new();
        let mut final_append = BTreeMap::new();
        let mut key_of = BTreeMap::new();
        for (number, record) in records.iter().enumerate() {
            for event in &record.events {
                if let Event::Append(key, element) = event {
                    assert!(writer.insert(*element, number).is_none(), "element {element} is appended twice");
                    final_append.insert((number, *key), *element);
                    key_of.insert(*element, *key);
                }
            }
        }
        let mut visible = BTreeSet::new();
        for (key, element) in last.iter().flat_map(|(key, list)| list.iter().map(move |element| (key, element))) {
            if key_of.get(element) != Some(key) {
                return Err(Violation::Garbage(format!("key {key} ends with {element}, which nobody appended to it")));
            }
            if !visible.insert(*element) {
                return Err(Violation::Garbage(format!("key {key} ends with {element} twice")));
            }
        }
        let mut effective = Vec::with_capacity(records.len());
        for (number, record) in records.iter().enumerate() {
            let appended = record.events.iter().filter_map(|event| match event {
                Event::Append(key, element) => Some((key, element)),
                Event::Read(..) | Event::Scan(..) => None,
            });
            let (there, missing): (Vec<_>, Vec<_>) = appended.partition(|(_, element)| visible.contains(element));
            effective.push(match (record.status, there.first(), missing.first()) {
                (Status::Committed(_), _, Some((key, element))) => {
                    return Err(Violation::Lost(format!(
                        "T{number} appended {element} to key {key} and was acknowledged"
                    )));
                }
                (Status::Aborted, Some((key, element)), _) => {
                    return Err(Violation::AbortedRead(format!("key {key} ends with {element} of T{number}")));
                }
                (Status::Unknown, Some((_, some)), Some((_, other))) => {
                    return Err(Violation::Torn(format!(
                        "T{number} appended {some}, which is there, and {other}, which is not"
                    )));
                }
                (Status::Committed(_), ..) | (Status::Unknown, Some(_), None) => true,
                (Status::Aborted | Status::Unknown, ..) => false,
            });
        }
        Ok(Self { last, writer, final_append, effective })
    }

    /// Each version comes after the one before it.
    fn write_edges(&self, edges: &mut BTreeMap<(usize, usize), Why>) {
        for (key, list) in self.last {
            for pair in list.windows(2) {
                add(edges, self.writer[&pair[0]], self.writer[&pair[1]], Why::Write(*key));
            }
        }
    }

    fn read_edges(
        &self,
        number: usize,
        record: &Record,
        level: Level,
        edges: &mut BTreeMap<(usize, usize), Why>,
    ) -> Result<(), Violation> {
        let mut own: Lists = Lists::new();
        for event in &record.events {
            match event {
                Event::Append(key, element) => own.entry(*key).or_default().push(*element),
                Event::Read(key, list) => self.read(number, *key, list, &own, level, edges)?,
                Event::Scan(from, to, found) => {
                    if let Some(key) = found.keys().find(|key| !(from..=to).contains(key)) {
                        let text = format!("T{number} scanned {from}..={to} and got key {key}");
                        return Err(Violation::Garbage(text));
                    }
                    let keys: BTreeSet<_> = self
                        .last
                        .range(from..=to)
                        .chain(found)
                        .chain(own.range(from..=to))
                        .map(|(key, _)| *key)
                        .collect();
                    for key in keys {
                        self.read(number, key, found.get(&key).map_or(&[], Vec::as_slice), &own, level, edges)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the dependencies of one read.
    fn read(
        &self,
        number: usize,
        key: ListKey,
        list: &[Element],
        own: &Lists,
        level: Level,
        edges: &mut BTreeMap<(usize, usize), Why>,
    ) -> Result<(), Violation> {
        let own = own.get(&key).map_or(&[][..], Vec::as_slice);
        let Some(list) = list.strip_suffix(own) else {
            return Err(Violation::Internal(format!("T{number} read {list:?} of key {key} after appending {own:?}")));
        };
        let last = self.last.get(&key).map_or(&[][..], Vec::as_slice);
        for element in list {
            match self.writer.get(element) {
                None => {
                    return Err(Violation::Garbage(format!(
                        "T{number} read {element} of key {key}, which nobody appended"
                    )));
                }
                Some(by) if !self.effective[*by] => {
                    return Err(Violation::AbortedRead(format!(
                        "T{number} read {element} of key {key}, which T{by} appended"
                    )));
                }
                Some(_) => {}
            }
        }
        if !last.starts_with(list) {
            return Err(Violation::Incompatible(format!(
                "T{number} read {list:?} of key {key}, which ends as {last:?}"
            )));
        }
        if let Some(element) = list.last() {
            let by = self.writer[element];
            if self.final_append[&(by, key)] != *element {
                let text = format!("T{number} read key {key} up to {element}, in the middle of T{by}");
                return Err(Violation::IntermediateRead(text));
            }
            add(edges, by, number, Why::Read(key));
        }
        if let Some(next) = last.get(list.len())
            && level != Level::ReadCommitted
        {
            add(edges, number, self.writer[next], Why::Anti(key));
        }
        Ok(())
    }
}

/// Keeps the strongest reason for an edge: one cycle should be explained by as few
/// anti-dependencies as possible.
fn add(edges: &mut BTreeMap<(usize, usize), Why>, from: usize, to: usize, why: Why) {
    if from != to {
        edges.entry((from, to)).and_modify(|old| *old = (*old).min(why)).or_insert(why);
    }
}

fn find_cycle(
    records: &[Record],
    edges: &BTreeMap<(usize, usize), Why>,
    effective: &[bool],
    level: Level,
) -> Result<(), Violation> {
    let strength = |why: &Why| match why {
        Why::Write(_) => 0,
        Why::Read(_) => 1,
        Why::Anti(_) => 2,
    };
    // From the gravest kind of cycle to the least.
    for allowed in 0..=2 {
        let mut graph = Graph::new(records.len());
        edges.iter().filter(|(_, why)| strength(why) <= allowed).for_each(|((from, to), _)| graph.add(*from, *to));
        if let Some(cycle) = graph.shortest_cycle() {
            return Err(explained(&cycle, edges, false));
        }
    }
    if level != Level::StrictlySerializable {
        return Ok(());
    }
    // Real time: acknowledgements in order form a chain of further nodes; each transaction leads to
    // the node of its acknowledgement, and the last node before its beginning leads to it.
    let mut acknowledged: Vec<(u64, usize)> = records
        .iter()
        .enumerate()
        .filter_map(|(number, record)| match record.status {
            Status::Committed(at) => Some((at, number)),
            Status::Aborted | Status::Unknown => None,
        })
        .collect();
    acknowledged.sort_unstable();
    let count = records.len();
    let mut graph = Graph::new(count + acknowledged.len());
    edges.keys().for_each(|(from, to)| graph.add(*from, *to));
    for (position, (_, number)) in acknowledged.iter().enumerate() {
        graph.add(*number, count + position);
        if position > 0 {
            graph.add(count + position - 1, count + position);
        }
    }
    for (number, record) in records.iter().enumerate().filter(|(number, _)| effective[*number]) {
        let before = acknowledged.partition_point(|(at, _)| *at < record.begun);
        if before > 0 {
            graph.add(count + before - 1, number);
        }
    }
    match graph.shortest_cycle() {
        Some(cycle) => {
            let transactions: Vec<usize> = cycle.into_iter().filter(|node| *node < count).collect();
            Err(explained(&transactions, edges, true))
        }
        None => Ok(()),
    }
}

fn explained(cycle: &[usize], edges: &BTreeMap<(usize, usize), Why>, real_time: bool) -> Violation {
    let mut lines = Vec::new();
    let (mut reads, mut antis) = (0, 0);
    for (from, to) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
        lines.push(match edges.get(&(*from, *to)) {
            Some(Why::Write(key)) => format!("  T{from} appended to key {key} next before T{to}"),
            Some(Why::Read(key)) => {
                reads += 1;
                format!("  T{from} appended to key {key} what T{to} read last of it")
            }
            Some(Why::Anti(key)) => {
                antis += 1;
                format!("  T{from} read key {key} without what T{to} appended next")
            }
            None => format!("  T{from} was acknowledged before T{to} began"),
        });
    }
    let kind = match (real_time, antis, reads) {
        (true, ..) => Kind::RealTime,
        (false, 0, 0) => Kind::G0,
        (false, 0, _) => Kind::G1c,
        (false, 1, _) => Kind::GSingle,
        (false, ..) => Kind::G2,
    };
    Violation::Cycle { kind, explanation: lines.join("\n") }
}
