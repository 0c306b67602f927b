//! How a region's file is opened.

/// Whether the file must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Opens an existing file.
    Open,
    /// Creates the file, which must not exist.
    Create,
    /// Opens an existing file, and makes it longer if it is too short.
    Grow,
    /// Opens an existing file, which need not be writable, for reading. What is stored to the
    /// region does not reach the file. A device must be writable nevertheless, and stores reach it.
    Private,
    /// Opens the file, or creates it if it does not exist.
    #[default]
    OpenOrCreate,
}
