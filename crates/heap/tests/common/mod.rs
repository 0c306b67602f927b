//! A random program over a heap, a model of what each of its transactions leaves, and the search
//! for a power cut after which a heap is anything else.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use duramen_heap::{Addr, Domain, Error, Heap, HeapOptions, LogShape, Ptr, Root, SimMemory, Source, Survive, Tx};
use duramen_test_support::Rng;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Objects that a program can have at a time.
const PLACES: usize = 6;

/// The root: where the objects are, and their lengths.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Places {
    objects: [Addr; PLACES],
    lens: [u64; PLACES],
    transactions: u64,
}

impl Root for Places {
    const NAME: &'static str = "places, version 1";
}

/// What a heap holds: the root, and the bytes of each object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contents {
    transactions: u64,
    objects: [Option<Vec<u8>>; PLACES],
}

impl Contents {
    const EMPTY: Self = Self { transactions: 0, objects: [const { None }; PLACES] };
}

/// An operation of a transaction.
#[derive(Clone, Debug)]
enum Step {
    /// Frees what is at the place and allocates anew.
    Replace {
        place: usize,
        bytes: Vec<u8>,
    },
    Free {
        place: usize,
    },
    /// Overwrites a part.
    Write {
        place: usize,
        from: usize,
        bytes: Vec<u8>,
    },
    /// Logs all objects ahead.
    Log,
}

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Commit,
    Error,
    Panic,
}

/// A program: transactions one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    transactions: Vec<(Vec<Step>, End)>,
}

impl Program {
    pub(crate) fn random(rng: &mut Rng, transactions: usize) -> Self {
        let end = |rng: &mut Rng| match rng.below(10) {
            0 => End::Panic,
            1 => End::Error,
            _ => End::Commit,
        };
        let transactions = (0..transactions).map(|_| {
            let steps = (0..rng.within(1..5)).map(|_| Self::random_step(rng)).collect();
            (steps, end(rng))
        });
        Self { transactions: transactions.collect() }
    }

    fn random_step(rng: &mut Rng) -> Step {
        let place = rng.within(0..PLACES);
        match rng.below(10) {
            0..=3 => {
                let len = *rng.pick(&[8, 40, 64, 130]);
                Step::Replace { place, bytes: rng.bytes(len) }
            }
            4 => Step::Free { place },
            5 => Step::Log,
            _ => {
                let len = rng.within(1..80);
                Step::Write { place, from: rng.within(0..100), bytes: rng.bytes(len) }
            }
        }
    }

    /// Runs the program from transaction `from` on until the memory is off; returns how many have
    /// been acknowledged.
    fn run(&self, heap: &Heap, memory: &SimMemory) -> Result<u64, Error> {
        let root = heap.root::<Places>()?;
        let mut acknowledged = heap.atomic(|tx| Ok(tx.get(root)?.transactions))?;
        if memory.is_off() {
            return Ok(0);
        }
        let first = acknowledged as usize;
        for (steps, end) in &self.transactions[first..] {
            let body = || {
                heap.atomic(|tx| {
                    perform(tx, root, steps)?;
                    match end {
                        End::Commit => Ok(()),
                        End::Error => Err(Error::Aborted),
                        End::Panic => panic!("on purpose"),
                    }
                })
            };
            let ended = catch_unwind(AssertUnwindSafe(body));
            match (end, ended) {
                (End::Commit, Ok(Ok(()))) | (End::Error, Ok(Err(Error::Aborted))) | (End::Panic, Err(_)) => {}
                (_, Ok(Err(error))) => return Err(error),
                (end, _) => panic!("a transaction that should end with {end:?} did not"),
            }
            if *end != End::Commit {
                heap.atomic(|tx| tx.update(root, |places| places.transactions += 1))?;
            }
            if memory.is_off() {
                return Ok(acknowledged);
            }
            acknowledged += 1;
        }
        Ok(acknowledged)
    }

    /// Runs the program for a test that damages what it leaves.
    pub(crate) fn run_for_damage(&self, heap: &Heap, memory: &SimMemory) -> Result<u64, Error> {
        self.run(heap, memory)
    }

    /// What the heap must hold after each number of transactions.
    fn model(&self) -> Vec<Contents> {
        let mut states = vec![Contents::EMPTY];
        for (steps, end) in &self.transactions {
            let before = states.last().unwrap().clone();
            let mut state = before.clone();
            if *end == End::Commit {
                steps.iter().for_each(|step| model_step(&mut state, step));
            }
            state.transactions = before.transactions + 1;
            states.push(state);
        }
        states
    }
}

fn perform(tx: &mut Tx<'_>, root: Ptr<Places>, steps: &[Step]) -> Result<(), Error> {
    for step in steps {
        let mut places = tx.get(root)?;
        match step {
            Step::Replace { place, bytes } => {
                free(tx, &mut places, *place)?;
                let at = tx.alloc_bytes(bytes.len() as u64)?;
                tx.write(at, bytes)?;
                (places.objects[*place], places.lens[*place]) = (at, bytes.len() as u64);
                tx.set(root, places)?;
            }
            Step::Free { place } => {
                free(tx, &mut places, *place)?;
                tx.set(root, places)?;
            }
            Step::Write { place, from, bytes } => {
                let len = places.lens[*place];
                let (from, bytes) = part(*from, bytes, len as usize);
                if !bytes.is_empty() {
                    tx.write(places.objects[*place].plus(from as u64), bytes)?;
                }
            }
            Step::Log => {
                let objects = (0..PLACES).filter(|place| places.lens[*place] > 0);
                let extents: Vec<_> = objects.map(|place| (places.objects[place], places.lens[place])).collect();
                tx.log(&extents)?;
            }
        }
    }
    tx.update(root, |places| places.transactions += 1)
}

fn free(tx: &mut Tx<'_>, places: &mut Places, place: usize) -> Result<(), Error> {
    if !places.objects[place].is_null() {
        tx.free_bytes(places.objects[place])?;
        (places.objects[place], places.lens[place]) = (Addr::NULL, 0);
    }
    Ok(())
}

fn model_step(state: &mut Contents, step: &Step) {
    match step {
        Step::Replace { place, bytes } => state.objects[*place] = Some(bytes.clone()),
        Step::Free { place } => state.objects[*place] = None,
        Step::Write { place, from, bytes } => {
            if let Some(object) = &mut state.objects[*place] {
                let (from, bytes) = part(*from, bytes, object.len());
                object[from..from + bytes.len()].copy_from_slice(bytes);
            }
        }
        Step::Log => {}
    }
}

/// The part of a write that is within an object of `len` bytes.
fn part(from: usize, bytes: &[u8], len: usize) -> (usize, &[u8]) {
    if len == 0 {
        return (0, &[]);
    }
    let from = from % len;
    (from, &bytes[..bytes.len().min(len - from)])
}

/// Reads what a heap holds; the error says what is wrong with it.
fn contents(heap: &Heap) -> Result<Contents, String> {
    let root = heap.root::<Places>().map_err(|error| error.to_string())?;
    let read = heap.atomic(|tx| {
        let places = tx.get(root)?;
        let mut objects = [const { None }; PLACES];
        for (place, object) in objects.iter_mut().enumerate() {
            if !places.objects[place].is_null() {
                let mut bytes = vec![0; places.lens[place].min(4096) as usize];
                tx.read(places.objects[place], &mut bytes)?;
                *object = Some(bytes);
            }
        }
        Ok((places, Contents { transactions: places.transactions, objects }))
    });
    let (places, contents) = read.map_err(|error| format!("cannot be read: {error}"))?;
    let mut reachable: Vec<Addr> = places.objects.into_iter().filter(|at| !at.is_null()).collect();
    reachable.push(root.addr());
    reachable.sort_unstable();
    let live: Vec<Addr> = heap.objects().into_iter().map(|(at, _)| at).collect();
    if reachable != live {
        return Err(format!("{live:?} are live, but {reachable:?} can be reached"));
    }
    Ok(contents)
}

/// Reads a damaged heap.
pub(crate) fn read_damaged(heap: &Heap) -> Result<(), String> {
    contents(heap).map(drop)
}

/// How thorough a search is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    /// Images of each crash; all of them if there are no more.
    pub(crate) images: u64,
    /// One in so many images has its recovery crashed, at each operation.
    pub(crate) recoveries: u64,
}

/// What a search has tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    pub(crate) crashes: u64,
    pub(crate) complete: u64,
    pub(crate) images: u64,
    pub(crate) recoveries: u64,
    pub(crate) undone: u64,
}

pub(crate) fn options(domain: Domain) -> HeapOptions {
    let log = LogShape { slots: 2, buckets: 4, records: 4 };
    HeapOptions { log, domain, survive: Survive::PowerCut, ..HeapOptions::new(BYTES) }
}

/// A slab for each size class that programs use.
pub(crate) const BYTES: u64 = 4096 + 4 * 4 * 512 + (3 << 16);

/// Cuts the power at every operation of the program, from the making of the heap on, and checks
/// what is left. Returns the first failure.
pub(crate) fn search(program: &Program, domain: Domain, depth: Depth, tried: &mut Tried) -> Result<(), String> {
    let model = program.model();
    for operation in 0.. {
        let memory = SimMemory::new(BYTES, domain);
        memory.crash_at(operation);
        let acknowledged = match Heap::open(&Source::Simulated(memory.clone()), &options(domain)) {
            Ok(heap) => program.run(&heap, &memory).map_err(|error| format!("operation {operation}: {error}"))?,
            Err(error) => return Err(format!("operation {operation}: cannot be made: {error}")),
        };
        tried.crashes += 1;
        let images = memory.images(depth.images, operation);
        tried.complete += u64::from(images.are_all());
        for (survivors, image) in images {
            tried.images += 1;
            let at = || format!("operation {operation}, {survivors:?}");
            if depth.recoveries > 0 && tried.images.is_multiple_of(depth.recoveries) {
                crash_recovery(&image, domain, &model, acknowledged, tried)
                    .map_err(|what| format!("{}: {what}", at()))?;
            }
            let undone = check(image, domain, &model, acknowledged).map_err(|what| format!("{}: {what}", at()))?;
            tried.undone += u64::from(undone);
        }
        if !memory.is_off() {
            return Ok(());
        }
    }
    Ok(())
}

/// Opens an image and compares it with the model; the next transaction must work. Returns whether
/// something was undone.
fn check(image: SimMemory, domain: Domain, model: &[Contents], acknowledged: u64) -> Result<bool, String> {
    let source = Source::Simulated(image);
    let heap = Heap::open(&source, &options(domain)).map_err(|error| format!("does not open: {error}"))?;
    let undone = heap.recovered().transactions > 0;
    let found = contents(&heap)?;
    let is_expected = found.transactions >= acknowledged && model.get(found.transactions as usize) == Some(&found);
    if !is_expected {
        let expected = model.get(found.transactions as usize);
        return Err(format!("{acknowledged} acknowledged, found {found:?}, expected {expected:?}"));
    }
    // What was undone must stay undone, and new changes must stay.
    let root = heap.root::<Places>().map_err(|error| error.to_string())?;
    heap.atomic(|tx| tx.update(root, |places| places.transactions += 1 << 32)).map_err(|error| error.to_string())?;
    drop(heap);
    let heap = Heap::open(&source, &options(domain)).map_err(|error| format!("does not open again: {error}"))?;
    let again = contents(&heap)?;
    let expected = Contents { transactions: found.transactions + (1 << 32), objects: found.objects };
    if heap.recovered().transactions > 0 || again != expected {
        return Err(format!("after another transaction: {again:?}, expected {expected:?}"));
    }
    Ok(undone)
}

/// Cuts the power at every operation of the image's recovery.
fn crash_recovery(
    image: &SimMemory,
    domain: Domain,
    model: &[Contents],
    acknowledged: u64,
    tried: &mut Tried,
) -> Result<(), String> {
    for operation in 0.. {
        let copy = image.crash_image(duramen_pmem::Survivors::Everything, None);
        copy.crash_at(operation);
        drop(Heap::open(&Source::Simulated(copy.clone()), &options(domain)).map_err(|error| error.to_string())?);
        for (survivors, again) in copy.images(8, operation) {
            tried.recoveries += 1;
            check(again, domain, model, acknowledged)
                .map_err(|what| format!("recovery crashed at {operation}, {survivors:?}: {what}"))?;
        }
        if !copy.is_off() {
            return Ok(());
        }
    }
    Ok(())
}

/// Keeps the messages of panics on purpose out of the output.
pub(crate) fn quiet_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>().is_none_or(|text| *text != "on purpose") {
            default(info);
        }
    }));
}

/// Two threads move amounts between accounts on a heap whose power goes off at some operation. The
/// sum must stay, and each thread's count be at least what was acknowledged. Returns the first
/// failure.
pub(crate) fn threads(seed: u64, domain: Domain) -> Result<u64, String> {
    const ACCOUNTS: u64 = 4;
    #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    struct Bank {
        accounts: [Ptr<[u64; 8]>; ACCOUNTS as usize],
        done: [Ptr<u64>; 2],
    }
    impl Root for Bank {
        const NAME: &'static str = "bank, version 1";
    }
    let mut rng = Rng::new(seed);
    let memory = SimMemory::new(BYTES, domain);
    let heap = Heap::open(&Source::Simulated(memory.clone()), &options(domain)).unwrap();
    let root = heap.root::<Bank>().unwrap();
    heap.atomic(|tx| {
        let mut bank = tx.get(root)?;
        for account in &mut bank.accounts {
            *account = tx.alloc([100; 8])?;
        }
        for done in &mut bank.done {
            *done = tx.alloc(0)?;
        }
        tx.set(root, bank)
    })
    .unwrap();
    let bank = heap.atomic(|tx| tx.get(root)).unwrap();
    memory.crash_at(memory.operations() + rng.below(600));
    let seeds = [rng.bits(), rng.bits()];
    let work = |thread: usize| {
        let mut rng = Rng::new(seeds[thread]);
        let mut acknowledged = 0;
        for _ in 0..60 {
            let (from, to) = (bank.accounts[rng.within(0..4)], bank.accounts[rng.within(0..4)]);
            let (field, amount) = (rng.within(0..8), rng.below(50));
            let (refuse, yields) = (rng.percent(15), rng.percent(30));
            let moved = heap.atomic(|tx| {
                let has = tx.get(from.element(field))?;
                tx.set(from.element(field), has.wrapping_sub(amount))?;
                // Lets the other thread come in between, also on one processor.
                if yields {
                    std::thread::yield_now();
                }
                if refuse {
                    return Err(Error::Aborted);
                }
                tx.update(to.element(field), |has| *has = has.wrapping_add(amount))?;
                tx.update(bank.done[thread], |done| *done += 1)?;
                Ok(())
            });
            match moved {
                Err(Error::Aborted) => {}
                moved => moved.unwrap(),
            }
            if memory.is_off() {
                break;
            }
            acknowledged += u64::from(!refuse);
        }
        acknowledged
    };
    let acknowledged = std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| scope.spawn(move || work(thread)));
        threads.map(|thread| thread.join().unwrap())
    });
    let conflicts = heap.stats().conflicts;
    for (survivors, image) in memory.images(24, seed) {
        let opened = Heap::open(&Source::Simulated(image), &options(domain));
        let heap = opened.map_err(|error| format!("{survivors:?}: does not open: {error}"))?;
        let (sums, done) = heap
            .atomic(|tx| {
                let mut sums = BTreeMap::new();
                for account in bank.accounts {
                    for (field, has) in tx.get(account)?.into_iter().enumerate() {
                        let sum: &mut u64 = sums.entry(field).or_default();
                        *sum = sum.wrapping_add(has);
                    }
                }
                Ok((sums, [tx.get(bank.done[0])?, tx.get(bank.done[1])?]))
            })
            .map_err(|error| format!("{survivors:?}: {error}"))?;
        let is_whole = sums.values().all(|sum| *sum == 100 * ACCOUNTS);
        if !is_whole || done.iter().zip(&acknowledged).any(|(done, acknowledged)| done < acknowledged) {
            return Err(format!("{survivors:?}: sums {sums:?}, done {done:?}, acknowledged {acknowledged:?}"));
        }
    }
    Ok(conflicts)
}
