//! The crash model: simulated persistent memory, and what a power cut leaves of it.
//!
//! A [`SimMemory`] records the operations of each thread on the region that is open on it. For each
//! word of 8 bytes it has the value that a power cut leaves *for sure*, and the values written
//! since, each of which a power cut *may* leave:
//!
//! - A stored word may have been evicted from the caches at any time, or not at all. After a power
//!   cut it therefore has any of its values since the sure one, independently of other words, even
//!   of the same line.
//! - A flush records the values of the words in its lines. The next fence of the flushing thread
//!   makes these values sure.
//! - The next fence of a thread makes sure what this thread has streamed. A flush or a fence of
//!   another thread does not, except where all processors drain their buffers
//!   ([`crate::drain_processors`]).
//! - Where caches are durable, a fence also makes sure what its thread has stored.
//!
//! The model is slightly worse than the worst hardware: x86 stores to durable caches in order.
//!
//! The power goes off at a call of [`SimMemory::crash`], at an operation chosen beforehand, or
//! together with other devices ([`Power`]). Threads continue to run, but the memory records nothing
//! that they do. [`SimMemory::is_off`] says whether the power is off.

use duramen_sync::{Arc, Mutex, thread};

use crate::crash_state::{State, Version};
use crate::domain::Domain;
use crate::error::{PmemError, Result};
use crate::guarantee::{Finding, Guarantee};
use crate::survivors::Survivors;

/// A power supply that several simulated devices share.
pub trait Power: Send + Sync {
    /// Returns whether the power is on.
    fn is_on(&self) -> bool;
    /// Turns the power off.
    fn cut(&self);
}

/// Simulated persistent memory; clones are handles of the same memory.
#[derive(Clone)]
pub struct SimMemory {
    shared: Arc<Shared>,
}

struct Shared {
    domain: Domain,
    power: Option<Arc<dyn Power>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for SimMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimMemory").field("domain", &self.shared.domain).finish_non_exhaustive()
    }
}

impl SimMemory {
    pub(crate) const LOCATION: &'static str = "simulated persistent memory";

    /// Returns zeroed memory of `len` bytes, a multiple of 8, on a platform with this domain.
    pub fn new(len: u64, domain: Domain) -> Self {
        Self::with_power(len, domain, None)
    }

    /// As [`SimMemory::new`], with a power supply that it shares with other devices.
    pub fn with_power(len: u64, domain: Domain, power: Option<Arc<dyn Power>>) -> Self {
        assert!(len.is_multiple_of(8), "memory is whole words");
        let sure = vec![0; usize::try_from(len / 8).expect("simulated memory fits into memory")];
        Self::with_state(domain, power, State::new(sure))
    }

    fn with_state(domain: Domain, power: Option<Arc<dyn Power>>, state: State) -> Self {
        Self { shared: Arc::new(Shared { domain, power, state: Mutex::new(state) }) }
    }

    /// Returns whether these are handles of the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the platform's domain.
    pub fn domain(&self) -> Domain {
        self.shared.domain
    }

    /// Returns the memory's size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "as with regions")]
    pub fn len(&self) -> u64 {
        self.shared.state.lock().sure.len() as u64 * 8
    }

    /// Returns the number of operations so far: calls that store, stream, flush or fence. The next
    /// operation gets this number.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// Returns the numbers of the operations that were fences or drains. A power cut at one of them
    /// leaves most of what the program relies on in one of several states.
    pub fn fences(&self) -> Vec<u64> {
        self.shared.state.lock().fences.clone()
    }

    /// Turns the power off at operation `operation`, or at the next one if that has passed. What
    /// that operation stores may survive; a fence at that operation makes nothing sure.
    pub fn crash_at(&self, operation: u64) {
        self.shared.state.lock().crash_at = Some(operation);
    }

    /// Turns the power off now, between two operations.
    pub fn crash(&self) {
        self.shared.state.lock().is_off = true;
        if let Some(power) = &self.shared.power {
            power.cut();
        }
    }

    /// Returns whether the power is off: what a program acknowledges from then on does not count.
    pub fn is_off(&self) -> bool {
        self.shared.state.lock().is_off || self.shared.power.as_ref().is_some_and(|power| !power.is_on())
    }

    /// Returns the number of words for which a power cut at this moment can leave one of several
    /// values.
    pub fn unsure(&self) -> usize {
        self.shared.state.lock().unsure.iter().count()
    }

    /// Returns one of the images that a power cut can leave: a power cut at this moment, or the one
    /// that has happened. The image is a separate memory: powered, with nothing unsure, and with
    /// operations numbered from 0. It shares `power` with other devices, if given.
    pub fn crash_image(&self, survivors: Survivors, power: Option<Arc<dyn Power>>) -> Self {
        let sure = survivors.apply(&self.shared.state.lock());
        Self::with_state(self.shared.domain, power, State::new(sure))
    }

    /// Returns the number of images that a power cut at this moment can leave, at most
    /// [`u64::MAX`].
    pub fn ways(&self) -> u64 {
        let state = self.shared.state.lock();
        state.unsure.iter().fold(1, |ways: u64, (_, versions)| ways.saturating_mul(versions.len() as u64 + 1))
    }

    pub(crate) fn finding(&self) -> Finding {
        let guarantee = match self.shared.domain {
            Domain::DurableCache => Guarantee::DurableCache,
            Domain::VolatileCache => Guarantee::VolatileCache,
        };
        Finding::new(guarantee, "the simulation is set to it")
    }

    /// Opens a region of `len` bytes.
    pub(crate) fn attach(&self, len: u64) -> Result<Recorder> {
        let location = || Self::LOCATION.to_owned();
        let mut state = self.shared.state.lock();
        let has = state.sure.len() as u64 * 8;
        if has < len {
            return Err(PmemError::TooSmall { location: location(), len: has, wanted: len });
        }
        if std::mem::replace(&mut state.is_open, true) {
            return Err(PmemError::Busy { location: location() });
        }
        Ok(Recorder { memory: self.clone() })
    }

    /// Drains the buffers of all processors, which makes everything pending sure.
    pub(crate) fn drain(&self) {
        let mut state = self.shared.state.lock();
        let number = state.operations;
        if self.begins(&mut state) && !state.is_off {
            state.fences.push(number);
            let pending = std::mem::take(&mut state.pending);
            // Draining also completes flushes that the processors have begun.
            pending.values().for_each(|pending| state.make_sure(pending));
        }
    }

    /// Counts an operation; returns whether it has any effect.
    fn begins(&self, state: &mut State) -> bool {
        if state.is_off || self.shared.power.as_ref().is_some_and(|power| !power.is_on()) {
            state.is_off = true;
            return false;
        }
        let number = state.operations;
        state.operations += 1;
        if state.crash_at.is_some_and(|at| at <= number) {
            state.is_off = true;
            if let Some(power) = &self.shared.power {
                power.cut();
            }
        }
        true
    }
}

/// Records the operations on the region that is open on a memory.
#[derive(Debug)]
pub(crate) struct Recorder {
    memory: SimMemory,
}

impl Recorder {
    /// Calls `put` with the offset and the value of each word in the first `len` bytes as programs
    /// read it.
    pub(crate) fn load(&self, len: usize, mut put: impl FnMut(usize, u64)) {
        let state = self.memory.shared.state.lock();
        let words = state.sure.len().min(len / 8);
        // Regions start as zeros.
        let sure = state.sure[..words].iter().enumerate().filter(|(_, value)| **value != 0);
        sure.for_each(|(word, value)| put(word * 8, *value));
        for (word, versions) in state.unsure.iter().take_while(|(word, _)| *word < words) {
            versions.last().into_iter().for_each(|version| put(word * 8, version.value));
        }
    }

    /// Records a store or a stream of the caller. `write` performs it and reports the offset and
    /// the new value of each word.
    pub(crate) fn store(&self, is_streamed: bool, write: impl FnOnce(&mut dyn FnMut(usize, u64))) {
        let mut guard = self.memory.shared.state.lock();
        let state = &mut *guard;
        if !self.memory.begins(state) {
            return write(&mut |_, _| {});
        }
        let thread = thread::id();
        // Where caches are durable, a fence is enough for what has been stored.
        let is_fenced = is_streamed || self.memory.shared.domain == Domain::DurableCache;
        let mut pending = is_fenced.then(|| state.pending.entry(thread).or_default());
        write(&mut |at, value| {
            let (word, number) = (at / 8, state.versions);
            assert!(word < state.sure.len(), "what is stored is within the memory");
            if state.sure[word] == value && state.unsure.versions(word).is_empty() {
                // Whatever a power cut keeps, the word has this value. Much of what is stored is
                // zeros over zeros.
                return;
            }
            state.versions += 1;
            state.unsure.push(word, Version { number, value, thread, is_streamed });
            if let Some(pending) = &mut pending {
                pending.push((word, number));
            }
        });
    }

    /// Records that the caller flushes the lines of the words whose offsets `lines` names.
    pub(crate) fn flush(&self, lines: impl FnOnce(&mut dyn FnMut(usize))) {
        let mut guard = self.memory.shared.state.lock();
        let state = &mut *guard;
        if !self.memory.begins(state) || state.unsure.is_empty() {
            return;
        }
        let thread = thread::id();
        let pending = state.pending.entry(thread).or_default();
        lines(&mut |at| {
            let word = at / 8;
            let mut stored = state.unsure.versions(word).iter();
            // The streams of other threads are still in those threads' buffers, not in a cache.
            if let Some(last) = stored.rfind(|version| !version.is_streamed || version.thread == thread) {
                pending.push((word, last.number));
            }
        });
    }

    /// Records a fence of the caller.
    pub(crate) fn fence(&self) {
        let mut state = self.memory.shared.state.lock();
        let number = state.operations;
        if self.memory.begins(&mut state) && !state.is_off {
            state.fences.push(number);
            let pending = state.pending.remove(&thread::id()).unwrap_or_default();
            state.make_sure(&pending);
        }
    }

    /// Records that every processor drains its buffers.
    pub(crate) fn drain(&self) {
        self.memory.drain();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.memory.shared.state.lock().is_open = false;
    }
}

#[cfg(test)]
#[path = "crash_tests.rs"]
mod tests;
