//! The crash sweep: a script runs until the power goes off at a chosen disk operation. The suite
//! opens every state that the disk may then have, checks it, compares it with the model and
//! continues to work on it. It may crash again, also within recovery.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use duramen::{Db, Error, Options};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::Arc;

use crate::client::{Client, Stop};
use crate::harness::{Budget, Coverage, Phase, Tally, guarded};
use crate::model::Model;
use crate::step::Step;
use crate::world::{LogEnd, Operations, World};
use duramen_test_support::Rng;

/// Longest time that a run, or a sampled crash point, may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A source of scripts with the options that make them interesting.
pub trait CrashWorkload: Send + Sync {
    /// Returns what commands call it.
    fn name(&self) -> &'static str;

    /// Options for a run; they may vary with the seed.
    fn options(&self, seed: u64) -> Options;

    /// Options with which the database is opened again after a crash or a fault.
    fn later_options(&self, seed: u64) -> Options {
        self.options(seed)
    }

    /// Returns an empty disk for a run.
    fn disk(&self, seed: u64) -> SimDisk {
        SimDisk::new(seed)
    }

    /// Returns a script for a database that holds `start`: the same for the same seed and start.
    fn script(&self, seed: u64, start: &Model) -> Vec<Step>;
}

/// How thorough a sweep is.
#[derive(Clone, Copy, Debug)]
pub struct Thoroughness {
    /// Crash points of a run.
    pub points: Coverage,
    /// Images drawn at random for each crash point, besides the fixed ones.
    pub random_images: usize,
    /// Images of each crash point on which the workload goes on, and crashes again.
    pub continued: Coverage,
    /// Crash points within the recovery from an image (of one image for each crash point).
    pub recovery_points: Coverage,
    /// The longest time that one crash point with all its images may take.
    pub limit: Duration,
    /// Where the end of the log is kept.
    pub log: LogEnd,
}

impl Thoroughness {
    /// Everything, for long runs.
    pub const ALL: Self = Self {
        points: Coverage::All,
        random_images: 6,
        continued: Coverage::All,
        recovery_points: Coverage::All,
        limit: Duration::from_secs(600),
        log: LogEnd::Files,
    };
    /// A sample that takes seconds.
    pub const SAMPLE: Self = Self {
        points: Coverage::Sample(60),
        random_images: 2,
        continued: Coverage::Sample(1),
        recovery_points: Coverage::Sample(2),
        limit: LIMIT,
        log: LogEnd::Files,
    };
}

/// One image of a crashed disk, as commands name it: `nothing`, `everything`, `subset:BITS` or
/// `random:SEED`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image(pub CrashChoice);

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CrashChoice::Nothing => f.write_str("nothing"),
            CrashChoice::Everything => f.write_str("everything"),
            CrashChoice::Subset(bits) => write!(f, "subset:{bits}"),
            CrashChoice::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

impl FromStr for Image {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse().map_err(|_| format!("`{digits}` is not a number"));
        match text.split_once(':') {
            None if text == "nothing" => Ok(Self(CrashChoice::Nothing)),
            None if text == "everything" => Ok(Self(CrashChoice::Everything)),
            Some(("subset", bits)) => Ok(Self(CrashChoice::Subset(number(bits)?))),
            Some(("random", seed)) => Ok(Self(CrashChoice::Random(number(seed)?))),
            _ => Err(format!("`{text}` is not one of nothing, everything, subset:BITS, random:SEED")),
        }
    }
}

/// Returns the images to check when `unsynced` changes may survive or not: all combinations of a
/// few changes, the extremes of many, and some random ones, which may tear writes.
pub fn images(unsynced: usize, random: usize, rng: &mut Rng) -> Vec<Image> {
    let mut images = match unsynced {
        0 => return vec![Image(CrashChoice::Nothing)],
        1..=3 => (0..1 << unsynced).map(|bits| Image(CrashChoice::Subset(bits))).collect(),
        _ => vec![Image(CrashChoice::Nothing), Image(CrashChoice::Everything)],
    };
    images.extend((0..random).map(|_| Image(CrashChoice::Random(rng.bits() >> 32))));
    images
}

/// A run that the power cut short.
struct Crashed {
    world: World,
    /// What the database may hold: the acknowledged contents, with or without what was in flight.
    candidates: Vec<Model>,
}

/// Opens a database, which must work, and compares it with what it may hold.
///
/// # Errors
/// What is wrong, for people.
pub fn open_and_compare(disk: &SimDisk, options: &Options, candidates: &[Model]) -> Result<(Db, Model), String> {
    let db = Db::open_on(Arc::new(disk.clone()), options.clone()).map_err(|error| format!("does not open: {error}"))?;
    let found = compare(&db, candidates)?;
    Ok((db, found))
}

/// As [`open_and_compare`], for a database that may need more than a disk.
fn open_in(world: &World, options: &Options, candidates: &[Model]) -> Result<(Db, Model), String> {
    open_and_compare(&world.disk, &world.options(options), candidates)
}

/// Checks the structure of `db` and that its contents are one of `candidates`, and gives them back.
///
/// # Errors
/// What is wrong, for people.
pub fn compare(db: &Db, candidates: &[Model]) -> Result<Model, String> {
    let found = Model::read_from(db).map_err(|error| format!("cannot be read: {error}"))?;
    if !candidates.contains(&found) {
        let differences = candidates.iter().filter_map(|model| model.difference(&found)).collect::<Vec<_>>();
        return Err(format!("wrong contents: {}", differences.join("; or else ")));
    }
    let report = db.check().map_err(|error| format!("cannot be checked: {error}"))?;
    if !report.is_ok() {
        return Err(format!("structural check: {}", report.problems.join("; ")));
    }
    Ok(found)
}

fn is_disk_failure(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Poisoned { .. } | Error::OpenFailed { .. })
}

/// Runs `steps` until the end or the crash, and leaves the disk without power.
fn run_until_crash(mut client: Client, world: &World, steps: &[Step]) -> Result<Crashed, String> {
    let disk = &world.disk;
    let stop = client.run(steps, |error| world.on_error(error));
    let mut candidates = vec![client.oracle.committed.clone()];
    match stop {
        Ok(()) => {}
        Err(Stop::Wrong(text)) => return Err(text),
        Err(Stop::Error { step, error, in_flight }) => {
            if disk.crashed_in().is_none() {
                return Err(format!("{step}: fails before any crash: {error}"));
            }
            if !is_disk_failure(&error) {
                return Err(format!("{step}: a dead disk is reported as: {error}"));
            }
            candidates.extend(in_flight.map(|model| *model));
        }
    }
    disk.crash();
    drop(client);
    Ok(Crashed { world: world.clone(), candidates })
}

fn crash_run(workload: &dyn CrashWorkload, seed: u64, op: u64, log: LogEnd) -> Result<Crashed, String> {
    let options = workload.options(seed);
    let world = World::new(workload.disk(seed), log, &options);
    world.crash_at(op);
    match Client::open(&world.disk, &world.options(&options), Model::default()) {
        Ok(client) => run_until_crash(client, &world, &workload.script(seed, &Model::default())),
        Err(error) if world.disk.crashed_in().is_some() && is_disk_failure(&error) => {
            Ok(Crashed { world, candidates: vec![Model::default()] })
        }
        Err(error) => Err(format!("opening an empty disk: {error}")),
    }
}

/// Which situations of one crash point to check; `None` where the sweep decides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Only {
    /// This image alone.
    pub image: Option<Image>,
    /// This crash within the recovery from the image alone, and the image of that crash.
    pub recovery: Option<(u64, Image)>,
}

/// Checks all images of a crash point. Returns the number of databases compared.
fn point(
    workload: &dyn CrashWorkload,
    seed: u64,
    op: u64,
    thoroughness: Thoroughness,
    only: Only,
    phase: &Phase,
) -> Result<u64, String> {
    let log = thoroughness.log.argument();
    let repeat = format!("torture crash --workload {}{log} --seed {seed} --op {op}", workload.name());
    phase.enter(format!("[{repeat}] running"));
    let crashed = crash_run(workload, seed, op, thoroughness.log)?;
    let mut rng = Rng::new(seed ^ op.rotate_left(32));
    let mut chosen = images(crashed.world.unsure(), thoroughness.random_images, &mut rng);
    if let Some(image) = only.image {
        chosen = vec![image];
    }
    let recovery_from = rng.within(0..chosen.len());
    let continued = thoroughness.continued.choose(chosen.len(), &mut rng);
    let options = workload.later_options(seed);
    let mut checks = 0;
    for (number, image) in chosen.into_iter().enumerate() {
        let repeat = format!("{repeat} --image {image}");
        if only.recovery.is_none() {
            phase.enter(format!("[{repeat}] reopening"));
            let world = crashed.world.crash_image(&image.0);
            let (db, model) = open_in(&world, &options, &crashed.candidates)?;
            checks += 1;
            if continued.contains(&number) {
                phase.enter(format!("[{repeat}] continuing, crashing again"));
                checks += work_on(workload, db, &world, &options, model, seed ^ op)?;
            }
        }
        if only.recovery.is_some() || number == recovery_from {
            checks += crash_recovery(&crashed, image, &options, thoroughness, only, &mut rng, (phase, &repeat))?;
        }
    }
    Ok(checks)
}

/// More transactions on a recovered database, with a further crash at a random operation, compared
/// again.
fn work_on(
    workload: &dyn CrashWorkload,
    db: Db,
    world: &World,
    options: &Options,
    model: Model,
    seed: u64,
) -> Result<u64, String> {
    let mut rng = Rng::new(seed);
    let steps = workload.script(rng.bits(), &model);
    world.crash_soon(&mut rng);
    let client = Client::with(db, &world.disk, &world.options(options), model);
    let crashed = run_until_crash(client, world, &steps)?;
    let image = *rng.pick(&images(crashed.world.unsure(), 1, &mut rng.clone()));
    let world = crashed.world.crash_image(&image.0);
    let (db, model) = open_in(&world, options, &crashed.candidates)
        .map_err(|failure| format!("after the second crash ({image}): {failure}"))?;
    db.close().map_err(|error| format!("does not close: {error}"))?;
    open_in(&world, options, &[model]).map_err(|failure| format!("after closing: {failure}"))?;
    Ok(2)
}

/// Crashes within the recovery from one image.
fn crash_recovery(
    crashed: &Crashed,
    image: Image,
    options: &Options,
    thoroughness: Thoroughness,
    only: Only,
    rng: &mut Rng,
    (phase, repeat): (&Phase, &str),
) -> Result<u64, String> {
    phase.enter(format!("[{repeat}] counting the operations of recovery"));
    let counted = crashed.world.crash_image(&image.0);
    drop(open_in(&counted, options, &crashed.candidates)?);
    let points = match only.recovery {
        Some((op, _)) => vec![op],
        None => counted.operations().choose(thoroughness.recovery_points, rng),
    };
    let mut checks = 0;
    for op in points {
        phase.enter(format!("[{repeat} --recovery-op {op}] recovering"));
        let world = crashed.world.crash_image(&image.0);
        let disk = &world.disk;
        world.crash_at(op);
        let mut candidates = crashed.candidates.clone();
        match Db::open_on(Arc::new(disk.clone()), world.options(options)).and_then(|db| Model::read_from(&db)) {
            // What was read before the power went off is durable.
            Ok(found) if disk.crashed_in().is_none() => {
                if !candidates.contains(&found) {
                    let differences = candidates.iter().filter_map(|model| model.difference(&found));
                    return Err(format!("wrong contents: {}", differences.collect::<Vec<_>>().join("; or else ")));
                }
                candidates = vec![found];
            }
            Ok(_) => {}
            Err(error) if disk.crashed_in().is_some() && is_disk_failure(&error) => {}
            Err(error) => return Err(format!("a dead disk is reported as: {error}")),
        }
        disk.crash();
        let mut chosen = images(world.unsure(), thoroughness.random_images, rng);
        if let Some((_, image)) = only.recovery {
            chosen = vec![image];
        }
        for image in chosen {
            phase.enter(format!("[{repeat} --recovery-op {op} --recovery-image {image}] reopening"));
            open_in(&world.crash_image(&image.0), options, &candidates)?;
            checks += 1;
        }
    }
    Ok(checks)
}

/// Returns the operations of a run without a crash. The background threads of the engine
/// make them vary a little.
///
/// # Errors
/// The run itself is wrong.
pub fn count_operations(workload: &'static dyn CrashWorkload, seed: u64, log: LogEnd) -> Result<Operations, String> {
    guarded(LIMIT, move |phase| {
        phase.enter(format!("[workload {}{} seed {seed}] running without a crash", workload.name(), log.argument()));
        let options = workload.options(seed);
        let world = World::new(workload.disk(seed), log, &options);
        let mut client = Client::open(&world.disk, &world.options(&options), Model::default())
            .map_err(|error| format!("does not open: {error}"))?;
        match client.run(&workload.script(seed, &Model::default()), |error| world.on_error(error)) {
            Ok(()) => {}
            Err(Stop::Wrong(text)) => return Err(text),
            Err(Stop::Error { step, error, .. }) => return Err(format!("{step}: {error}")),
        }
        client.abort_all();
        if let Some(db) = client.db() {
            compare(db, std::slice::from_ref(&client.oracle.committed))?;
        }
        client.close().map_err(|error| format!("does not close: {error}"))?;
        Ok(world.operations())
    })
}

/// Checks one crash point.
///
/// # Errors
/// What is wrong and how to repeat it.
pub fn try_point(
    workload: &'static dyn CrashWorkload,
    seed: u64,
    op: u64,
    thoroughness: Thoroughness,
    only: Only,
) -> Result<u64, String> {
    guarded(thoroughness.limit, move |phase| point(workload, seed, op, thoroughness, only, phase))
}

/// Sweeps over the crash points of one run until the budget is spent, but tries one in any case.
pub fn sweep(
    workload: &'static dyn CrashWorkload,
    seed: u64,
    thoroughness: Thoroughness,
    budget: &Budget,
    progress: &mut dyn FnMut(&Tally, usize),
) -> Tally {
    let mut tally = Tally::default();
    let operations = match count_operations(workload, seed, thoroughness.log) {
        Ok(operations) => operations,
        Err(failure) => {
            tally.failures.push(failure);
            return tally;
        }
    };
    let points = operations.choose(thoroughness.points, &mut Rng::new(seed ^ 1));
    for &op in &points {
        if tally.points > 0 && budget.is_spent(&tally) {
            break;
        }
        tally.add(Tally::of(try_point(workload, seed, op, thoroughness, Only::default())));
        progress(&tally, points.len());
    }
    tally
}
