//! Circles of imports in a crate: among its files, and among the entries of each of its folders.
//!
//! A `mod.rs` (or `x.rs` beside a folder `x`, `lib.rs`, `main.rs`) and what lies below it may
//! import each other; every other circle is a breach. An entry of a folder is a file or a folder,
//! taken as one node with all that lies in it, and `x.rs` is part of a folder `x` beside it; so
//! folders are free of circles among each other and with the files beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::graph::Graph;
use crate::modules::{Modules, Target, folder_of};
use crate::repository::Breach;

/// The imports of a crate.
#[derive(Debug)]
pub(crate) struct Imports {
    /// How many files the crate has, tests left out.
    files: usize,
    /// From file to file.
    among_files: Graph,
    /// By folder, from entry to entry.
    among_entries: BTreeMap<String, Graph>,
    /// Where methods lie that are called without an import: `FILE: Type of FILE` for each
    /// implementation of a type outside its own file and what lies below that.
    scattered: BTreeSet<String>,
}

/// A circle of imports.
#[derive(Debug)]
pub(crate) struct Circle<'a> {
    /// The folder whose entries it consists of; none for a circle of files.
    folder: Option<&'a str>,
    nodes: BTreeSet<String>,
    graph: &'a Graph,
}

/// No import goes around a circle in the crate `name`.
pub(crate) fn breaches(name: &str, modules: &Modules) -> Vec<Breach> {
    let breach = |circle: Circle<'_>| Breach {
        rule: "circles",
        path: format!("crates/{name}"),
        line: None,
        what: format!("{}; `cargo run -p house-rules -- --circles {name}` has the imports", circle.headline()),
    };
    Imports::of(modules).circles().into_iter().map(breach).collect()
}

impl Imports {
    /// The imports of a crate with these modules.
    pub(crate) fn of(modules: &Modules) -> Self {
        let files = &modules.files;
        let mut imports = Self {
            files: files.len(),
            among_files: Graph::default(),
            among_entries: BTreeMap::new(),
            scattered: BTreeSet::new(),
        };
        for mention in &modules.mentions {
            let from = &files[modules.file_of(mention.module)];
            for target in modules.resolve(mention.module, &mention.path) {
                let Target::Item { file, name } = target else { continue };
                let to = &files[file];
                if from != to && !is_below(from, to) && !is_below(to, from) {
                    imports.add(from, to, &name, mention.line, files);
                }
            }
        }
        for implementation in &modules.implementations {
            let file = &files[modules.file_of(implementation.module)];
            for target in modules.resolve(implementation.module, &implementation.path) {
                if let Target::Item { file: home, name } = target
                    && *file != files[home]
                    && !is_below(file, &files[home])
                {
                    imports.scattered.insert(format!("{file}: {name} of {}", files[home]));
                }
            }
        }
        imports
    }

    fn add(&mut self, from: &str, to: &str, name: &str, line: usize, files: &[String]) {
        self.among_files.add(from, to, name, &line.to_string());
        let (from_entries, to_entries) = (entries(from, files), entries(to, files));
        let common = from_entries.iter().zip(&to_entries).take_while(|(from, to)| from == to).count();
        let (Some(from_entry), Some(to_entry)) = (from_entries.get(common), to_entries.get(common)) else { return };
        let graph = self.among_entries.entry(from_entries[..common].concat()).or_default();
        graph.add(from_entry, to_entry, &format!("{from} -> {to}: {name}"), &line.to_string());
    }

    /// All circles: those of files, then those of entries with a folder among them.
    pub(crate) fn circles(&self) -> Vec<Circle<'_>> {
        let of_files = self.among_files.circles().into_iter();
        let of_files = of_files.map(|nodes| Circle { folder: None, nodes, graph: &self.among_files });
        let of_entries = self.among_entries.iter().flat_map(|(folder, graph)| {
            let circles = graph.circles().into_iter().filter(|nodes| nodes.iter().any(|node| node.ends_with('/')));
            circles.map(move |nodes| Circle { folder: Some(folder), nodes, graph })
        });
        of_files.chain(of_entries).collect()
    }

    /// Every circle with the imports it consists of.
    pub(crate) fn report(&self) -> String {
        let circles = self.circles();
        let of_files = circles.iter().filter(|circle| circle.folder.is_none()).count();
        let mut report = format!(
            "{} files, circles among files: {of_files}, circles among folders: {}\n",
            self.files,
            circles.len() - of_files
        );
        for circle in &circles {
            let _ = write!(report, "\n{}", circle.headline());
            for (from, to, names) in circle.graph.among(&circle.nodes) {
                let names: Vec<String> = names.iter().map(|(name, line)| format!("{name} ({line})")).collect();
                let separator = if circle.folder.is_none() { ", " } else { "\n        " };
                let start = if circle.folder.is_none() { " " } else { separator };
                let _ = write!(report, "\n    {from} -> {to}:{start}{}", names.join(separator));
            }
            report.push('\n');
        }
        if !self.scattered.is_empty() {
            report.push_str(
                "\nImplementations outside of the type's own file; calls of these methods are not seen as imports:\n",
            );
        }
        for implementation in &self.scattered {
            let _ = writeln!(report, "    {implementation}");
        }
        report
    }
}

impl Circle<'_> {
    /// One line that tells circles of files from those of folders.
    pub(crate) fn headline(&self) -> String {
        let nodes: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        let kind = match self.folder {
            None => "files".to_owned(),
            Some(folder) => format!("folders, in src/{folder}"),
        };
        format!(
            "circle among {kind} ({} of them: {}), such as {}",
            nodes.len(),
            nodes.join(" "),
            self.graph.way_around(&self.nodes).join(" -> ")
        )
    }
}

/// Whether `file` lies below the module in `above`.
fn is_below(file: &str, above: &str) -> bool {
    file.starts_with(&folder_of(above))
}

/// The folders on the way to `file`, each with a slash at its end, and then its own name. A
/// module's file beside its folder counts as a file in it.
fn entries(file: &str, files: &[String]) -> Vec<String> {
    let folder = folder_of(file);
    let has_folder = files.iter().any(|other| other.starts_with(&folder));
    let path = if has_folder { format!("{folder}mod.rs") } else { file.to_owned() };
    path.split_inclusive('/').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::tests::crate_of;

    /// First words of each circle's headline, up to its nodes.
    fn circles(sources: &[(&str, &str)]) -> Vec<String> {
        let imports = Imports::of(&crate_of(sources));
        let headlines = imports.circles().into_iter().map(|circle| circle.headline());
        headlines.map(|line| line.split(')').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_circle_of_files_is_found() {
        let sources = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "fn f() { crate::a::A; } pub struct C;"),
        ];
        assert_eq!(circles(&sources), ["circle among files (3 of them: a.rs b.rs c.rs"]);
        let report = Imports::of(&crate_of(&sources)).report();
        assert!(report.starts_with("4 files, circles among files: 1, circles among folders: 0\n"), "{report}");
        assert!(report.contains("such as a.rs -> b.rs -> c.rs -> a.rs\n    a.rs -> b.rs: B (1)\n"), "{report}");
    }

    #[test]
    fn a_module_and_what_lies_below_it_may_import_each_other() {
        let sources = [
            ("lib.rs", "mod a; mod b; pub struct Root; use a::deep::leaf::Leaf;"),
            ("a/mod.rs", "pub mod deep; pub struct A; use deep::D; use crate::Root;"),
            ("a/deep.rs", "pub mod leaf; pub struct D; use leaf::Leaf; use super::A;"),
            ("a/deep/leaf.rs", "pub struct Leaf; use crate::a::A; use super::D; use crate::Root;"),
            ("b.rs", "use crate::a::A; use crate::a::deep::leaf::Leaf;"),
        ];
        assert_eq!(circles(&sources), [""; 0]);
    }

    #[test]
    fn siblings_may_not_even_if_their_module_passes_names_on() {
        let sources = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod x; mod y; pub use x::X; pub use y::Y;"),
            ("a/x.rs", "use super::Y; pub struct X;"),
            ("a/y.rs", "use crate::a::X; pub struct Y;"),
        ];
        assert_eq!(circles(&sources), ["circle among files (2 of them: a/x.rs a/y.rs"]);
    }

    #[test]
    fn a_circle_of_folders_is_found_without_one_of_files() {
        let sources = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; mod y;"),
            ("a/x.rs", "use crate::b::X; pub struct P;"),
            ("a/y.rs", "pub struct Y;"),
            ("b.rs", "mod x; mod y; pub use x::X; pub use y::Y;"),
            ("b/x.rs", "pub struct X;"),
            ("b/y.rs", "use crate::a::y::Y as Z; pub struct Y;"),
        ];
        assert_eq!(circles(&sources), ["circle among folders, in src/ (2 of them: a/ b/"]);
    }

    #[test]
    fn a_folder_and_a_file_beside_it_form_no_circle_either() {
        let sources = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; mod c;"),
            ("a/b/mod.rs", "mod x; mod y;"),
            ("a/b/x.rs", "use crate::a::c::C;"),
            ("a/b/y.rs", "pub struct Y;"),
            ("a/c.rs", "use super::b::y::Y; pub struct C;"),
        ];
        assert_eq!(circles(&sources), ["circle among folders, in src/a/ (2 of them: b/ c.rs"]);
    }

    #[test]
    fn implementations_away_from_their_type_are_told() {
        let sources = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod c; pub struct A; impl A {}"),
            ("a/c.rs", "impl super::A {}"),
            ("b.rs", "use crate::a::A; impl A {} impl Clone for A {} impl<T> Vec<T> {}"),
        ];
        let report = Imports::of(&crate_of(&sources)).report();
        assert!(report.ends_with("not seen as imports:\n    b.rs: A of a.rs\n"), "{report}");
    }
}
