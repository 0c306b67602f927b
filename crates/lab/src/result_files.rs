//! The files of results: `ID.json` and a page for each experiment, and a CSV and an SVG file for
//! each of its figures; and a page about all of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::document::{FOLDER, overview, page};
use crate::error::{Error, Result};
use crate::experiments::EXPERIMENTS;
use crate::figure::Figure;
use crate::outcome::Outcome;
use crate::plot;

/// The document.
const DOCUMENT: &str = "reproduction.md";

fn failed(operation: &'static str, path: &Path) -> impl Fn(String) -> Error {
    let path = path.display().to_string();
    move |reason| Error::ResultFile { operation, path: path.clone(), reason }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| failed("write", path)(error.to_string()))
}

/// Keeps `outcome` in `directory`, instead of an earlier one of the same experiment, and writes all
/// pages anew. Returns the files of the experiment, and the page about all.
///
/// # Errors
/// [`Error::ResultFile`], [`Error::Plot`].
pub fn save(directory: &Path, outcome: &Outcome) -> Result<Vec<PathBuf>> {
    let folder = directory.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| failed("create", &folder)(error.to_string()))?;
    let mut files = Vec::new();
    for figure in &outcome.figures {
        let file = |extension| folder.join(format!("{}.{extension}", figure.name));
        write(&file("csv"), &figure.csv())?;
        write(&file("svg"), &plot::svg(figure)?)?;
        files.extend([file("csv"), file("svg")]);
    }
    let json = folder.join(format!("{}.json", outcome.id));
    let text = serde_json::to_string_pretty(outcome).map_err(|error| failed("write", &json)(error.to_string()))?;
    write(&json, &(text + "\n"))?;
    let outcomes = load_all(directory)?;
    for outcome in &outcomes {
        write(&folder.join(format!("{}.md", outcome.id)), &page(outcome))?;
    }
    let all = directory.join(DOCUMENT);
    write(&all, &overview(&outcomes))?;
    files.extend([json, folder.join(format!("{}.md", outcome.id)), all]);
    Ok(files)
}

/// Writes the plots of `outcome`, and nothing else, to `directory`. Returns the files.
///
/// # Errors
/// [`Error::ResultFile`], [`Error::Plot`].
pub fn save_plots(directory: &Path, outcome: &Outcome) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(directory).map_err(|error| failed("create", directory)(error.to_string()))?;
    let save = |figure: &Figure| {
        let file = directory.join(format!("{}.svg", figure.name));
        write(&file, &plot::svg(figure)?)?;
        Ok(file)
    };
    outcome.figures.iter().map(save).collect()
}

/// Returns the results in `directory`, in the order of the experiments. What was never run is not
/// there.
///
/// # Errors
/// [`Error::ResultFile`] for a result that is there and cannot be read.
pub fn load_all(directory: &Path) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for experiment in EXPERIMENTS {
        let path = directory.join(FOLDER).join(format!("{}.json", experiment.about().id));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("read", &path)(error.to_string())),
        };
        let remedy = "remove it, or choose another directory";
        let unreadable = |error: serde_json::Error| failed("read", &path)(format!("{error}; {remedy}"));
        outcomes.push(serde_json::from_str(&text).map_err(unreadable)?);
    }
    Ok(outcomes)
}
