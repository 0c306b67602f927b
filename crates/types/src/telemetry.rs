//! Spans and events for subscribers of the `tracing` crate: what takes long, and what goes wrong;
//! never a single operation. A program turns them on with the feature `tracing`. In every other
//! build they are nothing, and their values are not evaluated. Their target is `duramen`.

#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing;

/// The span of a build without `tracing`.
#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[derive(Debug)]
pub struct NoSpan;

/// Enters a span of level `INFO`, which lasts until the returned value is dropped:
/// `span!("backup", to = path)`. Values are printed with `Display`.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! span {
    ($name:literal $(, $field:ident = $value:expr)*) => {
        $crate::telemetry::tracing::info_span!(target: "duramen", $name $(, $field = %$value)*).entered()
    };
}

/// Enters a span: not in this build.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! span {
    ($name:literal $(, $field:ident = $value:expr)*) => {{
        let _ = || { $(let _ = &$value;)* };
        $crate::telemetry::NoSpan
    }};
}

/// Reports an event: `event!(ERROR, "out of service", reason = reason)`. Values are printed with
/// `Display`.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! event {
    ($level:ident, $message:literal $(, $field:ident = $value:expr)*) => {
        $crate::telemetry::tracing::event!(
            target: "duramen", $crate::telemetry::tracing::Level::$level, $($field = %$value,)* $message
        )
    };
}

/// Reports an event: not in this build.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! event {
    ($level:ident, $message:literal $(, $field:ident = $value:expr)*) => {{
        let _ = || { $(let _ = &$value;)* };
    }};
}
