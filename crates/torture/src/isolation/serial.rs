//! Judging executions of small programs: by trying every serial order, and by the rules of read
//! committed.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::Graph;
use super::interleave::{End, Execution};
use super::program::{Expr, Memory, Op, Program, Seen, SmallKey, State};

/// Runs a program alone.
fn run_alone(program: &Program, state: &mut State) -> Vec<Seen> {
    let mut memory = Memory::default();
    program
        .iter()
        .map(|op| match memory.run(*op, state) {
            Ok(seen) => seen,
            Err(never) => match never {},
        })
        .collect()
}

/// Returns a serial order of the committed transactions in which each sees what it saw and the
/// table ends as it did.
pub fn serial_order(programs: &[Program], execution: &Execution) -> Option<Vec<usize>> {
    let committed: Vec<usize> = (0..programs.len()).filter(|txn| execution.ends[*txn] == End::Committed).collect();
    extend(&mut Vec::new(), &committed, programs, execution, &execution.before)
}

fn extend(
    order: &mut Vec<usize>,
    committed: &[usize],
    programs: &[Program],
    execution: &Execution,
    state: &State,
) -> Option<Vec<usize>> {
    if order.len() == committed.len() {
        return (*state == execution.after).then(|| order.clone());
    }
    for txn in committed {
        if order.contains(txn) {
            continue;
        }
        let mut next = state.clone();
        if run_alone(&programs[*txn], &mut next) != execution.seen[*txn] {
            continue;
        }
        order.push(*txn);
        let found = extend(order, committed, programs, execution, &next);
        order.pop();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the phenomenon G0, G1a, G1b or G1c (Adya, Liskov, O'Neil: Generalized isolation level
/// definitions, ICDE 2000) in an execution, if there is one. Programs must write constants, each
/// value once.
pub fn read_committed_violation(programs: &[Program], execution: &Execution) -> Option<String> {
    let mut writer: BTreeMap<(SmallKey, i64), (usize, usize)> = BTreeMap::new();
    let mut last_write: BTreeMap<(usize, SmallKey), usize> = BTreeMap::new();
    for (txn, program) in programs.iter().enumerate() {
        for (at, op) in program.iter().enumerate() {
            if let Op::Put(key, Expr::Const(value)) | Op::Insert(key, Expr::Const(value)) = op {
                writer.insert((*key, *value), (txn, at));
                last_write.insert((txn, *key), at);
            }
        }
    }
    let is_committed = |txn: usize| execution.ends[txn] == End::Committed;
    // (before, after, why)
    let mut edges: BTreeSet<(usize, usize, &'static str)> = BTreeSet::new();
    for (reader, seen) in execution.seen.iter().enumerate().filter(|(txn, _)| is_committed(*txn)) {
        for (op, seen) in programs[reader].iter().zip(seen) {
            for (key, value) in records_of(*op, seen) {
                let Some((by, at)) = writer.get(&(key, value)).copied().filter(|(by, _)| *by != reader) else {
                    continue;
                };
                if !is_committed(by) {
                    return Some(format!("G1a: T{reader} read {value} of key {key}, which T{by} wrote and aborted"));
                }
                if last_write[&(by, key)] != at {
                    return Some(format!("G1b: T{reader} read {value} of key {key}, which T{by} overwrote itself"));
                }
                edges.insert((by, reader, "wr"));
            }
        }
    }
    for (key, value) in &execution.after {
        let Some((last, _)) = writer.get(&(*key, *value)).copied() else { continue };
        if !is_committed(last) {
            return Some(format!("G1a: key {key} ends as {value}, which T{last} wrote and aborted"));
        }
        for (txn, _) in last_write.keys().filter(|(txn, written)| written == key && *txn != last && is_committed(*txn))
        {
            edges.insert((*txn, last, "ww"));
        }
    }
    for (kind, reasons) in [("G0", &["ww"][..]), ("G1c", &["ww", "wr"][..])] {
        let mut graph = Graph::new(programs.len());
        edges.iter().filter(|(_, _, why)| reasons.contains(why)).for_each(|(from, to, _)| graph.add(*from, *to));
        if let Some(cycle) = graph.shortest_cycle() {
            return Some(format!("{kind}: transactions {cycle:?} go round in a circle; dependencies {edges:?}"));
        }
    }
    None
}

fn records_of(op: Op, seen: &Seen) -> Vec<(SmallKey, i64)> {
    match (op, seen) {
        (Op::Get(key) | Op::GetForUpdate(key), Seen::Value(Some(value))) => vec![(key, *value)],
        (_, Seen::Records(records)) => records.clone(),
        _ => Vec::new(),
    }
}
