//! What a memory channel does, written for one rank of a pair: both ranks run the same function.
//!
//! Sources hold bytes that depend on rank, position and round; everything around a target is a canary, and
//! both are refilled before each transfer, so neither a stale nor a stray byte goes unnoticed.

use warpway_host::{BlockChannel, Launcher, Ll8, Ll16, Packet, Share};

use crate::rig::{BUFFER, Rig};

const SIZES: [u64; 12] = [0, 1, 2, 3, 7, 8, 17, 63, 64, 257, 4095, 1_000_003];
const CANARY: u8 = 0xc5;

/// Byte `i` of what rank `rank` sends in round `round`; never the canary's value.
fn byte(rank: u32, round: u64, i: u64) -> u8 {
    let x =
        (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (round << 8) ^ u64::from(rank + 1).wrapping_mul(0xd1b5);
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    match (x >> 56) as u8 {
        CANARY => 0x3a,
        x => x,
    }
}

fn message(rank: u32, round: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|i| byte(rank, round, i)).collect()
}

/// Both ranks have come this far.
fn meet(channel: &BlockChannel) {
    channel.signal().unwrap();
    channel.wait().unwrap();
}

/// Neither rank has a signal left over. One looks while the other does nothing but wait for its word.
fn nothing_is_pending(rig: &Rig, what: &str) {
    meet(&rig.channel);
    for turn in 0..2 {
        if rig.rank == turn {
            assert!(!rig.channel.poll().unwrap(), "{what}");
            rig.channel.signal().unwrap();
        } else {
            rig.channel.wait().unwrap();
        }
    }
}

fn contents(buffer: &warpway_host::SharedBuffer, offset: u64, bytes: u64) -> Vec<u8> {
    let mut data = vec![0u8; bytes as usize];
    buffer.read(offset, &mut data).unwrap();
    data
}

/// Asserts that `buffer[start..end]` holds `target..` = `expected` and canaries elsewhere.
fn check(buffer: &warpway_host::SharedBuffer, window: u64, target: u64, expected: &[u8], what: &str) {
    let data = contents(buffer, 0, window);
    let (target, end) = (target as usize, target as usize + expected.len());
    assert!(data[..target].iter().all(|b| *b == CANARY), "{what}: written before the target");
    assert!(data[target..end] == *expected, "{what}: wrong bytes");
    assert!(data[end..].iter().all(|b| *b == CANARY), "{what}: written after the target");
}

fn refill(buffer: &warpway_host::SharedBuffer, window: u64, at: u64, data: &[u8]) {
    buffer.write(0, &vec![CANARY; window as usize]).unwrap();
    buffer.write(at, data).unwrap();
}

/// Every size at several alignments of both ends, alone and divided among participants.
pub(crate) fn put_and_get_move_exactly_the_bytes(rig: &Rig) {
    let (channel, peer) = (&rig.channel, 1 - rig.rank);
    let mut round = 0;
    for bytes in SIZES {
        for (target, origin) in [(0, 0), (64, 64), (1, 1), (5, 3), (16, 8), (31, 64), (62, 17)] {
            for count in [1, 3] {
                round += 1;
                let window = bytes + 192;
                let what = format!("{bytes} bytes to {target} from {origin}, {count} participants");

                refill(&rig.source, window, origin, &message(rig.rank, round, bytes));
                refill(&rig.inbox, window, 0, &[]);
                meet(channel);
                for index in (0..count).rev() {
                    channel.put(target, origin, bytes, Share::new(index, count)).unwrap();
                }
                meet(channel);
                check(&rig.inbox, window, target, &message(peer, round, bytes), &format!("put of {what}"));

                // The way back: what the peer has put here is in our inbox, and it gets it from there.
                refill(&rig.source, window, 0, &[]);
                meet(channel);
                for index in 0..count {
                    channel.get(origin, target, bytes, Share::new(index, count)).unwrap();
                }
                meet(channel);
                check(
                    &rig.source,
                    window,
                    origin,
                    &message(rig.rank, round, bytes),
                    &format!("get of {what}"),
                );
            }
        }
    }
    // Same offset on both sides.
    refill(&rig.source, 300, 77, &message(rig.rank, round + 1, 99));
    refill(&rig.inbox, 300, 0, &[]);
    meet(channel);
    channel.put_same(77, 99, Share::ALL).unwrap();
    meet(channel);
    check(&rig.inbox, 300, 77, &message(peer, round + 1, 99), "put_same");
    refill(&rig.source, 300, 0, &[]);
    meet(channel);
    channel.get_same(77, 99, Share::ALL).unwrap();
    meet(channel);
    check(&rig.source, 300, 77, &message(rig.rank, round + 1, 99), "get_same");
}

/// Exhaustive for small copies: every misalignment of both ends below 17, every size up to 40.
pub(crate) fn every_small_misalignment(rig: &Rig) {
    let (channel, peer) = (&rig.channel, 1 - rig.rank);
    for target in 0..17 {
        for origin in 0..17 {
            // One refill for all sizes: sizes grow, so what is beyond the target must still be canary.
            let data = message(rig.rank, target * 100 + origin, 40);
            refill(&rig.source, 128, origin, &data);
            let expected = message(peer, target * 100 + origin, 40);
            refill(&rig.inbox, 128, 0, &[]);
            for bytes in 0..=40 {
                meet(channel);
                channel.put(target, origin, bytes, Share::ALL).unwrap();
                meet(channel);
                let what = format!("{bytes} bytes to {target} from {origin}");
                check(&rig.inbox, 128, target, &expected[..bytes as usize], &what);
            }
        }
    }
}

/// Packets of both formats for all small sizes and some large ones, unaligned data, several participants.
pub(crate) fn packets_bring_exactly_the_bytes(rig: &Rig) {
    let mut flag = 0;
    for bytes in (0..=65).chain([4095, 100_003]) {
        for (origin, count) in [(0, 1), (3, 1), (8, 3)] {
            packets::<Ll16>(rig, bytes, origin, count, &mut flag);
            packets::<Ll8>(rig, bytes, origin, count, &mut flag);
        }
    }
}

fn packets<P: Packet>(rig: &Rig, bytes: u64, origin: u64, count: u32, flag: &mut u32) {
    const TARGET: u64 = 48;
    *flag += 1;
    let (channel, peer) = (&rig.channel, 1 - rig.rank);
    let round = u64::from(*flag);
    let what = format!("{bytes} bytes from {origin} in packets of {}, {count} participants", P::BYTES);
    let window = bytes + 192;
    let packet_bytes = bytes.div_ceil(P::PAYLOAD) * P::BYTES;
    let inbox_window = TARGET + packet_bytes + 64;
    refill(&rig.source, window, origin, &message(rig.rank, round, bytes));
    // Canaries are no flag that is used; nothing but packets is written over them.
    refill(&rig.inbox, inbox_window, 0, &[]);
    meet(channel);
    for index in 0..count {
        channel.put_packets::<P>(TARGET, origin, bytes, Share::new(index, count), *flag).unwrap();
    }
    // No signal: the packets say themselves that they have come. The source is free again at once.
    refill(&rig.source, window, 0, &[]);
    for index in (0..count).rev() {
        channel.unpack_packets::<P>(TARGET, origin, bytes, Share::new(index, count), *flag).unwrap();
    }
    check(&rig.source, window, origin, &message(peer, round, bytes), &what);
    let arrived = contents(&rig.inbox, 0, inbox_window);
    let end = (TARGET + packet_bytes) as usize;
    assert!(arrived[..TARGET as usize].iter().all(|b| *b == CANARY), "{what}: written before the packets");
    assert!(arrived[end..].iter().all(|b| *b == CANARY), "{what}: written after the packets");
    // The padding of the last packet is zero: its payload, as one value, has zeros behind the tail.
    if bytes > 0 {
        let last = (TARGET + packet_bytes) / P::BYTES - 1;
        let payload = channel.unpack_packet::<P>(last, *flag).unwrap();
        let mut expected =
            message(peer, round, bytes)[((bytes - 1) / P::PAYLOAD * P::PAYLOAD) as usize..].to_vec();
        expected.resize(8, 0);
        let expected = u64::from_le_bytes(expected.try_into().unwrap());
        assert_eq!(format!("{payload:?}"), format!("{expected}"), "{what}: padding");
    }
    meet(channel);
}

/// Elements of the peer's memory, at both ends of it.
pub(crate) fn elements_are_read_and_written(rig: &Rig) {
    let (channel, me) = (&rig.channel, u64::from(rig.rank));
    rig.inbox.write(0, &vec![0u8; BUFFER as usize]).unwrap();
    meet(channel);
    let last = BUFFER / 8 - 1;
    channel.write::<u64>(last, 0x0123_4567_89ab_cdef ^ me).unwrap();
    channel.write::<[u8; 3]>(5, [7, 8, 9]).unwrap();
    channel.write::<f32>(0, 1.5 + me as f32).unwrap();
    meet(channel);
    let peer = 1 - me;
    let mut word = [0u64];
    rig.inbox.read(8 * last, &mut word).unwrap();
    assert_eq!(word, [0x0123_4567_89ab_cdef ^ peer]);
    assert_eq!(contents(&rig.inbox, 14, 5), [0, 7, 8, 9, 0]);
    assert_eq!(channel.read::<f32>(0).unwrap(), 1.5 + me as f32);
    assert_eq!(channel.read::<u64>(last).unwrap(), 0x0123_4567_89ab_cdef ^ me);
    for error in [
        channel.read::<u64>(last + 1).unwrap_err(),
        channel.read::<u64>(u64::MAX / 8).unwrap_err(),
        channel.read::<u64>(u64::MAX).unwrap_err(),
        channel.write::<[u8; 3]>(BUFFER / 3, [0; 3]).unwrap_err(),
    ] {
        assert_eq!(error.id(), "mem.bounds");
    }
    meet(channel);
}

/// Signals count: each is taken by one wait or poll, also from several threads, and carries the data
/// written before it.
pub(crate) fn signals_are_counted_and_carry_data(rig: &Rig) {
    let channel = &rig.channel;
    nothing_is_pending(rig, "no signal has been sent");
    for _ in 0..3 {
        channel.signal().unwrap();
    }
    channel.wait().unwrap();
    channel.relaxed_wait().unwrap();
    while !channel.poll().unwrap() {
        std::thread::yield_now();
    }
    nothing_is_pending(rig, "three signals were sent and three taken");

    // Four blocks signal and wait at once; every signal finds exactly one waiter.
    let launcher = Launcher::new(rig.waiter.clone());
    let blocks = channel.clone().with_policy(launcher.policy(4));
    launcher
        .launch(4, |_| {
            for _ in 0..500 {
                blocks.signal()?;
                blocks.wait()?;
            }
            Ok(())
        })
        .unwrap();
    nothing_is_pending(rig, "2000 signals were sent and 2000 taken");

    // Message passing: a word written before a signal is seen after the wait that takes it.
    meet(channel);
    for round in 1..=2000u64 {
        channel.write::<u64>(3, round ^ u64::from(rig.rank) << 40).unwrap();
        meet(channel);
        let mut word = [0u64];
        rig.inbox.read(24, &mut word).unwrap();
        assert_eq!(word[0], round ^ u64::from(1 - rig.rank) << 40);
        meet(channel);
    }
}

/// Ping-pong by packets, one flag per round, with more rounds than any back-off spins.
pub(crate) fn packets_ping_pong(rig: &Rig) {
    let channel = &rig.channel;
    rig.inbox.write(0, &[0u8; 64]).unwrap();
    meet(channel);
    for flag in 1..=2000u32 {
        let value = u64::from(flag) << 32 | u64::from(rig.rank);
        rig.source.write(0, &[value]).unwrap();
        if rig.rank == 0 {
            channel.put_packets::<Ll16>(0, 0, 8, Share::ALL, flag).unwrap();
        }
        let got = channel.unpack_packet::<Ll16>(0, flag).unwrap();
        assert_eq!(got, u64::from(flag) << 32 | u64::from(1 - rig.rank));
        if rig.rank == 1 {
            channel.put_packets::<Ll16>(0, 0, 8, Share::ALL, flag).unwrap();
        }
    }
    meet(channel);
}

/// Misuse is an error with its own id, on the side that errs, and changes nothing.
pub(crate) fn misuse_is_refused(rig: &Rig) {
    let channel = &rig.channel;
    refill(&rig.inbox, 4096, 0, &[]);
    meet(channel);
    let all = Share::ALL;
    let ids = [
        channel.put(BUFFER, 0, 1, all).unwrap_err(),
        channel.put(0, BUFFER - 3, 4, all).unwrap_err(),
        channel.put(u64::MAX, 0, 2, all).unwrap_err(),
        channel.get(0, 1, BUFFER, all).unwrap_err(),
        channel.put_packets::<Ll16>(BUFFER - 16, 0, 9, all, 1).unwrap_err(),
        channel.put_packets::<Ll8>(0, 0, u64::MAX, all, 1).unwrap_err(),
        channel.unpack_packet::<Ll16>(BUFFER / 16, 1).unwrap_err(),
        channel.unpack_packet::<Ll8>(u64::MAX, 1).unwrap_err(),
    ];
    for error in ids {
        assert_eq!(error.id(), "mem.bounds", "{error}");
    }
    assert_eq!(channel.put_packets::<Ll16>(8, 0, 8, all, 1).unwrap_err().id(), "mem.alignment");
    assert_eq!(channel.put_packets::<Ll8>(4, 0, 8, all, 1).unwrap_err().id(), "mem.alignment");
    assert_eq!(channel.unpack_packets::<Ll16>(8, 0, 8, all, 1).unwrap_err().id(), "mem.alignment");
    assert_eq!(channel.put_packets::<Ll16>(0, 0, 8, all, 0).unwrap_err().id(), "channel.packet_flag");
    assert_eq!(channel.unpack_packet::<Ll8>(0, 0).unwrap_err().id(), "channel.packet_flag");
    assert_eq!(channel.put(0, 0, 8, Share::new(2, 2)).unwrap_err().id(), "channel.share");
    meet(channel);
    assert!(contents(&rig.inbox, 0, 4096).iter().all(|b| *b == CANARY), "a refused call wrote something");
    // Empty calls are fine everywhere, also at the very end.
    channel.put(BUFFER, BUFFER, 0, all).unwrap();
    channel.put_packets::<Ll16>(BUFFER, BUFFER, 0, all, 1).unwrap();
    channel.unpack_packets::<Ll16>(BUFFER, BUFFER, 0, all, 1).unwrap();
    meet(channel);
}
