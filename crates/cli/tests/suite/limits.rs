//! Databases under low limits of the system: on open files, and on the size of files.

use std::path::Path;
use std::process::Command;

use duramen::{Db, Options};

use crate::common::{Ran, arg};

/// Runs the command as a process that may have 64 files open.
fn limited(args: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_duramen")]).args(args);
    command.output().expect("the command can be started").into()
}

/// Makes a database with more segments in its logs than that, and leaves it as a crash would.
fn many_segments(dir: &Path, logs: u16) -> usize {
    let options = Options {
        logs,
        log_segment_bytes: 64 << 10,
        log_buffer_bytes: 64 << 10,
        checkpoint_bytes: Some(1 << 30),
        ..Options::default()
    };
    let db = Db::open(dir, options).unwrap();
    let table = db.create_table("t").unwrap();
    for round in 0..30_u8 {
        let mut txn = db.begin();
        for key in 0..100_u32 {
            txn.put(&table, &key.to_be_bytes(), &[round; 4000]).unwrap();
        }
        txn.commit().unwrap();
    }
    drop(db);
    let logs = (0..logs).map(|log| if log == 0 { "log".to_owned() } else { format!("log{log}") });
    logs.map(|log| std::fs::read_dir(dir.join(log)).unwrap().count()).sum()
}

/// Every segment of a log was kept open: 200 of them could not be opened under a limit of 64 files,
/// by `check` or anything else ("Too many open files").
#[test]
fn many_segments_need_few_open_files() {
    for logs in [1, 4] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("db");
        let segments = many_segments(&dir, logs);
        assert!(segments > 150, "{segments}");
        limited(&["inspect", "log", arg(&dir)]).exits_with(0);
        let ran = limited(&["check", arg(&dir)]).exits_with(0);
        assert!(ran.stdout.contains("100"), "{ran:#?}");
        let mut bench = vec!["bench", "tpcb", "--dir", arg(&dir), "--rows-per-unit", "200", "--transactions", "200"];
        let logs = logs.to_string();
        bench.extend(["--scale", "1", "--clients", "4", "--logs", &logs, "--json"]);
        limited(&bench).exits_with(0);
        limited(&["check", arg(&dir)]).exits_with(0);
    }
}

/// A file that may not become as long as it should is a full disk (the limit on the size of files,
/// or that of the file system): the database went out of service.
#[test]
fn a_limit_on_the_size_of_files_is_no_failure_of_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let mut command = Command::new("sh");
    // 20 MB, or 40 MB with some shells; the first segment becomes longer.
    command.args(["-c", "trap '' XFSZ; ulimit -f 40000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_duramen")]);
    command.args(["bench", "tpcb", "--dir", arg(&dir), "--rows-per-unit", "200", "--transactions", "300000"]);
    let ran = Ran::from(command.output().unwrap()).exits_with(1);
    let ran = ran.says(&["no space", "cannot allocate", ".log`: File too large"]);
    assert!(!ran.stderr.contains("out of service"), "{ran:#?}");
}
