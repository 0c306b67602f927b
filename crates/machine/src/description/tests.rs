use std::num::NonZeroU64;

use super::*;

/// A machine on which times can be worked out by hand: a cycle is a nanosecond. Two sockets of two
/// cores of two contexts.
pub(crate) const TINY: &str = r#"
title = "tiny"
clock = "1 GHz"
placement = "spread-sockets"

[topology]
sockets = 2
clusters_per_socket = 1
cores_per_cluster = 2
pipelines_per_core = 1
contexts_per_pipeline = 2

[pipeline]
alone = "2 cycles"
shared = "1.5 cycles"
pause = "7 cycles"
copy_instructions = 10

[private]
write = "back"
fill = "64 GB/s"
drain = "32 GB/s"
outstanding_reads = 2

[private.l1]
size = "256 B"
ways = 2
latency = "1 cycle"

[shared]
size = "1 KiB"
ways = 4
latency = "10 cycles"
bandwidth = "64 GB/s"

[stores]
entries = 4
width = "32 B"
outstanding = 2
issue = "1 cycle"
write_combining = 2

[coherence]
service = "2 cycles"
between_cores = "20 cycles"
between_sockets = "50 ns"
interconnect = "16 GB/s"
atomic = "5 cycles"
atomic_service = "5 cycles"
fence = "3 cycles"

[memory]
latency = "100 ns"
remote_latency = "150 ns"
accept = "80 ns"
controllers = 1
read = "8 GB/s"
write = "4 GB/s"
duplex = true

[nvm]
latency = "200 ns"
write_latency = "300 ns"
read = "4 GB/s"
write = "2 GB/s"

[system]
context_switch = "1 us"
wake = "2 us"
wake_call = "0.5 us"
yield_call = "250 ns"
quantum = "1 ms"
"#;

pub(crate) fn tiny() -> Description {
    tiny_with(&[])
}

/// Returns the tiny machine with lines replaced.
pub(crate) fn tiny_with(changes: &[(&str, &str)]) -> Description {
    Description::from_toml(&changed(changes)).expect("a machine")
}

#[test]
fn persistent_memory_has_the_reads_that_are_asked_for_and_else_the_speed_of_memory() {
    let machine = tiny().with_nvm_reads(Duration::from_nanos(700));
    let nvm = machine.nvm.expect("the machine has persistent memory");
    assert_eq!(nvm.latency, Time::from_nanos(700));
    assert_eq!((nvm.read_line, nvm.write_line), (machine.read_line, machine.write_line));
    assert_ne!(machine, tiny());
}

fn changed(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(TINY.to_owned(), |text, (old, new)| {
        assert_eq!(text.matches(old).count(), 1, "`{old}` is there once");
        text.replace(old, new)
    })
}

fn problem(changes: &[(&str, &str)]) -> String {
    Description::from_toml(&changed(changes)).expect_err("no machine").to_string()
}

#[test]
fn every_machine_that_is_built_in_can_be_used() {
    for name in Description::names() {
        let machine = Description::named(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!machine.title().is_empty());
        assert_eq!(machine.nodes(), machine.sockets());
        let mut placed: Vec<_> = (0..machine.contexts()).map(|nth| machine.placement(nth)).collect();
        assert_eq!(machine.placement(machine.contexts()), placed[0], "{name}: all over again");
        placed.sort_unstable();
        assert!(placed.into_iter().eq(0..machine.contexts()), "{name}: each context has its thread");
    }
}

#[test]
fn the_machines_have_the_contexts_that_the_papers_say() {
    let shape = |name| {
        let machine = Description::named(name).expect("built in");
        (machine.sockets(), machine.cores(), machine.contexts())
    };
    assert_eq!(shape("niagara2"), (1, 8, 64));
    assert_eq!(shape("niagara2-4"), (4, 32, 256));
    assert_eq!(shape("xeon-e7-4807"), (4, 24, 48));
    assert_eq!(shape("xeon-e5645"), (1, 6, 12));
    assert_eq!(shape("server-2x64"), (2, 128, 256));
    assert_eq!(shape("atom-mesh"), (1, 32, 32));
}

#[test]
fn contexts_have_their_places() {
    let machine = tiny();
    let place = |context| (machine.socket_of(context), machine.core_of(context), machine.pipeline_of(context));
    assert_eq!(place(0), (0, 0, 0));
    assert_eq!(place(1), (0, 0, 0));
    assert_eq!(place(3), (0, 1, 1));
    assert_eq!(place(4), (1, 2, 2));
    assert_eq!(place(7), (1, 3, 3));
}

#[test]
fn threads_get_cores_of_their_own_first() {
    let placements = |machine: &Description| (0..8).map(|nth| machine.placement(nth)).collect::<Vec<_>>();
    assert_eq!(placements(&tiny()), [0, 4, 2, 6, 1, 5, 3, 7]);
    let filling = tiny_with(&[("spread-sockets", "fill-sockets")]);
    assert_eq!(placements(&filling), [0, 2, 1, 3, 4, 6, 5, 7]);
    let pipelines =
        tiny_with(&[("pipelines_per_core = 1", "pipelines_per_core = 2"), ("spread-sockets", "fill-sockets")]);
    assert_eq!(placements(&pipelines), [0, 4, 2, 6, 1, 5, 3, 7], "pipelines before contexts");
    assert_eq!((0..4).map(|nth| tiny().placement_on(1, nth)).collect::<Vec<_>>(), [4, 6, 5, 7]);
}

#[test]
fn quantities_become_picoseconds() {
    let machine = tiny();
    assert_eq!(machine.instruction_shared, Time::from_picos(1500));
    assert_eq!(machine.pause(), Time::from_nanos(7));
    assert_eq!(machine.yield_call(), Time::from_nanos(250));
    assert_eq!(machine.wake_call(), Time::from_nanos(500));
    assert_eq!(machine.quantum(), Time::from_nanos(1_000_000));
    assert_eq!(machine.read_line, Time::from_nanos(8));
    let halved = tiny_with(&[("controllers = 1", "controllers = 2"), ("\"1 GHz\"", "\"1400 MHz\"")]);
    assert_eq!(halved.read_line, Time::from_nanos(16), "each of two controllers moves half");
    assert_eq!(halved.shared.latency, Time::from_picos(7143), "10 cycles, to the nearest picosecond");
}

#[test]
fn memory_can_have_another_bandwidth() {
    let two = tiny_with(&[("controllers = 1", "controllers = 2")]);
    let slow = two.with_memory_bandwidth(NonZeroU64::new(4_000_000_000).unwrap());
    assert_eq!((slow.read_line, slow.write_line, slow.duplex), (Time::from_nanos(32), Time::from_nanos(32), false));
}

#[test]
fn errors_say_what_is_wrong() {
    let unknown = Description::named("pdp-11").expect_err("not built in").to_string();
    assert!(unknown.contains("`pdp-11`") && unknown.contains("niagara2-4"), "{unknown}");
    assert!(problem(&[("\"100 ns\"", "\"100 parsecs\"")]).contains("`100 parsecs` is not a length of time"));
    assert!(problem(&[("\"100 ns\"", "\"100ns\"")]).contains("a space and a unit"));
    assert!(problem(&[("\"100 ns\"", "\"0.0001 ns\"")]).contains("three decimals"));
    assert!(problem(&[("clock", "clocks")]).contains("unknown field `clocks`"));
    assert!(problem(&[("clock = \"1 GHz\"", "")]).contains("missing field `clock`"));
    assert!(problem(&[("\"1 GHz\"", "\"0 GHz\"")]).contains("`clock` stands still"));
    assert!(problem(&[("sockets = 2", "sockets = 0")]).contains("`topology.sockets` is zero"));
    assert!(problem(&[("cores_per_cluster = 2", "cores_per_cluster = 65")]).contains("130 cores, more than 128"));
    assert!(problem(&[("clusters_per_socket = 1", "clusters_per_socket = 9")]).contains("18 shared caches"));
    assert!(problem(&[("clusters_per_socket = 1", "clusters_per_socket = 2")]).contains("between_clusters"));
    assert!(problem(&[("sockets = 2", "sockets = 1")]).contains("`coherence.between_sockets` is for machines"));
    assert!(problem(&[("\"256 B\"", "\"320 B\"")]).contains("`private.l1` has 5 lines"));
    assert!(problem(&[("\"1 KiB\"", "\"0.25 KiB\"")]).contains("`shared.size` cannot hold"));
    assert!(problem(&[("\"10 cycles\"", "\"101 cycles\"")]).contains("`memory.latency` is less"));
    assert!(problem(&[("\"150 ns\"", "\"50 ns\"")]).contains("`memory.remote_latency` is less"));
    assert!(problem(&[("\"32 B\"", "\"24 B\"")]).contains("`stores.width` does not divide"));
    assert!(problem(&[("\"16 GB/s\"", "\"0 GB/s\"")]).contains("`coherence.interconnect` moves nothing"));
    assert!(problem(&[("duplex = true", "duplex = false")]).contains("`memory.write` is not `memory.read`"));
    assert!(problem(&[("entries = 4", "entries = 0")]).contains("`stores.entries`"));
    assert!(problem(&[("outstanding_reads = 2", "outstanding_reads = 65")]).contains("1..=64"));
    assert!(problem(&[("\"7 cycles\"", "\"0 cycles\"")]).contains("`pipeline.pause`"));
}
