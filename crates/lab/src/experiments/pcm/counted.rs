//! C1e: what C1 to C3 ask, counted by the engine itself.
//!
//! The replays of C1 to C3 have the paper's heap files and no indexes. Here the engine runs TPC-C
//! with everything that it has: trees, structure changes, locks of keys, undo.

use std::path::Path;
use std::time::Duration;

use duramen::pmem::{Domain, Guarantee, Source};
use duramen::{Db, Granularity, Metrics, Options, PcmBasicOptions, PcmOptions, Scheme};
use duramen_io::{CountingDisk, Disk, RealDisk, RealDiskOptions};
use duramen_sync::Arc;
use duramen_types::PAGE_SIZE;
use duramen_workloads::tpcc::{Mix, Scale};
use duramen_workloads::{Limit, RunOptions, Tpcc, Workload, run};

use super::setup::{DRAM, SIZES};
use super::{BASIC, LOGGING, LOGGING_PAGES, NO_PCM};
use crate::bed::Bed;
use crate::bounds::{Bound, Check};
use crate::error::{Error, Result};
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// Figures 4 and 5, of the engine.
pub(crate) struct Counted;

/// The file of the data, and those of the log.
const DATA: &str = "data";
const LOG: &str = "log/";

impl Experiment for Counted {
    fn about(&self) -> About {
        About {
            id: "C1e",
            title: "disk I/Os, misses and wear of the memory as the engine counts them, TPC-C",
            source: "PCMLogging (CIKM 2011), Figs. 4 and 5",
            world: "native",
            found: "PCMLogging has 40 % fewer disk I/Os than PCMBasic with the largest PCM, misses less often, and \
                    writes 2.7 % of the bytes to the PCM",
            wanted: "the bounds of C1 to C3: at least 25 % fewer disk I/Os at the largest size, at most 1.2 times as \
                     many at the smallest; at least 10 points fewer misses at the largest size; at most 10 % of the \
                     bytes",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "the engine's trees split, which stores whole pages, and a leaf that leaves for the data file is stored as \
             a page first, so that a page that is torn there is still in the memory. The paper's simulator, and ours, \
             has neither",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let job = Job::new(context);
        context.expect(1 + (KINDS.len() - 1) * job.sizes.len());
        let mut data = 0;
        let mut counted: Vec<(Kind, Vec<Counts>)> = Vec::new();
        for kind in KINDS {
            context.prepare(&format!("populating {}", kind.name()));
            let bed = Bed::new(job.pool)?;
            let populated = job.populate(&bed, kind, data)?;
            // The first is NoPCM, whose file holds the data and nothing else.
            data = if kind == Kind::NoPcm { populated } else { data };
            let sizes = if kind == Kind::NoPcm { &job.sizes[..1] } else { job.sizes };
            let mut counts = Vec::new();
            for &share in sizes {
                let what = format!("{}, PCM of {:.2} % of the data", kind.name(), 100.0 * share);
                counts.push(context.measure(what, || job.count(&bed, kind, data, share))?);
            }
            counted.push((kind, counts));
        }
        let of = |wanted: Kind| &counted.iter().find(|(kind, _)| *kind == wanted).expect("it was counted").1;
        let (no_pcm, basic) = (of(Kind::NoPcm)[0], of(Kind::Basic));
        let (tuples, pages) = (of(Kind::Logging(Granularity::Tuple)), of(Kind::Logging(Granularity::Page)));
        let percents: Vec<f64> = job.sizes.iter().map(|share| 100.0 * share).collect();
        let lines = |name: &str, title: &str, y: Axis, with_no_pcm: bool, value: fn(&Counts) -> f64| {
            let line = |name: &str, counts: &[Counts]| {
                Series::ours(name, percents.iter().copied().zip(counts.iter().map(value)).collect())
            };
            let mut series = vec![line(BASIC, basic), line(LOGGING, tuples), line(LOGGING_PAGES, pages)];
            if with_no_pcm {
                series.push(line(NO_PCM, &vec![no_pcm; percents.len()]));
            }
            let x = Axis::linear("PCM (% of the data)");
            Figure { name: name.into(), title: title.into(), x, y, shape: Shape::Lines, series }
        };
        let figures = vec![
            lines("C1e", "Disk I/Os for data", Axis::linear("pages per committed transaction"), true, Counts::ios),
            lines(
                "C1e-misses",
                "Misses in PCM",
                Axis::linear("share of the requests that reach the PCM (%)"),
                false,
                Counts::miss_rate,
            ),
            lines("C1e-bytes", "Writes to PCM", Axis::log("kB per committed transaction"), false, Counts::pcm_kb),
        ];
        Ok(Findings { setting: job.setting(data, &no_pcm), figures, checks: findings(basic, tuples) })
    }
}

fn findings(basic: &[Counts], logging: &[Counts]) -> Vec<Check> {
    let ends = |counts: &[Counts]| (counts[0], counts[counts.len() - 1]);
    let ((basic_least, basic_most), (least, most)) = (ends(basic), ends(logging));
    let shares = basic.iter().zip(logging).map(|(basic, logging)| 100.0 * logging.pcm_kb() / basic.pcm_kb());
    vec![
        Check::new(
            format!("disk I/Os that {LOGGING} saves against {BASIC} at the largest size, in percent"),
            "40",
            100.0 * (1.0 - most.ios() / basic_most.ios()),
            Bound::AtLeast(25.0),
        ),
        Check::new(
            format!("disk I/Os of {LOGGING} relative to {BASIC} at the smallest size"),
            "slightly above 1",
            least.ios() / basic_least.ios(),
            Bound::AtMost(1.2),
        ),
        Check::new(
            format!("points by which {LOGGING}'s miss rate is below {BASIC}'s at the largest size"),
            "18",
            basic_most.miss_rate() - most.miss_rate(),
            Bound::AtLeast(10.0),
        ),
        Check::new(
            format!("what {LOGGING} writes to the PCM, in percent of {BASIC}, average"),
            "2.7",
            shares.sum::<f64>() / basic.len() as f64,
            Bound::AtMost(10.0),
        ),
    ]
}

/// A scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    NoPcm,
    Basic,
    Logging(Granularity),
}

const KINDS: [Kind; 4] =
    [Kind::NoPcm, Kind::Basic, Kind::Logging(Granularity::Tuple), Kind::Logging(Granularity::Page)];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::NoPcm => NO_PCM,
            Self::Basic => BASIC,
            Self::Logging(Granularity::Tuple) => LOGGING,
            Self::Logging(Granularity::Page) => LOGGING_PAGES,
        }
    }

    /// Returns the options for a memory of `bytes` in `directory`.
    fn options(self, directory: &Path, bytes: u64) -> Options {
        let source = Source::File(directory.join("pcm"));
        let stated = Some(Guarantee::DurableCache);
        let scheme = match self {
            Self::NoPcm => Scheme::NoPcm,
            Self::Basic => Scheme::PcmBasic(PcmBasicOptions {
                stated,
                log_share: log_share(bytes),
                ..PcmBasicOptions::new(source, bytes.max(PcmBasicOptions::LEAST_BYTES), Domain::DurableCache)
            }),
            Self::Logging(granularity) => Scheme::PcmLogging(PcmOptions {
                stated,
                granularity,
                ..PcmOptions::new(source, bytes.max(PcmOptions::LEAST_BYTES), Domain::DurableCache)
            }),
        };
        Options { scheme, ..Options::default() }
    }
}

/// Returns the share of the log in a memory of `bytes`, in percent: a quarter, or more where the
/// transactions under way need it.
fn log_share(bytes: u64) -> u8 {
    const LEAST_LOG: u64 = 2 << 20;
    let needed = 1 + (100 * LEAST_LOG).div_ceil(bytes.max(1));
    needed.clamp(25, 90) as u8
}

/// What the engine did.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Counts {
    committed: u64,
    /// Pages of the data file.
    read: u64,
    written: u64,
    /// Bytes written to the log's files.
    log_bytes: u64,
    /// Requests for pages or tuples that the pool could not serve, and those of them that the PCM
    /// could not serve either.
    lookups: u64,
    misses: u64,
    pcm_bytes: u64,
}

impl Counts {
    fn each(&self, count: u64) -> f64 {
        count as f64 / (self.committed as f64).max(1.0)
    }

    fn ios(&self) -> f64 {
        self.each(self.read + self.written)
    }

    fn miss_rate(&self) -> f64 {
        100.0 * self.misses as f64 / (self.lookups as f64).max(1.0)
    }

    fn pcm_kb(&self) -> f64 {
        self.each(self.pcm_bytes) / 1e3
    }
}

/// What is run.
struct Job {
    scale: Scale,
    clients: u32,
    agents: u32,
    /// That count; half as many come before.
    transactions: u64,
    /// Of the buffer pool that populates, in bytes.
    pool: usize,
    sizes: &'static [f64],
}

impl Job {
    fn new(context: &Context<'_>) -> Self {
        Self {
            scale: context.pick(Scale::standard(20), Scale::standard(4), Scale::small(1, 100)),
            clients: context.pick(50, 50, 4),
            agents: context.pick(4, 4, 2),
            transactions: context.pick(20_000, 10_000, 200),
            pool: context.pick(1 << 30, 256 << 20, 8 << 20),
            sizes: context.pick(SIZES, &[0.0133, 0.0267], &[0.2, 0.4]),
        }
    }

    fn workload(&self) -> Tpcc {
        Tpcc::new(self.scale, Mix::Standard)
    }

    /// Populates the database; returns the bytes of its data file. `data` are those of the others'.
    fn populate(&self, bed: &Bed, kind: Kind, data: u64) -> Result<u64> {
        let options = match kind {
            // A preset of the same scheme. The transactions that populate need a larger log than
            // fits its memory, in segments that will fit.
            Kind::Basic => Options { log_segment_bytes: 64 << 10, ..Kind::NoPcm.options(bed.path(), 0) },
            _ => kind.options(bed.path(), (data as f64 * self.sizes[0]) as u64),
        };
        let rig = Rig::open(bed, Options { pool_bytes: self.pool, ..options })?;
        self.workload().load(&rig.db, &mut |_| {})?;
        rig.db.close()?;
        Ok(rig.disk.open(DATA, duramen_io::OpenMode::Existing)?.len()?)
    }

    /// Counts with a PCM of this share of the data. The memory of an earlier, smaller one grows.
    fn count(&self, bed: &Bed, kind: Kind, data: u64, share: f64) -> Result<Counts> {
        let pool = ((data as f64 * DRAM) as usize).max(Options::MIN_POOL_PAGES * PAGE_SIZE);
        let options = kind.options(bed.path(), (data as f64 * share) as u64);
        let rig = Rig::open(bed, Options { pool_bytes: pool, ..options })?;
        let workload = self.workload();
        let options = |transactions, seed| RunOptions {
            clients: self.clients,
            rate: None,
            agents: self.agents,
            limit: Limit::Transactions(transactions),
            seed,
            observe_every: Duration::from_secs(1),
        };
        run(&rig.db, &workload, &options(self.transactions / 2, 1), &mut |_| {})?;
        let before = rig.counts();
        let report = run(&rig.db, &workload, &options(self.transactions, 2), &mut |_| {})?;
        let after = rig.counts();
        let audit = workload.audit(&rig.db)?;
        if kind == Kind::Basic {
            rig.db.drain_page_tier()?;
        }
        rig.db.close()?;
        if kind == Kind::Basic {
            // The next size has memory of its own.
            for name in ["pcm", "pcm-log"] {
                let _ = std::fs::remove_file(bed.path().join(name));
            }
        }
        if !audit.is_ok() {
            return Err(Error::Audit(format!("{}: {audit}", kind.name())));
        }
        Ok(Counts {
            committed: report.committed,
            read: after.read - before.read,
            written: after.written - before.written,
            log_bytes: after.log_bytes - before.log_bytes,
            lookups: after.lookups - before.lookups,
            misses: after.misses - before.misses,
            pcm_bytes: after.pcm_bytes - before.pcm_bytes,
        })
    }

    fn setting(&self, data: u64, no_pcm: &Counts) -> Vec<String> {
        vec![
            format!(
                "TPC-C, {}, {} clients on {} threads: {} transactions of the standard mix, after half as many that do \
                 not count. The data file has {} MB at the beginning, the buffer pool {:.1} % of them. The database of \
                 a scheme is the same for all sizes, which follow each other in rising order. Audits passed.",
                self.scale,
                self.clients,
                self.agents,
                self.transactions,
                data / 1_000_000,
                100.0 * DRAM
            ),
            format!(
                "Disk I/Os are pages of the data file that are read and written, double writes left out. {NO_PCM} \
                 reads {:.2} and writes {:.2} for each transaction, and writes {:.1} kB of log to files; the others \
                 write no log to files.",
                no_pcm.each(no_pcm.read),
                no_pcm.each(no_pcm.written),
                no_pcm.each(no_pcm.log_bytes) / 1e3
            ),
            format!(
                "{BASIC} is the preset `pcm-basic`; its log has a quarter of the memory, or 2 MiB. Bytes are those \
                 stored, headers included."
            ),
        ]
    }
}

/// An open database.
struct Rig {
    db: Db,
    /// Counts the data file's operations.
    disk: CountingDisk,
    log: CountingDisk,
}

impl Rig {
    fn open(bed: &Bed, options: Options) -> Result<Self> {
        let real = RealDisk::open(bed.path(), RealDiskOptions::default())?;
        let log = CountingDisk::new(Arc::new(real), LOG);
        let disk = CountingDisk::new(log.handle(), DATA);
        let db = Db::open_on(disk.handle(), options)?;
        Ok(Self { db, disk, log })
    }

    /// Returns what was done since the database was opened.
    fn counts(&self) -> Counts {
        let data = self.disk.counted();
        let Metrics { pcm, page_tier, log, .. } = self.db.metrics();
        let pages = |bytes: u64| bytes / PAGE_SIZE as u64;
        let pcm = pcm.unwrap_or_default();
        let tier = page_tier.unwrap_or_default();
        let ring_bytes = if page_tier.is_some() { log.bytes } else { 0 };
        Counts {
            committed: 0,
            read: pages(data.read_bytes),
            written: pages(data.written_bytes),
            log_bytes: self.log.counted().written_bytes,
            lookups: pcm.hits + pcm.tuple_hits + pcm.misses + tier.hits + tier.misses,
            misses: pcm.misses + tier.misses,
            pcm_bytes: pcm.bytes_stored + tier.bytes_written + ring_bytes,
        }
    }
}
