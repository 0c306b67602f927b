//! Runs the real binary.

#![allow(dead_code, reason = "each test file uses a part")]

use std::path::Path;
use std::process::{Command, Output};

/// The command with `args`.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duramen"));
    command.args(args);
    command
}

/// What one run of the command left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// Runs the command to its end.
pub(crate) fn duramen(args: &[&str]) -> Ran {
    command(args).output().expect("the command can be started").into()
}

impl Ran {
    /// Asserts the exit code; shows everything otherwise.
    #[track_caller]
    pub(crate) fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Asserts that the error is one sentence on standard error that has all `words`.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        assert!(self.stderr.contains("error: "), "{self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in {self:#?}");
        }
        self
    }
}

/// A path as an argument.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().expect("the path of a temporary directory is UTF-8")
}
