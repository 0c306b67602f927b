use super::*;

#[cfg(not(duramen_loom))]
mod native {
    use super::*;

    fn space(capacity: u64, block: u64) -> Space {
        Space::new(capacity, block, 1 << 40, Lsn::new(100), Arc::new(WakeEvent::new()), Hardening::Flushed)
    }

    #[test]
    fn positions_follow_each_other() {
        let space = space(64, 8);
        let first = space.lock(false).acquire(16, 1);
        let second = space.lock(false).acquire(8, 1);
        assert_eq!((first, second, space.end()), (Lsn::new(100), Lsn::new(116), Lsn::new(124)));
        assert_eq!(space.released(), first);
        space.release(first, second);
        assert_eq!((space.released(), space.durable()), (second, first));
        space.set_durable(second);
        assert_eq!(space.durable(), second);
        space.release(second, Lsn::new(124));
        assert_eq!(space.counts(), (2, 0));
    }

    #[test]
    fn the_last_block_stays_in_the_buffer() {
        let space = space(64, 8);
        assert_eq!(space.durable_if_room(Lsn::new(96 + 64)), Some(Lsn::new(100)));
        assert_eq!(space.durable_if_room(Lsn::new(96 + 65)), None);
    }

    #[test]
    fn a_failed_log_hands_out_space_that_must_not_be_filled_in() {
        let space = space(64, 8);
        space.lock(false).acquire(56, 1);
        space.fail();
        let lsn = space.lock(false).acquire(56, 1);
        assert_eq!(space.durable_if_room(lsn.advance(56)), None);
        assert_eq!(space.counts(), (2, 1));
    }

    #[test]
    fn a_turn_excludes_others() {
        let space = space(64, 8);
        for tried in [false, true] {
            let guard = space.lock(tried);
            assert!(space.try_lock(tried).is_none());
            drop(guard);
            assert!(space.try_lock(tried).is_some());
        }
    }
}

/// Models of the positions: every interleaving of a few threads.
#[cfg(duramen_loom)]
mod loom_models {
    use duramen_sync::atomic::AtomicU64;
    use duramen_sync::cell::UnsafeCell;
    use duramen_sync::thread;

    use super::*;

    /// A buffer of four cells; the thread that acquired a cell fills it in. Loom reports
    /// conflicting accesses.
    struct Cells(Vec<UnsafeCell<u64>>);

    // SAFETY: the models check that accesses do not conflict.
    unsafe impl Send for Cells {}
    // SAFETY: as above.
    unsafe impl Sync for Cells {}

    impl Cells {
        fn new(count: usize) -> Self {
            Self((0..count).map(|_| UnsafeCell::new(0)).collect())
        }

        fn write(&self, at: u64, value: u64) {
            // SAFETY: the positions give the cell to this thread only; loom checks it.
            self.0[at as usize % self.0.len()].with_mut(|cell| unsafe { *cell = value });
        }

        fn read(&self, at: u64) -> u64 {
            // SAFETY: the cell has been released to the reader; loom checks it.
            self.0[at as usize % self.0.len()].with(|cell| unsafe { *cell })
        }
    }

    /// Two threads acquire, fill in outside the lock and release; a third, the flusher, reads what
    /// is released.
    #[test]
    fn what_is_released_is_filled_in() {
        loom::model(|| {
            let space =
                Arc::new(Space::new(4, 1, 1 << 40, Lsn::new(8), Arc::new(WakeEvent::new()), Hardening::Flushed));
            let cells = Arc::new(Cells::new(4));
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let (space, cells) = (Arc::clone(&space), Arc::clone(&cells));
                    thread::spawn("writer", move || {
                        let lsn = space.lock(false).acquire(1, 1);
                        cells.write(lsn.get(), lsn.get());
                        space.release(lsn, lsn.advance(1));
                    })
                    .unwrap()
                })
                .collect();
            let released = space.released();
            for lsn in 8..released.get() {
                assert_eq!(cells.read(lsn), lsn);
            }
            space.set_durable(released);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            space.follow_notes();
            assert_eq!(space.released(), Lsn::new(10));
        });
    }

    /// A buffer of one cell: the second record must wait until the first is durable, is woken then,
    /// and does not overwrite what is still being read.
    #[test]
    fn a_full_buffer_is_waited_for() {
        loom::model(|| {
            let event = Arc::new(WakeEvent::new());
            let space = Arc::new(Space::new(1, 1, 1 << 40, Lsn::new(8), Arc::clone(&event), Hardening::Flushed));
            let cells = Arc::new(Cells::new(1));
            let writer = {
                let (space, cells) = (Arc::clone(&space), Arc::clone(&cells));
                thread::spawn("writer", move || {
                    for _ in 0..2 {
                        let lsn = space.lock(false).acquire(1, 1);
                        cells.write(lsn.get(), lsn.get());
                        space.release(lsn, lsn.advance(1));
                    }
                })
                .unwrap()
            };
            // The flusher: parks until a thread finds the buffer full.
            event.wait(None);
            let released = space.released();
            assert_eq!(cells.read(8), 8);
            space.set_durable(released);
            writer.join().unwrap();
            assert_eq!(space.released(), Lsn::new(10));
        });
    }

    /// Failure releases the threads that wait for room.
    #[test]
    fn nobody_waits_for_room_in_a_failed_log() {
        loom::model(|| {
            let space =
                Arc::new(Space::new(1, 1, 1 << 40, Lsn::new(8), Arc::new(WakeEvent::new()), Hardening::Flushed));
            let filled = Arc::new(AtomicU64::new(0));
            let writer = {
                let (space, filled) = (Arc::clone(&space), Arc::clone(&filled));
                thread::spawn("writer", move || {
                    for _ in 0..2 {
                        let lsn = space.lock(false).acquire(1, 1);
                        if space.durable_if_room(lsn.advance(1)).is_some() {
                            filled.fetch_add(1, Ordering::Relaxed);
                        }
                        space.release(lsn, lsn.advance(1));
                    }
                })
                .unwrap()
            };
            space.fail();
            writer.join().unwrap();
            assert_eq!(filled.load(Ordering::Relaxed), 1);
        });
    }
}
