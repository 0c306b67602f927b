//! Prints what a new database with one table and one commit costs: time, memory, disk.
//!
//! `cargo run --release -p duramen --example footprint -- DIRECTORY` (or `memory`).
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use duramen::{Db, Options};

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn on_disk(path: &Path) -> u64 {
    let Ok(found) = std::fs::symlink_metadata(path) else { return 0 };
    let own = if found.is_dir() { 0 } else { found.blocks() / 2 };
    let inner = std::fs::read_dir(path).into_iter().flatten().map(|entry| on_disk(&entry.unwrap().path()));
    own + inner.sum::<u64>()
}

fn list(path: &Path) {
    for entry in std::fs::read_dir(path).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path);
        } else {
            println!("  {} {} KiB, length {}", path.display(), on_disk(&path), path.metadata().unwrap().len());
        }
    }
}

fn main() -> duramen::Result<()> {
    let place = std::env::args().nth(1).unwrap();
    let is_memory = place == "memory";
    let before = resident();
    let start = Instant::now();
    let db = if is_memory { Db::in_memory(Options::default())? } else { Db::open(&place, Options::default())? };
    let opened = start.elapsed();
    let table = db.table("t")?;
    let tabled = start.elapsed();
    let mut txn = db.begin();
    txn.put(&table, b"key", b"value")?;
    txn.commit()?;
    println!("open {opened:?}, table {tabled:?}, commit {:?}", start.elapsed());
    println!("memory {} KiB over {before}", resident() - before);
    println!("disk {} KiB", on_disk(Path::new(&place)));
    list(Path::new(&place));
    std::thread::sleep(std::time::Duration::from_secs(2));
    println!("later: memory {} KiB, disk {} KiB", resident() - before, on_disk(Path::new(&place)));
    let start = Instant::now();
    db.close()?;
    println!("close {:?}, disk {} KiB", start.elapsed(), on_disk(Path::new(&place)));
    let start = Instant::now();
    if !is_memory {
        let db = Db::open(&place, Options::default())?;
        println!("reopen {:?}", start.elapsed());
        db.close()?;
    }
    list(Path::new(&place));
    Ok(())
}
