//! Different plans in random order on one communicator, with ranks that are late at random: what one plan leaves in
//! the scratch that it shares meets the next.

use std::time::Duration;

use warpway::plan::verify::{Options, VerifiedPlan};
use warpway::plan::{
    BuildError, Channel, Chunk, CollectiveShape, DataSync, Plan, Program, ProgramOptions, Protocol, testing,
};
use warpway::{Communicator, DataType, PacketFormat, PreparedPlan, Result};

use super::{Message, launch};

/// What goes through the scratch of a [`gather`], and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Raw,
    RawByProxy,
    Packets,
    PacketsOnPorts,
    /// Packets, which their reader leaves in raw scratch before it copies them out.
    PacketsThenRaw,
    /// Packets, which the rank in the middle reads when it has been busy for a while.
    PacketsReadLate,
}

/// Plans that use scratch in every way: shared and not, single and double, raw data and packets, by stores and by proxies.
pub fn on_scratch(n: u32) -> Vec<VerifiedPlan> {
    let single = |mut plan: Plan| {
        plan.double_scratch = false;
        plan.name.push_str("_single");
        plan
    };
    let plans = [
        testing::all_reduce_packets(n),
        testing::all_reduce_packets(n).map(single),
        testing::send_recv_semaphore(n),
        testing::all_gather_put(n),
        gather(n, Way::Raw, true, false),
        gather(n, Way::Raw, false, true),
        gather(n, Way::RawByProxy, true, false),
        gather(n, Way::RawByProxy, false, true),
        gather(n, Way::Packets, true, false),
        gather(n, Way::Packets, false, true),
        gather(n, Way::PacketsOnPorts, true, false),
        gather(n, Way::PacketsOnPorts, false, true),
        gather(n, Way::PacketsThenRaw, true, false),
        gather(n, Way::PacketsThenRaw, false, true),
        forwarded(n),
        answered(n, true),
        answered(n, false),
    ];
    plans.map(proven).into()
}

pub(super) fn proven(plan: Result<Plan, BuildError>) -> VerifiedPlan {
    let proof = VerifiedPlan::new(plan.unwrap(), &Options::default());
    proof.unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// Plans on one area, in an order in which a rank is overrun unless all wait for all. One rank is long busy before it
/// reads its packets; a launch without bytes tells nobody so; the next one writes the same slots.
pub fn overrunning(n: u32) -> [VerifiedPlan; 3] {
    [gather(n, Way::PacketsReadLate, true, false), forwarded(n), gather(n, Way::Packets, true, false)]
        .map(proven)
}

/// Sets the plans up and launches them in an order that `seed` makes.
pub fn in_random_order(comm: &Communicator, plans: &[VerifiedPlan], seed: u64, turns: u64) -> Result<()> {
    let prepared: Vec<PreparedPlan> = plans.iter().map(|plan| comm.prepare(plan)).collect::<Result<_>>()?;
    for turn in 0..turns {
        random_launch(comm, &prepared, seed << 32 | turn)?;
    }
    comm.barrier()
}

/// One launch, late on some ranks: of which plan, on what and with which packets `seed` says, to all ranks alike.
pub fn random_launch(comm: &Communicator, prepared: &[PreparedPlan], seed: u64) -> Result<()> {
    let pause = random(seed ^ u64::from(comm.rank() + 1) << 56);
    if pause.is_multiple_of(4) {
        std::thread::sleep(Duration::from_micros(pause >> 32 & 511));
    }
    let choice = random(seed);
    // Whole chunks most of the time: launches with empty ones wait for all ranks.
    let elements = [48, 96, 48, 480, 0, 5, 4095, 48][(choice >> 16) as usize % 8];
    let packets = if choice >> 24 & 1 == 0 { PacketFormat::Ll16 } else { PacketFormat::Ll8 };
    let message =
        Message { packets, seed, ..Message::new(elements * u64::from(comm.n_ranks()), DataType::Uint32) };
    launch(comm, &prepared[(choice >> 32) as usize % prepared.len()], &message)
}

/// The same number on all ranks.
pub fn random(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Every rank sends its input to a slot of every other; with `opening`, when all have begun.
fn gather(n: u32, way: Way, double: bool, opening: bool) -> Result<Plan, BuildError> {
    let name = format!("gather_{way:?}_{}", if double { "double" } else { "single" });
    let packets = !matches!(way, Way::Raw | Way::RawByProxy);
    let mut p = Program::new(ProgramOptions {
        protocol: if packets { Protocol::LowLatency } else { Protocol::Simple },
        double_scratch: double,
        ..ProgramOptions::new(&name, CollectiveShape::all_gather(n, 1))
    })?;
    let scratch = (0..n).map(|rank| p.scratch(rank, u64::from(n))).collect::<Result<Vec<_>, _>>()?;
    let slot = |owner: u32, writer: u32| scratch[owner as usize].chunk(u64::from(writer)..=u64::from(writer));
    for me in 0..n {
        let (mine, output) = (p.input(me)?.whole(), p.output(me)?);
        let out = |of: u32| output.chunk(u64::from(of)..=u64::from(of));
        p.copy(out(me)?, mine, 0)?;
        let ports = matches!(way, Way::RawByProxy | Way::PacketsOnPorts);
        let mut channels: Vec<(u32, Channel)> = Vec::new();
        for peer in (0..n).filter(|peer| *peer != me) {
            let channel = match ports {
                true => p.port_channel(me, peer)?.into(),
                false => p.memory_channel(me, peer)?.into(),
            };
            channels.push((peer, channel));
        }
        if opening {
            all_meet(&mut p, &channels)?;
        }
        if way == Way::PacketsOnPorts {
            p.copy_packets(slot(me, me)?, mine, 0)?;
            p.barrier(me, &[0])?;
        }
        for (peer, channel) in &channels {
            let to = slot(*peer, me)?;
            match (way, *channel) {
                (Way::RawByProxy, Channel::Port(port)) => p.put_with_signal_and_flush(port, to, mine, 0)?,
                (Way::Raw, channel) => p.put(channel, to, mine, 0)?,
                (Way::PacketsOnPorts, channel) => p.put_packets(channel, to, slot(me, me)?, 0)?,
                (_, channel) => p.put_packets(channel, to, mine, 0)?,
            }
        }
        match way {
            Way::PacketsReadLate if me == n / 2 => {
                for _ in 0..2000 {
                    p.copy(out(me)?, mine, 0)?;
                }
            }
            Way::Raw => all_meet(&mut p, &channels)?,
            Way::RawByProxy => {
                for (_, channel) in &channels {
                    p.wait(*channel, 0, DataSync::After)?;
                }
            }
            _ => {}
        }
        for (peer, _) in &channels {
            let (from, to): (Chunk, Chunk) = (slot(me, *peer)?, out(*peer)?);
            match way {
                Way::Raw | Way::RawByProxy => p.copy(to, from, 0)?,
                Way::Packets | Way::PacketsReadLate | Way::PacketsOnPorts => p.unpack_packets(to, from, 0)?,
                Way::PacketsThenRaw => {
                    p.unpack_packets(from, from, 0)?;
                    p.copy(to, from, 0)?;
                }
            }
        }
        for (_, channel) in &channels {
            if let (Way::PacketsOnPorts, Channel::Port(port)) = (way, *channel) {
                p.flush(port, 0, DataSync::None)?;
            }
        }
    }
    p.finish()
}

fn all_meet(p: &mut Program, channels: &[(u32, Channel)]) -> Result<(), BuildError> {
    for (_, channel) in channels {
        p.signal(*channel, 0, DataSync::Before)?;
    }
    for (_, channel) in channels {
        p.wait(*channel, 0, DataSync::After)?;
    }
    Ok(())
}

/// Packets from rank to rank around a ring: they tell everybody of everybody, unless they are empty, though no rank
/// works with any but its neighbours.
fn forwarded(n: u32) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions {
        protocol: Protocol::LowLatency,
        double_scratch: true,
        ..ProgramOptions::new("gather_forwarded", CollectiveShape::all_gather(n, 1))
    })?;
    let scratch = (0..n).map(|rank| p.scratch(rank, u64::from(n))).collect::<Result<Vec<_>, _>>()?;
    let slot = |owner: u32, of: u32| scratch[owner as usize].chunk(u64::from(of)..=u64::from(of));
    let mut channels = Vec::new();
    for me in 0..n {
        let right = (me + 1) % n;
        channels.push(p.memory_channel(me, right)?);
        p.memory_channel(right, me)?;
    }
    for me in 0..n {
        let (right, channel, output) = ((me + 1) % n, channels[me as usize], p.output(me)?);
        let mine = p.input(me)?.whole();
        p.copy(output.chunk(u64::from(me)..=u64::from(me))?, mine, 0)?;
        p.put_packets(channel, slot(right, me)?, mine, 0)?;
        for of in (1..n).map(|steps| (me + n - steps) % n) {
            if of != right {
                p.read_put_packets(channel, slot(right, of)?, slot(me, of)?, 0)?;
            }
            p.unpack_packets(output.chunk(u64::from(of)..=u64::from(of))?, slot(me, of)?, 0)?;
        }
    }
    p.finish()
}

/// Packets to the right, which answers when it has read them: enough for this plan alone, though nobody knows of
/// the ranks farther away.
fn answered(n: u32, double: bool) -> Result<Plan, BuildError> {
    let name = format!("send_recv_answered_{}", if double { "double" } else { "single" });
    let mut p = Program::new(ProgramOptions {
        protocol: Protocol::LowLatency,
        double_scratch: double,
        ..ProgramOptions::new(&name, CollectiveShape::send_recv(n, 1))
    })?;
    let mut pairs = Vec::new();
    for me in 0..n {
        let right = (me + 1) % n;
        pairs.push((p.memory_channel(me, right)?, p.memory_channel(right, me)?));
    }
    let slots = (0..n).map(|rank| Ok(p.scratch(rank, 1)?.whole())).collect::<Result<Vec<_>, _>>()?;
    for me in 0..n {
        let (right, left) = (pairs[me as usize].0, pairs[((me + n - 1) % n) as usize].1);
        p.put_packets(right, slots[((me + 1) % n) as usize], p.input(me)?.whole(), 0)?;
        p.unpack_packets(p.output(me)?.whole(), slots[me as usize], 0)?;
        p.signal(left, 0, DataSync::Before)?;
        p.wait(right, 0, DataSync::After)?;
    }
    p.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Raw and packet areas that the plans may share; those that a plan does not use count as shared. In a ring of four
    /// everybody has a stranger.
    #[test]
    fn the_plans_share_areas_of_every_kind_and_have_own_ones_of_every_kind() {
        let found: Vec<(String, bool, bool)> = on_scratch(4)
            .iter()
            .map(|proof| {
                let areas = proof.report().shareable_areas;
                (proof.plan().name.clone(), areas.raw, areas.packets)
            })
            .collect();
        let expected = [
            ("all_reduce_packets", true, true),
            ("all_reduce_packets_single", true, false),
            ("send_recv_semaphore", false, true),
            ("all_gather_put", true, true),
            ("gather_Raw_double", true, true),
            ("gather_Raw_single", true, true),
            ("gather_RawByProxy_double", true, true),
            ("gather_RawByProxy_single", true, true),
            ("gather_Packets_double", true, true),
            ("gather_Packets_single", true, true),
            ("gather_PacketsOnPorts_double", true, true),
            ("gather_PacketsOnPorts_single", true, true),
            ("gather_PacketsThenRaw_double", true, true),
            ("gather_PacketsThenRaw_single", true, true),
            ("gather_forwarded", true, true),
            ("send_recv_answered_double", true, false),
            ("send_recv_answered_single", true, false),
        ];
        let expected = expected.map(|(name, raw, packets)| (name.to_owned(), raw, packets));
        assert_eq!(found, expected);
    }
}
