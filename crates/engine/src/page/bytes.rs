//! Reads the bytes of a page that may change during the read.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};

use duramen_sync::{page_trace, prefetch};
use duramen_types::PAGE_SIZE;

/// Prefetches a page, every part of which will be read.
pub(crate) fn fetch_whole(page: &[u8]) {
    page.chunks(64).for_each(|line| prefetch(line.as_ptr()));
}

/// Read access to the bytes of one page.
///
/// An optimistic reader reads a page while a writer may change it, so any offset or length that it
/// reads may be garbage. Therefore no method panics or leaves the page: bytes beyond the end read
/// as zeros, and ranges are clamped. The caller detects garbage when it validates the page's
/// version, and then discards everything that it read.
pub(crate) trait PageBytes {
    /// Returns the byte at `off`.
    fn u8_at(&self, off: usize) -> u8;

    /// Returns the little-endian number at `off`.
    fn u16_at(&self, off: usize) -> u16;

    /// Returns the little-endian number at `off`.
    fn u32_at(&self, off: usize) -> u32;

    /// Returns the little-endian number at `off`.
    fn u64_at(&self, off: usize) -> u64;

    /// Compares the `len` bytes at `off` with `key`, lexicographically.
    fn compare(&self, off: usize, len: usize, key: &[u8]) -> Ordering;

    /// Appends the `len` bytes at `off` to `out`; fewer at the end of the page.
    fn copy_into(&self, off: usize, len: usize, out: &mut Vec<u8>);
}

impl<B: PageBytes + ?Sized> PageBytes for &B {
    #[inline(always)]
    fn u8_at(&self, off: usize) -> u8 {
        (**self).u8_at(off)
    }

    #[inline(always)]
    fn u16_at(&self, off: usize) -> u16 {
        (**self).u16_at(off)
    }

    #[inline(always)]
    fn u32_at(&self, off: usize) -> u32 {
        (**self).u32_at(off)
    }

    #[inline(always)]
    fn u64_at(&self, off: usize) -> u64 {
        (**self).u64_at(off)
    }

    #[inline(always)]
    fn compare(&self, off: usize, len: usize, key: &[u8]) -> Ordering {
        (**self).compare(off, len, key)
    }

    #[inline(always)]
    fn copy_into(&self, off: usize, len: usize, out: &mut Vec<u8>) {
        (**self).copy_into(off, len, out);
    }
}

/// A page that no thread changes: it is latched, or private to the reader.
impl PageBytes for [u8] {
    #[inline(always)]
    fn u8_at(&self, off: usize) -> u8 {
        page_trace::read(self.as_ptr().wrapping_add(off), 1);
        self.get(off).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn u16_at(&self, off: usize) -> u16 {
        u16::from_le_bytes(array_at(self, off))
    }

    #[inline(always)]
    fn u32_at(&self, off: usize) -> u32 {
        u32::from_le_bytes(array_at(self, off))
    }

    #[inline(always)]
    fn u64_at(&self, off: usize) -> u64 {
        u64::from_le_bytes(array_at(self, off))
    }

    #[inline(always)]
    fn compare(&self, off: usize, len: usize, key: &[u8]) -> Ordering {
        clamped(self, off, len).cmp(key)
    }

    #[inline(always)]
    fn copy_into(&self, off: usize, len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(clamped(self, off, len));
    }
}

#[inline(always)]
fn array_at<const N: usize>(page: &[u8], off: usize) -> [u8; N] {
    page_trace::read(page.as_ptr().wrapping_add(off), N);
    match page.get(off..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => *bytes,
        None => std::array::from_fn(|i| page.u8_at(off.saturating_add(i))),
    }
}

#[inline(always)]
fn clamped(page: &[u8], off: usize, len: usize) -> &[u8] {
    let start = off.min(page.len());
    page_trace::read(page.as_ptr().wrapping_add(start), len.min(page.len() - start));
    &page[start..start + len.min(page.len() - start)]
}

/// A page that another thread may be changing.
///
/// This is the reading side of a sequence lock (Boehm, "Can seqlocks get along with programming
/// language memory models?", 2012). The reader takes the page's version, reads with relaxed atomic
/// loads, and validates the version after an acquire fence. If a writer was active in between, the
/// validation fails and the values are discarded. Until then the reader uses them only for
/// computations that no value can lead out of the page.
///
/// The loads here are atomic, but the latch holder writes the page with plain stores. When both
/// touch the same bytes, that is a data race by the letter of the language's memory model. The race
/// is accepted so that writers run at full speed. Beyond the letter, the code relies on one
/// property: a relaxed load that races with plain stores returns some bytes, any bytes, and has no
/// other effect. Every supported compiler and processor has this property: the load is opaque to
/// the optimizer because it is atomic, and the store is compiled independently of the reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptimisticPage<'a> {
    base: *const u8,
    page: PhantomData<&'a [u8]>,
}

impl OptimisticPage<'_> {
    /// Wraps the page at `base`.
    ///
    /// # Safety
    /// For the lifetime of the result, the [`PAGE_SIZE`] bytes at `base` must be mapped and
    /// readable, and writable memory as far as the operating system is concerned. Other threads may
    /// write them at any time.
    #[inline]
    pub(crate) unsafe fn new(base: *const u8) -> Self {
        assert!(base.cast::<u64>().is_aligned(), "pages are aligned");
        Self { base, page: PhantomData }
    }

    /// Prefetches the beginning of the page, which is a leaf. Each step of a search depends on the
    /// bytes that the step before it found, so every step would wait for memory by itself.
    #[inline(always)]
    pub(crate) fn fetch_ahead(self) {
        /// The header and 240 slots. The processor tracks only a limited number of misses at a
        /// time.
        const LINES: usize = 16;
        (0..LINES).for_each(|line| prefetch(self.base.wrapping_add(64 * line)));
    }

    /// Returns the aligned word number `index` of the page; zero beyond the page's end.
    #[inline(always)]
    fn word(self, index: usize) -> u64 {
        if index >= PAGE_SIZE / 8 {
            return 0;
        }
        // SAFETY: `index` is within the page, which the constructor's caller keeps readable and
        // aligned.
        u64::from_le(unsafe { load::u64(self.base.cast::<u64>().add(index)) })
    }

    /// Returns the first `len` (at most seven) of the eight bytes at `off`; the other bytes are
    /// zero.
    #[inline(always)]
    fn partial_word(self, off: usize, len: usize) -> u64 {
        self.u64_at(off) & !(u64::MAX << (8 * len))
    }
}

/// Relaxed loads from shared memory.
#[cfg(not(any(duramen_loom, duramen_machine)))]
mod load {
    use duramen_sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

    macro_rules! load {
        ($name:ident, $atomic:ident) => {
            /// # Safety
            /// `at` must be aligned and readable.
            #[inline(always)]
            pub(super) unsafe fn $name(at: *const $name) -> $name {
                duramen_sync::page_trace::read(at.cast(), size_of::<$name>());
                // SAFETY: the caller's promise; the memory is only read.
                unsafe { $atomic::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
            }
        };
    }

    load!(u16, AtomicU16);
    load!(u32, AtomicU32);
    load!(u64, AtomicU64);
}

/// The threads of a model and of the simulated machine take turns and switch only at their
/// operations, so plain memory has no racing reads. But other threads may run between two of these
/// loads.
#[cfg(any(duramen_loom, duramen_machine))]
mod load {
    macro_rules! load {
        ($name:ident) => {
            /// # Safety
            /// `at` must be aligned and readable.
            pub(super) unsafe fn $name(at: *const $name) -> $name {
                duramen_sync::cost::read_racing(at, size_of::<$name>());
                // SAFETY: the caller's promise.
                unsafe { at.read_volatile() }
            }
        };
    }

    load!(u16);
    load!(u32);
    load!(u64);
}

impl PageBytes for OptimisticPage<'_> {
    #[inline(always)]
    fn u8_at(&self, off: usize) -> u8 {
        (self.word(off / 8) >> (8 * (off % 8))) as u8
    }

    #[inline(always)]
    fn u16_at(&self, off: usize) -> u16 {
        if off.is_multiple_of(2) && off < PAGE_SIZE {
            // SAFETY: aligned, and within the page, which the constructor's caller keeps readable.
            u16::from_le(unsafe { load::u16(self.base.add(off).cast()) })
        } else {
            self.u64_at(off) as u16
        }
    }

    #[inline(always)]
    fn u32_at(&self, off: usize) -> u32 {
        if off.is_multiple_of(4) && off < PAGE_SIZE {
            // SAFETY: aligned, and within the page, which the constructor's caller keeps readable.
            u32::from_le(unsafe { load::u32(self.base.add(off).cast()) })
        } else {
            self.u64_at(off) as u32
        }
    }

    #[inline(always)]
    fn u64_at(&self, off: usize) -> u64 {
        // There is no branch on the alignment, which is random. Shifting in two steps shifts out
        // the whole second word when the shift is zero.
        let shift = 8 * (off % 8);
        self.word(off / 8) >> shift | self.word(off / 8 + 1) << (63 - shift) << 1
    }

    #[inline(always)]
    fn compare(&self, off: usize, len: usize, key: &[u8]) -> Ordering {
        let off = off.min(PAGE_SIZE);
        let len = len.min(PAGE_SIZE - off);
        let common = len.min(key.len());
        let (chunks, tail) = key[..common].as_chunks::<8>();
        let mut at = off;
        for chunk in chunks {
            let ours = self.u64_at(at);
            let theirs = u64::from_le_bytes(*chunk);
            if ours != theirs {
                return ours.swap_bytes().cmp(&theirs.swap_bytes());
            }
            at += 8;
        }
        if !tail.is_empty() {
            let mut padded = [0; 8];
            padded[..tail.len()].copy_from_slice(tail);
            let ours = self.partial_word(at, tail.len());
            let theirs = u64::from_le_bytes(padded);
            if ours != theirs {
                return ours.swap_bytes().cmp(&theirs.swap_bytes());
            }
        }
        len.cmp(&key.len())
    }

    fn copy_into(&self, off: usize, len: usize, out: &mut Vec<u8>) {
        /// The bytes of a word. (In a build without link-time optimization, `map` on the array is a
        /// call for each byte, which takes most of the time of a scan.)
        #[inline(always)]
        fn initialized(word: u64) -> [MaybeUninit<u8>; 8] {
            // SAFETY: every byte is initialized, and the two types have the same layout.
            unsafe { mem::transmute(word.to_le_bytes()) }
        }

        let off = off.min(PAGE_SIZE);
        let len = len.min(PAGE_SIZE - off);
        let filled = out.len();
        out.reserve(len);
        let (chunks, tail) = out.spare_capacity_mut()[..len].as_chunks_mut::<8>();
        let first = off / 8;
        if off.is_multiple_of(8) {
            for (index, chunk) in (first..).zip(&mut *chunks) {
                *chunk = initialized(self.word(index));
            }
        } else {
            // Each word is read once, and its two parts go to two chunks.
            let shift = 8 * (off % 8);
            let mut word = self.word(first);
            for (index, chunk) in (first + 1..).zip(&mut *chunks) {
                let next = self.word(index);
                *chunk = initialized(word >> shift | next << (64 - shift));
                word = next;
            }
        }
        let rest = initialized(self.u64_at(off + 8 * chunks.len()));
        tail.copy_from_slice(&rest[..tail.len()]);
        // SAFETY: the bytes were reserved, and the chunks and the tail, which are all of them, have
        // been written.
        unsafe { out.set_len(filled + len) };
    }
}
