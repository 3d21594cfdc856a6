//! Traffic that goes on until a rank dies. Every rank says "ready" when it is under way.

use anyhow::Context as _;
use warpway::{
    BlockChannel, Buffer, Communicator, DataType, Peer, RegisteredMemory, Result, Timeout, Transport,
};
use warpway_tests::Line;
use warpway_tests::suite::plans::Message;
use warpway_tests::suite::{self, plans};

use super::{is_mapped, join, others};

const SIZE: u64 = (1 << 20) + 13;

/// A communicator, its peers by rank, a memory of its own and one of each peer.
struct Mesh {
    comm: Communicator,
    peers: Vec<Peer>,
    data: Buffer<u8>,
    /// By rank; `None` in this rank's own place.
    remote: Vec<Option<RegisteredMemory>>,
}

impl Mesh {
    fn new(transport: Transport) -> anyhow::Result<Self> {
        let comm = join()?;
        let peers = comm.connect_all(Some(transport))?;
        let data = comm.alloc(SIZE)?;
        let remote = exchange(&comm, &peers, &data)?;
        Ok(Self { comm, peers, data, remote })
    }

    fn remote(&self) -> impl Iterator<Item = (&Peer, &RegisteredMemory)> {
        self.peers.iter().zip(&self.remote).filter_map(|(peer, remote)| Some((peer, remote.as_ref()?)))
    }
}

fn exchange(comm: &Communicator, peers: &[Peer], data: &Buffer<u8>) -> Result<Vec<Option<RegisteredMemory>>> {
    for rank in others(comm) {
        peers[rank as usize].send_memory(data)?;
    }
    let own = comm.rank();
    peers.iter().map(|p| if p.rank() == own { Ok(None) } else { p.recv_memory().map(Some) }).collect()
}

/// Random groups.
pub(super) fn messages() -> anyhow::Result<()> {
    let comm = join()?;
    for turn in 0.. {
        if turn == 1 {
            Line::mark("ready");
        }
        suite::random_messages(&comm, 50, turn)?;
    }
    Ok(())
}

/// Launches all algorithms in turn.
pub(super) fn plans() -> anyhow::Result<()> {
    let comm = join()?;
    let prepared = plans::prepare_all(&comm)?;
    for turn in 0u64.. {
        if turn == 1 {
            Line::mark("ready");
        }
        for prepared in &prepared {
            let message = Message { seed: turn, ..Message::new(17 + turn % 3 * 1000, DataType::Uint32) };
            plans::launch(&comm, prepared, &message)?;
        }
    }
    Ok(())
}

/// Launches plans of several hosts in turn, a few times or until something fails; with `set_up`, each newly set up.
pub(super) fn host_plans(endless: bool, set_up: bool) -> anyhow::Result<()> {
    let comm = join()?;
    let plans = plans::between_hosts(&plans::hosts_of(&comm));
    let prepare = || plans.iter().map(|plan| comm.prepare(plan)).collect::<Result<Vec<_>>>();
    let mut prepared = prepare()?;
    for turn in 0u64..if endless { u64::MAX } else { 9 } {
        if turn == 1 {
            Line::mark("ready");
        }
        if set_up {
            prepared = prepare()?;
        }
        for prepared in &prepared {
            let message = Message { seed: turn, ..Message::new(17 + turn % 3 * 1000, DataType::Uint32) };
            plans::launch(&comm, prepared, &message)?;
        }
    }
    Ok(comm.barrier()?)
}

/// Launches plans that share scratch.
pub(super) fn sequence(turns: u64) -> anyhow::Result<()> {
    let comm = join()?;
    let proven = plans::on_scratch(comm.n_ranks());
    Line::mark("ready");
    Ok(plans::in_random_order(&comm, &proven, u64::from(comm.n_ranks()), turns)?)
}

pub(super) fn connect(transport: Transport) -> anyhow::Result<()> {
    let comm = join()?;
    for turn in 0u64.. {
        if turn == 1 {
            Line::mark("ready");
        }
        let peers = comm.connect_all(Some(transport))?;
        let data = comm.alloc::<u8>(4096)?;
        let remote = exchange(&comm, &peers, &data)?;
        for (peer, remote) in peers.iter().zip(&remote) {
            if let Some(remote) = remote {
                peer.connection().write(remote, 0, data.memory(), 0, 17)?;
                peer.connection().flush(comm.config().setup_timeout.start())?;
            }
        }
        // Nobody's memory goes before the last has written to it.
        comm.barrier()?;
    }
    Ok(())
}

pub(super) fn put() -> anyhow::Result<()> {
    let mesh = Mesh::new(Transport::SharedMemory)?;
    let channels: Vec<BlockChannel> = mesh
        .remote()
        .map(|(peer, remote)| mesh.comm.block_channel(&peer.memory_channel(&mesh.data, remote)?))
        .collect::<Result<_>>()?;
    Line::mark("ready");
    loop {
        mesh.comm.launch(2, |block| {
            for channel in &channels {
                channel.put(0, 0, SIZE, block.share())?;
                block.barrier()?;
            }
            Ok(())
        })?;
    }
}

pub(super) fn write(transport: Transport) -> anyhow::Result<()> {
    let mesh = Mesh::new(transport)?;
    Line::mark("ready");
    loop {
        for (peer, remote) in mesh.remote() {
            for _ in 0..4 {
                peer.connection().write(remote, 0, mesh.data.memory(), 0, SIZE)?;
            }
        }
        for (peer, _) in mesh.remote() {
            peer.connection().flush(mesh.comm.config().setup_timeout.start())?;
        }
    }
}

/// Says "ready" in the kernel, right before it waits: nothing else can be interrupted then.
pub(super) fn wait(transport: Transport) -> anyhow::Result<()> {
    let mesh = Mesh::new(transport)?;
    let (own, n) = (mesh.comm.rank(), mesh.comm.n_ranks());
    // All semaphores, although only that of the next rank is waited for: exchanges are made by both sides.
    if is_mapped(transport) {
        let mut channels = Vec::new();
        for rank in others(&mesh.comm) {
            channels.push(mesh.comm.block_semaphore(&mesh.peers[rank as usize].signal_channel()?)?);
        }
        let next = channels.iter().find(|channel| channel.peer() == (own + 1) % n).context("a next rank")?;
        return Ok(mesh.comm.launch(1, |_| {
            Line::mark("ready");
            next.wait()
        })?);
    }
    let mut semaphores = Vec::new();
    for rank in others(&mesh.comm) {
        semaphores.push(mesh.peers[rank as usize].semaphore()?);
    }
    let of_next = |s: &&warpway::Semaphore| s.connection().peer() == (own + 1) % n;
    let next = semaphores.iter().find(of_next).context("a next rank")?;
    Ok(mesh.comm.launch(1, |_| {
        Line::mark("ready");
        next.wait(Timeout::NONE)
    })?)
}

pub(super) fn proxy(transport: Transport) -> anyhow::Result<()> {
    let mesh = Mesh::new(transport)?;
    let service = mesh.comm.proxy_service()?;
    let channels: Vec<_> = mesh
        .remote()
        .map(|(peer, remote)| Ok(peer.port_channel(&service, &mesh.data, remote)?.device_handle()))
        .collect::<Result<_>>()?;
    Line::mark("ready");
    loop {
        for channel in &channels {
            channel.put_with_signal(0, 0, SIZE)?;
        }
        for channel in &channels {
            channel.wait()?;
            channel.flush()?;
        }
    }
}
