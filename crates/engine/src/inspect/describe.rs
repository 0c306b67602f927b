//! Describes log records in words.

use duramen_types::PageId;

use super::text;
use crate::checkpoint::tables::{CheckpointEnd, decode_pages, decode_txns};
use crate::page::{self, Node, PageBuf, PageType, SlotFlags, bitmap};
use crate::record::{
    DeferredFree, FLAG_HAS_DEFERRED_FREES, FLAG_SEVERAL_PAGES, FlagRun, Kind, Malformed, PageOp, PageOps, Reader, Undo,
    inverse, undo_next,
};
use crate::storage::overflow::Reference;
use crate::timestamp::Timestamp;

/// Number of entries of a checkpoint's table that are spelled out.
const ENTRIES: usize = 8;

/// Returns the name of a kind of record.
pub(super) fn kind(raw: u8) -> String {
    let name = match Kind::from_u8(raw) {
        Some(Kind::Update) => "update",
        Some(Kind::System) => "system",
        Some(Kind::Compensation) => "compensation",
        Some(Kind::Commit) => "commit",
        Some(Kind::End) => "end",
        Some(Kind::FreeOnCommit) => "free-on-commit",
        Some(Kind::CheckpointBegin) => "checkpoint-begin",
        Some(Kind::CheckpointTransactions) => "transaction-table",
        Some(Kind::CheckpointPages) => "dirty-page-table",
        Some(Kind::CheckpointEnd) => "checkpoint-end",
        Some(Kind::SyncRecord) => "sync record",
        None => return format!("unknown {raw}"),
    };
    name.to_owned()
}

/// Describes the contents of a record. If a payload is malformed, the description says so after the
/// part that could be decoded.
pub(super) fn detail(kind: u8, flags: u8, page: PageId, payload: &[u8]) -> String {
    let mut parts = Vec::new();
    if let Err(Malformed) = parts_of(Kind::from_u8(kind), flags, page, payload, &mut parts) {
        let shown = &payload[..payload.len().min(32)];
        parts.push(format!("malformed payload of {} bytes: {}", payload.len(), text::hex(shown)));
    }
    parts.join("; ")
}

fn parts_of(
    kind: Option<Kind>,
    flags: u8,
    page: PageId,
    payload: &[u8],
    parts: &mut Vec<String>,
) -> Result<(), Malformed> {
    let operations = |kind, named: bool, parts: &mut Vec<String>| {
        for item in PageOps::of(kind, flags, page, payload)? {
            let (page, op) = item?;
            let what = operation(page, op);
            parts.push(if named { format!("{page}: {what}") } else { what });
        }
        Ok(())
    };
    match kind {
        Some(kind @ Kind::Update) => {
            operations(kind, flags & FLAG_SEVERAL_PAGES != 0, parts)?;
            parts.push(format!("undo: {}", undo(inverse(payload)?)));
        }
        Some(kind @ Kind::System) => operations(kind, true, parts)?,
        Some(kind @ Kind::Compensation) => {
            operations(kind, true, parts)?;
            let next = undo_next(payload)?;
            parts.push(if next.is_zero() {
                "nothing is left to undo".to_owned()
            } else {
                format!("undo continues at {}", text::place(next))
            });
        }
        Some(Kind::Commit) => {
            if !payload.is_empty() {
                let micros = Reader::new(payload).number()?;
                parts.push(format!("at {}", Timestamp::from_micros(micros)));
            }
            if flags & FLAG_HAS_DEFERRED_FREES != 0 {
                parts.push("pages remain to be freed".into());
            }
        }
        Some(Kind::End | Kind::CheckpointBegin | Kind::SyncRecord) => {}
        Some(Kind::FreeOnCommit) => parts.push(match DeferredFree::decode(payload)? {
            DeferredFree::OverflowChain { head, chain } => format!("free chain {chain:#x} from {head} on"),
            DeferredFree::Tree(tree) => format!("free the tree of {} with the root {}", tree.table, tree.root),
        }),
        Some(Kind::CheckpointTransactions) => {
            let (begin, entries) = decode_txns(payload)?;
            parts.push(format!("checkpoint at {begin}: {} transactions", entries.len()));
            parts.extend(entries.iter().take(ENTRIES).map(|entry| {
                let last = text::place(entry.last);
                format!("{} {} from {} to {last}", entry.txn, txn_state(entry.state), entry.first)
            }));
        }
        Some(Kind::CheckpointPages) => {
            let (begin, entries) = decode_pages(payload)?;
            parts.push(format!("checkpoint at {begin}: {} pages", entries.len()));
            parts.extend(entries.iter().take(ENTRIES).map(|(page, gsn)| format!("{page} from {gsn} on")));
        }
        Some(Kind::CheckpointEnd) => {
            let CheckpointEnd { begin, next_txn } = CheckpointEnd::decode(payload)?;
            parts.push(format!("checkpoint at {begin}; the next one is {next_txn}"));
        }
        None => parts.push(format!("payload of {} bytes", payload.len())),
    }
    Ok(())
}

/// Returns the name of a transaction's state in a checkpoint.
pub(super) fn txn_state(state: crate::txn_state::table::TxnState) -> &'static str {
    match state {
        crate::txn_state::table::TxnState::Active => "active",
        crate::txn_state::table::TxnState::Committed => "committed",
        crate::txn_state::table::TxnState::Over => "over",
    }
}

fn operation(page: PageId, op: PageOp<'_>) -> String {
    match op {
        PageOp::Image(image) => describe_image(image),
        PageOp::Insert { slot, key, value, flags } => {
            format!("insert slot {slot} key {} value {}{}", text::key(key), value_text(value, flags), flags_text(flags))
        }
        PageOp::Change { slot, at: _, remove: 0, add: [], flags } => {
            let flags = if flags == SlotFlags::NONE { ", none" } else { flags_text(flags) };
            format!("set the flags of slot {slot}{flags}")
        }
        PageOp::Change { slot, at, remove, add, flags } => {
            let added = add.len();
            format!("change slot {slot}: {remove} bytes of the value at {at} become {added}{}", flags_text(flags))
        }
        PageOp::Remove { slot } => format!("remove slot {slot}"),
        PageOp::Truncate { slot, separator } => {
            format!("truncate from slot {slot} on, upper fence {}", text::key(separator))
        }
        PageOp::SplitChild { slot, separator, right } => {
            format!("split child {slot} at {}, right sibling {right}", text::key(separator))
        }
        PageOp::MergeChild { slot } => format!("merge child {} into child {slot}", u32::from(slot) + 1),
        PageOp::Take { bit } => format!("allocate {}", bit_text(page, bit)),
        PageOp::GiveBack { bit } => format!("free {}", bit_text(page, bit)),
        PageOp::GiveBackRun { bit, count } => format!("free {count} pages from {} on", bit_text(page, bit)),
        PageOp::SetFlags { runs } => {
            let slots: usize = FlagRun::all(runs).flatten().map(|run| run.slots().len()).sum();
            format!("set the flags of {slots} slots")
        }
        PageOp::Retire => "retire".to_owned(),
    }
}

fn undo(undo: Undo<'_>) -> String {
    match undo {
        Undo::Insert { tree, key } => format!("ghost key {} of {}", text::key(key), tree.table),
        Undo::Change { tree, key, at, remove, add, flags } => {
            let (key, table, added) = (text::key(key), tree.table, add.len());
            let flags = if flags == SlotFlags::NONE { ", no flags" } else { flags_text(flags) };
            if remove == 0 && add.is_empty() {
                return format!("key {key} of {table}{flags}");
            }
            format!("key {key} of {table}: {remove} bytes of the value at {at} become {added}{flags}")
        }
        Undo::Allocate { page } => format!("free {page}"),
        Undo::Delete { tree, keys } => match keys.ends() {
            Some((first, last)) => {
                let (first, last) = (text::key(&first), text::key(&last));
                format!("{} keys of {} from {first} to {last}", keys.count(), tree.table)
            }
            None => format!("no key of {}", tree.table),
        },
    }
}

/// Returns the page that a bit of a bitmap stands for; for an impossible bit, returns only its
/// number.
fn bit_text(bitmap_page: PageId, bit: u32) -> String {
    let (group, _) = bitmap::locate(bitmap_page);
    match (group * bitmap::GROUP_PAGES).checked_add(bit.into()) {
        Some(page) if u64::from(bit) < bitmap::GROUP_PAGES => PageId::new(page).to_string(),
        _ => format!("bit {bit}, which is outside the bitmap"),
    }
}

fn value_text(value: &[u8], flags: SlotFlags) -> String {
    match Reference::decode(value) {
        Some(reference) if flags.contains(SlotFlags::OVERFLOW) => reference_text(reference),
        _ => format!("{} bytes", value.len()),
    }
}

/// Describes a reference to an overflow value.
pub(super) fn reference_text(reference: Reference) -> String {
    format!("{} bytes in chain {:#x} from {} on", reference.len, reference.chain, reference.head)
}

/// Returns the flags of a slot, as a suffix for the text before them.
pub(super) fn flags_text(flags: SlotFlags) -> &'static str {
    match (flags.contains(SlotFlags::GHOST), flags.contains(SlotFlags::OVERFLOW)) {
        (false, false) => "",
        (true, false) => ", ghost",
        (false, true) => ", overflow",
        (true, true) => ", ghost, overflow",
    }
}

fn describe_image(image: &[u8]) -> String {
    let mut bytes = PageBuf::zeroed();
    if page::restore_image(image, &mut bytes.page_mut()).is_err() {
        return format!("malformed image of {} bytes", image.len());
    }
    let (size, table) = (image.len(), page::table_id(&bytes));
    match page::page_type(&bytes) {
        Some(PageType::Leaf | PageType::Inner) => {
            let node = Node(&bytes[..]);
            let (level, slots) = (node.level(), node.slot_count());
            format!("image of a node of {table} at level {level} with {slots} slots ({size} bytes)")
        }
        Some(PageType::Overflow) => format!("image of an overflow page of {table} ({size} bytes)"),
        Some(PageType::Bitmap) => format!("image of an allocation bitmap ({size} bytes)"),
        Some(PageType::Free) => format!("image of a free page ({size} bytes)"),
        Some(PageType::Stamp) => format!("image of a stamp ({size} bytes)"),
        None => format!("image of a page of unknown type ({size} bytes)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Tree;
    use duramen_types::TableId;
    use proptest::prelude::*;

    #[test]
    fn operations_and_undo_read_well() {
        let insert = PageOp::Insert { slot: 3, key: &[0, 1], value: &[7; 100], flags: SlotFlags::NONE };
        assert_eq!(operation(PageId::new(9), insert), "insert slot 3 key 0x0001 (2 bytes) value 100 bytes");
        let tree = Tree { root: PageId::new(5), table: TableId::new(16) };
        assert_eq!(undo(Undo::Insert { tree, key: &[0, 1] }), "ghost key 0x0001 (2 bytes) of table 16");
        assert_eq!(operation(PageId::new(1), PageOp::Take { bit: 7 }), "allocate page 7");
        assert!(operation(PageId::MAX, PageOp::Take { bit: u32::MAX }).contains("bit"));
        assert_eq!(
            operation(PageId::new(1), PageOp::MergeChild { slot: u16::MAX }),
            "merge child 65536 into child 65535"
        );
        assert_eq!(operation(PageId::new(1), PageOp::Image(b"\x07")), "malformed image of 1 bytes");
    }

    proptest! {
        #[test]
        fn any_payload_has_a_text(
            kind in 0..12u8,
            flags in 0..4u8,
            page: u64,
            mut payload in prop::collection::vec(prop_oneof![0..12u8, any::<u8>()], 0..60),
        ) {
            detail(kind, flags, PageId::new(page), &payload);
            // Behind the undo information, so that decoding reaches the operations.
            payload.splice(0..0, [3, 1]);
            prop_assert!(!detail(Kind::Update as u8, flags, PageId::new(page), &payload).is_empty());
        }
    }
}
