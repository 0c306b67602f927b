//! Parts that several of these tests share.

use duramen::Options;

/// Returns options with a small pool and a small log, so that little data reaches the disk and
/// wraps around.
pub(crate) fn small() -> Options {
    Options {
        pool_bytes: 2 << 20,
        log_segment_bytes: 1 << 20,
        log_buffer_bytes: 1 << 20,
        log_max_bytes: 64 << 20,
        checkpoint_bytes: Some(4 << 20),
        ..Options::default()
    }
}
