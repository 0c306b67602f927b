//! The places where the experiments run.

use super::ground::Ground;
use super::{native, simulated};
use crate::experiment::{Context, SIMULATED};

/// Where experiments run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum World {
    Native,
    Simulated,
}

impl World {
    /// Returns one of the names of a claim, natively and simulated.
    pub(super) const fn id(self, native: &'static str, simulated: &'static str) -> &'static str {
        match self {
            Self::Native => native,
            Self::Simulated => simulated,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Simulated => SIMULATED,
        }
    }

    /// Returns the place.
    pub(super) fn ground(self, context: &Context<'_>) -> Box<dyn Ground> {
        match self {
            Self::Native => Box::new(native::Native::new(context)),
            Self::Simulated => simulated::ground(context),
        }
    }
}
