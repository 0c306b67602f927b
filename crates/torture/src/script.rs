//! Writing scripts: each step is recorded and applied to an oracle at once, which gives the state
//! for the next step.

use crate::model::{Key, Model, Value};
use crate::oracle::Oracle;
use crate::step::{Action, KeyRange, Slot, Step};
use duramen_test_support::Rng;

/// A script being written.
#[derive(Debug)]
pub struct Script {
    /// Source of its random choices.
    pub rng: Rng,
    oracle: Oracle,
    steps: Vec<Step>,
}

impl Script {
    /// Returns an empty script for a database that holds `start`.
    pub fn new(start: &Model, seed: u64) -> Self {
        Self { rng: Rng::new(seed), oracle: Oracle::new(start.clone()), steps: Vec::new() }
    }

    /// Returns the finished script; transactions still open stay open.
    pub fn finish(self) -> Vec<Step> {
        self.steps
    }

    /// Adds any step.
    pub fn step(&mut self, step: Step) {
        self.oracle.apply(&step);
        self.steps.push(step);
    }

    /// Begins a transaction.
    pub fn begin(&mut self, slot: Slot) {
        self.step(Step::Begin(slot));
    }

    /// Commits.
    pub fn commit(&mut self, slot: Slot) {
        self.step(Step::Commit(slot));
    }

    /// Aborts.
    pub fn abort(&mut self, slot: Slot) {
        self.step(Step::Abort(slot));
    }

    /// Commits, or aborts in `percent` of the cases.
    pub fn commit_or_abort(&mut self, slot: Slot, percent: usize) {
        if self.rng.percent(percent) {
            self.abort(slot);
        } else {
            self.commit(slot);
        }
    }

    /// Acts on a record.
    pub fn act(&mut self, slot: Slot, table: &str, action: Action) {
        self.step(Step::Act(slot, table.to_owned(), action));
    }

    /// Puts a record.
    pub fn put(&mut self, slot: Slot, table: &str, key: impl Into<Key>, value: impl Into<Value>) {
        self.act(slot, table, Action::Put(key.into(), value.into()));
    }

    /// Deletes a record.
    pub fn delete(&mut self, slot: Slot, table: &str, key: impl Into<Key>) {
        self.act(slot, table, Action::Delete(key.into()));
    }

    /// Scans everything, up or down.
    pub fn scan_all(&mut self, slot: Slot, table: &str) {
        let reverse = self.rng.percent(50);
        self.act(slot, table, Action::Scan { range: KeyRange::ALL, reverse, limit: usize::MAX });
    }

    /// Creates the table unless it exists.
    pub fn ensure_table(&mut self, name: &str) {
        if !self.has_table(name) {
            self.step(Step::CreateTable(name.to_owned()));
        }
    }

    /// Returns whether the table exists.
    pub fn has_table(&self, name: &str) -> bool {
        self.oracle.committed.tables.contains_key(name)
    }

    /// Returns the names of all tables.
    pub fn tables(&self) -> Vec<String> {
        self.oracle.committed.tables.keys().cloned().collect()
    }

    /// Returns the value that `slot` sees.
    pub fn get(&self, slot: Slot, table: &str, key: &[u8]) -> Option<Value> {
        self.oracle.get(slot, table, key)
    }

    /// Returns the keys that `slot` sees, ascending.
    pub fn keys(&self, slot: Slot, table: &str) -> Vec<Key> {
        self.oracle.range(slot, table, &KeyRange::ALL).into_keys().collect()
    }

    /// Returns a random value whose length lies in `lengths`.
    pub fn value(&mut self, lengths: std::ops::Range<usize>) -> Value {
        let len = self.rng.within(lengths);
        self.rng.bytes(len).into()
    }
}
