//! A process is killed again and again while it works on a heap in a file. The page cache keeps
//! what the process has stored, in the order of the stores.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use duramen_heap::{Heap, HeapOptions, LogShape, Ptr, Root, Source, Survive};
use duramen_test_support::{Rng, announced_seed, is_long};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const CHILD: &str = "DURAMEN_HEAP_TO_BE_KILLED";

/// Eight lists; each transaction moves a node from one to another and counts.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Lists {
    heads: [Ptr<Node>; 8],
    moves: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Node {
    next: Ptr<Node>,
    payload: [u64; 15],
}

impl Root for Lists {
    const NAME: &'static str = "lists, version 1";
}

const NODES: u64 = 32;

fn open(path: &Path) -> Heap {
    let log = LogShape { slots: 2, buckets: 4, records: 8 };
    let options = HeapOptions { survive: Survive::Process, log, ..HeapOptions::new(1 << 20) };
    Heap::open(&Source::File(path.to_owned()), &options).unwrap()
}

/// Counts the nodes; each is in one list, and all its words are the same.
fn check(heap: &Heap) -> (u64, u64) {
    let root = heap.root::<Lists>().unwrap();
    heap.atomic(|tx| {
        let lists = tx.get(root)?;
        let mut nodes = 0;
        for mut at in lists.heads {
            while !at.is_null() {
                let node = tx.get(at)?;
                assert!(node.payload.iter().all(|word| *word == node.payload[0]), "{:?}", node.payload);
                (at, nodes) = (node.next, nodes + 1);
                assert!(nodes <= NODES, "a node is in two lists");
            }
        }
        assert_eq!(heap.objects().len() as u64, nodes + 1, "no space is lost");
        Ok((nodes, lists.moves))
    })
    .unwrap()
}

fn work(path: &Path) {
    let heap = open(path);
    let root = heap.root::<Lists>().unwrap();
    let mut rng = Rng::new(std::process::id().into());
    loop {
        let (from, to, replaces) = (rng.within(0..8), rng.within(0..8), rng.percent(50));
        let moves = heap.atomic(|tx| {
            let mut lists = tx.get(root)?;
            lists.moves += 1;
            let (nodes, _) = (lists.heads[from], ());
            let at = if lists.moves <= NODES {
                tx.alloc(Node { next: Ptr::NULL, payload: [lists.moves; 15] })?
            } else if nodes.is_null() {
                tx.set(root, lists)?;
                return Ok(lists.moves);
            } else {
                let node = tx.get(nodes)?;
                lists.heads[from] = node.next;
                if replaces {
                    tx.free(nodes)?;
                    tx.alloc(Node { next: Ptr::NULL, payload: [lists.moves; 15] })?
                } else {
                    tx.set(nodes, Node { next: node.next, payload: [lists.moves; 15] })?;
                    nodes
                }
            };
            tx.update(at, |node| node.next = lists.heads[to])?;
            lists.heads[to] = at;
            tx.set(root, lists)?;
            Ok(lists.moves)
        });
        println!("{}", moves.unwrap());
    }
}

#[test]
fn a_killed_process_leaves_whole_transactions() {
    if let Some(path) = std::env::var_os(CHILD) {
        return work(Path::new(&path));
    }
    let home = tempfile::tempdir_in(if Path::new("/dev/shm").exists() { "/dev/shm" } else { "." }).unwrap();
    let path = home.path().join("heap");
    let mut rng = Rng::new(announced_seed("kills"));
    let (mut acknowledged, mut undone) = (0, 0);
    for _ in 0..if is_long() { 100 } else { 12 } {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_leaves_whole_transactions", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn(move || {
            lines.map_while(Result::ok).filter_map(|line| line.parse::<u64>().ok()).last().unwrap_or(0)
        });
        std::thread::sleep(Duration::from_micros(20_000 + rng.below(40_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged = acknowledged.max(reader.join().unwrap());
        let heap = open(&path);
        undone += heap.recovered().transactions;
        let (nodes, moves) = check(&heap);
        assert!(moves >= acknowledged && nodes == moves.min(NODES), "{nodes} nodes, {moves} moves, {acknowledged}");
    }
    println!("{acknowledged} transactions acknowledged, {undone} undone");
    assert!(acknowledged > NODES);
}
