//! More buffers than a communicator keeps published, while kernels and a proxy use some of them: nothing in use is unmapped,
//! all data is exact, what was evicted comes back when it is published again, and its memory returns to the device.

use std::collections::VecDeque;

use warpway::core::channel::DeviceHandle;
use warpway::core::communicator::{CommunicatorConfig, Publication};
use warpway::core::wire::SlotId;
use warpway::cuda::{
    DeviceMemory, GpuMemoryChannel, Kernel, Lane, MemoryChannelDeviceHandle, PortChannelHandle, PortConfig,
    copy_from_host, copy_to_host,
};
use warpway::{
    Access, Bootstrap as _, Communicator, Gpu, GpuBuffer, LaunchShape, Peer, PortChannel, RegisteredMemory,
    Result, Stream, Transport,
};

use crate::ranks_channels::soon;
use crate::rig::{Ranks, Source, rounds};

/// Buffers that each rank publishes in a turn; every other one is a plain allocation, as another library makes them.
const BATCH: u64 = 64;
/// So many that half of the buffers are twice what a communicator keeps.
const TURNS: u64 = 16;
/// Turns after which a rank lets go of the peer's buffers that it still has then.
const LATER: u64 = 4;
/// The device gives memory in pages of 2 MiB, and the driver takes some for its own books; the test uses a gigabyte.
const SLACK: u64 = 16 << 20;
/// Tag of the messages that carry slots.
const SLOTS: i32 = 7;

/// Bytes of a buffer.
fn size(index: u64) -> u64 {
    [1, 4097, 65_536, (1 << 20) | 1, (2 << 20) + 13][index as usize % 5]
}

/// What a rank fills a buffer with.
fn pattern(rank: u32, turn: u64, index: u64) -> Vec<u8> {
    let seed = u64::from(rank) * 101 + turn * 37 + index * 13;
    (0..size(index)).map(|at| (seed + at * 29 + at / 256) as u8).collect()
}

/// The part of a buffer that the peer writes: offset and bytes.
fn written(index: u64) -> (u64, u64) {
    let size = size(index);
    (size / 3, size - size / 3 - size / 5)
}

/// What is there after the peer has written the same part of its own pattern.
fn expected(owner: u32, turn: u64, index: u64) -> Vec<u8> {
    let (mut bytes, theirs) = (pattern(owner, turn, index), pattern(1 - owner, turn, index));
    let (offset, size) = written(index);
    let part = offset as usize..(offset + size) as usize;
    bytes[part.clone()].copy_from_slice(&theirs[part]);
    bytes
}

/// Both ranks tell each other where their buffers are.
fn swap(comm: &Communicator, mine: &[SlotId]) -> Result<Vec<SlotId>> {
    let bytes: Vec<u8> =
        mine.iter().flat_map(|id| [id.slot, id.generation]).flat_map(u64::to_le_bytes).collect();
    let peer = 1 - comm.rank();
    comm.bootstrap().send(&bytes, peer, SLOTS, soon())?;
    let theirs = comm.bootstrap().recv_vec(peer, SLOTS, soon())?;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    Ok(theirs.chunks(16).map(|id| SlotId { slot: word(&id[..8]), generation: word(&id[8..]) }).collect())
}

/// A memory of this rank, and the peer's of the same kind. The peer's was published, and then given up by its owner: only
/// what this rank does with it keeps it mapped.
struct Way {
    mine: GpuBuffer<u8>,
    received: GpuBuffer<u8>,
    remote: RegisteredMemory,
}

impl Way {
    fn new(comm: &Communicator, gpu: &Gpu, bytes: u64) -> Result<Self> {
        let (mine, received) = (gpu.alloc(bytes)?, gpu.alloc(bytes)?);
        let publication = comm.core().publish(received.memory())?;
        let theirs = swap(comm, &[publication.slot()])?;
        let remote = comm.core().published(1 - comm.rank(), theirs[0], soon())?;
        comm.barrier()?;
        Ok(Self { mine, received, remote })
    }
}

/// Kernels of both ranks that send each other data all the time, by a memory channel and by a port channel.
struct Load {
    gpu: Gpu,
    ways: [Way; 2],
    put: DeviceHandle<MemoryChannelDeviceHandle, GpuMemoryChannel>,
    port: DeviceHandle<PortChannelHandle, PortChannel>,
    kernels: [Kernel; 2],
    lanes: [Lane; 2],
    streams: [Stream; 2],
    wrong: [GpuBuffer<u64>; 2],
}

impl Load {
    const WORDS: u64 = 1000;
    const SHAPE: LaunchShape = LaunchShape { blocks: 1, threads: 128, shared_bytes: 0 };

    fn new(comm: &Communicator, peer: &Peer, gpu: &Gpu) -> Result<Self> {
        let ways = [Way::new(comm, gpu, 8 * Self::WORDS)?, Way::new(comm, gpu, 8 * Self::WORDS)?];
        let put = gpu.memory_channel(&peer.memory_channel(&ways[0].mine, &ways[0].remote)?)?;
        let ports = gpu.port_service(&PortConfig::default())?;
        let port =
            ports.port_channel(&peer.port_channel(ports.service(), &ways[1].mine, &ways[1].remote)?)?;
        let kernels = [
            gpu.load(&Source::RANKS.program())?.kernel("put_rounds")?,
            gpu.load(&Source::PORTS.program())?.kernel("port_rounds")?,
        ];
        Ok(Self {
            ways,
            put,
            port,
            kernels,
            lanes: [gpu.lane(), gpu.lane()],
            streams: [gpu.stream()?, gpu.stream()?],
            wrong: [gpu.alloc(1)?, gpu.alloc(1)?],
            gpu: gpu.clone(),
        })
    }

    /// Starts what takes about as long as a turn.
    fn start(&self) -> Result<()> {
        let Self { ways, lanes, kernels, streams, wrong, .. } = self;
        let shape = Self::SHAPE;
        let (source, received) = (ways[0].mine.address(), ways[0].received.address());
        let arguments = (&self.put, source, received, Self::WORDS, rounds(20_000), &wrong[0]);
        // SAFETY: the parameters of `put_rounds`; the buffers live until the kernel has ended, as `finish` waits.
        unsafe { lanes[0].launch(&kernels[0], shape, arguments, &streams[0])? };
        let (source, received) = (ways[1].mine.address(), ways[1].received.address());
        let arguments = (&self.port, source, received, Self::WORDS, rounds(5000), &wrong[1]);
        // SAFETY: the parameters of `port_rounds`; as above.
        unsafe { lanes[1].launch(&kernels[1], shape, arguments, &streams[1]) }
    }

    /// What has no room beside the kernels that run is refused, and they go on.
    fn leaves_no_room(&self) -> Result<()> {
        let too_many = LaunchShape { blocks: 1 << 20, ..Self::SHAPE };
        let arguments = (&self.put, 0u64, 0u64, 0u64, 0u64, &self.wrong[0]);
        // SAFETY: the parameters of `put_rounds`, for no words.
        let refused =
            unsafe { self.gpu.lane().launch(&self.kernels[0], too_many, arguments, &self.streams[0]) };
        assert_eq!(refused.unwrap_err().id(), "gpu.residency");
        Ok(())
    }

    fn is_running(&self) -> Result<bool> {
        Ok(!(self.streams[0].is_idle()? && self.streams[1].is_idle()?))
    }

    /// Waits for the end. Every word of every round was right.
    fn finish(&self) -> Result<()> {
        for at in 0..2 {
            self.lanes[at].synchronize(&self.streams[at], soon())?;
            assert_eq!(self.wrong[at].to_vec()?, [0], "words that were wrong");
        }
        Ok(())
    }
}

/// A buffer that this rank has published.
struct Published {
    memory: DeviceMemory,
    publication: Publication,
    plain: bool,
}

/// What the peer's side of a turn needs.
struct Churn<'c> {
    comm: &'c Communicator,
    peer: &'c Peer,
    gpu: &'c Gpu,
    stream: Stream,
    /// As long as the longest buffer; source of writes to the peer.
    source: GpuBuffer<u8>,
    /// Buffers of the peer that its owner has forgotten: turn, index.
    kept: VecDeque<(u64, u64, RegisteredMemory)>,
}

impl Churn<'_> {
    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: the tests give ranges of live memory.
        unsafe { copy_from_host(&self.stream, address, bytes)? };
        Ok(self.stream.synchronize(soon())?)
    }

    fn read(&self, address: u64, size: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; size as usize];
        // SAFETY: as above; the test ends if the copy does not.
        unsafe { copy_to_host(&self.stream, &mut bytes, address)? };
        self.stream.synchronize(soon())?;
        Ok(bytes)
    }

    /// A buffer with this rank's pattern that peers can find.
    fn publish(&self, turn: u64, index: u64) -> Result<Published> {
        let (bytes, plain) = (size(index), index % 2 == 1);
        let allocate = if plain { DeviceMemory::plain } else { DeviceMemory::allocate };
        let memory = allocate(self.gpu.context(), bytes, &[])?;
        self.write(memory.address(), &pattern(self.comm.rank(), turn, index))?;
        let registered = if plain {
            // SAFETY: freed when the publication has been withdrawn, in `retire`.
            unsafe { self.gpu.register(memory.address(), bytes)? }
        } else {
            self.comm.core().register_memory(memory.region()?, Transport::CudaIpc.into(), Access::ALL)?
        };
        Ok(Published { memory, publication: self.comm.core().publish(&registered)?, plain })
    }

    /// Reads a buffer of the peer, and writes part of it.
    fn use_one(&self, turn: u64, index: u64, slot: SlotId) -> Result<RegisteredMemory> {
        let peer = self.peer.rank();
        let memory = self.comm.core().published(peer, slot, soon())?;
        let address = memory.address("test", 0, size(index))?;
        assert!(
            self.read(address, size(index))? == pattern(peer, turn, index),
            "turn {turn}, buffer {index}"
        );
        let (offset, bytes) = written(index);
        if bytes > 0 {
            self.source.write(0, &pattern(self.comm.rank(), turn, index))?;
            let connection = self.peer.connection();
            connection.write(&memory, offset, self.source.memory(), offset, bytes)?;
            connection.flush(soon())?;
        }
        Ok(memory)
    }

    /// Looks at a buffer that the peer has used, and forgets it: it stays published if it can, until its place is needed.
    fn retire(&self, turn: u64, index: u64, published: Published) -> Result<()> {
        let Published { memory, publication, plain } = published;
        let found = self.read(memory.address(), size(index))?;
        assert!(found == expected(self.comm.rank(), turn, index), "turn {turn}, own buffer {index}");
        if plain { publication.withdraw(soon()) } else { Ok(()) }
    }

    /// Buffers come, are used and go.
    fn turn(&mut self, turn: u64) -> Result<()> {
        let mine = (0..BATCH).map(|index| self.publish(turn, index)).collect::<Result<Vec<_>>>()?;
        let slots: Vec<SlotId> = mine.iter().map(|published| published.publication.slot()).collect();
        for (index, slot) in (0..).zip(swap(self.comm, &slots)?) {
            let memory = self.use_one(turn, index, slot)?;
            if index % 8 == 0 {
                self.kept.push_back((turn, index, memory));
            }
        }
        self.comm.barrier()?;
        for (index, published) in (0..).zip(mine) {
            self.retire(turn, index, published)?;
        }
        while self.kept.front().is_some_and(|(kept, ..)| kept + LATER <= turn) {
            self.let_go()?;
        }
        Ok(())
    }

    /// The oldest of the peer's buffers that this rank still has is as it was.
    fn let_go(&mut self) -> Result<()> {
        let Some((turn, index, memory)) = self.kept.pop_front() else { return Ok(()) };
        let found = self.read(memory.address("test", 0, size(index))?, size(index))?;
        assert!(found == expected(self.peer.rank(), turn, index), "turn {turn}, buffer {index}, later");
        Ok(())
    }

    /// Buffers that were published long ago and are there still: they have lost their slots, and get others.
    fn come_back(&self, buffers: &[RegisteredMemory], slots: &[SlotId]) -> Result<()> {
        let core = self.comm.core();
        let peer = self.peer.rank();
        let old = swap(self.comm, slots)?;
        for (buffer, slot) in buffers.iter().zip(slots) {
            assert!(core.republish(buffer, *slot).is_none(), "{slot:?} has been evicted");
        }
        for slot in old {
            assert_eq!(core.published(peer, slot, soon()).unwrap_err().id(), "exchange.withdrawn");
        }
        let again = buffers.iter().map(|buffer| core.publish(buffer)).collect::<Result<Vec<_>>>()?;
        let slots: Vec<SlotId> = again.iter().map(Publication::slot).collect();
        for (index, slot) in (0..).zip(swap(self.comm, &slots)?) {
            let memory = core.published(peer, slot, soon())?;
            let found = self.read(memory.address("test", 0, size(index))?, size(index))?;
            assert!(found == pattern(peer, TURNS, index), "buffer {index}, back again");
        }
        self.comm.barrier()
    }

    /// Takes every place for parts of one buffer, so that nothing else stays published.
    fn take_all_places(&self) -> Result<Vec<Publication>> {
        const PART: u64 = 64;
        let core = self.comm.core();
        let places = CommunicatorConfig::default().publication_capacity as u64;
        let memory = DeviceMemory::allocate(self.gpu.context(), PART * (places + 1), &[])?;
        let part = |at: u64| {
            let region = memory.region()?.slice(at * PART, PART)?;
            core.register_memory(region, Transport::CudaIpc.into(), Access::ALL)
        };
        let taken = (0..places).map(|at| core.publish(&part(at)?)).collect::<Result<Vec<_>>>()?;
        assert_eq!(core.publish(&part(places)?).unwrap_err().id(), "exchange.slots_in_use");
        Ok(taken)
    }
}

fn evict(comm: &Communicator, with_kernels: bool) -> Result<()> {
    let gpu = comm.gpu()?;
    let peer = comm.connect_by(1 - comm.rank(), Transport::CudaIpc)?;
    let load = with_kernels.then(|| Load::new(comm, &peer, &gpu)).transpose()?;
    let longest = (0..5).map(size).max().unwrap();
    let (stream, source) = (gpu.stream()?, gpu.alloc(longest)?);
    let mut churn = Churn { comm, peer: &peer, gpu: &gpu, stream, source, kept: VecDeque::new() };
    // Kept all the time, published for a moment.
    let early = (0..4)
        .map(|index| {
            let memory = DeviceMemory::allocate(gpu.context(), size(index), &[])?;
            churn.write(memory.address(), &pattern(comm.rank(), TURNS, index))?;
            comm.core().register_memory(memory.region()?, Transport::CudaIpc.into(), Access::ALL)
        })
        .collect::<Result<Vec<_>>>()?;
    let slots = early.iter().map(|buffer| Ok(comm.core().publish(buffer)?.slot()));
    let slots = slots.collect::<Result<Vec<_>>>()?;
    comm.barrier()?;
    let before = gpu.context().free_memory()?;
    let (mut least, mut outlasted) = (before, 0);
    for turn in 0..TURNS {
        if let Some(load) = &load {
            load.start()?;
            if turn == 0 {
                load.leaves_no_room()?;
            }
            // The kernels of both are on their way: whatever waits for one of them will be over.
            comm.barrier()?;
        }
        churn.turn(turn)?;
        least = least.min(gpu.context().free_memory()?);
        if let Some(load) = &load {
            outlasted += u64::from(load.is_running()?);
            load.finish()?;
        }
        comm.barrier()?;
    }
    churn.come_back(&early, &slots)?;
    let taken = churn.take_all_places()?;
    if let Some(load) = &load {
        // What it uses has lost its places as well.
        load.start()?;
        load.finish()?;
    }
    while !churn.kept.is_empty() {
        churn.let_go()?;
    }
    comm.barrier()?;
    let after = returned(&gpu, before)?;
    println!(
        r#"{{"test":"eviction","rank":{},"published":{},"used_bytes":{},"missing_bytes":{},"turns":{TURNS},"outlasted":{outlasted}}}"#,
        comm.rank(),
        BATCH * TURNS,
        before - least,
        before.saturating_sub(after),
    );
    drop(taken);
    comm.barrier()
}

/// Waits until the device has as much memory as before; peers tell in their time that they have let go.
fn returned(gpu: &Gpu, before: u64) -> Result<u64> {
    let deadline = soon();
    loop {
        // Whoever allocates gives back what was waiting for kernels.
        drop(DeviceMemory::allocate(gpu.context(), 1, &[])?);
        let after = gpu.context().free_memory()?;
        if after + SLACK >= before {
            return Ok(after);
        }
        assert!(!deadline.expired(), "{} bytes have not come back", before - after);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn beside_copies() {
    Ranks::new(2).processes(|comm| evict(comm, false));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn beside_kernels_of_two_processes() {
    Ranks::new(2).processes(|comm| evict(comm, true));
}

#[test]
#[ignore = "needs a GPU: cargo xtask gpu-bundle"]
fn beside_kernels_of_two_threads() {
    Ranks::new(2).threads(|comm| evict(comm, true));
}
