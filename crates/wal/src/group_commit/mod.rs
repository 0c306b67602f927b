//! Group commit: the queue of committers, and the flush that serves many of them at once.

pub(crate) mod notifier;
pub(crate) mod policy;
pub(crate) mod progress;
pub(crate) mod queue;
pub(crate) mod requests;
pub(crate) mod wake;
pub(crate) mod work_signal;
