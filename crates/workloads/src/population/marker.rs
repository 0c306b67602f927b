//! The row that has the size of a population and whether it is complete.
//!
//! Row `population` of the table `WORKLOAD_meta`, little-endian: format version u32, state u32 (0
//! being populated, 1 complete), the parameters of the workload, u64 each. It is written before the
//! first row of the population and once more after the last: a population that was cut off shows.

use std::fmt;

use crate::error::{Error, Result};
use crate::store::{Access, Connection, Store, Transaction};

/// The parameters of a population.
pub trait Parameters: Copy + PartialEq + fmt::Display + fmt::Debug + Send + Sync + 'static {
    /// The workload, as the names of its tables begin.
    const WORKLOAD: &'static str;
    /// How many numbers they are.
    const COUNT: usize;

    /// Returns the parameters as numbers, [`Parameters::COUNT`] of them.
    fn encode(&self) -> Vec<u64>;

    /// Returns the parameters that `numbers`, [`Parameters::COUNT`] of them, stand for.
    fn decode(numbers: &[u64]) -> Self;

    /// Refuses invalid parameters.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] says what would be right.
    fn validate(&self) -> Result<()>;
}

/// What the marker row says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker<P> {
    /// Size of the database.
    pub scale: P,
    /// Whether all of it is there.
    pub complete: bool,
}

/// Key of the marker row.
const KEY: &[u8] = b"population";
const VERSION: u32 = 1;

impl<P: Parameters> Marker<P> {
    /// Returns the row as stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(8 + 8 * P::COUNT);
        row.extend_from_slice(&VERSION.to_le_bytes());
        row.extend_from_slice(&u32::from(self.complete).to_le_bytes());
        let parameters = self.scale.encode();
        assert_eq!(parameters.len(), P::COUNT);
        parameters.iter().for_each(|number| row.extend_from_slice(&number.to_le_bytes()));
        row
    }

    /// Returns the row stored as `row`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is none, or of another version.
    pub fn decode(row: &[u8]) -> Result<Self> {
        let damaged =
            |reason: &str| Error::Damaged { reason: format!("the population marker of {} {reason}", P::WORKLOAD) };
        let (numbers, rest) = row.as_chunks::<8>();
        let (Some((head, parameters)), []) = (numbers.split_first(), rest) else {
            return Err(damaged("has the wrong length"));
        };
        if parameters.len() != P::COUNT {
            return Err(damaged("has the wrong length"));
        }
        let head = u64::from_le_bytes(*head);
        let (version, state) = (head as u32, head >> 32);
        if version != VERSION {
            return Err(damaged(&format!("has version {version}, not {VERSION}")));
        }
        let complete = match state {
            0 => false,
            1 => true,
            _ => return Err(damaged("has an unknown state")),
        };
        let parameters: Vec<u64> = parameters.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let scale = P::decode(&parameters);
        scale.validate().map_err(|error| damaged(&format!("is invalid: {error}")))?;
        Ok(Self { scale, complete })
    }

    /// Reads the marker; `None` when the database holds no tables of the workload, or no population
    /// was begun.
    ///
    /// # Errors
    /// The engine's; [`Error::Damaged`] when the marker makes no sense.
    pub fn read<S: Store>(store: &S) -> Result<Option<Self>> {
        let Some(meta) = store.find_table(&meta_table::<P>())? else { return Ok(None) };
        let mut connection = store.connect()?;
        let mut txn = connection.begin(Access::ReadOnly)?;
        let marker = txn.get(&meta, KEY, Self::decode)?.transpose()?;
        txn.commit()?;
        Ok(marker)
    }

    /// Writes the marker, durably.
    ///
    /// # Errors
    /// The engine's.
    pub fn write<S: Store>(&self, store: &S) -> Result<()> {
        let meta = store.make_table(&meta_table::<P>())?;
        let mut connection = store.connect()?;
        let mut txn = connection.begin(Access::ReadWrite)?;
        txn.put(&meta, KEY, &self.encode())?;
        txn.commit()
    }
}

pub(super) fn meta_table<P: Parameters>() -> String {
    format!("{}_meta", P::WORKLOAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcb::Scale;

    #[test]
    fn markers_survive_encoding_and_nonsense_is_refused() {
        let marker = Marker { scale: Scale::standard(5), complete: true };
        let row = marker.encode();
        assert_eq!(Marker::<Scale>::decode(&row).unwrap(), marker);
        assert!(Marker::<Scale>::decode(&row[..31]).is_err());
        for at in [0, 4, 15] {
            let mut wrong = row.clone();
            wrong[at] = 0xff;
            assert!(Marker::<Scale>::decode(&wrong).is_err(), "byte {at}");
        }
    }
}
