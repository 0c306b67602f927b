//! Addresses and typed pointers: offsets in a heap, which may be kept in the heap itself.

use std::fmt;
use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A type whose values can be kept in a heap: any bytes are a value, a value has no padding, and it
/// needs no destructor. It is implemented for every type that derives the traits.
///
/// A damaged heap, or one of another program, can therefore give wrong values and never undefined
/// behaviour.
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy + 'static {}

impl<T: FromBytes + IntoBytes + Immutable + Copy + 'static> Plain for T {}

/// The type of a heap's root object, from which a program finds all others.
pub trait Root: Plain {
    /// Names the type and its version. A heap whose root was made with another name or size is not
    /// opened as this one.
    const NAME: &'static str;
}

/// A position in a heap, in bytes from its beginning. 0 is no position of an object.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, FromBytes, IntoBytes, Immutable, zerocopy::KnownLayout,
)]
#[repr(transparent)]
pub struct Addr(u64);

impl Addr {
    /// The address that points to nothing.
    pub const NULL: Self = Self(0);

    /// Returns the address with this number. Whether there is an object is checked where it is
    /// used.
    pub const fn new(offset: u64) -> Self {
        Self(offset)
    }

    /// Returns the address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns whether this is [`Addr::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the address `bytes` bytes further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns a pointer to a `T` at this address. Any bytes are a `T`, so a wrong type gives wrong
    /// values and does no harm.
    pub const fn typed<T>(self) -> Ptr<T> {
        Ptr { at: self, of: PhantomData }
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:#x}", self.0)
    }
}

/// A pointer to a `T` in a heap. It may be kept in the heap. Its bounds, and that it points into a
/// live object, are checked at each use.
#[derive(FromBytes, IntoBytes, Immutable, zerocopy::KnownLayout)]
#[repr(transparent)]
pub struct Ptr<T> {
    at: Addr,
    of: PhantomData<fn() -> T>,
}

impl<T> Ptr<T> {
    /// The pointer that points to nothing.
    pub const NULL: Self = Addr::NULL.typed();

    /// Returns whether this is [`Ptr::NULL`].
    pub const fn is_null(self) -> bool {
        self.at.is_null()
    }

    /// Returns where it points.
    pub const fn addr(self) -> Addr {
        self.at
    }

    /// Returns what a transaction logs for the whole `T` ([`crate::Tx::log`]).
    pub const fn extent(self) -> (Addr, u64) {
        (self.at, size_of::<T>() as u64)
    }
}

impl<T, const N: usize> Ptr<[T; N]> {
    /// Returns a pointer to an element; the null pointer if there is no such element.
    pub fn element(self, index: usize) -> Ptr<T> {
        if index < N && !self.is_null() { self.at.plus((index * size_of::<T>()) as u64).typed() } else { Ptr::NULL }
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}
