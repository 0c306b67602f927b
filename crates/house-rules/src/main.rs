//! The rules of this repository that no compiler checks.
//!
//! - `cargo run -p house-rules` prints one line for each breach and fails if there is one.
//!   `.ci/exempt` has the paths that a rule does not yet hold for, `.ci/forbidden-words` the words
//!   that are not used.
//! - `cargo run -p house-rules -- --circles wal` prints every circle of imports of `crates/wal`:
//!   the files or folders in it, and for each import among them the names, with the line of the
//!   first mention.
//! - `cargo run -p house-rules -- --paths columns` prints the paths that breach a rule, exempt or
//!   not, as `.ci/exempt` has them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

mod circles;
mod examples;
mod graph;
mod lengths;
mod modules;
mod repository;
mod sources;
mod words;

use circles::Imports;
use modules::Modules;
use repository::{Breach, Exemptions, Repository};
use words::Words;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(kept) => ExitCode::from(u8::from(!kept)),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Does what the arguments ask for; returns whether all rules are kept.
fn run(arguments: &[&str]) -> Result<bool, String> {
    let repository = Repository::read(&root()?)?;
    match arguments {
        [] => {
            let exemptions = Exemptions::parse(&list(&repository, "exempt")?);
            let mut breaches = exemptions.apply(breaches(&repository)?);
            breaches.sort();
            for breach in &breaches {
                println!("{breach}");
            }
            if breaches.is_empty() {
                println!("all kept");
            }
            Ok(breaches.is_empty())
        }
        ["--circles", name] => {
            print!("{}", Imports::of(&Modules::read(&repository.sources_of(name))?).report());
            Ok(true)
        }
        ["--paths", rule] => {
            let breaches = breaches(&repository)?.into_iter().filter(|breach| breach.rule == *rule);
            for path in breaches.map(|breach| breach.path).collect::<BTreeSet<_>>() {
                println!("{rule} {path}");
            }
            Ok(true)
        }
        _ => Err("usage: house-rules [--circles CRATE | --paths RULE]".to_owned()),
    }
}

/// All breaches, exempt or not.
fn breaches(repository: &Repository) -> Result<Vec<Breach>, String> {
    let mut breaches = lengths::files(repository);
    breaches.extend(lengths::documents(repository));
    breaches.extend(lengths::columns(repository));
    breaches.extend(sources::reasons(repository));
    breaches.extend(examples::functions(repository));
    breaches.extend(Words::parse(&list(repository, "forbidden-words")?)?.breaches(repository));
    for name in repository.crates() {
        let modules = Modules::read(&repository.sources_of(name))?;
        breaches.extend(sources::threads(name, &modules));
        breaches.extend(circles::breaches(name, &modules));
    }
    Ok(breaches)
}

/// A list in the folder `.ci`.
fn list(repository: &Repository, name: &str) -> Result<String, String> {
    let path = repository.root.join(".ci").join(name);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The root of the repository that the current directory lies in.
fn root() -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    let root = here.ancestors().find(|folder| folder.join(".ci/house-rules").is_file());
    root.map(PathBuf::from).ok_or_else(|| "not inside the repository".to_owned())
}
