//! Small transaction programs over small tables, and their interpreter: the same for the engine and
//! for a map in memory.

use std::collections::BTreeMap;
use std::fmt;

/// A key of the small tables.
pub type SmallKey = u8;
/// The contents of a small table.
pub type State = BTreeMap<SmallKey, i64>;

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expr {
    /// This number.
    Const(i64),
    /// What the transaction read last of a key (0 if nothing), plus this.
    ReadPlus(SmallKey, i64),
    /// The sum of what the transaction scanned last, plus this.
    ScanPlus(i64),
}

/// Which records a predicate selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predicate {
    /// First key.
    pub from: SmallKey,
    /// Last key.
    pub to: SmallKey,
    /// The value divided by the first number leaves the second.
    pub modulo: (i64, i64),
}

impl Predicate {
    /// Every record.
    pub const ALL: Self = Self { from: 0, to: SmallKey::MAX, modulo: (1, 0) };

    /// Returns every record of these keys.
    pub const fn keys(from: SmallKey, to: SmallKey) -> Self {
        Self { from, to, modulo: (1, 0) }
    }

    /// Returns every record whose value divided by `divisor` leaves `rest`.
    pub const fn modulo(divisor: i64, rest: i64) -> Self {
        Self { from: 0, to: SmallKey::MAX, modulo: (divisor, rest) }
    }

    fn selects(&self, value: i64) -> bool {
        value.rem_euclid(self.modulo.0) == self.modulo.1
    }
}

/// One operation of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Reads a record.
    Get(SmallKey),
    /// Reads a record that will be changed.
    GetForUpdate(SmallKey),
    /// Writes a record.
    Put(SmallKey, Expr),
    /// Writes a record that must be new.
    Insert(SmallKey, Expr),
    /// Writes a record that must exist.
    Update(SmallKey, Expr),
    /// Deletes a record.
    Delete(SmallKey),
    /// Reads what a predicate selects.
    Scan(Predicate),
    /// The same, from the last key to the first.
    ScanDown(Predicate),
    /// Deletes the first record within the keys and reads it: what a queue does.
    TakeFirst(SmallKey, SmallKey),
    /// Adds to every value that a predicate selects.
    AddWhere(Predicate, i64),
    /// Deletes what a predicate selects.
    DeleteWhere(Predicate),
    /// Deletes everything within the keys at once.
    DeleteRange(SmallKey, SmallKey),
    /// Ends the program well.
    Commit,
    /// Ends the program without effect.
    Abort,
}

/// A transaction: operations, the last of which is [`Op::Commit`] or [`Op::Abort`].
pub type Program = Vec<Op>;

/// What an operation showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Nothing.
    Nothing,
    /// A value or its absence.
    Value(Option<i64>),
    /// Records, in the order in which they came.
    Records(Vec<(SmallKey, i64)>),
    /// Whether the record existed.
    Existed(bool),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("-"),
            Self::Value(None) => f.write_str("none"),
            Self::Value(Some(value)) => write!(f, "{value}"),
            Self::Records(records) => write!(f, "{records:?}"),
            Self::Existed(existed) => write!(f, "existed: {existed}"),
        }
    }
}

/// What programs run on.
pub trait Store {
    /// What goes wrong; nothing, in memory.
    type Error;

    /// Reads a record.
    ///
    /// # Errors
    /// The store's, here and below.
    fn get(&mut self, key: SmallKey, for_update: bool) -> Result<Option<i64>, Self::Error>;

    /// Writes a record.
    fn put(&mut self, key: SmallKey, value: i64) -> Result<(), Self::Error>;

    /// Writes a new record; `false` if there is one.
    fn insert(&mut self, key: SmallKey, value: i64) -> Result<bool, Self::Error>;

    /// Overwrites a record; `false` if there is none.
    fn update(&mut self, key: SmallKey, value: i64) -> Result<bool, Self::Error>;

    /// Deletes a record; `false` if there is none.
    fn delete(&mut self, key: SmallKey) -> Result<bool, Self::Error>;

    /// Deletes a range of keys, both ends included; returns the number of records.
    fn delete_range(&mut self, from: SmallKey, to: SmallKey) -> Result<i64, Self::Error>;

    /// Reads at most `limit` records of a range of keys, both ends included.
    fn scan(
        &mut self,
        from: SmallKey,
        to: SmallKey,
        down: bool,
        limit: usize,
    ) -> Result<Vec<(SmallKey, i64)>, Self::Error>;
}

/// What a running program remembers of its reads.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    read: State,
    scanned: i64,
}

impl Memory {
    fn eval(&self, expr: Expr) -> i64 {
        match expr {
            Expr::Const(value) => value,
            Expr::ReadPlus(key, more) => self.read.get(&key).copied().unwrap_or(0) + more,
            Expr::ScanPlus(more) => self.scanned + more,
        }
    }

    /// Does one operation, other than the ending of the program, on `store`.
    ///
    /// # Errors
    /// The store's.
    pub fn run<S: Store>(&mut self, op: Op, store: &mut S) -> Result<Seen, S::Error> {
        Ok(match op {
            Op::Get(key) | Op::GetForUpdate(key) => {
                let value = store.get(key, matches!(op, Op::GetForUpdate(_)))?;
                match value {
                    Some(value) => self.read.insert(key, value),
                    None => self.read.remove(&key),
                };
                Seen::Value(value)
            }
            Op::Put(key, expr) => {
                store.put(key, self.eval(expr))?;
                Seen::Nothing
            }
            Op::Insert(key, expr) => Seen::Existed(!store.insert(key, self.eval(expr))?),
            Op::Update(key, expr) => Seen::Existed(store.update(key, self.eval(expr))?),
            Op::Delete(key) => Seen::Existed(store.delete(key)?),
            Op::Scan(predicate) | Op::ScanDown(predicate) => {
                let down = matches!(op, Op::ScanDown(_));
                let mut records = store.scan(predicate.from, predicate.to, down, usize::MAX)?;
                records.retain(|(_, value)| predicate.selects(*value));
                self.scanned = records.iter().map(|(_, value)| value).sum();
                Seen::Records(records)
            }
            Op::TakeFirst(from, to) => {
                let first = store.scan(from, to, false, 1)?;
                for (key, _) in &first {
                    store.delete(*key)?;
                }
                Seen::Records(first)
            }
            Op::AddWhere(predicate, more) => {
                let mut records = store.scan(predicate.from, predicate.to, false, usize::MAX)?;
                records.retain(|(_, value)| predicate.selects(*value));
                for (key, value) in &records {
                    store.put(*key, value + more)?;
                }
                Seen::Records(records)
            }
            Op::DeleteWhere(predicate) => {
                let mut records = store.scan(predicate.from, predicate.to, false, usize::MAX)?;
                records.retain(|(_, value)| predicate.selects(*value));
                for (key, _) in &records {
                    store.delete(*key)?;
                }
                Seen::Records(records)
            }
            Op::DeleteRange(from, to) => Seen::Value(Some(store.delete_range(from, to)?)),
            Op::Commit | Op::Abort => Seen::Nothing,
        })
    }
}

impl Store for State {
    type Error = std::convert::Infallible;

    fn get(&mut self, key: SmallKey, _for_update: bool) -> Result<Option<i64>, Self::Error> {
        Ok(State::get(self, &key).copied())
    }

    fn put(&mut self, key: SmallKey, value: i64) -> Result<(), Self::Error> {
        State::insert(self, key, value);
        Ok(())
    }

    fn insert(&mut self, key: SmallKey, value: i64) -> Result<bool, Self::Error> {
        let new = !self.contains_key(&key);
        if new {
            State::insert(self, key, value);
        }
        Ok(new)
    }

    fn update(&mut self, key: SmallKey, value: i64) -> Result<bool, Self::Error> {
        let exists = self.contains_key(&key);
        if exists {
            State::insert(self, key, value);
        }
        Ok(exists)
    }

    fn delete(&mut self, key: SmallKey) -> Result<bool, Self::Error> {
        Ok(self.remove(&key).is_some())
    }

    fn delete_range(&mut self, from: SmallKey, to: SmallKey) -> Result<i64, Self::Error> {
        let before = self.len();
        self.retain(|key, _| !(from..=to).contains(key));
        Ok((before - self.len()) as i64)
    }

    fn scan(
        &mut self,
        from: SmallKey,
        to: SmallKey,
        down: bool,
        limit: usize,
    ) -> Result<Vec<(SmallKey, i64)>, Self::Error> {
        let records = self.range(from..=to).map(|(key, value)| (*key, *value));
        Ok(if down { records.rev().take(limit).collect() } else { records.take(limit).collect() })
    }
}
