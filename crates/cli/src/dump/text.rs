//! The text format of dumps: one line for each table and record, and a last line that counts and
//! seals them. `docs/dump-format.md` describes it.

use std::io::{self, BufRead, Read, Write};

use duramen_types::{MAX_KEY_LEN, MAX_TABLE_NAME_LEN, MAX_VALUE_LEN, crc32c_append};

/// The first line of a dump.
const HEADER: &str = "duramen-dump 1";

/// The most bytes of a line: a record of which each byte takes four.
const LONGEST: u64 = 4 * (MAX_KEY_LEN as u64 + MAX_VALUE_LEN as u64) + 64;

/// What a line says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// The records behind it are of this table.
    Table(String),
    /// A key and its value.
    Record(Vec<u8>, Vec<u8>),
    /// The dump is complete.
    End(Totals),
}

/// How much a dump holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    pub(super) tables: u64,
    pub(super) records: u64,
}

/// Why a dump cannot be used.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is no dump, or a damaged one.
    Damaged(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes a dump, line by line.
pub(super) struct Writer<'w> {
    out: &'w mut dyn Write,
    crc: u32,
    totals: Totals,
    line: Vec<u8>,
}

impl<'w> Writer<'w> {
    /// Begins a dump.
    pub(super) fn begin(out: &'w mut dyn Write) -> io::Result<Self> {
        let mut writer = Self { out, crc: 0, totals: Totals::default(), line: Vec::new() };
        writer.line.extend_from_slice(HEADER.as_bytes());
        writer.put_line()?;
        Ok(writer)
    }

    /// Begins a table.
    pub(super) fn table(&mut self, name: &str) -> io::Result<()> {
        self.totals.tables += 1;
        self.line.extend_from_slice(b"table ");
        put_field(&mut self.line, name.as_bytes());
        self.put_line()
    }

    /// Adds a record to the table.
    pub(super) fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.totals.records += 1;
        self.line.push(b' ');
        put_field(&mut self.line, key);
        self.line.push(b' ');
        put_field(&mut self.line, value);
        self.put_line()
    }

    /// Ends the dump, and returns what it holds.
    pub(super) fn end(mut self) -> io::Result<Totals> {
        let Totals { tables, records } = self.totals;
        write!(self.line, "end {tables} {records} {:08x}", self.crc)?;
        self.put_line()?;
        self.out.flush()?;
        Ok(self.totals)
    }

    /// Returns what has been written so far.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    fn put_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        self.crc = crc32c_append(self.crc.into(), &self.line);
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

/// Reads a dump, line by line. The last line is compared with the others.
pub(super) struct Reader<R> {
    from: R,
    /// Number of the line read last.
    number: u64,
    crc: u32,
    totals: Totals,
    line: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Begins to read.
    pub(super) fn begin(from: R) -> Result<Self, Unreadable> {
        let mut reader = Self { from, number: 0, crc: 0, totals: Totals::default(), line: Vec::new() };
        reader.read_line()?;
        if reader.line != HEADER.as_bytes() {
            return Err(reader.damaged(&format!("a dump that this program can load begins with `{HEADER}`")));
        }
        Ok(reader)
    }

    /// Returns the next line; [`Line::End`] is the last.
    pub(super) fn next(&mut self) -> Result<Line, Unreadable> {
        let before = self.crc;
        self.read_line()?;
        let line = std::mem::take(&mut self.line);
        let parsed = parse(&line);
        self.line = line;
        match parsed {
            Some(Line::End(totals)) => {
                let crc = self.line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
                if totals != self.totals || crc != format!("{before:08x}").as_bytes() {
                    return Err(self.damaged("the lines before the last one are not those that were written"));
                }
                if !self.from.fill_buf()?.is_empty() {
                    return Err(self.damaged("there is more behind the last line"));
                }
                Ok(Line::End(totals))
            }
            Some(Line::Table(name)) => {
                self.totals.tables += 1;
                Ok(Line::Table(name))
            }
            Some(record) if self.totals.tables > 0 => {
                self.totals.records += 1;
                Ok(record)
            }
            Some(_) => Err(self.damaged("there is a record before the first table")),
            None => Err(self.damaged("it is neither a table, nor a record, nor the end")),
        }
    }

    /// Returns the failure of a dump with a defect in the line read last.
    pub(super) fn damaged(&self, defect: &str) -> Unreadable {
        Unreadable::Damaged(format!("line {}: {defect}", self.number))
    }

    /// Reads a line, and takes its end off.
    fn read_line(&mut self) -> Result<(), Unreadable> {
        self.number += 1;
        self.line.clear();
        let read = (&mut self.from).take(LONGEST).read_until(b'\n', &mut self.line)?;
        self.crc = crc32c_append(self.crc.into(), &self.line);
        if self.line.pop() == Some(b'\n') {
            return Ok(());
        }
        let defect = if read as u64 == LONGEST { "it is too long" } else { "the dump is not complete: it ends here" };
        Err(self.damaged(defect))
    }
}

fn parse(line: &[u8]) -> Option<Line> {
    if let Some(name) = line.strip_prefix(b"table ") {
        let name = String::from_utf8(field(name)?).ok()?;
        return (1..=MAX_TABLE_NAME_LEN).contains(&name.len()).then_some(Line::Table(name));
    }
    if let Some(record) = line.strip_prefix(b" ") {
        let mut fields = record.split(|byte| *byte == b' ');
        let (key, value) = (field(fields.next()?)?, field(fields.next()?)?);
        let fits = key.len() <= MAX_KEY_LEN && value.len() <= MAX_VALUE_LEN && fields.next().is_none();
        return fits.then_some(Line::Record(key, value));
    }
    let totals = std::str::from_utf8(line.strip_prefix(b"end ")?).ok()?;
    let mut numbers = totals.split(' ');
    let (tables, records) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    (numbers.next()?.len() == 8 && numbers.next().is_none()).then_some(Line::End(Totals { tables, records }))
}

/// Returns whether a byte stands for itself in a field.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'\\'
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn put_hex(line: &mut Vec<u8>, byte: u8) {
    line.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// Appends bytes as a field: as text if most of them are, else as hexadecimal digits behind `#`.
fn put_field(line: &mut Vec<u8>, bytes: &[u8]) {
    let escaped = bytes.iter().filter(|byte| !is_plain(**byte)).count();
    if bytes.is_empty() || 3 * escaped > bytes.len() {
        line.push(b'#');
        bytes.iter().for_each(|byte| put_hex(line, *byte));
        return;
    }
    for (at, &byte) in bytes.iter().enumerate() {
        if is_plain(byte) && !(at == 0 && byte == b'#') {
            line.push(byte);
        } else {
            line.extend_from_slice(b"\\x");
            put_hex(line, byte);
        }
    }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Reads a field.
fn field(text: &[u8]) -> Option<Vec<u8>> {
    let hex = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    if let Some(digits) = text.strip_prefix(b"#") {
        return if digits.len().is_multiple_of(2) { digits.chunks(2).map(hex).collect() } else { None };
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte == b'\\' {
            let digits = rest.strip_prefix(b"x")?;
            let (pair, behind) = digits.split_at_checked(2)?;
            bytes.push(hex(pair)?);
            rest = behind;
        } else if is_plain(byte) {
            bytes.push(byte);
        } else {
            return None;
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dump: &[u8]) -> Result<Vec<Line>, String> {
        let text = |unreadable| match unreadable {
            Unreadable::Damaged(defect) => defect,
            Unreadable::Io(error) => panic!("{error}"),
        };
        let mut reader = Reader::begin(dump).map_err(text)?;
        let mut lines = Vec::new();
        loop {
            lines.push(reader.next().map_err(text)?);
            if let Some(Line::End(_)) = lines.last() {
                return Ok(lines);
            }
        }
    }

    fn sample() -> (Vec<u8>, Vec<Line>) {
        let records: [(&[u8], &[u8]); 6] = [
            (b"", b""),
            (b"key 1", b"a value with spaces, \\ and \n"),
            (b"#hash", b"plain"),
            (b"\x00\x01\xff", &[0xa5; 40]),
            ("\u{fc}ber".as_bytes(), b"#"),
            (b"end 1 1 00000000", b"table x"),
        ];
        let mut dump = Vec::new();
        let mut writer = Writer::begin(&mut dump).unwrap();
        let mut lines = Vec::new();
        for name in ["accounts", "with space and \u{fc}"] {
            writer.table(name).unwrap();
            lines.push(Line::Table(name.to_owned()));
            for (key, value) in records {
                writer.record(key, value).unwrap();
                lines.push(Line::Record(key.to_vec(), value.to_vec()));
            }
        }
        let totals = writer.end().unwrap();
        assert_eq!(totals, Totals { tables: 2, records: 12 });
        lines.push(Line::End(totals));
        (dump, lines)
    }

    #[test]
    fn dumps_are_read_as_they_were_written() {
        let (dump, lines) = sample();
        assert!(dump.starts_with(b"duramen-dump 1\ntable accounts\n # #\n key\\x201 a"), "{dump:?}");
        assert!(dump.is_ascii());
        assert_eq!(read(&dump).unwrap(), lines);
        let mut none = Vec::new();
        Writer::begin(&mut none).unwrap().end().unwrap();
        assert_eq!(read(&none).unwrap(), [Line::End(Totals::default())]);
    }

    #[test]
    fn a_dump_that_is_cut_or_changed_is_refused() {
        let (dump, _) = sample();
        for len in 0..dump.len() {
            assert!(read(&dump[..len]).is_err(), "{len} bytes");
        }
        for at in 0..dump.len() {
            let mut changed = dump.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "byte {at}");
        }
        let longer = [&dump[..], b"\n"].concat();
        assert!(read(&longer).unwrap_err().contains("more behind"));
        assert!(read(b"duramen-dump 2\nend 0 0 00000000\n").unwrap_err().contains("line 1"));
        assert!(read(b"duramen-dump 1\n a b\n").unwrap_err().contains("before the first table"));
        for bad in [&b"table \n"[..], b" a\n", b" a b c\n", b" a \\xg0\n", b" a #1\n", b" a \\\n", b"end 1\n", b"\n"] {
            assert!(read(&[b"duramen-dump 1\ntable t\n", bad].concat()).unwrap_err().contains("line 3"), "{bad:?}");
        }
    }
}
