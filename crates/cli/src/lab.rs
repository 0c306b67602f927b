//! `duramen lab`.

use std::io::Write;
use std::path::Path;

use comfy_table::{ContentArrangement, Table, presets};
use duramen_lab::{Calibrated, Check, EXPERIMENTS, Effort, Experiment, Outcome, SIMULATED, TRACED, Verdict};
use serde::Serialize;

use crate::args::{Lab, LabArgs};
use crate::failure::{Failure, Result};
#[cfg(not(duramen_machine))]
use crate::other_build::{self, Build};
use crate::progress::Narrator;

/// Columns of a table where the width of the terminal is unknown.
const WIDTH: u16 = 118;

pub(crate) fn lab(args: &LabArgs, out: &mut dyn Write) -> Result<()> {
    match &args.what {
        Lab::List => list(out),
        Lab::Run { ids, quick, tiny, out: directory, figures } => {
            let effort = match (quick, tiny) {
                (_, true) => Effort::Tiny,
                (true, _) => Effort::Quick,
                _ => Effort::Full,
            };
            let (simulated, others): (Vec<_>, Vec<_>) =
                chosen(ids)?.into_iter().partition(|experiment| experiment.about().world == SIMULATED);
            let (traced, native): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|experiment| experiment.about().world == TRACED);
            #[cfg(not(duramen_machine))]
            if !simulated.is_empty() {
                elsewhere(Build::Machine, &simulated, effort, directory, out)?;
            }
            #[cfg(duramen_machine)]
            run(&simulated, effort, directory, out)?;
            #[cfg(not(any(duramen_machine, duramen_trace)))]
            if !traced.is_empty() {
                elsewhere(Build::Trace, &traced, effort, directory, out)?;
            }
            #[cfg(duramen_trace)]
            run(&traced, effort, directory, out)?;
            if cfg!(not(any(duramen_machine, duramen_trace))) {
                run(&native, effort, directory, out)?;
            } else if let Some(experiment) =
                native.first().or(if cfg!(duramen_machine) { traced.first() } else { None })
            {
                return Err(Failure::Usage(format!(
                    "{} runs natively, but this is the machine build or the trace build; use the normal build",
                    experiment.about().id
                )));
            }
            match figures {
                Some(to) => plot(&chosen(ids)?, directory, to, out),
                None => Ok(()),
            }
        }
        Lab::Claims { json, out: directory } => claims(*json, directory, out),
        Lab::Calibrate { json } => calibrate(*json, out),
    }
}

/// Has another build run `experiments`.
#[cfg(not(duramen_machine))]
fn elsewhere(
    build: Build,
    experiments: &[&'static dyn Experiment],
    effort: Effort,
    directory: &Path,
    out: &mut dyn Write,
) -> Result<()> {
    out.flush()?;
    let directory = directory.to_string_lossy();
    let mut args = vec!["lab", "run"];
    args.extend(experiments.iter().map(|experiment| experiment.about().id));
    args.extend(match effort {
        Effort::Full => None,
        Effort::Quick => Some("--quick"),
        Effort::Tiny => Some("--tiny"),
    });
    args.extend(["--out", &directory]);
    other_build::run(build, &args, Narrator::new(false))
}

/// Returns the experiments called `ids`, in the order of the claims, each once.
fn chosen(ids: &[String]) -> Result<Vec<&'static dyn Experiment>> {
    for id in ids {
        if !id.eq_ignore_ascii_case("all") && duramen_lab::find(id).is_none() {
            let known: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.about().id).collect();
            return Err(Failure::Usage(format!(
                "there is no experiment `{id}`; name one of {}, or all",
                known.join(", ")
            )));
        }
    }
    let named = |name: &str| ids.iter().any(|id| id.eq_ignore_ascii_case(name));
    let wanted = |experiment: &&dyn Experiment| named("all") || named(experiment.about().id);
    Ok(EXPERIMENTS.iter().copied().filter(wanted).collect())
}

fn grid(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_header(header);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table
}

fn list(out: &mut dyn Write) -> Result<()> {
    let mut table = grid(&["id", "experiment", "repeats", "runs"]);
    for experiment in EXPERIMENTS {
        let about = experiment.about();
        table.add_row([about.id, about.title, about.source, about.world]);
    }
    Ok(writeln!(out, "{table}")?)
}

fn run(experiments: &[&dyn Experiment], effort: Effort, directory: &Path, out: &mut dyn Write) -> Result<()> {
    let narrator = Narrator::new(false);
    for experiment in experiments {
        let about = experiment.about();
        narrator.say(&format!("{}: {}", about.id, about.title));
        let mut bar = narrator.bar(about.id, 1);
        let outcome = duramen_lab::run(*experiment, effort, &mut |step| bar.experiment(step));
        bar.finish();
        let outcome = outcome?;
        let files = duramen_lab::save(directory, &outcome)?;
        print(&outcome, out)?;
        for file in files {
            writeln!(out, "  {}", file.display())?;
        }
        out.flush()?;
    }
    Ok(())
}

/// Writes the plots of results in `directory` to another directory.
fn plot(experiments: &[&dyn Experiment], directory: &Path, to: &Path, out: &mut dyn Write) -> Result<()> {
    let outcomes = duramen_lab::load_all(directory)?;
    for outcome in outcomes.iter().filter(|outcome| experiments.iter().any(|one| one.about().id == outcome.id)) {
        for file in duramen_lab::save_plots(to, outcome)? {
            writeln!(out, "  {}", file.display())?;
        }
    }
    Ok(())
}

fn print(outcome: &Outcome, out: &mut dyn Write) -> Result<()> {
    let quick = if outcome.quick { ", quick run" } else { "" };
    writeln!(
        out,
        "{} ({}; {:.0} s{quick}): {}",
        outcome.id,
        outcome.source,
        outcome.conditions.seconds,
        outcome.verdicts()
    )?;
    let mut table = grid(&["part of the finding", "paper", "ours", "wanted", "holds"]);
    for check in &outcome.checks {
        table.add_row(cells(check));
    }
    if let Some(others) = outcome.conditions.others {
        writeln!(out, "during the run, other programs kept {others:.2} processors busy on average")?;
    }
    Ok(writeln!(out, "{table}")?)
}

fn cells(check: &Check) -> [String; 5] {
    let holds = if check.holds() { "yes" } else { "no" };
    [check.description(), check.paper.clone(), format!("{:.2}", check.ours), check.wanted.to_string(), holds.into()]
}

/// The object of `lab claims --json`. Scripts rely on these names.
#[derive(Serialize)]
struct Claim<'a> {
    id: &'a str,
    source: &'a str,
    found: &'a str,
    wanted: &'a str,
    /// Nothing when it was not run.
    checks: &'a [Check],
    quick: bool,
    verdict: &'a str,
    reasons: &'a [String],
}

/// Measures the same operations in this build and in the other one.
fn calibrate(json: bool, out: &mut dyn Write) -> Result<()> {
    let narrator = Narrator::new(json);
    let here = duramen_lab::calibrate(&mut |what| narrator.say(what))?;
    if json {
        for line in &here {
            serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        return Ok(());
    }
    #[cfg(duramen_machine)]
    let other = Vec::new();
    #[cfg(not(duramen_machine))]
    let other = other_build::calibrated(narrator)?;
    compare(&here, &other, out)
}

fn compare(here: &[Calibrated], modelled: &[Calibrated], out: &mut dyn Write) -> Result<()> {
    let mut table = grid(&["operation", "threads", "this machine, ns", "simulated, ns", "simulated / this machine"]);
    let apart = duramen_lab::distance(here, modelled);
    for line in here {
        let same = |other: &&Calibrated| (&other.what, other.threads) == (&line.what, line.threads);
        let found = modelled.iter().filter(same).find(|other| other.apart.is_none() || other.apart == apart);
        let [modelled, ratio] = found.map_or(["-".into(), "-".into()], |found| {
            [format!("{:.1}", found.nanos), format!("{:.2}", found.nanos / line.nanos)]
        });
        table.add_row([line.what.clone(), line.threads.to_string(), format!("{:.1}", line.nanos), modelled, ratio]);
    }
    writeln!(out, "{table}")?;
    if let Some(apart) = apart {
        writeln!(out, "two processors of this machine are as far apart as {apart} of the simulated one")?;
    }
    Ok(writeln!(
        out,
        "the times are nanoseconds for one operation of one thread; the simulated machine has different processors \
         from this one"
    )?)
}

fn claims(json: bool, directory: &Path, out: &mut dyn Write) -> Result<()> {
    let outcomes = duramen_lab::load_all(directory)?;
    let mut table = grid(&["claim", "paper", "what it found", "ours", "verdict"]);
    for experiment in EXPERIMENTS {
        let about = experiment.about();
        let outcome = outcomes.iter().find(|outcome| outcome.id == about.id);
        let checks = outcome.map_or(&[][..], |outcome| &outcome.checks);
        let verdict = outcome.map(Outcome::verdict);
        let name = verdict.as_ref().map_or("not run", Verdict::name);
        let quick = outcome.is_some_and(|outcome| outcome.quick);
        if json {
            let reasons = verdict.as_ref().map_or(&[][..], Verdict::reasons);
            let (id, source, found, wanted) = (about.id, about.source, about.found, about.wanted);
            let claim = Claim { id, source, found, wanted, checks, quick, verdict: name, reasons };
            serde_json::to_writer(&mut *out, &claim).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else {
            let ours: Vec<String> =
                checks.iter().map(|check| format!("{}: {:.2}", check.description(), check.ours)).collect();
            let verdict = verdict.map_or_else(|| name.to_owned(), |verdict| verdict.to_string());
            let verdict = if quick { format!("{verdict} (quick run)") } else { verdict };
            table.add_row([about.id, about.source, about.found, &ours.join("\n"), &verdict]);
        }
    }
    if !json {
        writeln!(out, "{table}")?;
    }
    Ok(())
}
