//! Plans whose ranks are on several hosts: memory channels within a host, port channels between hosts.

use warpway::Communicator;
use warpway::plan::verify::VerifiedPlan;
use warpway::plan::{
    BuildError, Channel, Chunk, CollectiveShape, DataSync, MemoryChannel, Plan, PortChannel, Program,
    ProgramOptions, Reduction, testing,
};

use super::sequences::proven;

/// Host by rank, as numbers that mean nothing else.
type Hosts<'h> = &'h [u32];

/// Plans with fixed sizes. Several hosts have as many ranks each, next to each other.
pub fn between_hosts(hosts: Hosts<'_>) -> Vec<VerifiedPlan> {
    let mut plans = gathers_between_hosts(hosts);
    plans.extend([send_slices(hosts, 96), all_reduce(hosts)].map(proven));
    plans.push(proven(testing::send_recv_port(hosts.len() as u32)));
    plans
}

/// Those of them for which hosts may have any number of ranks.
pub fn gathers_between_hosts(hosts: Hosts<'_>) -> Vec<VerifiedPlan> {
    let shape = CollectiveShape::all_gather(hosts.len() as u32, 1);
    let plans = [
        gather(hosts, shape, "gather_between_hosts"),
        gather_by_scratch(hosts, true, false),
        gather_by_scratch(hosts, false, true),
    ];
    plans.map(proven).into()
}

/// Plans with sized chunks.
pub fn sized_between_hosts(hosts: Hosts<'_>) -> Vec<VerifiedPlan> {
    let n = hosts.len() as u32;
    let plans = [
        gather(hosts, CollectiveShape::all_gather_v(n, 1), "gather_between_hosts_v"),
        exchange(hosts, CollectiveShape::all_to_all_v(n, 1)),
    ];
    plans.map(proven).into()
}

/// Host by rank, as numbers from 0 in order of appearance.
pub fn hosts_of(comm: &Communicator) -> Vec<u32> {
    let peers = comm.core().control().peers();
    let mut seen: Vec<u64> = Vec::new();
    let number = |member: &u32| {
        let host = peers[*member as usize].host;
        let at = seen.iter().position(|known| *known == host).unwrap_or(seen.len());
        if at == seen.len() {
            seen.push(host);
        }
        at as u32
    };
    comm.core().members().iter().map(number).collect()
}

fn channel(p: &mut Program, hosts: Hosts<'_>, me: u32, peer: u32) -> Result<Channel, BuildError> {
    Ok(match hosts[me as usize] == hosts[peer as usize] {
        true => p.memory_channel(me, peer)?.into(),
        false => p.port_channel(me, peer)?.into(),
    })
}

/// To all other ranks.
fn channels(p: &mut Program, hosts: Hosts<'_>, me: u32) -> Result<Vec<(u32, Channel)>, BuildError> {
    let others = (0..hosts.len() as u32).filter(|peer| *peer != me);
    others.map(|peer| Ok((peer, channel(p, hosts, me, peer)?))).collect()
}

/// A put with its signal.
fn send(p: &mut Program, channel: Channel, to: Chunk, from: Chunk) -> Result<(), BuildError> {
    match channel {
        Channel::Port(port) => p.put_with_signal_and_flush(port, to, from, 0),
        memory => {
            p.put(memory, to, from, 0)?;
            p.signal(memory, 0, DataSync::Before)
        }
    }
}

fn meet(p: &mut Program, channels: impl IntoIterator<Item = Channel> + Clone) -> Result<(), BuildError> {
    for channel in channels.clone() {
        p.signal(channel, 0, DataSync::Before)?;
    }
    channels.into_iter().try_for_each(|channel| p.wait(channel, 0, DataSync::After))
}

fn each(channels: &[(u32, Channel)]) -> impl Iterator<Item = Channel> + Clone {
    channels.iter().map(|(_, channel)| *channel)
}

/// Every rank puts its input into every output.
fn gather(hosts: Hosts<'_>, shape: CollectiveShape, name: &str) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions::new(name, shape))?;
    for me in 0..p.n_ranks() {
        let (place, mine) = (u64::from(me), p.input(me)?.whole());
        let channels = channels(&mut p, hosts, me)?;
        meet(&mut p, each(&channels))?;
        p.copy(p.output(me)?.chunk(place..=place)?, mine, 0)?;
        for (peer, channel) in &channels {
            let to = p.output(*peer)?.chunk(place..=place)?;
            send(&mut p, *channel, to, mine)?;
        }
        each(&channels).try_for_each(|channel| p.wait(channel, 0, DataSync::After))?;
    }
    p.finish()
}

/// Every rank puts a block of its input into every output.
fn exchange(hosts: Hosts<'_>, shape: CollectiveShape) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions::new("exchange_between_hosts_v", shape))?;
    for me in 0..p.n_ranks() {
        let (place, input) = (u64::from(me), p.input(me)?);
        let channels = channels(&mut p, hosts, me)?;
        meet(&mut p, each(&channels))?;
        p.copy(p.output(me)?.chunk(place..=place)?, input.chunk(place..=place)?, 0)?;
        for (peer, channel) in &channels {
            let (at, to) = (u64::from(*peer), p.output(*peer)?.chunk(place..=place)?);
            send(&mut p, *channel, to, input.chunk(at..=at)?)?;
        }
        each(&channels).try_for_each(|channel| p.wait(channel, 0, DataSync::After))?;
    }
    p.finish()
}

/// The same through scratch; with `opening`, when all have begun.
fn gather_by_scratch(hosts: Hosts<'_>, double: bool, opening: bool) -> Result<Plan, BuildError> {
    let n = hosts.len() as u32;
    let name = format!("gather_by_scratch_{}", if double { "double" } else { "single" });
    let mut p = Program::new(ProgramOptions {
        double_scratch: double,
        ..ProgramOptions::new(&name, CollectiveShape::all_gather(n, 1))
    })?;
    let scratch = (0..n).map(|rank| p.scratch(rank, u64::from(n))).collect::<Result<Vec<_>, _>>()?;
    let slot = |owner: u32, writer: u32| scratch[owner as usize].chunk(u64::from(writer)..=u64::from(writer));
    for me in 0..n {
        let (mine, output) = (p.input(me)?.whole(), p.output(me)?);
        let out = |of: u32| output.chunk(u64::from(of)..=u64::from(of));
        p.copy(out(me)?, mine, 0)?;
        let channels = channels(&mut p, hosts, me)?;
        if opening {
            meet(&mut p, each(&channels))?;
        }
        for (peer, channel) in &channels {
            send(&mut p, *channel, slot(*peer, me)?, mine)?;
        }
        each(&channels).try_for_each(|channel| p.wait(channel, 0, DataSync::After))?;
        for (peer, _) in &channels {
            p.copy(out(*peer)?, slot(me, *peer)?, 0)?;
        }
    }
    p.finish()
}

/// Every rank sends its input to the right, slice by slice.
fn send_slices(hosts: Hosts<'_>, slice: u64) -> Result<Plan, BuildError> {
    let n = hosts.len() as u32;
    let mut p = Program::new(ProgramOptions::new("send_slices", CollectiveShape::send_recv(n, 1)))?;
    let mut ring = Vec::new();
    for me in 0..n {
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        // Between two ranks left and right are one rank, and two channels.
        ring.push((channel(&mut p, hosts, me, right)?, right, left));
    }
    let mut back = Vec::new();
    for (me, (_, _, left)) in (0..).zip(&ring) {
        back.push(channel(&mut p, hosts, me, *left)?);
    }
    // The k-th channel to a rank pairs with the k-th of that rank: with two ranks those to the right are one pair.
    let from_left = |me: u32| if n == 2 { ring[me as usize].0 } else { back[me as usize] };
    for me in 0..n {
        p.signal(from_left(me), 0, DataSync::None)?;
        p.wait(ring[me as usize].0, 0, DataSync::After)?;
    }
    p.pipeline(slice, 1, |p| {
        for (me, (to_right, right, _)) in (0..).zip(&ring) {
            let (to, from) = (p.output(*right)?.whole(), p.input(me)?.whole());
            send(p, *to_right, to, from)?;
            p.wait(from_left(me), 0, DataSync::After)?;
        }
        Ok(())
    })?;
    p.finish()
}

/// Sums within each host, each rank a part of the elements; sums of the hosts' sums, by the ranks of one number on all
/// hosts; and the parts back to the host's ranks. Every host has as many ranks.
fn all_reduce(hosts: Hosts<'_>) -> Result<Plan, BuildError> {
    let n = hosts.len() as u32;
    let per_host = hosts.iter().filter(|host| **host == hosts[0]).count() as u32;
    let shape = CollectiveShape::all_reduce(n, 1);
    let mut p = Program::new(ProgramOptions::new("all_reduce_of_hosts", shape))?;
    let n_hosts = n / per_host;
    // Chunks of the part that a rank sums up.
    let part = |me: u32| {
        let number = u64::from(me % per_host);
        number * u64::from(n_hosts)..(number + 1) * u64::from(n_hosts)
    };
    // One slot per host, of a part's size.
    let scratch =
        (0..n).map(|rank| p.scratch(rank, u64::from(n_hosts * n_hosts))).collect::<Result<Vec<_>, _>>()?;
    let slot = |owner: u32, host: u32| {
        let first = u64::from(host * n_hosts);
        scratch[owner as usize].chunk(first..first + u64::from(n_hosts))
    };
    for me in 0..n {
        let host = me / per_host;
        let mut near: Vec<(u32, MemoryChannel)> = Vec::new();
        for peer in (host * per_host..(host + 1) * per_host).filter(|peer| *peer != me) {
            near.push((peer, p.memory_channel(me, peer)?));
        }
        let mut far: Vec<(u32, PortChannel)> = Vec::new();
        for other in (0..n_hosts).filter(|other| *other != host) {
            far.push((other, p.port_channel(me, other * per_host + me % per_host)?));
        }
        let to_near = || near.iter().map(|(_, channel)| Channel::from(*channel));
        let to_far = || far.iter().map(|(_, channel)| Channel::from(*channel));
        meet(&mut p, to_near().chain(to_far()).collect::<Vec<_>>())?;
        let own = slot(me, host)?;
        p.copy(own, p.input(me)?.chunk(part(me))?, 0)?;
        for (peer, channel) in &near {
            let theirs = p.input(*peer)?.chunk(part(me))?;
            p.read_reduce(*channel, Reduction::of(own, &[theirs]), 0)?;
        }
        for (other, port) in &far {
            let counterpart = other * per_host + me % per_host;
            p.put_with_signal(*port, slot(counterpart, host)?, own, 0)?;
        }
        to_far().try_for_each(|channel| p.wait(channel, 0, DataSync::After))?;
        let slots = (1..n_hosts).map(|host| slot(me, host)).collect::<Result<Vec<_>, _>>()?;
        let result = p.output(me)?.chunk(part(me))?;
        p.reduce(Reduction::of(slot(me, 0)?, &slots).into(result), 0)?;
        for (peer, channel) in &near {
            p.put(*channel, p.output(*peer)?.chunk(part(me))?, result, 0)?;
        }
        meet(&mut p, to_near().collect::<Vec<_>>())?;
        for (_, port) in &far {
            p.flush(*port, 0, DataSync::None)?;
        }
    }
    p.finish()
}
