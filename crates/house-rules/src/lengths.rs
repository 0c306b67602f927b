//! How long files, lines and documents may be.

use crate::repository::{Breach, File, Repository};

const FILE_LINES: usize = 800;
const PROSE_COLUMNS: usize = 100;
const CODE_COLUMNS: usize = 120;

/// Documents that must stay short enough to be read, with their limits in kB of 1024 bytes. A
/// folder's limit is that of each document in it.
const DOCUMENTS: [(&str, usize); 4] =
    [("README.md", 7), ("ARCHITECTURE.md", 15), ("docs/design/", 10), ("docs/lab-notes.md", 6)];

/// A file has one idea and stays small.
pub(crate) fn files(repository: &Repository) -> Vec<Breach> {
    let long = repository.rust().map(|file| (file, file.text.lines().count())).filter(|(_, lines)| *lines > FILE_LINES);
    long.map(|(file, lines)| {
        file.breach("lines", None, format!("{lines} lines; split it by idea (limit {FILE_LINES})"))
    })
    .collect()
}

/// A document has no more than a reader takes in.
pub(crate) fn documents(repository: &Repository) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for file in repository.files.iter().filter(|file| !file.is_rust()) {
        let limit =
            DOCUMENTS.iter().find(|(path, _)| file.path == *path || path.ends_with('/') && file.path.starts_with(path));
        if let Some((_, limit)) = limit
            && file.text.len() > limit * 1024
        {
            let size = file.text.len().div_ceil(1024);
            breaches.push(file.breach("size", None, format!("{size} kB; shorten it (limit {limit} kB)")));
        }
    }
    breaches
}

/// A line is short enough to be read: shorter in prose, which has no indentation to show.
pub(crate) fn columns(repository: &Repository) -> Vec<Breach> {
    repository.files.iter().flat_map(columns_of).collect()
}

fn columns_of(file: &File) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut in_fence = false;
    for (number, line) in file.lines() {
        let comment = line.trim_start().strip_prefix("//");
        let prose = match comment {
            Some(comment) if file.is_rust() => Some(comment.trim_start_matches(['/', '!']).trim_start()),
            _ if file.is_rust() => None,
            _ => Some(line.trim_start()),
        };
        let Some(prose) = prose else {
            in_fence = false;
            if width(line) > CODE_COLUMNS {
                breaches.push(file.breach(
                    "columns",
                    Some(number),
                    format!("{} columns of code (limit {CODE_COLUMNS})", width(line)),
                ));
            }
            continue;
        };
        let is_fence = prose.starts_with("```");
        in_fence ^= is_fence;
        if is_fence || in_fence || prose.starts_with('|') {
            continue;
        }
        let width = width(&without_addresses(line));
        if width > PROSE_COLUMNS {
            breaches.push(file.breach(
                "columns",
                Some(number),
                format!("{width} columns of prose (limit {PROSE_COLUMNS})"),
            ));
        }
    }
    breaches
}

fn width(line: &str) -> usize {
    line.chars().count()
}

/// The line without addresses, which cannot be broken: targets of links, and words with `://`.
fn without_addresses(line: &str) -> String {
    let mut rest = line;
    let mut kept = String::new();
    while let Some(start) = rest.find("](") {
        kept.push_str(&rest[..start]);
        rest = rest[start..].split_once(')').map_or("", |(_, rest)| rest);
    }
    kept.push_str(rest);
    if kept.contains("://") {
        kept.split(' ').filter(|word| !word.contains("://")).collect::<Vec<_>>().join(" ")
    } else {
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::tests::repository;

    #[test]
    fn a_file_of_more_lines_is_a_breach() {
        let (kept, long) = ("x\n".repeat(800), "x\n".repeat(801));
        let breaches = files(&repository(&[("a.rs", &kept), ("b.rs", &long), ("c.md", &long)]));
        assert_eq!(breaches.len(), 1);
        assert_eq!(breaches[0].to_string(), "b.rs: 801 lines; split it by idea (limit 800) [lines]");
    }

    #[test]
    fn a_larger_document_is_a_breach() {
        let sizes = [("README.md", 7), ("ARCHITECTURE.md", 15), ("docs/design/log.md", 10), ("docs/lab-notes.md", 6)];
        for (path, limit) in sizes {
            assert_eq!(documents(&repository(&[(path, &"x".repeat(limit * 1024))])), [], "{path}");
            let breaches = documents(&repository(&[(path, &"x".repeat(limit * 1024 + 1))]));
            assert_eq!(breaches.len(), 1, "{path}");
            assert!(breaches[0].what.contains(&format!("limit {limit} kB")), "{}", breaches[0]);
        }
        assert_eq!(documents(&repository(&[("docs/other.md", &"x".repeat(100_000))])), []);
    }

    /// Lines in breach of a file with these lines.
    fn long_lines(path: &str, lines: &[String]) -> Vec<usize> {
        columns(&repository(&[(path, &lines.join("\n"))])).iter().filter_map(|breach| breach.line).collect()
    }

    #[test]
    fn prose_has_fewer_columns_than_code() {
        let line = |start: &str, width: usize| format!("{start}{}", "x".repeat(width - start.len()));
        assert_eq!(long_lines("a.md", &[line("", 100), line("", 101), line("- ", 101)]), [2, 3]);
        let comments =
            [line("// ", 100), line("// ", 101), line("    /// ", 101), line("//! ", 101), line("let x = ", 101)];
        assert_eq!(long_lines("a.rs", &comments), [2, 3, 4]);
        assert_eq!(long_lines("a.rs", &[line("let x = ", 120), line("let x = ", 121)]), [2]);
    }

    #[test]
    fn columns_are_characters() {
        assert_eq!(long_lines("a.md", &["ä".repeat(100), "ä".repeat(101)]), [2]);
    }

    #[test]
    fn tables_fences_and_addresses_may_be_longer() {
        let x = "x".repeat(110);
        let kept = [
            format!("| {x} |"),
            "```text".into(),
            x.clone(),
            "```".into(),
            format!("See [this]({x}) and https://{x} too."),
            format!("[this]: https://{x}"),
        ];
        assert_eq!(long_lines("a.md", &kept), []);
        assert_eq!(long_lines("a.rs", &kept.map(|line| format!("/// {line}"))), []);
        assert_eq!(long_lines("a.md", &["```text".into(), x.clone(), "```".into(), x.clone()]), [4]);
        assert_eq!(long_lines("a.md", &[format!("[{x}](b)")]), [1]);
    }
}
