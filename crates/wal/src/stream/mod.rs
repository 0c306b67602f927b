//! One log: its shared state, its background threads, and handles to what it has hardened.

pub(crate) mod archiver;
pub(crate) mod copy;
pub(crate) mod daemon;
pub(crate) mod hardened;
pub(crate) mod inner;
pub(crate) mod log;
