//! `duramen backup` and `duramen restore`, with the real binary: a backup under load, and restores
//! to several points.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Ran, arg, duramen};

struct Home {
    root: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A run of TPC-B whose log is archived.
    fn bench(&self, transactions: &str, more: &[&str]) -> serde_json::Value {
        let (db, archive) = (self.at("db"), self.at("archive"));
        let mut args = vec!["bench", "tpcb", "--dir", arg(&db), "--archive", arg(&archive), "--rows-per-unit", "2000"];
        args.extend(["--clients", "4", "--pool-mb", "4", "--segment-mb", "1", "--checkpoint-mb", "1", "--json"]);
        args.extend(["--transactions", transactions]);
        args.extend(more);
        serde_json::from_str(&duramen(&args).exits_with(0).stdout).unwrap()
    }

    /// Restores with archive and log.
    fn restore(&self, target: &Path, more: &[&str]) -> Ran {
        let (backup, db, archive) = (self.at("backup"), self.at("db"), self.at("archive"));
        let mut args = vec!["restore", arg(&backup), arg(target), "--archive", arg(&archive), "--log", arg(&db)];
        args.extend(more);
        duramen(&args)
    }
}

/// The number of entries in the history, as the audit prints it.
fn history(ran: &Ran) -> u64 {
    let number = |line: &str| line.split_whitespace().find_map(|word| word.replace(',', "").parse().ok());
    let line = ran.stdout.lines().find(|line| line.contains("history"));
    line.and_then(number).unwrap_or_else(|| panic!("{ran:#?}"))
}

#[test]
fn a_backup_under_load_is_restored_to_three_points_and_to_times() {
    three_points(&[]);
}

#[test]
fn so_it_is_with_several_logs() {
    three_points(&["--logs", "4", "--partition", "page"]);
}

fn three_points(logs: &[&str]) {
    let home = Home::new();
    let backup = home.at("backup");
    let run = home.bench("6000", &[&["--scale", "2", "--backup", arg(&backup)], logs].concat());
    let (begin, end) = (run["backup_end"].as_u64().unwrap(), run["log_end"].as_u64().unwrap());
    assert!(begin <= end && run["audit"] == "ok", "{run}");
    std::thread::sleep(Duration::from_millis(50));
    let between = now();
    std::thread::sleep(Duration::from_millis(50));
    home.bench("2000", logs);

    let alone = home.at("alone");
    let ran = duramen(&["restore", arg(&backup), arg(&alone)]).exits_with(0);
    assert!(ran.stdout.contains(&format!("restored to gsn {begin}")) && ran.stdout.ends_with("ok\n"), "{ran:#?}");
    let at_backup = history(&ran);
    let middle = ((begin + end) / 2).to_string();
    let in_the_middle = history(&home.restore(&home.at("middle"), &["--to", &middle]).exits_with(0));
    let at_end_of_run = history(&home.restore(&home.at("end"), &["--to", &end.to_string()]).exits_with(0));
    assert!(at_backup <= in_the_middle && in_the_middle <= at_end_of_run, "{at_backup} {in_the_middle}");
    assert_eq!(at_end_of_run, 6000);
    assert_eq!(history(&home.restore(&home.at("time"), &["--to", &between]).exits_with(0)), 6000);
    assert_eq!(history(&home.restore(&home.at("all"), &[]).exits_with(0)), 8000);

    // What has been restored is a database like any other.
    let again = home.at("again");
    duramen(&["backup", arg(&home.at("all")), arg(&again)]).exits_with(0);
    assert_eq!(history(&duramen(&["restore", arg(&again), arg(&home.at("twice"))]).exits_with(0)), 8000);
}

/// The present, as `--to` takes it.
fn now() -> String {
    duramen::Timestamp::now().to_string()
}

#[test]
fn what_cannot_be_restored_is_refused_with_what_to_do() {
    let home = Home::new();
    let backup = home.at("backup");
    home.bench("500", &["--scale", "1"]);
    let db = home.at("db");
    let archive = home.at("archive");
    let ran = duramen(&["backup", arg(&db), arg(&backup), "--archive", arg(&archive)]).exits_with(0);
    assert!(ran.stdout.starts_with("backup to gsn "), "{ran:#?}");
    duramen(&["backup", arg(&db), arg(&backup), "--archive", arg(&archive)]).exits_with(1).says(&["choose an empty"]);
    home.bench("18000", &[]);

    let target = home.at("target");
    home.restore(&target, &["--to", "yesterday"]).exits_with(2).says(&["neither a GSN nor a time"]);
    home.restore(&target, &["--to", "4096"]).exits_with(1).says(&["before the end of the backup"]);
    home.restore(&target, &["--to", &now()]).exits_with(1).says(&["choose an earlier point"]);
    home.restore(&db, &[]).exits_with(1).says(&["choose an empty"]);
    duramen(&["restore", arg(&home.at("nothing")), arg(&target)]).exits_with(1).says(&["does not exist"]);
    duramen(&["restore", arg(&archive), arg(&target)])
        .exits_with(1)
        .says(&["file `backup`, which every complete backup has, is missing"]);
    duramen(&["check", arg(&home.at("target"))]).exits_with(1);

    let mut segments: Vec<PathBuf> =
        std::fs::read_dir(archive.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    assert!(segments.len() > 3, "{segments:?}");
    let missing = &segments[segments.len() - 2];
    std::fs::remove_file(missing).unwrap();
    let named = missing.file_name().unwrap().to_str().unwrap();
    let ran = duramen(&["restore", arg(&backup), arg(&target), "--archive", arg(&archive)]).exits_with(1);
    ran.says(&[named]);
    // A point before it can be had.
    let ran = duramen(&["restore", arg(&backup), arg(&target)]).exits_with(0);
    assert_eq!(history(&ran), 500);
}
