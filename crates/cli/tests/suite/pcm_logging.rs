//! The scheme `pcm-logging` on the command line: workloads, inspection and messages.

use crate::common::{Home, Ran, arg, duramen, every_workload, object};

const SCHEME: [&str; 2] = ["--scheme", "pcm-logging"];

fn has(ran: &Ran, words: &[&str]) {
    for word in words {
        assert!(ran.stdout.contains(word), "no `{word}` in {ran:#?}");
    }
}

#[test]
fn every_workload_runs_and_is_audited() {
    let home = Home::with(&SCHEME);
    let ways = [("volatile-cache", "pipelined", "fewest", "page"), ("durable-cache", "sync", "paper", "tuple")];
    for (workload, (domain, commit, barriers, granularity)) in every_workload(&ways) {
        let mut args = vec!["bench", workload, "--dir", arg(&home.dir), "--rows-per-unit", "40", "--clients", "3"];
        args.extend(["--pool-mb", "8", "--scale", "1", "--transactions", "100", "--json", "--commit", commit]);
        args.extend(SCHEME);
        args.extend(["--pcm-mb", "8", "--domain", domain, "--barriers", barriers]);
        args.extend(["--granularity", granularity]);
        let object = object(&duramen(&args).exits_with(0));
        assert_eq!((&object["workload"], &object["committed"]), (&workload.into(), &100.into()));
        assert_eq!((&object["audit"], &object["scheme"]), (&"ok".into(), &SCHEME[1].into()));
        assert_eq!((&object["commit"], &object["barrier_protocol"]), (&commit.into(), &barriers.into()));
        let has_tuples = object["tuples_to_pcm"].as_u64().unwrap() > 0;
        assert!(!has_tuples || granularity == "tuple", "{object:?}");
    }
    let ran = duramen(&["check", arg(&home.dir)]).exits_with(0);
    has(&ran, &["account: 40 rows", "subscribers: 40", "orders:", "ok"]);
}

#[test]
fn check_stats_and_inspect_need_no_options() {
    let home = Home::with(&SCHEME).populated(&["--pcm-mb", "2"]);
    let dir = arg(&home.dir);
    let pcm = home.dir.join("pcm");
    let before = std::fs::read(&pcm).unwrap();
    let ran = duramen(&["inspect", "pcm", dir]).exits_with(0);
    has(&ran, &["state: closed in order", "slots: 216, ", " free, ", "\npages: "]);
    assert!(!ran.stdout.contains("damaged") && !ran.stdout.contains("note:"), "{}", ran.stdout);
    has(&duramen(&["inspect", "page", dir, "2"]).exits_with(0), &["page 2: leaf", "checksum: ok"]);
    has(&duramen(&["inspect", "checkpoint", dir]).exits_with(0), &["scheme: pcm-logging", "has no log", "inspect pcm"]);
    duramen(&["inspect", "log", dir]).exits_with(2).says(&["`pcm-logging` has no log", "inspect pcm"]);
    duramen(&["inspect", "heap", dir]).exits_with(2).says(&["`pcm-logging`, which has no heap", "inspect pcm"]);
    assert!(std::fs::read(&pcm).unwrap() == before, "looking changes nothing");
    has(&duramen(&["check", dir]).exits_with(0), &["structure:", "account: 400 rows", "ok"]);
    has(&duramen(&["stats", dir]).exits_with(0), &["pages in PCM", "barriers", "pages written back"]);
    // Another protocol, and the report of a run.
    let ran = duramen(&home.bench(&["--transactions", "100", "--barriers", "paper"])).exits_with(0);
    has(&ran, &["written to PCM", "(paper; "]);
    duramen(&["check", dir]).exits_with(0);
    // Tuples.
    let ran = duramen(&home.bench(&["--transactions", "100", "--granularity", "tuple"])).exits_with(0);
    assert!(ran.stdout.contains(" tuples; ") && !ran.stdout.contains(" 0 tuples; "), "{ran:#?}");
    let ran = duramen(&["inspect", "pcm", dir]).exits_with(0);
    assert!(ran.stdout.contains("\ntuples: ") && !ran.stdout.contains("\ntuples: 0 "), "{ran:#?}");
    for page in 2..12_u64 {
        let ran = duramen(&["inspect", "page", dir, &page.to_string()]).exits_with(0);
        assert!(ran.stdout.contains("checksum: ok") || ran.stdout.contains("blank"), "{ran:#?}");
    }
    has(&duramen(&["stats", dir]).exits_with(0), &["tuples in PCM", "records read as tuples"]);
    duramen(&["check", dir]).exits_with(0);
}

#[test]
fn what_does_not_apply_is_refused() {
    let home = Home::with(&SCHEME);
    let refused = |more: &[&str], words: &[&str]| {
        duramen(&home.bench(more)).exits_with(2).says(words);
        assert!(!home.dir.exists(), "{more:?}");
    };
    refused(&["--commit", "async"], &["`async`", "use `sync`"]);
    refused(&["--segment-mb", "1"], &["`--segment-mb`", "no log"]);
    refused(&["--logs", "2"], &["`pcm-logging` has no log"]);
    refused(&["--log-insert", "mutex"], &["no log that threads share"]);
    refused(&["--heap-mb", "8"], &["`--heap-mb`", "`--scheme in-place`"]);
    refused(&["--residence", "direct"], &["`--residence`", "`--scheme in-place`"]);
    refused(&["--granularity", "record"], &["--granularity", "`page`, `tuple`"]);
    duramen(&["bench", "tpcb", "--dir", arg(&home.dir), "--granularity", "tuple"])
        .exits_with(2)
        .says(&["`--granularity` requires `--scheme pcm-logging`"]);
    refused(&["--pcm-mb", "0"], &["--pcm-mb"]);
    let other = home.path("other");
    let args = ["bench", "tpcb", "--dir", arg(&other), "--pcm-mb", "1"];
    duramen(&args).exits_with(2).says(&["`--pcm-mb`", "requires `--scheme pcm-logging`"]);
    assert!(!other.exists());
}
