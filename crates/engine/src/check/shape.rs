//! The shape of a table's tree.
//!
//! The nodes of a level are found one after the other, by their fences, and each is copied as it is
//! then. So transactions may change the tree meanwhile, and no lock is taken.

use std::fmt;

use duramen_sync::atomic::AtomicBool;
use duramen_types::{PAGE_SIZE, TableId};

use crate::btree::OUT_OF_ORDER;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::maintenance::Maintenance;
use crate::page::{self, Node, SlotFlags};
use crate::pool::broken;
use crate::storage::catalog::Table;
use crate::storage::overflow::{PAGE_CONTENT, Reference};

/// One level of a tree.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LevelReport {
    /// Height above the leaves, which are level 0.
    pub level: u8,
    /// Number of nodes.
    pub pages: u64,
    /// Records (ghosts included) in leaves; children in inner nodes.
    pub entries: u64,
    /// Average share of a node's space in use, from 0 to 1.
    pub fill: f64,
}

/// The shape of a table. `Display` formats it for human readers.
#[derive(Clone, PartialEq, Debug)]
pub struct TableReport {
    /// The table's name.
    pub name: String,
    /// The table's number.
    pub id: TableId,
    /// The levels of its tree, from the root down to the leaves.
    pub levels: Vec<LevelReport>,
    /// Records, without ghosts.
    pub records: u64,
    /// Deleted records that still occupy space.
    pub ghosts: u64,
    /// Values that are stored in overflow pages.
    pub overflow_values: u64,
    /// Total bytes of these values.
    pub overflow_bytes: u64,
    /// Pages of these values.
    pub overflow_pages: u64,
}

impl TableReport {
    /// Measures a table. Calls `go_on` for each node, until it is an error, and then `leaf` for
    /// each leaf, with the slot that it counts from.
    pub(crate) fn measure(
        engine: &Engine,
        table: &Table,
        mut go_on: impl FnMut() -> Result<()>,
        mut leaf: impl FnMut(&Node<&[u8]>, usize),
    ) -> Result<Self> {
        let tree = table.tree(&engine.tables)?;
        engine.finish_in_doubt(&AtomicBool::new(false))?;
        let mut report = Self {
            name: table.name().to_owned(),
            id: table.id(),
            levels: Vec::new(),
            records: 0,
            ghosts: 0,
            overflow_values: 0,
            overflow_bytes: 0,
            overflow_pages: 0,
        };
        let read = |level: u8, key: &[u8]| {
            let mut bytes = Vec::with_capacity(PAGE_SIZE);
            let read = engine.store.copy_node(tree, level, key, &mut bytes);
            // The pages of a dropped table are freed and used again, so any error may follow.
            table.check_not_dropped()?;
            read.map_err(|error| engine.note(error.into()))?;
            page::check(&bytes).map_err(|defect| broken(page::page_id(&bytes), &defect))?;
            Ok::<_, Error>(bytes)
        };
        let root = Node(&read(u8::MAX, &[])?[..]).level();
        for level in (0..=root).rev() {
            let mut key = Vec::new();
            loop {
                go_on()?;
                let bytes = read(level, &key)?;
                let node = Node(&bytes[..]);
                if node.level() != level {
                    // The tree has become lower.
                    break;
                }
                let first = node.lower_bound(&key).0;
                report.count(&node, first);
                if level == 0 {
                    leaf(&node, first);
                }
                let Some(fence) = node.upper_fence() else { break };
                if *fence < key[..] {
                    return Err(broken(page::page_id(&bytes), OUT_OF_ORDER).into());
                }
                key = fence.to_owned();
                key.push(0);
            }
        }
        Ok(report)
    }

    /// Counts a node from the slot `first` on. What lies before was counted with the node on its
    /// left, which has been merged with it since.
    fn count(&mut self, node: &Node<&[u8]>, first: usize) {
        if self.levels.is_empty() {
            self.levels =
                (0..=node.level()).rev().map(|level| LevelReport { level, ..LevelReport::default() }).collect();
        }
        let entries = (node.slot_count() - first) as u64 + u64::from(!node.is_leaf());
        let (used, free) = (node.used_space() as f64, node.free_space() as f64);
        if let Some(level) = self.levels.iter_mut().find(|level| level.level == node.level()) {
            level.entries += entries;
            if first == 0 {
                level.pages += 1;
                level.fill += (used / (used + free) - level.fill) / level.pages as f64;
            }
        }
        if !node.is_leaf() {
            return;
        }
        for slot in first..node.slot_count() {
            let flags = node.flags(slot);
            if flags.contains(SlotFlags::GHOST) {
                self.ghosts += 1;
                continue;
            }
            self.records += 1;
            if let (true, Some(reference)) = (flags.contains(SlotFlags::OVERFLOW), Reference::decode(node.value(slot)))
            {
                self.overflow_values += 1;
                self.overflow_bytes += u64::from(reference.len);
                self.overflow_pages += (reference.len as usize).div_ceil(PAGE_CONTENT).max(1) as u64;
            }
        }
    }
}

impl fmt::Display for TableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table `{}` ({})", self.name, self.id)?;
        writeln!(f, "{} records, {} ghosts", self.records, self.ghosts)?;
        let (values, bytes, pages) = (self.overflow_values, self.overflow_bytes, self.overflow_pages);
        writeln!(f, "{values} overflow values of {bytes} bytes in {pages} pages")?;
        write!(f, "{:>5} {:>10} {:>12} {:>6}", "level", "pages", "entries", "fill")?;
        for level in &self.levels {
            let fill = format!("{:.1}%", level.fill * 100.0);
            write!(f, "\n{:>5} {:>10} {:>12} {fill:>6}", level.level, level.pages, level.entries)?;
        }
        Ok(())
    }
}
