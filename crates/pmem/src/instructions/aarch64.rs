//! aarch64. The maintenance instructions are given by number, because assemblers accept their names
//! only with the extension switched on: `sys #3, c7, c12, #1` is `dc cvap`, `sys #3, c7, c10, #1`
//! is `dc cvac`.

use std::arch::asm;

use super::for_each_line;

/// The instruction that flushes lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// `dc cvap`: to the point of persistence.
    Persistence,
    /// `dc cvac`: to the point of coherency, which is also the point of persistence where the
    /// kernel does not offer `dc cvap`.
    Coherency,
}

impl Flush {
    /// Returns the best instruction that this processor has.
    pub(crate) fn find() -> Self {
        if std::arch::is_aarch64_feature_detected!("dpb") { Self::Persistence } else { Self::Coherency }
    }

    /// Returns the instruction's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Persistence => "dc cvap",
            Self::Coherency => "dc cvac",
        }
    }

    /// Sends the line at `line` towards the memory; [`fence`] waits for it.
    ///
    /// # Safety
    /// The address is mapped.
    #[inline]
    pub(crate) unsafe fn line(self, line: *const u8) {
        match self {
            // SAFETY: `find` has found the instruction, which changes nothing but where the line is
            // kept.
            Self::Persistence => unsafe { asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack)) },
            // SAFETY: programs may use it under Linux; it changes nothing but where the line is
            // kept.
            Self::Coherency => unsafe { asm!("sys #3, c7, c10, #1, {}", in(reg) line, options(nostack)) },
        }
    }
}

/// Waits until everything that the caller has stored and flushed has arrived. No later store of the
/// caller becomes visible or durable before that.
#[inline]
pub(crate) fn fence() {
    // SAFETY: a barrier touches no memory of ours.
    unsafe { asm!("dsb sy", options(nostack)) };
}

/// Copies `from` to `to`, past the caches if the processor takes the hint, and flushes it.
///
/// # Safety
/// `to` is aligned to 8 bytes. The length of `from` is a multiple of 8, and as many bytes may be
/// written at `to`.
#[inline]
pub(crate) unsafe fn stream(to: *mut u8, from: &[u8], flush: Flush) {
    let (pairs, last) = from.as_chunks::<16>();
    let mut at = to;
    for pair in pairs {
        let pair = u128::from_ne_bytes(*pair);
        // SAFETY: the sixteen bytes are within what the caller allows, and aligned to words, which
        // is what is asked for.
        unsafe {
            asm!("stnp {}, {}, [{}]", in(reg) pair as u64, in(reg) (pair >> 64) as u64, in(reg) at, options(nostack));
        }
        at = at.wrapping_add(16);
    }
    if let Some(last) = last.first_chunk::<8>() {
        // SAFETY: the last word of what the caller allows.
        unsafe { duramen_sync::word::store(at.cast(), u64::from_ne_bytes(*last)) };
    }
    // SAFETY: these lines have just been written to.
    for_each_line(to, from.len(), |line| unsafe { flush.line(line) });
}
