//! Primitives between rank 0 and rank 1; further ranks only take part in barriers.

use warpway::{Block, Buffer, Ll16, Peer, Result, Share, Transport};

use super::pattern::byte;
use super::report::{Report, Row};
use super::session::Session;
use super::{Arguments, What};

pub(super) fn run(what: What, session: &Session, arguments: &Arguments, report: &mut Report) -> Result<()> {
    if session.n_ranks() < 2 {
        return Err(warpway::core::Unavailable {
            what: name(what).into(),
            why: "there is one rank, and it goes between two".into(),
            hint: "use -n 2",
        }
        .into());
    }
    let sizes = match what {
        What::PingPong => vec![8],
        What::Packets => arguments.sizes(8).into_iter().filter(|size| *size <= PACKETS_MAX).collect(),
        _ => arguments.sizes(1),
    };
    for size in sizes {
        report.begin(name(what), size);
        let mut row = match session.rank() {
            0 => pair(what, session, arguments, size, 1)?,
            1 => pair(what, session, arguments, size, 0)?,
            _ => spectator(session, arguments)?,
        };
        row.errors = session.sum(row.errors)?;
        row.blocks = arguments.blocks;
        report.push(row);
    }
    Ok(())
}

/// Largest size for packets: two small buffers stay in the cache, which is what packets are for.
const PACKETS_MAX: u64 = 1 << 20;
const ROUNDS: u64 = 3;

fn name(what: What) -> &'static str {
    match what {
        What::Put => "put",
        What::Get => "get",
        What::PutSignal => "put_signal",
        What::Packets => "packets",
        _ => "ping_pong",
    }
}

/// Takes part in what all ranks do, and nothing else.
fn spectator(session: &Session, arguments: &Arguments) -> Result<Row> {
    for _ in 0..2 * ROUNDS {
        session.barrier().wait()?;
    }
    let samples = session.time(arguments.batches, || Ok(()))?;
    session.barrier().wait()?;
    Ok(Row::new("", 0, &samples))
}

fn pair(what: What, session: &Session, arguments: &Arguments, size: u64, other: u32) -> Result<Row> {
    let peer = &session.peers()[other as usize];
    let shared = peer.connection().transport() == Transport::SharedMemory;
    let mut ends = Ends::new(session, peer, arguments, what, size)?;
    let wrong = ends.check(session)?;
    let samples = session.time(arguments.batches, || ends.call())?;
    // The memories of the passive side must last as long as the active side uses them.
    session.barrier().wait()?;
    // There and back counts as two.
    let one_way = matches!(what, What::PutSignal | What::Packets | What::PingPong);
    let samples = if one_way { samples.scaled(0.5) } else { samples };
    let mut row = Row::new(name(what), size, &samples);
    row.transport = if shared { "shared" } else { "tcp" };
    row.errors = wrong;
    Ok(row)
}

/// One end of the pair.
struct Ends<'a> {
    session: &'a Session,
    what: What,
    blocks: u32,
    size: u64,
    first: bool,
    source: Buffer<u8>,
    target: Buffer<u8>,
    way: Way,
    flag: u32,
}

enum Way {
    Memory(warpway::BlockChannel),
    Port(warpway::core::channel::PortChannelHandle),
}

impl<'a> Ends<'a> {
    fn new(session: &'a Session, peer: &Peer, arguments: &Arguments, what: What, size: u64) -> Result<Self> {
        let comm = session.comm();
        let packets = what == What::Packets;
        let source = comm.alloc::<u8>(size)?;
        // For packets, peers write to a buffer twice the size, from where they are unpacked into `target`.
        let target = comm.alloc::<u8>(size)?;
        let arrivals = if packets { comm.alloc::<u8>(2 * size.next_multiple_of(8))? } else { target.clone() };
        // `get` reads the peer's source into the own target.
        let (near, exported) = if what == What::Get { (&target, &source) } else { (&source, &arrivals) };
        peer.send_memory(exported)?;
        let remote = peer.recv_memory()?;
        let shared = peer.connection().transport() == Transport::SharedMemory;
        let way = if shared {
            let channel = if packets {
                peer.packet_channel(near, &remote, &arrivals)?
            } else {
                peer.memory_channel(near, &remote)?
            };
            Way::Memory(comm.block_channel(&channel)?)
        } else {
            Way::Port(peer.port_channel(&comm.proxy_service()?, near, &remote)?.device_handle())
        };
        let (blocks, first) = (arguments.blocks, session.rank() == 0);
        Ok(Self { session, what, blocks, size, first, source, target, way, flag: 0 })
    }

    /// One call of the benchmark. `put` and `get` are rank 0's; the others go there and back.
    fn call(&mut self) -> Result<()> {
        let size = self.size;
        match (self.what, &self.way) {
            (What::Put | What::Get, _) if !self.first => Ok(()),
            (What::Put, Way::Memory(channel)) => self.blocks(|block| channel.put(0, 0, size, block.share())),
            (What::Put, Way::Port(channel)) => {
                channel.put(0, 0, size)?;
                channel.flush().map(drop)
            }
            (What::Get, Way::Memory(channel)) => self.blocks(|block| channel.get(0, 0, size, block.share())),
            (What::PingPong, Way::Memory(channel)) => self.in_turn(|| channel.signal(), || channel.wait()),
            (What::PingPong, Way::Port(channel)) => {
                self.in_turn(|| channel.signal().map(drop), || channel.wait())
            }
            (What::PutSignal, Way::Memory(channel)) => {
                let send = || {
                    self.blocks(|block| channel.put(0, 0, size, block.share()))?;
                    channel.signal()
                };
                self.in_turn(send, || channel.wait())
            }
            (What::PutSignal, Way::Port(channel)) => {
                self.in_turn(|| channel.put_with_signal(0, 0, size).map(drop), || channel.wait())
            }
            (What::Packets, Way::Memory(channel)) => {
                // 0 means "never written"; the flags of both ends stay equal.
                self.flag = self.flag.wrapping_add(1).max(1);
                let flag = self.flag;
                self.in_turn(
                    || channel.put_packets::<Ll16>(0, 0, size, Share::ALL, flag),
                    || channel.unpack_packets::<Ll16>(0, 0, size, Share::ALL, flag),
                )
            }
            (What::Get | What::Packets, Way::Port(_)) => Err(warpway::core::Unavailable {
                what: format!("{} over TCP", name(self.what)),
                why: "it needs mapped memory".into(),
                hint: "use --transport shared",
            }
            .into()),
            _ => Ok(()),
        }
    }

    fn blocks(&self, kernel: impl Fn(&Block<'_>) -> Result<()> + Sync) -> Result<()> {
        self.session.comm().launch(self.blocks, kernel)
    }

    fn in_turn(&self, send: impl Fn() -> Result<()>, receive: impl Fn() -> Result<()>) -> Result<()> {
        if self.first {
            send()?;
            receive()
        } else {
            receive()?;
            send()
        }
    }

    /// Wrong bytes over some rounds of fresh data.
    fn check(&mut self, session: &Session) -> Result<u64> {
        let mut wrong = 0;
        for round in 0..ROUNDS {
            let pattern = |rank: u32| -> Vec<u8> { (0..self.size).map(|at| byte(round, rank, at)).collect() };
            let (own, other) = (pattern(session.rank()), pattern(1 - session.rank()));
            // What is unpacked lands at the source of packets: refill both.
            self.source.write(0, &own)?;
            self.target.write(0, &other.iter().map(|byte| !byte).collect::<Vec<_>>())?;
            session.barrier().wait()?;
            self.call()?;
            session.barrier().wait()?;
            let landed = match self.what {
                What::Put if !self.first => Some(&self.target),
                What::Get if self.first => Some(&self.target),
                What::PutSignal => Some(&self.target),
                // Unpacked into the source: rank 1 receives rank 0's and returns it.
                What::Packets => Some(&self.source),
                _ => None,
            };
            let Some(landed) = landed else { continue };
            let expected = if self.what == What::Packets && self.first { &own } else { &other };
            let mut bytes = vec![0; self.size as usize];
            landed.read(0, &mut bytes)?;
            wrong += bytes.iter().zip(expected).filter(|(found, right)| found != right).count() as u64;
        }
        Ok(wrong)
    }
}
