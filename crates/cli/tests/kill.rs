//! Kills a running database, at any moment of populating, running, recovering and checking, and
//! proves after each kill that everything acknowledged is there and everything there is consistent.
//!
//! The clients note each acknowledged commit in a ledger outside the database; the system's page
//! cache keeps it through a SIGKILL. `DURAMEN_KILLS` sets the number of kills, `DURAMEN_KILL_SEED`
//! repeats the choices of an earlier run (not its timing).

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Ran, arg, command, duramen};
use duramen_test_support::Rng;

/// Kills in a run of the test that nobody configured.
const KILLS: u64 = 20;
/// Bytes of a ledger record.
const RECORD_LEN: u64 = 32;

fn from_environment(name: &str, default: impl FnOnce() -> u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
        Err(_) => default(),
    }
}

/// A time in milliseconds.
fn between(random: &mut Rng, start: u64, end: u64) -> Duration {
    Duration::from_millis(start + random.below(end - start))
}

/// Starts the command, kills it after `delay`; returns whether it was still running.
fn kill(args: &[&str], delay: Duration) -> bool {
    let mut child = command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(delay);
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    if let Some(status) = ended {
        let ran = Ran::from(output);
        assert!(status.success(), "it failed by itself: {ran:#?}");
    }
    ended.is_none()
}

fn acknowledged(ledger: &Path) -> u64 {
    std::fs::metadata(ledger).map_or(0, |metadata| metadata.len() / RECORD_LEN)
}

#[test]
fn acknowledged_commits_survive_kills() {
    let kills = from_environment("DURAMEN_KILLS", || KILLS);
    let seed = from_environment("DURAMEN_KILL_SEED", || {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    });
    println!("seed {seed}");
    let mut random = Rng::new(seed);
    let root = tempfile::tempdir().unwrap();
    let (mut during_load, mut during_run, mut during_recovery, mut checks, mut total) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut databases = 0;
    let mut done = 0;
    while done < kills {
        // A fresh database now and then, so that populating is killed, too.
        databases += 1;
        let dir = root.path().join(format!("db-{databases}"));
        let ledger = root.path().join(format!("ledger-{databases}"));
        let mut check = vec!["check", arg(&dir), "--ledger", arg(&ledger), "--pool-mb", "8"];
        if databases % 2 == 0 {
            check.push("--instant-recovery");
        }
        std::fs::write(&ledger, b"").unwrap();
        let mut left = (kills - done).min(5 + random.below(8));
        let mut tries = 0;
        while left > 0 {
            tries += 1;
            let mut bench = vec!["bench", "tpcb", "--clients", "16", "--seconds", "60", "--scale", "1"];
            bench.extend(["--rows-per-unit", "4000", "--dir", arg(&dir), "--ledger", arg(&ledger)]);
            // Small logs and pools, so that checkpoints, recycling and eviction happen within
            // milliseconds.
            bench.extend(["--segment-mb", "1", "--checkpoint-mb", *random.pick(&["1", "2", "64"])]);
            bench.extend(["--pool-mb", *random.pick(&["1", "4", "64"])]);
            bench.extend([
                "--commit",
                *random.pick(&["sync", "elr", "pipelined", "pipelined"]),
                "--log-insert",
                *random.pick(&["mutex", "consolidated", "decoupled", "hybrid", "delegated", "reserved"]),
            ]);
            if random.below(2) == 0 {
                bench.push("--instant-recovery");
            }
            let before = acknowledged(&ledger);
            // The first kills of a database come early: it is being made and populated. On a slow
            // machine, that takes more tries.
            let populating = before == 0;
            let delay = match (populating, random.below(2)) {
                (true, 0) => between(&mut random, 1, 30),
                (true, _) => between(&mut random, 1, 300 * tries),
                (false, _) => between(&mut random, 50, 600),
            };
            assert!(kill(&bench, delay), "60 seconds cannot be over");
            done += 1;
            left -= 1;
            if acknowledged(&ledger) > before {
                during_run += 1;
            } else {
                during_load += 1;
            }
            // Recovery itself is killed, too, up to three times in a row, with or without work
            // behind it.
            for _ in 0..random.below(4) {
                let args = if random.below(2) == 0 { &bench[..] } else { &check[..] };
                if dir.join("control").exists() && left > 0 && kill(args, between(&mut random, 1, 40)) {
                    during_recovery += 1;
                    done += 1;
                    left -= 1;
                }
            }
            if dir.join("control").exists() {
                let ran = duramen(&check);
                assert_eq!(ran.code, Some(0), "seed {seed}, kill {done}: {ran:#?}");
                checks += 1;
            } else {
                assert_eq!(acknowledged(&ledger), 0, "seed {seed}: acknowledged without a database");
            }
        }
        total += acknowledged(&ledger);
        // The survivor still works, and cleanly.
        let args = ["bench", "tpcb", "--dir", arg(&dir), "--scale", "1", "--rows-per-unit", "4000"];
        duramen(&[&args[..], &["--transactions", "200", "--ledger", arg(&ledger)]].concat()).exits_with(0);
        let ran = duramen(&check).exits_with(0);
        assert!(ran.stdout.contains(&format!("ledger: {}", acknowledged(&ledger))), "{ran:#?}");
    }
    println!(
        "{done} kills of {databases} databases ({during_load} before the first commit, {during_run} while running, \
         {during_recovery} in recovery or check), {checks} checks, {total} acknowledged commits, none lost"
    );
    assert!(kills < KILLS || during_run > 0, "no kill met a running client: nothing was tested");
}

/// The consistency conditions of TPC-C hold after kills, too.
#[test]
fn tpcc_is_consistent_after_kills() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let size = ["--scale", "2", "--rows-per-unit", "60", "--segment-mb", "1", "--checkpoint-mb", "4", "--pool-mb", "4"];
    let bench = [&["bench", "tpcc", "--clients", "16", "--instant-recovery", "--dir", arg(&dir)], &size[..]].concat();
    duramen(&[&bench[..], &["--transactions", "100"]].concat()).exits_with(0);
    for round in 1..=4 {
        assert!(kill(&[&bench[..], &["--seconds", "60"]].concat(), Duration::from_millis(250 * round)), "it runs on");
        let ran = duramen(&["check", arg(&dir)]).exits_with(0);
        assert!(ran.stdout.contains("orders: "), "{ran:#?}");
    }
}

/// Where a heap is made: in memory, if the system has such a file system.
fn heap_home() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    let builder = tempfile::Builder::new();
    if shared.is_dir() { builder.tempdir_in(shared) } else { builder.tempdir() }.unwrap()
}

/// Kills databases whose pages are in a heap, of both schemes.
#[test]
fn acknowledged_commits_in_a_heap_survive_kills() {
    kill_in_memory(&["in-place", "nvram-group-commit"]);
}

/// Kills databases whose changed pages, or records, are in persistent memory.
#[test]
fn acknowledged_commits_in_pcm_survive_kills() {
    kill_in_memory(&["pcm-logging"]);
}

/// Kills databases of these schemes in turn, in both domains: while they are made, populated, run,
/// recovered and checked. `DURAMEN_LONG=1` makes 200 kills.
fn kill_in_memory(schemes: &[&str]) {
    let is_long = std::env::var_os("DURAMEN_LONG").is_some();
    let kills = if is_long { 200 } else { 12 };
    // What the clients insert stays, kill after kill.
    let heap = if is_long { "256" } else { "64" };
    let seed = from_environment("DURAMEN_KILL_SEED", || {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    });
    println!("seed {seed}");
    let mut random = Rng::new(seed);
    let root = heap_home();
    let (mut during_load, mut during_run, mut during_recovery, mut total) = (0_u64, 0_u64, 0_u64, 0_u64);
    let (mut losers, mut recoveries, mut databases, mut done) = (0, 0, 0_u64, 0);
    let mut of_use = [0; 6];
    while done < kills {
        databases += 1;
        let scheme = schemes[(databases as usize - 1) % schemes.len()];
        let domain =
            if (databases / schemes.len() as u64).is_multiple_of(2) { "durable-cache" } else { "volatile-cache" };
        let dir = root.path().join(format!("db-{databases}"));
        let ledger = root.path().join(format!("ledger-{databases}"));
        let check = ["check", arg(&dir), "--ledger", arg(&ledger), "--domain", domain];
        std::fs::write(&ledger, b"").unwrap();
        let end = kills.min(done + if is_long { 20 } else { 6 });
        while done < end {
            let mut bench = vec!["bench", "tpcb", "--scheme", scheme, "--domain", domain];
            bench.extend(if scheme == "pcm-logging" { ["--pcm-mb", "8"] } else { ["--heap-mb", heap] });
            bench.extend(["--clients", "16", "--seconds", "60", "--scale", "1", "--rows-per-unit", "4000"]);
            bench.extend(["--dir", arg(&dir), "--ledger", arg(&ledger)]);
            let has_batches = scheme == "nvram-group-commit";
            let commits = if has_batches { &["elr", "pipelined"] } else { &["sync", "elr", "pipelined"][..] };
            bench.extend(["--commit", *random.pick(commits)]);
            if has_batches {
                bench.extend(["--batch-ms", *random.pick(&["0.2", "2", "20"])]);
            }
            let (used, number) = random_use(&mut random, scheme);
            bench.extend(used);
            let check = [&check[..], &random_use(&mut random, scheme).0].concat();
            let before = acknowledged(&ledger);
            let delay = if before == 0 { between(&mut random, 1, 300) } else { between(&mut random, 100, 700) };
            // On a busy machine, loading and opening take longer.
            let delay = delay * (1 + if during_run == 0 { during_load as u32 / 4 } else { 0 });
            assert!(kill(&bench, delay), "60 seconds cannot be over");
            done += 1;
            of_use[number] += 1;
            *if acknowledged(&ledger) > before { &mut during_run } else { &mut during_load } += 1;
            for _ in 0..random.below(3) {
                if dir.join("control").exists() && done < end && kill(&check, between(&mut random, 1, 40)) {
                    during_recovery += 1;
                    done += 1;
                }
            }
            if !dir.join("control").exists() {
                assert_eq!(acknowledged(&ledger), 0, "seed {seed}: acknowledged without a database");
                continue;
            }
            let memory = if scheme == "pcm-logging" { "pcm" } else { "heap" };
            duramen(&["inspect", memory, arg(&dir)]).exits_with(0);
            let ran = duramen(&check);
            assert_eq!(ran.code, Some(0), "seed {seed}, kill {done}: {ran:#?}");
            if let Some(rolled_back) =
                ran.stdout.split(" transactions rolled back").next().filter(|_| ran.stdout.starts_with("recovery:"))
            {
                recoveries += 1;
                losers += rolled_back.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).unwrap();
            }
        }
        total += acknowledged(&ledger);
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::remove_file(&ledger).unwrap();
    }
    println!(
        "{done} kills of {databases} databases in {} ({during_load} before the first new commit, {during_run} while \
         running, {during_recovery} in recovery or check), {recoveries} recoveries, {losers} transactions rolled back, \
         {total} acknowledged commits, none lost; kills of `bench` by use: {of_use:?} (in place cached, \
         fewest and paper; direct, fewest and paper; batches, fewest and paper; or PCM page by page, fewest and paper, \
         and tuple by tuple)",
        root.path().display()
    );
    assert!(during_run > 0, "no kill met a running client: nothing was tested");
}

/// Returns options for one of the uses of a heap or of PCM, and its number.
fn random_use(random: &mut Rng, scheme: &str) -> (Vec<&'static str>, usize) {
    let (is_other, is_paper) = (random.below(2), random.below(2));
    let mut options = vec!["--barriers", ["fewest", "paper"][is_paper as usize]];
    let pool = ["--pool-mb", *random.pick(&["1", "4", "64"])];
    let use_of = match scheme {
        "in-place" if is_other == 1 => {
            options.extend(["--residence", "direct"]);
            2
        }
        "nvram-group-commit" => {
            options.extend(pool);
            4
        }
        "pcm-logging" => {
            options.extend(pool);
            options.extend(["--granularity", ["page", "tuple"][is_other as usize]]);
            2 * is_other
        }
        _ => {
            options.extend(pool);
            0
        }
    };
    (options, (use_of + is_paper) as usize)
}

/// The proof above is worth something only if a loss would be noticed: unsafe commits are lost, and
/// it is.
#[test]
fn what_async_commits_lose_is_noticed() {
    const TRIES: u64 = 20;
    let root = tempfile::tempdir().unwrap();
    for number in 0..TRIES {
        let (dir, ledger) = (root.path().join(format!("db-{number}")), root.path().join(format!("ledger-{number}")));
        let mut bench = vec!["bench", "tpcb", "--clients", "8", "--commit", "async", "--scale", "1"];
        bench.extend(["--rows-per-unit", "500", "--dir", arg(&dir), "--ledger", arg(&ledger)]);
        bench.extend(["--pool-mb", "8", "--seconds"]);
        duramen(&[&bench[..], &["0.1"]].concat()).exits_with(0);
        assert!(kill(&[&bench[..], &["60"]].concat(), Duration::from_millis(200 + 20 * number)));
        let ran = duramen(&["check", arg(&dir), "--ledger", arg(&ledger)]);
        match ran.code {
            Some(0) => {}
            Some(3) if ran.stdout.contains("is lost") => {
                // Only the tail is gone: the database itself is sound.
                duramen(&["check", arg(&dir)]).exits_with(0);
                return;
            }
            _ => panic!("{ran:#?}"),
        }
    }
    panic!("{TRIES} kills lost nothing: either they came too late or losses go unnoticed");
}
