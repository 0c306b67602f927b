//! The six micro-benchmarks of atomic regions on a heap.
//!
//! ```sh
//! cargo run --release -p duramen-workloads --example regions -- [NAME,...|all] [small|large] \
//!     [THREADS] [OPERATIONS] [FILE] [volatile-cache|durable-cache]
//! ```
//!
//! Each thread has an instance of its own, but all share the queue. The file, on tmpfs by default,
//! is made anew and removed. Each instance is audited at the end.

use std::path::PathBuf;

use duramen_heap::{Domain, Heap, HeapOptions, Source, Survive};
use duramen_sync::clock::Instant;
use duramen_workloads::regions::{HeapMemory, Kind, SIZES, Scale, Structure};
use rand::SeedableRng;
use rand::rngs::StdRng;

struct Plan {
    kinds: Vec<Kind>,
    size: (&'static str, Scale),
    threads: u64,
    operations: u64,
    path: PathBuf,
    domain: Domain,
}

fn plan() -> Result<Plan, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize, default: &str| arguments.get(index).map_or(default, String::as_str).to_owned();
    let number = |index, default: &str| {
        let text = argument(index, default);
        let number: u64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
        if number == 0 { Err("there must be at least one thread and one operation".to_owned()) } else { Ok(number) }
    };
    let kinds = match argument(0, "all").as_str() {
        "all" => Kind::NAMES.iter().map(|(_, kind)| *kind).collect(),
        names => names.split(',').map(str::parse).collect::<Result<_, _>>()?,
    };
    let size = argument(1, "small");
    let size = SIZES.iter().find(|(name, _)| *name == size).ok_or("the size is `small` or `large`")?;
    Ok(Plan {
        kinds,
        size: (size.0, Scale::of(size.1)),
        threads: number(2, "1")?,
        operations: number(3, "100000")?,
        path: argument(4, "/dev/shm/duramen-regions").into(),
        domain: argument(5, "volatile-cache").parse().map_err(|error| format!("{error}"))?,
    })
}

fn measure(plan: &Plan, kind: Kind) -> Result<(), String> {
    let scale = plan.size.1;
    let arena = Structure::bytes(kind, scale);
    let instances = if kind == Kind::Queue { 1 } else { plan.threads };
    let bytes = (64 << 20) + instances * (arena + (1 << 20));
    let options = HeapOptions { survive: Survive::Process, domain: plan.domain, ..HeapOptions::new(bytes) };
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", kind.name());
    let heap = Heap::open(&Source::File(plan.path.clone()), &options).map_err(|error| failed(&error))?;
    let mut structures = Vec::new();
    for _ in 0..instances {
        // A large object, zeroed by its allocation, takes more log than one transaction should.
        let base = heap.atomic(|tx| tx.alloc_bytes(arena)).map_err(|error| failed(&error))?;
        let structure = Structure::at(kind, scale, base.get());
        structure.make(&mut HeapMemory(&heap), ()).map_err(|error| failed(&error))?;
        structures.push(structure);
    }
    let run = |thread: u64, operations: u64, seed: u64| {
        let structure = &structures[(thread % instances) as usize];
        let (mut memory, mut random) = (HeapMemory(&heap), StdRng::seed_from_u64(seed));
        (0..operations).try_for_each(|number| structure.operate(&mut memory, (), number, &mut random))
    };
    // Half full before the clock starts.
    for thread in 0..plan.threads {
        run(thread, scale.entries * 2, thread).map_err(|error| failed(&error))?;
    }
    let (before, start) = (heap.stats(), Instant::now());
    std::thread::scope(|scope| {
        let start_one = |thread| scope.spawn(move || run(thread, plan.operations, 1000 + thread));
        let threads: Vec<_> = (0..plan.threads).map(start_one).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("a client does not panic"));
        ended.collect::<Result<Vec<()>, _>>()
    })
    .map_err(|error| failed(&error))?;
    let seconds = (Instant::now().nanos() - start.nanos()) as f64 / 1e9;
    let (after, done) = (heap.stats(), (plan.threads * plan.operations) as f64);
    for structure in &structures {
        structure.audit(&mut HeapMemory(&heap), ()).map_err(|error| failed(&error))?;
    }
    let barriers = |stats: &duramen_heap::HeapStats| stats.log_barriers + stats.home_barriers + stats.end_barriers;
    println!(
        "{:7} {:6} {:>10.0} {:>10.2} {:>10.2} {:>10.4}",
        kind.name(),
        plan.size.0,
        done / seconds,
        (after.lines_logged - before.lines_logged) as f64 / done,
        (barriers(&after) - barriers(&before)) as f64 / done,
        (after.conflicts - before.conflicts) as f64 / done,
    );
    Ok(())
}

fn main() -> Result<(), String> {
    let plan = plan()?;
    println!("{} threads, {} operations each, {}", plan.threads, plan.operations, plan.domain);
    println!("                  ops/s   lines/op barriers/op conflicts/op");
    for kind in &plan.kinds {
        let measured = if plan.path.exists() {
            Err(format!("{} exists already; name another file", plan.path.display()))
        } else {
            let measured = measure(&plan, *kind);
            let _ = std::fs::remove_file(&plan.path);
            measured
        };
        measured?;
    }
    Ok(())
}
