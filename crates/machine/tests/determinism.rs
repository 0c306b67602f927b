//! A run depends on its plan and on nothing else; and what is noted about it changes nothing.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use duramen_machine::{
    Allocator, Description, Outcome, Plan, Report, Schedule, Time, Tracing, probe, run, shared, threads, trace,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Threads of the race.
const THREADS: u64 = 4;
/// Additions of each.
const ADDITIONS: u64 = 50;

/// Threads add to a number without protection, and so lose some of the additions; gives what is
/// left.
fn race() -> u64 {
    let number: Rc<AtomicU64> = Rc::default();
    let add = |number: Rc<AtomicU64>| {
        move || {
            for _ in 0..ADDITIONS {
                shared::load(&*number);
                let value = number.load(SeqCst);
                shared::store(&*number);
                if number.swap(value + 1, SeqCst) != value {
                    probe::reach(1, "Lost");
                }
                trace::note(|| format!("has added to {value}"));
            }
        }
    };
    let started: Vec<_> = (0..THREADS).map(|_| threads::spawn("adder", add(Rc::clone(&number))).unwrap()).collect();
    started.into_iter().for_each(|thread| assert!(threads::join(thread).is_none()));
    number.load(SeqCst)
}

fn raced(schedule: Schedule, tracing: Option<Tracing>) -> Report<u64> {
    let description = Description::named("server-2x64").expect("the machine exists");
    let plan = Plan { schedule, limit: Time::from_nanos(1 << 40), trace: tracing, ..Plan::new(description) };
    run(&plan, race)
}

fn result(report: &Report<u64>) -> u64 {
    let Outcome::Done(result) = report.outcome else { panic!("{:?}", report.outcome) };
    result
}

fn schedules() -> impl Iterator<Item = Schedule> {
    let seeds = 0..10;
    let random = seeds.clone().map(|seed| Schedule::Random { seed });
    let stalls = seeds.clone().map(|seed| Schedule::Stalls { seed, one_in: 20 });
    let priorities = seeds.map(|seed| Schedule::Priorities { seed, changes: 6, steps: 400 });
    random.chain(stalls).chain(priorities).chain([Schedule::Time])
}

#[test]
fn the_same_plan_takes_the_same_path() {
    for schedule in schedules() {
        let [first, second] = [raced(schedule, None), raced(schedule, None)];
        assert_eq!(
            (result(&first), first.digest, first.operations, first.time, &first.probes),
            (result(&second), second.digest, second.operations, second.time, &second.probes),
            "{schedule:?}"
        );
    }
}

/// A run whose threads have atomics `OFFSET` bytes further down their stacks.
fn on_stacks<const OFFSET: usize>(schedule: Schedule) -> (u64, u64, Time) {
    fn work<const OFFSET: usize>() -> u64 {
        let above = std::hint::black_box([1_u8; OFFSET]);
        let private = std::hint::black_box([const { AtomicU64::new(0) }; 20]);
        for number in &private {
            shared::store(number);
            shared::update(number);
            shared::load(number);
        }
        u64::from(above[OFFSET - 1])
    }
    let description = Description::named("server-2x64").expect("the machine exists");
    let report = run(&Plan { schedule, ..Plan::new(description) }, || {
        let deeper = threads::spawn("deeper", || assert_eq!(work::<OFFSET>(), 1)).unwrap();
        let raced = race();
        assert!(threads::join(deeper).is_none());
        raced * work::<OFFSET>()
    });
    (report.digest, result(&report), report.time)
}

#[test]
fn where_the_compiler_puts_variables_on_the_stack_does_not_matter() {
    for schedule in schedules() {
        let places = [
            on_stacks::<8>(schedule),
            on_stacks::<32>(schedule),
            on_stacks::<64>(schedule),
            on_stacks::<5000>(schedule),
        ];
        assert!(places.iter().all(|place| *place == places[0]), "{schedule:?}: {places:?}");
    }
}

#[test]
fn different_seeds_take_different_paths() {
    let mut digests: Vec<u64> = schedules().map(|schedule| raced(schedule, None).digest).collect();
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), count);
}

#[test]
fn schedules_that_look_for_bugs_find_the_race() {
    for schedule in schedules().filter(|schedule| *schedule != Schedule::Time) {
        let report = raced(schedule, None);
        let lost = result(&report) < THREADS * ADDITIONS;
        let few_switches = matches!(schedule, Schedule::Priorities { .. });
        assert!(lost || few_switches, "{schedule:?} loses no addition");
        assert_eq!(lost, report.probes.get(1).is_some_and(|times| *times > 0), "{schedule:?}");
    }
    let rare = |schedule| result(&raced(schedule, None)) < THREADS * ADDITIONS;
    assert!((0..10).any(|seed| rare(Schedule::Priorities { seed, changes: 6, steps: 400 })));
}

#[test]
fn tracing_changes_nothing() {
    for schedule in schedules() {
        let plain = raced(schedule, None);
        assert!(plain.trace.is_empty());
        for operations in [false, true] {
            let traced = raced(schedule, Some(Tracing { lines: 100_000, operations }));
            assert_eq!((plain.digest, plain.time), (traced.digest, traced.time), "{schedule:?}");
            let lines = |what: &str| traced.trace.iter().filter(|line| line.contains(what)).count() as u64;
            assert_eq!(lines("adder                has added to"), THREADS * ADDITIONS);
            assert_eq!(lines("adder                starts"), THREADS);
            assert_eq!(lines("Store 0x"), if operations { THREADS * ADDITIONS } else { 0 });
        }
    }
}

#[test]
fn a_trace_keeps_its_end() {
    let report = raced(Schedule::Random { seed: 1 }, Some(Tracing { lines: 10, operations: false }));
    assert_eq!(report.trace.len(), 11);
    assert!(report.trace[0].contains("earlier lines are left out"), "{}", report.trace[0]);
    assert!(report.trace[10].contains("main                 ends"), "{}", report.trace[10]);
}

/// If this changes, every seed that anybody has noted down means another run from now on.
#[test]
fn the_path_of_a_seed_is_the_same_everywhere() {
    let path = |schedule| {
        let report = raced(schedule, None);
        (result(&report), report.operations, report.digest)
    };
    let random = path(Schedule::Random { seed: 1 });
    let stalls = path(Schedule::Stalls { seed: 1, one_in: 20 });
    let priorities = path(Schedule::Priorities { seed: 1, changes: 6, steps: 400 });
    let known = [
        (75, 408, 9_998_063_301_264_881_538),
        (79, 408, 16_139_986_465_990_058_576),
        (173, 408, 401_476_088_033_374_424),
    ];
    assert_eq!([random, stalls, priorities], known);
}
