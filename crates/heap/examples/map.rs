//! A map of words to counts that survives: `cargo run -p duramen-heap --example map /dev/shm/map
//! some words`. Each run counts its words in one transaction and shows the whole map.

use duramen_heap::{Error, Heap, HeapOptions, Ptr, Root, Source, Survive, Tx};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const CHAINS: usize = 64;
const LONGEST: usize = 40;

/// The map: chains of entries.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Map {
    chains: [Ptr<Entry>; CHAINS],
    len: u64,
    runs: u64,
}

impl Root for Map {
    const NAME: &'static str = "map of words, version 1";
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Entry {
    next: Ptr<Entry>,
    count: u64,
    len: u64,
    word: [u8; LONGEST],
}

impl Entry {
    fn word(&self) -> &[u8] {
        self.word.get(..self.len as usize).unwrap_or_default()
    }
}

/// Returns the chain of a word, and its entry if it has one.
fn find(tx: &mut Tx<'_>, map: Ptr<Map>, word: &[u8]) -> Result<(usize, Option<Ptr<Entry>>), Error> {
    let hash = word.iter().fold(7_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let chain = hash % CHAINS;
    let mut at = tx.get(map)?.chains[chain];
    while !at.is_null() {
        let entry = tx.get(at)?;
        if entry.word() == word {
            return Ok((chain, Some(at)));
        }
        at = entry.next;
    }
    Ok((chain, None))
}

fn count(tx: &mut Tx<'_>, map: Ptr<Map>, word: &str) -> Result<(), Error> {
    let len = word.len().min(LONGEST);
    let (chain, found) = find(tx, map, &word.as_bytes()[..len])?;
    if let Some(entry) = found {
        return tx.update(entry, |entry| entry.count += 1);
    }
    let mut bytes = [0; LONGEST];
    bytes[..len].copy_from_slice(&word.as_bytes()[..len]);
    let next = tx.get(map)?.chains[chain];
    let entry = tx.alloc(Entry { next, count: 1, len: len as u64, word: bytes })?;
    tx.update(map, |map| {
        map.chains[chain] = entry;
        map.len += 1;
    })
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "/dev/shm/duramen-map".to_owned());
    let words: Vec<String> = arguments.collect();
    // Enough for a file that is no persistent memory; without it, opening one is refused.
    let options = HeapOptions { survive: Survive::Process, ..HeapOptions::new(16 << 20) };
    let heap = Heap::open(&Source::File(path.into()), &options)?;
    heap.shortfall().into_iter().for_each(|warning| eprintln!("warning: {warning}"));
    let map = heap.root::<Map>()?;
    heap.atomic(|tx| {
        words.iter().try_for_each(|word| count(tx, map, word))?;
        tx.update(map, |map| map.runs += 1)
    })?;
    let entries = heap.atomic(|tx| {
        let mut entries = Vec::new();
        for mut at in tx.get(map)?.chains {
            while !at.is_null() {
                let entry = tx.get(at)?;
                entries.push((String::from_utf8_lossy(entry.word()).into_owned(), entry.count));
                at = entry.next;
            }
        }
        Ok(entries)
    })?;
    println!("run {}, {} words:", heap.atomic(|tx| Ok(tx.get(map)?.runs))?, entries.len());
    entries.iter().for_each(|(word, count)| println!("  {word}: {count}"));
    Ok(())
}
