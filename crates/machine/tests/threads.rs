//! Simulated threads: starting, joining, sleeping, waiting at words, sharing contexts; and the ways
//! a run ends.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use duramen_machine::{
    Allocator, Category, Description, Outcome, Plan, Report, Schedule, Time, cost, futex, run, shared, threads,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// A cell that simulated threads share.
type Shared = Rc<AtomicU64>;

fn load(cell: &AtomicU64) -> u64 {
    shared::load(cell);
    cell.load(SeqCst)
}

fn store(cell: &AtomicU64, value: u64) {
    shared::store(cell);
    cell.store(value, SeqCst);
}

fn plan(schedule: Schedule) -> Plan {
    let description = Description::named("server-2x64").expect("the machine exists");
    Plan { schedule, limit: Time::from_nanos(1_000_000_000), max_operations: 1_000_000, ..Plan::new(description) }
}

/// A plan of each kind.
fn plans() -> Vec<Plan> {
    let schedules = [
        Schedule::Time,
        Schedule::Random { seed: 3 },
        Schedule::Stalls { seed: 4, one_in: 10 },
        Schedule::Priorities { seed: 5, changes: 5, steps: 100 },
    ];
    schedules.map(plan).into()
}

fn done<T: std::fmt::Debug>(report: Report<T>) -> T {
    match report.outcome {
        Outcome::Done(result) => result,
        other => panic!("the run ends, but like this: {other:?}"),
    }
}

/// One thread alone that runs on, operation by operation, once kept those asleep whose time had
/// come from running at all.
#[test]
fn a_sleeper_runs_on_in_time_though_another_never_rests() {
    for plan in plans() {
        let looked = run(&plan, || {
            let cell: Shared = Rc::default();
            let sleeper = {
                let cell = Rc::clone(&cell);
                threads::spawn("sleeper", move || {
                    threads::sleep(Time::from_nanos(100_000));
                    store(&cell, 1);
                })
                .expect("there is memory for a stack")
            };
            let mut looked = 0;
            while load(&cell) == 0 {
                looked += 1;
            }
            assert!(threads::join(sleeper).is_none());
            looked
        });
        let looked = done(looked);
        assert!(looked < 500_000, "{:?}: looked {looked} times", plan.schedule);
    }
}

/// A thread whose own time was ahead of the clock once spun until the clock had come as far.
#[test]
fn a_spin_ends_though_its_thread_is_ahead_of_the_clock() {
    for plan in plans().into_iter().filter(|plan| !matches!(plan.schedule, Schedule::Time)) {
        let looked = run(&plan, || {
            let (word, cell): (Shared, Shared) = Default::default();
            let spinner = {
                let cell = Rc::clone(&cell);
                threads::spawn("spinner", move || {
                    cost::busy(Time::from_nanos(100_000_000));
                    assert_eq!(load(&word), 0);
                    shared::pause(1);
                    store(&cell, 1);
                })
                .expect("there is memory for a stack")
            };
            let mut looked = 0;
            while load(&cell) == 0 {
                looked += 1;
            }
            assert!(threads::join(spinner).is_none());
            looked
        });
        let looked = done(looked);
        assert!(looked < 500_000, "{:?}: looked {looked} times", plan.schedule);
    }
}

/// Sleep once counted as nothing, and contention that sleeps as idleness.
#[test]
fn time_asleep_is_that_of_what_the_thread_works_on() {
    let report = run(&plan(Schedule::Time), || {
        let before = threads::usage().breakdown;
        {
            let _log = cost::scope(Category::Log);
            threads::sleep(Time::from_nanos(5000));
        }
        threads::sleep(Time::from_nanos(100));
        let spent = threads::usage().breakdown.since(&before);
        (spent.blocked(Category::Log), spent.blocked(Category::Work))
    });
    let (log, work) = done(report);
    assert!(log >= Time::from_nanos(5000) && log < Time::from_nanos(20_000), "{log:?}");
    assert!(work >= Time::from_nanos(100) && work < log, "{work:?}");
}

#[test]
fn a_thread_returns_after_those_it_joins() {
    for plan in plans() {
        let sum = run(&plan, || {
            let cell: Shared = Rc::default();
            let started: Vec<_> = (1..=5)
                .map(|number| {
                    let cell = Rc::clone(&cell);
                    threads::spawn("adder", move || {
                        shared::update(&*cell);
                        cell.fetch_add(number, SeqCst);
                    })
                    .unwrap()
                })
                .collect();
            for thread in started {
                assert!(threads::join(thread).is_none());
                assert!(threads::has_ended(thread));
            }
            load(&cell)
        });
        assert_eq!(done(sum), 15);
    }
}

#[test]
fn a_panic_goes_to_the_joining_thread_and_no_further() {
    for plan in plans() {
        let report = run(&plan, || {
            let thread = threads::spawn("careless", || std::panic::resume_unwind(Box::new(7_u32))).unwrap();
            let panic = threads::join(thread).expect("it has panicked");
            *panic.downcast::<u32>().expect("with a number")
        });
        assert_eq!(done(report), 7);
    }
}

#[test]
fn a_panic_of_the_first_thread_is_that_of_the_run() {
    for plan in plans() {
        let run = || run(&plan, || std::panic::resume_unwind(Box::new("stop here")));
        let panic = catch_unwind(AssertUnwindSafe(run)).map(|_: Report<()>| ()).expect_err("the run panics");
        assert_eq!(*panic.downcast::<&str>().expect("with what the thread panicked with"), "stop here");
    }
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    for plan in plans() {
        let order = run(&plan, || {
            let order: Rc<Cell<u64>> = Rc::default();
            let started: Vec<_> = [3000, 1000, 2000]
                .map(|micros| {
                    let order = Rc::clone(&order);
                    threads::spawn("sleeper", move || {
                        let before = shared::now().expect("in a run there is a time");
                        threads::sleep(Time::from_nanos(micros * 1000));
                        assert!(shared::now().expect("as before").saturating_sub(before).nanos() >= micros * 1000);
                        order.set(order.get() * 10 + micros / 1000);
                    })
                    .unwrap()
                })
                .into();
            started.into_iter().for_each(|thread| assert!(threads::join(thread).is_none()));
            order.get()
        });
        assert_eq!(done(order), 123);
    }
}

#[test]
fn a_waiter_at_a_word_is_woken_or_times_out() {
    for plan in plans() {
        let report = run(&plan, || {
            let word: Shared = Rc::default();
            let waiter = {
                let word = Rc::clone(&word);
                threads::spawn("waiter", move || {
                    let unchanged = || word.load(SeqCst) == 0;
                    let address = Rc::as_ptr(&word) as usize;
                    while load(&word) == 0 {
                        assert!(futex::wait(address, unchanged, None), "without a deadline it is woken");
                    }
                })
                .unwrap()
            };
            threads::sleep(Time::from_nanos(50_000));
            store(&word, 1);
            let woken = futex::wake(Rc::as_ptr(&word) as usize, usize::MAX);
            assert!(woken <= 1, "nobody else waits");
            assert!(threads::join(waiter).is_none());
            let before = shared::now().expect("in a run there is a time");
            let late = futex::wait(Rc::as_ptr(&word) as usize, || true, Some(Time::from_nanos(10_000)));
            assert!(!late, "nobody wakes it");
            let changed = futex::wait(Rc::as_ptr(&word) as usize, || false, None);
            assert!(changed, "a word that has changed is not waited at");
            shared::now().expect("as before").saturating_sub(before).nanos()
        });
        assert!(done(report) >= 10_000);
    }
}

#[test]
fn waiting_for_each_other_is_reported() {
    for plan in plans() {
        let report = run(&plan, || {
            let word: Shared = Rc::default();
            let address = Rc::as_ptr(&word) as usize;
            let stuck = threads::spawn("stuck", move || {
                futex::wait(address, || true, None);
            });
            threads::join(stuck.unwrap());
        });
        let Outcome::Deadlock(waits) = &report.outcome else { panic!("nobody can go on: {:?}", report.outcome) };
        assert!(waits.contains("0 main: waits for the end of stuck"), "{waits}");
        assert!(waits.contains("1 stuck: waits to be woken"), "{waits}");
    }
}

#[test]
fn a_run_that_never_ends_is_ended() {
    for plan in plans() {
        for limited in [Plan { max_operations: 5000, ..plan.clone() }, Plan { limit: Time::from_nanos(9_000), ..plan }]
        {
            let report = run(&limited, || {
                let cell: Shared = Rc::default();
                loop {
                    load(&cell);
                }
            });
            let outcome: &Outcome<()> = &report.outcome;
            assert!(matches!(outcome, Outcome::OutOfTime(_)), "{outcome:?}");
            assert!(report.operations <= limited.max_operations.saturating_add(1));
        }
    }
}

/// Counts what is dropped.
struct Dropped(Rc<Cell<u64>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn stopping_and_aborting_drop_nothing() {
    // A host's cell: the run's memory goes with it.
    let drops: Rc<Cell<u64>> = Rc::default();
    for plan in plans() {
        for why in [None, Some("the ledge is wet")] {
            let dropped = Rc::clone(&drops);
            let report = run(&plan, move || {
                let _held = Dropped(Rc::clone(&dropped));
                let stopper = threads::spawn("stopper", move || {
                    let _held = Dropped(dropped);
                    match why {
                        None => threads::stop(),
                        Some(why) => threads::abort(why),
                    }
                });
                threads::join(stopper.unwrap());
            });
            match (&report.outcome, why) {
                (Outcome::Stopped, None) => {}
                (Outcome::Aborted(said), Some(why)) => assert_eq!(said, why),
                (other, _) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(drops.get(), 0);
}

#[test]
fn threads_that_share_a_context_have_slices() {
    let plan = plan(Schedule::Time);
    let contexts = plan.description.contexts();
    let quantum = plan.description.quantum();
    // One thread more than contexts: two of them take turns, and both have ended after about the
    // time that both need.
    let report = run(&Plan { limit: Time::NEVER, max_operations: u64::MAX, ..plan }, move || {
        let work = move || {
            let cell: Shared = Rc::default();
            let end = quantum.times(3);
            let begun = threads::processor_time();
            while threads::processor_time().saturating_sub(begun) < end {
                cost::work(100_000);
                load(&cell);
            }
        };
        let started: Vec<_> = (0..contexts).map(|_| threads::spawn("worker", work).unwrap()).collect();
        work();
        started.into_iter().for_each(|thread| assert!(threads::join(thread).is_none()));
        threads::usage().involuntary_switches
    });
    let time = report.time;
    assert!(done(report) > 0, "nobody gives up a context of its own accord");
    assert!(time > quantum.times(3), "two threads need more than the time of one");
}
