//! The scheme `in-place` on the command line: workloads, inspection, messages, and the benchmark of
//! barriers.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::common::{Home, Ran, arg, command, duramen, every_workload, object};

fn new_home() -> Home {
    Home::with(&["--scheme", "in-place"])
}

fn populated(more: &[&str]) -> Home {
    new_home().populated(&[&["--heap-mb", "8"], more].concat())
}

fn has(ran: &Ran, words: &[&str]) {
    for word in words {
        assert!(ran.stdout.contains(word), "no `{word}` in {ran:#?}");
    }
}

#[test]
fn every_workload_runs_and_is_audited() {
    let home = new_home();
    let ways = [("volatile-cache", "pipelined"), ("durable-cache", "sync"), ("volatile-cache", "elr")];
    for (workload, (domain, commit)) in every_workload(&ways) {
        let mut args = vec!["bench", workload, "--dir", arg(&home.dir), "--rows-per-unit", "40", "--clients", "3"];
        args.extend(["--pool-mb", "8", "--scale", "1", "--transactions", "100", "--json", "--commit", commit]);
        args.extend(["--scheme", "in-place", "--heap-mb", "32", "--domain", domain]);
        let object = object(&duramen(&args).exits_with(0));
        assert_eq!((&object["workload"], &object["committed"]), (&workload.into(), &100.into()));
        assert_eq!((&object["audit"], &object["scheme"]), (&"ok".into(), &"in-place".into()));
        assert_eq!((&object["commit"], &object["domain"]), (&commit.into(), &domain.into()));
    }
    let ran = duramen(&["check", arg(&home.dir)]).exits_with(0);
    has(&ran, &["account: 40 rows", "subscribers: 40", "orders:", "ok"]);
}

#[test]
fn check_stats_and_inspect_need_no_options() {
    let home = populated(&[]);
    let dir = arg(&home.dir);
    let heap = home.dir.join("heap");
    let before = std::fs::read(&heap).unwrap();
    let ran = duramen(&["inspect", "heap", dir]).exits_with(0);
    has(&ran, &["scheme: in-place", "state: closed in order", "pages: 888, ", " free, in 1 groups", "0 active"]);
    has(&ran, &["of changes that no transaction owns"]);
    let ran = duramen(&["inspect", "page", dir, "2"]).exits_with(0);
    has(&ran, &["page 2: leaf", "checksum: none"]);
    duramen(&["inspect", "page", dir, "888"]).exits_with(2).says(&["888 pages"]);
    has(&duramen(&["inspect", "checkpoint", dir]).exits_with(0), &["scheme: in-place", "has no log", "inspect heap"]);
    duramen(&["inspect", "log", dir]).exits_with(2).says(&["`in-place` has no log", "inspect heap"]);
    assert!(std::fs::read(&heap).unwrap() == before, "looking changes nothing");
    let ran = duramen(&["inspect", "table", dir, "tpcb_branch", "--keys", "5"]).exits_with(0);
    has(&ran, &["0x0000000000000001  100 bytes"]);
    has(&duramen(&["check", dir]).exits_with(0), &["structure:", "account: 400 rows", "ok"]);
    has(&duramen(&["stats", dir]).exits_with(0), &["heap pages", "barriers", "journals that are free", "recovery:"]);
}

/// The protocol is chosen for each opening, and the report names it.
#[test]
fn the_barriers_of_the_paper_are_three_times_as_many() {
    let home = new_home();
    let mut counts = Vec::new();
    for protocol in ["fewest", "paper", "fewest"] {
        let args = home.bench(&["--transactions", "100", "--barriers", protocol, "--json"]);
        let object = object(&duramen(&args).exits_with(0));
        assert_eq!((&object["barrier_protocol"], &object["audit"]), (&protocol.into(), &"ok".into()));
        let [changes, barriers] = ["page_changes", "barriers"].map(|name| object[name].as_u64().unwrap());
        // A commit has one, and a change of the engine itself four instead of six.
        let each = if protocol == "paper" { 4..=6 } else { 2..=2 };
        let range = changes * each.start() + 100..=changes * each.end() + 100;
        assert!(range.contains(&barriers), "{protocol}: {barriers} barriers, {changes} changes");
        counts.push(barriers);
    }
    assert!(counts[1] > 2 * counts[0], "{counts:?}");
    duramen(&["check", arg(&home.dir)]).exits_with(0);
    duramen(&home.bench(&["--barriers", "four"])).exits_with(2).says(&["`fewest`, `paper`"]);
    let with_log = home.path("log");
    let args = ["bench", "tpcb", "--dir", arg(&with_log), "--barriers", "paper"];
    duramen(&args).exits_with(2).says(&["`--barriers`", "require `--scheme in-place`"]);
}

/// Pages that are read in the heap: clients of several threads, audited, with either protocol.
#[test]
fn pages_may_be_read_in_the_heap() {
    let home = new_home();
    for (residence, protocol) in [("direct", "fewest"), ("cached", "fewest"), ("direct", "paper")] {
        for workload in ["tpcb", "tpcc", "ycsb:a"] {
            let mut args = vec!["bench", workload, "--dir", arg(&home.dir), "--rows-per-unit", "200", "--clients", "4"];
            args.extend(["--scheme", "in-place", "--heap-mb", "64", "--journal-mb", "16"]);
            args.extend(["--transactions", "300", "--json"]);
            args.extend(["--residence", residence, "--barriers", protocol]);
            let object = object(&duramen(&args).exits_with(0));
            assert_eq!((&object["residence"], &object["audit"]), (&residence.into(), &"ok".into()), "{workload}");
        }
        let ran = duramen(&["stats", arg(&home.dir), "--residence", residence]).exits_with(0);
        has(&ran, &["heap pages"]);
        duramen(&["check", arg(&home.dir), "--residence", residence]).exits_with(0);
    }
    duramen(&home.bench(&["--residence", "direct"])).exits_with(2).says(&["pool_bytes", "no buffer pool"]);
    duramen(&home.bench(&["--residence", "dram"])).exits_with(2).says(&["`cached`, `direct`"]);
}

#[test]
fn the_heap_may_be_elsewhere() {
    let home = new_home();
    let (heap, dir) = (home.path("region"), arg(&home.dir));
    let region = ["--region", arg(&heap)];
    let more = ["--transactions", "60", "--scale", "2", "--heap-mb", "8", "--json"];
    duramen(&home.bench(&[&more[..], &region].concat())).exits_with(0);
    assert!(heap.is_file() && !home.dir.join("heap").exists());
    let commands = [
        &["check", dir][..],
        &["stats", dir],
        &["inspect", "heap", dir],
        &["inspect", "page", dir, "2"],
        &["inspect", "table", dir, "tpcb_branch"],
    ];
    for args in commands {
        duramen(&[args, &region].concat()).exits_with(0);
        let ran = duramen(args).exits_with(1).says(&[arg(&home.dir.join("heap")), "does not exist", "region"]);
        assert!(!ran.stderr.contains("create it"), "{ran:#?}");
        assert!(!home.dir.join("heap").exists());
    }
    // A heap of another database, and something else.
    let other = populated(&[]);
    let wrong = other.dir.join("heap");
    let before = std::fs::read(&wrong).unwrap();
    duramen(&["check", dir, "--region", arg(&wrong)]).exits_with(3).says(&["another database"]);
    has(&duramen(&["inspect", "heap", dir, "--region", arg(&wrong)]).exits_with(0), &["it is not the heap of"]);
    assert!(std::fs::read(&wrong).unwrap() == before);
    let control = home.dir.join("control");
    duramen(&["inspect", "heap", dir, "--region", arg(&control)]).exits_with(1).says(&[arg(&control)]);
    duramen(&["check", dir, "--region", arg(&control)]).exits_with(2).says(&[arg(&control), "name another"]);
    let several = [&["check", dir][..], &region, &region].concat();
    duramen(&several).exits_with(2).says(&["`--region` only once"]);
    // A database with a log has no heap.
    let log = home.path("log");
    let with_log = ["bench", "tpcb", "--dir", arg(&log), "--rows-per-unit", "40", "--transactions", "5"];
    duramen(&with_log).exits_with(0);
    duramen(&["inspect", "heap", arg(&log)]).exits_with(2).says(&["`wal`, which has no heap"]);
    duramen(&["inspect", "page", arg(&log), "2", "--region", "x"]).exits_with(2).says(&["`wal`, which has no heap"]);
    duramen(&[&with_log[..], &["--scheme", "in-place"]].concat()).exits_with(2).says(&["`wal`", "`in-place`"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let home = new_home();
    duramen(&home.bench(&["--heap-mb", "1"])).exits_with(2).says(&["--heap-mb"]);
    duramen(&home.bench(&["--heap-mb", "4", "--journal-mb", "3"])).exits_with(2).says(&["half of the heap"]);
    duramen(&home.bench(&["--commit", "async"])).exits_with(2).says(&["`commit`", "use `sync`"]);
    duramen(&home.bench(&["--checkpoint-mb", "1"])).exits_with(2).says(&["takes no checkpoints"]);
    duramen(&home.bench(&["--segment-mb", "1"])).exits_with(2).says(&["--segment-mb", "no log"]);
    duramen(&home.bench(&["--log-device", "nvm"])).exits_with(2).says(&["`log_device`", "no log"]);
    duramen(&home.bench(&["--logs", "2"])).exits_with(2).says(&["`logs`", "no log"]);
    for of_log in [&["--recovery-threads", "2"][..], &["--instant-recovery"], &["--open-early"]] {
        duramen(&home.bench(of_log)).exits_with(2).says(&["--recovery-threads", "--instant-recovery", "does not have"]);
    }
    assert!(!home.dir.exists());
    let nowhere = home.path("no").join("heap");
    duramen(&home.bench(&["--region", arg(&nowhere)])).exits_with(2).says(&[arg(&nowhere), "directory", "create it"]);
    assert!(!home.dir.join("creating").exists());
    // The population does not fit; what is there goes on with a larger heap.
    let large = ["--scale", "100", "--transactions", "50"];
    let ran = duramen(&home.bench(&[&large[..], &["--heap-mb", "2"]].concat())).exits_with(1);
    ran.says(&["no space", arg(&home.dir.join("heap")), "pages, all in use", "--heap-mb"]);
    duramen(&["check", arg(&home.dir)]).exits_with(0);
    let backup = home.path("backup");
    duramen(&["backup", arg(&home.dir), arg(&backup)]).exits_with(2).says(&["copy its directory", "heap"]);
    assert!(!backup.exists());
    duramen(&home.bench(&[&large[..], &["--heap-mb", "16"]].concat())).exits_with(0);
}

#[test]
fn a_second_opener_is_told() {
    let home = populated(&[]);
    let mut args = home.bench(&["--seconds", "60"]);
    args.retain(|arg| *arg != "--json");
    let mut first = command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut progress = BufReader::new(first.stderr.take().unwrap()).lines();
    let running = progress.by_ref().map_while(Result::ok).any(|line| line.starts_with("running"));
    assert!(running, "the first opener got to work");
    let dir = arg(&home.dir);
    let more = home.bench(&["--transactions", "1"]);
    let heap = home.dir.join("heap");
    // The same heap for another database.
    let other = home.path("other");
    let same_heap = ["bench", "tpcb", "--scheme", "in-place", "--dir", arg(&other), "--region", arg(&heap)];
    let commands = [&more[..], &["inspect", "heap", dir], &["inspect", "page", dir, "2"], &same_heap];
    let second: Vec<Ran> = commands.iter().map(|args| duramen(args)).collect();
    let (stats, check, dump) = (duramen(&["stats", dir]), duramen(&["check", dir]), duramen(&["dump", dir]));
    first.kill().unwrap();
    first.wait().unwrap();
    for ran in second {
        ran.exits_with(1).says(&["in use"]);
    }
    has(&stats.exits_with(0), &["has the database open", "heap pages", "commits"]);
    check.exits_with(1).says(&["snapshots"]);
    dump.exits_with(1).says(&["snapshots"]);
    has(&duramen(&["inspect", "heap", dir]).exits_with(0), &["state: in use"]);
    duramen(&["check", dir]).exits_with(0);
}

#[test]
fn barriers_are_measured() {
    let home = new_home();
    let bench = ["bench", "barrier", "--seconds", "0.2"];
    let ran = duramen(&bench).exits_with(0);
    has(&ran, &["domain", "durable-cache", "volatile-cache", "1 thread", "128", "--scheme"]);
    assert!(ran.stderr.contains("warning: `anonymous memory` is not persistent memory"), "{ran:#?}");
    let report = object(&duramen(&[&bench[..], &["--json"]].concat()).exits_with(0));
    assert_eq!((&report["workload"], &report["persistent"]), (&"barrier".into(), &false.into()));
    let measurements = report["measurements"].as_array().unwrap();
    let threads = if std::thread::available_parallelism().unwrap().get() > 1 { 2 } else { 1 };
    assert_eq!(measurements.len(), 2 * 4 * threads);
    assert!(measurements.iter().all(|of| of["ns"].as_f64().unwrap() > 0.0), "{report:?}");
    assert_eq!(report["recommended"].as_array().unwrap().len(), 2);
    // A file that is not there is created and removed; one of zeros stays one of zeros.
    let region = home.path("region");
    let more = ["--region", arg(&region), "--domain", "volatile-cache", "--json"];
    let report = object(&duramen(&[&bench[..], &more].concat()).exits_with(0));
    assert_eq!((report["recommended"].as_array().unwrap().len(), region.exists()), (1, false));
    std::fs::write(&region, vec![0; 64 << 20]).unwrap();
    duramen(&[&bench[..], &more].concat()).exits_with(0);
    assert!(std::fs::read(&region).unwrap().iter().all(|byte| *byte == 0));
    // What is in use is not overwritten.
    let database = populated(&[]);
    let heap = database.dir.join("heap");
    let before = std::fs::read(&heap).unwrap();
    duramen(&[&bench[..], &["--region", arg(&heap)]].concat()).exits_with(2).says(&["is not empty"]);
    assert!(std::fs::read(&heap).unwrap() == before);
    for option in [
        &["--clients", "16"][..],
        &["--dir", "x"],
        &["--scale", "1"],
        &["--commit", "sync"],
        &["--log-insert", "hybrid"],
        &["--scheme", "in-place"],
        &["--heap-mb", "8"],
        &["--barriers", "paper"],
        &["--residence", "direct"],
        &["--barrier-ns", "8"],
        &["--pool-mb", "256"],
        &["--system-cache", "all"],
        &["--transactions", "5"],
        &["--ring-mb", "1"],
    ] {
        let args = [&["bench", "barrier"][..], option].concat();
        duramen(&args).exits_with(2).says(&[option[0], "does not apply to `barrier`", "`--region`"]);
    }
    let twice = ["bench", "barrier", "--region", "a", "--region", "b"];
    duramen(&twice).exits_with(2).says(&["`--region` once"]);
    assert!(!Path::new("a").exists());
}
