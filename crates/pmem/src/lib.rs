//! Persistent memory: memory whose contents survive once the program has flushed and fenced them.
//! Usable alone, see `examples/`.
//!
//! A [`Region`] maps a file on a DAX file system, a DAX device, an ordinary file, memory of the
//! process, or simulated memory into the address space. A program writes to it with
//! [`Region::store`] (through the caches) or [`Region::stream`] (past them), and makes the data
//! durable with [`Region::flush`] and [`Region::fence`]. [`Region::persist`] calls those of the two
//! that the region's [`Domain`] needs.
//!
//! ```
//! use duramen_pmem::{Region, RegionOptions, Source, Survive};
//!
//! # fn main() -> Result<(), duramen_pmem::PmemError> {
//! let options = RegionOptions { survive: Survive::Nothing, ..RegionOptions::new(4096) };
//! let region = Region::open(&Source::Anonymous, &options)?;
//! region.store(64, &[b"the record"]);
//! region.persist(64, 10);
//! region.store_word(0, 1); // one word: there, or not there
//! region.persist(0, 8);
//! assert_eq!(region.read_word(0), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//! - An aligned word of 8 bytes is stored whole: after a power cut it has one of the values that
//!   were stored to it.
//! - Data that a thread stored and then persisted, or streamed and then fenced, survives the
//!   failures that the platform guarantees ([`Guarantee`]). All other data may survive, word by
//!   word, in any order.
//! - A region opens only if its data survives the failures that the program requires ([`Survive`];
//!   by default a power cut). Otherwise [`PmemError::NotDurable`] names the reason.
//!
//! # Models
//! - **Times** ([`Timing`]): delays make ordinary memory as slow as a device that the machine does
//!   not have. [`Model`] is the model alone, for devices of other kinds.
//! - **Crashes** ([`SimMemory`]): simulated memory records all operations and produces every image
//!   that a power cut could leave, or a sample of them. A test that checks all images finds a
//!   forgotten flush or fence.
//! - In the *machine* build of `duramen-sync`, regions are the simulated computer's non-volatile
//!   memory, and its model charges streams, flushes and fences.
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `region`, `options`, `mode` | regions, and the options for opening them |
//! | `mapping`, `numa` | mapping memory; placing it on a memory node |
//! | `instructions` | non-temporal stores, flushes and fences of each processor |
//! | `domain`, `guarantee` | the assumed persistence domain; the platform's guarantee, and its detection |
//! | `timing` | the timing model |
//! | `crash`, `crash_state`, `survivors`, `image` | the crash model |
//! | `drain` | draining the buffers of all processors |
//!
//! # Safety
//! Words of a region are read and written like relaxed atomic variables. [`Region::store`] and
//! [`Region::read`] are therefore safe whatever other threads or processes do: for each word, a
//! read returns one of the stored values. A caller of [`Region::bytes`] must keep other threads
//! from writing to the slice. `unsafe` is in `mapping`, `numa`, `instructions` and `region`.

mod crash;
mod crash_state;
mod domain;
mod drain;
mod error;
mod guarantee;
mod image;
mod instructions;
mod mapping;
mod mode;
mod numa;
mod options;
mod region;
mod survivors;
mod timing;

pub use crash::{Power, SimMemory};
pub use domain::Domain;
pub use drain::{DrainBy, Drained, can_drain, drain_processors};
pub use error::{PmemError, Result};
pub use guarantee::{Guarantee, Survive};
pub use image::Images;
pub use mapping::Mapping;
pub use mode::Mode;
pub use numa::{Placed, Placement};
pub use options::{RegionOptions, Source};
pub use region::Region;
pub use survivors::Survivors;
pub use timing::{Model, STEP, Timing};
