//! The answers, made while transactions run.

use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use duramen_io::is_left;
use duramen_sync::References;

use super::question::{DAMAGED, FINE, Question, hexadecimal};
use crate::api::{metrics, table_list};
use crate::check::TableReport;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::LockId;
use crate::options::Isolation;
use crate::page::SlotFlags;
use crate::snapshot::Snapshot;
use crate::storage::overflow::Reference;
use crate::txn::Txn;

/// How long a question may wait for a transaction that creates or drops a table.
const LOCK_WAIT_LIMIT: Duration = Duration::from_secs(1);

/// Answers a question: how it went, and text.
pub(super) fn answer(
    engine: &References<Engine>,
    question: &Question,
    asker: &UnixStream,
) -> Result<(&'static str, String)> {
    match question {
        Question::Stats => stats(engine).map(|text| (FINE, text)),
        Question::Check => check(engine, asker),
        Question::Table { name, keys } => table(engine, name, *keys, asker).map(|text| (FINE, text)),
    }
}

/// Begins a transaction on the catalog. Others who ask do not wait long for it.
fn begin_catalog(engine: &References<Engine>) -> Result<Txn> {
    let mut txn = Txn::begin(engine.take(), Isolation::Serializable);
    txn.set_lock_wait_limit(Some(LOCK_WAIT_LIMIT));
    txn.lock_exclusively(LockId::catalog())?;
    Ok(txn)
}

fn stats(engine: &References<Engine>) -> Result<String> {
    let tables = match begin_catalog(engine) {
        Ok(mut txn) => {
            let names = table_list::names(&mut txn)?;
            txn.commit()?;
            names.join(", ")
        }
        // A long change of the tables is no reason to withhold the counters.
        Err(Error::LockTimeout { .. }) => "(being changed)".to_owned(),
        Err(error) => return Err(error),
    };
    let mut text = format!("tables\t{tables}\n");
    for (name, value) in metrics::of(engine).named() {
        writeln!(text, "{name}\t{value}").expect("a string takes everything");
    }
    Ok(text)
}

/// Returns an error if there is no use in going on.
fn go_on(engine: &Engine, asker: &UnixStream) -> Result<()> {
    engine.health.check()?;
    match is_left(asker) {
        true => Err(Error::Io { reason: "the process that asked has gone".to_owned() }),
        false => Ok(()),
    }
}

fn table(engine: &References<Engine>, name: &str, keys: usize, asker: &UnixStream) -> Result<String> {
    let mut txn = begin_catalog(engine)?;
    let table = table_list::open(&mut txn, engine, name)?;
    txn.commit()?;
    let mut records = Vec::new();
    let report = TableReport::measure(
        engine,
        &table,
        || go_on(engine, asker),
        |leaf, first| {
            for slot in (first..leaf.slot_count()).filter(|&slot| !leaf.is_ghost(slot)) {
                if records.len() == keys.min(Question::MOST_KEYS) {
                    break;
                }
                let (value, flags, mut key) = (leaf.value(slot), leaf.flags(slot), Vec::new());
                leaf.append_key(slot, &mut key);
                let large = flags.contains(SlotFlags::OVERFLOW).then(|| Reference::decode(value)).flatten();
                records.push((key, large.map_or(value.len() as u64, |large| large.len.into())));
            }
        },
    )?;
    let mut text = format!("{report}\n\n");
    for (key, length) in records {
        writeln!(text, "{}\t{length}", hexadecimal(&key)).expect("a string takes everything");
    }
    Ok(text)
}

fn check(engine: &References<Engine>, asker: &UnixStream) -> Result<(&'static str, String)> {
    let snapshot = Snapshot::open(engine.take())?;
    let (names, mut records, mut problems) = (snapshot.list()?, 0_u64, String::new());
    for name in &names {
        let table = snapshot.open_for_reading(name)?;
        let mut cursor = snapshot.cursor(&table, ..);
        let read = loop {
            match cursor.next() {
                Ok(Some(_)) => {
                    records += 1;
                    if records.is_multiple_of(1024) {
                        go_on(engine, asker)?;
                    }
                }
                end => break end.map(drop),
            }
        };
        match read {
            Err(error @ Error::Corrupt { .. }) => {
                writeln!(problems, "problem: table `{name}`: {error}").expect("a string takes everything");
            }
            read => read?,
        }
    }
    let outcome = if problems.is_empty() { FINE } else { DAMAGED };
    Ok((outcome, format!("read through a snapshot: {} tables, {records} records\n{problems}", names.len())))
}
