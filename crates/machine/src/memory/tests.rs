//! Each mechanism on the tiny machine, with times worked out by hand; contexts 0 and 1 are core 0,
//! 2 and 3 core 1, both on socket 0; 4 to 7 likewise on socket 1.

use super::*;
use crate::description::tests::{tiny, tiny_with};

fn ns(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn machine() -> Memory {
    Memory::new(&tiny())
}

/// Returns the tiny machine with private caches that write through, and atomic operations of 12 ns
/// in the shared cache.
fn writing_through() -> Memory {
    Memory::new(&tiny_with(&[
        ("\"back\"", "\"through\""),
        ("atomic = \"5 cycles\"", "atomic = \"12 cycles\""),
        ("atomic_service = \"5 cycles\"", "atomic_service = \"4 cycles\""),
    ]))
}

impl Memory {
    fn load(&mut self, context: usize, line: u64, now: u64) -> u64 {
        self.access(context, Line(line), Op::Load, ns(now)).nanos()
    }

    fn post(&mut self, context: usize, line: u64, now: u64) -> u64 {
        self.access(context, Line(line), Op::Store, ns(now)).nanos()
    }

    fn rmw(&mut self, context: usize, line: u64, now: u64) -> u64 {
        self.access(context, Line(line), Op::Rmw, ns(now)).nanos()
    }

    fn fence(&mut self, context: usize, now: u64) -> u64 {
        self.access(context, Line(0), Op::Fence, ns(now)).nanos()
    }

    fn bulk(&mut self, context: usize, first: u64, lines: u64, how: Bulk, now: u64) -> u64 {
        self.touch(context, Line(first), lines, how, ns(now)).nanos()
    }

    /// Fails unless caches and directory say the same.
    fn check(&mut self, lines: u64) {
        for line in (0..lines).map(Line) {
            let entry = *self.directory.entry(line);
            for core in 0..self.cores.len() {
                let shares = entry.sharers() & 1 << core != 0;
                let caches = &mut self.cores[core];
                let first = caches.first.use_line(line);
                let held = caches.second.as_mut().map_or(first, |second| second.use_line(line));
                assert_eq!(held, shares, "{line:?} in core {core}: {entry:?}");
                assert!(held || !first, "{line:?} in core {core} is in its second level, if in the first");
                let cluster = core / self.description.cores_per_cluster;
                assert!(!shares || entry.clusters & 1 << cluster != 0, "{line:?} is in the cache behind core {core}");
            }
            for cluster in 0..self.clusters.len() {
                let held = self.clusters[cluster].tags.use_line(line);
                assert_eq!(held, entry.clusters & 1 << cluster != 0, "{line:?} in cluster {cluster}: {entry:?}");
            }
            if let Some(owner) = entry.owner() {
                assert_eq!(entry.sharers(), 1 << owner, "{line:?} is its owner's alone");
            }
            if let Some(dirty) = entry.dirty() {
                assert!(entry.clusters & 1 << dirty != 0, "{line:?} is where it is owed from");
            }
        }
    }
}

#[test]
fn a_miss_reads_memory_and_then_hits() {
    let mut memory = machine();
    assert_eq!(memory.load(0, 0, 0), 100);
    assert_eq!(memory.load(0, 0, 100), 101);
    assert_eq!(memory.load(1, 0, 200), 201, "the neighbour has the same caches");
    let counters = memory.counters();
    assert_eq!((counters.first_level_hits, counters.memory_read), (2, vec![64, 0]));
}

#[test]
fn a_line_that_has_left_the_private_cache_is_in_the_shared_one() {
    let mut memory = machine();
    for (nth, line) in [0, 2, 4].into_iter().enumerate() {
        memory.load(0, line, nth as u64 * 1000);
    }
    assert_eq!(memory.load(0, 0, 5000), 5010, "lines 0, 2 and 4 have two ways in the first level");
    assert_eq!(memory.load(0, 4, 6000), 6001);
    assert_eq!(memory.counters().shared_hits, 1);
}

#[test]
fn a_second_level_lies_between() {
    let second = "[private.l2]\nsize = \"512 B\"\nways = 2\nlatency = \"4 cycles\"\n[shared]";
    let mut memory = Memory::new(&tiny_with(&[("[shared]", second)]));
    for (nth, line) in [0, 2, 4].into_iter().enumerate() {
        memory.load(0, line, nth as u64 * 1000);
    }
    assert_eq!(memory.load(0, 0, 5000), 5004);
    assert_eq!(memory.load(0, 0, 6000), 6001, "and is in the first level again");
    memory.load(0, 8, 7000);
    memory.load(0, 12, 8000);
    assert_eq!(memory.load(0, 0, 9000), 9010, "lines 0, 8 and 4, 12 share sets of two ways; 8 and 12 came last");
}

#[test]
fn out_of_order_execution_hides_hits_and_nothing_else() {
    let second = "[private.l2]\nsize = \"512 B\"\nways = 2\nlatency = \"4 cycles\"\n[shared]";
    let mut memory = Memory::new(&tiny_with(&[("[shared]", second), ("pause = ", "hidden = \"3 cycles\"\npause = ")]));
    for (nth, line) in [0, 2, 4].into_iter().enumerate() {
        memory.load(0, line, nth as u64 * 1000);
    }
    assert_eq!(memory.load(0, 0, 5000), 5001, "a hit of the second level is longer than what is hidden");
    assert_eq!(memory.load(0, 0, 6000), 6000, "one of the first is not");
    assert_eq!(memory.load(2, 0, 7000), 7020, "another core has it");
}

#[test]
fn a_line_comes_from_the_core_that_has_it() {
    let mut memory = machine();
    memory.load(0, 0, 0);
    assert_eq!(memory.load(2, 0, 200), 220, "another core of the socket");
    assert_eq!(memory.load(0, 0, 300), 301, "both have it now");
    memory.rmw(0, 1, 400);
    assert_eq!(memory.load(4, 1, 1000), 1050, "another socket");
    assert_eq!(memory.load(6, 1, 2000), 2010, "whose shared cache has it now");
    let counters = memory.counters();
    assert_eq!((counters.transfers_between_cores, counters.transfers_between_sockets), (1, 1));
}

#[test]
fn a_line_comes_from_another_cluster_of_the_socket() {
    let mut memory = Memory::new(&tiny_with(&[
        ("sockets = 2", "sockets = 1"),
        ("clusters_per_socket = 1", "clusters_per_socket = 2"),
        ("between_sockets = \"50 ns\"", "between_clusters = \"30 ns\""),
        ("interconnect = \"16 GB/s\"", ""),
        ("remote_latency = \"150 ns\"", ""),
    ]));
    memory.rmw(0, 0, 0);
    assert_eq!(memory.load(4, 0, 1000), 1030);
    assert_eq!(memory.rmw(0, 0, 2000), 2035, "30 to end the other copy");
    assert_eq!(memory.counters().transfers_between_clusters, 1);
    memory.check(4);
}

#[test]
fn memory_is_near_or_far() {
    let mut memory = machine();
    memory.bind(Line(64), 1, 1);
    assert_eq!(memory.load(0, 64, 0), 150);
    assert_eq!(memory.load(0, 127, 1000), 1150, "pages are bound as a whole");
    assert_eq!(memory.load(0, 128, 2000), 2100, "a page is near the context that touches it first");
    assert_eq!(memory.load(4, 129, 3000), 3150, "and others have the rest of the page far");
    assert_eq!(memory.counters().memory_read, [128, 128]);
}

#[test]
fn atomic_operations_on_one_line_follow_each_other() {
    let mut memory = machine();
    assert_eq!(memory.rmw(0, 0, 0), 105, "100 from memory and 5 for the operation");
    assert_eq!(memory.rmw(2, 0, 0), 130, "then 20 to the next core and 5");
    assert_eq!(memory.rmw(4, 0, 0), 185, "then 50 to the next socket and 5");
    assert_eq!(memory.rmw(6, 0, 0), 210, "then 20 to the next core there and 5");
    assert_eq!(memory.rmw(7, 0, 210), 215, "its neighbour has it already");
    assert_eq!(memory.rmw(7, 0, 300), 305);
    assert_eq!(memory.version(Line(0)), 6);
    assert_eq!(memory.counters().line_waits, ns(105 + 130 + 185));
}

#[test]
fn a_store_costs_its_issue_and_the_line_comes_later() {
    let mut memory = machine();
    assert_eq!(memory.post(0, 0, 0), 1);
    assert_eq!(memory.load(0, 0, 1), 2, "forwarded from the buffer");
    assert_eq!(memory.load(1, 0, 2), 101, "the neighbour waits for the line");
    assert_eq!(memory.load(2, 0, 3), 120, "and the other core for its transfer");
    assert_eq!(memory.fence(0, 4), 103, "100 until the line is there, 3 for the fence");
    assert_eq!(memory.rmw(2, 1, 4), 113, "others' stores do not matter, but that the controller is busy until 8");
}

#[test]
fn an_atomic_operation_waits_for_the_stores_before_it() {
    let mut memory = machine();
    memory.post(0, 0, 0);
    assert_eq!(memory.rmw(0, 1, 1), 205);
    assert_eq!(memory.counters().drain_waits, ns(99));
}

#[test]
fn a_full_store_buffer_makes_its_context_wait() {
    let mut memory = machine();
    let mut now = 0;
    let mut posted = Vec::new();
    for line in 0..6 {
        now = memory.post(0, line, now);
        posted.push(now);
    }
    // Two lines at a time are asked for: at 0 and 1, 100 and 108, 200 and 208. The second begins at
    // 8, when the controller has read the first.
    assert_eq!(
        posted,
        [1, 2, 3, 4, 101, 109],
        "the fifth store waits for the first to leave, the sixth for the second"
    );
    assert_eq!(memory.fence(0, 109), 311, "the sixth line is there at 308");
    assert_eq!(memory.counters().full_buffer_waits, ns(96 + 7));
}

#[test]
fn stores_leave_in_order() {
    let mut memory = machine();
    memory.post(0, 1, 0);
    memory.fence(0, 100);
    memory.post(0, 0, 200);
    memory.post(0, 1, 201);
    assert_eq!(memory.fence(0, 202), 304, "line 1 is owned, but line 0 comes at 300, and they leave 1 apart");
}

#[test]
fn writing_reads_the_line_first_and_writes_it_back_when_it_leaves() {
    let mut memory = machine();
    memory.bulk(0, 0, 1, Bulk::Write, 0);
    assert_eq!((memory.counters().memory_read, memory.counters().memory_written), (vec![64, 0], vec![0, 0]));
    for nth in 1..=4 {
        assert_eq!(memory.load(2, nth * 4, nth * 1000), nth * 1000 + 100);
    }
    assert_eq!(
        memory.counters().memory_written,
        [64, 0],
        "lines 0, 4, 8, 12 and 16 have four ways in the shared cache"
    );
    assert_eq!(memory.load(0, 0, 9000), 9100, "and line 0 is in no private cache either");
    memory.check(20);
}

#[test]
fn a_line_that_nobody_wrote_leaves_silently() {
    let mut memory = machine();
    for nth in 0..=4 {
        memory.load(0, nth * 4, nth * 1000);
    }
    assert_eq!(memory.counters().memory_written, [0, 0]);
}

#[test]
fn reads_overlap_as_far_as_the_core_can() {
    let mut memory = machine();
    // Two at a time: asked for at 0 and 0, 100 and 108, and so on up to 400 and 408.
    assert_eq!(memory.bulk(0, 0, 10, Bulk::Read, 0), 508);
}

#[test]
fn a_long_copy_is_limited_by_the_controller() {
    let slow = [("read = \"8 GB/s\"", "read = \"1 GB/s\"")];
    let mut memory = Memory::new(&tiny_with(&slow));
    assert_eq!(memory.bulk(0, 0, 10, Bulk::Read, 0), 9 * 64 + 100);
    let mut memory = Memory::new(&tiny_with(&slow));
    let done = [0, 1, 2, 3].map(|context| memory.bulk(context, context as u64 * 64, 50, Bulk::Read, 0));
    let last = done.into_iter().max().expect("four");
    assert_eq!(last, 199 * 64 + 100, "200 lines, read by any contexts");
    assert!(memory.counters().bandwidth_waits > Time::ZERO);
}

#[test]
fn a_written_line_comes_and_goes() {
    let shared = [
        ("\"8 GB/s\"", "\"1 GB/s\""),
        ("write = \"4 GB/s\"", "write = \"1 GB/s\""),
        ("duplex = true", "duplex = false"),
    ];
    let split = [("write = \"4 GB/s\"", "write = \"1 GB/s\"")];
    for (changes, line) in [(&shared[..], 128), (&split[..], 64)] {
        let mut memory = Memory::new(&tiny_with(changes));
        let done = memory.bulk(0, 0, 1000, Bulk::Write, 0);
        let counters = memory.counters();
        assert_eq!(counters.memory_read[0] / 64, 1000);
        assert_eq!(counters.memory_written[0] / 64, 1000 - 16, "16 are in the cache still");
        let channel = 984 * line;
        assert!(
            (channel - 64 * 32..channel + 64 * 32).contains(&done),
            "{done} is about {channel}: what is written waits"
        );
    }
}

#[test]
fn streams_pass_the_caches() {
    let mut memory = machine();
    memory.load(2, 1, 0);
    // Lines are accepted at 1080, 1096 and, when the first buffer is free, 1160.
    assert_eq!(memory.bulk(0, 0, 3, Bulk::Stream, 1000), 1080);
    assert_eq!(memory.fence(0, 1080), 1163);
    let counters = memory.counters();
    assert_eq!((counters.memory_written, counters.streamed), (vec![192, 0], vec![192, 0]));
    assert_eq!(counters.memory_read, [64, 0], "only the load");
    assert_eq!(memory.load(2, 1, 2000), 2100, "the copy has ended");
    memory.bind(Line(64), 1, 1);
    memory.bulk(0, 64, 1, Bulk::Stream, 3000);
    assert_eq!(memory.fence(0, 3000), 3133, "50 more to the other socket");
    memory.check(65);
}

#[test]
fn many_read_what_one_has_written() {
    let mut memory = machine();
    memory.post(0, 0, 0);
    assert_eq!(memory.load(2, 0, 200), 220, "from the writer");
    assert_eq!(memory.load(4, 0, 200), 270, "after that, to the other socket");
    assert_eq!(memory.load(6, 0, 200), 280, "after that, from its shared cache");
    assert_eq!(memory.load(0, 0, 300), 301);
    assert_eq!(memory.rmw(0, 0, 1000), 1055, "50 to end the farthest copy");
    assert_eq!(memory.counters().invalidations, 3);
    assert_eq!(memory.load(4, 0, 2000), 2050);
}

#[test]
fn what_everyone_may_read_is_kept_for_a_moment_only() {
    let mut memory = machine();
    memory.load(0, 0, 0);
    memory.load(2, 0, 100);
    memory.load(4, 0, 200);
    for line in [2, 4] {
        memory.load(0, line, 500);
        memory.load(2, line, 700);
    }
    assert_eq!(memory.load(0, 0, 1000), 1010);
    assert_eq!(memory.load(2, 0, 1000), 1012, "2 later, not 10");
}

#[test]
fn the_holder_of_the_only_copy_writes_it_at_once() {
    let mut memory = machine();
    memory.load(0, 0, 0);
    assert_eq!(memory.rmw(0, 0, 200), 205);
    memory.load(2, 1, 300);
    memory.load(0, 1, 500);
    assert_eq!(memory.rmw(0, 1, 1000), 1025, "20 to end the other core's copy");
}

#[test]
fn stores_write_through() {
    let mut memory = writing_through();
    memory.load(0, 0, 0);
    assert_eq!(memory.load(2, 0, 100), 110, "the shared cache has the line");
    assert_eq!(memory.post(0, 0, 200), 201);
    assert_eq!(memory.load(0, 0, 201), 202, "the writer's own copy stays");
    assert_eq!(memory.load(2, 0, 201), 212, "the other has ended; the shared cache is at it until 202");
    assert_eq!(memory.fence(0, 203), 213, "acknowledged at 210");
    memory.post(0, 1, 1000);
    assert_eq!(memory.fence(0, 1001), 1103, "the line comes from memory");
    assert_eq!(memory.load(0, 1, 2000), 2010, "into the shared cache only");
    assert_eq!(memory.post(4, 0, 3000), 3001);
    assert_eq!(memory.fence(4, 3001), 3053, "the line moves to the other socket");
    memory.check(4);
}

#[test]
fn atomic_operations_are_performed_in_the_shared_cache() {
    let mut memory = writing_through();
    memory.load(0, 0, 0);
    assert_eq!(memory.rmw(0, 0, 200), 212);
    assert_eq!(memory.rmw(2, 0, 200), 216, "4 later");
    assert_eq!(memory.rmw(1, 0, 200), 220, "4 later: the core does not matter");
    assert_eq!(memory.rmw(4, 0, 300), 362, "50 to the other socket, and 12");
    assert_eq!(memory.load(0, 0, 1000), 1050, "no copy is left");
}

#[test]
fn non_volatile_memory_has_its_own_times() {
    let mut memory = machine();
    memory.bind_nvm(Line(0), 64, 0);
    assert_eq!(memory.load(0, 0, 0), 200);
    // The controller takes the lines at 1024 and 1056; each is durable 380 later.
    memory.bulk(0, 8, 2, Bulk::Stream, 1024);
    assert_eq!(memory.fence(0, 1024), 1439);
    let mut dram_only = Memory::new(&tiny_with(&[(
        "[nvm]\nlatency = \"200 ns\"\nwrite_latency = \"300 ns\"\nread = \"4 GB/s\"\nwrite = \"2 GB/s\"",
        "",
    )]));
    dram_only.bind_nvm(Line(0), 64, 0);
    assert_eq!(dram_only.load(0, 0, 0), 100);
}

#[test]
fn flushed_lines_stay_in_the_cache() {
    let mut memory = machine();
    memory.bind_nvm(Line(0), 64, 0);
    memory.post(0, 0, 0);
    assert_eq!(memory.fence(0, 1000), 1003, "the store has left");
    memory.bulk(0, 0, 1, Bulk::Flush, 1000);
    let durable = memory.fence(0, 1001);
    assert!(durable > 1300, "non-volatile memory has accepted the line: {durable}");
    memory.bulk(0, 0, 1, Bulk::Flush, 2000);
    assert_eq!(memory.fence(0, 2001), 2004, "nothing has been written since");
    assert_eq!(memory.load(0, 0, 3000), 3001, "still there");
    memory.check(1);
}

#[test]
fn every_write_is_a_new_version() {
    let mut memory = machine();
    let line = Line(5);
    assert_eq!(memory.version(line), 0);
    memory.load(0, 5, 0);
    assert_eq!(memory.version(line), 0);
    memory.post(0, 5, 200);
    memory.rmw(2, 5, 300);
    memory.bulk(4, 5, 1, Bulk::Write, 400);
    memory.bulk(4, 5, 1, Bulk::Stream, 500);
    assert_eq!(memory.version(line), 4);
    assert_eq!(memory.version(Line(1 << 31)), 0, "untouched");
}

/// Caches and directory agree whatever is done, and nothing goes back in time.
#[test]
fn caches_and_directory_agree() {
    let second = "[private.l2]\nsize = \"512 B\"\nways = 2\nlatency = \"4 cycles\"\n[shared]";
    let machines = [machine(), writing_through(), Memory::new(&tiny_with(&[("[shared]", second)]))];
    for mut memory in machines {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..20_000 {
            let (context, line, now) = (random(8) as usize, random(40), ns(round * 50));
            let done = match random(8) {
                0..3 => memory.access(context, Line(line), Op::Load, now),
                3 | 4 => memory.access(context, Line(line), Op::Store, now),
                5 => memory.access(context, Line(line), Op::Rmw, now),
                6 => memory.touch(context, Line(line), random(8), Bulk::Write, now),
                _ => memory.touch(context, Line(line), random(3), Bulk::Stream, now),
            };
            assert!(done >= now);
            if round % 500 == 0 {
                memory.check(48);
            }
        }
        memory.check(48);
    }
}
