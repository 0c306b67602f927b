//! Corruption: bits flip, pages and files get lost or swapped while the database is closed. Opening
//! and reading it must give right answers or an error that names the damage, never a wrong answer
//! or a panic.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use duramen::Options;
use duramen_io::{AlignedBuf, CrashChoice, Disk, OpenMode, SimDisk};
use duramen_sync::Arc;
use duramen_types::PAGE_SIZE;

use crate::client::{Client, OnError};
use crate::harness::{Budget, Coverage, Tally, guarded};
use crate::judge::judge;
use crate::model::Model;
use crate::variant::Variant;
use crate::workloads;
use duramen_test_support::Rng;

/// Longest time for one damage.
const LIMIT: Duration = Duration::from_secs(60);

/// A database on a disk without power, to be damaged.
#[derive(Clone)]
pub struct Specimen {
    disk: SimDisk,
    options: Options,
    /// What it may hold: the final contents if it was closed, any earlier contents if it was not
    /// closed and the damage cuts its log.
    acceptable: Arc<Vec<Model>>,
    was_closed: bool,
    seed: u64,
}

/// What is done to a specimen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Damage {
    /// A bit of a file is inverted.
    Flip {
        /// The file.
        file: String,
        /// The byte's offset.
        byte: u64,
        /// The bit, 0 to 7.
        bit: u8,
    },
    /// A file is removed.
    Remove(String),
    /// A file is cut to this many bytes.
    Cut(String, u64),
    /// Two page-sized parts of a file change places.
    Swap(String, u64, u64),
}

/// As commands take it: `flip:FILE:BYTE:BIT`, `remove:FILE`, `cut:FILE:BYTES`,
/// `swap:FILE:PAGE:PAGE`.
impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flip { file, byte, bit } => write!(f, "flip:{file}:{byte}:{bit}"),
            Self::Remove(file) => write!(f, "remove:{file}"),
            Self::Cut(file, len) => write!(f, "cut:{file}:{len}"),
            Self::Swap(file, first, second) => write!(f, "swap:{file}:{first}:{second}"),
        }
    }
}

impl FromStr for Damage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| format!("`{digits}` is not a number"));
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["flip", file, byte, bit] => {
                let bit = u8::try_from(number(bit)?).ok().filter(|bit| *bit < 8).ok_or("the bit must be 0 to 7")?;
                Ok(Self::Flip { file: file.to_owned(), byte: number(byte)?, bit })
            }
            ["remove", file] => Ok(Self::Remove(file.to_owned())),
            ["cut", file, len] => Ok(Self::Cut(file.to_owned(), number(len)?)),
            ["swap", file, first, second] => Ok(Self::Swap(file.to_owned(), number(first)?, number(second)?)),
            _ => Err(format!(
                "`{text}` is not one of flip:FILE:BYTE:BIT, remove:FILE, cut:FILE:BYTES, swap:FILE:PAGE:PAGE"
            )),
        }
    }
}

impl Specimen {
    /// Returns a database made by a few workloads, closed or left as by a power cut.
    ///
    /// # Errors
    /// Making it failed.
    pub fn make(seed: u64, was_closed: bool) -> Result<Self, String> {
        guarded(LIMIT, move |phase| {
            phase.enter(format!("[torture bit-flips --seed {seed}] making the database"));
            let mut rng = Rng::new(seed);
            let instant_recovery = rng.clone().percent(50);
            let page_tier = workloads::tier_of(seed);
            let options =
                Options { log_segment_bytes: 64 << 10, instant_recovery, page_tier, ..workloads::test_options() };
            let options = Variant::of(seed).apply(options);
            let disk = SimDisk::new(seed);
            let mut client = Client::open(&disk, &options, Model::default()).map_err(|error| error.to_string())?;
            client.history = Some(vec![Model::default()]);
            for name in ["mixed", "tables", "keys"] {
                let workload = workloads::named(name).expect("the workload exists");
                let script = workload.script(rng.bits(), &client.oracle.committed);
                client.run(&script, |_| OnError::Stop).map_err(|stop| format!("{stop:?}"))?;
            }
            let history = client.history.take().unwrap_or_default();
            let committed = client.oracle.committed.clone();
            let disk = if was_closed {
                client.close().map_err(|error| error.to_string())?;
                disk.image()
            } else {
                disk.crash();
                drop(client);
                disk.crash_image(&CrashChoice::Everything)
            };
            let acceptable = Arc::new(if was_closed { vec![committed] } else { history });
            Ok(Self { disk, options, acceptable, was_closed, seed })
        })
    }

    /// Files that damage is done to, with their lengths: all of a closed database, the log of
    /// another. A log that ends early because of damage looks like one that was never longer, so
    /// only there may earlier contents come back.
    pub fn files(&self) -> Vec<(String, u64)> {
        let length = |name: &String| self.disk.durable_bytes(name).map_or(0, |bytes| bytes.len() as u64);
        let names = self.disk.file_names();
        let names = names.into_iter().filter(|name| self.was_closed || name.starts_with("log/"));
        names.map(|name| (name.clone(), length(&name))).collect()
    }

    /// Returns every damage to whole files.
    pub fn file_damages(&self) -> Vec<Damage> {
        let mut damages = Vec::new();
        if !self.was_closed {
            return damages;
        }
        for (name, len) in self.files() {
            damages.push(Damage::Remove(name.clone()));
            damages.extend([0, len / 2, len.saturating_sub(1)].map(|len| Damage::Cut(name.clone(), len)));
            let pages = len / PAGE_SIZE as u64;
            damages.extend((1..pages.min(40)).map(|page| Damage::Swap(name.clone(), page - 1, page)));
        }
        damages
    }

    /// Returns a random bit; of a random file, so that small files get their share, and mostly of a
    /// byte that is used.
    pub fn random_flip(&self, rng: &mut Rng) -> Option<Damage> {
        let files: Vec<_> = self.files().into_iter().filter(|(_, len)| *len > 0).collect();
        if files.is_empty() {
            return None;
        }
        let (file, len) = rng.pick(&files).clone();
        let bytes = self.disk.durable_bytes(&file)?;
        let mut byte = rng.within(0..len as usize);
        if rng.percent(80) {
            let used = (0..bytes.len()).map(|step| (byte + step) % bytes.len()).find(|at| bytes[*at] != 0);
            byte = used.unwrap_or(byte);
        }
        Some(Damage::Flip { file, byte: byte as u64, bit: rng.within(0..8) as u8 })
    }

    /// Damages a copy and checks the result.
    ///
    /// # Errors
    /// A wrong answer, a panic, a hang, or an error that does not say that something is damaged.
    pub fn try_damage(&self, damage: &Damage) -> Result<u64, String> {
        let (specimen, damage) = (self.clone(), damage.clone());
        guarded(LIMIT, move |phase| {
            let closed = if specimen.was_closed { "" } else { " --crashed" };
            phase.enter(format!("[torture bit-flips --seed {}{closed} --damage {damage}]", specimen.seed));
            let disk = specimen.disk.image();
            apply(&disk, &damage).map_err(|error| format!("cannot apply the damage: {error}"))?;
            judge(&disk, &specimen.options, &specimen.acceptable, specimen.seed)
        })
    }
}

fn apply(disk: &SimDisk, damage: &Damage) -> duramen_io::Result<()> {
    match damage {
        Damage::Flip { file, byte, bit } => {
            disk.flip_bit(file, *byte, *bit);
            // Opening restores the lines that the double-write area has. In every other case they
            // are lost, too, so the damage must be noticed.
            if file == "data" && byte % 2 == 0 && disk.durable_bytes("doublewrite").is_some_and(|area| !area.is_empty())
            {
                disk.flip_bit("doublewrite", 0, 0);
            }
        }
        Damage::Remove(file) => disk.remove(file)?,
        Damage::Cut(file, len) => {
            let handle = disk.open(file, OpenMode::Existing)?;
            handle.set_len(*len)?;
            handle.sync()?;
        }
        Damage::Swap(file, first, second) => {
            let handle = disk.open(file, OpenMode::Existing)?;
            let offset = |page: &u64| page * PAGE_SIZE as u64;
            let mut pages = [AlignedBuf::zeroed(PAGE_SIZE), AlignedBuf::zeroed(PAGE_SIZE)];
            handle.read_at(&mut pages[0], offset(first))?;
            handle.read_at(&mut pages[1], offset(second))?;
            handle.write_at(&[&pages[1]], offset(first))?;
            handle.write_at(&[&pages[0]], offset(second))?;
            handle.sync()?;
        }
    }
    for directory in ["", "log"] {
        if directory.is_empty() || disk.exists(directory)? {
            disk.sync_directory(directory)?;
        }
    }
    Ok(())
}

/// Damages one specimen, closed or not, in a sample of ways, or bit by bit.
pub fn sweep(
    seed: u64,
    was_closed: bool,
    coverage: Coverage,
    budget: &Budget,
    progress: &mut dyn FnMut(&Tally, usize),
) -> Tally {
    let mut tally = Tally::default();
    let specimen = match Specimen::make(seed, was_closed) {
        Ok(specimen) => specimen,
        Err(failure) => {
            tally.failures.push(failure);
            return tally;
        }
    };
    let mut rng = Rng::new(seed ^ 4);
    let mut whole_files = specimen.file_damages();
    if coverage != Coverage::All {
        rng.shuffle(&mut whole_files);
    }
    let flips: Box<dyn Iterator<Item = Damage>> = match coverage {
        Coverage::Sample(count) => Box::new((0..count).map_while(|_| specimen.random_flip(&mut rng))),
        // One bit of every byte: which one, changes from byte to byte.
        Coverage::All => Box::new(specimen.files().into_iter().flat_map(|(file, len)| {
            (0..len).map(move |byte| Damage::Flip { file: file.clone(), byte, bit: (byte * 5 % 8) as u8 })
        })),
    };
    let total = whole_files.len()
        + match coverage {
            Coverage::Sample(count) => count,
            Coverage::All => specimen.files().iter().map(|(_, len)| *len as usize).sum(),
        };
    for damage in alternating(whole_files.into_iter(), flips) {
        if budget.is_spent(&tally) {
            break;
        }
        tally.points += 1;
        match specimen.try_damage(&damage) {
            Ok(checks) => tally.checks += checks,
            Err(failure) => tally.failures.push(failure),
        }
        progress(&tally, total);
    }
    tally
}

/// Returns the items of both, one of each in turn while both last: a sample that ends early has
/// some of both.
fn alternating<T>(mut one: impl Iterator<Item = T>, mut other: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut is_first = false;
    std::iter::from_fn(move || {
        is_first = !is_first;
        if is_first { one.next().or_else(|| other.next()) } else { other.next().or_else(|| one.next()) }
    })
}
