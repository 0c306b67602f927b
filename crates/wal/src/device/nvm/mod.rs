//! The ring in persistent memory that is the buffer of a log with the device `nvm`, and is durable.
//! [`ring`] describes its contents; [`passive`], what is hardened where caches are volatile.

pub(crate) mod open;
pub(crate) mod passive;
pub(crate) mod ring;
