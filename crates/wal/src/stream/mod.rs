//! One log: its shared state, its background threads, and requests to harden it.

pub(crate) mod copy;
pub(crate) mod daemon;
pub(crate) mod inner;
pub(crate) mod log;
pub(crate) mod part;
