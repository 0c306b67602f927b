//! The questions, and the side that asks them.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use duramen_io::connect_locally;
use duramen_types::MAX_TABLE_NAME_LEN;

use super::SOCKET_TIMEOUT;
use crate::error::{Error, Result};
use crate::storage::catalog;

/// Bytes of the longest line, which has the name of a table in hexadecimal.
pub(super) const LONGEST: u64 = 2 * MAX_TABLE_NAME_LEN as u64 + 64;

/// Bytes of the longest text, which has the keys of [`Question::MOST_KEYS`] records.
const LONGEST_TEXT: u64 = 64 << 20;

/// The line that greets a process which connects.
pub(super) const GREETING: &str = "duramen 1";

/// The first line of an answer.
pub(super) const FINE: &str = "fine";
pub(super) const DAMAGED: &str = "damaged";
pub(super) const FAILED: &str = "failed";

/// What a process can be asked about the database that it has open.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Question {
    /// Its tables and counters: a line for each, with a name, a tab and a value.
    Stats,
    /// To read all records through a snapshot, which compares the checksums of all pages that are
    /// not in memory: a text for people. It takes long if there are many.
    Check,
    /// To measure a table: a [`TableReport`](crate::inspect::TableReport) for people, an empty
    /// line, and a line for each of the first records, committed or not: the key in hexadecimal, a
    /// tab, and the length of the value in bytes.
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

    pub(super) fn parse(line: &str) -> Option<Self> {
        match line {
            "stats" => Some(Self::Stats),
            "check" => Some(Self::Check),
            _ => {
                let (keys, name) = line.strip_prefix("table ")?.split_once(' ')?;
                Some(Self::Table { name: parse_name(name)?, keys: keys.parse().ok()? })
            }
        }
    }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// Reads the name of a table, which is in hexadecimal.
pub(super) fn parse_name(name: &str) -> Option<String> {
    let byte = |at: usize| u8::from_str_radix(name.get(at..at + 2)?, 16).ok();
    let name: Option<Vec<u8>> = (0..name.len()).step_by(2).map(byte).collect();
    String::from_utf8(name?).ok()
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

/// A connection with a process that has a database open, and has greeted.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) from: BufReader<UnixStream>,
    pub(super) process: u32,
}

impl Connection {
    /// Connects to the process that has the database in the directory `home` open. Returns nothing
    /// if no process answers there that is trusted.
    pub(super) fn open(home: &Path) -> Result<Option<Self>> {
        // Where a process may have no such sockets, it finds none either.
        let Ok(Some((stream, process))) = connect_locally(home) else { return Ok(None) };
        let mut connection = Self { from: BufReader::new(stream), process };
        // Other processes may be asking at this moment, or the one that listens has been stopped.
        connection.from.get_ref().set_read_timeout(Some(SOCKET_TIMEOUT)).map_err(|error| connection.failed(&error))?;
        match connection.read_line()?.as_str() {
            GREETING => {}
            "" => return Err(connection.failed(&ErrorKind::UnexpectedEof.into())),
            _ => return Err(connection.refused("has another version of this program")),
        }
        connection.from.get_ref().set_read_timeout(None).map_err(|error| connection.failed(&error))?;
        Ok(Some(connection))
    }

    /// Sends a line.
    pub(super) fn ask(&mut self, line: &str) -> Result<()> {
        writeln!(self.from.get_mut(), "{line}").map_err(|error| self.failed(&error))
    }

    /// Returns the next line, without its end.
    pub(super) fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        (&mut self.from).take(LONGEST).read_line(&mut line).map_err(|error| self.failed(&error))?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// Returns all text that the other side still sends.
    pub(super) fn read_rest(&mut self) -> Result<String> {
        let mut text = String::new();
        (&mut self.from).take(LONGEST_TEXT).read_to_string(&mut text).map_err(|error| self.failed(&error))?;
        Ok(text)
    }

    /// Returns the error of an answer whose first line is `outcome`, which is none of those that
    /// the caller expects.
    pub(super) fn unexpected(&mut self, outcome: &str) -> Error {
        match (outcome, self.read_rest()) {
            (FAILED, Ok(text)) => self.refused(&format!("answers: {}", text.trim_end())),
            ("", _) => self.failed(&ErrorKind::UnexpectedEof.into()),
            _ => self.refused("has sent something else than an answer"),
        }
    }

    pub(super) fn failed(&self, error: &std::io::Error) -> Error {
        self.refused(match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                "has the database open, but does not answer; other processes may be asking it"
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                "has broken off: it has closed the database, has ended, or can open no more files or threads"
            }
            _ => return self.refused(&format!("cannot be asked: {error}")),
        })
    }

    pub(super) fn refused(&self, reason: &str) -> Error {
        Error::Io { reason: format!("process {} {reason}", self.process) }
    }
}

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
    if let Question::Table { name, .. } = question {
        catalog::check_name(name)?;
    }
    let Some(mut connection) = Connection::open(home)? else { return Ok(None) };
    connection.ask(&question.line())?;
    let outcome = connection.read_line()?;
    let is_damaged = outcome == DAMAGED;
    if !is_damaged && outcome != FINE {
        return Err(connection.unexpected(&outcome));
    }
    Ok(Some(Answer { process: connection.process, text: connection.read_rest()?, is_damaged }))
}
