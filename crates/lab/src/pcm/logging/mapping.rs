//! The mapping table: where in the PCM the newest version of each unit is (PCMLogging, sections 3.1
//! and 3.3).

use std::collections::HashMap;

use super::medium::{Granularity, Slot, Unit};
use crate::pcm::trace::Page;

/// Of each page with buffered units, these units and their slots.
#[derive(Debug)]
pub(super) struct Mapping {
    granularity: Granularity,
    pages: HashMap<Page, Vec<(Unit, Slot)>>,
}

impl Mapping {
    pub(super) fn new(granularity: Granularity) -> Self {
        Self { granularity, pages: HashMap::new() }
    }

    pub(super) fn get(&self, unit: Unit) -> Option<Slot> {
        let of_page = self.of_page(self.granularity.page(unit));
        of_page.iter().find(|mapped| mapped.0 == unit).map(|mapped| mapped.1)
    }

    /// Maps `unit` to `slot`; returns where it was before.
    pub(super) fn set(&mut self, unit: Unit, slot: Slot) -> Option<Slot> {
        let of_page = self.pages.entry(self.granularity.page(unit)).or_default();
        match of_page.iter_mut().find(|mapped| mapped.0 == unit) {
            Some(mapped) => Some(std::mem::replace(&mut mapped.1, slot)),
            None => {
                of_page.push((unit, slot));
                None
            }
        }
    }

    /// Forgets `unit`, which is mapped.
    pub(super) fn remove(&mut self, unit: Unit) {
        let page = self.granularity.page(unit);
        let of_page = self.pages.get_mut(&page).expect("the unit is mapped");
        let at = of_page.iter().position(|mapped| mapped.0 == unit).expect("the unit is mapped");
        of_page.swap_remove(at);
        if of_page.is_empty() {
            self.pages.remove(&page);
        }
    }

    /// Returns the buffered units of `page`.
    pub(super) fn of_page(&self, page: Page) -> &[(Unit, Slot)] {
        self.pages.get(&page).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_themselves_and_by_their_page() {
        let mut mapping = Mapping::new(Granularity::Tuple);
        assert_eq!(mapping.set(Unit(3), Slot(7)), None);
        assert_eq!(mapping.set(Unit(4), Slot(8)), None);
        assert_eq!(mapping.set(Unit(64), Slot(9)), None);
        assert_eq!(mapping.set(Unit(3), Slot(1)), Some(Slot(7)));
        assert_eq!((mapping.get(Unit(3)), mapping.get(Unit(5))), (Some(Slot(1)), None));
        assert_eq!(mapping.of_page(Page::new(0)), [(Unit(3), Slot(1)), (Unit(4), Slot(8))]);
        mapping.remove(Unit(3));
        mapping.remove(Unit(64));
        assert_eq!(mapping.of_page(Page::new(0)), [(Unit(4), Slot(8))]);
        assert!(mapping.of_page(Page::new(1)).is_empty() && mapping.pages.len() == 1);
    }
}
