//! Steps from one leaf to the next, by its fence.
//!
//! In a damaged tree, a node may lead a search to the wrong leaf. So a thread that goes from leaf
//! to leaf checks that each step gets it further. Without that, a scan could go round in circles.

use crate::page::Node;
use crate::pool::{Interrupt, Optimistic, broken};

/// The damage of a leaf in which a search found a key, or a fence, on the wrong side of where it
/// came from.
pub(crate) const OUT_OF_ORDER: &str = "its keys are not in order";

/// Sets `key`, which the leaf covers, to the lowest key behind the leaf. Returns false if the leaf
/// is the last one.
pub(crate) fn step_up(leaf: &Optimistic<'_>, key: &mut Vec<u8>) -> Result<bool, Interrupt> {
    let mut fence = Vec::new();
    let is_bounded = Node(leaf.page()).upper_fence_into(&mut fence);
    leaf.validate()?;
    if is_bounded && fence < *key {
        return Err(broken(leaf.id(), OUT_OF_ORDER).into());
    }
    fence.push(0);
    *key = fence;
    Ok(is_bounded)
}

/// Sets `key`, which the leaf covers, to the highest key before the leaf; no key stands for the end
/// of the tree. Returns false if the leaf is the first one.
pub(crate) fn step_down(leaf: &Optimistic<'_>, key: &mut Option<Vec<u8>>) -> Result<bool, Interrupt> {
    let mut fence = Vec::new();
    let is_bounded = Node(leaf.page()).lower_fence_into(&mut fence);
    leaf.validate()?;
    if is_bounded && key.as_ref().is_some_and(|key| fence >= *key) {
        return Err(broken(leaf.id(), OUT_OF_ORDER).into());
    }
    *key = Some(fence);
    Ok(is_bounded)
}
