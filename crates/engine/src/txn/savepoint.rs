//! Savepoints.

use super::{Savepoint, Txn};
use crate::error::{Error, Result};
use crate::txn_state::undo::undo_to;

impl Txn {
    /// Marks the current point of the transaction.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let basket = db.table("basket")?;
    /// let mut txn = db.begin();
    /// txn.put(&basket, b"bolts", b"40")?;
    /// let bolts_only = txn.savepoint();
    /// txn.put(&basket, b"nuts", b"25")?;
    /// txn.rollback_to(&bolts_only)?;
    /// txn.commit()?;
    /// assert_eq!(db.begin().scan(&basket, ..).count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints += 1;
        let mark = self.context().log.mark();
        self.valid_savepoints.push((self.savepoints, mark));
        Savepoint { opening: self.engine.tables.opening.clone(), txn: self.id(), number: self.savepoints }
    }

    /// Takes back everything done since `savepoint`. The transaction keeps its locks. The savepoint
    /// stays valid, later ones do not.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let basket = db.table("basket")?;
    /// let mut txn = db.begin();
    /// let empty = txn.savepoint();
    /// txn.put(&basket, b"bolts", b"40")?;
    /// let bolts_only = txn.savepoint();
    ///
    /// txn.rollback_to(&empty)?;
    /// assert_eq!(txn.get(&basket, b"bolts")?, None);
    /// let later = txn.rollback_to(&bolts_only);
    /// assert!(matches!(later, Err(duramen::Error::NoSuchSavepoint)));
    /// txn.rollback_to(&empty)?; // as often as needed
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`] for a savepoint of another transaction or database, or one that
    /// an earlier rollback went back over; the errors that leave only an abort.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.check_usable()?;
        let result = self.rollback_to_valid(savepoint);
        self.record_outcome(result)
    }

    fn rollback_to_valid(&mut self, savepoint: &Savepoint) -> Result<()> {
        if savepoint.txn != self.id() || savepoint.opening != self.engine.tables.opening {
            return Err(Error::NoSuchSavepoint);
        }
        let found = self.valid_savepoints.binary_search_by_key(&savepoint.number, |&(number, _)| number);
        let at = found.map_err(|_| Error::NoSuchSavepoint)?;
        let mark = self.valid_savepoints[at].1;
        self.valid_savepoints.truncate(at + 1);
        let (_, store, context) = self.parts();
        let mut ghosts = Vec::new();
        let undone = undo_to(store, context, mark, &mut |tree, key| ghosts.push((tree, key.to_vec())));
        context.log.leave_ghosts(ghosts);
        undone
    }
}
