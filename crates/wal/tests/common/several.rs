//! A workload of pages whose changes go to any log, with power cuts at every operation, of the disk
//! and of the memories.

use std::sync::Arc;

use duramen_io::{CrashChoice, Disk, SimDisk};
use duramen_pmem::Domain;
use duramen_types::{Gsn, LogId, Lsn, PageId};
use duramen_wal::{FIRST_LSN, FoundLog, InsertDesign, Known, Log, NewRecord, Result, WalError, WalOptions};

use super::world::World;
use super::{DATABASE, Record, Rng, Stride, options, read_one, record};

pub const PAGES: usize = 6;

/// The designs that several logs can use.
pub const DESIGNS: [InsertDesign; 5] = [
    InsertDesign::Mutex,
    InsertDesign::Consolidated,
    InsertDesign::Decoupled,
    InsertDesign::Hybrid,
    InsertDesign::Delegated,
];

/// The workload's state: the logged changes of pages, in order, and what has been acknowledged.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// GSN and page of each change, and the number of earlier changes of its page.
    pub changes: Vec<(Gsn, usize, u64)>,
    pub page_gsns: [Gsn; PAGES],
    pub versions: [u64; PAGES],
    /// Everything up to this GSN has been acknowledged.
    pub acknowledged: Gsn,
    /// A value that an application of the log keeps durably elsewhere.
    pub complete: Gsn,
    pub is_cutting: bool,
}

pub fn disk_of(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

pub fn find(disk: &SimDisk, options: &WalOptions, count: u16, history: &History) -> Result<FoundLog> {
    let from = vec![FIRST_LSN; usize::from(count)];
    let known =
        Known { from: &from, earlier: (Gsn::ZERO, &[]), complete: history.complete, is_cutting: history.is_cutting };
    Log::find(&disk_of(disk), &WalOptions { logs: count, ..options.clone() }, DATABASE, &known, None)
}

/// Opens the logs, which may fail because the power goes off again.
pub fn reopen(disk: &SimDisk, options: &WalOptions, count: u16, history: &mut History) -> Result<Log> {
    let found = find(disk, options, count, history)?;
    if let Some(cut) = found.cut() {
        history.complete = cut;
        history.is_cutting = true;
    }
    found.open()
}

pub fn change(page: usize, version: u64, after: Gsn, size: usize, payload: &mut Vec<u8>) -> NewRecord<'_> {
    payload.clear();
    payload.extend_from_slice(&version.to_le_bytes());
    payload.resize(8 + size, page as u8);
    NewRecord { page: PageId::new(page as u64 + 1), after, ..record(1, payload) }
}

/// Changes pages through random logs, and inserts sync records now and then, until an error or for
/// `steps` steps.
pub fn work(logs: &Log, history: &mut History, random: &mut Rng, steps: u64) -> Result<()> {
    let mut payload = Vec::new();
    for _ in 0..steps {
        let log = LogId::new(random.below(logs.count().into()) as u16);
        let page = random.below(PAGES as u64) as usize;
        let size = if random.below(8) == 0 { random.below(6000) } else { random.below(300) } as usize;
        let bytes = logs.record_bytes(size + 8);
        logs.reserve(2 * bytes)?;
        let new = change(page, history.versions[page], history.page_gsns[page], size, &mut payload);
        let inserted = logs.insert(log, new);
        assert!(inserted.gsn > history.page_gsns[page]);
        history.changes.push((inserted.gsn, page, history.versions[page]));
        history.page_gsns[page] = inserted.gsn;
        history.versions[page] += 1;
        if random.below(3) == 0 {
            let after = history.page_gsns[page];
            let commit = logs.insert(log, NewRecord { after, kind: 2, ..record(1, &[]) });
            let own = (random.below(2) == 0).then(|| commit.address());
            match random.below(4) {
                0 => {}
                1 => logs.harden(commit.gsn).wait()?,
                2 => logs.harden_at_once(commit.gsn, own)?,
                _ => logs.wait_hardened(commit.gsn, own)?,
            }
            if logs.is_hardened(commit.gsn) {
                history.acknowledged = history.acknowledged.max(commit.gsn);
            }
        }
        logs.unreserve(2 * bytes);
    }
    Ok(())
}

/// Returns the records of all logs from these positions on, in the order of their GSNs.
pub fn read_merged(logs: &Log, from: &[Lsn]) -> std::result::Result<Vec<Record>, String> {
    let mut merged = Vec::new();
    for (log, from) in from.iter().enumerate() {
        let records = read_one(logs, LogId::new(log as u16), *from).map_err(|error| error.to_string())?;
        if !records.is_sorted_by(|earlier, later| earlier.gsn < later.gsn) {
            return Err(format!("the GSNs of log {log} do not increase"));
        }
        merged.extend(records);
    }
    merged.sort_by_key(|record| record.gsn);
    Ok(merged)
}

/// Checks what is in the logs after a crash, and updates `history` to it.
pub fn check(logs: &Log, history: &mut History) -> std::result::Result<(), String> {
    let mut found = Vec::new();
    let mut versions = [0; PAGES];
    let records = read_merged(logs, &vec![FIRST_LSN; usize::from(logs.count())])?;
    for record in records.iter().filter(|record| record.kind == 1) {
        let page = record.page.get() as usize - 1;
        let version = u64::from_le_bytes(record.payload[..8].try_into().unwrap());
        if versions[page] != version {
            return Err(format!("page {page} has change {version} after {} changes", versions[page]));
        }
        versions[page] += 1;
        found.push((record.gsn, page, version));
    }
    let mut expected = history.changes.clone();
    expected.sort_unstable();
    found.sort_unstable();
    if let Some(lost) = expected.iter().find(|change| change.0 <= history.acknowledged && !found.contains(change)) {
        return Err(format!("{lost:?} is lost, and everything up to {} was acknowledged", history.acknowledged));
    }
    if let Some(stray) = found.iter().find(|change| !expected.contains(change)) {
        return Err(format!("{stray:?} was never inserted"));
    }
    // One thread has inserted all of them: what survives of it ends with an epoch.
    let mut left = history.changes.iter().skip_while(|change| found.contains(change));
    if let Some(lost) = left.next()
        && let Some(later) = left.find(|change| found.contains(change))
    {
        return Err(format!("{later:?} is left, and {lost:?}, which came before it, is lost"));
    }
    history.versions = versions;
    history.page_gsns = [Gsn::ZERO; PAGES];
    for (gsn, page, _) in &found {
        history.page_gsns[*page] = history.page_gsns[*page].max(*gsn);
    }
    history.changes = found;
    Ok(())
}

pub fn choices(seed: u64) -> impl Iterator<Item = CrashChoice> {
    [CrashChoice::Nothing, CrashChoice::Everything]
        .into_iter()
        .chain((0..4).map(move |n| CrashChoice::Random(seed * 8 + n)))
}

/// Creates logs and works; the power may go off anywhere.
fn run(world: &World, sweep: Sweep, history: &mut History) -> Result<()> {
    let options = world.options(&options(sweep.design));
    let logs = Log::create(&disk_of(&world.disk), &WalOptions { logs: sweep.count, ..options.clone() }, DATABASE)?;
    work_in(world, &logs, history, &mut Rng::new(sweep.seed), sweep.steps)
}

/// Does the same as [`work`], but ignores what is acknowledged while the power is off.
fn work_in(world: &World, logs: &Log, history: &mut History, random: &mut Rng, steps: u64) -> Result<()> {
    for _ in 0..steps {
        let heard = history.acknowledged;
        let outcome = work(logs, history, random, 1);
        if world.is_off() {
            history.acknowledged = heard;
            return Err(WalError::Closed);
        }
        outcome?;
    }
    Ok(())
}

/// What crashes, and at which operations of each device (the disk and the memories).
#[derive(Clone, Copy)]
pub struct Sweep {
    pub design: InsertDesign,
    pub count: u16,
    /// The persistence domain, if the logs end in rings.
    pub domain: Option<Domain>,
    pub seed: u64,
    pub stride: Stride,
    pub steps: u64,
}

/// Cuts the power at these operations. What each choice leaves is opened (while the power goes off
/// once more), checked, worked on, cut off and opened again.
pub fn crash_everywhere(sweep: Sweep) -> std::result::Result<u64, String> {
    let Sweep { design, count, domain, seed, stride, .. } = sweep;
    let world = World::new(seed, domain, count.into());
    run(&world, sweep, &mut History::default()).unwrap();
    let mut cuts = 0;
    for device in 0..world.devices() {
        for crash_at in stride.until(world.operations(device)) {
            let world = World::new(seed, domain, count.into());
            world.crash_at(device, crash_at);
            let mut history = History::default();
            if run(&world, sweep, &mut history).is_ok() {
                world.crash();
            }
            if history.changes.is_empty() {
                // There may be no logs yet.
                continue;
            }
            for choice in choices(crash_at) {
                cuts += recover(sweep, crash_at, world.crash_image(&choice), history.clone()).map_err(|what| {
                    let logs = domain.map_or("files".to_owned(), |domain| domain.to_string());
                    format!(
                        "{design}, {count} logs, {logs}, seed {seed}, crash at {crash_at} of device {device}, \
                         {choice:?}: {what}"
                    )
                })?;
            }
        }
    }
    Ok(cuts)
}

fn recover(sweep: Sweep, crash_at: u64, mut image: World, mut history: History) -> std::result::Result<u64, String> {
    let Sweep { design, count, seed, .. } = sweep;
    let reopen =
        |image: &World, history: &mut History| reopen(&image.disk, &image.options(&options(design)), count, history);
    for again in 0..4 {
        // The decision where to cut is made once and kept, whatever happens to the cutting.
        let device = again as usize % image.devices();
        image.crash_at(device, image.operations(device) + (crash_at + again * 7) % 40);
        match reopen(&image, &mut history) {
            Ok(_) => break,
            Err(error) if image.is_off() => drop(error),
            Err(error) => return Err(format!("opened under fire: {error}")),
        }
        image.crash();
        image = image.crash_image(&CrashChoice::Random(crash_at + again));
    }
    let image = image.crash_image(&CrashChoice::Everything);
    let logs = reopen(&image, &mut history).map_err(|error| error.to_string())?;
    let cuts = u64::from(history.is_cutting);
    check(&logs, &mut history)?;
    // As a checkpoint would do.
    history.is_cutting = false;
    work(&logs, &mut history, &mut Rng::new(seed ^ crash_at), 12).unwrap();
    image.crash();
    drop(logs);
    let image = image.crash_image(&CrashChoice::Random(crash_at));
    // What was cut is now behind a checkpoint, which this test does not have, so the test sets the
    // flag again.
    history.is_cutting = true;
    let logs = reopen(&image, &mut history).map_err(|error| format!("again: {error}"))?;
    check(&logs, &mut history).map_err(|what| format!("again: {what}"))?;
    Ok(cuts)
}
