//! A queue that survives: `cargo run -p duramen-heap --example queue /dev/shm/queue`. Each run
//! takes out what the run before has put in, and two threads put in new messages.

use duramen_heap::{Error, Heap, HeapOptions, Ptr, Root, Source, Survive};
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Queue {
    head: Ptr<Message>,
    tail: Ptr<Message>,
    runs: u64,
}

impl Root for Queue {
    const NAME: &'static str = "queue of messages, version 1";
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Message {
    next: Ptr<Message>,
    run: u64,
    thread: u64,
    number: u64,
}

fn enqueue(heap: &Heap, root: Ptr<Queue>, (run, thread, number): (u64, u64, u64)) -> Result<(), Error> {
    heap.atomic(|tx| {
        let message = tx.alloc(Message { next: Ptr::NULL, run, thread, number })?;
        let queue = tx.get(root)?;
        let head = if queue.tail.is_null() {
            message
        } else {
            tx.update(queue.tail, |last| last.next = message)?;
            queue.head
        };
        tx.set(root, Queue { head, tail: message, ..queue })
    })
}

fn dequeue(heap: &Heap, root: Ptr<Queue>) -> Result<Option<Message>, Error> {
    heap.atomic(|tx| {
        let queue = tx.get(root)?;
        if queue.head.is_null() {
            return Ok(None);
        }
        let message = tx.get(queue.head)?;
        tx.free(queue.head)?;
        let tail = if message.next.is_null() { Ptr::NULL } else { queue.tail };
        tx.set(root, Queue { head: message.next, tail, ..queue })?;
        Ok(Some(message))
    })
}

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm/duramen-queue".to_owned());
    // Enough for a file that is no persistent memory; without it, opening one is refused.
    let options = HeapOptions { survive: Survive::Process, ..HeapOptions::new(16 << 20) };
    let heap = Heap::open(&Source::File(path.into()), &options)?;
    heap.shortfall().into_iter().for_each(|warning| eprintln!("warning: {warning}"));
    let root = heap.root::<Queue>()?;
    let run = heap.atomic(|tx| {
        tx.update(root, |queue| {
            queue.runs += 1;
            queue.runs
        })
    })?;
    let mut taken = 0;
    while let Some(message) = dequeue(&heap, root)? {
        println!("run {run}: took message {} of thread {}, from run {}", message.number, message.thread, message.run);
        taken += 1;
    }
    let put_in = |thread| (0..3).try_for_each(|number| enqueue(&heap, root, (run, thread, number)));
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| scope.spawn(move || put_in(thread)));
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
    })?;
    println!("run {run}: took {taken} messages and put in 6");
    Ok(())
}
