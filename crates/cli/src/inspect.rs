//! `duramen inspect`.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use duramen::inspect::Question;
use duramen::{Db, inspect};
use duramen_io::Disk;
use duramen_types::{LogAddress, LogId, Lsn, PageId};

use crate::args::{Inspect, InspectArgs, OpenArgs};
use crate::database::{self, closed_disk, heap_to_inspect, open_to_inspect, pcm_to_inspect};
use crate::failure::{Failure, Result};

/// How `inspect table` opens a database: nothing about it is worth an option.
const OPEN: OpenArgs = OpenArgs::with_pool(64);

pub(crate) fn inspect(args: &InspectArgs, out: &mut dyn Write) -> Result<()> {
    match &args.what {
        Inspect::Log { dir, log: number, from, limit } => {
            log(dir, LogId::new(*number), from.map(Lsn::new), *limit, out)
        }
        Inspect::Page { dir, page, region } => self::page(dir, PageId::new(*page), region.as_deref(), out),
        Inspect::Heap { dir, region } => heap(dir, region.as_deref(), out),
        Inspect::Pcm { dir, region } => pcm(dir, region.as_deref(), out),
        Inspect::Table { dir, name, keys, region } => table(dir, name, *keys, region.as_deref(), out),
        Inspect::Checkpoint { dir } => {
            let (disk, _lock) = closed_disk(dir)?;
            Ok(writeln!(out, "{}", inspect::checkpoint(disk)?)?)
        }
    }
}

/// Returns an error if the database has no heap.
fn require_heap(dir: &Path, disk: &dyn Disk) -> Result<()> {
    let instead = match inspect::scheme(disk) {
        Ok(scheme @ "wal") => (scheme, "`inspect log` and `inspect checkpoint`"),
        Ok(scheme @ "pcm-logging") => (scheme, "`inspect pcm`"),
        // With a damaged control file, the user's word counts.
        _ => return Ok(()),
    };
    Err(Failure::Usage(format!(
        "the database {} uses the scheme `{}`, which has no heap; omit `--region`, or use {}",
        dir.display(),
        instead.0,
        instead.1
    )))
}

fn page(dir: &Path, page: PageId, region: Option<&Path>, out: &mut dyn Write) -> Result<()> {
    let (disk, _lock) = closed_disk(dir)?;
    let report = match inspect::scheme(&*disk) {
        Ok("pcm-logging") => inspect::page_of_pcm(disk, &pcm_to_inspect(dir, region), page),
        Ok("wal") if region.is_none() => inspect::page(disk, page),
        Err(_) if region.is_none() && !heap_to_inspect(dir, None).1.exists() => inspect::page(disk, page),
        _ => {
            require_heap(dir, &*disk)?;
            inspect::page_of_heap(&heap_to_inspect(dir, region).0, page)
        }
    };
    Ok(writeln!(out, "{}", report?)?)
}

fn pcm(dir: &Path, region: Option<&Path>, out: &mut dyn Write) -> Result<()> {
    let (disk, _lock) = closed_disk(dir)?;
    if let Ok(scheme) = inspect::scheme(&*disk)
        && scheme != "pcm-logging"
    {
        return Err(Failure::Usage(format!(
            "the database {} uses the scheme `{scheme}`; only databases with `pcm-logging` have PCM to inspect",
            dir.display()
        )));
    }
    let report = inspect::pcm(&pcm_to_inspect(dir, region))?;
    writeln!(out, "{report}")?;
    match inspect::checkpoint(disk) {
        Ok(control) => match control.current() {
            Some(control) if control.database != report.database => {
                writeln!(out, "damaged: it is not the memory of the database {}", dir.display())?;
            }
            Some(control) if control.generation != report.generation => {
                writeln!(out, "note: the control file of {} has generation {}", dir.display(), control.generation)?;
            }
            _ => {}
        },
        Err(error) => writeln!(out, "note: the control file cannot be compared: {error}")?,
    }
    Ok(())
}

fn heap(dir: &Path, region: Option<&Path>, out: &mut dyn Write) -> Result<()> {
    let (disk, _lock) = closed_disk(dir)?;
    require_heap(dir, &*disk)?;
    let report = inspect::heap(&heap_to_inspect(dir, region).0)?;
    writeln!(out, "{report}")?;
    let control = match inspect::checkpoint(disk) {
        Ok(control) => control,
        Err(error) => return Ok(writeln!(out, "note: the control file cannot be compared: {error}")?),
    };
    if let (Ok(header), Some(control)) = (&report.header, control.current()) {
        if header.database != control.database {
            writeln!(out, "damaged: it is not the heap of the database {}", dir.display())?;
        } else if report.generation != control.generation {
            let generation = control.generation;
            writeln!(out, "note: the control file of {} has generation {generation}", dir.display())?;
        }
    }
    Ok(())
}

fn log(dir: &Path, number: LogId, from: Option<Lsn>, limit: u64, out: &mut dyn Write) -> Result<()> {
    let (disk, _lock) = closed_disk(dir)?;
    writeln!(
        out,
        "{:>12} {:>12} {:>10} {:>8} {:>12} {:>6}  {:<18} detail",
        "lsn", "gsn", "txn", "page", "prev", "bytes", "kind"
    )?;
    let mut entries = inspect::log_of(disk, number, from)?;
    for entry in entries.by_ref().take(usize::try_from(limit).unwrap_or(usize::MAX)) {
        let entry = entry?;
        writeln!(
            out,
            "{:>12} {:>12} {:>10} {:>8} {:>12} {:>6}  {:<18} {}",
            entry.lsn.get(),
            entry.gsn.get(),
            entry.txn.get(),
            entry.page.get(),
            place(entry.prev),
            entry.length,
            entry.kind,
            entry.detail
        )?;
    }
    if let Some(next) = entries.next().transpose()? {
        writeln!(out, "for more records: --from {} --limit N", next.lsn.get())?;
    } else if let Some(ring) = entries.ring() {
        writeln!(out, "the end of the log is in persistent memory, in ring number {ring:016x}")?;
    }
    Ok(())
}

/// Formats a log address: in the first log it is the LSN, in another one the log's number comes
/// first.
fn place(place: LogAddress) -> String {
    let (log, lsn) = (place.log(), place.lsn().get());
    if log.is_zero() { lsn.to_string() } else { format!("{}:{lsn}", log.get()) }
}

fn table(dir: &Path, name: &str, keys: usize, region: Option<&Path>, out: &mut dyn Write) -> Result<()> {
    let question = Question::Table { name: name.to_owned(), keys };
    if let Some(answer) = database::ask(dir, &question)? {
        writeln!(out, "process {} has the database open", answer.process)?;
        return of_open_database(&answer.text, keys, out);
    }
    let mut open = OPEN;
    open.log.region.extend(region.map(Path::to_owned));
    let db = open_to_inspect(dir, &open)?;
    let table = db.open_table(name).map_err(|error| match error {
        duramen::Error::NoSuchTable { name } => no_such_table(dir, &name, &db),
        other => other.into(),
    })?;
    writeln!(out, "{}", inspect::table(&db, &table)?)?;
    let mut txn = db.begin();
    for entry in txn.scan(&table, ..).take(keys) {
        let (key, value) = entry?;
        writeln!(out, "{}  {} bytes", printable(&key), value.len())?;
    }
    txn.commit()?;
    Ok(db.close()?)
}

/// Prints an answer to [`Question::Table`].
fn of_open_database(answer: &str, keys: usize, out: &mut dyn Write) -> Result<()> {
    let (report, records) = answer.split_once("\n\n").unwrap_or((answer, ""));
    writeln!(out, "{report}")?;
    if keys > Question::MOST_KEYS {
        writeln!(out, "the first {} keys; for more, close the database", Question::MOST_KEYS)?;
    }
    for (key, length) in records.lines().filter_map(|record| record.split_once('\t')) {
        let byte = |at: usize| u8::from_str_radix(key.get(at..at + 2)?, 16).ok();
        let key: Option<Vec<u8>> = (0..key.len()).step_by(2).map(byte).collect();
        writeln!(out, "{}  {length} bytes", printable(&key.unwrap_or_default()))?;
    }
    Ok(())
}

/// Returns what there is instead of a table.
fn no_such_table(dir: &Path, name: &str, db: &Db) -> Failure {
    const SHOWN: usize = 20;
    let names = db.list().unwrap_or_default();
    let some: Vec<_> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let (some, dir) = (some.join(", "), dir.display());
    Failure::Run(match names.len() {
        0 => format!("there is no table `{name}` in {dir}, which has no tables"),
        1..=SHOWN => {
            format!("there is no table `{name}` in {dir}; its tables are {some} (`duramen stats {dir}` lists tables)")
        }
        _ => format!(
            "there is no table `{name}` in {dir}; its tables are {some} and others (`duramen stats {dir}` lists all)"
        ),
    })
}

/// Returns a key as text when it is text, else in hexadecimal.
fn printable(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.is_empty() && text.chars().all(|c| !c.is_control()) => format!("{text:?}"),
        _ => key.iter().fold("0x".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn keys_are_text_or_hexadecimal() {
        assert_eq!(printable(b"abc"), "\"abc\"");
        assert_eq!(printable(&[0, 0xff]), "0x00ff");
        assert_eq!(printable(b""), "0x");
    }
}
