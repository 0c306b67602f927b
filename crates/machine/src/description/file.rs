//! The format of `machines/*.toml`, and what makes a machine possible.

use serde::Deserialize;

use super::quantity::{Bandwidth, Bytes, Clock, Span};
use super::{Cache, Description, DescriptionError, MAX_CLUSTERS, MAX_CORES, MAX_READS, Nvm, Placement, WritePolicy};
use crate::Time;
use crate::line::LINE_BYTES;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    title: String,
    clock: Clock,
    placement: Placement,
    topology: TopologyTable,
    pipeline: PipelineTable,
    private: PrivateTable,
    shared: SharedTable,
    stores: StoresTable,
    coherence: CoherenceTable,
    memory: MemoryTable,
    nvm: Option<NvmTable>,
    system: SystemTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyTable {
    sockets: usize,
    clusters_per_socket: usize,
    cores_per_cluster: usize,
    pipelines_per_core: usize,
    contexts_per_pipeline: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PipelineTable {
    alone: Span,
    shared: Span,
    hidden: Option<Span>,
    pause: Span,
    copy_instructions: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheTable {
    size: Bytes,
    ways: usize,
    latency: Span,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrivateTable {
    write: WritePolicy,
    fill: Bandwidth,
    drain: Bandwidth,
    outstanding_reads: usize,
    l1: CacheTable,
    l2: Option<CacheTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SharedTable {
    size: Bytes,
    ways: usize,
    latency: Span,
    bandwidth: Bandwidth,
    memory_port: Option<Bandwidth>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoresTable {
    entries: usize,
    width: Bytes,
    outstanding: usize,
    issue: Span,
    write_combining: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoherenceTable {
    service: Span,
    between_cores: Span,
    between_clusters: Option<Span>,
    between_sockets: Option<Span>,
    interconnect: Option<Bandwidth>,
    atomic: Span,
    atomic_service: Span,
    fence: Span,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryTable {
    latency: Span,
    remote_latency: Option<Span>,
    accept: Span,
    controllers: usize,
    read: Bandwidth,
    write: Bandwidth,
    duplex: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NvmTable {
    latency: Span,
    write_latency: Span,
    read: Bandwidth,
    write: Bandwidth,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SystemTable {
    context_switch: Span,
    wake: Span,
    wake_call: Span,
    yield_call: Span,
    quantum: Span,
}

fn check(holds: bool, field: &'static str, problem: impl Into<String>) -> Result<(), DescriptionError> {
    if holds { Ok(()) } else { Err(DescriptionError::Invalid { field, problem: problem.into() }) }
}

fn cache(size: Bytes, ways: usize, latency: Time, field: &'static str) -> Result<Cache, DescriptionError> {
    let lines = size.0 as usize / LINE_BYTES;
    check(ways > 0, field, "has no ways")?;
    check(
        lines > 0 && lines.is_multiple_of(ways),
        field,
        format!("has {lines} lines, which {ways} ways do not divide"),
    )?;
    check(lines < 1 << 26, field, "has more than 4 GiB")?;
    Ok(Cache { sets: lines / ways, ways, latency })
}

impl File {
    pub(super) fn into_description(self) -> Result<Description, DescriptionError> {
        let Self { topology, pipeline, private, shared, stores, coherence, memory, nvm, system, .. } = self;
        let megahertz = self.clock.0;
        check(megahertz > 0, "clock", "stands still")?;
        let time = |span: Span| span.at(megahertz);

        check(topology.sockets > 0, "topology.sockets", "is zero")?;
        check(topology.clusters_per_socket > 0, "topology.clusters_per_socket", "is zero")?;
        check(topology.cores_per_cluster > 0, "topology.cores_per_cluster", "is zero")?;
        check(topology.pipelines_per_core > 0, "topology.pipelines_per_core", "is zero")?;
        check(topology.contexts_per_pipeline > 0, "topology.contexts_per_pipeline", "is zero")?;
        let clusters = topology.sockets.saturating_mul(topology.clusters_per_socket);
        let cores = clusters.saturating_mul(topology.cores_per_cluster);
        check(clusters <= MAX_CLUSTERS, "topology", format!("has {clusters} shared caches, more than {MAX_CLUSTERS}"))?;
        check(cores <= MAX_CORES, "topology", format!("has {cores} cores, more than {MAX_CORES}"))?;
        let contexts = topology.pipelines_per_core.saturating_mul(topology.contexts_per_pipeline);
        check(contexts <= 64, "topology", format!("has {contexts} contexts in a core, more than 64"))?;

        for (field, bandwidth) in [
            ("private.fill", Some(private.fill)),
            ("private.drain", Some(private.drain)),
            ("shared.bandwidth", Some(shared.bandwidth)),
            ("shared.memory_port", shared.memory_port),
            ("coherence.interconnect", coherence.interconnect),
            ("memory.read", Some(memory.read)),
            ("memory.write", Some(memory.write)),
            ("nvm.read", nvm.as_ref().map(|nvm| nvm.read)),
            ("nvm.write", nvm.as_ref().map(|nvm| nvm.write)),
        ] {
            check(bandwidth.is_none_or(|bandwidth| bandwidth.0 > 0), field, "moves nothing")?;
        }

        let l1 = cache(private.l1.size, private.l1.ways, time(private.l1.latency), "private.l1")?;
        let l2 = private.l2.map(|l2| cache(l2.size, l2.ways, time(l2.latency), "private.l2")).transpose()?;
        let outer = l2.unwrap_or(l1);
        check(outer.sets * outer.ways >= l1.sets * l1.ways, "private.l2", "is smaller than the first level")?;
        check(l1.latency <= outer.latency, "private.l2.latency", "is less than the first level's")?;
        let last = cache(shared.size, shared.ways, time(shared.latency), "shared")?;
        check(
            last.sets * last.ways >= outer.sets * outer.ways * topology.cores_per_cluster,
            "shared.size",
            "cannot hold what its cores' private caches hold",
        )?;
        check(outer.latency <= last.latency, "shared.latency", "is less than the private caches'")?;

        let reads = private.outstanding_reads;
        check((1..=MAX_READS).contains(&reads), "private.outstanding_reads", format!("is not in 1..={MAX_READS}"))?;
        let width = stores.width.0;
        check(width > 0 && (LINE_BYTES as u64).is_multiple_of(width), "stores.width", "does not divide a line")?;
        check((1..=256).contains(&stores.entries), "stores.entries", "is not in 1..=256")?;
        check((1..=256).contains(&stores.outstanding), "stores.outstanding", "is not in 1..=256")?;
        check((1..=256).contains(&stores.write_combining), "stores.write_combining", "is not in 1..=256")?;

        let several_clusters = topology.clusters_per_socket > 1;
        check(
            coherence.between_clusters.is_some() == several_clusters,
            "coherence.between_clusters",
            "is for sockets with several shared caches, and for no others",
        )?;
        let several = topology.sockets > 1;
        let for_several = "is for machines with several sockets, and for no others";
        check(coherence.between_sockets.is_some() == several, "coherence.between_sockets", for_several)?;
        check(coherence.interconnect.is_some() == several, "coherence.interconnect", for_several)?;
        check(memory.remote_latency.is_some() == several, "memory.remote_latency", for_several)?;
        let memory_latency = time(memory.latency);
        check(last.latency <= memory_latency, "memory.latency", "is less than the shared cache's")?;
        let remote_latency = memory.remote_latency.map_or(memory_latency, time);
        check(memory_latency <= remote_latency, "memory.remote_latency", "is less than the local memory's")?;
        check(
            memory.duplex || memory.read == memory.write,
            "memory.write",
            "is not `memory.read`, though both go the same way",
        )?;
        check((1..=64).contains(&memory.controllers), "memory.controllers", "is not in 1..=64")?;
        check(time(pipeline.alone) > Time::ZERO, "pipeline.alone", "is zero")?;
        check(time(pipeline.pause) > Time::ZERO, "pipeline.pause", "is zero: a spin loop would not end")?;
        check(time(system.quantum) > Time::ZERO, "system.quantum", "is zero")?;

        let controllers = memory.controllers as u64;
        Ok(Description {
            title: self.title,
            placement: self.placement,
            sockets: topology.sockets,
            clusters_per_socket: topology.clusters_per_socket,
            cores_per_cluster: topology.cores_per_cluster,
            pipelines_per_core: topology.pipelines_per_core,
            contexts_per_pipeline: topology.contexts_per_pipeline,
            instruction_alone: time(pipeline.alone),
            instruction_shared: time(pipeline.shared),
            hidden: pipeline.hidden.map_or(Time::ZERO, time),
            pause: time(pipeline.pause),
            copy_instructions: pipeline.copy_instructions,
            l1,
            l2,
            write_policy: private.write,
            fill_line: private.fill.per_line(),
            drain_line: private.drain.per_line(),
            outstanding_reads: reads,
            shared: last,
            shared_line: shared.bandwidth.per_line(),
            memory_port_line: shared.memory_port.map(Bandwidth::per_line),
            store_entries: stores.entries,
            stores_per_line: (LINE_BYTES / width as usize).min(stores.entries),
            outstanding_stores: stores.outstanding,
            store_issue: time(stores.issue),
            write_combining: stores.write_combining,
            service: time(coherence.service),
            between_cores: time(coherence.between_cores),
            between_clusters: coherence.between_clusters.map_or(Time::ZERO, time),
            between_sockets: coherence.between_sockets.map_or(Time::ZERO, time),
            atomic: time(coherence.atomic),
            atomic_service: time(coherence.atomic_service),
            fence: time(coherence.fence),
            interconnect_line: coherence.interconnect.map_or(Time::ZERO, Bandwidth::per_line),
            memory_latency,
            memory_remote: remote_latency - memory_latency,
            memory_accept: time(memory.accept),
            controllers: memory.controllers,
            read_line: memory.read.per_line().times(controllers),
            write_line: memory.write.per_line().times(controllers),
            duplex: memory.duplex,
            nvm: nvm.map(|nvm| Nvm {
                latency: time(nvm.latency),
                write_latency: time(nvm.write_latency),
                read_line: nvm.read.per_line().times(controllers),
                write_line: nvm.write.per_line().times(controllers),
            }),
            context_switch: time(system.context_switch),
            wake: time(system.wake),
            wake_call: time(system.wake_call),
            yield_call: time(system.yield_call),
            quantum: time(system.quantum),
        })
    }
}
