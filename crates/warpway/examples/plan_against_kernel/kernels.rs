//! The algorithms of the shared plans as kernels on channels, step by step as the plans have them.

use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use warpway::plan::ReduceOp;
use warpway::{Block, BlockChannel, Buffer, Communicator, DataType, Ll16, RegisteredMemory, Result, Share};
use warpway_host::{FoldKernel, FoldSource};

/// Makes a kernel for two ranks that works in place on a memory.
pub(crate) type SetUp = fn(&Communicator, &RegisteredMemory) -> Result<Box<dyn Kernel>>;

pub(crate) trait Kernel {
    /// One launch.
    fn run(&self, comm: &Communicator) -> Result<()>;
}

/// Packets of the executor's default format: 8 bytes of data in 16.
type Packet = Ll16;
const TILE: u64 = FoldKernel::TILE as u64;

/// All-gather: rank 0 packs its half into the peer's scratch; rank 1 packs into its own and sends that on.
pub(crate) fn transfer_pack(comm: &Communicator, data: &RegisteredMemory) -> Result<Box<dyn Kernel>> {
    let half = data.size() / 2;
    let plan = move |packets: &Packets, rank, block, flag| match (rank, block) {
        (0, 0) => packets.pack(0, 0, half, flag),
        (0, _) => packets.unpack(half, half, half, flag),
        (_, 0) => packets.pack_here(half, half, half, flag),
        (_, 1) => packets.forward(1, half, half, flag),
        (..) => packets.unpack(0, 0, half, flag),
    };
    packets(comm, data, [2, 3], 2 * half, plan)
}

/// All-reduce of four chunks: each rank sends the two that the other folds, and the sums come back as packets.
pub(crate) fn allreduce_packet(comm: &Communicator, data: &RegisteredMemory) -> Result<Box<dyn Kernel>> {
    let chunk = data.size() / 4;
    let plan = move |packets: &Packets, rank, block, flag| {
        // The first chunk that this rank folds, and the first that the other does.
        let (mine, theirs) = if rank == 0 { (0, 2 * chunk) } else { (2 * chunk, 0) };
        if block == 0 {
            packets.pack(theirs, 0, 2 * chunk, flag)?;
        }
        let number = u64::from(block);
        packets.fold(
            block,
            mine + number * chunk,
            number * chunk,
            (2 + number) * chunk,
            None,
            chunk,
            flag,
        )?;
        // The last block of rank 0, the first of rank 1.
        if block != rank {
            packets.unpack(2 * chunk, theirs, 2 * chunk, flag)?;
        }
        Ok(())
    };
    packets(comm, data, [2, 2], 4 * chunk, plan)
}

/// All-reduce of two chunks, each step by two blocks.
pub(crate) fn reduce_pack_tbg(comm: &Communicator, data: &RegisteredMemory) -> Result<Box<dyn Kernel>> {
    let (chunk, part) = (data.size() / 2, data.size() / 4);
    let plan = move |packets: &Packets, rank, block: u32, flag| {
        let at = u64::from(block % 2) * part;
        let (mine, theirs) = if rank == 0 { (at, chunk + at) } else { (chunk + at, at) };
        // Rank 1 also keeps packets of its sums.
        let own = (rank == 1).then_some(2 * chunk + at);
        match block {
            0 | 1 => packets.pack(theirs, theirs, part, flag),
            2 | 3 => packets.fold(block, mine, mine, mine, own, part, flag),
            _ => packets.unpack(theirs, theirs, part, flag),
        }
    };
    packets(comm, data, [6, 6], 3 * chunk, plan)
}

/// All-reduce in two shots of stores and loads. Rank 0 folds in two steps and stores the sums to both ranks at once,
/// rank 1 in one, and puts the sums by way of its scratch.
pub(crate) fn reduce(comm: &Communicator, data: &RegisteredMemory) -> Result<Box<dyn Kernel>> {
    let scratch = comm.alloc::<u8>(data.size())?;
    let peer = comm.connect(1 - comm.rank())?;
    let (far_scratch, far_data) = (peer.exchange_memory(&scratch)?, peer.exchange_memory(data)?);
    Ok(Box::new(Reduce {
        rank: comm.rank(),
        half: data.size() / 2,
        stage: comm.block_channel(&peer.memory_channel(&scratch, &far_scratch)?)?,
        result: comm.block_channel(&peer.memory_channel(&scratch, &far_data)?)?,
        sum: sum(),
        data: data.clone(),
    }))
}

/// All-reduce by a switch that is emulated: each rank folds half of both ranks' data, and stores it to both.
pub(crate) fn reduce_nvls(comm: &Communicator, data: &RegisteredMemory) -> Result<Box<dyn Kernel>> {
    let peer = comm.connect(1 - comm.rank())?;
    let far = peer.exchange_memory(data)?;
    let channel = comm.block_channel(&peer.memory_channel(data, &far)?)?;
    Ok(Box::new(Switch { rank: comm.rank(), half: data.size() / 2, channel, sum: sum() }))
}

fn sum() -> FoldKernel {
    FoldKernel::new(DataType::Float32, ReduceOp::Sum, NonZeroU32::MIN)
}

fn pointer(memory: &RegisteredMemory, at: u64, bytes: u64) -> Result<NonNull<u8>> {
    Ok(memory.pointer("example", at, bytes)?)
}

fn source(address: NonNull<u8>) -> FoldSource {
    FoldSource { address, input: true }
}

/// Memory channels between scratch and scratch, and scratch and data.
struct Reduce {
    rank: u32,
    half: u64,
    stage: BlockChannel,
    result: BlockChannel,
    sum: FoldKernel,
    data: RegisteredMemory,
}

impl Kernel for Reduce {
    fn run(&self, comm: &Communicator) -> Result<()> {
        comm.launch(1, |_| if self.rank == 0 { self.run_first() } else { self.run_second() })
    }
}

impl Reduce {
    fn run_first(&self) -> Result<()> {
        let Self { half, stage, result, .. } = self;
        let (half, quarter) = (*half, *half / 2);
        self.offer(half)?;
        self.fold(0, quarter, stage.channel().destination(), Some(result.channel().destination()))?;
        stage.get_same(quarter, quarter, Share::ALL)?;
        self.fold(quarter, quarter, stage.channel().source(), Some(result.channel().destination()))?;
        stage.signal()?;
        stage.wait()
    }

    fn run_second(&self) -> Result<()> {
        let Self { half, stage, result, .. } = self;
        let half = *half;
        self.offer(0)?;
        self.fold(half, half, stage.channel().destination(), None)?;
        self.copy(half)?;
        result.put_same(half, half, Share::ALL)?;
        stage.signal()?;
        stage.wait()
    }

    /// Copies the half that the peer folds to where it reads it.
    fn offer(&self, at: u64) -> Result<()> {
        self.copy(at)?;
        self.stage.signal()?;
        self.stage.wait()
    }

    /// Half of the data to the same place in the scratch.
    fn copy(&self, at: u64) -> Result<()> {
        let (from, to) = (&self.data, self.stage.channel().source());
        let (from, to) = (pointer(from, at, self.half)?, pointer(to, at, self.half)?);
        // SAFETY: both memories are mapped for these bytes and distinct; nobody else uses them now.
        unsafe { from.copy_to_nonoverlapping(to, self.half as usize) };
        Ok(())
    }

    /// Adds `other` to the data, and stores the sum to `far`, too.
    fn fold(
        &self,
        at: u64,
        bytes: u64,
        other: &RegisteredMemory,
        far: Option<&RegisteredMemory>,
    ) -> Result<()> {
        let own = pointer(&self.data, at, bytes)?;
        let sources = [own, pointer(other, at, bytes)?].map(source);
        let far = far.map(|far| pointer(far, at, bytes)).transpose()?;
        let destinations = [own, far.unwrap_or(own)];
        // SAFETY: all memories are mapped for these bytes, which this rank folds alone; the second destination, if it
        // is passed, is the peer's.
        unsafe { self.sum.fold_into(&sources, bytes, true, &destinations[..1 + usize::from(far.is_some())]) };
        Ok(())
    }
}

struct Switch {
    rank: u32,
    half: u64,
    channel: BlockChannel,
    sum: FoldKernel,
}

impl Kernel for Switch {
    fn run(&self, comm: &Communicator) -> Result<()> {
        let Self { rank, half, channel, sum } = self;
        comm.launch(1, |_| {
            channel.relaxed_signal()?;
            channel.relaxed_wait()?;
            let at = u64::from(*rank) * half;
            let mut members = [channel.channel().source(), channel.channel().destination()];
            if *rank == 1 {
                members.reverse();
            }
            let members = [pointer(members[0], at, *half)?, pointer(members[1], at, *half)?];
            // SAFETY: both are mapped for these bytes, which this rank folds alone.
            unsafe { sum.fold_into(&members.map(source), *half, true, &members) };
            channel.relaxed_signal()?;
            channel.relaxed_wait()
        })
    }
}

/// What a block of a packet kernel does: rank, block, flag.
type PacketBlock = Box<dyn Fn(&Packets, u32, u32, u32) -> Result<()> + Sync>;

/// Packets between the ranks' scratch, which has two halves that launches use in turn.
struct Packets {
    /// From the data to the peer's scratch, and from the own scratch to the data.
    channel: BlockChannel,
    /// The same for a tile per block in place of the data.
    tiles: BlockChannel,
    sum: FoldKernel,
    /// Bytes of packets in a half.
    half: u64,
    rank: u32,
    blocks: u32,
    epoch: AtomicU32,
    block: PacketBlock,
}

fn packets(
    comm: &Communicator,
    data: &RegisteredMemory,
    blocks: [u32; 2],
    scratch_bytes: u64,
    block: impl Fn(&Packets, u32, u32, u32) -> Result<()> + Sync + 'static,
) -> Result<Box<dyn Kernel>> {
    let (rank, blocks) = (comm.rank(), blocks[comm.rank() as usize]);
    let half = 2 * scratch_bytes;
    let scratch: Buffer<u8> = comm.alloc(2 * half)?;
    let tiles: Buffer<u8> = comm.alloc(u64::from(blocks) * TILE)?;
    let peer = comm.connect(1 - rank)?;
    let far = peer.exchange_memory(&scratch)?;
    // Waits of so many blocks back off otherwise than those of one.
    let policy = OnceLock::new();
    comm.launch(blocks, |block| {
        policy.get_or_init(|| block.waiter().policy);
        Ok(())
    })?;
    let channel = |local: &RegisteredMemory| -> Result<BlockChannel> {
        let channel = comm.block_channel(&peer.packet_channel(local, &far, &scratch)?)?;
        Ok(policy.get().map_or(channel.clone(), |policy| channel.with_policy(*policy)))
    };
    Ok(Box::new(Packets {
        channel: channel(data)?,
        tiles: channel(tiles.memory())?,
        sum: sum(),
        half,
        rank,
        blocks,
        epoch: AtomicU32::new(0),
        block: Box::new(block),
    }))
}

impl Kernel for Packets {
    fn run(&self, comm: &Communicator) -> Result<()> {
        let flag = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        comm.launch(self.blocks, |block: &Block<'_>| (self.block)(self, self.rank, block.index(), flag))
    }
}

/// Places in data and scratch are in bytes of data; packets take twice as many.
impl Packets {
    fn at(&self, scratch: u64, flag: u32) -> u64 {
        u64::from(flag % 2) * self.half + 2 * scratch
    }

    /// Data to the peer's scratch.
    fn pack(&self, data: u64, far: u64, bytes: u64, flag: u32) -> Result<()> {
        self.channel.put_packets::<Packet>(self.at(far, flag), data, bytes, Share::ALL, flag)
    }

    /// Own scratch to data.
    fn unpack(&self, own: u64, data: u64, bytes: u64, flag: u32) -> Result<()> {
        self.channel.unpack_packets::<Packet>(self.at(own, flag), data, bytes, Share::ALL, flag)
    }

    /// Own scratch to the same place in the peer's.
    fn forward(&self, block: u32, at: u64, bytes: u64, flag: u32) -> Result<()> {
        let tile = u64::from(block) * TILE;
        for done in (0..bytes).step_by(TILE as usize) {
            let (place, part) = (self.at(at + done, flag), TILE.min(bytes - done));
            self.tiles.unpack_packets::<Packet>(place, tile, part, Share::ALL, flag)?;
            self.tiles.put_packets::<Packet>(place, tile, part, Share::ALL, flag)?;
        }
        Ok(())
    }

    /// Adds packets of the own scratch to the data, and packs the sum into the peer's scratch, and here.
    #[allow(clippy::too_many_arguments, reason = "three places")]
    fn fold(
        &self,
        block: u32,
        data: u64,
        own: u64,
        far: u64,
        here: Option<u64>,
        bytes: u64,
        flag: u32,
    ) -> Result<()> {
        let tile = u64::from(block) * TILE;
        for done in (0..bytes).step_by(TILE as usize) {
            let part = TILE.min(bytes - done);
            self.tiles.unpack_packets::<Packet>(self.at(own + done, flag), tile, part, Share::ALL, flag)?;
            let to = pointer(self.channel.channel().source(), data + done, part)?;
            let sources = [to, pointer(self.tiles.channel().source(), tile, part)?].map(source);
            // SAFETY: data and tile are mapped for these bytes, which this block folds alone.
            unsafe { self.sum.fold_into(&sources, part, true, &[to]) };
            if let Some(here) = here {
                self.pack_here(data + done, here + done, part, flag)?;
            }
            self.pack(data + done, far + done, part, flag)?;
        }
        Ok(())
    }

    /// Data to the own scratch.
    fn pack_here(&self, data: u64, own: u64, bytes: u64, flag: u32) -> Result<()> {
        let from = pointer(self.channel.channel().source(), data, bytes)?.cast::<u32>();
        let packets = self.channel.channel().packet_buffer();
        let Some(packets) = packets else { return Ok(()) };
        let to = pointer(packets, self.at(own, flag), 2 * bytes)?.cast::<u64>();
        for word in 0..bytes as usize / 4 {
            // SAFETY: both are mapped for these bytes and aligned; packets are accessed by atomics only.
            unsafe {
                let value = u64::from(flag) << 32 | u64::from(from.add(word).read());
                AtomicU64::from_ptr(to.add(word).as_ptr()).store(value, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
