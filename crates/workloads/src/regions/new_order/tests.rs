//! New orders on ordinary memory.

use rand::RngExt;

use super::*;
use crate::regions::RegionError;
use crate::regions::memory::PlainMemory;

const BASE: Addr = 128;

fn loaded(scale: Scale, room: u64) -> (PlainMemory, OrderEntry) {
    let tables = OrderEntry::new(scale, room, BASE);
    let mut memory = PlainMemory::new(tables.end());
    tables.load(&mut memory, (), 3).unwrap();
    assert_eq!(tables.audit(&mut memory, ()), Ok(Ordered::default()));
    (memory, tables)
}

/// Enters orders, and returns how many were not rolled back, and what they have ordered.
fn enter(memory: &mut PlainMemory, tables: &OrderEntry, terminal: &mut Terminal, orders: u64) -> (u64, Ordered) {
    let mut ordered = Ordered::default();
    let mut rolled_back = 0;
    for now in 1..=orders {
        let order = terminal.draw();
        if tables.enter(memory, (), &order, now).unwrap() {
            ordered.orders += 1;
            ordered.lines += order.lines();
            ordered.quantity += order.0.lines().iter().map(|line| u64::from(line.quantity)).sum::<u64>();
        } else {
            rolled_back += 1;
        }
    }
    (rolled_back, ordered)
}

#[test]
fn many_orders_add_up() {
    let scale = Scale::small(1, 60);
    let (mut memory, tables) = loaded(scale, 700);
    let mut terminal = Terminal::new(scale, 4);
    let mut total = Ordered::default();
    let mut rolled_back = 0;
    for _ in 0..10 {
        let (back, ordered) = enter(&mut memory, &tables, &mut terminal, 500);
        rolled_back += back;
        total.orders += ordered.orders;
        total.lines += ordered.lines;
        total.quantity += ordered.quantity;
        assert_eq!(tables.audit(&mut memory, ()), Ok(total));
    }
    assert!((20..90).contains(&rolled_back), "{rolled_back} of 5,000 orders name an item that does not exist");
}

#[test]
fn a_warehouse_of_the_specification_has_room() {
    let scale = Scale::standard(1);
    let (mut memory, tables) = loaded(scale, 200);
    let (_, ordered) = enter(&mut memory, &tables, &mut Terminal::new(scale, 5), 1_000);
    assert_eq!(tables.audit(&mut memory, ()), Ok(ordered));
}

#[test]
fn an_order_that_is_rolled_back_changes_nothing() {
    let scale = Scale::small(1, 30);
    let (mut memory, tables) = loaded(scale, 10);
    let mut terminal = Terminal::new(scale, 6);
    let order = (0..10_000).map(|_| terminal.draw()).find(|order| order.0.lines().iter().any(|line| line.i > 300));
    let before = memory.clone();
    assert_eq!(tables.enter(&mut memory, (), &order.unwrap(), 1), Ok(false));
    let mut found = [vec![0; tables.end() as usize], vec![0; tables.end() as usize]];
    for (memory, bytes) in [before, memory].iter_mut().zip(&mut found) {
        memory.read(0, bytes).unwrap();
    }
    assert!(found[0] == found[1]);
}

#[test]
fn locks_ascend_and_cover_what_is_written() {
    let scale = Scale::standard(1);
    let tables = OrderEntry::new(scale, 1, BASE);
    let mut terminal = Terminal::new(scale, 7);
    let mut of_stripe = vec![0; STRIPES as usize];
    for _ in 0..2_000 {
        let order = terminal.draw();
        let locks = tables.locks(&order);
        assert!(locks.is_sorted_by(|one, next| one < next) && *locks.last().unwrap() < OrderEntry::LOCKS);
        assert_eq!(locks[0], usize::from(order.0.d) - 1);
        for line in order.0.lines() {
            assert!(locks.contains(&(usize::from(DISTRICTS) + stripe(line.i))));
            of_stripe[stripe(line.i)] += 1;
        }
    }
    // About 20 for each; the specification's items are uneven themselves.
    assert!(of_stripe.iter().all(|count| *count < 120), "{:?}", of_stripe.iter().max());
}

#[test]
fn audits_notice_damage() {
    let scale = Scale::small(1, 30);
    let (mut sound, tables) = loaded(scale, 40);
    let (_, ordered) = enter(&mut sound, &tables, &mut Terminal::new(scale, 8), 100);
    let first = &tables.districts[0];
    let newest = first.orders.audit(&mut sound).unwrap().pop().unwrap();
    let lines = first.order_lines.audit(&mut sound).unwrap();
    let stock = tables.stocks.find(&mut sound, 7).unwrap().unwrap();
    // Word by word: the bytes in it that are changed, and what that stands for.
    let damages = [
        (first.row + 8, 1, "the next order number"),
        (newest.1 + 8, 1 << 24, "the number of order lines"),
        (lines.last().unwrap().1, 1, "the item of an order line"),
        (lines.last().unwrap().1 + 16, 1, "the quantity of an order line"),
        (stock, 1 << 32, "the year-to-date quantity of a stock"),
        (stock, 1 << 20, "the quantity of a stock"),
        (stock + 8, 1, "the order count of a stock"),
    ];
    for (at, change, what) in damages {
        let mut memory = sound.clone();
        let word = memory.load(at).unwrap();
        memory.store(at, word ^ change).unwrap();
        assert!(matches!(tables.audit(&mut memory, ()), Err(RegionError::Broken(_))), "{what}");
    }
    assert_eq!(tables.audit(&mut sound, ()), Ok(ordered));
}

#[test]
fn half_an_order_is_noticed() {
    let scale = Scale::small(1, 30);
    let (mut memory, tables) = loaded(scale, 40);
    enter(&mut memory, &tables, &mut Terminal::new(scale, 9), 50);
    let before = memory.clone();
    let mut terminal = Terminal::new(scale, 10);
    let order = (0..100).map(|_| terminal.draw()).find(|order| order.0.lines().iter().all(|line| line.i <= 300));
    assert_eq!(tables.enter(&mut memory, (), &order.unwrap(), 51), Ok(true));
    let changed = lines_that_differ(&before, &memory, tables.end());
    assert!(changed.len() > 20);
    let mut random = StdRng::seed_from_u64(11);
    for _ in 0..200 {
        // Some lines are old, others are new.
        let mut half = before.clone();
        let some = random.random_range(1..changed.len());
        for &at in &changed[..some] {
            copy_line(&mut memory, &mut half, at);
        }
        assert!(matches!(tables.audit(&mut half, ()), Err(RegionError::Broken(_))), "{some} of {changed:?}");
    }
}

fn lines_that_differ(one: &PlainMemory, other: &PlainMemory, end: Addr) -> Vec<Addr> {
    let (mut one, mut other) = (one.clone(), other.clone());
    let lines = (0..end / LINE).map(|line| line * LINE);
    lines.filter(|at| row::<64, _>(&mut one, *at).unwrap() != row::<64, _>(&mut other, *at).unwrap()).collect()
}

fn copy_line(from: &mut PlainMemory, to: &mut PlainMemory, at: Addr) {
    let line: [u8; 64] = row(from, at).unwrap();
    to.write(at, &line).unwrap();
}
