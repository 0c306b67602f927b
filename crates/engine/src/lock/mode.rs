//! The modes of hierarchical locking (Gray, Lorie, Putzolu, Traiger: "Granularity of Locks and
//! Degrees of Consistency in a Shared Data Base", section 2).
//!
//! A mode is represented by the set of modes that it conflicts with. This one table of bit sets
//! determines whether two modes are compatible, whether one covers another, and which mode is the
//! weakest that covers two.

/// How strongly a resource is locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(crate) enum LockMode {
    /// IS: something inside is, or will be, locked [`LockMode::Shared`].
    IntentShared = 0,
    /// IX: something inside is, or will be, locked [`LockMode::Exclusive`]. On a gap: an insertion
    /// into it.
    IntentExclusive = 1,
    /// S: everything inside may be read. On a gap: no other transaction may insert into it.
    Shared = 2,
    /// SIX: everything inside may be read, and something inside will be written.
    SharedIntentExclusive = 3,
    /// X: everything inside may be written.
    Exclusive = 4,
}

impl LockMode {
    /// Every mode; the position of a mode is its [`LockMode::index`].
    pub(crate) const ALL: [LockMode; 5] =
        [Self::IntentShared, Self::IntentExclusive, Self::Shared, Self::SharedIntentExclusive, Self::Exclusive];

    /// Returns a number below `ALL.len()`.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the set of this mode alone.
    #[inline]
    pub(crate) const fn set(self) -> ModeSet {
        ModeSet(1 << self as u8)
    }

    /// Returns the modes that another transaction may not hold at the same time.
    #[inline]
    pub(crate) const fn conflicts(self) -> ModeSet {
        const IS: u8 = LockMode::IntentShared.set().0;
        const IX: u8 = LockMode::IntentExclusive.set().0;
        const S: u8 = LockMode::Shared.set().0;
        const SIX: u8 = LockMode::SharedIntentExclusive.set().0;
        const X: u8 = LockMode::Exclusive.set().0;
        const CONFLICTS: [u8; 5] = [X, S | SIX | X, IX | SIX | X, IX | S | SIX | X, IS | IX | S | SIX | X];
        ModeSet(CONFLICTS[self as usize])
    }

    /// Returns whether two transactions may hold `self` and `other` at the same time.
    #[inline]
    #[cfg(test)]
    pub(crate) const fn is_compatible(self, other: Self) -> bool {
        !self.conflicts().intersects(other.set())
    }

    /// Returns whether holding `self` grants everything that `other` grants.
    #[inline]
    pub(crate) const fn covers(self, other: Self) -> bool {
        self.conflicts().contains(other.conflicts())
    }

    /// Returns the weakest mode that covers both.
    #[inline]
    pub(crate) const fn join(self, other: Self) -> Self {
        if self.covers(other) {
            self
        } else if other.covers(self) {
            other
        } else {
            // IX and S are the only two modes of which neither covers the other.
            Self::SharedIntentExclusive
        }
    }
}

/// A set of modes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ModeSet(u8);

impl ModeSet {
    /// No mode.
    pub(crate) const EMPTY: Self = Self(0);

    /// Returns the modes that are in either set.
    #[inline]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether a mode is in both sets.
    #[inline]
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether every mode of `other` is in `self`.
    #[inline]
    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(test)]
mod tests {
    use super::LockMode::{self, Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive};

    #[test]
    fn the_matrix_is_the_published_one() {
        // Rows and columns in the order IS IX S SIX X.
        const COMPATIBLE: [[bool; 5]; 5] = [
            [true, true, true, true, false],
            [true, true, false, false, false],
            [true, false, true, false, false],
            [true, false, false, false, false],
            [false, false, false, false, false],
        ];
        for a in LockMode::ALL {
            for b in LockMode::ALL {
                assert_eq!(a.is_compatible(b), COMPATIBLE[a.index()][b.index()], "{a:?} {b:?}");
                assert_eq!(a.is_compatible(b), b.is_compatible(a));
            }
        }
    }

    #[test]
    fn covering_is_a_partial_order_with_is_below_and_x_above() {
        for a in LockMode::ALL {
            assert!(a.covers(a) && a.covers(IntentShared) && Exclusive.covers(a));
            for b in LockMode::ALL {
                assert!(a == b || !(a.covers(b) && b.covers(a)), "{a:?} {b:?}");
                for c in LockMode::ALL {
                    assert!(!(a.covers(b) && b.covers(c)) || a.covers(c), "{a:?} {b:?} {c:?}");
                    // If a mode excludes another one, every mode that covers it excludes that one,
                    // too.
                    assert!(!a.covers(b) || b.is_compatible(c) || !a.is_compatible(c));
                }
            }
        }
        assert!(!Shared.covers(IntentExclusive) && !IntentExclusive.covers(Shared));
        assert!(SharedIntentExclusive.covers(Shared) && SharedIntentExclusive.covers(IntentExclusive));
    }

    #[test]
    fn join_is_the_least_upper_bound() {
        for a in LockMode::ALL {
            for b in LockMode::ALL {
                let join = a.join(b);
                assert_eq!(join, b.join(a));
                assert!(join.covers(a) && join.covers(b));
                for c in LockMode::ALL {
                    assert!(!(c.covers(a) && c.covers(b)) || c.covers(join), "{a:?} {b:?} {c:?}");
                    assert_eq!(a.join(b).join(c), a.join(b.join(c)));
                }
            }
        }
        assert_eq!(Shared.join(IntentExclusive), SharedIntentExclusive);
    }

    #[test]
    fn indexes_are_positions() {
        for (position, mode) in LockMode::ALL.into_iter().enumerate() {
            assert_eq!(mode.index(), position);
        }
    }
}
