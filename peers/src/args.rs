//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use duramen_peers::engines::{CACHE_BYTES, Durability, Engine};
use duramen_workloads::selection;

use crate::measure::Order;

#[derive(Parser, Debug)]
#[command(name = "duramen-peers", about = "Duramen beside other storage engines, under the same workloads")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Measures engines side by side.
    Bench(BenchArgs),
    /// Measures what programs do every day, engines side by side: creating, loading, scans, ranges,
    /// deletes, batches, large values.
    Everyday(EverydayArgs),
    /// Lists the engines, how they are used and how isolated their transactions are.
    Engines,
    /// Populates a database. `bench` calls it.
    #[command(hide = true)]
    Load(OneArgs),
    /// Makes one measurement and prints it as JSON. `bench` calls it.
    #[command(hide = true)]
    Measure(OneArgs),
    /// Measures one engine and prints JSON. `everyday` calls it.
    #[command(hide = true)]
    EverydayOne(EverydayOneArgs),
}

#[derive(Args, Debug)]
pub(crate) struct EverydayArgs {
    /// Engines, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "duramen,redb,lmdb,sqlite,fjall")]
    pub(crate) engines: Vec<Engine>,
    /// Rows of 100 bytes in the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(10_000..=1_000_000_000))]
    pub(crate) rows: u64,
    /// Measurements of each engine; medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) runs: u32,
    /// Memory that each engine may use for its cache of pages or blocks, in MiB. Engines that read
    /// through the system's cache have that one as well.
    #[arg(long, default_value_t = CACHE_BYTES as u64 >> 20, value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    pub(crate) cache_mb: u64,
    /// Tasks, separated by commas; without it, all. The table is always loaded.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(crate) tasks: Vec<Task>,
    /// Directory for the databases, on the disk that is to be measured. They are removed at the
    /// end.
    #[arg(long, default_value = "peers-data")]
    pub(crate) dir: PathBuf,
    /// Prints the medians as JSON, one object for each engine.
    #[arg(long)]
    pub(crate) json: bool,
}

/// One engine.
#[derive(Args, Debug)]
pub(crate) struct EverydayOneArgs {
    pub(crate) home: PathBuf,
    #[arg(long)]
    pub(crate) engine: Engine,
    #[arg(long)]
    pub(crate) rows: u64,
    #[arg(long)]
    pub(crate) cache_mb: u64,
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(crate) tasks: Vec<Task>,
}

/// A part of `everyday`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Task {
    /// A new database.
    Create,
    /// Bulk loading.
    Bulk,
    /// Scans, ranges and single rows.
    Read,
    /// Batches of updates.
    Update,
    /// The deletion of a range.
    Delete,
    /// Large values.
    Blobs,
    /// Batches of updates with less memory than data.
    Larger,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Engines, separated by commas; without it, all.
    #[arg(long, value_delimiter = ',')]
    pub(crate) engines: Vec<Engine>,
    /// Workloads, separated by commas, by the names that `duramen bench` knows.
    #[arg(long, value_delimiter = ',', default_value = "tpcb", value_parser = workload)]
    pub(crate) workload: Vec<String>,
    /// Numbers of clients, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        default_values_t = [1, 4, 16, 64],
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub(crate) clients: Vec<u32>,
    /// Length of each measurement in seconds.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Time before each measurement in which the clients run and nothing is counted, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) warmup: f64,
    /// Measurements of each engine with each number of clients; medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) runs: u32,
    /// What holds when a commit returns: `durable` or `relaxed`.
    #[arg(long, default_value = "durable")]
    pub(crate) durability: Durability,
    /// Size of the database in the workload's unit; without it, the workload's own choice.
    #[arg(long)]
    pub(crate) scale: Option<u64>,
    /// Directory for the databases, on the disk that is to be measured. They are removed at the
    /// end.
    #[arg(long, default_value = "peers-data")]
    pub(crate) dir: PathBuf,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Prints the medians as JSON, one object on a line, instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Writes every single measurement to this file.
    #[arg(long)]
    pub(crate) csv: Option<PathBuf>,
}

/// One engine, one workload, one number of clients.
#[derive(Args, Debug)]
pub(crate) struct OneArgs {
    pub(crate) home: PathBuf,
    #[arg(long)]
    engine: Engine,
    #[arg(long)]
    workload: String,
    #[arg(long)]
    scale: Option<u64>,
    #[arg(long)]
    durability: Durability,
    #[arg(long)]
    clients: u32,
    #[arg(long)]
    seconds: f64,
    #[arg(long)]
    warmup: f64,
    #[arg(long)]
    seed: u64,
}

impl OneArgs {
    pub(crate) fn order(&self) -> Order {
        let Self { engine, workload, scale, durability, clients, seconds, warmup, seed, .. } = self;
        Order {
            engine: *engine,
            workload: workload.clone(),
            scale: *scale,
            durability: *durability,
            clients: *clients,
            seconds: *seconds,
            warmup: *warmup,
            seed: *seed,
        }
    }

    /// The arguments from which the command line makes `order`.
    pub(crate) fn of(order: &Order) -> Vec<String> {
        let mut args: Vec<String> = [
            ("--engine", order.engine.name().to_owned()),
            ("--workload", order.workload.clone()),
            ("--durability", order.durability.name().to_owned()),
            ("--clients", order.clients.to_string()),
            ("--seconds", order.seconds.to_string()),
            ("--warmup", order.warmup.to_string()),
            ("--seed", order.seed.to_string()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        if let Some(scale) = order.scale {
            args.extend(["--scale".to_owned(), scale.to_string()]);
        }
        args
    }
}

fn workload(name: &str) -> Result<String, String> {
    if selection::NAMES.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(format!("one of {}", selection::NAMES.join(", ")))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    if (0.0..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("at most a day".to_owned()) }
}
