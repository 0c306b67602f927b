//! What a power cut leaves on the medium.

use duramen_sync::{Arc, SplitMix64};
use duramen_types::{BLOCK_SIZE, SECTOR_SIZE};

use super::content::{Block, Content};
use super::inode::{Inode, Pending};
use super::state::State;

/// Which un-synced changes a crash image holds.
///
/// The units, in the order in which bits and random numbers decide about them: the un-synced name
/// changes in the order in which they were made; then file by file, in the order in which the files
/// were created, the un-synced writes and length changes in the order in which they were made. A
/// write that extends its file is two units: the new length and the data. Data whose length is lost
/// cannot be read, and a file whose name is lost is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashChoice {
    /// None: only what was synced.
    Nothing,
    /// All of them, whole and in order.
    Everything,
    /// The units whose bits are set, whole and in order; units from the 65th on are lost.
    Subset(u64),
    /// Drawn from this seed: each unit is lost, kept or torn, and writes are applied in any order.
    /// Of a torn write, any set of its sectors is present; a torn extension reaches up to any
    /// block. Every seed also draws how likely loss and tearing are, so that a few seeds show many
    /// kinds of crashes.
    Random(u64),
}

/// What happens to one unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    Torn,
}

/// Decides the fates, unit by unit.
enum Dealer {
    Fixed(Fate),
    Bits { mask: u64 },
    Dice { rng: SplitMix64, lost_percent: u64, torn_percent: u64 },
}

impl Dealer {
    fn new(choice: &CrashChoice) -> Self {
        match choice {
            CrashChoice::Nothing => Self::Fixed(Fate::Lost),
            CrashChoice::Everything => Self::Fixed(Fate::Kept),
            CrashChoice::Subset(mask) => Self::Bits { mask: *mask },
            CrashChoice::Random(seed) => {
                let mut rng = SplitMix64::new(*seed);
                let lost_percent = [5, 30, 50, 90][rng.below(4) as usize];
                let torn_percent = [0, 10, 50, 100][rng.below(4) as usize];
                Self::Dice { rng, lost_percent, torn_percent }
            }
        }
    }

    fn deal(&mut self) -> Fate {
        match self {
            Self::Fixed(fate) => *fate,
            Self::Bits { mask } => {
                let kept = *mask & 1 == 1;
                *mask >>= 1;
                if kept { Fate::Kept } else { Fate::Lost }
            }
            Self::Dice { rng, lost_percent, torn_percent } => {
                if rng.below(100) < *lost_percent {
                    Fate::Lost
                } else if rng.below(100) < *torn_percent {
                    Fate::Torn
                } else {
                    Fate::Kept
                }
            }
        }
    }

    /// Returns a number below `bound` for the details of a torn unit; only dice tear.
    fn below(&mut self, bound: u64) -> u64 {
        match self {
            Self::Dice { rng, .. } => rng.below(bound),
            Self::Fixed(_) | Self::Bits { .. } => 0,
        }
    }

    /// Puts changes that the medium does not order into any order.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        if let Self::Dice { rng, .. } = self {
            for last in (1..items.len()).rev() {
                items.swap(last, rng.below(last as u64 + 1) as usize);
            }
        }
    }
}

/// Returns the number of units about which a crash now would decide.
pub(super) fn unsynced(state: &State) -> usize {
    let writes = |id| state.inode(id).pending().len();
    state.pending_names.len() + state.reachable().into_iter().map(writes).sum::<usize>()
}

/// Returns what is on the medium if the power goes off now and `choice` decides about everything
/// un-synced.
pub(super) fn after_crash(state: &State, choice: &CrashChoice) -> State {
    let mut dealer = Dealer::new(choice);
    let mut names = state.durable_names.clone();
    for change in &state.pending_names {
        if dealer.deal() != Fate::Lost {
            names.apply(change);
        }
    }
    names.drop_orphans();
    let resolved = state.reachable().into_iter().map(|id| (id, content_after_crash(state.inode(id), &mut dealer)));
    let contents: std::collections::BTreeMap<_, _> = resolved.collect();
    build(state, names, |id| contents[&id].clone())
}

/// Returns the disk as programs see it, all of it durable.
pub(super) fn all_synced(state: &State) -> State {
    build(state, state.names.clone(), |id| state.inode(id).volatile().clone())
}

fn build(state: &State, names: super::names::Names, content: impl Fn(u64) -> Content) -> State {
    let mut image = State::new(state.rng.clone());
    for (name, id) in &names.files {
        let inode = Inode::synced(name.clone(), content(*id), state.inode(*id).reserved());
        image.inodes.insert(*id, inode);
    }
    image.next_inode = state.next_inode;
    image.durable_names = names.clone();
    image.names = names;
    image
}

/// Returns the content of one file after a crash. Writes and extensions have no order among
/// themselves; a shrinking keeps its place, since the metadata of one file changes in order.
fn content_after_crash(inode: &Inode, dealer: &mut Dealer) -> Content {
    let mut content = inode.durable().clone();
    let mut unordered = Vec::new();
    for pending in inode.pending() {
        let fate = dealer.deal();
        if let Pending::Shrink(len) = pending {
            apply_unordered(&mut content, &mut unordered, dealer);
            if fate != Fate::Lost {
                content.cut(*len);
            }
        } else if fate != Fate::Lost {
            unordered.push((pending, fate));
        }
    }
    apply_unordered(&mut content, &mut unordered, dealer);
    content.cut(content.len());
    content
}

fn apply_unordered(content: &mut Content, changes: &mut Vec<(&Pending, Fate)>, dealer: &mut Dealer) {
    dealer.shuffle(changes);
    for (pending, fate) in changes.drain(..) {
        match pending {
            Pending::Extend(len) if fate == Fate::Torn => {
                let blocks = len.saturating_sub(content.len()).div_ceil(BLOCK_SIZE as u64);
                let reached = content.len() + dealer.below(blocks + 1) * BLOCK_SIZE as u64;
                content.extend(reached.min(*len));
            }
            Pending::Extend(len) => content.extend(*len),
            Pending::Shrink(_) => unreachable!("a shrinking is applied in its place"),
            Pending::Write { first, blocks } => {
                for (index, block) in (*first..).zip(blocks) {
                    let Some(block) = block else { continue };
                    let result =
                        if fate == Fate::Torn { tear(content, index, block, dealer) } else { Arc::clone(block) };
                    content.put(index, result);
                }
            }
        }
    }
}

/// Returns a mixture of the sectors on the medium and those of `block`.
fn tear(content: &Content, index: u64, block: &Arc<Block>, dealer: &mut Dealer) -> Arc<Block> {
    let mut torn = content.block(index).map_or([0; BLOCK_SIZE], |old| **old);
    for (sector, new) in torn.chunks_exact_mut(SECTOR_SIZE).zip(block.chunks_exact(SECTOR_SIZE)) {
        if dealer.below(2) == 1 {
            sector.copy_from_slice(new);
        }
    }
    Arc::new(torn)
}
