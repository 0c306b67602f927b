//! `duramen-peers`: Duramen beside other storage engines. See `README.md`.

mod args;
mod bench;
mod everyday;
mod measure;
mod report;
mod syscalls;

use std::process::ExitCode;

use clap::Parser;
use duramen_peers::engines::{Durability, Engine};

use args::{Cli, Command};
use measure::{Order, Outcome};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("duramen-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// False when a measurement failed or an audit found something.
fn run(command: Command) -> Outcome<bool> {
    match command {
        Command::Bench(args) => bench::bench(&args),
        Command::Everyday(args) => everyday::compare(&args),
        Command::EverydayOne(args) => {
            println!("{}", serde_json::to_string(&everyday::tasks::measure(&args)?)?);
            Ok(true)
        }
        Command::Engines => {
            for engine in Engine::ALL {
                let info = engine.info();
                println!("{:16} {}; {}", engine.name(), info.isolation, info.use_);
            }
            Ok(true)
        }
        Command::Load(args) => {
            // Loading is not measured, and quicker so. All is on disk when the database is closed.
            let order = Order { durability: Durability::Relaxed, ..args.order() };
            measure::load(&order, &args.home)?;
            Ok(true)
        }
        Command::Measure(args) => {
            println!("{}", serde_json::to_string(&measure::measure(&args.order(), &args.home)?)?);
            Ok(true)
        }
    }
}
