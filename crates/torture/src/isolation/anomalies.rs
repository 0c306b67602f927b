//! The known anomalies as small programs, run in all interleavings, and random programs besides.
//!
//! Names and shapes follow Adya, Liskov, O'Neil (Generalized isolation level definitions,
//! ICDE 2000) and Berenson et al. (A critique of ANSI SQL isolation levels, SIGMOD 1995); the set
//! is the one that the Hermitage project made customary, with cases for key ranges added.

use duramen::{Db, Isolation};
use duramen_io::SimDisk;
use duramen_sync::Arc;

use super::interleave::{Interleaver, count_interleavings, interleavings};
use super::program::{Expr, Op, Predicate, Program, State};
use super::serial::{read_committed_violation, serial_order};
use crate::harness::{Budget, Coverage, Tally};
use crate::variant::Variant;
use crate::workloads::test_options;
use crate::world::{LogEnd, World};
use Expr::{Const, ReadPlus, ScanPlus};
use Op::{
    Abort, AddWhere, Commit, Delete, DeleteRange, DeleteWhere, Get, GetForUpdate, Insert, Put, Scan, ScanDown,
    TakeFirst, Update,
};
use duramen_test_support::Rng;

/// A set of programs that show an anomaly if some interleaving of them is not serializable.
#[derive(Clone, Debug)]
pub struct Anomaly {
    /// Its name in the literature, or what it is about.
    pub name: &'static str,
    /// The table before: keys and values.
    pub table: &'static [(u8, i64)],
    /// The transactions.
    pub programs: Vec<Program>,
    /// Whether read committed must exclude it as well.
    pub under_read_committed: bool,
}

const TWO: &[(u8, i64)] = &[(1, 10), (2, 20)];

/// Returns every anomaly.
#[rustfmt::skip]
pub fn all() -> Vec<Anomaly> {
    let under_both = |name, table, programs| Anomaly { name, table, programs, under_read_committed: true };
    let serializable = |name, table, programs| Anomaly { name, table, programs, under_read_committed: false };
    let thirds = Predicate::modulo(3, 0);
    vec![
        under_both("G0 dirty write", TWO, vec![
            vec![Put(1, Const(11)), Put(2, Const(21)), Commit],
            vec![Put(1, Const(12)), Put(2, Const(22)), Commit],
        ]),
        under_both("G1a aborted read", TWO, vec![
            vec![Put(1, Const(101)), Insert(3, Const(103)), Abort],
            vec![Get(1), Scan(Predicate::ALL), Get(3), Commit],
        ]),
        under_both("G1b intermediate read", TWO, vec![
            vec![Put(1, Const(101)), Put(1, Const(11)), Commit],
            vec![Get(1), Scan(Predicate::ALL), Commit],
        ]),
        under_both("G1c circular information flow", TWO, vec![
            vec![Put(1, Const(11)), Get(2), Commit],
            vec![Put(2, Const(22)), Get(1), Commit],
        ]),
        serializable("OTV observed transaction vanishes", TWO, vec![
            vec![Put(1, Const(11)), Put(2, Const(19)), Commit],
            vec![Put(1, Const(12)), Put(2, Const(18)), Commit],
            vec![Get(1), Get(2), Get(1), Commit],
        ]),
        serializable("PMP predicate read", TWO, vec![
            vec![Scan(Predicate::modulo(30, 0)), Scan(thirds), Commit],
            vec![Insert(3, Const(30)), Commit],
        ]),
        serializable("PMP predicate write", TWO, vec![
            vec![AddWhere(Predicate::ALL, 10), Commit],
            vec![Scan(Predicate::ALL), DeleteWhere(Predicate::modulo(20, 0)), Commit],
        ]),
        serializable("P4 lost update", TWO, vec![
            vec![Get(1), Put(1, ReadPlus(1, 1)), Commit],
            vec![Get(1), Put(1, ReadPlus(1, 2)), Commit],
        ]),
        serializable("P4 lost update, locked reads", TWO, vec![
            vec![GetForUpdate(1), Put(1, ReadPlus(1, 1)), Commit],
            vec![GetForUpdate(1), Update(1, ReadPlus(1, 2)), Commit],
            vec![Get(1), Put(1, ReadPlus(1, 4)), Commit],
        ]),
        serializable("G-single read skew", TWO, vec![
            vec![Get(1), Get(2), Commit],
            vec![Get(1), Get(2), Put(1, Const(12)), Put(2, Const(18)), Commit],
        ]),
        serializable("G-single read skew, predicates", TWO, vec![
            vec![Scan(Predicate::modulo(5, 0)), Scan(thirds), Commit],
            vec![AddWhere(Predicate::modulo(10, 0), 2), Commit],
        ]),
        serializable("G-single read skew, predicate write", TWO, vec![
            vec![Get(1), DeleteWhere(Predicate::modulo(20, 0)), Commit],
            vec![Scan(Predicate::ALL), Put(1, Const(12)), Put(2, Const(18)), Commit],
        ]),
        serializable("G2-item write skew", TWO, vec![
            vec![Get(1), Get(2), Put(1, Const(11)), Commit],
            vec![Get(1), Get(2), Put(2, Const(21)), Commit],
        ]),
        serializable("G2 write skew by predicate", TWO, vec![
            vec![Scan(thirds), Insert(3, Const(30)), Commit],
            vec![Scan(thirds), Insert(4, Const(42)), Commit],
        ]),
        serializable("G2 write skew by sums", TWO, vec![
            vec![Scan(Predicate::keys(1, 100)), Insert(50, ScanPlus(1)), Commit],
            vec![Scan(Predicate::keys(1, 100)), Insert(60, ScanPlus(1)), Commit],
        ]),
        serializable("G2 read-only transaction anomaly", TWO, vec![
            vec![Scan(Predicate::ALL), Put(1, Const(0)), Commit],
            vec![Get(2), Put(2, ReadPlus(2, 5)), Commit],
            vec![Scan(Predicate::ALL), Commit],
        ]),
        serializable("phantom at the end of the table", TWO, vec![
            vec![Scan(Predicate::keys(100, 255)), Scan(Predicate::keys(100, 255)), Commit],
            vec![Insert(200, Const(1)), Commit],
        ]),
        serializable("phantom before the first key", TWO, vec![
            vec![ScanDown(Predicate::keys(0, 1)), ScanDown(Predicate::keys(0, 1)), Commit],
            vec![Put(0, Const(1)), Commit],
        ]),
        serializable("phantom in an empty table", &[], vec![
            vec![Scan(Predicate::ALL), Insert(1, ScanPlus(1)), Commit],
            vec![ScanDown(Predicate::ALL), Insert(2, ScanPlus(1)), Commit],
        ]),
        serializable("phantom made by a deletion", TWO, vec![
            vec![Scan(Predicate::ALL), Scan(Predicate::ALL), Commit],
            vec![Delete(2), Commit],
            vec![Insert(3, Const(30)), Commit],
        ]),
        serializable("write skew on absent keys", TWO, vec![
            vec![Get(5), Put(6, Const(1)), Commit],
            vec![Get(6), Put(5, Const(1)), Commit],
        ]),
        serializable("two insertions of one key", TWO, vec![
            vec![Insert(5, Const(1)), Get(5), Commit],
            vec![Insert(5, Const(2)), Get(5), Commit],
        ]),
        serializable("deletion undone", TWO, vec![
            vec![Delete(1), Get(1), Abort],
            vec![Insert(1, Const(7)), Get(1), Commit],
        ]),
        serializable("deletion and insertion", TWO, vec![
            vec![Delete(2), Insert(3, Const(30)), Commit],
            vec![Delete(3), Insert(2, Const(21)), Commit],
            vec![Get(2), Get(3), Commit],
        ]),
        serializable("absence by deletion", TWO, vec![
            vec![Delete(2), Commit],
            vec![Delete(2), Put(1, Const(11)), Commit],
            vec![Get(1), Insert(2, Const(22)), Commit],
        ]),
        serializable("queue taken by two", &[(10, 1), (11, 2), (12, 3)], vec![
            vec![TakeFirst(5, 50), Commit],
            vec![TakeFirst(5, 50), Put(9, Const(4)), Commit],
            vec![Insert(8, Const(5)), Commit],
        ]),
        serializable("aborted insertions leave no gap open", TWO, vec![
            vec![Insert(5, Const(1)), Abort],
            vec![Scan(Predicate::keys(3, 9)), Put(1, ScanPlus(1)), Commit],
            vec![Get(1), Insert(6, ReadPlus(1, 0)), Commit],
        ]),
    ]
}

/// Returns random programs on few keys.
pub fn random_programs(rng: &mut Rng) -> Vec<Program> {
    let transactions = rng.within(2..4);
    (0..transactions).map(|_| random_program(rng)).collect()
}

fn random_program(rng: &mut Rng) -> Program {
    let mut program: Program = (0..rng.within(1..4)).map(|_| random_op(rng)).collect();
    program.push(if rng.percent(12) { Abort } else { Commit });
    program
}

fn random_op(rng: &mut Rng) -> Op {
    let key = rng.within(1..6) as u8;
    let range = {
        let to = rng.within(usize::from(key)..8) as u8;
        if rng.percent(20) { Predicate::ALL } else { Predicate::keys(key, to) }
    };
    let value = match rng.within(0..3) {
        0 => Const(rng.within(0..1000) as i64),
        1 => ReadPlus(rng.within(1..6) as u8, rng.within(0..1000) as i64),
        _ => ScanPlus(rng.within(0..1000) as i64),
    };
    match rng.within(0..15) {
        0 | 1 => Get(key),
        2 => GetForUpdate(key),
        3 | 4 => Put(key, value),
        5 | 6 => Insert(key, value),
        7 => Update(key, value),
        8 | 9 => Delete(key),
        10 => Scan(range),
        11 => ScanDown(range),
        12 => TakeFirst(range.from, range.to),
        13 => DeleteRange(range.from, range.to),
        _ => AddWhere(range, rng.within(1..100) as i64),
    }
}

/// What a suite of interleavings is run with.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The isolation to hold.
    pub isolation: Isolation,
    /// Interleavings of each set of programs.
    pub coverage: Coverage,
    /// Where the end of the log is kept.
    pub log: LogEnd,
}

impl Setting {
    /// For random programs, with the log in files.
    pub const RANDOM: Self =
        Self { isolation: Isolation::Serializable, coverage: Coverage::Sample(6), log: LogEnd::Files };
}

/// Returns a fresh database with one table for small programs.
///
/// # Errors
/// The engine's, as text.
pub fn database(seed: u64, log: LogEnd) -> Result<Interleaver, String> {
    let text = |error: duramen::Error| error.to_string();
    // Waits are part of these suites: only deadlocks may end them.
    let options = Variant::of(seed).apply(duramen::Options { lock_wait_limit: None, ..test_options() });
    let world = World::new(SimDisk::new(seed), log, &options);
    let db = Db::open_on(Arc::new(world.disk.clone()), world.options(&options)).map_err(text)?;
    let table = db.create_table("small").map_err(text)?;
    Interleaver::new(&db, &table, 3).map_err(|error| error.to_string())
}

/// Runs one anomaly in its interleavings, with and without records around its own.
pub fn try_anomaly(anomaly: &Anomaly, setting: Setting, seed: u64, budget: &Budget) -> Tally {
    let mut tally = Tally::default();
    let repeat = format!("torture isolation --only '{}'{} --seed {seed}", anomaly.name, setting.log.argument());
    match database(seed, setting.log) {
        Ok(interleaver) => {
            for (number, around) in [&[][..], &[(0, -3), (7, -30), (255, -300)][..]].into_iter().enumerate() {
                let before: State = anomaly.table.iter().chain(around).copied().collect();
                let seed = seed + number as u64;
                let run = Run { interleaver: &interleaver, programs: &anomaly.programs, before: &before };
                tally.add(run.all(setting, seed, budget, &repeat));
            }
        }
        Err(failure) => tally.failures.push(format!("[{repeat}] {failure}")),
    }
    tally
}

/// Runs random programs, each set in a few interleavings.
pub fn try_random(sets: usize, setting: Setting, seed: u64, budget: &Budget) -> Tally {
    let mut tally = Tally::default();
    let repeat = format!("torture isolation --only random{} --seed {seed}", setting.log.argument());
    let interleaver = match database(seed, setting.log) {
        Ok(interleaver) => interleaver,
        Err(failure) => {
            tally.failures.push(format!("[{repeat}] {failure}"));
            return tally;
        }
    };
    let mut rng = Rng::new(seed);
    for _ in 0..sets {
        if budget.is_spent(&tally) || interleaver.is_broken() {
            break;
        }
        let programs = random_programs(&mut rng);
        let before: State =
            (0..rng.within(0..5)).map(|_| (rng.within(1..7) as u8, rng.within(0..100) as i64)).collect();
        let run = Run { interleaver: &interleaver, programs: &programs, before: &before };
        tally.add(run.all(setting, rng.bits(), budget, &repeat));
    }
    tally
}

struct Run<'a> {
    interleaver: &'a Interleaver,
    programs: &'a [Program],
    before: &'a State,
}

impl Run<'_> {
    fn all(&self, setting: Setting, seed: u64, budget: &Budget, repeat: &str) -> Tally {
        let mut tally = Tally::default();
        let mut rng = Rng::new(seed);
        for schedule in schedules(self.programs, setting.coverage, &mut rng) {
            if budget.is_spent(&tally) || self.interleaver.is_broken() {
                break;
            }
            tally.points += 1;
            match self.one(&schedule, setting.isolation) {
                Ok(()) => tally.checks += 1,
                Err(failure) => tally.failures.push(format!("[{repeat}] schedule {schedule:?}: {failure}")),
            }
        }
        tally
    }

    fn one(&self, schedule: &[usize], isolation: Isolation) -> Result<(), String> {
        let execution = self.interleaver.run(self.programs, self.before, schedule, isolation)?;
        let failure = match isolation {
            Isolation::Serializable => match serial_order(self.programs, &execution) {
                Some(_) => None,
                None => Some("no serial order explains it".to_owned()),
            },
            Isolation::ReadCommitted => read_committed_violation(self.programs, &execution),
        };
        failure.map_or(Ok(()), |failure| Err(format!("{failure}\n{execution}  programs {:?}", self.programs)))
    }
}

fn schedules(programs: &[Program], coverage: Coverage, rng: &mut Rng) -> Vec<Vec<usize>> {
    let lengths: Vec<usize> = programs.iter().map(Vec::len).collect();
    match coverage {
        Coverage::Sample(wanted) if (wanted as u64) < count_interleavings(&lengths) => {
            let one_after_another = (0..lengths.len()).flat_map(|txn| std::iter::repeat_n(txn, lengths[txn]));
            let mut schedule: Vec<usize> = one_after_another.collect();
            std::iter::repeat_with(|| {
                rng.shuffle(&mut schedule);
                schedule.clone()
            })
            .take(wanted)
            .collect()
        }
        Coverage::All | Coverage::Sample(_) => interleavings(&lengths),
    }
}
