//! Builds the tree of a table that is loaded in bulk.
//!
//! The transaction allocates the pages and logs each as an image; nothing refers to them before
//! the table's record in the catalog does. A rollback, also after a crash, frees them.

use super::write::ChainLog;
use super::{Txn, check_key, check_value};
use crate::btree::{NewPages, TreeBuilder};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::page::{self, MAX_INLINE_SIZE, PageBuf, SlotFlags};
use crate::record::{PageOp, Tree};
use crate::storage::free_space::Purpose;
use crate::storage::mini_transaction::MiniTransaction;
use crate::txn_state::log::TxnLog;

use duramen_types::{PAGE_SIZE, PageId, TableId};

/// Allocates and logs the pages of a new tree.
struct LoadedPages<'a> {
    engine: &'a Engine,
    log: &'a mut TxnLog,
}

impl NewPages for LoadedPages<'_> {
    fn store(&mut self, mut bytes: PageBuf) -> Result<PageId> {
        let (engine, store) = (self.engine, &self.engine.store);
        engine.reserve_log(self.log, PAGE_SIZE)?;
        let taken = store.space.take(&store.pool, &*store.scheme, Purpose::Work)?;
        let guard = store.pool.create(taken.page)?;
        let id = guard.id();
        page::set_page_id(&mut bytes.page_mut(), id);
        let mut mini = MiniTransaction::new();
        let index = mini.include(guard);
        mini.apply(index, PageOp::Image(&page::image(&bytes)));
        taken.record(&mut mini);
        self.log.allocate(engine.scheme(), &engine.txns, mini, id);
        Ok(id)
    }
}

impl Txn {
    /// Adds a record to a tree under construction.
    pub(crate) fn load_record(
        &mut self,
        table: TableId,
        tree: &mut TreeBuilder,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.check_usable()?;
        let result = self.try_load_record(table, tree, key, value);
        self.record_outcome(result)
    }

    fn try_load_record(&mut self, table: TableId, tree: &mut TreeBuilder, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        if tree.last_key().is_some_and(|last| last >= key) {
            return Err(Error::KeyNotAscending);
        }
        let (engine, store, context) = self.parts();
        let log = &mut context.log;
        let (payload, flags) = if key.len() + value.len() <= MAX_INLINE_SIZE {
            (value.to_vec(), SlotFlags::NONE)
        } else {
            let reference = store.write_overflow_chain(&mut ChainLog { engine, log }, table, value)?;
            (reference.encode().to_vec(), SlotFlags::OVERFLOW)
        };
        tree.add(&mut LoadedPages { engine, log }, key.to_vec(), payload, flags)
    }

    /// Completes a tree; returns its root.
    pub(crate) fn load_end(&mut self, tree: TreeBuilder) -> Result<PageId> {
        self.internal(|engine, context| tree.finish(&mut LoadedPages { engine, log: &mut context.log }))
    }

    /// Returns whether a tree, which the transaction has locked as a whole, has no record.
    pub(crate) fn is_tree_empty(&mut self, tree: Tree) -> Result<bool> {
        Ok(self.scan_tree(tree).next().transpose()?.is_none())
    }
}
