//! The heap of a database as a file, whatever the scheme: made, named, damaged, exchanged.

use std::ops::ControlFlow;
use std::path::Path;

use duramen::pmem::{Domain, Source, Survive};
use duramen::{BatchOptions, Db, Error, HeapOptions, Options, Residence, Scheme};

const MIB: u64 = 1 << 20;

/// A scheme with a heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HeapScheme {
    InPlace,
    GroupCommit,
}

const SCHEMES: [HeapScheme; 2] = [HeapScheme::InPlace, HeapScheme::GroupCommit];

impl HeapScheme {
    fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::GroupCommit => "nvram-group-commit",
        }
    }

    fn in_file(self, path: &Path, bytes: u64) -> Options {
        let heap = HeapOptions::new(Source::File(path.to_owned()), bytes, Domain::VolatileCache);
        let heap = HeapOptions { survive: Survive::Process, ..heap };
        let scheme = match self {
            Self::InPlace => Scheme::InPlace(heap),
            Self::GroupCommit => {
                Scheme::NvramGroupCommit(heap, BatchOptions { log_bytes: Some(MIB), ..BatchOptions::default() })
            }
        };
        Options { scheme, ..Options::default() }
    }
}

#[test]
fn a_heap_belongs_to_one_database_and_a_database_to_its_heap() {
    for scheme in SCHEMES {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (home.path().join("first"), home.path().join("second"));
        let heap = |name: &str| scheme.in_file(&home.path().join(name), 4 * MIB);
        Db::open(&first, heap("a")).unwrap().close().unwrap();
        // Another database cannot have it.
        let refused = Db::open(&second, heap("a")).unwrap_err();
        assert!(matches!(&refused, Error::InvalidOption { option: "scheme", .. }), "{refused}");
        Db::open(&second, heap("b")).unwrap().close().unwrap();
        let refused = Db::open(&first, heap("b")).unwrap_err();
        assert!(refused.to_string().contains("another database"), "{refused}");
        // Nor can a file of something else become one.
        std::fs::write(home.path().join("c"), vec![5; 4 << 20]).unwrap();
        let refused = Db::open(home.path().join("third"), heap("c")).unwrap_err();
        assert!(refused.to_string().contains("something else"), "{refused}");
        assert_eq!(std::fs::read(home.path().join("c")).unwrap(), vec![5; 4 << 20]);
        // The scheme stays.
        let refused = Db::open(&first, Options::default()).unwrap_err();
        assert!(refused.to_string().contains(scheme.name()), "{refused}");
        let with_log = home.path().join("with-log");
        Db::open(&with_log, Options::default()).unwrap().close().unwrap();
        let refused = Db::open(&with_log, heap("d")).unwrap_err();
        assert!(refused.to_string().contains("wal"), "{refused}");
        // A heap that is missing.
        std::fs::remove_file(home.path().join("a")).unwrap();
        let refused = Db::open(&first, heap("a")).unwrap_err();
        assert!(refused.to_string().contains("does not exist"), "{refused}");
        assert!(!home.path().join("a").exists());
    }
}

/// A new heap is tried before anything else is made. A kill in between leaves its file.
#[test]
fn a_heap_that_was_only_tried_is_no_obstacle() {
    for scheme in SCHEMES {
        let home = tempfile::tempdir().unwrap();
        let heap = home.path().join("heap");
        let options = scheme.in_file(&heap, 16 * MIB);
        std::fs::write(&heap, [b'x'; 64 << 10]).unwrap();
        let error = Db::open(home.path(), options.clone()).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "scheme", .. }), "{error}");
        std::fs::write(&heap, [0; 64 << 10]).unwrap();
        let error = Db::open(home.path(), Options::default()).unwrap_err();
        assert!(matches!(error, Error::NotADatabase { .. }), "{error}");
        for tried in [0, 64 << 10, 16 * MIB as usize] {
            std::fs::write(&heap, vec![0; tried]).unwrap();
            Db::open(home.path(), options.clone()).unwrap().close().unwrap();
            for entry in home.path().read_dir().unwrap() {
                std::fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    }
}

/// Pages of a heap have no checksums, so the checksum of a large value tells.
#[test]
fn a_damaged_large_value_is_not_returned() {
    for (scheme, residence) in [
        (HeapScheme::InPlace, Residence::Cached),
        (HeapScheme::InPlace, Residence::Direct),
        (HeapScheme::GroupCommit, Residence::Cached),
    ] {
        let home = tempfile::tempdir().unwrap();
        let (dir, path) = (home.path().join("db"), home.path().join("heap"));
        let mut options = scheme.in_file(&path, 8 * MIB);
        if let Scheme::InPlace(heap) = &mut options.scheme {
            heap.residence = residence;
        }
        let db = Db::open(&dir, options.clone()).unwrap();
        let table = db.create_table("t").unwrap();
        let value = [b'#'; 40_000];
        db.run(|txn| txn.put(&table, b"large", &value)).unwrap();
        db.close().unwrap();
        let mut heap = std::fs::read(&path).unwrap();
        let found: Vec<usize> = (0..heap.len() - 64).filter(|&at| heap[at..at + 64] == [b'#'; 64]).collect();
        for at in found {
            heap[at + 10] = b'!';
        }
        std::fs::write(&path, &heap).unwrap();
        let db = Db::open(&dir, options).unwrap();
        let table = db.table("t").unwrap();
        let got = db.begin().get(&table, b"large");
        assert!(matches!(got, Err(Error::Corrupt { .. })), "{scheme:?} {residence:?}: {:?}", got.map(|_| ()));
        let parts = db.begin().get_in_parts(&table, b"large", |_| ControlFlow::Continue(()));
        assert!(matches!(parts, Err(Error::Corrupt { .. })), "{scheme:?} {residence:?}: {parts:?}");
    }
}

/// An older copy of the heap beside a newer control file.
#[test]
fn an_older_heap_is_refused() {
    for scheme in SCHEMES {
        let home = tempfile::tempdir().unwrap();
        let (dir, path) = (home.path().join("db"), home.path().join("heap"));
        let options = scheme.in_file(&path, 4 * MIB);
        Db::open(&dir, options.clone()).unwrap().close().unwrap();
        let old = std::fs::read(&path).unwrap();
        for _ in 0..2 {
            Db::open(&dir, options.clone()).unwrap().close().unwrap();
        }
        std::fs::write(&path, &old).unwrap();
        let refused = Db::open(&dir, options).unwrap_err();
        assert!(refused.to_string().contains("older copy"), "{refused}");
    }
}

#[test]
fn a_damaged_header_is_refused_and_nothing_panics() {
    for scheme in SCHEMES {
        use std::os::unix::fs::FileExt;
        let home = tempfile::tempdir().unwrap();
        let (dir, path) = (home.path().join("db"), home.path().join("heap"));
        let options = scheme.in_file(&path, 4 * MIB);
        Db::open(&dir, options.clone()).unwrap().close().unwrap();
        let good = std::fs::read(&path).unwrap();
        // With batches, the header has their length, too.
        let of_batches = (scheme == HeapScheme::GroupCommit).then_some((48, 1 << 40));
        let of_all = [(0, 7), (40, 1 << 40), (192, 9), (512, 1 << 51), (512, u64::MAX), (512, 0)];
        for (at, value) in of_all.into_iter().chain(of_batches) {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&u64::to_le_bytes(value), at).unwrap();
            drop(file);
            let refused = Db::open(&dir, options.clone()).unwrap_err();
            assert!(matches!(&refused, Error::Corrupt { .. } | Error::NotADatabase { .. }), "{at}: {refused}");
            std::fs::write(&path, &good).unwrap();
        }
        // A heap that has lost its end does not grow.
        std::fs::write(&path, &good[..good.len() - 8192]).unwrap();
        let refused = Db::open(&dir, scheme.in_file(&path, 16 * MIB)).unwrap_err();
        assert!(matches!(&refused, Error::NotADatabase { .. }), "{refused}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), good.len() as u64 - 8192);
        std::fs::write(&path, &good).unwrap();
        Db::open(&dir, options).unwrap().close().unwrap();
    }
}

/// What an interrupted creation left is used.
#[test]
fn a_heap_that_was_being_made_is_made_again() {
    for scheme in SCHEMES {
        let home = tempfile::tempdir().unwrap();
        for (number, len) in [0, 4096, 1 << 20, 3 << 20].into_iter().enumerate() {
            let (dir, path) = (home.path().join(format!("db{number}")), home.path().join(format!("heap{number}")));
            std::fs::write(&path, vec![0; len]).unwrap();
            let opened = Db::open(&dir, scheme.in_file(&path, 4 * MIB));
            // A very short file of zeros cannot be told from a user's.
            if len == 4096 {
                assert!(opened.is_err());
            } else {
                opened.unwrap().close().unwrap();
            }
        }
    }
}
