//! Progress on standard error: moving lines on a terminal, plain lines elsewhere, nothing when a
//! program reads standard output and standard error is no terminal.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use duramen::{CopyProgress, RecoveryPass, RecoveryProgress};
use duramen_lab::Step;
use duramen_sync::clock::Instant;
use duramen_workloads::{LoadProgress, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::format;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Terminal,
    Lines,
    Silent,
}

/// Shows progress to the user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrator(Mode);

impl Narrator {
    /// `for_program`: standard output is meant for a program (`--json`).
    pub(crate) fn new(for_program: bool) -> Self {
        Self(if std::io::stderr().is_terminal() {
            Mode::Terminal
        } else if for_program {
            Mode::Silent
        } else {
            Mode::Lines
        })
    }

    /// Prints one line.
    pub(crate) fn say(self, line: &str) {
        if self.0 != Mode::Silent {
            // Progress is optional: if it cannot be printed, the work continues.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    /// Returns a bar from 0 to `length` with a message behind it.
    pub(crate) fn bar(self, title: &'static str, length: u64) -> Bar {
        let bar = (self.0 == Mode::Terminal).then(|| {
            let style = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}").expect("the template is well formed");
            ProgressBar::new(length).with_style(style.progress_chars("=> ")).with_prefix(title)
        });
        Bar { narrator: self, title, bar, last_line: None }
    }
}

/// A bar on a terminal, or now and then a line.
pub(crate) struct Bar {
    narrator: Narrator,
    title: &'static str,
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Bar {
    /// Shortest time between two plain lines.
    const LINE_EVERY: Duration = Duration::from_secs(1);

    /// Shows how far a population is.
    pub(crate) fn load(&mut self, progress: LoadProgress) {
        let LoadProgress { rows, total } = progress;
        self.show(rows, &format!("{} of {} rows", format::count(rows), format::count(total)));
    }

    /// Shows how many records were dumped or loaded.
    pub(crate) fn records(&mut self, records: u64) {
        self.show(records, &format!("{} records", format::count(records)));
    }

    /// Shows how far a copy of a database is.
    pub(crate) fn copy(&mut self, progress: CopyProgress) {
        let CopyProgress { copied, pages } = progress;
        if let Some(bar) = &self.bar {
            bar.set_length(pages.max(copied).max(1));
        }
        self.show(copied, &format!("{} of {}, plus the log", format::bytes(copied), format::bytes(pages)));
    }

    /// Shows how far recovery is.
    pub(crate) fn recover(&mut self, progress: RecoveryProgress) {
        let RecoveryProgress { pass, done, total, .. } = progress;
        if let Some(bar) = &self.bar {
            bar.set_length(total.unwrap_or(done).max(1));
        }
        let bytes = |done| match total {
            Some(total) => format!("{} of {}", format::bytes(done), format::bytes(total)),
            None => format::bytes(done),
        };
        let message = match pass {
            RecoveryPass::LogEnd => format!("{} read to find the end of the log", bytes(done)),
            RecoveryPass::Redo => format!("{} of log repeated", bytes(done)),
            RecoveryPass::Undo => format!("{done} of {} transactions finished", total.unwrap_or(done)),
        };
        self.show(done, &message);
    }

    /// Shows how far an experiment is.
    pub(crate) fn experiment(&mut self, step: &Step) {
        let Step { done, total, next } = step;
        if let Some(bar) = &self.bar {
            bar.set_length((*total).max(1));
        }
        self.show(*done, &if *total == 0 { next.clone() } else { format!("{done} of {total}: {next}") });
    }

    /// Shows how far a run is, with the throughput since `before`.
    pub(crate) fn run(&mut self, position: u64, now: Progress, before: Progress) {
        let time = now.elapsed.saturating_sub(before.elapsed).as_secs_f64().max(1e-6);
        let rate = (now.committed - before.committed) as f64 / time;
        self.show(
            position,
            &format!(
                "{:.1} s  {} commits/s  {} commits  {} aborts",
                now.elapsed.as_secs_f64(),
                format::count(rate as u64),
                format::count(now.committed),
                format::count(now.aborted)
            ),
        );
    }

    fn show(&mut self, position: u64, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
            bar.set_message(message.to_owned());
        } else if self.last_line.is_none_or(|last| last.elapsed() >= Self::LINE_EVERY) {
            self.last_line = Some(Instant::now());
            self.narrator.say(&format!("{}: {message}", self.title));
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
