//! A trace: transactions as sequences of accesses to tuples.
//!
//! As in the paper, every row is a tuple of 128 bytes, and 64 of them fill a page of 8 KiB. Tuples
//! are numbered through the whole database, so that a number says the page, too.

/// Bytes of a tuple (PCMLogging, section 4).
pub(crate) const TUPLE_BYTES: u64 = 128;
/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 8192;
/// Tuples of a page.
pub(crate) const TUPLES: u32 = (PAGE_BYTES / TUPLE_BYTES) as u32;

/// Number of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Page(u32);

impl Page {
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number as an index.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns its tuple number `at`, counted from 0.
    pub(crate) fn tuple(self, at: u32) -> Tuple {
        assert!(at < TUPLES);
        Tuple(self.0 * TUPLES + at)
    }
}

/// Number of a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Tuple(u32);

impl Tuple {
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    pub(crate) const fn page(self) -> Page {
        Page(self.0 / TUPLES)
    }
}

/// What a transaction does with a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    /// Reads it and changes it.
    Update,
    /// Adds it.
    Insert,
    /// Removes it.
    Delete,
}

/// An access, in four bytes: two bits for what is done, the rest for the tuple.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op(u32);

impl Op {
    /// Returns the access.
    ///
    /// # Panics
    /// When the database has 2^30 tuples or more.
    pub(crate) fn new(access: Access, tuple: Tuple) -> Self {
        assert!(tuple.0 < 1 << 30, "a trace has room for 2^30 tuples");
        Self(tuple.0 << 2 | access as u32)
    }

    pub(crate) fn access(self) -> Access {
        match self.0 & 3 {
            0 => Access::Read,
            1 => Access::Update,
            2 => Access::Insert,
            _ => Access::Delete,
        }
    }

    pub(crate) fn tuple(self) -> Tuple {
        Tuple(self.0 >> 2)
    }

    /// Returns whether it changes the tuple.
    pub(crate) fn writes(self) -> bool {
        self.access() != Access::Read
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.access(), self.tuple().0)
    }
}

/// A transaction of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Txn<'t> {
    /// Its accesses, in order.
    pub(crate) ops: &'t [Op],
    /// Whether it locks what it reads.
    pub(crate) locks_reads: bool,
    /// Whether it ends with a commit, and not by taking its changes back.
    pub(crate) commits: bool,
}

/// What a database was asked for.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    ops: Vec<Op>,
    /// Of each transaction: the end of its accesses, whether it locks what it reads, and commits.
    txns: Vec<(usize, bool, bool)>,
    stored: u32,
    pages: u32,
}

impl Trace {
    /// Returns an empty trace of a database with `stored` pages on disk.
    pub(crate) fn new(stored: u32) -> Self {
        Self { stored, pages: stored, ..Self::default() }
    }

    /// Adds a transaction.
    pub(crate) fn push(&mut self, txn: Txn<'_>) {
        let most = txn.ops.iter().map(|op| op.tuple().page().get() + 1).max().unwrap_or(0);
        self.pages = self.pages.max(most);
        self.ops.extend_from_slice(txn.ops);
        self.txns.push((self.ops.len(), txn.locks_reads, txn.commits));
    }

    /// Returns transaction `at`, if there are as many.
    pub(crate) fn txn(&self, at: usize) -> Option<Txn<'_>> {
        let &(end, locks_reads, commits) = self.txns.get(at)?;
        let start = if at == 0 { 0 } else { self.txns[at - 1].0 };
        Some(Txn { ops: &self.ops[start..end], locks_reads, commits })
    }

    /// Returns how many transactions there are.
    pub(crate) fn len(&self) -> usize {
        self.txns.len()
    }

    /// Returns how many accesses there are.
    pub(crate) fn accesses(&self) -> usize {
        self.ops.len()
    }

    /// Returns how many pages are on disk at the beginning: those with the lowest numbers.
    pub(crate) fn stored(&self) -> u32 {
        self.stored
    }

    /// Returns how many pages there are at the end.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_and_transactions_come_back() {
        let ops: Vec<Op> = [Access::Read, Access::Update, Access::Insert, Access::Delete]
            .into_iter()
            .zip([0, 63, 64, (1 << 30) - 1])
            .map(|(access, tuple)| Op::new(access, Tuple(tuple)))
            .collect();
        assert_eq!(format!("{ops:?}"), "[Read 0, Update 63, Insert 64, Delete 1073741823]");
        assert_eq!(ops.iter().map(|op| op.writes()).collect::<Vec<_>>(), [false, true, true, true]);
        assert_eq!((ops[1].tuple().page(), ops[2].tuple().page()), (Page(0), Page(1)));
        assert_eq!(Page(1).tuple(0), ops[2].tuple());

        let mut trace = Trace::new(1);
        trace.push(Txn { ops: &ops[..1], locks_reads: true, commits: true });
        trace.push(Txn { ops: &[], locks_reads: false, commits: true });
        trace.push(Txn { ops: &ops[1..3], locks_reads: true, commits: false });
        assert_eq!((trace.len(), trace.accesses(), trace.stored(), trace.pages()), (3, 3, 1, 2));
        assert_eq!(trace.txn(0).unwrap().ops, &ops[..1]);
        assert!(trace.txn(1).unwrap().ops.is_empty());
        let last = trace.txn(2).unwrap();
        assert_eq!((last.ops, last.locks_reads, last.commits), (&ops[1..3], true, false));
        assert!(trace.txn(3).is_none());
    }
}
