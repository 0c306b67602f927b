//! A snapshot that one process opens in another.
//!
//! The process that asks gets a line that says how it went, the number of tables, and their names,
//! in hexadecimal and each on a line. Then it asks for tables, one after the other. A record comes
//! as the length of its key, that of its value, and their bytes. Behind the last one there is
//! [`END`] in place of a length, and a line that says how it went. Numbers are little-endian, of 32
//! bits. After an error, the connection ends behind the text of the error. Otherwise the snapshot
//! lasts until one side closes the connection, or the one that reads has done nothing for
//! [`LONGEST_PAUSE`].
//!
//! The process that shows a snapshot holds nothing that stops its own threads while it waits for
//! the one that reads; but the versions and the space that the snapshot needs are kept.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use duramen_sync::References;
use duramen_types::{MAX_KEY_LEN, MAX_VALUE_LEN, PageId};

use super::question::{Connection, DAMAGED, FAILED, FINE, LONGEST, hexadecimal, parse_name};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::storage::catalog;

/// The line that asks for a snapshot.
pub(super) const SNAPSHOT: &str = "snapshot";

/// What the line begins with that asks for a table.
const READ: &str = "read ";

/// Comes after the last record.
const END: u32 = u32::MAX;

/// Bytes that are sent at once.
const SENT: usize = 64 << 10;

/// How long the process that reads may pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The most tables of a snapshot.
const MOST_TABLES: u32 = 1 << 22;

/// A snapshot of a database that another process has open: what [`crate::Snapshot`] is in that
/// process. It lasts until it is dropped, the database is closed, there is an error, or nothing has
/// been read for ten minutes. It needs there what any snapshot needs: memory for the versions, and
/// the space of what has been deleted since.
#[derive(Debug)]
pub struct RemoteSnapshot {
    connection: Connection,
    tables: Vec<String>,
    /// There may be more records of a table.
    is_reading: bool,
    /// After an error there is nothing more to read.
    failed: Option<Error>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl RemoteSnapshot {
    /// Opens a snapshot in the process that has the database in the directory `home` open
    /// ([`crate::Options::snapshots`], [`crate::Options::answers_questions`]). Returns nothing if
    /// no process of the same user, of the directory's owner or of the superuser answers there.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// use duramen::inspect::RemoteSnapshot;
    ///
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// let options = duramen::Options { snapshots: true, ..duramen::Options::default() };
    /// let db = duramen::Db::open(path, options)?;
    /// let films = db.create_table("films")?;
    /// // Usually another process reads.
    /// let mut snapshot = RemoteSnapshot::open(path)?.expect("the database is open");
    /// db.run(|txn| txn.put(&films, b"Alien", b"1979"))?;
    /// snapshot.read("films")?;
    /// assert_eq!(snapshot.next()?, None); // the snapshot is from before
    ///
    /// drop(snapshot);
    /// db.close()?;
    /// assert!(RemoteSnapshot::open(path)?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if the system or the other process fails, or if too many processes read
    /// snapshots there; the process's own error is in the text.
    pub fn open(home: &Path) -> Result<Option<Self>> {
        let Some(mut connection) = Connection::open(home)? else { return Ok(None) };
        connection.ask(SNAPSHOT)?;
        let outcome = connection.read_line()?;
        if outcome != FINE {
            return Err(connection.unexpected(&outcome));
        }
        let strange = |connection: &Connection| connection.refused("has sent something else than a snapshot's tables");
        let count = connection.read_number()?;
        if count > MOST_TABLES {
            return Err(strange(&connection));
        }
        let mut tables = Vec::new();
        for _ in 0..count {
            match parse_name(&connection.read_line()?) {
                Some(name) if !name.is_empty() => tables.push(name),
                _ => return Err(strange(&connection)),
            }
        }
        Ok(Some(Self { connection, tables, is_reading: false, failed: None, key: Vec::new(), value: Vec::new() }))
    }

    /// Returns the number of the process that has the database open.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use duramen::inspect::RemoteSnapshot;
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::default() };
    /// # let db = duramen::Db::open(path, options)?;
    /// let snapshot = RemoteSnapshot::open(path)?.expect("the database is open");
    /// assert_eq!(snapshot.process(), std::process::id()); // of this process, for once
    /// # drop(db);
    /// # Ok(())
    /// # }
    /// ```
    pub fn process(&self) -> u32 {
        self.connection.process
    }

    /// Returns the names of all tables, sorted.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use duramen::inspect::RemoteSnapshot;
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::default() };
    /// # let db = duramen::Db::open(path, options)?;
    /// db.create_table("orders")?;
    /// db.create_table("customers")?;
    /// let snapshot = RemoteSnapshot::open(path)?.expect("the database is open");
    /// assert_eq!(snapshot.list(), ["customers", "orders"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> &[String] {
        &self.tables
    }

    /// Begins to read a table, whose records [`Self::next`] returns. First receives what is left of
    /// the table before.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use duramen::inspect::RemoteSnapshot;
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::default() };
    /// # let db = duramen::Db::open(path, options)?;
    /// for name in ["films", "plays"] {
    ///     let table = db.create_table(name)?;
    ///     db.run(|txn| txn.put(&table, b"Metropolis", b"1927"))?;
    /// }
    /// let mut snapshot = RemoteSnapshot::open(path)?.expect("the database is open");
    /// let mut count = 0;
    /// for table in snapshot.list().to_vec() {
    ///     snapshot.read(&table)?;
    ///     while snapshot.next()?.is_some() {
    ///         count += 1;
    ///     }
    /// }
    /// assert_eq!(count, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadTableName`], [`Error::NoSuchTable`], and as [`Self::next`].
    pub fn read(&mut self, table: &str) -> Result<()> {
        catalog::check_name(table)?;
        if !self.tables.iter().any(|name| name == table) {
            return Err(Error::NoSuchTable { name: table.to_owned() });
        }
        while self.next()?.is_some() {}
        let asked = self.connection.ask(&format!("{READ}{}", hexadecimal(table.as_bytes())));
        self.is_reading = true;
        self.note(asked)
    }

    /// Returns the next record of the table, in the order of the keys, or none at the end.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use duramen::inspect::RemoteSnapshot;
    /// # let home = tempfile::tempdir().unwrap();
    /// # let path = home.path();
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::default() };
    /// # let db = duramen::Db::open(path, options)?;
    /// let films = db.create_table("films")?;
    /// db.run(|txn| txn.put(&films, b"Alien", b"1979"))?;
    /// let mut snapshot = RemoteSnapshot::open(path)?.expect("the database is open");
    /// snapshot.read("films")?;
    /// assert_eq!(snapshot.next()?, Some((&b"Alien"[..], &b"1979"[..])));
    /// assert_eq!(snapshot.next()?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Corrupt`] if that process has found damage, [`Error::Io`] if it has another error,
    /// as after too many changes ([`Error::SnapshotTooOld`]), or if the connection breaks. Every
    /// later call returns the same error.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let received = self.failed.clone().map_or_else(|| self.receive(), Err);
        let is_record = self.note(received)?;
        Ok(is_record.then_some((&self.key, &self.value)))
    }

    /// Receives a record; returns whether there was one.
    fn receive(&mut self) -> Result<bool> {
        if !self.is_reading {
            return Ok(false);
        }
        let key_len = self.connection.read_number()?;
        if key_len == END {
            let outcome = self.connection.read_line()?;
            self.is_reading = false;
            return match outcome.as_str() {
                FINE => Ok(false),
                DAMAGED => Err(self.connection.read_damage()?),
                outcome => Err(self.connection.unexpected(outcome)),
            };
        }
        let value_len = self.connection.read_number()?;
        if key_len as usize > MAX_KEY_LEN || value_len as usize > MAX_VALUE_LEN {
            return Err(self.connection.refused("has sent something else than a record"));
        }
        self.connection.read_bytes(key_len, &mut self.key)?;
        self.connection.read_bytes(value_len, &mut self.value)?;
        Ok(true)
    }

    /// Notes whether a call has failed.
    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }
}

impl Connection {
    fn read_number(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.from.read_exact(&mut bytes).map_err(|error| self.failed(&error))?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn read_bytes(&mut self, count: u32, to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        let read = (&mut self.from).take(count.into()).read_to_end(to).map_err(|error| self.failed(&error))?;
        if read == count as usize { Ok(()) } else { Err(self.failed(&io::ErrorKind::UnexpectedEof.into())) }
    }

    /// Reads what was found to be damaged.
    fn read_damage(&mut self) -> Result<Error> {
        // The path of the file may be longer than a line that asks.
        let (place, text) = (self.read_line()?, self.read_rest()?);
        let (offset, page) = place.split_once(' ').unwrap_or_default();
        let (file, reason) = text.split_once('\n').unwrap_or_default();
        Ok(Error::Corrupt {
            file: file.to_owned(),
            offset: offset.parse().unwrap_or_default(),
            page: page.parse().ok().map(PageId::new),
            reason: reason.to_owned(),
        })
    }
}

/// Shows a snapshot to a process that has asked for it.
pub(super) fn show(engine: &References<Engine>, mut from: BufReader<&UnixStream>) -> io::Result<()> {
    let stream = *from.get_ref();
    let mut to = BufWriter::with_capacity(SENT, stream);
    let opened = Snapshot::open(engine.take()).and_then(|snapshot| Ok((snapshot.list()?, snapshot)));
    let (tables, snapshot) = match opened {
        Ok(opened) => opened,
        Err(error) => return write!(to, "{FAILED}\n{error}"),
    };
    writeln!(to, "{FINE}")?;
    to.write_all(&(tables.len() as u32).to_le_bytes())?;
    tables.iter().try_for_each(|table| writeln!(to, "{}", hexadecimal(table.as_bytes())))?;
    to.flush()?;
    stream.set_read_timeout(Some(LONGEST_PAUSE))?;
    stream.set_write_timeout(Some(LONGEST_PAUSE))?;
    loop {
        let mut line = String::new();
        from.by_ref().take(LONGEST).read_line(&mut line)?;
        let asked = line.strip_suffix('\n').and_then(|line| line.strip_prefix(READ)).and_then(parse_name);
        let Some(table) = asked else { return Ok(()) };
        let sent = send(&snapshot, &table, &mut to)?;
        to.write_all(&END.to_le_bytes())?;
        match sent {
            Ok(()) => writeln!(to, "{FINE}")?,
            Err(Error::Corrupt { file, offset, page, reason }) => {
                let page = page.map_or_else(|| "-".to_owned(), |page| page.get().to_string());
                return write!(to, "{DAMAGED}\n{offset} {page}\n{file}\n{reason}");
            }
            Err(error) => return write!(to, "{FAILED}\n{error}"),
        }
        to.flush()?;
    }
}

/// Sends the records of a table. The inner error is the engine's, the outer one the connection's.
fn send(snapshot: &Snapshot, table: &str, to: &mut impl Write) -> io::Result<Result<()>> {
    let table = match snapshot.open_for_reading(table) {
        Ok(table) => table,
        Err(error) => return Ok(Err(error)),
    };
    let mut cursor = snapshot.cursor(&table, ..);
    loop {
        match cursor.next() {
            Ok(Some((key, value))) => {
                to.write_all(&(key.len() as u32).to_le_bytes())?;
                to.write_all(&(value.len() as u32).to_le_bytes())?;
                to.write_all(key)?;
                to.write_all(value)?;
            }
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
}
