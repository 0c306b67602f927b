//! The processor's instructions for persistent memory.
//!
//! | | x86_64 | aarch64 | elsewhere |
//! |---|---|---|---|
//! | stream | `movntdq`, `movnti` | `stnp`, then `dc cvap` at the flush | plain stores |
//! | flush | `clwb`, else `clflushopt`, else `clflush` | `dc cvap`, else `dc cvac` | nothing |
//! | fence | `sfence` | `dsb` | a full fence |
//!
//! On aarch64 `stnp` is a hint, and what it stores may stay in the caches. Streams are therefore
//! cleaned to the point of persistence line by line. For other processors this crate knows no such
//! instructions, and detection finds no persistent memory.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "other.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;

pub(crate) use arch::Flush;
pub(crate) use arch::{fence, stream};

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Copies the whole lines among `len` bytes through the caches, several words at a time, each
/// aligned word in one piece. Returns how many bytes these lines have: nothing where this crate
/// knows no instruction for that, and on the simulated machine, which counts words.
///
/// # Safety
/// So many bytes may be read at `from` and written at `to`. What other threads use of them, they
/// write as words, and it is aligned to 8 bytes.
#[inline]
pub(crate) unsafe fn copy_lines(to: *mut u8, from: *const u8, len: usize) -> usize {
    #[cfg(all(target_arch = "x86_64", not(duramen_machine)))]
    {
        // SAFETY: as the caller says.
        unsafe { arch::copy_lines(to, from, len / LINE) };
        len / LINE * LINE
    }
    #[cfg(not(all(target_arch = "x86_64", not(duramen_machine))))]
    {
        let _ = (to, from, len);
        0
    }
}

/// Calls `f` with the address of every line that the `len` bytes at `data` touch.
#[inline]
pub(crate) fn for_each_line(data: *const u8, len: usize, mut f: impl FnMut(*const u8)) {
    if len == 0 {
        return;
    }
    let before = data as usize % LINE;
    let lines = (before + len).div_ceil(LINE);
    let first = data.wrapping_sub(before);
    (0..lines).for_each(|line| f(first.wrapping_add(line * LINE)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_that_is_touched_is_named() {
        let lines = |offset: usize, len: usize| {
            let mut found = Vec::new();
            for_each_line(std::ptr::without_provenance(0x1000 + offset), len, |line| {
                found.push(line as usize - 0x1000)
            });
            found
        };
        assert_eq!(lines(0, 0), []);
        assert_eq!(lines(0, 1), [0]);
        assert_eq!(lines(63, 2), [0, 64]);
        assert_eq!(lines(64, 64), [64]);
        assert_eq!(lines(8, 128), [0, 64, 128]);
    }

    #[test]
    fn streams_of_all_lengths_arrive() {
        for len in (8..=200).step_by(8) {
            for start in [0, 8] {
                let mut memory = vec![0_u64; 64];
                let words: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x5A).collect();
                let to = memory.as_mut_ptr().cast::<u8>().wrapping_add(start);
                // SAFETY: the memory is ours, large enough and aligned to words.
                unsafe { stream(to, &words, Flush::find()) };
                fence();
                let bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(bytes[start..start + len], words[..]);
                assert!(bytes[start + len..].iter().chain(&bytes[..start]).all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn flushing_changes_nothing() {
        let memory = [7_u8; 300];
        let flush = Flush::find();
        // SAFETY: the memory is ours.
        for_each_line(memory.as_ptr(), memory.len(), |line| unsafe { flush.line(line) });
        fence();
        assert_eq!(memory, [7; 300]);
        assert!(!flush.name().is_empty());
    }
}
