//! Results as pages for people.

use std::fmt::Write;

use crate::bounds::{Check, Verdict, number};
use crate::experiment::{EVENT_MODEL, SIMULATED};
use crate::experiments::{EXPERIMENTS, find};
use crate::figure::{Figure, Shape};
use crate::outcome::{Conditions, Outcome};

/// The folder, beside the document, with the files that it shows.
pub(crate) const FOLDER: &str = "reproduction";

const HEAD: &str = "\
# Reproduction

The findings of the papers that Duramen is built on, and whether Duramen's results reproduce them. Each
claim has a page with figures, numbers, bounds and conditions. The pages are generated: `duramen lab run
ID... --out DIR` measures, and writes them and their figures.

A finding counts as *reproduced* if all of its parts hold, and as *partly reproduced* if some do. The
bounds check the shape of the paper's figure, and its ratios within a tolerance; absolute figures depend
on the papers' machines. Every verdict is computed from the measured figures. Where a number is the
median of at least six rounds, its confidence interval of 95 % stands behind it. A part holds if the
median or a part of the interval is within the bound, and *within the noise* if another part of the
interval is not. A second verdict, *under the paper's conditions*, is of controlled runs, in which only
a condition is restored that the first runs do not have. A simulated figure is of one run. It is the same
on every host, but other random numbers or sizes of objects can move it, near saturation by a tenth.

";

/// Returns the page about all `outcomes`, with links to their own pages.
pub(crate) fn overview(outcomes: &[Outcome]) -> String {
    let mut text = HEAD.to_owned();
    let count = |verdict: &str| outcomes.iter().filter(|outcome| outcome.verdict().name() == verdict).count();
    let _ = write!(
        text,
        "Of {} claims, {} are reproduced, {} partly, {} not, and {} were not run.\n\n",
        EXPERIMENTS.len(),
        count("reproduced"),
        count("partly reproduced"),
        count("not reproduced"),
        EXPERIMENTS.len() - outcomes.len(),
    );
    text.push_str("| claim | paper | what it found | verdict |\n|---|---|---|---|\n");
    for experiment in EXPERIMENTS {
        let about = experiment.about();
        let (name, verdict) = match outcomes.iter().find(|outcome| outcome.id == about.id) {
            Some(outcome) => (format!("[{0}]({FOLDER}/{0}.md)", about.id), verdict(outcome)),
            None => (about.id.to_owned(), "not run".to_owned()),
        };
        let _ = writeln!(text, "| {name}: {} | {} | {} | {verdict} |", about.title, about.source, about.found);
    }
    text
}

fn verdict(outcome: &Outcome) -> String {
    format!("{}{}", outcome.verdicts(), if outcome.quick { " (quick run)" } else { "" })
}

/// Returns the page about one outcome, which lies in the folder of its figures.
pub(crate) fn page(outcome: &Outcome) -> String {
    let mut text = String::new();
    section(&mut text, outcome);
    text
}

fn section(text: &mut String, outcome: &Outcome) {
    let _ = write!(text, "# {}: {}\n\n", outcome.id, outcome.title);
    let _ = write!(text, "{}. What the paper found: {}.\n\n", outcome.source, outcome.found);
    let _ = write!(text, "Counts as reproduced when: {}.\n\n", outcome.wanted);
    let verdict = match outcome.verdict() {
        Verdict::Reproduced => outcome.named(&Verdict::Reproduced, false),
        other => other.to_string(),
    };
    let _ = write!(text, "**{verdict}**\n\n");
    checks(text, outcome.checks.iter().filter(|check| check.under.is_none()));
    if let Some(verdict) = outcome.controlled_verdict() {
        let _ = write!(text, "\n**{} under the paper's conditions**\n\n", outcome.named(&verdict, true));
        checks(text, outcome.checks.iter().filter(|check| check.under.is_some()));
    }
    if outcome.verdict() != Verdict::Reproduced
        && let Some(difference) = find(&outcome.id).and_then(|experiment| experiment.difference())
    {
        let _ = write!(text, "\nWhy some parts do not hold: {difference}.\n");
    }
    for figure in &outcome.figures {
        let _ = write!(text, "\n![{}]({}.svg)\n\n", figure.title, figure.name);
        numbers(text, figure);
    }
    text.push('\n');
    if outcome.quick {
        text.push_str(
            "A quick run: few points, each measured for a short time. Its figures show only the direction.\n",
        );
    }
    for sentence in &outcome.setting {
        let _ = writeln!(text, "{sentence}");
    }
    let Conditions { seconds, others, machine } = &outcome.conditions;
    if [SIMULATED, EVENT_MODEL].contains(&outcome.world.as_str()) {
        let _ = writeln!(text, "Measured in virtual time: the figures are the same on every host.");
    } else {
        let _ = writeln!(text, "Machine: {machine}; {}. Took {seconds:.0} s.", outcome.world);
    }
    if let Some(others) = others {
        let _ = writeln!(text, "During the run, other programs kept {others:.2} processors busy on average.");
    }
    let _ = write!(text, "\n```sh\n{}\n```\n", outcome.command());
}

fn checks<'c>(text: &mut String, checks: impl Iterator<Item = &'c Check>) {
    text.push_str("| part of the finding | paper | ours | wanted | holds |\n|---|---|---|---|---|\n");
    for check in checks {
        let holds = match (check.holds(), check.holds_within_noise()) {
            (true, false) => "yes",
            (true, true) => "within the noise",
            (false, _) => "no",
        };
        let (ours, wanted) = (check.number(), check.wanted);
        let _ = writeln!(text, "| {} | {} | {ours} | {wanted} | {holds} |", check.description(), check.paper);
    }
}

/// The figure's numbers as a table, unless there are too many for a page.
fn numbers(text: &mut String, figure: &Figure) {
    let file = format!("[{0}.csv]({0}.csv)", figure.name);
    if figure.shape == Shape::Edges {
        let _ = writeln!(text, "The edges are in {file}.");
        return;
    }
    let names: Vec<&str> = figure.series.iter().map(|series| series.name.as_str()).collect();
    let _ = writeln!(text, "| {} | {} |", figure.x.label, names.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(names.len()));
    for x in figure.xs() {
        let label = match &figure.shape {
            Shape::Stacks(bars) | Shape::Groups(bars) => bars.get(x as usize).cloned().unwrap_or_default(),
            _ => number(x),
        };
        let cells: Vec<String> =
            figure.series.iter().map(|series| series.at(x).map_or_else(|| "-".to_owned(), number)).collect();
        let _ = writeln!(text, "| {label} | {} |", cells.join(" | "));
    }
    let _ = write!(text, "\n{}, as {file}.\n", figure.y.label);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Bound;
    use crate::experiment::{Effort, Findings};
    use crate::figure::{Axis, Series};
    use crate::machine::Machine;

    fn outcome(quick: bool) -> Outcome {
        let figure = Figure {
            name: "a1".into(),
            title: "Speed-up".into(),
            x: Axis::linear("skew"),
            y: Axis::log("speed-up"),
            shape: Shape::Lines,
            series: vec![Series::ours("10 ms", vec![(0.0, 1.0), (1.5, 35.0)])],
        };
        let check = Check::new("peak at 10 ms", "35", 34.0, Bound::AtLeast(10.0));
        let findings = Findings { setting: vec!["On a test.".into()], figures: vec![figure], checks: vec![check] };
        let effort = if quick { Effort::Quick } else { Effort::Full };
        let conditions = Conditions { seconds: 1.0, others: Some(0.25), machine: Machine::here() };
        Outcome::new(EXPERIMENTS[0].about(), effort, conditions, findings)
    }

    #[test]
    fn the_page_has_figures_bounds_and_the_command() {
        let text = page(&outcome(false));
        for words in [
            "| 1.50 | 35 |",
            "kept 0.25 processors busy",
            "(a1.svg)",
            "at least 10",
            "**reproduced**",
            "duramen lab run A1\n",
        ] {
            assert!(text.contains(words), "no `{words}` in {text}");
        }
        assert!(!text.contains("A quick run:"), "{text}");
        assert!(page(&outcome(true)).contains("A quick run:"));
    }

    #[test]
    fn the_overview_counts_and_links() {
        let text = overview(&[outcome(true)]);
        for words in ["[A1](reproduction/A1.md): ", "| reproduced (quick run) |", "1 are reproduced, 0 partly"] {
            assert!(text.contains(words), "no `{words}` in {text}");
        }
        assert_eq!(text.matches("| not run |").count(), EXPERIMENTS.len() - 1, "{text}");
    }

    #[test]
    fn a_controlled_run_is_a_second_verdict() {
        let mut outcome = outcome(false);
        let failed = Check::new("share", "0.1", 9.0, Bound::AtMost(1.0));
        let controlled = Check { ours: 0.5, ..failed.clone() }.under("with a warm cache");
        outcome.checks = vec![failed, controlled];
        assert_eq!(verdict(&outcome), "not reproduced; reproduced under the paper's conditions");
        let text = page(&outcome);
        assert!(text.contains("| share with a warm cache | 0.1 | 0.50 | at most 1 | yes |"), "{text}");
        assert!(text.contains("**reproduced under the paper's conditions**"), "{text}");
    }

    #[test]
    fn outcomes_survive_their_file() {
        let outcome = outcome(true);
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}
