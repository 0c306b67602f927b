//! The example of the README, run twice in the same directory.

/// The README's code, with a directory of the test.
mod example {
    use std::path::Path;

    // --- the README's
    use duramen::{Db, Options};

    pub(super) fn run(bank: &Path) -> duramen::Result<()> {
        let db = Db::open(bank, Options::default())?;
        let accounts = db.table("accounts")?; // created by the first run

        let mut txn = db.begin();
        txn.put(&accounts, b"alice", b"100")?;
        txn.put(&accounts, b"bob", b"20")?;
        txn.commit()?; // on disk now

        db.run(|txn| {
            let balance = txn.get_for_update(&accounts, b"alice")?;
            assert_eq!(balance.as_deref(), Some(&b"100"[..]));
            txn.put(&accounts, b"alice", b"90")?;
            txn.put(&accounts, b"bob", b"30")
        })?; // runs the transaction again if it was the victim of a deadlock
        db.close()
    }
    // ---
}

#[test]
fn the_example_runs_twice() {
    let home = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        example::run(&home.path().join("bank")).unwrap();
    }
}

#[test]
fn the_readme_has_this_example() {
    let here = include_str!("readme.rs");
    let own = here.split("// ---").nth(1).unwrap().split_once('\n').unwrap().1;
    let own = own.replace("pub(super) fn run(bank: &Path)", "fn main()").replace("open(bank,", "open(\"bank\",");
    let readme = include_str!("../../../../README.md");
    let shown = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    assert_eq!(lines(&own), lines(shown));
}
