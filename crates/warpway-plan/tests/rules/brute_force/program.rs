//! Tiny random plans. The order in which operations are appended is one in which they can happen, so none gets stuck.

use serde_json::{Value, json};
use warpway_plan::Plan;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    Input,
    Output,
    Scratch,
}

/// One chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) rank: u32,
    pub(super) buffer: Buffer,
    pub(super) index: u64,
}

/// A channel to a block of a peer. The partner is the one with the same number at the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Channel {
    pub(super) peer: u32,
    /// The signalling block times two, plus the waiting one.
    pub(super) number: u32,
    pub(super) port: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Nop,
    Barrier,
    Signal { to: Channel, relaxed: bool },
    Wait { on: Channel, relaxed: bool },
    Flush { channel: Channel },
    Release(u32),
    Acquire(u32),
    Copy { from: Chunk, to: Chunk },
    Put { from: Chunk, to: Chunk, port: Option<Channel> },
    Get { from: Chunk, to: Chunk, over: Channel },
}

/// Every rank has two blocks.
pub(super) struct Program {
    /// By rank and block.
    pub(super) blocks: Vec<[Vec<Op>; 2]>,
    pub(super) double: bool,
    semaphores: Vec<u32>,
    /// Of a hundred chunks so many are scratch.
    scratch: u32,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

const CHUNKS: u32 = 3;

impl Program {
    pub(super) fn random(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let n = 2 + random.below(2);
        let mut program = Self {
            blocks: vec![[vec![], vec![]]; n as usize],
            double: random.chance(30),
            semaphores: vec![0; n as usize],
            scratch: [30, 30, 95][random.below(3) as usize],
        };
        // Plans of each kind: with pairs that order, with relaxed ones, without nops now and then, with few chunks.
        let relaxed = [0, 0, 30][random.below(3) as usize];
        let nops = [100, 100, 80, 50][random.below(4) as usize];
        if random.chance(90 - program.scratch / 2) {
            program.handshake(&mut random, relaxed, nops);
        }
        for _ in 0..1 + random.below(10) {
            program.event(&mut random, relaxed, nops);
        }
        if random.chance(70) {
            program.handshake(&mut random, relaxed / 2, nops);
        }
        program
    }

    fn n(&self) -> u32 {
        self.blocks.len() as u32
    }

    fn push(&mut self, (rank, block): (u32, u32), op: Op) {
        self.blocks[rank as usize][block as usize].push(op);
    }

    fn nop(&mut self, at: (u32, u32), random: &mut Random, percent: u32) {
        if random.chance(percent) {
            self.push(at, Op::Nop);
        }
    }

    fn barrier(&mut self, rank: u32) {
        (0..2).for_each(|block| self.push((rank, block), Op::Barrier));
    }

    /// All ranks hear of each other; mostly in all blocks.
    fn handshake(&mut self, random: &mut Random, relaxed: u32, nops: u32) {
        let relaxed = random.chance(relaxed);
        let whole = random.chance(80);
        for rank in (0..self.n()).filter(|_| whole) {
            self.barrier(rank);
        }
        let pairs: Vec<(u32, u32)> =
            (0..self.n()).flat_map(|a| (0..self.n()).filter(move |b| a != *b).map(move |b| (a, b))).collect();
        for (a, b) in &pairs {
            self.push((*a, 0), Op::Signal { to: Channel { peer: *b, number: 0, port: false }, relaxed });
        }
        for (a, b) in &pairs {
            self.push((*b, 0), Op::Wait { on: Channel { peer: *a, number: 0, port: false }, relaxed });
        }
        for rank in 0..self.n() {
            self.nop((rank, 0), random, nops);
            if whole {
                self.barrier(rank);
            }
        }
    }

    fn chunk(&self, rank: u32, random: &mut Random) -> Chunk {
        let buffer = match (random.chance(self.scratch), random.chance(50)) {
            (true, _) => Buffer::Scratch,
            (false, true) => Buffer::Input,
            (false, false) => Buffer::Output,
        };
        Chunk { rank, buffer, index: u64::from(random.below(CHUNKS)) }
    }

    fn event(&mut self, random: &mut Random, relaxed: u32, nops: u32) {
        let a = (random.below(self.n()), random.below(2));
        let peer = (a.0 + 1 + random.below(self.n() - 1)) % self.n();
        let b = (peer, random.below(2));
        let own = self.chunk(a.0, random);
        let other = self.chunk(peer, random);
        let channel = |port| Channel { peer, number: a.1 * 2 + b.1, port };
        match random.below(8) {
            0 => {
                let to = self.chunk(a.0, random);
                if own != to {
                    self.push(a, Op::Copy { from: own, to });
                    self.nop(a, random, nops);
                }
            }
            1 => {
                self.push(a, Op::Put { from: own, to: other, port: None });
                self.nop(a, random, nops);
            }
            2 => self.push(a, Op::Get { from: other, to: own, over: channel(false) }),
            // Told, or flushed, or not.
            3 => {
                self.push(a, Op::Put { from: own, to: other, port: Some(channel(true)) });
                if random.chance(60) {
                    self.pair(a, b, channel(random.chance(80)), relaxed, random, nops);
                }
                if random.chance(60) {
                    self.push(a, Op::Flush { channel: channel(true) });
                    self.nop(a, random, nops);
                }
            }
            4 => self.barrier(a.0),
            5 => {
                let id = self.semaphores[a.0 as usize];
                self.semaphores[a.0 as usize] += 1;
                self.push(a, Op::Release(id));
                self.push((a.0, 1 - a.1), Op::Acquire(id));
                self.nop((a.0, 1 - a.1), random, nops);
            }
            _ => {
                let port = random.chance(30);
                self.pair(a, b, channel(port), relaxed, random, nops);
            }
        }
    }

    fn pair(
        &mut self,
        a: (u32, u32),
        b: (u32, u32),
        to: Channel,
        relaxed: u32,
        random: &mut Random,
        nops: u32,
    ) {
        self.nop(a, random, nops);
        let signal = random.chance(relaxed) && !to.port;
        self.push(a, Op::Signal { to, relaxed: signal });
        self.push(b, Op::Wait { on: Channel { peer: a.0, ..to }, relaxed: random.chance(relaxed) });
        self.nop(b, random, nops);
    }

    /// For messages of tests.
    pub(super) fn listing(&self) -> String {
        let mut text = String::new();
        for (rank, blocks) in self.blocks.iter().enumerate() {
            for (block, ops) in blocks.iter().enumerate() {
                text += &format!("rank {rank} tb {block}\n");
                ops.iter().enumerate().for_each(|(index, op)| text += &format!("  {index} {op:?}\n"));
            }
        }
        text
    }

    pub(super) fn plan(&self) -> Plan {
        let gpus: Vec<Value> = (0..self.n()).map(|rank| self.rank(rank)).collect();
        let plan = json!({"name": "random", "collective": "custom", "protocol": "Simple", "inplace": false,
            "use_double_scratch_buffer": self.double, "gpus": gpus});
        Plan::from_json(plan.to_string().as_bytes()).unwrap().plan
    }

    /// Four channels of each type to each peer, and its three buffers.
    fn rank(&self, rank: u32) -> Value {
        let peers: Vec<u32> = (0..self.n()).filter(|peer| *peer != rank).collect();
        let ends: Vec<u32> = peers.iter().flat_map(|peer| [*peer; 4]).collect();
        let channels: Vec<Value> =
            ["memory", "port"].iter().map(|t| json!({"channel_type": t, "connected_to": ends})).collect();
        let of_peer = |peer: &u32| {
            ["i", "o", "s"]
                .map(|t| json!({"rank": peer, "type": t, "access_channel_types": ["memory", "port"]}))
        };
        let remote: Vec<Value> = peers.iter().flat_map(of_peer).collect();
        let all = |count: usize| (0..count).collect::<Vec<_>>();
        let lists = ["memory", "port"].map(|t| json!({"channel_type": t, "channel_ids": all(ends.len())}));
        let refs = ["memory", "port"]
            .map(|t| json!({"access_channel_type": t, "remote_buffer_ids": all(remote.len())}));
        let blocks: Vec<Value> = (0..2)
            .map(|block| {
                let ops = &self.blocks[rank as usize][block];
                let ops: Vec<Value> = ops.iter().map(|op| operation(rank, op)).collect();
                json!({"id": block, "ops": ops, "channels": lists, "remote_buffer_refs": refs})
            })
            .collect();
        let semaphores = vec![json!({"init_value": 0}); self.semaphores[rank as usize] as usize];
        json!({"id": rank, "input_chunks": CHUNKS, "output_chunks": CHUNKS, "scratch_chunks": CHUNKS,
            "threadblocks": blocks, "channels": channels, "remote_buffers": remote, "semaphores": semaphores})
    }
}

/// The position of a peer among the others.
fn slot(rank: u32, peer: u32) -> u32 {
    if peer < rank { peer } else { peer - 1 }
}

fn operation(rank: u32, op: &Op) -> Value {
    let over = |name: &str, channel: &Channel| {
        json!({"name": name, "channel_type": if channel.port { "port" } else { "memory" },
            "channel_ids": [slot(rank, channel.peer) * 4 + channel.number]})
    };
    let name = |chunk: &Chunk| ["i", "o", "s"][chunk.buffer as usize];
    let place = |chunk: &Chunk| match chunk.rank == rank {
        true => json!({"type": name(chunk), "index": chunk.index, "size": 1}),
        false => {
            json!({"buffer_id": slot(rank, chunk.rank) * 3 + chunk.buffer as u32, "index": chunk.index, "size": 1})
        }
    };
    let moves = |mut op: Value, from: &Chunk, to: &Chunk| {
        (op["src_buff"], op["dst_buff"]) = (json!([place(from)]), json!([place(to)]));
        op
    };
    match op {
        Op::Nop => json!({"name": "nop"}),
        Op::Barrier => json!({"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}),
        Op::Signal { to, relaxed } => over(if *relaxed { "rlxsignal" } else { "signal" }, to),
        Op::Wait { on, relaxed } => over(if *relaxed { "rlxwait" } else { "wait" }, on),
        Op::Flush { channel } => over("flush", channel),
        Op::Release(id) => json!({"name": "sem_release", "semaphore_ids": [id]}),
        Op::Acquire(id) => json!({"name": "sem_acquire", "semaphore_ids": [id]}),
        Op::Copy { from, to } => moves(json!({"name": "copy"}), from, to),
        Op::Put { from, to, port: None } => moves(json!({"name": "put", "channel_type": "memory"}), from, to),
        Op::Put { from, to, port: Some(channel) } => moves(over("put", channel), from, to),
        Op::Get { from, to, over: channel } => moves(over("get", channel), from, to),
    }
}
