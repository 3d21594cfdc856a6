//! All-gather and all-reduce, written on links, exact.

use warpway::{Buffer, Communicator, ProxyService, Result, Transport};

use super::compare;
use super::link::{Kind, Link};
use crate::pattern::byte;

const ROUNDS: u64 = 2;

/// Links from a buffer to the same buffer of every other rank.
struct Mesh {
    links: Vec<Link>,
    _service: ProxyService,
}

impl Mesh {
    fn new(comm: &Communicator, transport: Transport, data: &Buffer<u8>) -> Result<Self> {
        let kind = if transport == Transport::SharedMemory { Kind::Blocks(1) } else { Kind::Port };
        let service = comm.proxy_service()?;
        let peers = comm.connect_all(Some(transport))?;
        let others = || peers.iter().filter(|peer| peer.rank() != comm.rank());
        for peer in others() {
            peer.send_memory(data)?;
        }
        let link = |peer: &warpway::Peer| Link::new(comm, kind, &service, peer, data, &peer.recv_memory()?);
        Ok(Self { links: others().map(link).collect::<Result<_>>()?, _service: service })
    }

    /// The same range goes to everybody; returns when everybody's has come.
    fn exchange(&self, offset: u64, size: u64) -> Result<()> {
        self.links.iter().try_for_each(|link| link.put_with_signal(offset, offset, size))?;
        self.links.iter().try_for_each(Link::wait)?;
        self.links.iter().try_for_each(Link::flush)
    }
}

/// Parts of `sizes` bytes, in place, with fresh data and spoiled results each round.
pub fn all_gather(comm: &Communicator, transport: Transport, sizes: &[u64]) -> Result<()> {
    let (own, n) = (u64::from(comm.rank()), u64::from(comm.n_ranks()));
    for &size in sizes.iter().filter(|size| **size > 0) {
        let data = comm.alloc::<u8>(size * n)?;
        let mesh = Mesh::new(comm, transport, &data)?;
        for round in 0..ROUNDS {
            data.fill(0xee)?;
            let part: Vec<u8> = (0..size).map(|at| byte(round, comm.rank(), at)).collect();
            data.write(own * size, &part)?;
            comm.barrier()?;
            mesh.exchange(own * size, size)?;
            let expected = |at: u64| byte(round, (at / size) as u32, at % size);
            compare(comm, &format!("all_gather of {size}"), &data.to_vec()?, expected)?;
            comm.barrier()?;
        }
    }
    Ok(())
}

/// Wrapping sums of `sizes` 64-bit words (at most 17,001: the oracle is slow), in place.
pub fn all_reduce(comm: &Communicator, transport: Transport, sizes: &[u64]) -> Result<()> {
    let (own, n) = (u64::from(comm.rank()), u64::from(comm.n_ranks()));
    let word = |round: u64, rank: u32, at: u64| u64::from_le_bytes([0; 8].map(|_: u8| byte(round, rank, at)));
    for words in sizes.iter().map(|size| (*size).min(17_001)).filter(|words| *words > 0) {
        let bytes = words * 8;
        // Slot r is rank r's input.
        let slots = comm.alloc::<u8>(bytes * n)?;
        let mesh = Mesh::new(comm, transport, &slots)?;
        for round in 10..10 + ROUNDS {
            slots.fill(0xee)?;
            let input: Vec<u8> =
                (0..words).flat_map(|at| word(round, comm.rank(), at).to_le_bytes()).collect();
            slots.write(own * bytes, &input)?;
            comm.barrier()?;
            mesh.exchange(own * bytes, bytes)?;
            let mut sums = vec![0u64; words as usize];
            let mut slot = vec![0u8; bytes as usize];
            for rank in 0..n {
                slots.read(rank * bytes, &mut slot)?;
                let (values, _) = slot.as_chunks::<8>();
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = sum.wrapping_add(u64::from_le_bytes(*value));
                }
            }
            let expected = |at| (0..comm.n_ranks()).fold(0u64, |sum, r| sum.wrapping_add(word(round, r, at)));
            compare(comm, &format!("all_reduce of {words}"), &sums, expected)?;
            comm.barrier()?;
        }
    }
    Ok(())
}
