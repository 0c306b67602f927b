//! Simulated runs: each can be repeated, fresh seeds pass, and, where bugs can be planted, what is
//! to be noticed is noticed. In machine builds only:
//!
//! ```sh
//! RUSTFLAGS="--cfg duramen_machine --cfg duramen_planted" cargo test --profile instrumented \
//!     --target-dir target/machine -p duramen-torture --test simulation
//! ```
//!
//! A planted bug is there for the whole process, so one test runs at a time. And a panic of a
//! simulated thread ends the run within the process's panic hook, which never returns; the usual
//! harness waits for it at its end. So this one has its own.

fn main() {
    #[cfg(duramen_machine)]
    simulation::main();
}

#[cfg(duramen_machine)]
mod simulation {
    use duramen_machine::Tracing;
    use duramen_test_support::announced_seed;
    use duramen_torture::simulation::{Plan, Reached, Simulated};

    #[global_allocator]
    static ALLOCATOR: duramen_machine::Allocator = duramen_machine::Allocator;

    /// Runs the tests, or those with one of the words given in their names.
    pub(crate) fn main() {
        let tests: &[(&str, fn())] = &[
            ("a_seed_takes_the_same_path_each_time", a_seed_takes_the_same_path_each_time),
            ("a_trace_changes_nothing", a_trace_changes_nothing),
            ("fresh_seeds_pass", fresh_seeds_pass),
            #[cfg(duramen_planted)]
            ("runs_that_planted_bugs_fail_leave_nothing_behind", planted::failed_runs_leave_nothing_behind),
            #[cfg(duramen_planted)]
            ("planted_bugs_are_noticed", planted::bugs_are_noticed),
        ];
        let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        for (name, test) in
            tests.iter().filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word)))
        {
            println!("test {name} ...");
            test();
            println!("test {name} ... ok");
        }
    }

    fn path(run: &Simulated) -> (Result<u64, String>, u64, u64, Vec<u64>) {
        (run.result.clone(), run.operations, run.digest, run.probes.clone())
    }

    fn a_seed_takes_the_same_path_each_time() {
        for seed in 1..=12 {
            let plan = Plan::of(seed);
            let first = plan.run();
            assert!(first.operations > 1000, "{plan} does something");
            assert_eq!(path(&first), path(&plan.run()), "{plan}");
            let repeated: Plan = plan.to_string().parse().expect("what is printed can be read");
            assert_eq!(path(&first), path(&repeated.run()), "{plan}");
        }
    }

    fn a_trace_changes_nothing() {
        for seed in 1..=6 {
            let plan = Plan::of(seed);
            let traced = plan.run_traced(Some(Tracing { lines: 1000, operations: false }));
            assert_eq!(path(&plan.run()), path(&traced), "{plan}");
            assert!(traced.trace.iter().any(|line| line.contains("disk: ")), "{plan}");
        }
    }

    fn fresh_seeds_pass() {
        let first = announced_seed("simulations");
        let mut reached = Reached::default();
        for seed in (first..).take(10) {
            let plan = Plan::of(seed);
            let run = plan.run();
            reached.add(&plan, &run);
            if let Err(failure) = run.result {
                panic!("cargo sim --plan '{plan}' --trace\n{failure}");
            }
        }
        assert!(reached.missed().len() < reached.counts().count(), "no rare branch is reached at all");
    }

    #[cfg(duramen_planted)]
    mod planted {
        use duramen_torture::simulation::{Plan, hunt};
        use duramen_types::planted::{Bug, plant};

        /// Kilobytes of memory that the process has, and memory areas.
        fn memory() -> (u64, usize) {
            let status = std::fs::read_to_string("/proc/self/status").expect("the system tells about processes");
            let resident =
                status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("memory is among what it tells");
            let kilobytes = resident.trim().trim_end_matches(" kB").parse().expect("it is a number of kilobytes");
            let areas = std::fs::read_to_string("/proc/self/maps").expect("as before").lines().count();
            (kilobytes, areas)
        }

        /// A run that fails leaves threads, log buffers and open databases where they were.
        pub(super) fn failed_runs_leave_nothing_behind() {
            let _planted = plant(Bug::NotifierNotWoken);
            let failing = (1..).map(Plan::of).find(|plan| plan.run().result.is_err()).expect("some seed fails");
            let run = |times: usize| (0..times).for_each(|_| assert!(failing.run().result.is_err(), "{failing}"));
            // The allocator keeps the memory of a large disk image from time to time.
            let least = || {
                let measured: Vec<_> = (0..10).map(|_| (run(5), memory()).1).collect();
                measured.into_iter().min().expect("there are ten")
            };
            let (kilobytes, areas) = least();
            run(100);
            let (kilobytes_later, areas_later) = least();
            assert!(kilobytes_later < kilobytes + 20_000, "{kilobytes} kB became {kilobytes_later}");
            assert!(areas_later < areas + 50, "{areas} areas became {areas_later}");
        }

        /// One of each kind that needs few seeds; `cargo sim --planted` looks for all.
        pub(super) fn bugs_are_noticed() {
            let bugs = [Bug::SlotReusedEarly, Bug::DelegatedReleaseForgotten, Bug::HandOffLost, Bug::WaitPublishedLate];
            for bug in bugs.into_iter().chain([Bug::VictimNotWoken, Bug::ReadNotValidated, Bug::NotifierNotWoken]) {
                let hunted = hunt(bug, 1, 2000, |_| {});
                assert!(hunted.unrelated.is_empty(), "these fail without {bug:?} too: {:?}", hunted.unrelated);
                assert!(hunted.caught.is_some(), "{bug:?} was not noticed in {} seeds", hunted.seeds);
            }
        }
    }
}
