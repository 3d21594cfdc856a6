//! Plans by hand: every rank reaches every buffer of every peer, and phases keep the steps of all ranks apart.

use warpway_plan::*;

/// Chunks of a buffer of any rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(pub(crate) u32, pub(crate) BufferKind, pub(crate) u64, pub(crate) u64);

pub(crate) const I: BufferKind = BufferKind::Input;
pub(crate) const O: BufferKind = BufferKind::Output;
pub(crate) const S: BufferKind = BufferKind::Scratch;

/// A data operation to be.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    pub(crate) kind: DataKind,
    pub(crate) from: Vec<At>,
    pub(crate) to: Vec<At>,
    pub(crate) fold: Option<Fold>,
    pub(crate) group: Option<GroupMember>,
    pub(crate) port: bool,
}

pub(crate) fn op(kind: DataKind, from: &[At], to: &[At]) -> Op {
    let folds = kind.is_fold() || kind.is_switch_fold();
    let fold = folds.then_some(Fold { op: ReduceOp::Sum, order: None });
    Op { kind, from: from.to_vec(), to: to.to_vec(), fold, group: None, port: false }
}

impl Op {
    pub(crate) fn with(mut self, op: ReduceOp) -> Self {
        self.fold = Some(Fold { op, order: None });
        self
    }

    pub(crate) fn order(mut self, order: &[u32]) -> Self {
        self.fold.as_mut().unwrap().order = Some(order.to_vec());
        self
    }

    pub(crate) fn member(mut self, member: u32, size: u32) -> Self {
        self.group = Some(GroupMember { member, size });
        self
    }

    pub(crate) fn port(mut self) -> Self {
        self.port = true;
        self
    }
}

pub(crate) struct Program {
    pub(crate) plan: Plan,
}

impl Program {
    /// `blocks` blocks on each of `n` ranks; chunks of input, output and scratch.
    pub(crate) fn new(collective: Collective, n: u32, blocks: u32, [i, o, s]: [u64; 3]) -> Self {
        let rank = |me: u32| {
            let peers: Vec<u32> = (0..n).filter(|r| *r != me).collect();
            let remote = |rank| {
                BufferKind::ALL.map(|buffer| RemoteBuffer {
                    rank,
                    buffer,
                    memory_access: true,
                    port_access: true,
                })
            };
            let count = peers.len() as u32;
            let block = ThreadBlock {
                operations: Vec::new(),
                channels: [
                    (ChannelType::Memory, count),
                    (ChannelType::Port, count),
                    (ChannelType::Switch, 3),
                ]
                .map(|(channel_type, count)| ChannelRefs { channel_type, channels: (0..count).collect() })
                .to_vec(),
                remote_buffers: [ChannelType::Memory, ChannelType::Port]
                    .map(|access| RemoteBufferRefs { access, buffers: (0..3 * count).collect() })
                    .to_vec(),
            };
            let switch = |buffer| ChannelEntry::Switch {
                buffer,
                groups: vec![RankGroup { size: u64::from(n), ranks: (0..n).collect() }],
            };
            RankPlan {
                input_chunks: i,
                output_chunks: o,
                scratch_chunks: s,
                size_ids: None,
                blocks: vec![block; blocks as usize],
                channels: vec![
                    ChannelEntry::Memory(peers.clone()),
                    ChannelEntry::Port(peers.clone()),
                    switch(I),
                    switch(O),
                    switch(S),
                ],
                remote_buffers: peers.iter().flat_map(|r| remote(*r)).collect(),
                semaphores: Vec::new(),
            }
        };
        let plan = Plan {
            name: "by hand".to_owned(),
            collective,
            protocol: Protocol::Simple,
            in_place: false,
            reuse_resources: false,
            double_scratch: false,
            threads_per_block: 256,
            buffer_alignment: 16,
            min_message_size: 0,
            max_message_size: u64::MAX,
            ranks: (0..n).map(rank).collect(),
            extensions: Default::default(),
        };
        Self { plan }
    }

    pub(crate) fn in_place(mut self) -> Self {
        self.plan.in_place = true;
        self
    }

    pub(crate) fn n(&self) -> u32 {
        self.plan.n_ranks()
    }

    /// Appends an operation to a block.
    pub(crate) fn push(&mut self, rank: u32, block: u32, op: &Op) {
        let action = self.action(rank, op);
        self.operations(rank, block).push(action.into());
    }

    /// Appends a pipeline.
    pub(crate) fn pipeline(&mut self, rank: u32, block: u32, unit_size: u64, num_chunks: u64, ops: &[Op]) {
        let body = ops.iter().map(|op| self.action(rank, op).into()).collect();
        let pipeline = Pipeline { unit_size, num_chunks, size_id: None, body };
        self.operations(rank, block).push(Action::Pipeline(Box::new(pipeline)).into());
    }

    fn operations(&mut self, rank: u32, block: u32) -> &mut Vec<Operation> {
        &mut self.plan.ranks[rank as usize].blocks[block as usize].operations
    }

    fn action(&self, rank: u32, op: &Op) -> Action {
        let switch = matches!(
            op.kind,
            DataKind::GroupLoadReduce
                | DataKind::GroupLoadReduceStore
                | DataKind::GroupStore
                | DataKind::GroupStorePackets
        );
        let peer = |of: u32| of - u32::from(of > rank);
        let is_remote = |at: &At| at.0 != rank && at.0 != ALL;
        let reference = |at: &At| {
            let At(of, buffer, index, size) = *at;
            match of {
                ALL => Reference::Switch { position: buffer as u32, index, size },
                of if of == rank => Reference::Local { buffer, index, size },
                of => Reference::Remote { position: 3 * peer(of) + buffer as u32, index, size },
            }
        };
        let remote: Vec<u32> = match op.kind {
            DataKind::Get => op.from.iter().filter(|a| is_remote(a)).map(|a| peer(a.0)).collect(),
            _ if op.port => op.to.iter().filter(|a| is_remote(a)).map(|a| peer(a.0)).collect(),
            _ => Vec::new(),
        };
        let any = op.from.iter().chain(&op.to).any(is_remote);
        let channel_type = match (switch, any, op.port) {
            (true, ..) => Some(ChannelType::Switch),
            (_, true, true) => Some(ChannelType::Port),
            (_, true, false) => Some(ChannelType::Memory),
            _ => None,
        };
        Action::Data(Box::new(DataOperation {
            kind: op.kind,
            channel_type,
            sources: op.from.iter().map(reference).collect(),
            destinations: op.to.iter().map(reference).collect(),
            channels: remote,
            fold: op.fold.clone(),
            group: op.group,
        }))
    }

    /// Everything before is ordered before everything behind, on all ranks.
    pub(crate) fn phase(&mut self) {
        let n = self.n();
        for rank in 0..n {
            let blocks = self.plan.ranks[rank as usize].blocks.len() as u32;
            for block in 0..blocks {
                let channels: Vec<u32> = (0..n - 1).collect();
                let operations = self.operations(rank, block);
                operations.push(Action::Barrier { id: 0, blocks }.into());
                if block == 0 && n > 1 {
                    let (via, relaxed) = (Via::Memory, false);
                    operations.push(Action::Signal { via, relaxed, channels: channels.clone() }.into());
                    operations.push(Action::Wait { via, relaxed, channels }.into());
                }
                operations.push(Action::Barrier { id: 0, blocks }.into());
            }
        }
    }
}

/// In place of a rank: a multicast region.
pub(crate) const ALL: u32 = u32::MAX;
