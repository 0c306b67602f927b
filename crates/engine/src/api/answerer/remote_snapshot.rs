//! A snapshot that one process opens in another.
//!
//! The process that asks gets a line that says how it went, the number of tables, and their names,
//! in hexadecimal and each on a line. Then it asks for tables, one after the other. A record comes
//! as the length of its key, that of its value, and their bytes. Behind the last one there is
//! [`END`] in place of a length, and a line that says how it went. Numbers are little-endian, of 32
//! bits. The snapshot lasts until one side closes the connection. The process that shows it waits
//! for the one that reads as long as that takes: as with any snapshot, only the memory is limited
//! that it needs.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use duramen_sync::References;
use duramen_types::{MAX_KEY_LEN, MAX_VALUE_LEN};

use super::question::{Connection, FAILED, FINE, LONGEST, hexadecimal, parse_name};
use crate::engine::Engine;
use crate::error::Result;
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

/// A snapshot of a database that another process has open: what [`crate::Snapshot`] is in that
/// process. It lasts until it is dropped or the database is closed.
#[derive(Debug)]
pub struct RemoteSnapshot {
    connection: Connection,
    tables: Vec<String>,
    /// There may be more records of a table.
    is_reading: bool,
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
    /// [`Io`](crate::Error::Io) if the system or the other process fails; the process's own error is in the
    /// text.
    pub fn open(home: &Path) -> Result<Option<Self>> {
        let Some(mut connection) = Connection::open(home)? else { return Ok(None) };
        connection.ask(SNAPSHOT)?;
        let outcome = connection.read_line()?;
        if outcome != FINE {
            return Err(connection.unexpected(&outcome));
        }
        let count = connection.read_number()?;
        let mut tables = Vec::new();
        for _ in 0..count {
            match parse_name(&connection.read_line()?) {
                Some(name) if !name.is_empty() => tables.push(name),
                _ => return Err(connection.refused("has sent something else than the names of tables")),
            }
        }
        Ok(Some(Self { connection, tables, is_reading: false, key: Vec::new(), value: Vec::new() }))
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

    /// Begins to read a table, whose records [`Self::next`] returns.
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
    /// [`BadTableName`](crate::Error::BadTableName), and as [`Self::open`].
    pub fn read(&mut self, table: &str) -> Result<()> {
        catalog::check_name(table)?;
        while self.next()?.is_some() {}
        self.connection.ask(&format!("{READ}{}", hexadecimal(table.as_bytes())))?;
        self.is_reading = true;
        Ok(())
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
    /// As [`Self::open`].
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if !self.is_reading {
            return Ok(None);
        }
        let key_len = self.connection.read_number()?;
        if key_len == END {
            self.is_reading = false;
            let outcome = self.connection.read_line()?;
            return if outcome == FINE { Ok(None) } else { Err(self.connection.unexpected(&outcome)) };
        }
        let value_len = self.connection.read_number()?;
        if key_len as usize > MAX_KEY_LEN || value_len as usize > MAX_VALUE_LEN {
            return Err(self.connection.refused("has sent something else than a record"));
        }
        self.connection.read_bytes(key_len, &mut self.key)?;
        self.connection.read_bytes(value_len, &mut self.value)?;
        Ok(Some((&self.key, &self.value)))
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
        if read == count as usize { Ok(()) } else { Err(self.refused("has closed the database")) }
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
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    loop {
        let mut line = String::new();
        from.by_ref().take(LONGEST).read_line(&mut line)?;
        let asked = line.strip_suffix('\n').and_then(|line| line.strip_prefix(READ)).and_then(parse_name);
        let Some(table) = asked else { return Ok(()) };
        let sent = send(&snapshot, &table, &mut to)?;
        to.write_all(&END.to_le_bytes())?;
        match sent {
            Ok(()) => writeln!(to, "{FINE}")?,
            Err(error) => return write!(to, "{FAILED}\n{error}"),
        }
        to.flush()?;
    }
}

/// Sends the records of a table. The inner error is the engine's, the outer one the connection's.
fn send(snapshot: &Snapshot, table: &str, to: &mut impl Write) -> io::Result<Result<()>> {
    let table = match snapshot.open_table(table) {
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
