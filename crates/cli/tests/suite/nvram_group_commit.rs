//! The scheme `nvram-group-commit` on the command line: workloads, inspection and messages.

use crate::common::{Home, Ran, arg, duramen, every_workload, object};

const SCHEME: [&str; 2] = ["--scheme", "nvram-group-commit"];

fn has(ran: &Ran, words: &[&str]) {
    for word in words {
        assert!(ran.stdout.contains(word), "no `{word}` in {ran:#?}");
    }
}

#[test]
fn every_workload_runs_and_is_audited() {
    let home = Home::with(&SCHEME);
    let ways = [("volatile-cache", "pipelined", "fewest"), ("durable-cache", "elr", "paper")];
    for (workload, (domain, commit, barriers)) in every_workload(&ways) {
        let mut args = vec!["bench", workload, "--dir", arg(&home.dir), "--rows-per-unit", "40", "--clients", "3"];
        args.extend(["--pool-mb", "8", "--scale", "1", "--transactions", "100", "--json", "--commit", commit]);
        args.extend(SCHEME);
        args.extend(["--heap-mb", "40", "--domain", domain, "--barriers", barriers, "--batch-ms", "0.5"]);
        let object = object(&duramen(&args).exits_with(0));
        assert_eq!((&object["workload"], &object["committed"]), (&workload.into(), &100.into()));
        assert_eq!((&object["audit"], &object["scheme"]), (&"ok".into(), &SCHEME[1].into()));
        assert_eq!((&object["commit"], &object["barrier_protocol"]), (&commit.into(), &barriers.into()));
    }
    let ran = duramen(&["check", arg(&home.dir)]).exits_with(0);
    has(&ran, &["account: 40 rows", "subscribers: 40", "orders:", "ok"]);
}

#[test]
fn check_stats_and_inspect_need_no_options() {
    let home = Home::with(&SCHEME).populated(&["--heap-mb", "8"]);
    let dir = arg(&home.dir);
    let heap = home.dir.join("heap");
    let before = std::fs::read(&heap).unwrap();
    let ran = duramen(&["inspect", "heap", dir]).exits_with(0);
    has(&ran, &["scheme: nvram-group-commit", "state: closed in order", "free, in 1 groups", "for undo information"]);
    has(&ran, &["\nbatch ", "new lines, 0 carried"]);
    has(&duramen(&["inspect", "page", dir, "2"]).exits_with(0), &["page 2: leaf", "checksum: none"]);
    let words = ["scheme: nvram-group-commit", "has no log", "inspect heap"];
    has(&duramen(&["inspect", "checkpoint", dir]).exits_with(0), &words);
    duramen(&["inspect", "log", dir]).exits_with(2).says(&["`nvram-group-commit` has no log", "inspect heap"]);
    assert!(std::fs::read(&heap).unwrap() == before, "looking changes nothing");
    has(&duramen(&["check", dir]).exits_with(0), &["structure:", "account: 400 rows", "ok"]);
    has(&duramen(&["stats", dir]).exits_with(0), &["heap pages", "barriers", "journals that are free"]);
    // Another protocol, and the report of a run.
    let ran = duramen(&home.bench(&["--transactions", "100", "--barriers", "paper"])).exits_with(0);
    has(&ran, &["changes of pages in ", " batches, ", "(paper; "]);
    has(&duramen(&["inspect", "heap", dir]).exits_with(0), &["old lines, committed, 0 carried"]);
    duramen(&["check", dir]).exits_with(0);
}

#[test]
fn what_does_not_apply_is_refused() {
    let home = Home::with(&SCHEME);
    let refused = |more: &[&str], words: &[&str]| {
        duramen(&home.bench(more)).exits_with(2).says(words);
        assert!(!home.dir.exists(), "{more:?}");
    };
    refused(&["--commit", "sync"], &["`sync`", "use `elr`"]);
    refused(&["--segment-mb", "1"], &["`--segment-mb`", "no log"]);
    refused(&["--logs", "2"], &["`nvram-group-commit` has no log"]);
    refused(&["--log-insert", "mutex"], &["no log that threads share"]);
    refused(&["--batch-ms", "0"], &["0.001 to 10000"]);
    refused(&["--heap-mb", "3"], &["4 MiB"]);
    refused(&["--heap-mb", "8", "--batch-log-mb", "5"], &["batch log", "half of the heap"]);
    let other = home.path("other");
    let args = ["bench", "tpcb", "--dir", arg(&other), "--batch-ms", "1"];
    duramen(&args).exits_with(2).says(&["`--batch-ms`", "require `--scheme nvram-group-commit`"]);
    assert!(!other.exists());
}
