//! Answers questions of other processes about a database that this one has open.
//!
//! A thread waits at a local socket ([`LocalListener`]). A process that asks ([`ask`]) gets a line
//! of greeting, sends a line with its question, and gets an answer: a line that says how it went,
//! and text. One is served at a time, and one that does not send its question, or take its answer,
//! within some seconds is left. Where the system refuses the socket, the database does without.
//!
//! The thread does not keep the database open while it waits. While it answers, the thread that
//! closes the database, or drops the last handle, waits for it.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use duramen_io::{LocalListener, connect_locally, is_left};
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Mutex, References, Weak};
use duramen_types::MAX_TABLE_NAME_LEN;

use super::{metrics, table_list};
use crate::check::TableReport;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::LockId;
use crate::options::Isolation;
use crate::page::SlotFlags;
use crate::snapshot::Snapshot;
use crate::storage::catalog;
use crate::storage::overflow::Reference;
use crate::txn::Txn;

/// How long each side may take to greet, to send a question, and to take a part of an answer.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a question may wait for a transaction that creates or drops a table.
const LOCK_WAIT_LIMIT: Duration = Duration::from_secs(1);

/// Bytes of the longest question, which has the name of a table in hexadecimal.
const LONGEST: u64 = 2 * MAX_TABLE_NAME_LEN as u64 + 64;

/// What a process can be asked about the database that it has open.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Question {
    /// Its tables and counters: a line for each, with a name, a tab and a value.
    Stats,
    /// To read all records through a snapshot, which compares the checksums of all pages that are
    /// not in memory: a text for people. It takes long if there are many.
    Check,
    /// To measure a table: a [`TableReport`] for people, an empty line, and a line for each
    /// of the first records, committed or not: the key in hexadecimal, a tab, and the length of the
    /// value in bytes.
    Table {
        /// The name of the table.
        name: String,
        /// How many records have a line, at most [`Question::MOST_KEYS`].
        keys: usize,
    },
}

impl Question {
    /// The most records of a table that an answer lists.
    pub const MOST_KEYS: usize = 10_000;

    fn line(&self) -> String {
        match self {
            Self::Stats => "stats".to_owned(),
            Self::Check => "check".to_owned(),
            Self::Table { name, keys } => format!("table {keys} {}", hexadecimal(name.as_bytes())),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        match line {
            "stats" => Some(Self::Stats),
            "check" => Some(Self::Check),
            _ => {
                let (keys, name) = line.strip_prefix("table ")?.split_once(' ')?;
                let byte = |at: usize| u8::from_str_radix(name.get(at..at + 2)?, 16).ok();
                let name: Option<Vec<u8>> = (0..name.len()).step_by(2).map(byte).collect();
                Some(Self::Table { name: String::from_utf8(name?).ok()?, keys: keys.parse().ok()? })
            }
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// The answer to a [`Question`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The process that has the database open.
    pub process: u32,
    /// Its answer.
    pub text: String,
    /// Whether it has found damage.
    pub is_damaged: bool,
}

const GREETING: &str = "duramen 1";

/// The first line of an answer.
const FINE: &str = "fine";
const DAMAGED: &str = "damaged";
const FAILED: &str = "failed";

/// Asks the process that has the database in the directory `home` open
/// ([`crate::Options::answers_questions`]). Returns nothing if no process of the same user, of the
/// directory's owner or of the superuser answers there.
///
/// ```
/// # fn main() -> duramen::Result<()> {
/// use duramen::inspect::{Question, ask};
///
/// # let home = tempfile::tempdir().unwrap();
/// # let path = home.path();
/// let db = duramen::Db::open(path, duramen::Options::default())?;
/// db.create_table("films")?;
/// // Usually another process asks.
/// let answer = ask(path, &Question::Stats)?.expect("the database is open");
/// assert_eq!(answer.process, std::process::id());
/// assert!(answer.text.starts_with("tables\tfilms\n"));
///
/// db.close()?;
/// assert_eq!(ask(path, &Question::Stats)?, None);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::BadTableName`]; [`Error::Io`] if the system or the other process fails; the process's
/// own error is in the text.
pub fn ask(home: &Path, question: &Question) -> Result<Option<Answer>> {
    let failed = |error: std::io::Error| Error::Io {
        reason: format!("cannot ask the process that has {} open: {error}", home.display()),
    };
    if let Question::Table { name, .. } = question {
        catalog::check_name(name)?;
    }
    // Where a process may have no such sockets, it finds none either.
    let Ok(Some((stream, process))) = connect_locally(home) else { return Ok(None) };
    stream.set_read_timeout(Some(SOCKET_TIMEOUT)).map_err(failed)?;
    let (mut from, mut greeting, mut answer) = (BufReader::new(&stream), String::new(), String::new());
    // Another process may be asking at this moment, or the one that listens has been stopped.
    from.read_line(&mut greeting).map_err(failed)?;
    let refused = |reason: &str| Err(Error::Io { reason: format!("process {process} {reason}") });
    match greeting.trim_end() {
        GREETING => {}
        "" => return refused("has closed the database"),
        _ => return refused("has another version of this program"),
    }
    writeln!(&stream, "{}", question.line()).map_err(failed)?;
    stream.set_read_timeout(None).map_err(failed)?;
    from.read_to_string(&mut answer).map_err(failed)?;
    match answer.split_once('\n').unwrap_or_default() {
        (outcome @ (FINE | DAMAGED), text) => {
            Ok(Some(Answer { process, text: text.to_owned(), is_damaged: outcome == DAMAGED }))
        }
        (FAILED, text) => refused(&format!("answers: {}", text.trim_end())),
        _ => refused("has not answered"),
    }
}

/// The socket, and the thread that waits there.
#[derive(Debug)]
pub(super) struct Answerer {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread works with.
#[derive(Debug)]
struct Desk {
    listener: LocalListener,
    /// The connection with the process that is served.
    served: Mutex<Option<UnixStream>>,
}

impl Desk {
    fn close(&self) {
        self.listener.close();
        if let Some(stream) = &*self.served.lock() {
            // It may be gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Answerer {
    /// Begins to answer questions about the database in the directory `home`; returns nothing if
    /// the system permits no socket or no thread.
    pub(super) fn start(home: &Path, engine: Weak<Engine>) -> Option<Self> {
        let desk = Arc::new(Desk { listener: LocalListener::bind(home).ok()?, served: Mutex::default() });
        let waiting = Arc::clone(&desk);
        let thread = thread::spawn("duramen-answerer", move || attend(&waiting, &engine)).ok()?;
        Some(Self { desk, thread: Mutex::new(Some(thread)) })
    }

    /// Breaks off an answer, and takes no more questions.
    pub(super) fn close(&self) {
        self.desk.close();
    }

    /// As [`Self::close`], and waits for the end of the thread, unless it is the calling one.
    pub(super) fn stop(&self) {
        self.close();
        if let Some(thread) = self.thread.lock().take()
            && !thread::is_current(&thread)
        {
            // A panic has ended the thread before.
            let _ = thread.join();
        }
    }
}

/// Closes the desk when the thread ends, however it does: then nobody waits there.
struct Closing<'d>(&'d Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn attend(desk: &Desk, engine: &Weak<Engine>) {
    let _closing = Closing(desk);
    while let Some(stream) = desk.listener.accept() {
        let Some(engine) = engine.upgrade() else { return };
        *desk.served.lock() = stream.try_clone().ok();
        // Whoever closes the desk sets this, and then looks for the stream.
        if desk.listener.is_closed() {
            return;
        }
        // A process that goes away gets no answer.
        let _ = serve(engine, &stream);
        *desk.served.lock() = None;
    }
}

fn serve(engine: Arc<Engine>, stream: &UnixStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    let (mut question, mut to, engine) = (String::new(), stream, References::new(engine));
    writeln!(to, "{GREETING}")?;
    BufReader::new(stream.take(LONGEST)).read_line(&mut question)?;
    let answer = match question.strip_suffix('\n').and_then(Question::parse) {
        Some(Question::Stats) => stats(&engine).map(|text| (FINE, text)),
        Some(Question::Check) => check(&engine, stream),
        Some(Question::Table { name, keys }) => table(&engine, &name, keys, stream).map(|text| (FINE, text)),
        None => return writeln!(to, "{FAILED}\nit does not know the question"),
    };
    match answer {
        Ok((outcome, text)) => write!(to, "{outcome}\n{text}"),
        Err(error) => write!(to, "{FAILED}\n{error}"),
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
    let mut txn = begin_catalog(engine)?;
    let mut text = format!("tables\t{}\n", table_list::names(&mut txn)?.join(", "));
    txn.commit()?;
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
        let table = snapshot.open_table(name)?;
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
