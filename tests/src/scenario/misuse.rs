//! Calls that must be refused, between calls that must work.

use anyhow::{Context as _, bail, ensure};
use warpway::{Bootstrap, Buffer, Communicator, Error, Peer, RegisteredMemory, Result, Share, Transport};
use warpway_tests::{Fault, Line, byte};

use super::{is_mapped, join};

const SIZE: u64 = 4096;
/// Offset and size of ranges that do not lie within [`SIZE`] bytes; some only because they wrap around.
const OUTSIDE: [(u64, u64); 7] = [
    (SIZE, 1),
    (0, SIZE + 1),
    (SIZE - 1, 2),
    (u64::MAX, 1),
    (u64::MAX, u64::MAX),
    (1, u64::MAX),
    (1 << 63, 1 << 63),
];

/// Two ranks; each has the middle third of an allocation registered, with canaries on both sides.
struct Pair {
    comm: Communicator,
    peer: Peer,
    whole: Buffer<u8>,
    part: RegisteredMemory,
    remote: RegisteredMemory,
}

pub(super) fn calls(transport: Transport) -> anyhow::Result<()> {
    let comm = join()?;
    let peer = comm.connect_by(1 - comm.rank(), transport)?;
    let whole = comm.alloc::<u8>(3 * SIZE)?;
    whole.fill(CANARY)?;
    let region = whole.region().context("a region")?.slice(SIZE, SIZE)?;
    let (all, access) = (warpway::TransportFlags::HOST, warpway::Access::ALL);
    let part = comm.core().register_memory(region, all, access)?;
    peer.send_memory(&part)?;
    let remote = peer.recv_memory()?;
    let pair = Pair { comm, peer, whole, part, remote };
    connection(&pair)?;
    if is_mapped(transport) {
        memory_channel(&pair)?;
    } else {
        let error = pair.peer.signal_channel().err().context("a memory channel by TCP")?;
        ensure!(error.id() == "conn.incompatible", "{error}");
        // The peer has built its half of the semaphore, too, and refused it likewise: exchanges stay in step.
    }
    port_channel(&pair)?;
    bootstrap(&pair)?;
    arguments(&pair)?;
    ensure!(pair.comm.async_error().is_none(), "misuse has failed the communicator");
    Ok(pair.comm.barrier()?)
}

const CANARY: u8 = 0xc7;

impl Pair {
    /// Good traffic of a round arrives, and nothing else has been written.
    fn check(&self, round: u64, send: impl FnOnce(&Self) -> Result<()>) -> anyhow::Result<()> {
        let sent: Vec<u8> = (0..SIZE).map(|at| byte(round, self.comm.rank(), at)).collect();
        let source = self.comm.alloc::<u8>(SIZE)?;
        source.write(0, &sent)?;
        self.comm.barrier()?;
        send(self)?;
        self.peer.connection().write(&self.remote, 17, source.memory(), 17, SIZE - 34)?;
        self.peer.connection().flush(self.comm.config().setup_timeout.start())?;
        self.comm.barrier()?;
        let found = self.whole.to_vec()?;
        let expected = |at: u64| match at {
            at if (SIZE + 17..2 * SIZE - 17).contains(&at) => byte(round, self.peer.rank(), at - SIZE),
            _ => CANARY,
        };
        let wrong = (0..).zip(&found).find(|(at, found)| **found != expected(*at));
        ensure!(wrong.is_none(), "round {round}: byte {wrong:?}");
        Ok(self.comm.barrier()?)
    }
}

fn refused<T>(what: &str, id: &str, result: Result<T>) -> Result<()> {
    match result {
        Err(error) if error.id() == id && error.code() == warpway::ErrorCode::InvalidUsage => Ok(()),
        Err(error) => Err(error),
        Ok(_) => {
            Line::mark(format!("{what} was not refused"));
            Err(Error::Internal { place: "misuse", what: "a call that must be refused was carried out" })
        }
    }
}

fn connection(pair: &Pair) -> anyhow::Result<()> {
    let (connection, local, remote) = (pair.peer.connection(), &pair.part, &pair.remote);
    pair.check(1, |_| {
        for (offset, size) in OUTSIDE {
            refused("write", "mem.bounds", connection.write(remote, offset, local, 0, size))?;
            refused("read", "mem.bounds", connection.write(remote, 0, local, offset, size))?;
        }
        for offset in [SIZE, SIZE - 7, u64::MAX, u64::MAX - 7] {
            refused("atomic_add", "mem.bounds", connection.atomic_add(remote, offset, 1))?;
            refused("update_and_sync", "mem.bounds", connection.update_and_sync(remote, offset, &mut 0, 1))?;
        }
        for offset in [1, 4, 7, 4081] {
            refused("atomic_add", "mem.alignment", connection.atomic_add(remote, offset, 1))?;
        }
        Ok(())
    })
}

fn memory_channel(pair: &Pair) -> anyhow::Result<()> {
    let channel = pair.peer.memory_channel(&pair.part, &pair.remote)?;
    let channel = pair.comm.block_channel(&channel)?;
    pair.check(2, |pair| {
        for (offset, size) in OUTSIDE {
            // Inside a kernel an error would end the launch, and with it the communicator: it is caught there.
            pair.comm.launch(1, |block| {
                refused("put", "mem.bounds", channel.put(offset, 0, size, block.share()))?;
                refused("put", "mem.bounds", channel.put(0, offset, size, block.share()))?;
                refused("get", "mem.bounds", channel.get(offset, 0, size, block.share()))?;
                refused("get", "mem.bounds", channel.get(0, offset, size, block.share()))
            })?;
        }
        for index in [SIZE / 8, u64::MAX, u64::MAX / 8, 1 << 61] {
            refused("element", "mem.bounds", channel.write::<u64>(index, 1))?;
            refused("element", "mem.bounds", channel.read::<u64>(index))?;
        }
        refused("share", "channel.share", channel.put(0, 0, 1, Share::new(2, 2)))
    })
}

fn port_channel(pair: &Pair) -> anyhow::Result<()> {
    let service = pair.comm.proxy_service()?;
    let channel = pair.peer.port_channel(&service, &pair.part, &pair.remote)?.device_handle();
    pair.check(3, |_| {
        for (offset, size) in OUTSIDE {
            refused("put", "mem.bounds", channel.put(offset, 0, size))?;
            refused("put", "mem.bounds", channel.put(0, offset, size))?;
            refused("put", "mem.bounds", channel.put_with_signal(offset, 0, size))?;
            refused("put", "mem.bounds", channel.put_with_signal_and_flush(0, offset, size))?;
        }
        refused("atomic_add", "mem.alignment", channel.atomic_add(4, 1))?;
        refused("atomic_add", "mem.bounds", channel.atomic_add(SIZE, 1))?;
        // The channel works on.
        channel.signal()?;
        channel.wait()?;
        channel.flush().map(drop)
    })
}

/// A message longer than the receiver's buffer is lost alone.
fn bootstrap(pair: &Pair) -> anyhow::Result<()> {
    let (bootstrap, peer) = (pair.comm.bootstrap(), pair.peer.rank());
    let deadline = || pair.comm.config().bootstrap_timeout.start();
    for length in [9u8, 8, 200, 0, 7] {
        bootstrap.send(&vec![length; length as usize], peer, 5, deadline())?;
    }
    let mut buffer = [0; 8];
    for length in [9u8, 8, 200, 0, 7] {
        buffer.fill(CANARY);
        match bootstrap.recv(&mut buffer, peer, 5, deadline()) {
            Ok(got) => {
                ensure!(length <= 8 && got == u64::from(length), "{got} bytes of {length}");
                let mut expected = [CANARY; 8];
                expected[..length as usize].fill(length);
                ensure!(buffer == expected, "{buffer:?}");
            }
            Err(error) if length > 8 && error.id() == "bootstrap.truncated" => {
                ensure!(error.peer() == Some(peer), "{error}");
                ensure!(buffer == [CANARY; 8], "a refused message was written: {buffer:?}");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn arguments(pair: &Pair) -> anyhow::Result<()> {
    let Pair { comm, peer, part, remote, .. } = pair;
    refused("connect", "exchange.argument", comm.connect(2))?;
    refused("connect", "exchange.argument", comm.connect(u32::MAX))?;
    refused("alloc", "mem.invalid", comm.alloc::<u8>(0))?;
    refused("launch", "launch.blocks", comm.launch(0, |_| Ok(())))?;
    refused("launch", "launch.blocks", comm.launch(u32::MAX, |_| Ok(())))?;
    let deadline = comm.config().bootstrap_timeout.start();
    refused("send", "bootstrap.peer", comm.bootstrap().send(&[], 2, 0, deadline))?;
    let refusals = [
        ("an imported source", peer.connection().write(part, 0, remote, 0, 1).map(drop)),
        ("sending the peer's memory", peer.send_memory(remote)),
    ];
    for (what, result) in refusals {
        match result {
            // A mapped memory may be a source: it has an address here.
            Ok(()) if what == "an imported source" => {}
            Ok(()) => bail!("{what} was not refused"),
            Err(error) => ensure!(error.code() == warpway::ErrorCode::InvalidUsage, "{what}: {error}"),
        }
    }
    Ok(())
}

/// The ranks make different calls: both are told which; what comes after works.
pub(super) fn exchanges(transport: Transport) -> anyhow::Result<()> {
    let comm = join()?;
    let peer = comm.connect_by(1 - comm.rank(), transport)?;
    let data = comm.alloc::<u8>(64)?;
    let error = if comm.rank() == 0 {
        peer.semaphore().err().context("a semaphore with nobody")?
    } else {
        peer.send_memory(&data)?;
        peer.recv_memory().err().context("a memory that is none")?
    };
    Line::Met(Fault::new(&error)).say();
    comm.core().barrier(comm.config().bootstrap_timeout.start())?;
    ensure!(comm.async_error().is_none(), "{:?}", comm.async_error());
    Ok(())
}
