//! Generations: the files that belong together.
//!
//! Each file that is changed in place, and has no other mark of its time, carries a *stamp*: the
//! database and a number, the generation. The control file names the current generation. The
//! generation grows at each opening, checkpoint and clean close, in this order:
//!
//! 1. Every file is stamped with the next generation, durably ([`Generations::stamp_next`]).
//! 2. The control file names that generation, durably, together with the checkpoint that relies on
//!    the present contents of the files.
//!
//! So a file has the generation that the control file names or, if a crash came between the two
//! steps, the next one. The next opening stamps all files before it changes anything. A copy of a
//! file that was put back has an earlier generation, unless it was taken since the last checkpoint.
//! In that case recovery brings it up to date, as it does after a crash. Opening refuses a file of
//! any other generation, by name, before it reads anything in it: the pages of such a file look
//! whole, and the log no longer has the changes that they lack.
//!
//! | file | where the stamp is |
//! |---|---|
//! | `data` | page 0, which holds no page of a table: database id at offset 32, generation at 48 |
//! | `doublewrite` | its header (see `pool/doublewrite.rs`) |
//! | page tier | its header (see `pool/tier/slots.rs`) |
//! | rings in persistent memory | a word of their header (`duramen_wal`), which names the database as well |
//!
//! The log's own files need no stamp: every record contains its own log address, and the control
//! file names records that must exist.
//!
//! Databases of older formats have no stamps. Their control file names generation 0, and nothing is
//! compared until the first opening has stamped the files.

use duramen_io::File;
use duramen_sync::Mutex;

use duramen_types::planted;

use super::control::{CONTROL, Control, ControlFile};
use crate::error::{Error, Result};
use crate::pool::{REMEDY, Stamp};
use crate::storage::store::Store;

impl Control {
    /// Checks that `file`, which carries this stamp, is one of the files that this control file was
    /// written for.
    ///
    /// # Errors
    /// [`Error::Corrupt`], which names the older one of the two.
    pub(crate) fn check_stamp(&self, stamp: Stamp, file: &str) -> Result<()> {
        let (named, found) = (self.generation, stamp.generation);
        let corrupt =
            |file: &str, reason: String| Err(Error::Corrupt { file: file.into(), offset: 0, page: None, reason });
        if named == 0 || planted!(GenerationIgnored) {
            return Ok(());
        }
        if stamp.database != self.database {
            return corrupt(
                file,
                format!("it belongs to another database than the file `{CONTROL}` beside it; {REMEDY}"),
            );
        }
        if found < named {
            let reason = format!(
                "it is an older copy of the file: it has generation {found}, but `{CONTROL}` names {named}; {REMEDY}"
            );
            return corrupt(file, reason);
        }
        if found > named.saturating_add(1) {
            let reason = format!(
                "it is an older copy of the file: it names generation {named}, but `{file}` has {found}; {REMEDY}"
            );
            return corrupt(CONTROL, reason);
        }
        Ok(())
    }

    /// Checks the stamp of a data file as [`Control::check_stamp`] does.
    pub(crate) fn check_data(&self, data: &dyn File) -> Result<()> {
        if self.generation == 0 {
            return Ok(());
        }
        self.check_stamp(Stamp::read(data)?, &data.path())
    }
}

/// Moves the files from one generation to the next.
pub(crate) struct Generations<'e> {
    pub(crate) control: &'e Mutex<ControlFile>,
    pub(crate) store: &'e Store,
}

impl Generations<'_> {
    /// Stamps every file with the next generation, which the caller then writes to the control
    /// file. One thread at a time may call this.
    pub(crate) fn stamp_next(&self) -> Result<u64> {
        let stamp = self.next_stamp();
        self.store.pool.stamp(stamp)?;
        self.stamp_log(stamp);
        Ok(stamp.generation)
    }

    fn stamp_log(&self, stamp: Stamp) {
        if let Some(log) = self.store.scheme.log() {
            log.stamp(stamp.generation);
        }
    }

    fn next_stamp(&self) -> Stamp {
        let Control { database, generation, .. } = self.control.lock().control;
        Stamp { database, generation: generation + 1 }
    }

    /// Begins the generation of an opening. The checkpoint stays the one that was found: whatever
    /// the files hold now, recovery from that checkpoint still works.
    pub(crate) fn begin(&self) -> Result<()> {
        let generation = self.stamp_next()?;
        let mut file = self.control.lock();
        let control = Control { generation, is_clean: false, ..file.control };
        file.write(control)
    }

    /// Marks the database as closed in order in the control file. No page is being written, nor
    /// will be, so the next opening needs nothing from the double-write area. Must be called when
    /// everything is written and the log is closed. A ring may still be in use then: it is not
    /// given up if another thread has committed meanwhile.
    pub(crate) fn close(&self) -> Result<()> {
        let stamp = self.next_stamp();
        self.store.pool.stamp_last(stamp)?;
        self.stamp_log(stamp);
        let generation = stamp.generation;
        let mut file = self.control.lock();
        let control = Control { generation, is_clean: true, ..file.control };
        file.write(control)
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;
    use crate::checkpoint::control::{SchemeId, SeveralLogs};
    use duramen_io::{Disk, OpenMode, SimDisk};
    use duramen_types::{Gsn, Lsn, PAGE_SIZE, TxnId};

    const OWN: [u8; 16] = [7; 16];

    fn control(generation: u64) -> Control {
        Control {
            database: OWN,
            sequence: 1,
            checkpoint: Lsn::new(4096),
            redo: Gsn::new(4096),
            oldest: Gsn::new(4096),
            next_txn: TxnId::new(1),
            written: 0,
            groups: 1,
            generation,
            is_clean: false,
            has_tier: false,
            scheme: SchemeId::Wal,
            logs: SeveralLogs::ONE,
        }
    }

    #[test]
    fn a_file_is_of_the_generation_that_is_named_or_of_the_next() {
        let disk = SimDisk::new(1);
        let data = disk.open("data", OpenMode::CreateNew).unwrap();
        data.allocate(PAGE_SIZE as u64).unwrap();
        control(0).check_data(&*data).unwrap();
        assert!(matches!(control(1).check_data(&*data), Err(Error::Corrupt { .. })), "a blank stamp is none");
        Stamp { database: OWN, generation: 5 }.write(&*data).unwrap();
        for (named, blamed) in [(3, Some(CONTROL)), (4, None), (5, None), (6, Some("data")), (0, None)] {
            match (control(named).check_data(&*data), blamed) {
                (Ok(()), None) => {}
                (Err(Error::Corrupt { file, reason, .. }), Some(blamed)) => {
                    assert!(file.ends_with(blamed) && reason.contains("older copy"), "{named}: {file}: {reason}");
                }
                (other, _) => panic!("{named}: {other:?}"),
            }
        }
        Stamp { database: [8; 16], generation: 5 }.write(&*data).unwrap();
        let Err(Error::Corrupt { reason, .. }) = control(5).check_data(&*data) else {
            panic!("a foreign file is taken")
        };
        assert!(reason.contains("another database"), "{reason}");
    }
}
