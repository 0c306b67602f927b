//! `torture sim`: simulated runs, seed after seed, one again with a trace, or a hunt for planted
//! bugs.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};

use duramen_machine::Tracing;
use duramen_torture::harness::{Budget, Tally};
use duramen_torture::simulation::{Plan, Reached, Simulated, hunt};
use duramen_types::planted::{Bug, plant};

use super::{Lines, Long};

/// What to simulate.
#[derive(Args, Clone)]
pub(crate) struct Sim {
    /// Run this many seeds, from `--seed` on [default: until the time is over; 2000 for planted
    /// bugs].
    #[arg(long)]
    seeds: Option<u64>,
    /// Run only this plan, in the form that a failure prints.
    #[arg(long, conflicts_with = "seeds")]
    plan: Option<Plan>,
    /// Plant this bug.
    #[arg(long, value_parser = super::bug)]
    bug: Option<Bug>,
    /// Plant all bugs one after another, or only the one that `--bug` names, and print after how
    /// many seeds each is noticed.
    #[arg(long, conflicts_with = "plan")]
    planted: bool,
    /// Also write the table of `--planted` to this file, as Markdown.
    #[arg(long, requires = "planted")]
    out: Option<PathBuf>,
    /// Print a trace of the run, step by step.
    #[arg(long, requires = "plan")]
    trace: bool,
    /// Include each operation on shared memory in the trace.
    #[arg(long, requires = "plan")]
    trace_operations: bool,
    /// Number of lines of the trace to keep; the last lines are kept.
    #[arg(long, default_value_t = 5000)]
    trace_lines: usize,
}

/// Seeds without which a planted bug counts as not found.
const MOST_SEEDS: u64 = 2000;
/// Tries to make a failing plan smaller.
const SHRINKING: usize = 200;

/// Simulates; returns whether all went well.
pub(crate) fn run(long: &Long, sim: &Sim) -> bool {
    if sim.planted || sim.bug.is_some() {
        super::needs_planted_bugs("cargo sim");
    }
    if sim.planted {
        return planted(long, sim);
    }
    let _planted = sim.bug.map(plant);
    match &sim.plan {
        Some(plan) => one(plan, sim),
        None => many(long, sim),
    }
}

/// Runs one plan, as often as it takes to show that it can be repeated: once.
fn one(plan: &Plan, sim: &Sim) -> bool {
    let traced = sim.trace || sim.trace_operations;
    let tracing = traced.then_some(Tracing { lines: sim.trace_lines, operations: sim.trace_operations });
    let Simulated { result, operations, digest, trace, probes } = plan.run_traced(tracing);
    trace.iter().for_each(|line| eprintln!("{line}"));
    println!(
        "operations {operations}, digest {digest:016x}, rare branches {}",
        probes.iter().filter(|n| **n > 0).count()
    );
    match &result {
        Ok(checks) => println!("passed, {checks} checks"),
        Err(failure) => println!("FAILED {failure}"),
    }
    result.is_ok()
}

fn many(long: &Long, sim: &Sim) -> bool {
    let seconds = if sim.seeds.is_some() && long.seconds.is_none() { u64::from(u32::MAX) } else { 60 };
    let budget = Budget::lasting(long.time(seconds));
    let mut reached = Reached::default();
    let mut lines = Lines::default();
    lines.add("seeds", |progress| {
        let mut tally = Tally::default();
        for seed in long.seed.. {
            if budget.is_spent(&tally) || sim.seeds.is_some_and(|seeds| tally.points == seeds) {
                break;
            }
            let plan = Plan::of(seed);
            let simulated = plan.run();
            reached.add(&plan, &simulated);
            tally.points += 1;
            match simulated.result {
                Ok(checks) => tally.checks += checks,
                Err(failure) => {
                    let small = plan.shrink(SHRINKING);
                    let smaller = small.run().result.err().unwrap_or_default();
                    eprintln!("FAILED seed {seed}: {plan}");
                    tally.failures.push(format!(
                        "seed {seed}: {failure}\n  repeat: cargo sim --plan '{plan}' --trace\n  \
                         smaller: cargo sim --plan '{small}' --trace\n  {smaller}"
                    ));
                }
            }
            if sim.seeds == Some(1) {
                println!("plan {plan}\noperations {}, digest {:016x}", simulated.operations, simulated.digest);
            }
            if reached.runs().is_multiple_of(1000) {
                eprintln!("{} failures in {reached}", tally.failures.len());
            }
            progress(&tally, sim.seeds.unwrap_or(0) as usize);
        }
        tally
    });
    report(&reached);
    lines.finish("sim", long)
}

/// Prints what was done, and how often the rare branches were reached.
fn report(reached: &Reached) {
    println!("{reached}");
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["rare branch", "in runs", "times"]);
    for (probe, runs, times) in reached.counts().filter(|(_, runs, _)| *runs > 0) {
        table.add_row([probe.name().to_owned(), format!("{runs} of {}", reached.runs()), times.to_string()]);
    }
    println!("{table}");
    match reached.missed()[..] {
        [] => println!("all {} rare branches were reached", reached.counts().count()),
        ref missed => {
            let names: Vec<&str> = missed.iter().map(|probe| probe.name()).collect();
            println!("NEVER REACHED: {}", names.join(", "));
        }
    }
}

fn planted(long: &Long, sim: &Sim) -> bool {
    let chosen = match sim.bug {
        Some(bug) => vec![bug],
        // Nothing is archived or backed up in simulations, and no page is in persistent memory; the
        // tests of that look for what can go wrong there.
        None => [Bug::DURABILITY, Bug::CONCURRENCY, Bug::MEMORY].concat(),
    };
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["bug", "seeds", "seconds", "noticed"]);
    let most = sim.seeds.unwrap_or(MOST_SEEDS);
    let mut document = document(long.seed, most);
    let mut good = true;
    for bug in chosen {
        let mut shown = Instant::now();
        let hunted = hunt(bug, long.seed, most, |seeds| {
            if shown.elapsed() > Duration::from_secs(10) {
                shown = Instant::now();
                eprintln!("{bug:?}: {seeds} seeds");
            }
        });
        good &= hunted.caught.is_some() && hunted.unrelated.is_empty();
        for (plan, failure) in &hunted.unrelated {
            eprintln!("FAILED without {bug:?} too: cargo sim --plan '{plan}'\n  {failure}");
        }
        let seconds = format!("{:.1}", hunted.time.as_secs_f64());
        let (seeds, noticed) = match &hunted.caught {
            Some((plan, failure)) => {
                eprintln!(
                    "{bug:?}: seed {}, {seconds} s: cargo sim --bug {bug:?} --plan '{plan}'\n  {failure}",
                    plan.seed
                );
                (hunted.seeds.to_string(), summary(failure))
            }
            None => {
                eprintln!("{bug:?}: NOT FOUND in {} seeds", hunted.seeds);
                (format!("> {}", hunted.seeds), "NOT FOUND".to_owned())
            }
        };
        let kind = hunted.caught.as_ref().map_or("-", |(plan, _)| plan.scenario.kind());
        let _ = writeln!(document, "| {bug:?} | {seeds} | {kind} | {} |", noticed.replace('|', "/"));
        table.add_row([format!("{bug:?}"), seeds, seconds, noticed]);
    }
    println!("{table}");
    let written = sim.out.as_ref().map_or(Ok(()), |path| std::fs::write(path, document));
    if let Err(error) = &written {
        eprintln!("cannot write the table: {error}");
    }
    good && written.is_ok()
}

/// Returns the beginning of the document that the table goes to.
fn document(first: u64, most: u64) -> String {
    format!(
        "# How soon simulations find planted bugs\n\n\
         The table lists the deliberate defects in `crates/types/src/planted.rs`, except those of\n\
         archives, backups, misplaced files, heaps, PCM, atomic regions and snapshots, which tests find. For\n\
         each defect it gives the number of seeds that were simulated, from seed {first} on, until one failed\n\
         that passes without the defect. A defect that {most} seeds do not show counts as not found. The\n\
         first group concerns durability; the second, from `{:?}` on, concurrency; the third,\n\
         from `{:?}` on, rings in persistent memory. The figures are the same on every host. This\n\
         command writes the file:\n\n\
         ```sh\ncargo sim --planted --seed {first} --out docs/planted-bugs.md\n```\n\n\
         | bug | seeds | found by | noticed as |\n|---|---|---|---|\n",
        Bug::CONCURRENCY[0],
        Bug::MEMORY[0],
    )
}

/// Returns the part of a failure that says what was wrong, on one line.
fn summary(failure: &str) -> String {
    const LONGEST: usize = 90;
    let mut lines = failure.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let second = lines.next().unwrap_or_default();
    let whole = match first.split_once(" panicked at ") {
        Some(_) => format!("panic: {second}"),
        None if first.ends_with("its threads:") => first.trim_end_matches("; its threads:").to_owned(),
        None if first.ends_with(':') => format!("{first} {second}"),
        None => first.to_owned(),
    };
    // Behind the situation in which it was noticed.
    let what = ["}, ", "}: ", "] "].iter().find_map(|end| whole.split_once(end)).map_or(&*whole, |(_, what)| what);
    match what.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &what[..at]),
        None => what.to_owned(),
    }
}
