//! Puts the tuples of a leaf into its base.

use std::collections::BTreeMap;

use duramen_types::PageId;

use super::Pcm;
use super::map::Map;
use super::tuples::{Base, HeldTuple};
use crate::page::{self, DatabaseTag, Lines, Node, PageMut};
use crate::pool::{Damage, PoolError};

/// Puts the tuples of a leaf into its base, which `bytes` are. Tuples that are not later than
/// the base are forgotten.
///
/// # Errors
/// [`PoolError::Corrupt`] if a cell does not hold its tuple.
pub(super) fn put_tuples_into(pcm: &Pcm, map: &mut Map, leaf: PageId, bytes: &mut [u8]) -> Result<(), PoolError> {
    let base = Base::of(bytes);
    map.tuples.set_base(leaf, base);
    let Some(overlay) = map.tuples.overlay(leaf) else { return Ok(()) };
    // Without a base it is no leaf any more.
    let is_later = |held: &HeldTuple| base.is_some_and(|base| held.gsn > base.gsn);
    let (mut later, earlier): (BTreeMap<Vec<u8>, HeldTuple>, BTreeMap<_, _>) =
        overlay.tuples.clone().into_iter().partition(|(_, held)| is_later(held));
    let mut contents = Vec::with_capacity(later.len());
    for (key, held) in &mut later {
        let tuple = pcm.read_tuple(held.cell).filter(|tuple| tuple.page == leaf && tuple.key == *key);
        let tuple = tuple.ok_or_else(|| damaged(pcm, leaf, "a cell does not hold its tuple"))?;
        let (slot, is_there) = Node(&*bytes).lower_bound(key);
        held.len_in_base = is_there.then(|| Node(&*bytes).value_len(slot));
        held.growth = tuple.content.growth(key, held.len_in_base);
        contents.push(tuple.content);
    }
    let mut lines = Lines::NONE;
    let mut page = PageMut::new(bytes, &mut lines);
    let (growing, others): (Vec<_>, Vec<_>) = later.iter().zip(&contents).partition(|((_, held), _)| held.growth > 0);
    for ((key, held), content) in others.into_iter().chain(growing) {
        if content.put(&mut page, key).is_err() {
            return Err(damaged(pcm, leaf, "its tuples do not fit into it"));
        }
        let gsn = page::gsn(&page).max(held.gsn);
        page::set_gsn(&mut page, gsn);
    }
    if !later.is_empty() {
        page::seal(bytes, DatabaseTag::of(&pcm.database()));
    }
    map.tuples.set_overlay(leaf, later);
    let emptied: Vec<_> = earlier.into_values().filter_map(|held| map.tuples.give(held.cell)).collect();
    map.replace(emptied);
    Ok(())
}

fn damaged(pcm: &Pcm, page: PageId, defect: &str) -> PoolError {
    let (defect, file) = (defect.to_owned(), pcm.location().to_owned());
    PoolError::Corrupt { page, defect, damage: Damage::Other, file, offset: 0 }
}
