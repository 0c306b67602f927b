//! The allocator's view of the slabs, in ordinary memory: which objects are live, and which space
//! can be given out. It is rebuilt from the heap when it is opened.
//!
//! The heap's own bitmaps change at the end of a transaction, within it (`update.rs`), so that a
//! crash loses no space and gives none out twice. Here an object is *live* from its allocation to
//! the commit of its free, and its space *available* only after the commit that freed it: until
//! then its old contents may have to come back, and a transaction does not log the lines of objects
//! that it allocates.
//!
//! An object becomes live when its transaction has locked all its lines, and ends being live while
//! the first one is locked. Another transaction that found it live may lock its lines later, when
//! the object is gone and the space is perhaps another's: so it asks again once it has locked them.
//!
//! A slab whose objects are all available may get another kind. The kind in the heap follows with
//! the first commit of an object in it.
//!
//! The mutex is a leaf: nothing else is locked while it is held.

use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicU64, Ordering};

use crate::layout::{BITMAP_WORDS, CLASS_LINES, Kind, LINE, Layout, SLAB, SLAB_HEAD, class_of};

const WORDS: usize = BITMAP_WORDS as usize;

/// All slabs of a heap.
#[derive(Debug)]
pub(crate) struct Slabs {
    slabs_at: u64,
    views: Box<[View]>,
    space: Mutex<Space>,
}

/// What a transaction without the mutex may look at.
#[derive(Debug, Default)]
struct View {
    kind: AtomicU64,
    live: [AtomicU64; WORDS],
}

/// What can be given out.
#[derive(Debug)]
struct Space {
    /// A bit for each object of a slab.
    available: Box<[[u64; WORDS]]>,
    /// The slab that each slot took its last object of each class from.
    last: Vec<[Option<u64>; CLASS_LINES.len()]>,
    /// Slabs of each class that may have space.
    partial: [Vec<u64>; CLASS_LINES.len()],
    /// Whether a slab is in one of these lists.
    is_partial: Box<[bool]>,
    /// No slab below this is entirely available.
    first_free: u64,
}

/// A live object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Object {
    pub(crate) slab: u64,
    /// Its bit in the slab's bitmap.
    pub(crate) index: u64,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The number of slabs that it occupies; 1 for all but large objects.
    pub(crate) slabs: u32,
}

impl Slabs {
    /// Returns the view of a heap that has these slabs: the kind, and the bitmap of live objects,
    /// of each.
    pub(crate) fn new(layout: &Layout, slots: u32, found: &[(Kind, [u64; WORDS])]) -> Self {
        let view = |(kind, live): &(Kind, [u64; WORDS])| View {
            kind: AtomicU64::new(kind.encode()),
            live: live.map(AtomicU64::new),
        };
        let available = found.iter().map(|(kind, live)| {
            let all = full(*kind);
            std::array::from_fn(|word| all[word] & !live[word])
        });
        let mut partial: [Vec<u64>; CLASS_LINES.len()] = Default::default();
        for (slab, (kind, _)) in found.iter().enumerate().rev() {
            if let Kind::Class(class) = kind {
                partial[usize::from(*class)].push(slab as u64);
            }
        }
        let is_partial = found.iter().map(|(kind, _)| matches!(kind, Kind::Class(_))).collect();
        let last = vec![[None; CLASS_LINES.len()]; slots as usize];
        let space = Space { available: available.collect(), last, partial, is_partial, first_free: 0 };
        Self { slabs_at: layout.slabs_at(), views: found.iter().map(view).collect(), space: Mutex::new(space) }
    }

    /// Returns a slab's kind.
    pub(crate) fn kind(&self, slab: u64) -> Kind {
        let view = &self.views[slab as usize];
        // Acquire: pairs with `set_kind`. A stale kind is noticed as a stale line is.
        Kind::decode(view.kind.load(Ordering::Acquire)).unwrap_or(Kind::Free)
    }

    /// Returns the live object that contains the address.
    pub(crate) fn object_at(&self, at: u64) -> Option<Object> {
        let slab = at.checked_sub(self.slabs_at)? / SLAB;
        if slab >= self.views.len() as u64 {
            return None;
        }
        let (slab, index) = match self.kind(slab) {
            Kind::Class(class) => {
                let line = (at - self.slabs_at) % SLAB / LINE;
                (slab, line.checked_sub(SLAB_HEAD)? / CLASS_LINES[usize::from(class)])
            }
            Kind::Large(_) => (slab, 0),
            Kind::Behind(behind) => (slab.checked_sub(u64::from(behind))?, 0),
            Kind::Free => return None,
        };
        let object = self.object(slab, index)?;
        ((object.start..object.start + object.len).contains(&at) && self.is_live(&object)).then_some(object)
    }

    /// Returns all live objects, in the order of their addresses.
    pub(crate) fn objects(&self) -> Vec<Object> {
        let slabs = 0..self.views.len() as u64;
        let of_slab = |slab| (0..self.kind(slab).objects()).filter_map(move |index| self.object(slab, index));
        slabs.flat_map(of_slab).filter(|object| self.is_live(object)).collect()
    }

    /// Takes space for an object of `len` bytes, for the transaction in `slot`. The object is not
    /// live yet.
    pub(crate) fn take(&self, len: u64, slot: u32) -> Option<Object> {
        let mut space = self.space.lock();
        let lines = len.max(1).div_ceil(LINE);
        let object = match class_of(lines) {
            Some(class) => self.take_of_class(&mut space, class, slot)?,
            None => self.take_large(&mut space, len)?,
        };
        space.available[object.slab as usize][(object.index / 64) as usize] &= !(1 << (object.index % 64));
        Some(object)
    }

    /// Declares an object live, whose space was taken. Called while the transaction holds the locks
    /// of all its lines: another transaction that has used the space before, and still has a lock
    /// there, must not find the new object in its place.
    pub(crate) fn begin(&self, object: &Object) {
        let live = &self.views[object.slab as usize].live[(object.index / 64) as usize];
        live.fetch_or(1 << (object.index % 64), Ordering::Release);
    }

    /// Declares an object no longer live. Called while the freeing transaction holds the lock of
    /// its first line.
    pub(crate) fn end(&self, object: &Object) {
        let live = &self.views[object.slab as usize].live[(object.index / 64) as usize];
        live.fetch_and(!(1 << (object.index % 64)), Ordering::Release);
    }

    /// Gives the space of objects back that are no longer live.
    pub(crate) fn give_back<'a>(&self, objects: impl ExactSizeIterator<Item = &'a Object>) {
        if objects.len() == 0 {
            return;
        }
        let mut space = self.space.lock();
        for object in objects {
            if let Kind::Large(slabs) = self.kind(object.slab) {
                (object.slab..object.slab + u64::from(slabs))
                    .for_each(|slab| self.set_kind(&mut space, slab, Kind::Free));
            } else {
                space.available[object.slab as usize][(object.index / 64) as usize] |= 1 << (object.index % 64);
                if let Kind::Class(class) = self.kind(object.slab) {
                    space.list(object.slab, class);
                }
            }
            space.first_free = space.first_free.min(object.slab);
        }
    }

    fn take_of_class(&self, space: &mut Space, class: u8, slot: u32) -> Option<Object> {
        let of_class = usize::from(class);
        if let Some(slab) = space.last[slot as usize][of_class]
            && let Some(object) = self.first_available(space, slab, class)
        {
            return Some(object);
        }
        // A slab that another slot allocates from means conflicts about its bitmap; better a slab
        // of one's own, then any.
        let of_others: Vec<u64> = space.last.iter().filter_map(|last| last[of_class]).collect();
        let is_own = |slab: &u64| !of_others.contains(slab);
        let mut partial = std::mem::take(&mut space.partial[of_class]);
        partial.retain(|slab| {
            let has_space = self.first_available(space, *slab, class).is_some();
            space.is_partial[*slab as usize] = has_space;
            has_space
        });
        space.partial[of_class] = partial;
        let own = space.partial[of_class].iter().copied().rfind(is_own);
        let slab = own.or_else(|| self.take_slab(space, Kind::Class(class)));
        let slab = slab.or_else(|| space.partial[of_class].last().copied())?;
        space.last[slot as usize][of_class] = Some(slab);
        self.first_available(space, slab, class)
    }

    fn first_available(&self, space: &Space, slab: u64, class: u8) -> Option<Object> {
        if self.kind(slab) != Kind::Class(class) {
            return None;
        }
        let words = &space.available[slab as usize];
        let word = words.iter().position(|word| *word != 0)?;
        self.object(slab, word as u64 * 64 + u64::from(words[word].trailing_zeros()))
    }

    /// Gives a slab without objects another kind.
    fn take_slab(&self, space: &mut Space, kind: Kind) -> Option<u64> {
        let slabs = self.views.len() as u64;
        let slab = (space.first_free..slabs).find(|slab| self.is_free(space, *slab));
        space.first_free = slab.map_or(slabs, |slab| slab + 1);
        let slab = slab?;
        self.set_kind(space, slab, kind);
        if let Kind::Class(class) = kind {
            space.list(slab, class);
        }
        Some(slab)
    }

    fn take_large(&self, space: &mut Space, len: u64) -> Option<Object> {
        let slabs = (len.checked_add(SLAB_HEAD * LINE)?).div_ceil(SLAB);
        let (mut first, mut count) = (0, 0);
        for slab in 0..self.views.len() as u64 {
            if !self.is_free(space, slab) {
                (first, count) = (slab + 1, 0);
                continue;
            }
            count += 1;
            if count == slabs {
                break;
            }
        }
        if count < slabs {
            return None;
        }
        let behind = u32::try_from(slabs).ok()?;
        self.set_kind(space, first, Kind::Large(behind));
        (1..behind).for_each(|behind| self.set_kind(space, first + u64::from(behind), Kind::Behind(behind)));
        self.object(first, 0)
    }

    fn is_free(&self, space: &Space, slab: u64) -> bool {
        match self.kind(slab) {
            Kind::Free => true,
            kind @ Kind::Class(_) => space.available[slab as usize] == full(kind),
            Kind::Large(_) | Kind::Behind(_) => false,
        }
    }

    fn set_kind(&self, space: &mut Space, slab: u64, kind: Kind) {
        if let Kind::Class(class) = self.kind(slab) {
            space.partial[usize::from(class)].retain(|partial| *partial != slab);
            space.is_partial[slab as usize] = false;
        }
        space.available[slab as usize] = full(kind);
        // Release: pairs with `kind`.
        self.views[slab as usize].kind.store(kind.encode(), Ordering::Release);
    }

    fn object(&self, slab: u64, index: u64) -> Option<Object> {
        let kind = self.kind(slab);
        if index >= kind.objects() {
            return None;
        }
        let first = self.slabs_at + slab * SLAB + SLAB_HEAD * LINE;
        let (len, slabs) = match kind {
            Kind::Class(class) => (CLASS_LINES[usize::from(class)] * LINE, 1),
            Kind::Large(slabs) => (u64::from(slabs) * SLAB - SLAB_HEAD * LINE, slabs),
            Kind::Free | Kind::Behind(_) => return None,
        };
        Some(Object { slab, index, start: first + index * len, len, slabs })
    }

    fn is_live(&self, object: &Object) -> bool {
        let live = &self.views[object.slab as usize].live[(object.index / 64) as usize];
        live.load(Ordering::Acquire) >> (object.index % 64) & 1 == 1
    }
}

impl Space {
    fn list(&mut self, slab: u64, class: u8) {
        if !std::mem::replace(&mut self.is_partial[slab as usize], true) {
            self.partial[usize::from(class)].push(slab);
        }
    }
}

/// Returns the bitmap of a slab with all its objects.
pub(crate) fn full(kind: Kind) -> [u64; WORDS] {
    let objects = kind.objects();
    std::array::from_fn(|word| {
        let bits = objects.saturating_sub(word as u64 * 64).min(64);
        if bits == 64 { u64::MAX } else { (1 << bits) - 1 }
    })
}
