//! The command-line contract, with the real binary.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use crate::common::{Home, Ran, arg, command, duramen, object};

fn new_home() -> Home {
    Home::with(&["--segment-mb", "1"])
}

#[test]
fn json_is_one_object_with_the_keys_of_the_contract() {
    let home = new_home();
    let ran = duramen(&home.bench(&["--transactions", "100", "--scale", "1", "--json"])).exits_with(0);
    assert_eq!(ran.stderr, "", "nobody watches");
    let object = object(&ran);
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut contract = vec!["workload", "clients", "seconds", "commit", "log_insert", "logs", "partition"];
    contract.extend(["log_device", "scheme", "committed", "tps", "aborted", "p50_us", "p95_us", "p99_us", "max_us"]);
    contract.extend(["log_bytes", "flushes", "syncs", "page_reads", "page_writes", "audit"]);
    contract.sort_unstable();
    assert_eq!(keys, contract);
    assert_eq!(object["workload"], "tpcb");
    assert_eq!(object["clients"], 4);
    assert_eq!(object["commit"], "pipelined");
    assert_eq!(object["log_insert"], "hybrid");
    assert_eq!(object["committed"], 100);
    assert_eq!(object["audit"], "ok");
    let number = |key: &str| object[key].as_f64().unwrap();
    assert!(number("seconds") > 0.0 && number("tps") > 0.0 && number("log_bytes") > 0.0);
    assert!(number("p50_us") <= number("p95_us") && number("p95_us") <= number("p99_us"));
    assert!(number("p99_us") <= number("max_us"));
}

#[test]
fn every_offered_combination_runs_on_one_database() {
    let home = new_home().populated(&[]);
    for commit in ["sync", "elr", "async"] {
        for design in ["mutex", "consolidated", "decoupled", "hybrid", "delegated", "reserved"] {
            let more = ["--transactions", "40", "--commit", commit, "--log-insert", design, "--json"];
            let object = object(&duramen(&home.bench(&more)).exits_with(0));
            assert_eq!(object["commit"], commit);
            assert_eq!(object["log_insert"], design);
            assert_eq!(object["audit"], "ok");
        }
    }
    for (logs, partition) in [("2", "transaction"), ("3", "page"), ("2", "round-robin")] {
        let other = new_home();
        let more = ["--transactions", "40", "--logs", logs, "--partition", partition, "--json"];
        let object = object(&duramen(&other.bench(&more)).exits_with(0));
        assert_eq!((&object["partition"], object["logs"].to_string()), (&partition.into(), logs.to_owned()));
        assert_eq!(object["audit"], "ok");
        duramen(&["check", arg(&other.dir)]).exits_with(0);
        duramen(&["inspect", "checkpoint", arg(&other.dir)]).exits_with(0);
        let ran = duramen(&["inspect", "log", arg(&other.dir), "--log", "1"]).exits_with(0);
        // Which log a transaction goes to may be up to chance.
        assert!(ran.stdout.contains("update") || partition != "page", "{ran:#?}");
        duramen(&other.bench(&["--transactions", "5"])).exits_with(2);
    }
    let full = ["--logs", "1", "--partition", "transaction", "--log-device", "file", "--scheme", "wal"];
    duramen(&[home.bench(&["--seconds", "0.1"]), full.to_vec()].concat()).exits_with(0);
    let more = ["--transactions", "20", "--no-uring", "--system-cache", "all", "--isolation", "read-committed"];
    duramen(&home.bench(&more)).exits_with(0);
}

#[test]
fn every_workload_runs_and_is_audited() {
    let home = new_home();
    for workload in duramen_workloads::selection::NAMES.iter().copied() {
        let mut args = vec!["bench", workload, "--dir", arg(&home.dir), "--rows-per-unit", "40", "--clients", "3"];
        args.extend(["--pool-mb", "8", "--scale", "1", "--transactions", "100", "--json"]);
        let object = object(&duramen(&args).exits_with(0));
        assert_eq!((&object["workload"], &object["committed"]), (&workload.into(), &100.into()));
        assert_eq!(object["audit"], "ok");
    }
    let ran = duramen(&["check", arg(&home.dir)]).exits_with(0);
    for word in ["account: 40 rows", "subscribers: 40", "orders:"] {
        assert!(ran.stdout.contains(word), "no `{word}` in {ran:#?}");
    }
}

#[test]
fn the_log_buffer_is_measured_alone() {
    let bench = ["bench", "log-insert", "--clients", "2", "--seconds", "0.2"];
    let ran = duramen(&[&bench[..], &["--record-bytes", "1000", "--json"]].concat()).exits_with(0);
    let lines: Vec<serde_json::Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let designs: Vec<_> = lines.iter().map(|line| line["log_insert"].as_str().unwrap()).collect();
    let all = ["memcpy", "add+memcpy", "mutex", "consolidated", "decoupled", "hybrid", "delegated", "reserved"];
    assert_eq!(designs, all.repeat(2));
    for line in &lines {
        assert_eq!((&line["workload"], &line["record_bytes"]), (&"log-insert".into(), &1000.into()));
        assert!(line["records_per_s"].as_f64().unwrap() > 0.0 && line["cpu_ns"].as_f64().unwrap() > 0.0, "{line}");
    }
    let ran = duramen(&[&bench[..], &["--log-insert", "reserved"]].concat()).exits_with(0);
    for word in ["memcpy", "add+memcpy", "reserved", "records/s", "records of 120 bytes"] {
        assert!(ran.stdout.contains(word), "no `{word}` in {ran:#?}");
    }
    duramen(&[&bench[..], &["--scale", "2"]].concat()).exits_with(2).says(&["--scale", "log-insert"]);
    duramen(&["bench", "tpcb", "--record-bytes", "100"]).exits_with(2).says(&["--record-bytes", "tpcb"]);
}

#[test]
fn the_device_is_measured_alone() {
    let home = new_home();
    let ran = duramen(&["bench", "device-sync", "--dir", arg(&home.dir), "--seconds", "0.2", "--json"]).exits_with(0);
    let object = object(&ran);
    assert!(object["writes"].as_u64().unwrap() > 0 && object["p50_us"].as_f64() <= object["max_us"].as_f64());
    assert_eq!(std::fs::read_dir(&home.dir).unwrap().count(), 0, "nothing is left behind");
    let ran = duramen(&["bench", "device-sync", "--dir", arg(&home.dir), "--seconds", "0.1"]).exits_with(0);
    assert!(ran.stdout.contains("durable writes") && ran.stdout.contains("p99"), "{ran:#?}");
}

#[test]
fn what_warms_up_is_not_measured() {
    let home = new_home();
    let warm = ["--warmup", "1", "--transactions", "20", "--json"];
    let object = object(&duramen(&home.bench(&warm)).exits_with(0));
    assert_eq!(object["committed"].as_u64(), Some(20));
    assert!(object["flushes"].as_u64().unwrap() < 100, "{object:?}");
    let check = duramen(&["check", arg(&home.dir)]).exits_with(0);
    assert!(!check.stdout.contains("history: 20 rows"), "nothing ran before: {check:#?}");
    duramen(&["bench", "device-sync", "--dir", arg(&home.dir), "--warmup", "1"]).exits_with(2).says(&["--warmup"]);
}

#[test]
fn threads_read_through_snapshots_during_a_run() {
    let home = new_home();
    let scans = ["--snapshots", "--scans", "2", "--seconds", "0.5"];
    let object = object(&duramen(&home.bench(&[&scans[..], &["--json"]].concat())).exits_with(0));
    let (scans_done, rows) = (object["scans"].as_u64().unwrap(), object["rows_scanned"].as_u64().unwrap());
    assert!(scans_done > 0 && rows >= 844 * scans_done, "{object:?}");
    assert_eq!(object["audit"], "ok");
    let ran = duramen(&home.bench(&scans)).exits_with(0);
    assert!(ran.stdout.contains("of the whole database"), "{ran:#?}");
    duramen(&home.bench(&["--scans", "1"])).exits_with(2).says(&["--snapshots"]);
}

#[test]
fn the_table_is_for_people() {
    let home = new_home();
    let ran = duramen(&home.bench(&["--seconds", "0.3", "--seed", "7"])).exits_with(0);
    for word in ["commits/s", "p99", "bytes per commit", "device syncs", "audit", "ok", "seed 7", "4 branches"] {
        assert!(ran.stdout.contains(word), "no `{word}` in {ran:#?}");
    }
    assert!(ran.stderr.contains("loaded 844 rows"), "{ran:#?}");
}

#[test]
fn the_end_of_the_log_may_be_in_persistent_memory() {
    let home = new_home();
    let nvm = ["--log-device", "nvm", "--ring-mb", "1"];
    for domain in ["durable-cache", "volatile-cache"] {
        let ran = duramen(&home.bench(&[&nvm[..], &["--domain", domain, "--seconds", "0.2", "--json"]].concat()))
            .exits_with(0);
        assert!(ran.stdout.contains("\"log_device\":\"nvm\"") && ran.stdout.contains(domain), "{ran:#?}");
        assert!(ran.stderr.contains("not a power cut"), "what is measured on is no persistent memory: {ran:#?}");
    }
    duramen(&["check", arg(&home.dir)]).exits_with(0);
    let several = new_home();
    let rings = ["ring", "second", "ring2"].map(|name| several.dir.with_extension(name));
    let more = ["--region", arg(&rings[0]), "--region", arg(&rings[1]), "--logs", "3", "--partition", "page"];
    for _ in 0..2 {
        duramen(&several.bench(&[&nvm[..], &more, &["--seconds", "0.2"]].concat())).exits_with(0);
    }
    assert!(rings.iter().all(|ring| ring.is_file()), "each log has a ring");
    duramen(&["check", arg(&several.dir)]).exits_with(0);
}

// `--region` with the name of the data file overwrote the catalog with zeros.
#[test]
fn a_region_that_is_a_file_of_the_database_is_refused() {
    let home = new_home().populated(&[]);
    let data = home.dir.join("data");
    let before = std::fs::read(&data).unwrap();
    let words = ["`log_device`", arg(&data), "name another file"];
    let more = ["--log-device", "nvm", "--ring-mb", "1", "--region", arg(&data), "--transactions", "5"];
    duramen(&home.bench(&more)).exits_with(2).says(&words);
    duramen(&["check", arg(&home.dir), "--log-device", "nvm", "--region", arg(&data)]).exits_with(2).says(&words);
    assert!(std::fs::read(&data).unwrap() == before, "it has not been touched");
    duramen(&["check", arg(&home.dir)]).exits_with(0);
}

#[test]
fn what_does_not_exist_is_refused_with_the_choice() {
    let home = new_home();
    duramen(&home.bench(&["--scheme", "paper"])).exits_with(2).says(&["--scheme", "unknown", "`wal`"]);
    duramen(&home.bench(&["--log-device", "tape"])).exits_with(2).says(&["unknown", "nvm"]);
    duramen(&home.bench(&["--domain", "durable-cache"])).exits_with(2).says(&["--domain", "--log-device nvm"]);
    duramen(&home.bench(&["--logs", "25"])).exits_with(2).says(&["--logs", "1 to 24"]);
    duramen(&home.bench(&["--partition", "table"])).exits_with(2).says(&["unknown", "`transaction`"]);
    duramen(&home.bench(&["--commit", "soon"])).exits_with(2).says(&["unknown", "elr"]);
    duramen(&home.bench(&["--clients", "0"])).exits_with(2).says(&["--clients"]);
    duramen(&home.bench(&["--seconds", "0"])).exits_with(2).says(&["--seconds"]);
    duramen(&home.bench(&["--seconds", "1", "--transactions", "5"])).exits_with(2).says(&["--transactions"]);
    duramen(&["bench", "log-insert", "--dir", arg(&home.dir)]).exits_with(2).says(&["--dir", "log-insert"]);
    duramen(&["bench", "device-sync", "--dir", arg(&home.dir), "--seed", "1"]).exits_with(2).says(&["--seed"]);
    duramen(&["bench", "tpcx", "--dir", arg(&home.dir)]).exits_with(2).says(&["unknown", "`tpcb`"]);
    duramen(&["frobnicate"]).exits_with(2);
    assert!(!home.dir.exists(), "a refused command makes nothing");
}

#[test]
fn help_documents_the_exit_codes() {
    for args in [&["--help"][..], &["bench", "--help"], &["check", "--help"]] {
        let ran = duramen(args).exits_with(0);
        assert!(ran.stdout.contains("Exit codes") && ran.stdout.contains("damage"), "{ran:#?}");
        assert!(!ran.stdout.contains("rows-per-unit"), "{ran:#?}");
    }
}

#[test]
fn another_scale_than_the_database_has_is_refused() {
    let home = new_home().populated(&[]);
    duramen(&home.bench(&["--transactions", "1", "--scale", "3"])).exits_with(2).says(&["2 branches", "3 branches"]);
    let ran = duramen(&["bench", "tpcb", "--dir", arg(&home.dir), "--transactions", "9", "--json"]).exits_with(0);
    assert_eq!(object(&ran)["committed"], 9);
}

#[test]
fn commands_that_read_make_nothing() {
    let home = new_home();
    let dir = arg(&home.dir);
    let commands = [
        &["check", dir][..],
        &["stats", dir],
        &["inspect", "log", dir],
        &["inspect", "page", dir, "2"],
        &["inspect", "table", dir, "t"],
        &["inspect", "checkpoint", dir],
    ];
    for args in commands {
        duramen(args).exits_with(1).says(&["no such directory"]);
        assert!(!home.dir.exists());
    }
    std::fs::create_dir(&home.dir).unwrap();
    for args in commands {
        duramen(args).exits_with(1).says(&["holds no database"]);
        assert_eq!(std::fs::read_dir(&home.dir).unwrap().count(), 0);
    }
    std::fs::write(home.dir.join("file"), b"").unwrap();
    let file = home.dir.join("file");
    duramen(&["check", arg(&file)]).exits_with(1).says(&["not a directory"]);
    duramen(&["check", dir, "--ledger", "/nonexistent/ledger"]).exits_with(1).says(&["/nonexistent/ledger"]);
}

#[test]
fn a_second_opener_is_told() {
    let home = new_home().populated(&[]);
    let mut args = home.bench(&["--seconds", "60"]);
    args.retain(|arg| *arg != "--json");
    let mut first = command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut progress = BufReader::new(first.stderr.take().unwrap()).lines();
    let running = progress.by_ref().map_while(Result::ok).any(|line| line.starts_with("running"));
    assert!(running, "the first opener got to work");
    let dir = arg(&home.dir);
    let more = home.bench(&["--transactions", "1"]);
    let copy = home.dir.join("copy");
    let commands = [&more[..], &["backup", dir, arg(&copy)], &["inspect", "log", dir], &["inspect", "checkpoint", dir]];
    let second: Vec<Ran> = commands.iter().map(|args| duramen(args)).collect();
    let (stats, check, dump) = (duramen(&["stats", dir]), duramen(&["check", dir]), duramen(&["dump", dir]));
    let table = duramen(&["inspect", "table", dir, "tpcb_account", "--keys", "2"]);
    first.kill().unwrap();
    first.wait().unwrap();
    for ran in second {
        ran.exits_with(1).says(&["in use"]);
    }
    // The first one answers these, but has no snapshots.
    let stats = stats.exits_with(0);
    for word in ["process", "has the database open", "control", "tpcb_history", "log end", "commits"] {
        assert!(stats.stdout.contains(word), "no `{word}` in {stats:#?}");
    }
    check.exits_with(1).says(&["snapshots"]);
    dump.exits_with(1).says(&["snapshots"]);
    let table = table.exits_with(0);
    for word in ["has the database open", "table `tpcb_account`", "400 records, 0 ghosts", "  100 bytes"] {
        assert!(table.stdout.contains(word), "no `{word}` in {table:#?}");
    }
    duramen(&["check", dir]).exits_with(0);
}

#[test]
fn check_stats_and_inspect_show_a_database() {
    let home = new_home().populated(&[]);
    let dir = arg(&home.dir);
    let ran = duramen(&["check", dir]).exits_with(0);
    for word in ["structure:", "history: 60 rows of 4 terminals", "account: 400 rows", "ok"] {
        assert!(ran.stdout.contains(word), "no `{word}` in {ran:#?}");
    }
    let ran = duramen(&["stats", dir]).exits_with(0);
    for word in ["control", "tpcb_history", "log end", "recovery"] {
        assert!(ran.stdout.contains(word), "no `{word}` in {ran:#?}");
    }
    let ran = duramen(&["inspect", "table", dir, "tpcb_branch", "--keys", "5"]).exits_with(0);
    assert!(ran.stdout.contains("0x0000000000000001  100 bytes"), "{ran:#?}");
    duramen(&["inspect", "table", dir, "nothing"]).exits_with(1).says(&["nothing"]);
    duramen(&["inspect", "checkpoint", dir]).exits_with(0);
    duramen(&["inspect", "page", dir, "2"]).exits_with(0);
    let ran = duramen(&["inspect", "log", dir, "--limit", "5"]).exits_with(0);
    assert!(ran.stdout.starts_with("         lsn"), "{ran:#?}");
}

#[test]
fn check_tells_lost_acknowledgements() {
    let home = new_home();
    let ledger = home.dir.with_extension("ledger");
    duramen(&home.bench(&["--transactions", "30", "--scale", "1", "--ledger", arg(&ledger)])).exits_with(0);
    let dir = arg(&home.dir);
    let ran = duramen(&["check", dir, "--ledger", arg(&ledger)]).exits_with(0);
    assert!(ran.stdout.contains("ledger: 30 acknowledged transactions"), "{ran:#?}");

    // The ledger of a longer run of another database: its rows are not here.
    let other = new_home();
    let longer = other.dir.with_extension("ledger");
    duramen(&other.bench(&["--transactions", "50", "--scale", "1", "--ledger", arg(&longer)])).exits_with(0);
    let ran = duramen(&["check", dir, "--ledger", arg(&longer)]).exits_with(3).says(&["damaged", "problems"]);
    assert!(ran.stdout.contains("problem: acknowledged transaction"), "{ran:#?}");

    std::fs::write(&ledger, [7; 70]).unwrap();
    // A file that is no ledger is neither cut nor appended to, whatever the workload.
    let refused = [&home.bench(&["--transactions", "30", "--ledger", arg(&ledger)])[..], &["--json"]].concat();
    duramen(&refused).exits_with(1).says(&["another file than a ledger"]);
    let other = ["bench", "ycsb:a", "--dir", arg(&other.dir), "--ledger", arg(&ledger)];
    duramen(&other).exits_with(2).says(&["only `tpcb` supports `--ledger`"]);
    assert_eq!(std::fs::read(&ledger).unwrap(), [7; 70]);
    duramen(&["check", dir, "--ledger", arg(&ledger)]).exits_with(1).says(&["record 0"]);
}

/// A process that may write nothing in `home`: another user's, if this is the superuser's, whom
/// nothing stops.
fn without_rights(home: &Home, args: &[&str]) -> Ran {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    fn set(path: &std::path::Path, writable: bool) {
        let is_directory = path.is_dir();
        if is_directory && writable {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        if is_directory {
            std::fs::read_dir(path).unwrap().for_each(|entry| set(&entry.unwrap().path(), writable));
        }
        let mode = if is_directory { 0o555 } else { 0o444 } | if writable { 0o200 } else { 0 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    set(home.root(), false);
    let mut command = command(args);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(65_534);
    }
    let ran = command.output().unwrap().into();
    set(home.root(), true);
    ran
}

// Where nothing can be written, every `inspect` said "in use", or that the database was out of
// service.
#[test]
fn a_database_is_inspected_where_nothing_can_be_written() {
    let home = new_home().populated(&[]);
    let dir = arg(&home.dir);
    // One that was closed, and one that is to be recovered.
    for crashed in [false, true] {
        if crashed {
            let mut args = home.bench(&["--seconds", "60"]);
            args.retain(|arg| *arg != "--json");
            let mut running = command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let mut progress = BufReader::new(running.stderr.take().unwrap()).lines();
            assert!(progress.by_ref().map_while(Result::ok).any(|line| line.starts_with("running")));
            running.kill().unwrap();
            running.wait().unwrap();
        }
        let before = contents(&home.dir);
        let ran = without_rights(&home, &["inspect", "checkpoint", dir]).exits_with(0);
        assert!(ran.stdout.contains("checkpoint"), "{ran:#?}");
        let ran = without_rights(&home, &["inspect", "log", dir, "--limit", "5"]).exits_with(0);
        assert!(ran.stdout.starts_with("         lsn"), "{ran:#?}");
        let ran = without_rights(&home, &["inspect", "page", dir, "2"]).exits_with(0);
        assert!(ran.stdout.contains("leaf"), "{ran:#?}");
        let ran = without_rights(&home, &["inspect", "table", dir, "tpcb_branch", "--keys", "5"]).exits_with(0);
        assert!(ran.stdout.contains("0x0000000000000001  100 bytes"), "{ran:#?}");
        // What has to write says why it cannot.
        for args in [&["check", dir][..], &["stats", dir]] {
            let ran =
                without_rights(&home, args).exits_with(1).says(&[dir, "cannot open the database", "Permission denied"]);
            let wrong = ["out of service", "transaction again", "in use"];
            assert!(!wrong.iter().any(|words| ran.stderr.contains(words)), "{ran:#?}");
        }
        assert!(contents(&home.dir) == before, "nothing has been changed");
    }
    // Nothing is made where it could be, either.
    std::fs::remove_file(home.dir.join("lock")).unwrap();
    duramen(&["inspect", "checkpoint", dir]).exits_with(0);
    assert!(!home.dir.join("lock").exists());
    duramen(&["check", dir]).exits_with(0);
}

/// Every file below `dir` with its contents.
fn contents(dir: &std::path::Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

// A pool that the system has no memory for ended the process, and one of an absurd size was a
// panic.
#[test]
fn too_much_memory_is_refused() {
    let home = new_home().populated(&[]);
    let dir = arg(&home.dir);
    duramen(&["check", dir, "--pool-mb", "1000000000"]).exits_with(2).says(&["`pool_bytes`", "8 TiB"]);
    let limited = format!("ulimit -v 4000000; exec '{}' check '{dir}' --pool-mb 100000", env!("CARGO_BIN_EXE_duramen"));
    let ran: Ran = std::process::Command::new("sh").args(["-c", &limited]).output().unwrap().into();
    ran.exits_with(1).says(&[dir, "cannot open the database", "104857600000 bytes of memory", "`pool_bytes`"]);
    duramen(&["check", dir]).exits_with(0);
}

// A table that was looked for in vain was to be made with `create_table`, which no command does.
#[test]
fn a_table_that_is_not_there_is_told_with_what_to_do() {
    let home = new_home().populated(&[]);
    let dir = arg(&home.dir);
    let ran = duramen(&["inspect", "table", dir, "nothing"]).exits_with(1);
    let ran = ran.says(&["no table `nothing`", dir, "`tpcb_branch`", "duramen stats"]);
    assert!(!ran.stderr.contains("create_table"), "{ran:#?}");
}

#[test]
fn an_archive_lies_beside_the_database() {
    let home = new_home();
    let inside = home.dir.join("archive");
    let cases = [
        (arg(&inside), "lies in the database's directory"),
        (arg(&home.dir), "is the database's own directory"),
        (arg(home.dir.parent().unwrap()), "contains the database's directory"),
    ];
    for made in [false, true] {
        for (archive, words) in cases {
            let ran = duramen(&home.bench(&["--archive", archive, "--transactions", "5"])).exits_with(2);
            ran.says(&["`archive`", archive, words, "outside it"]);
            assert!(!inside.exists() && home.dir.exists() == made, "nothing has been made");
        }
        duramen(&home.bench(&["--transactions", "5"])).exits_with(0);
    }
    let beside = home.dir.with_extension("archive");
    duramen(&home.bench(&["--transactions", "5", "--archive", arg(&beside)])).exits_with(0);
    // The database keeps it.
    duramen(&home.bench(&["--transactions", "5"])).exits_with(0);
    std::fs::remove_dir_all(&beside).unwrap();
    duramen(&home.bench(&["--transactions", "5"])).exits_with(2).says(&[arg(&beside), "`--no-archive`"]);
    duramen(&home.bench(&["--transactions", "5", "--no-archive"])).exits_with(0);
    duramen(&home.bench(&["--transactions", "5"])).exits_with(0);
}

#[test]
fn a_drained_tier_is_counted() {
    let home = new_home().populated(&["--tier-mb", "1"]);
    let dir = arg(&home.dir);
    let drained = duramen(&["tier", "drain", dir]).exits_with(0);
    let written: u64 = drained.stdout.split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert!(written > 0 && drained.stdout.contains("the page tier is removed"), "{drained:#?}");
    assert!(duramen(&["tier", "drain", dir]).exits_with(0).stdout.contains("has no page tier"));
    duramen(&["check", dir]).exits_with(0);
}
