//! Runs the real binary.

#![allow(dead_code, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use duramen_test_support::{announced_seed, is_long};

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

/// A place for a small database that does not exist yet.
pub(crate) struct Home {
    root: tempfile::TempDir,
    pub(crate) dir: PathBuf,
    own: &'static [&'static str],
}

impl Home {
    /// Creates a place for a database that is run with these options.
    pub(crate) fn with(own: &'static [&'static str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("db");
        Self { root, dir, own }
    }

    /// Returns the directory that holds the database's.
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Returns a path beside the database.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Returns the arguments of a short run, followed by `more`.
    pub(crate) fn bench<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let run =
            ["bench", "tpcb", "--dir", arg(&self.dir), "--rows-per-unit", "200", "--clients", "4", "--pool-mb", "8"];
        [&run[..], self.own, more].concat()
    }

    /// Makes the database.
    pub(crate) fn populated(self, more: &[&str]) -> Self {
        let short = ["--transactions", "60", "--scale", "2", "--json"];
        duramen(&self.bench(&[&short[..], more].concat())).exits_with(0);
        self
    }
}

/// Returns the one object that a run has printed.
pub(crate) fn object(ran: &Ran) -> serde_json::Map<String, serde_json::Value> {
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 1, "{ran:#?}");
    match serde_json::from_str(lines[0]) {
        Ok(serde_json::Value::Object(object)) => object,
        other => panic!("{other:?}: {ran:#?}"),
    }
}

/// Returns each workload with one of these ways to keep its database, drawn anew for each run; with
/// each of them in the long suite.
pub(crate) fn every_workload<W: Copy>(ways: &[W]) -> Vec<(&'static str, W)> {
    let first = announced_seed("ways to keep the workloads' databases") as usize % ways.len();
    let count = if is_long() { ways.len() } else { 1 };
    let names = duramen_workloads::selection::NAMES.iter().copied().enumerate();
    names.flat_map(|(at, name)| (0..count).map(move |n| (name, ways[(first + at + n) % ways.len()]))).collect()
}
