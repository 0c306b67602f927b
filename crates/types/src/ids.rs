//! Newtypes for identifiers.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($repr);

        impl $name {
            /// The smallest value; in every id it means "none".
            pub const ZERO: Self = Self(0);
            /// The largest value.
            pub const MAX: Self = Self(<$repr>::MAX);

            /// Wraps a raw number.
            #[inline]
            pub const fn new(raw: $repr) -> Self {
                Self(raw)
            }

            /// Returns the raw number.
            #[inline]
            pub const fn get(self) -> $repr {
                self.0
            }

            /// Returns whether this is [`Self::ZERO`], that is, "none".
            #[inline]
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id! {
    /// Log sequence number: the byte offset of a record in one log's unbounded stream.
    Lsn(u64), "lsn "
}
id! {
    /// Global sequence number: orders the changes of a page and of a transaction across all logs.
    /// Pages carry a GSN, never an LSN. With one log the GSN of a record is its LSN. (Scalable
    /// logging through NVM, section 3.1.)
    Gsn(u64), "gsn "
}
id! {
    /// Where a record lies: the number of its log in the highest eight bits, its LSN in the others.
    /// With one log that is its LSN.
    LogAddress(u64), "place "
}
id! {
    /// Number of a page in the data file; its byte offset is the number times [`crate::PAGE_SIZE`].
    PageId(u64), "page "
}
id! {
    /// Number of a transaction; never reused within a database.
    TxnId(u64), "transaction "
}
id! {
    /// Number of a table; never reused within a database.
    TableId(u32), "table "
}
id! {
    /// Number of a log in a distributed log; a single log is number 0.
    LogId(u16), "log "
}

impl Lsn {
    /// This position moved forward by `bytes`.
    #[inline]
    #[must_use]
    pub const fn advance(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// Bits of a [`LogAddress`] that hold the LSN.
const LSN_BITS: u32 = 56;

impl LogAddress {
    /// Returns the address of a record at `lsn` in `log`.
    ///
    /// # Panics
    /// When one of them is too large: there are at most 256 logs, of at most 64 PiB.
    #[inline]
    pub const fn of(log: LogId, lsn: Lsn) -> Self {
        assert!(log.0 < 256 && lsn.0 < 1 << LSN_BITS, "an address holds the log and the LSN");
        Self((log.0 as u64) << LSN_BITS | lsn.0)
    }

    /// Returns the log.
    #[inline]
    pub const fn log(self) -> LogId {
        LogId((self.0 >> LSN_BITS) as u16)
    }

    /// Returns the LSN in that log.
    #[inline]
    pub const fn lsn(self) -> Lsn {
        Lsn(self.0 & ((1 << LSN_BITS) - 1))
    }
}
