//! The files that the rules look at, and which of them are exempt.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Rust sources and documents of the repository.
#[derive(Debug, Default)]
pub(crate) struct Repository {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<File>,
}

/// A file, its path relative to the root.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Something that a rule forbids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Breach {
    /// The rule's name, as exemptions have it.
    pub(crate) rule: &'static str,
    pub(crate) path: String,
    /// None if it concerns the whole of the path.
    pub(crate) line: Option<usize>,
    pub(crate) what: String,
}

/// Paths that a rule does not yet hold for, or never will: `RULE PATH` in each line of
/// `.ci/exempt`. A path covers what lies below it.
#[derive(Debug, Default)]
pub(crate) struct Exemptions(Vec<(String, String)>);

impl Repository {
    /// Reads what git knows or would add.
    ///
    /// # Errors
    ///
    /// A message, if git does not run or a file cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.rs", "*.md"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("git ls-files: {error}"))?;
        if !listed.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr)));
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&listed.stdout).lines().filter(|path| root.join(path).is_file()) {
            let text = fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
            files.push(File { path: path.to_owned(), text });
        }
        Ok(Self { root: root.to_owned(), files })
    }

    /// Sources in Rust.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    /// Names of the folders in `crates`.
    pub(crate) fn crates(&self) -> Vec<&str> {
        let paths = self.files.iter().filter_map(|file| file.path.strip_prefix("crates/"));
        let mut names: Vec<&str> = paths.filter_map(|path| path.split_once("/src/")).map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Folder of a crate's sources.
    pub(crate) fn sources_of(&self, name: &str) -> PathBuf {
        self.root.join("crates").join(name).join("src")
    }
}

impl File {
    /// Whether it is a source in Rust; otherwise it is a document.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Its lines with their numbers.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// A breach of `rule` in this file.
    pub(crate) fn breach(&self, rule: &'static str, line: Option<usize>, what: impl Into<String>) -> Breach {
        Breach { rule, path: self.path.clone(), line, what: what.into() }
    }
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.line.map_or(String::new(), |line| format!("{line}:"));
        write!(f, "{}:{line} {} [{}]", self.path, self.what, self.rule)
    }
}

impl Exemptions {
    /// Reads the lines of `.ci/exempt`.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(
            lines
                .filter_map(|line| line.split_once(' '))
                .map(|(rule, path)| (rule.into(), path.trim().into()))
                .collect(),
        )
    }

    /// The breaches that are not exempt, and one for each exemption without a breach, so that the
    /// list only shrinks.
    pub(crate) fn apply(&self, breaches: Vec<Breach>) -> Vec<Breach> {
        let covers = |exemption: &(String, String), breach: &Breach| {
            let below = breach.path.strip_prefix(&exemption.1);
            exemption.0 == breach.rule && below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        let unused = self.0.iter().filter(|exemption| !breaches.iter().any(|breach| covers(exemption, breach)));
        let unused: Vec<Breach> = unused
            .map(|(rule, path)| Breach {
                rule: "exempt",
                path: path.clone(),
                line: None,
                what: format!("keeps the rule \"{rule}\" now: take it off .ci/exempt"),
            })
            .collect();
        let left = breaches.into_iter().filter(|breach| !self.0.iter().any(|exemption| covers(exemption, breach)));
        left.chain(unused).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A repository of these files, which are not on disk.
    pub(crate) fn repository(files: &[(&str, &str)]) -> Repository {
        let files = files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        Repository { root: PathBuf::new(), files }
    }

    fn breach(rule: &'static str, path: &str) -> Breach {
        Breach { rule, path: path.into(), line: None, what: String::new() }
    }

    #[test]
    fn an_exemption_covers_its_rule_and_what_lies_below_its_path() {
        let exemptions = Exemptions::parse("# Why.\ncolumns a.md\ncircles crates/wal\n");
        let kept = [breach("columns", "b.md"), breach("size", "a.md"), breach("circles", "crates/wal2")];
        let mut all =
            vec![breach("columns", "a.md"), breach("circles", "crates/wal"), breach("circles", "crates/wal/x")];
        all.extend(kept.clone());
        assert_eq!(exemptions.apply(all), kept);
    }

    #[test]
    fn an_exemption_that_is_not_needed_is_a_breach() {
        let left = Exemptions::parse("columns a.md\n").apply(vec![breach("columns", "b.md")]);
        assert_eq!(left.len(), 2);
        assert_eq!((left[1].rule, left[1].path.as_str()), ("exempt", "a.md"));
    }

    #[test]
    fn crates_are_the_folders_with_sources() {
        let repository = repository(&[("crates/b/src/lib.rs", ""), ("crates/a/src/x/y.rs", ""), ("docs/a.md", "")]);
        assert_eq!(repository.crates(), ["a", "b"]);
    }
}
