//! Sends and receives: every size by every kind of memory, and random groups against an oracle.

use warpway::{Buffer, Communicator, Group, Result};

use super::plans::random;
use super::{compare, wrong};
use crate::pattern::byte;

/// Bytes of messages around everything that has a size: descriptors, lines, chunks, rings, offers and pieces.
pub const MESSAGE_SIZES: [u64; 19] = [
    0,
    1,
    39,
    40,
    41,
    64,
    4095,
    (16 << 10) - 1,
    16 << 10,
    (16 << 10) + 1,
    (32 << 10) - 1,
    32 << 10,
    (256 << 10) - 1,
    256 << 10,
    (256 << 10) + 1,
    (1 << 20) + 3,
    (3 << 20) + 5,
    (4 << 20) - 1,
    (4 << 20) + 1,
];

const CANARY: u8 = 0xC5;

/// Where the bytes of one end lie: in a plain vector, or in registered memory; between canaries.
enum Memory {
    Plain(Vec<u8>),
    Registered(Buffer<u8>),
}

/// Bytes before and behind.
const MARGIN: u64 = 5;

impl Memory {
    fn new(comm: &Communicator, registered: bool, bytes: u64, value: impl Fn(u64) -> u8) -> Result<Self> {
        let inside = MARGIN..MARGIN + bytes;
        let all = (0..bytes + 2 * MARGIN)
            .map(|at| if inside.contains(&at) { value(at - MARGIN) } else { CANARY })
            .collect::<Vec<u8>>();
        if !registered {
            return Ok(Self::Plain(all));
        }
        let buffer = comm.alloc(all.len() as u64)?;
        buffer.write(0, &all)?;
        Ok(Self::Registered(buffer))
    }

    fn send<'g>(&'g self, group: &mut Group<'g>, peer: u32) -> Result<()> {
        match self {
            Self::Plain(all) => group.send(&all[MARGIN as usize..all.len() - MARGIN as usize], peer),
            Self::Registered(buffer) => group.send(buffer.part(MARGIN, buffer.len() - 2 * MARGIN), peer),
        }
    }

    fn recv<'g>(&'g mut self, group: &mut Group<'g>, peer: u32) -> Result<()> {
        match self {
            Self::Plain(all) => {
                let end = all.len() - MARGIN as usize;
                group.recv(&mut all[MARGIN as usize..end], peer)
            }
            Self::Registered(buffer) => group.recv(buffer.part(MARGIN, buffer.len() - 2 * MARGIN), peer),
        }
    }

    fn check(&self, comm: &Communicator, what: &str, expected: impl Fn(u64) -> u8) -> Result<()> {
        let all = match self {
            Self::Plain(all) => all.clone(),
            Self::Registered(buffer) => buffer.to_vec()?,
        };
        let inside = MARGIN..all.len() as u64 - MARGIN;
        compare(comm, what, &all, |at| if inside.contains(&at) { expected(at - MARGIN) } else { CANARY })
    }
}

/// Each rank with the next one and the one before, every size, slices and registered memory on either side, both orders of
/// the calls, alone and in groups.
pub fn messages(comm: &Communicator, sizes: &[u64]) -> Result<()> {
    let (rank, n) = (comm.rank(), comm.n_ranks());
    let (next, previous) = ((rank + 1) % n, (rank + n - 1) % n);
    let mut round = 0;
    for &size in sizes {
        for kinds in 0..4u32 {
            let (from_registered, to_registered) = (kinds & 1 != 0, kinds & 2 != 0);
            round += 1;
            let what = format!("message of {size} bytes, kinds {kinds}");
            let data = Memory::new(comm, from_registered, size, |at| byte(round, rank, at))?;
            let mut come = Memory::new(comm, to_registered, size, |at| !byte(round, previous, at))?;
            comm.group(|group| {
                if (rank + kinds).is_multiple_of(2) {
                    data.send(group, next)?;
                    come.recv(group, previous)
                } else {
                    come.recv(group, previous)?;
                    data.send(group, next)
                }
            })?;
            come.check(comm, &what, |at| byte(round, previous, at))?;
            data.check(comm, &what, |at| byte(round, rank, at))?;
        }
        // Alone: rank 0 begins, all others receive first.
        if n > 1 {
            round += 1;
            let data: Vec<u8> = (0..size).map(|at| byte(round, rank, at)).collect();
            let mut come = vec![CANARY; size as usize];
            if rank == 0 {
                comm.send(&data, next)?;
            }
            comm.recv(&mut come, previous)?;
            if rank != 0 {
                comm.send(&data, next)?;
            }
            compare(comm, "message alone", &come, |at| byte(round, previous, at))?;
        }
    }
    Ok(())
}

/// A message of a random group.
#[derive(Clone, Copy)]
struct Drawn {
    from: u32,
    to: u32,
    bytes: u64,
    registered: [bool; 2],
}

/// `count` messages in groups of 1 to 40 between random ranks, themselves included, and each rank's calls in an order of its
/// own. All ranks draw the same.
pub fn random_messages(comm: &Communicator, count: u64, seed: u64) -> Result<()> {
    let mut state = seed;
    let mut draw = |limit: u64| {
        state = random(state);
        state % limit
    };
    let (own, n) = (comm.rank(), u64::from(comm.n_ranks()));
    let (mut done, mut round) = (0, 1000);
    while done < count {
        let members = 1 + draw(40);
        let group: Vec<Drawn> = (0..members)
            .map(|_| {
                let bytes = match draw(100) {
                    0..=49 => draw(66),
                    50..=79 => draw(5000),
                    80..=96 => draw(70_000),
                    _ => draw(1_200_000),
                };
                let (from, to) = (draw(n) as u32, draw(n) as u32);
                Drawn { from, to, bytes, registered: [draw(2) == 0, draw(2) == 0] }
            })
            .collect();
        done += members;
        round += 1;
        let order = draw(u64::MAX);
        one_group(comm, &group, round, random(order ^ u64::from(own)))?;
    }
    Ok(())
}

/// Runs a group and compares all that has come here.
fn one_group(comm: &Communicator, group: &[Drawn], round: u64, mut order: u64) -> Result<()> {
    let own = comm.rank();
    // Number of the message and true for a send, false for a receive; lanes keep their order, otherwise at random.
    let mut lanes: Vec<Vec<(usize, bool)>> = vec![Vec::new(); 2 * comm.n_ranks() as usize];
    for (at, Drawn { from, to, .. }) in group.iter().enumerate() {
        if *from == own {
            lanes[2 * *to as usize].push((at, true));
        }
        if *to == own {
            lanes[2 * *from as usize + 1].push((at, false));
        }
    }
    lanes.iter_mut().for_each(|lane| lane.reverse());
    let mut calls = Vec::new();
    while lanes.iter().any(|lane| !lane.is_empty()) {
        order = random(order);
        let lane = (order % lanes.len() as u64) as usize;
        calls.extend(lanes[lane].pop());
    }
    let value = |at: usize, place: u64| byte(round * 64 + at as u64, group[at].from, place);
    let mut ends = Vec::new();
    for (at, sends) in calls {
        let Drawn { bytes, registered, .. } = group[at];
        let memory = Memory::new(comm, registered[usize::from(sends)], bytes, |place| {
            if sends { value(at, place) } else { !value(at, place) }
        })?;
        ends.push((at, sends, memory));
    }
    comm.group(|calls| {
        for (at, sends, memory) in &mut ends {
            match sends {
                true => memory.send(calls, group[*at].to)?,
                false => memory.recv(calls, group[*at].from)?,
            }
        }
        Ok(())
    })?;
    for (at, _, memory) in &ends {
        let Drawn { from, to, bytes, .. } = group[*at];
        let what = format!("group {round}, message {at} of {bytes} bytes from {from} to {to}");
        memory.check(comm, &what, |place| value(*at, place))?;
    }
    Ok(())
}

/// Only some ranks talk: the others do nothing, and set up nothing.
pub fn pairs_only(comm: &Communicator) -> Result<()> {
    if comm.rank() < 2 {
        let mut come = [0u8; 3];
        comm.send_recv(&[comm.rank() as u8; 3], 1 - comm.rank(), &mut come, 1 - comm.rank())?;
        if come != [1 - comm.rank() as u8; 3] {
            return Err(wrong(comm, "pair", format!("{come:?}")));
        }
    }
    Ok(())
}
