//! The table at the end, as text or as JSON, and what is shown until then.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use serde::Serialize;

use duramen_torture::harness::Tally;
use duramen_torture::parts::Progress;

use super::Long;

/// The lines of the final table.
#[derive(Default)]
pub(crate) struct Lines {
    rows: Vec<(String, Tally, Duration)>,
}

/// One line, as `--json` prints it. Scripts rely on these names.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    points: u64,
    checks: u64,
    failures: &'a [String],
    seconds: f64,
}

/// The object of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    suite: &'a str,
    seed: u64,
    lines: Vec<Row<'a>>,
}

impl Lines {
    /// Runs what a line is about, and shows how far it is.
    pub(crate) fn add(&mut self, name: &str, run: impl FnOnce(Progress<'_>) -> Tally) {
        let start = Instant::now();
        let shows = std::io::stderr().is_terminal();
        let mut shown = Instant::now();
        let tally = run(&mut |tally, total| {
            if shows && shown.elapsed() > Duration::from_millis(200) {
                shown = Instant::now();
                let failures = tally.failures.len();
                eprint!(
                    "\r\x1b[K{name}: {} of {total} points, {} checks, {failures} failures",
                    tally.points, tally.checks
                );
                let _ = std::io::stderr().flush();
            }
        });
        if shows {
            eprint!("\r\x1b[K");
        }
        let time = start.elapsed();
        eprintln!("{name}: {tally}, {} failures, {:.1} s", tally.failures.len(), time.as_secs_f64());
        tally.failures.iter().for_each(|failure| eprintln!("FAILED {failure}"));
        self.rows.push((name.to_owned(), tally, time));
    }

    /// Prints the table; returns whether nothing has failed.
    pub(crate) fn finish(self, suite: &str, long: &Long) -> bool {
        let mut sum = Tally::default();
        self.rows.iter().for_each(|(_, tally, _)| sum.add(tally.clone()));
        if long.json {
            let lines = self.rows.iter().map(|(name, tally, time)| Row {
                name,
                points: tally.points,
                checks: tally.checks,
                failures: &tally.failures,
                seconds: time.as_secs_f64(),
            });
            let report = Report { suite, seed: long.seed, lines: lines.collect() };
            println!("{}", serde_json::to_string(&report).expect("names and numbers can be written"));
        } else {
            println!("{}", self.table(suite, &sum));
        }
        sum.failures.is_empty()
    }

    fn table(&self, suite: &str, sum: &Tally) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([suite, "points", "checks", "failures", "seconds"]);
        let total: Duration = self.rows.iter().map(|(.., time)| *time).sum();
        let rows = self.rows.iter().map(|(name, tally, time)| (&**name, tally, *time));
        for (name, tally, time) in rows.chain([("all", sum, total)]) {
            let counts = [tally.points, tally.checks, tally.failures.len() as u64].map(|count| count.to_string());
            let [points, checks, failures] = counts;
            table.add_row([name.to_owned(), points, checks, failures, format!("{:.1}", time.as_secs_f64())]);
        }
        table
    }
}
