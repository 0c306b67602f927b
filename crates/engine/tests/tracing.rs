//! What subscribers of the `tracing` crate see of a database.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use duramen::{Db, Error, Options};
use duramen_io::{CrashChoice, Fault, SimDisk};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Notes each span and event as a line.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Notes {
    fn note(&self, line: Line) {
        self.0.lock().unwrap().push(line.0);
    }

    /// Returns the lines since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "duramen"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("span {}", span.metadata().name()));
        span.record(&mut line);
        self.note(line);
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.note(line);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn what_takes_long_and_what_goes_wrong_is_told() {
    let notes = Notes::default();
    tracing::subscriber::set_global_default(notes.clone()).unwrap();
    let has = |lines: &[String], parts: &[&str]| {
        let found = lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?} in {lines:#?}");
    };

    let disk = SimDisk::new(1);
    let options = || Options { pool_bytes: 1 << 20, ..Options::small() };
    let db = Db::open_on(Arc::new(disk.clone()), options()).unwrap();
    let table = db.create_table("t").unwrap();
    has(&notes.take(), &["span open database="]);
    for row in 0..100_u8 {
        db.run(|txn| txn.put(&table, &[row], &[1; 100])).unwrap();
    }
    let lines = notes.take();
    assert!(lines.is_empty(), "single operations are not told: {lines:#?}");
    db.checkpoint().unwrap();
    has(&notes.take(), &["span checkpoint log_bytes="]);

    let image = disk.crash_image(&CrashChoice::Nothing);
    drop(db);
    notes.take();
    let db = Db::open_on(Arc::new(image.clone()), options()).unwrap();
    let lines = notes.take();
    has(&lines, &["span recover"]);
    has(&lines, &["INFO message=open log_bytes=", "losers=0", "micros="]);
    db.backup_to(&SimDisk::new(2), |_| {}).unwrap();
    has(&notes.take(), &["span backup to="]);
    db.close().unwrap();
    has(&notes.take(), &["span close"]);

    let db = Db::open_on(Arc::new(image.clone()), options()).unwrap();
    let table = db.table("t").unwrap();
    image.fail_at(image.operations(), Fault::Eio, true);
    let error = db.run(|txn| txn.put(&table, b"k", b"v")).unwrap_err();
    assert!(matches!(error, Error::Io { .. } | Error::Poisoned { .. }), "{error}");
    has(&notes.take(), &["ERROR message=the database is out of service", "reason="]);
}
