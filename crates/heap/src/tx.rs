//! Transactions as a closure sees them.

use std::marker::PhantomData;

use crate::error::{Error, Result};
use crate::layout::ROOT_AT;
use crate::pointer::{Addr, Plain, Ptr};
use crate::slabs::Object;
use crate::update::{Parts, Update};

/// A transaction. [`crate::Heap::atomic`] lends it to a closure; it ends with the closure.
///
/// Values are copied out of the heap and into it; nothing of the heap is lent. After
/// [`Error::Conflict`] all operations fail with it: return it, and the heap runs the closure again.
#[derive(Debug)]
pub struct Tx<'heap> {
    parts: &'heap Parts,
    update: &'heap mut Update,
    is_over: bool,
    /// A transaction belongs to the thread that began it.
    not_send: PhantomData<*const ()>,
}

impl<'heap> Tx<'heap> {
    /// Begins one; `is_alone` says that there is no other meanwhile.
    pub(crate) fn begin(parts: &'heap Parts, update: &'heap mut Update, is_alone: bool) -> Self {
        update.begin(parts, is_alone);
        Self { parts, update, is_over: false, not_send: PhantomData }
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.update.is_doomed()
    }

    /// Ends the transaction with its changes, or rolls it back if that is impossible.
    pub(crate) fn commit(mut self) -> Result<()> {
        let committed = self.update.commit(self.parts);
        self.is_over = committed.is_ok();
        committed
    }

    // ----- objects of a type -----

    /// Returns a copy of the object.
    ///
    /// # Errors
    /// [`Error::BadPointer`], [`Error::Conflict`].
    pub fn get<T: Plain>(&mut self, ptr: Ptr<T>) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read(ptr.addr(), value.as_mut_bytes())?;
        Ok(value)
    }

    /// Overwrites the object. Lines of it that stay the same are neither logged nor stored.
    ///
    /// # Errors
    /// [`Error::BadPointer`], [`Error::LogFull`], [`Error::Conflict`].
    pub fn set<T: Plain>(&mut self, ptr: Ptr<T>, value: T) -> Result<()> {
        self.write(ptr.addr(), value.as_bytes())
    }

    /// Changes the object with `change`, and returns what that returns.
    ///
    /// # Errors
    /// As [`Tx::set`].
    pub fn update<T: Plain, R>(&mut self, ptr: Ptr<T>, change: impl FnOnce(&mut T) -> R) -> Result<R> {
        let mut value = self.get(ptr)?;
        let result = change(&mut value);
        self.set(ptr, value)?;
        Ok(result)
    }

    /// Allocates an object. If the transaction is rolled back, it never existed.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`], [`Error::LogFull`], [`Error::Conflict`].
    pub fn alloc<T: Plain>(&mut self, value: T) -> Result<Ptr<T>> {
        let at = self.alloc_bytes(size_of::<T>() as u64)?;
        self.write(at, value.as_bytes())?;
        Ok(at.typed())
    }

    /// Frees an object. Its space can be given out after the commit. Pointers to it that stay
    /// behind are refused until then; afterwards they may point into another object.
    ///
    /// # Errors
    /// [`Error::BadPointer`] if this is not the beginning of an object; [`Error::Conflict`].
    pub fn free<T: Plain>(&mut self, ptr: Ptr<T>) -> Result<()> {
        self.free_bytes(ptr.addr())
    }

    /// Logs objects ahead ([`Ptr::extent`]): up to seven lines take one record, and all of them one
    /// barrier. Without this, each [`Tx::set`] of lines that are not logged yet takes its own.
    ///
    /// # Errors
    /// As [`Tx::set`].
    pub fn log(&mut self, extents: &[(Addr, u64)]) -> Result<()> {
        let objects = extents.iter().map(|(at, len)| self.check(*at, *len)).collect::<Result<Vec<Object>>>()?;
        self.update.log(self.parts, extents.iter().map(|(at, len)| (at.get(), *len)), &objects)
    }

    // ----- bytes -----

    /// Copies bytes of an object.
    ///
    /// # Errors
    /// As [`Tx::get`].
    pub fn read(&mut self, at: Addr, to: &mut [u8]) -> Result<()> {
        self.check(at, to.len() as u64)?;
        self.update.read(self.parts, at.get(), to)
    }

    /// Overwrites bytes of an object.
    ///
    /// # Errors
    /// As [`Tx::set`].
    pub fn write(&mut self, at: Addr, bytes: &[u8]) -> Result<()> {
        let object = self.check(at, bytes.len() as u64)?;
        self.update.write(self.parts, at.get(), bytes, Some(&object))
    }

    /// Allocates an object of `len` bytes, which are zero.
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    pub fn alloc_bytes(&mut self, len: u64) -> Result<Addr> {
        Ok(Addr::new(self.update.allocate(self.parts, len)?.start))
    }

    /// Frees the object that begins at `at`.
    ///
    /// # Errors
    /// As [`Tx::free`].
    pub fn free_bytes(&mut self, at: Addr) -> Result<()> {
        let object = self.check(at, 0)?;
        if object.start != at.get() {
            return Err(Error::BadPointer { at: at.get(), bytes: object.len });
        }
        self.update.free(self.parts, object)
    }

    /// Returns the live object that contains these bytes.
    fn check(&mut self, at: Addr, bytes: u64) -> Result<Object> {
        if self.update.is_doomed() {
            return Err(Error::Conflict);
        }
        let contains = |object: &Object| bytes <= object.start + object.len - at.get();
        let object = self.parts.slabs.object_at(at.get()).filter(contains);
        match object {
            Some(object) if !self.update.freed.contains_key(&object.start) => Ok(object),
            // Another transaction may have freed it since this one began.
            _ if self.update.is_outdated(self.parts, at.get()) => Err(Error::Conflict),
            _ => Err(Error::BadPointer { at: at.get(), bytes }),
        }
    }

    // ----- the root -----

    pub(crate) fn root_line(&mut self) -> Result<[u64; 3]> {
        let mut bytes = [0; 24];
        self.update.read(self.parts, ROOT_AT, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(std::array::from_fn(|index| words.get(index).map_or(0, |word| u64::from_le_bytes(*word))))
    }

    pub(crate) fn set_root_line(&mut self, words: [u64; 3]) -> Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.update.write(self.parts, ROOT_AT, &bytes, None)
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.update.roll_back(self.parts);
        }
    }
}
