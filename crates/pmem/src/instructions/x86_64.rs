//! x86_64.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, __m128i, _mm_clflush, _mm_loadu_si128, _mm_sfence};
use std::arch::x86_64::{_mm_stream_si64, _mm_stream_si128};

/// The instruction that flushes lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// `clwb`: the line stays in the cache.
    WriteBack,
    /// `clflushopt`: the line leaves the cache.
    Optimized,
    /// `clflush`: the line leaves the cache; flushes execute one after the other.
    Plain,
}

impl Flush {
    /// Returns the best instruction that this processor has.
    pub(crate) fn find() -> Self {
        const CLFLUSHOPT: u32 = 1 << 23;
        const CLWB: u32 = 1 << 24;
        let features = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        if features & CLWB != 0 {
            Self::WriteBack
        } else if features & CLFLUSHOPT != 0 {
            Self::Optimized
        } else {
            Self::Plain
        }
    }

    /// Returns the instruction's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::WriteBack => "clwb",
            Self::Optimized => "clflushopt",
            Self::Plain => "clflush",
        }
    }

    /// Sends the line at `line` towards the memory controller; [`fence`] waits for it.
    ///
    /// # Safety
    /// The address is mapped.
    #[inline]
    pub(crate) unsafe fn line(self, line: *const u8) {
        match self {
            // SAFETY: `find` has found the instruction, which changes nothing but where the line is
            // kept.
            Self::WriteBack => unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) },
            // SAFETY: as above.
            Self::Optimized => unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) },
            // SAFETY: every processor of this architecture has it.
            Self::Plain => unsafe { _mm_clflush(line) },
        }
    }
}

/// Waits until the controller has accepted everything that the caller has streamed and flushed. No
/// later store of the caller becomes visible or durable before that.
#[inline]
pub(crate) fn fence() {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { _mm_sfence() };
}

/// Copies `from` to `to` past the caches.
///
/// # Safety
/// `to` is aligned to 8 bytes. The length of `from` is a multiple of 8, and as many bytes may be
/// written at `to`.
#[inline]
pub(crate) unsafe fn stream(to: *mut u8, from: &[u8], _flush: Flush) {
    let word = |to: *mut u8, bytes: &[u8; 8]| {
        // SAFETY: see the caller's contract.
        unsafe { _mm_stream_si64(to.cast::<i64>(), i64::from_ne_bytes(*bytes)) };
    };
    let (mut to, mut from) = (to, from);
    if !(to as usize).is_multiple_of(16)
        && let Some((first, rest)) = from.split_first_chunk::<8>()
    {
        word(to, first);
        (to, from) = (to.wrapping_add(8), rest);
    }
    let (pairs, last) = from.as_chunks::<16>();
    for pair in pairs {
        // SAFETY: `to` is aligned to 16 bytes now, which are within what the caller allows.
        unsafe { _mm_stream_si128(to.cast::<__m128i>(), _mm_loadu_si128(pair.as_ptr().cast())) };
        to = to.wrapping_add(16);
    }
    if let Some(last) = last.first_chunk::<8>() {
        word(to, last);
    }
}

/// Copies lines through the caches, each aligned word in one piece, in the order of addresses.
///
/// # Safety
/// So many lines may be read at `from` and written at `to`. What other threads use of them, they
/// write as words, and it is aligned to 8 bytes.
#[cfg(not(duramen_machine))]
#[inline]
pub(crate) unsafe fn copy_lines(to: *mut u8, from: *const u8, lines: usize) {
    let (mut to, mut from) = (to, from);
    for _ in 0..lines {
        // SAFETY: see the caller's contract. The processor reads and writes the halves of its
        // 16-byte registers, which are aligned words, in one piece.
        unsafe {
            asm!(
                "movdqu {0}, [{from}]",
                "movdqu {1}, [{from} + 16]",
                "movdqu {2}, [{from} + 32]",
                "movdqu {3}, [{from} + 48]",
                "movdqu [{to}], {0}",
                "movdqu [{to} + 16], {1}",
                "movdqu [{to} + 32], {2}",
                "movdqu [{to} + 48], {3}",
                out(xmm_reg) _, out(xmm_reg) _, out(xmm_reg) _, out(xmm_reg) _,
                from = in(reg) from, to = in(reg) to,
                options(nostack, preserves_flags)
            );
        }
        (to, from) = (to.wrapping_add(64), from.wrapping_add(64));
    }
}
