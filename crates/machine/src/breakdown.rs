//! How simulated threads spend their time.

use crate::Time;

/// What a thread works on; the categories of the papers' time breakdowns (Aether, Figs. 2, 8 and
/// 12).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Category {
    /// Anything else: the transaction's own work.
    #[default]
    Work,
    /// The log: records and the log buffer.
    Log,
    /// The lock manager.
    Lock,
    /// Latches of pages.
    Latch,
    /// The buffer pool.
    Buffer,
    /// Beginning, committing and aborting transactions.
    Commit,
}

impl Category {
    /// All, in the order of tables.
    pub const ALL: [Self; 6] = [Self::Work, Self::Log, Self::Lock, Self::Latch, Self::Buffer, Self::Commit];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Log => "log",
            Self::Lock => "lock",
            Self::Latch => "latch",
            Self::Buffer => "buffer",
            Self::Commit => "commit",
        }
    }
}

/// Time by category; each has the time spent working, the time spent spinning for other threads,
/// and the time spent off the processor, waiting to be woken or asleep for a time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Breakdown {
    busy: [Time; Category::ALL.len()],
    waiting: [Time; Category::ALL.len()],
    blocked: [Time; Category::ALL.len()],
}

impl Breakdown {
    pub(crate) fn add(&mut self, category: Category, waiting: bool, time: Time) {
        let times = if waiting { &mut self.waiting } else { &mut self.busy };
        times[category as usize] += time;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for category in Category::ALL {
            self.add(category, false, other.busy(category));
            self.add(category, true, other.waiting(category));
            self.blocked[category as usize] += other.blocked(category);
        }
    }

    /// Returns what was spent from `earlier` to `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut spent = *self;
        for at in 0..Category::ALL.len() {
            spent.busy[at] = self.busy[at].saturating_sub(earlier.busy[at]);
            spent.waiting[at] = self.waiting[at].saturating_sub(earlier.waiting[at]);
            spent.blocked[at] = self.blocked[at].saturating_sub(earlier.blocked[at]);
        }
        spent
    }

    /// Returns the time spent working.
    pub fn busy(&self, category: Category) -> Time {
        self.busy[category as usize]
    }

    /// Returns the time spent spinning for others.
    pub fn waiting(&self, category: Category) -> Time {
        self.waiting[category as usize]
    }

    /// Returns the time spent off the processor, waiting to be woken or asleep for a time.
    pub fn blocked(&self, category: Category) -> Time {
        self.blocked[category as usize]
    }

    pub(crate) fn add_blocked(&mut self, category: Category, time: Time) {
        self.blocked[category as usize] += time;
    }

    /// Returns all time on the processor.
    pub fn total(&self) -> Time {
        self.busy.iter().chain(&self.waiting).fold(Time::ZERO, |sum, &time| sum + time)
    }
}

/// Visits to data that moves between sockets, such as pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Visits {
    /// Visits.
    pub all: u64,
    /// Those that came from another socket than the visit before.
    pub migrated: u64,
}

impl Visits {
    /// Returns the visits from `earlier` to `self`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self { all: self.all - earlier.all, migrated: self.migrated - earlier.migrated }
    }
}
