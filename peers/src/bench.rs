//! `duramen-peers bench`: many measurements, engine by engine in turn.
//!
//! Each engine is loaded once for each workload. Each measurement then works on a fresh copy of
//! that database, so that all of them start from the same files, and runs in a process of its own.
//! The engines take turns for each number of clients and each run, so that a disturbance from
//! outside does not hit one engine alone.

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use duramen_peers::engines::Engine;

use crate::args::{BenchArgs, OneArgs};
use crate::measure::{Measurement, Order, Outcome};
use crate::report::{self, Cell};

/// How long a child may take beyond what it was told to run for: for opening, auditing, closing.
const SLACK: Duration = Duration::from_secs(600);

/// Measures what `args` say. False when a measurement failed or an audit found something.
pub(crate) fn bench(args: &BenchArgs) -> Outcome<bool> {
    let engines = if args.engines.is_empty() { Engine::ALL.to_vec() } else { args.engines.clone() };
    let work = Workplace::new(&args.dir)?;
    let mut csv = args.csv.as_ref().map(fs::File::create).transpose()?;
    if let Some(file) = &mut csv {
        writeln!(file, "{}", Measurement::CSV_HEADER)?;
    }
    let mut good = true;
    for workload in &args.workload {
        let mut cells = Vec::new();
        for engine in &engines {
            let order = order(args, *engine, workload, 1);
            let template = work.template(&order);
            if !template.exists() {
                let begin = Instant::now();
                fs::create_dir_all(&template)?;
                match child("load", &order, &template) {
                    Ok(_) => {
                        say(&format!("{workload}: loaded {} in {:.1} s", engine.name(), begin.elapsed().as_secs_f64()))
                    }
                    Err(error) => say(&format!("{workload}: {} cannot be loaded: {error}", engine.name())),
                }
            }
        }
        let total = args.clients.len() * args.runs as usize * engines.len();
        for clients in &args.clients {
            let mut of_engines: Vec<Cell> = engines.iter().map(|engine| Cell::new(*engine, *clients)).collect();
            for run in 1..=args.runs {
                for turn in 0..engines.len() {
                    // Each run begins with another engine.
                    let at = (turn + run as usize - 1) % engines.len();
                    let order = order(args, engines[at], workload, *clients);
                    let outcome = measure(&work, &order, run);
                    let done = cells.iter().chain(&of_engines).map(Cell::measurements).sum::<usize>() + 1;
                    let cell = &mut of_engines[at];
                    match outcome {
                        Ok(measured) => {
                            say(&format!("[{done}/{total}] {}", report::line(&measured)));
                            if let Some(file) = &mut csv {
                                writeln!(file, "{}", measured.csv())?;
                            }
                            good &= measured.audit == "ok";
                            cell.add(measured);
                        }
                        Err(error) => {
                            say(&format!(
                                "[{done}/{total}] {workload}, {clients} clients, {}: {error}",
                                engines[at].name()
                            ));
                            good = false;
                            cell.fail(error.to_string());
                        }
                    }
                }
            }
            cells.append(&mut of_engines);
        }
        work.clear()?;
        if args.json {
            report::json(&cells, workload, args)?;
        } else {
            report::tables(&cells, workload, args);
        }
    }
    work.remove()?;
    Ok(good)
}

fn say(line: &str) {
    eprintln!("{line}");
}

fn order(args: &BenchArgs, engine: Engine, workload: &str, clients: u32) -> Order {
    Order {
        engine,
        workload: workload.to_owned(),
        scale: args.scale,
        durability: args.durability,
        clients,
        seconds: args.seconds,
        warmup: args.warmup,
        seed: args.seed,
    }
}

fn measure(work: &Workplace, order: &Order, run: u32) -> Outcome<Measurement> {
    let home = work.fresh_copy(order)?;
    let printed = child("measure", order, &home);
    fs::remove_dir_all(&home)?;
    let mut measured: Measurement = serde_json::from_str(&printed?)?;
    measured.run = run;
    Ok(measured)
}

/// Runs this program with a command of its own; what it prints.
fn child(command: &str, order: &Order, home: &Path) -> Outcome<String> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(command)
        .arg(home)
        .args(OneArgs::of(order))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let deadline = Instant::now() + Duration::from_secs_f64(order.seconds + order.warmup) + SLACK;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err("it did not end, and was killed".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // It prints one line, which the pipe holds until now.
    let mut printed = String::new();
    if let Some(mut out) = child.stdout.take() {
        std::io::Read::read_to_string(&mut out, &mut printed)?;
    }
    if status.success() { Ok(printed) } else { Err(format!("the measuring process ended with {status}").into()) }
}

/// The directory in which databases come and go.
struct Workplace(PathBuf);

impl Workplace {
    /// A directory of this process's own in `dir`.
    fn new(dir: &Path) -> Outcome<Self> {
        let own = dir.join(format!("bench-{}", std::process::id()));
        fs::create_dir_all(&own)?;
        Ok(Self(own))
    }

    /// Where the populated database of the order's engine and workload lies.
    fn template(&self, order: &Order) -> PathBuf {
        let family = order.workload.split(':').next().unwrap_or(&order.workload);
        self.0.join(format!("{}-{family}", order.engine.family()))
    }

    /// A copy of the template, on disk.
    fn fresh_copy(&self, order: &Order) -> Outcome<PathBuf> {
        let home = self.0.join("run");
        copy(&self.template(order), &home)?;
        let directory = fs::File::open(&self.0)?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::syncfs(directory.as_raw_fd()) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(home)
    }

    /// Removes the databases.
    fn clear(&self) -> Outcome<()> {
        for entry in fs::read_dir(&self.0)? {
            fs::remove_dir_all(entry?.path())?;
        }
        Ok(())
    }

    fn remove(self) -> Outcome<()> {
        Ok(fs::remove_dir_all(self.0)?)
    }
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}
