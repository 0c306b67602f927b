//! The `duramen` command.
//!
//! Results go to standard output, progress and errors to standard error. A user's mistake is a
//! sentence and an exit code, never a backtrace; the exit codes are in `--help` and in [`failure`].
//!
//! `args` has the command line, `axes` states which of the contract's values exist, `failure` has
//! the exit codes, and `other_build` brings another build up to date and runs it. Each
//! command has a file. `tests/kill.rs` kills the binary over and over.

mod args;
mod axes;
mod backup;
mod bench;
mod check;
mod compact;
mod database;
mod dump;
mod failure;
mod format;
mod inspect;
mod lab;
#[cfg(not(duramen_machine))]
mod other_build;
mod progress;
mod stats;
mod tier;

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use args::{Cli, Command};
use failure::Failure;

/// Simulated threads get their memory from the simulated machine's heap, all other threads from the
/// system.
#[cfg(duramen_machine)]
#[global_allocator]
static ALLOCATOR: duramen_lab::Allocator = duramen_lab::Allocator;

fn main() -> ExitCode {
    let cli = Cli::of_process();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let outcome = match &cli.command {
        Command::Backup(args) => backup::backup(args, &mut out),
        Command::Bench(args) => bench::bench(args, &mut out),
        Command::Check(args) => check::check(args, &mut out),
        Command::Compact(args) => compact::compact(args, &mut out),
        Command::Dump(args) => dump::dump(args, &mut out),
        Command::Inspect(args) => inspect::inspect(args, &mut out),
        Command::Lab(args) => lab::lab(args, &mut out),
        Command::Load(args) => dump::load(args, &mut out),
        Command::Restore(args) => backup::restore(args, &mut out),
        Command::Stats(args) => stats::stats(args, &mut out),
        Command::Tier(args) => tier::tier(args, &mut out),
    };
    let outcome = outcome.and(out.flush().map_err(Failure::from));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Earlier output must come before the message of the failure.
            let _ = out.flush();
            if let Some(sentence) = failure.sentence() {
                let _ = writeln!(std::io::stderr(), "error: {sentence}");
            }
            failure.exit_code()
        }
    }
}
