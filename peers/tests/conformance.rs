//! The workloads' conformance suite over every engine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use duramen_peers::engines::{Durability, Engine, Isolation, Peer, Visit};
use duramen_workloads::store::conformance;
use duramen_workloads::{Limit, RunOptions};
use duramen_workloads::{Request, run};
use std::time::Duration;

/// Everything but serializability, in both durabilities, and again after closing and opening.
struct Conformance;

impl Visit for Conformance {
    type Output = ();

    fn visit<P: Peer>(self) {
        for durability in [Durability::Durable, Durability::Relaxed] {
            let home = tempfile::tempdir().unwrap();
            let store = P::open(home.path(), durability).unwrap();
            conformance::check(&store).unwrap();
            store.close().unwrap();
            let store = P::open(home.path(), durability).unwrap();
            assert!(store.find_table("conformance_rows").unwrap().is_some(), "tables outlive a close");
            store.close().unwrap();
        }
    }
}

/// An engine that is said to be serializable must pass; what the others do is told.
struct Serializability;

impl Visit for Serializability {
    type Output = ();

    fn visit<P: Peer>(self) {
        let home = tempfile::tempdir().unwrap();
        let store = P::open(home.path(), Durability::Relaxed).unwrap();
        let check = || conformance::check_serializability(&store).unwrap();
        if P::INFO.isolation == Isolation::Serializable {
            check();
        } else {
            let passed = catch_unwind(AssertUnwindSafe(check)).is_ok();
            println!("{}: {}; passed this time: {passed}", store.engine(), P::INFO.isolation);
        }
        store.close().unwrap();
    }
}

/// A small TPC-B with several clients, audited.
struct Audited;

impl Visit for Audited {
    type Output = ();

    fn visit<P: Peer>(self) {
        let home = tempfile::tempdir().unwrap();
        let store = P::open(home.path(), Durability::Durable).unwrap();
        let request = Request { scale: Some(1), rows_per_unit: Some(1_000), ..Request::default() };
        let workload = request.workload("tpcb", &store).unwrap();
        workload.load(&store, &mut |_| {}).unwrap();
        let options = RunOptions {
            clients: 4,
            rate: None,
            agents: 4,
            limit: Limit::Transactions(200),
            seed: 1,
            observe_every: Duration::from_secs(1),
        };
        let report = run(&store, &*workload, &options, &mut |_| {}).unwrap();
        assert_eq!(report.committed, 200);
        let audit = workload.audit(&store).unwrap();
        assert!(audit.is_ok(), "{audit}");
        drop(workload);
        store.close().unwrap();
    }
}

macro_rules! suite {
    ($($(#[$attribute:meta])* $module:ident: $engine:ident;)*) => {$(
        $(#[$attribute])*
        mod $module {
            use super::*;

            #[test]
            fn conforms() {
                Engine::$engine.visit(Conformance);
            }

            #[test]
            fn is_serializable_where_it_says_so() {
                Engine::$engine.visit(Serializability);
            }

            #[test]
            fn passes_an_audit() {
                Engine::$engine.visit(Audited);
            }
        }
    )*};
}

suite! {
    duramen: Duramen;
    #[cfg(feature = "rocksdb")]
    rocksdb: Rocksdb;
    surrealkv: Surrealkv;
    lmdb: Lmdb;
    redb: Redb;
    fjall: Fjall;
    sqlite: Sqlite;
}
