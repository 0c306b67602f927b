//! The operations on a PCM that remembers what it holds: the paper's example, and crashes at every
//! step of random histories.

use std::collections::{BTreeMap, BTreeSet};

use duramen_sync::SplitMix64;

use super::*;

/// A PCM and a disk with their contents. After each step it is as a crash would leave it; then
/// recovery must find what had been committed.
#[derive(Clone, Debug)]
struct Durable {
    granularity: Granularity,
    slots: usize,
    stored: BTreeMap<Slot, Stored>,
    active: BTreeSet<Xid>,
    disk: BTreeMap<Unit, Version>,
    /// What the model says has been committed, ...
    committed: BTreeMap<Unit, Version>,
    /// ... and what will be when this transaction leaves the list.
    committing: Option<(Xid, BTreeMap<Unit, Version>)>,
    checks: bool,
    steps: u64,
    writes_back: u64,
}

impl Durable {
    fn new(granularity: Granularity, slots: usize) -> Self {
        Self {
            granularity,
            slots,
            stored: BTreeMap::new(),
            active: BTreeSet::new(),
            disk: BTreeMap::new(),
            committed: BTreeMap::new(),
            committing: None,
            checks: true,
            steps: 0,
            writes_back: 0,
        }
    }

    /// Recovers from what is there.
    fn recover(&mut self) -> Buffer {
        let (stored, active) = (self.stored.clone(), self.active.clone());
        Buffer::recover((self.granularity, self.slots), &stored, &active, self)
    }

    /// Returns what can be read: the PCM overrides the disk.
    fn state(&self, buffer: &Buffer) -> BTreeMap<Unit, Version> {
        let mut state = self.disk.clone();
        for (slot, stored) in &self.stored {
            if buffer.mapping.get(stored.unit) == Some(*slot) {
                state.insert(stored.unit, stored.version);
            }
        }
        state
    }

    /// Crashes here, and crashes again at each step of the recovery.
    fn check(&mut self) {
        self.steps += 1;
        if !self.checks {
            return;
        }
        let mut copy = Self { checks: false, ..self.clone() };
        let buffer = copy.recover();
        assert_eq!(copy.state(&buffer), self.committed, "after a crash in step {}", self.steps);
        assert!(copy.active.is_empty() && copy.writes_back == self.writes_back, "recovery does not use the disk");
        for (slot, stored) in &copy.stored {
            assert_eq!(buffer.mapping.get(stored.unit), Some(*slot), "what is of no use is free");
        }
    }
}

impl Medium for Durable {
    fn list(&mut self, xid: Xid) {
        assert!(self.active.insert(xid));
        self.check();
    }

    fn unlist(&mut self, xid: Xid) {
        assert!(self.active.remove(&xid));
        if self.committing.as_ref().is_some_and(|(committing, _)| *committing == xid) {
            self.committed.extend(self.committing.take().unwrap().1);
        }
        self.check();
    }

    fn store(&mut self, slot: Slot, stored: Stored) {
        assert!((slot.0 as usize) < self.slots && self.stored.insert(slot, stored).is_none(), "never over another one");
        self.check();
    }

    fn free(&mut self, slot: Slot) {
        assert!(self.stored.remove(&slot).is_some());
        self.check();
    }

    fn write_back(&mut self, page: Page, units: &[Stored], _: bool) {
        assert!(!units.is_empty());
        for stored in units {
            assert_eq!(self.granularity.page(stored.unit), page);
            assert!(!self.active.contains(&stored.xid), "only what is committed gets to disk");
            self.disk.insert(stored.unit, stored.version);
        }
        self.writes_back += 1;
        self.check();
    }
}

/// Figures 2 and 3 of the paper: a page of a committed transaction is changed, stored and
/// committed, or taken back.
#[test]
fn the_example_of_the_paper() {
    let (p5, t2, t3) = (Unit(5), Xid::new(2), Xid::new(3));
    for commits in [true, false] {
        let mut pcm = Durable { checks: false, ..Durable::new(Granularity::Page, 8) };
        let mut buffer = Buffer::new(Granularity::Page, 8);
        buffer.change(t2, p5, Version(20));
        pcm.committing = Some((t2, BTreeMap::from([(p5, Version(20))])));
        buffer.commit(t2, &mut pcm);
        let m7 = buffer.mapping.get(p5).unwrap();
        // In DRAM only, then stored out of place; the version before is in the dirty page table.
        buffer.change(t3, p5, Version(30));
        assert!(pcm.active.is_empty() && buffer.mapping.get(p5) == Some(m7));
        buffer.flush_page(Page::new(5), &mut pcm);
        let m8 = buffer.mapping.get(p5).unwrap();
        assert!(m8 != m7 && pcm.stored.len() == 2);
        assert_eq!((&pcm.active, &buffer.previous), (&BTreeSet::from([t3]), &HashMap::from([(p5, m7)])));
        if commits {
            pcm.committing = Some((t3, BTreeMap::from([(p5, Version(30))])));
            buffer.commit(t3, &mut pcm);
            assert_eq!(pcm.stored.keys().collect::<Vec<_>>(), [&m8]);
        } else {
            assert_eq!(buffer.abort(t3, &mut pcm), [p5]);
            assert_eq!(pcm.stored.keys().collect::<Vec<_>>(), [&m7]);
        }
        assert_eq!(buffer.mapping.get(p5), Some(if commits { m8 } else { m7 }));
        assert!(pcm.active.is_empty() && buffer.previous.is_empty());
    }
}

#[test]
fn recovery_discards_the_pages_of_listed_transactions() {
    // The right part of Figure 2: T1 has M1 to M3, and T2, which committed, M5 and M7.
    let (t1, t2) = (Xid::new(1), Xid::new(2));
    let stored = |unit, xid, stamp| Stored { unit: Unit(unit), xid, stamp, version: Version(stamp) };
    let mut pcm = Durable { checks: false, ..Durable::new(Granularity::Page, 8) };
    pcm.stored = BTreeMap::from([
        (Slot(1), stored(1, t1, 1)),
        (Slot(2), stored(2, t1, 2)),
        (Slot(3), stored(3, t1, 3)),
        (Slot(5), stored(4, t2, 4)),
        (Slot(7), stored(5, t2, 5)),
    ]);
    pcm.active.insert(t1);
    let mut buffer = pcm.recover();
    assert_eq!(pcm.stored.keys().collect::<Vec<_>>(), [&Slot(5), &Slot(7)]);
    assert_eq!((buffer.mapping.get(Unit(4)), buffer.mapping.get(Unit(1))), (Some(Slot(5)), None));
    // Six slots are free again.
    for (unit, xid) in (10..16).zip(10..) {
        assert!(!buffer.has_been_full());
        buffer.change(Xid::new(xid), Unit(unit), Version(9));
        buffer.commit(Xid::new(xid), &mut pcm);
    }
    assert_eq!((pcm.stored.len(), pcm.writes_back), (8, 0));
}

#[test]
fn the_tuple_used_longest_ago_leaves_with_its_page() {
    let mut pcm = Durable { checks: false, ..Durable::new(Granularity::Tuple, 4) };
    let mut buffer = Buffer::new(Granularity::Tuple, 4);
    let commit = |buffer: &mut Buffer, pcm: &mut Durable, number: u64, units: &[u32]| {
        units.iter().for_each(|unit| buffer.change(Xid::new(number), Unit(*unit), Version(number)));
        buffer.commit(Xid::new(number), pcm);
    };
    // Two tuples of page 0, two of page 1; then the first is used.
    commit(&mut buffer, &mut pcm, 1, &[0]);
    commit(&mut buffer, &mut pcm, 2, &[64]);
    commit(&mut buffer, &mut pcm, 3, &[65, 1]);
    assert!(buffer.hit(Unit(0)) && !buffer.hit(Unit(2)));
    // Tuple 64 is the oldest: page 1 leaves as a whole.
    commit(&mut buffer, &mut pcm, 4, &[128]);
    assert_eq!(pcm.disk, BTreeMap::from([(Unit(64), Version(2)), (Unit(65), Version(3))]));
    assert_eq!((buffer.buffered(Page::new(0)), buffer.buffered(Page::new(1))), (2, 0));
    assert!(buffer.has_been_full() && pcm.writes_back == 1);
    // A new version of tuple 0 holds the one before: of page 0 only tuple 1 can leave.
    buffer.change(Xid::new(5), Unit(0), Version(5));
    buffer.flush(Xid::new(5), Unit(0), &mut pcm);
    commit(&mut buffer, &mut pcm, 6, &[192]);
    assert_eq!(pcm.disk.get(&Unit(1)), Some(&Version(3)));
    assert_eq!((pcm.disk.get(&Unit(0)), buffer.buffered(Page::new(0))), (None, 1));
}

/// Random transactions of three clients on a few units, with a PCM that is nearly too small: at
/// each step of each operation a crash must leave exactly what was committed, and real crashes go
/// on from there.
#[test]
fn a_crash_at_any_step_leaves_exactly_what_was_committed() {
    let (mut steps, mut writes_back, mut crashes, mut aborts) = (0, 0, 0, 0);
    for granularity in [Granularity::Page, Granularity::Tuple] {
        for seed in 0..60 {
            let mut random = SplitMix64::new(seed);
            // Three transactions of at most three units hold two slots for each unit, and one more
            // while a version is stored anew.
            let slots = 19 + random.below(4) as usize;
            let (mut pcm, mut buffer) = (Durable::new(granularity, slots), Buffer::new(granularity, slots));
            let mut running: Vec<_> = (1..=3).map(|number| (Xid::new(number), BTreeMap::new())).collect();
            let mut next = 4;
            for step in 1..400 {
                let client = random.below(3) as usize;
                // Tuples 40 to 89 are in two pages.
                let unit = Unit(40 + random.below(50) as u32);
                let (xid, changes): (Xid, BTreeMap<Unit, Version>) = running[client].clone();
                match random.below(12) {
                    0..=5 => {
                        let is_locked = (0..3).any(|other| other != client && running[other].1.contains_key(&unit));
                        if !is_locked && (changes.len() < 3 || changes.contains_key(&unit)) {
                            let version = Version(step);
                            buffer.change(xid, unit, version);
                            running[client].1.insert(unit, version);
                            if random.below(3) == 0 {
                                buffer.flush(xid, unit, &mut pcm);
                            }
                        }
                        continue;
                    }
                    6 => {
                        buffer.flush_page(granularity.page(unit), &mut pcm);
                        continue;
                    }
                    7 => {
                        buffer.hit(unit);
                        continue;
                    }
                    8 | 9 => {
                        pcm.committing = Some((xid, changes.clone()));
                        buffer.commit(xid, &mut pcm);
                        assert_eq!(pcm.committing.take().is_some(), changes.is_empty());
                    }
                    10 => {
                        aborts += 1;
                        assert_eq!(buffer.abort(xid, &mut pcm), changes.into_keys().collect::<Vec<_>>());
                    }
                    _ => {
                        // The power fails: transactions in progress are lost, and DRAM with them.
                        crashes += 1;
                        pcm.check();
                        buffer = pcm.recover();
                        running.iter_mut().for_each(|running| *running = (Xid::new(0), BTreeMap::new()));
                    }
                }
                for running in &mut running {
                    if running.0 == xid || running.0 == Xid::new(0) {
                        *running = (Xid::new(next), BTreeMap::new());
                        next += 1;
                    }
                }
                let mut now = pcm.state(&buffer);
                let uncommitted: BTreeSet<Unit> =
                    running.iter().flat_map(|(_, changes)| changes.keys().copied()).collect();
                let mut expected = pcm.committed.clone();
                for unit in uncommitted {
                    now.remove(&unit);
                    expected.remove(&unit);
                }
                assert_eq!(now, expected, "seed {seed}, step {step}");
            }
            steps += pcm.steps;
            writes_back += pcm.writes_back;
        }
    }
    assert!(
        steps > 20_000 && writes_back > 500 && crashes > 500 && aborts > 500,
        "{steps} steps, {writes_back} writes back, {crashes} crashes, {aborts} aborts"
    );
}
