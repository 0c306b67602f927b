//! `duramen load`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

use duramen::{BulkLoad, Db, Error, Options, Table};

use super::text::{Line, Reader, Totals, Unreadable};
use crate::args::LoadArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;
use crate::progress::{Bar, Narrator};

/// A transaction ends when its records have this many bytes.
const TRANSACTION_BYTES: usize = 1 << 20;

pub(crate) fn load(args: &LoadArgs, out: &mut dyn Write) -> Result<()> {
    let narrator = Narrator::new(false);
    narrator.say(&format!("checking {}", args.file.display()));
    let (names, found) = check(&args.file)?;
    let in_bulk = !["in-place", "pcm-logging"].contains(&database::scheme(&args.dir, &args.open));
    let options = database::options(&args.dir, &args.open)?;
    // A load is one transaction for the log.
    let log_max_bytes = options.log_max_bytes.max(2 * args.file.metadata().map_or(0, |file| file.len()));
    let db = database::open(&args.dir, Options { log_max_bytes, ..options }, narrator)?;
    let loaded = refuse_full(&db, &names).and_then(|()| {
        let mut bar = narrator.bar("loading", found.records.max(1));
        let loaded = load_into(&db, &args.file, in_bulk, &mut bar);
        bar.finish();
        loaded
    });
    db.close()?;
    let totals = loaded?;
    Ok(writeln!(out, "loaded {} records into {} tables", format::count(totals.records), totals.tables)?)
}

fn open(file: &Path) -> Result<Reader<BufReader<File>>> {
    let opened = File::open(file)
        .map_err(|error| Failure::Usage(format!("cannot open the dump {}: {error}", file.display())))?;
    Reader::begin(BufReader::with_capacity(1 << 20, opened)).map_err(|unreadable| failure(file, unreadable))
}

fn failure(file: &Path, unreadable: Unreadable) -> Failure {
    match unreadable {
        Unreadable::Io(error) => Failure::Run(format!("cannot read the dump {}: {error}", file.display())),
        Unreadable::Damaged(defect) => Failure::Damage(format!("the dump {}: {defect}", file.display())),
    }
}

/// Reads the whole dump; returns the names of its tables and what it holds.
fn check(file: &Path) -> Result<(BTreeSet<String>, Totals)> {
    let (mut reader, mut names) = (open(file)?, BTreeSet::new());
    loop {
        match reader.next().map_err(|unreadable| failure(file, unreadable))? {
            Line::Table(name) => {
                if let Some(again) = names.replace(name) {
                    let defect = reader.damaged(&format!("the table `{again}` comes twice"));
                    return Err(failure(file, defect));
                }
            }
            Line::Record(..) => {}
            Line::End(totals) => return Ok((names, totals)),
        }
    }
}

/// Returns an error if one of the tables has records.
fn refuse_full(db: &Db, names: &BTreeSet<String>) -> Result<()> {
    for name in db.list()?.into_iter().filter(|name| names.contains(name)) {
        let table = db.open_table(&name)?;
        if db.run(|txn| txn.first(&table))?.is_some() {
            return Err(Failure::Usage(format!(
                "the table `{name}` has records already; load into another database, or empty the table first"
            )));
        }
    }
    Ok(())
}

/// A table that is being loaded.
enum Target {
    /// In bulk: whole, or not at all.
    Bulk(Box<BulkLoad>),
    /// In transactions, for a scheme whose memory would have to hold the whole table, and for a
    /// table with more large values than one load can have.
    Transactions { table: Table, records: Vec<(Vec<u8>, Vec<u8>)>, bytes: usize },
}

impl Target {
    fn begin(db: &Db, name: &str, in_bulk: bool) -> Result<Self> {
        if in_bulk {
            return Ok(Self::Bulk(Box::new(db.bulk_load(name)?)));
        }
        Ok(Self::Transactions { table: db.table(name)?, records: Vec::new(), bytes: 0 })
    }

    fn add(self, db: &Db, key: Vec<u8>, value: Vec<u8>) -> Result<Self> {
        let (table, mut records, mut bytes) = match self {
            Self::Bulk(mut load) => match load.add(&key, &value) {
                Err(Error::TooManyLargeValues { .. }) => (load.finish()?, Vec::new(), 0),
                added => return Ok(added.map(|()| Self::Bulk(load))?),
            },
            Self::Transactions { table, records, bytes } => (table, records, bytes),
        };
        bytes += key.len() + value.len();
        records.push((key, value));
        if bytes >= TRANSACTION_BYTES {
            put(db, &table, &std::mem::take(&mut records))?;
            bytes = 0;
        }
        Ok(Self::Transactions { table, records, bytes })
    }

    fn end(self, db: &Db) -> Result<()> {
        match self {
            Self::Bulk(load) => drop(load.finish()?),
            Self::Transactions { table, records, .. } => put(db, &table, &records)?,
        }
        Ok(())
    }
}

fn load_into(db: &Db, file: &Path, in_bulk: bool, bar: &mut Bar) -> Result<Totals> {
    let mut reader = open(file)?;
    let mut target: Option<Target> = None;
    let mut done = 0_u64;
    loop {
        match reader.next().map_err(|unreadable| failure(file, unreadable))? {
            Line::Table(name) => {
                if let Some(target) = target.replace(Target::begin(db, &name, in_bulk)?) {
                    target.end(db)?;
                }
            }
            Line::Record(key, value) => {
                let table = target.take().expect("the reader refuses records before the first table");
                target = Some(table.add(db, key, value)?);
                done += 1;
                if done.is_multiple_of(1024) {
                    bar.records(done);
                }
            }
            Line::End(totals) => {
                if let Some(target) = target {
                    target.end(db)?;
                }
                return Ok(totals);
            }
        }
    }
}

/// Puts records into a table, in one transaction, or in several if one has no space.
fn put(db: &Db, table: &Table, records: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    let all = |txn: &mut duramen::Txn| records.iter().try_for_each(|(key, value)| txn.put(table, key, value));
    match db.run(all) {
        Err(Error::Full { .. }) if records.len() > 1 => {
            let (first, rest) = records.split_at(records.len() / 2);
            put(db, table, first)?;
            put(db, table, rest)
        }
        done => Ok(done?),
    }
}
