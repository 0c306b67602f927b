//! The log device in persistent memory: a ring that is durable itself, de-staging it to the segments, and passive group
//! commit.

pub(crate) mod destage;
pub(crate) mod passive;
pub(crate) mod ring;
