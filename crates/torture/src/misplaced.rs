//! Files, rings and pages that are intact but in the wrong place: older copies of themselves, those
//! of another database, or exchanged with each other. This happens when part of a directory is
//! restored from a copy, or when a device loses writes. Checksums do not show it. Opening and
//! reading must give right answers or an error that names the damage.
//!
//! The suite does not try what looks like a crash: an older end of the log (segments, and rings of
//! the last generation) of a database that was not closed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use duramen::{Options, inspect};
use duramen_io::{AlignedBuf, CrashChoice, Disk, OpenMode, SimDisk};
use duramen_sync::{Arc, OnceLock};
use duramen_types::PAGE_SIZE;

use crate::client::{Client, OnError};
use crate::harness::{Budget, Tally, guarded};
use crate::judge::judge;
use crate::memory::Watch;
use crate::model::Model;
use crate::variant::Variant;
use crate::workloads;
use crate::world::{LogEnd, World};
use duramen_test_support::Rng;

/// Longest time for one database.
const LIMIT: Duration = Duration::from_secs(30);

/// The pool of an ordinary small database, in bytes. With it, a database takes at most twice its
/// pool in all. A tiny pool is less than the structures beside it.
const ORDINARY_POOL: usize = 16 << 20;

/// The sizes that a pool may have, in bytes.
const POOLS: [usize; 3] = [64 * PAGE_SIZE, 256 * PAGE_SIZE, ORDINARY_POOL];

/// Times that a database is opened before it is damaged.
const LIVES: usize = 3;

/// A database at several moments, and another one.
#[derive(Clone)]
pub struct Album {
    seed: u64,
    options: Options,
    /// Its states at moments of its lives, oldest first; the last state is the one that gets
    /// damaged.
    moments: Arc<Vec<World>>,
    /// How many of the moments are of earlier lives.
    earlier: usize,
    foreign: Arc<World>,
    contents: Arc<Model>,
    was_closed: bool,
    /// Memory that the last state takes while it is judged undamaged, in bytes, once it is known.
    healthy_memory: Arc<OnceLock<usize>>,
}

/// What is in the wrong place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Misplaced {
    /// Files are as they were at a moment.
    Stale(Vec<String>, usize),
    /// Files are those of the other database.
    Foreign(Vec<String>),
    /// Two files have each other's contents.
    Exchanged(String, String),
    /// A part of a file, as long as a page, is as it was at a moment.
    StalePage(String, u64, usize),
    /// A part of a file is that of the other database.
    ForeignPage(String, u64),
    /// Two parts of a file have changed places.
    ExchangedPages(String, u64, u64),
    /// A ring is as it was at a moment.
    StaleRing(usize, usize),
    /// A ring is that of the other database.
    ForeignRing(usize),
    /// Two rings have changed places.
    ExchangedRings(usize, usize),
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(files, moment) => write!(f, "stale:{}:{moment}", files.join(",")),
            Self::Foreign(files) => write!(f, "foreign:{}", files.join(",")),
            Self::Exchanged(one, other) => write!(f, "exchanged:{one}:{other}"),
            Self::StalePage(file, page, moment) => write!(f, "stale-page:{file}:{page}:{moment}"),
            Self::ForeignPage(file, page) => write!(f, "foreign-page:{file}:{page}"),
            Self::ExchangedPages(file, one, other) => write!(f, "exchanged-pages:{file}:{one}:{other}"),
            Self::StaleRing(ring, moment) => write!(f, "stale-ring:{ring}:{moment}"),
            Self::ForeignRing(ring) => write!(f, "foreign-ring:{ring}"),
            Self::ExchangedRings(one, other) => write!(f, "exchanged-rings:{one}:{other}"),
        }
    }
}

impl FromStr for Misplaced {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse::<usize>().map_err(|_| format!("`{digits}` is not a number"));
        let page = |digits: &str| number(digits).map(|page| page as u64);
        let files = |names: &str| names.split(',').map(str::to_owned).collect();
        Ok(match text.split(':').collect::<Vec<_>>()[..] {
            ["stale", names, moment] => Self::Stale(files(names), number(moment)?),
            ["foreign", names] => Self::Foreign(files(names)),
            ["exchanged", one, other] => Self::Exchanged(one.to_owned(), other.to_owned()),
            ["stale-page", file, at, moment] => Self::StalePage(file.to_owned(), page(at)?, number(moment)?),
            ["foreign-page", file, at] => Self::ForeignPage(file.to_owned(), page(at)?),
            ["exchanged-pages", file, one, other] => Self::ExchangedPages(file.to_owned(), page(one)?, page(other)?),
            ["stale-ring", ring, moment] => Self::StaleRing(number(ring)?, number(moment)?),
            ["foreign-ring", ring] => Self::ForeignRing(number(ring)?),
            ["exchanged-rings", one, other] => Self::ExchangedRings(number(one)?, number(other)?),
            _ => return Err(format!("`{text}` is not a misplacement; see `--help` for the forms")),
        })
    }
}

impl Album {
    /// Returns the album that `seed` stands for.
    ///
    /// # Errors
    /// Making it failed.
    pub fn make(seed: u64) -> Result<Self, String> {
        guarded(LIMIT, move |phase| {
            phase.enter(format!("[torture misplaced --seed {seed}] making the database"));
            let mut rng = Rng::new(seed);
            let was_closed = rng.percent(60);
            let end = if rng.percent(60) { LogEnd::Files } else { *rng.pick(&LogEnd::RINGS) };
            let options = Options {
                log_segment_bytes: 64 << 10,
                instant_recovery: rng.percent(50),
                recovery_threads: *rng.pick(&[None, Some(1), Some(2)]),
                pool_bytes: *rng.pick(&POOLS),
                page_tier: workloads::tier_of(seed),
                ..workloads::test_options()
            };
            let options = Variant::of(seed).apply(options);
            let (moments, earlier, contents) = live(&options, end, was_closed, &mut rng.clone())?;
            let (foreign, ..) = live(&options, end, was_closed, &mut rng)?;
            let foreign = foreign.into_iter().next_back().expect("there is a last moment");
            let (moments, foreign, contents) = (Arc::new(moments), Arc::new(foreign), Arc::new(contents));
            let healthy_memory = Arc::default();
            Ok(Self { seed, options, moments, earlier, foreign, contents, was_closed, healthy_memory })
        })
    }

    /// Opens and reads a damaged database; returns how far it was right.
    fn judge(&self, world: &World) -> Result<u64, String> {
        judge(&world.disk, &world.options(&self.options), std::slice::from_ref(&*self.contents), self.seed)
    }

    /// Returns the most memory that a damaged database may take, in bytes.
    fn memory_limit(&self) -> Result<usize, String> {
        let pool = self.options.pool_bytes;
        if pool >= ORDINARY_POOL {
            return Ok(2 * pool);
        }
        if self.healthy_memory.get().is_none() {
            let watch = Watch::begin();
            self.judge(&self.last().crash_image(&CrashChoice::Everything))?;
            let _ = self.healthy_memory.set(watch.growth());
        }
        Ok(self.healthy_memory.get().expect("it was set") + 2 * pool)
    }

    /// Returns every page of the data file as it was at an earlier moment, where it differs.
    pub fn stale_pages(&self) -> Vec<Misplaced> {
        let data = |world: &World| world.disk.durable_bytes("data").unwrap_or_default();
        let last = data(self.last());
        let mut stale = Vec::new();
        for (at, moment) in self.moments[..self.moments.len() - 1].iter().enumerate() {
            let pages = data(moment);
            for (page, (then, now)) in pages.chunks(PAGE_SIZE).zip(last.chunks(PAGE_SIZE)).enumerate() {
                if then != now {
                    stale.push(Misplaced::StalePage("data".to_owned(), page as u64, at));
                }
            }
        }
        stale
    }

    fn last(&self) -> &World {
        self.moments.last().expect("there is a last moment")
    }

    /// Something to be misplaced, drawn at random.
    pub fn draw(&self, rng: &mut Rng) -> Misplaced {
        let names = self.last().disk.file_names();
        let (log, other): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.starts_with("log"));
        let sets: Vec<Vec<String>> = [
            vec!["data"],
            vec!["doublewrite"],
            vec!["control"],
            vec!["versions"],
            vec!["doublewrite", "versions"],
            vec!["doublewrite", "versions"],
            vec!["data", "versions"],
            vec!["data", "doublewrite"],
            vec!["data", "doublewrite", "versions"],
            vec!["data", "control"],
            vec!["doublewrite", "control"],
            vec!["data", "doublewrite", "control"],
        ]
        .into_iter()
        .map(|set| set.into_iter().map(str::to_owned).collect())
        .collect();
        let segments = |rng: &mut Rng| match rng.within(0..3) {
            // One, those of one log, or all of them.
            0 => vec![rng.pick(&log).clone()],
            1 => {
                let directory = rng.pick(&log).split('/').next().unwrap_or_default().to_owned() + "/";
                log.iter().filter(|name| name.starts_with(&directory)).cloned().collect()
            }
            _ => log.clone(),
        };
        let earlier = rng.within(0..self.earlier);
        let any = rng.within(0..self.moments.len() - 1);
        let pages = |file: &str| {
            self.last().disk.durable_bytes(file).map_or(1, |bytes| (bytes.len() / PAGE_SIZE).max(1)) as u64
        };
        let page = |rng: &mut Rng, file: &str| rng.bits() % pages(file);
        let some = |rng: &mut Rng| rng.pick(&other).clone();
        let rings = self.last().ring_count();
        // Behind a crash, an older end of the log may be the end of the log.
        let log_too = self.was_closed;
        match rng.within(0..12) {
            0 | 1 => Misplaced::Stale(rng.pick(&sets).clone(), any),
            2 if log_too => Misplaced::Stale(segments(rng), earlier),
            3 if log_too => Misplaced::Stale([rng.pick(&sets).clone(), segments(rng)].concat(), earlier),
            4 => Misplaced::Foreign(rng.pick(&sets).clone()),
            5 if log_too => Misplaced::Foreign(segments(rng)),
            6 => Misplaced::Exchanged(some(rng), some(rng)),
            7 if log_too => Misplaced::Exchanged(rng.pick(&log).clone(), rng.pick(&log).clone()),
            8 => Misplaced::StalePage("data".to_owned(), page(rng, "data"), any),
            9 if rings > 0 => match rng.within(0..3) {
                0 => Misplaced::ForeignRing(rng.within(0..rings)),
                1 if rings > 1 => Misplaced::ExchangedRings(0, rng.within(1..rings)),
                _ => Misplaced::StaleRing(rng.within(0..rings), earlier),
            },
            10 if log_too => Misplaced::StalePage(rng.pick(&log).clone(), 0, earlier),
            10 => Misplaced::ForeignPage("data".to_owned(), page(rng, "data")),
            _ => {
                let file = if rng.percent(70) { "data".to_owned() } else { some(rng) };
                let (one, two) = (page(rng, &file), page(rng, &file));
                if rng.percent(30) {
                    Misplaced::ForeignPage(file, one)
                } else {
                    Misplaced::ExchangedPages(file, one, two)
                }
            }
        }
    }

    /// Misplaces something in a copy and checks the result; returns how far it was right.
    ///
    /// # Errors
    /// A wrong answer, a panic, a hang, an error that does not say that something is damaged, or,
    /// in a program that counts memory, too much of that.
    pub fn try_one(&self, misplaced: &Misplaced) -> Result<u64, String> {
        let (album, misplaced) = (self.clone(), misplaced.clone());
        guarded(LIMIT, move |phase| {
            phase.enter(format!("[torture misplaced --seed {} --what {misplaced}]", album.seed));
            let world = album.damaged(&misplaced).map_err(|error| format!("cannot apply the misplacement: {error}"))?;
            if album.is_older_database(&world) || album.is_unchanged(&misplaced, &world) {
                return Ok(0);
            }
            let limit = album.memory_limit()?;
            let watch = Watch::begin();
            let checks = album.judge(&world)?;
            let growth = watch.growth();
            if growth > limit {
                return Err(format!("the engine took {growth} bytes of memory, but {limit} should be enough"));
            }
            Ok(checks)
        })
    }

    /// Returns whether nothing was misplaced after all: what was to be exchanged is the same, or is
    /// not there.
    fn is_unchanged(&self, misplaced: &Misplaced, world: &World) -> bool {
        let is_of_rings =
            matches!(misplaced, Misplaced::StaleRing(..) | Misplaced::ForeignRing(_) | Misplaced::ExchangedRings(..));
        let files = |of: &World| -> Vec<(String, Option<Vec<u8>>)> {
            of.disk.file_names().into_iter().map(|name| (name.clone(), of.disk.durable_bytes(&name))).collect()
        };
        !is_of_rings && files(self.last()) == files(world)
    }

    /// Returns whether all files that count are those of an earlier moment. That is an earlier
    /// database as a whole, and nothing in it can tell. (The last life was closed, so a ring holds
    /// nothing.) The file `versions` is only a help, and opening does not look at `doublewrite` if
    /// the database was closed in order.
    fn is_older_database(&self, world: &World) -> bool {
        let files = |of: &World, is_clean: bool| -> Vec<(String, Option<Vec<u8>>)> {
            let is_ignored = |name: &str| matches!(name, "versions" | "lock") || is_clean && name == "doublewrite";
            let names = of.disk.file_names().into_iter().filter(|name| !is_ignored(name));
            names.map(|name| (name.clone(), of.disk.durable_bytes(&name))).collect()
        };
        self.moments[..self.moments.len() - 1].iter().any(|moment| {
            let is_clean = was_closed(moment);
            files(moment, is_clean) == files(world, is_clean)
        })
    }

    fn damaged(&self, misplaced: &Misplaced) -> duramen_io::Result<World> {
        let (last, moment) = (self.last(), |at: usize| &self.moments[at.min(self.moments.len() - 1)]);
        let world = last.with_rings_of(&match *misplaced {
            Misplaced::StaleRing(ring, at) => vec![(ring, moment(at), ring)],
            Misplaced::ForeignRing(ring) => vec![(ring, &*self.foreign, ring)],
            Misplaced::ExchangedRings(one, other) => vec![(one, last, other), (other, last, one)],
            _ => Vec::new(),
        });
        let of = |world: &World, file: &str| world.disk.durable_bytes(file);
        let page_of = |bytes: Option<Vec<u8>>, page: u64| {
            bytes.and_then(|bytes| bytes.get(page as usize * PAGE_SIZE..)?.get(..PAGE_SIZE).map(<[u8]>::to_vec))
        };
        let put = |file: &str, page: u64, bytes: Option<Vec<u8>>| match (of(&world, file), bytes) {
            (Some(mut whole), Some(bytes)) => {
                whole[page as usize * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(&bytes);
                replace(&world.disk, file, Some(&whole))
            }
            _ => Ok(()),
        };
        match misplaced {
            Misplaced::Stale(files, at) => {
                files.iter().try_for_each(|file| replace(&world.disk, file, of(moment(*at), file).as_deref()))?;
            }
            Misplaced::Foreign(files) => {
                files.iter().try_for_each(|file| replace(&world.disk, file, of(&self.foreign, file).as_deref()))?;
            }
            Misplaced::Exchanged(one, other) => {
                replace(&world.disk, one, of(last, other).as_deref())?;
                replace(&world.disk, other, of(last, one).as_deref())?;
            }
            Misplaced::StalePage(file, page, at) => put(file, *page, page_of(of(moment(*at), file), *page))?,
            Misplaced::ForeignPage(file, page) => put(file, *page, page_of(of(&self.foreign, file), *page))?,
            Misplaced::ExchangedPages(file, one, other) => {
                put(file, *one, page_of(of(last, file), *other))?;
                put(file, *other, page_of(of(last, file), *one))?;
            }
            _ => {}
        }
        Ok(world)
    }
}

/// Returns whether the database was closed in order.
fn was_closed(world: &World) -> bool {
    let report = inspect::checkpoint(Arc::new(world.disk.clone()));
    report.is_ok_and(|report| report.current().is_some_and(|slot| slot.is_clean))
}

/// Gives a file other contents; without any, it is as if it had not been there.
fn replace(disk: &SimDisk, name: &str, contents: Option<&[u8]>) -> duramen_io::Result<()> {
    let directory = name.split_once('/').map_or("", |(directory, _)| directory);
    if disk.exists(name)? {
        disk.remove(name)?;
    }
    if let Some(contents) = contents {
        if !directory.is_empty() && !disk.exists(directory)? {
            disk.create_directory(directory)?;
        }
        let file = disk.open(name, OpenMode::CreateNew)?;
        if !contents.is_empty() {
            let mut bytes = AlignedBuf::zeroed(contents.len());
            bytes.copy_from_slice(contents);
            file.write_at(&[&bytes], 0)?;
        }
        file.sync()?;
    }
    disk.sync_directory(directory)
}

/// Returns the lives of a database: moments of it, how many of them are of earlier lives than the
/// last, and what it holds in the end.
fn live(options: &Options, end: LogEnd, is_closed: bool, rng: &mut Rng) -> Result<(Vec<World>, usize, Model), String> {
    let mut world = World::new(SimDisk::new(rng.bits()), end, options);
    let (mut moments, mut earlier, mut contents) = (Vec::new(), 0, Model::default());
    let all = ["mixed", "tables", "keys", "splits", "merges", "overflow", "ghosts"];
    for life in 0..LIVES {
        earlier = moments.len();
        let mut client =
            Client::open(&world.disk, &world.options(options), contents).map_err(|error| error.to_string())?;
        for _ in 0..2 {
            let workload = workloads::named(rng.pick::<&str>(&all)).expect("the workload exists");
            let script = workload.script(rng.bits(), &client.oracle.committed);
            client.run(&script, |_| OnError::Stop).map_err(|stop| format!("{stop:?}"))?;
            moments.push(world.crash_image(&CrashChoice::Everything));
        }
        contents = client.oracle.committed.clone();
        let closes = if life + 1 == LIVES { is_closed } else { rng.percent(50) };
        if closes {
            client.close().map_err(|error| error.to_string())?;
        } else {
            world.disk.crash();
            drop(client);
        }
        world = world.crash_image(&CrashChoice::Everything);
        moments.push(world.crash_image(&CrashChoice::Everything));
    }
    Ok((moments, earlier, contents))
}

/// Makes albums from `seed` on, and misplaces `each` things in each of them, until `most` things
/// have been misplaced in databases with an ordinary pool.
pub fn sweep(seed: u64, each: usize, most: usize, budget: &Budget, progress: &mut dyn FnMut(&Tally, usize)) -> Tally {
    let (mut tally, mut ordinary) = (Tally::default(), 0);
    for seed in seed.. {
        let album = match Album::make(seed) {
            Ok(album) => album,
            Err(failure) => {
                tally.failures.push(failure);
                return tally;
            }
        };
        let mut rng = Rng::new(seed ^ 5);
        for _ in 0..each {
            if budget.is_spent(&tally) || ordinary >= most {
                return tally;
            }
            tally.add(Tally::of(album.try_one(&album.draw(&mut rng))));
            ordinary += usize::from(album.options.pool_bytes >= ORDINARY_POOL);
            progress(&tally, most.saturating_mul(POOLS.len()));
        }
    }
    tally
}
