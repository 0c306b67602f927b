//! Measures the shape of a table's tree.

use std::fmt;

use duramen_sync::atomic::AtomicBool;
use duramen_types::TableId;

use crate::api::db::Db;
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

/// Measures a table by reading its whole tree, except for the overflow values. No transaction may
/// write to the table meanwhile.
///
/// # Errors
/// [`Error::NoSuchTable`], [`Error::Closed`], [`Error::Corrupt`] and [`Error::Io`].
pub fn table(db: &Db, table: &Table) -> Result<TableReport> {
    let engine = db.engine();
    if engine.health.is_closed() {
        return Err(Error::Closed);
    }
    let tree = table.tree(&db.engine().tables)?;
    table.check_not_dropped()?;
    engine.finish_in_doubt(&AtomicBool::new(false))?;
    let mut report = TableReport {
        name: table.name().to_owned(),
        id: table.id(),
        levels: Vec::new(),
        records: 0,
        ghosts: 0,
        overflow_values: 0,
        overflow_bytes: 0,
        overflow_pages: 0,
    };
    let mut pending = vec![(tree.root, None)];
    while let Some((id, wanted)) = pending.pop() {
        let bytes = engine.store.pool.shared(id).map_err(|error| engine.note(error.into()))?.to_vec();
        page::check(&bytes).map_err(|defect| broken(id, &defect))?;
        let node = Node(&bytes[..]);
        let level = node.level();
        if page::table_id(&bytes) != tree.table || wanted.is_some_and(|wanted| wanted != level) {
            return Err(broken(id, "the page is not the node that its parent refers to").into());
        }
        report.count(node);
        if level > 0 {
            pending.extend((0..=node.slot_count()).map(|slot| (node.child(slot), Some(level - 1))));
        }
    }
    Ok(report)
}

impl TableReport {
    fn count(&mut self, node: Node<&[u8]>) {
        if self.levels.is_empty() {
            self.levels =
                (0..=node.level()).rev().map(|level| LevelReport { level, ..LevelReport::default() }).collect();
        }
        let entries = node.slot_count() as u64 + u64::from(!node.is_leaf());
        let (used, free) = (node.used_space() as f64, node.free_space() as f64);
        if let Some(level) = self.levels.iter_mut().find(|level| level.level == node.level()) {
            level.pages += 1;
            level.entries += entries;
            level.fill += (used / (used + free) - level.fill) / level.pages as f64;
        }
        if !node.is_leaf() {
            return;
        }
        for slot in 0..node.slot_count() {
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
