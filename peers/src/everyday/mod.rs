//! `duramen-peers everyday`: what programs do every day, engine by engine in turn. Each run of each
//! engine is a process of its own, with databases of its own.

pub(crate) mod tasks;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use comfy_table::{Table, presets};
use duramen_peers::engines::Engine;

use crate::args::EverydayArgs;
use crate::measure::Outcome;
use crate::report;
use tasks::Figure;

/// Measures what `args` say. False when a measurement failed.
pub(crate) fn compare(args: &EverydayArgs) -> Outcome<bool> {
    let home = args.dir.join(format!("everyday-{}", std::process::id()));
    let mut runs: Vec<Vec<Vec<Figure>>> = args.engines.iter().map(|_| Vec::new()).collect();
    let mut good = true;
    for run in 1..=args.runs {
        for turn in 0..args.engines.len() {
            // Each run begins with another engine.
            let at = (turn + run as usize - 1) % args.engines.len();
            let engine = args.engines[at];
            eprintln!("run {run} of {}: {}", args.runs, engine.name());
            fs::create_dir_all(&home)?;
            match child(engine, args, &home) {
                Ok(figures) => runs[at].push(figures),
                Err(error) => {
                    eprintln!("{}: {error}", engine.name());
                    good = false;
                }
            }
            fs::remove_dir_all(&home)?;
        }
    }
    let medians: Vec<(Engine, Vec<Figure>)> = args
        .engines
        .iter()
        .zip(&runs)
        .filter(|(_, runs)| !runs.is_empty())
        .map(|(e, runs)| (*e, median(runs)))
        .collect();
    if args.json {
        for (engine, figures) in &medians {
            let (engine, rows, cache) = (engine.name(), args.rows, args.cache_mb);
            let medians = serde_json::json!({ "engine": engine, "rows": rows, "cache_mb": cache, "figures": figures });
            println!("{medians}");
        }
    } else {
        let EverydayArgs { rows, cache_mb, runs, .. } = args;
        println!("{rows} rows of 100 bytes; caches of {cache_mb} MiB; medians of {runs} runs\n{}", table(&medians));
    }
    Ok(good)
}

fn child(engine: Engine, args: &EverydayArgs, home: &Path) -> Outcome<Vec<Figure>> {
    let tasks = args.tasks.iter().filter_map(ValueEnum::to_possible_value);
    let output = Command::new(std::env::current_exe()?)
        .arg("everyday-one")
        .arg(home)
        .args(["--engine", engine.name()])
        .args(["--rows", &args.rows.to_string(), "--cache-mb", &args.cache_mb.to_string()])
        .args(tasks.map(|task| format!("--tasks={}", task.get_name())))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the measuring process ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The median of each figure of several runs.
fn median(runs: &[Vec<Figure>]) -> Vec<Figure> {
    let of = |name: &str| {
        let values = runs.iter().flatten().filter(|figure| figure.name == name).filter_map(|figure| figure.value);
        Some(report::median(values)).filter(|median| !median.is_nan())
    };
    runs[0].iter().map(|figure| Figure { value: of(&figure.name), ..figure.clone() }).collect()
}

fn table(medians: &[(Engine, Vec<Figure>)]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let names = medians.iter().map(|(engine, _)| engine.name().to_owned());
    table.set_header(std::iter::once("figure".to_owned()).chain(names));
    let Some((_, first)) = medians.first() else { return table };
    for (at, figure) in first.iter().enumerate() {
        let values = medians.iter().map(|(_, figures)| figures[at].value.map_or("-".to_owned(), shown));
        table.add_row(std::iter::once(format!("{} ({})", figure.name, figure.unit)).chain(values));
    }
    table
}

/// Three significant digits.
fn shown(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
