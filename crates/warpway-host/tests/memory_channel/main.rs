//! The behaviour of memory channels, for ranks that are threads of one process; and what only this
//! set-up can show: failures, timeouts, lifetimes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod rig;
mod suite;

use std::time::Duration;

use rig::{BUFFER, Rig, imported, local, pair};
use warpway_core::channel::{BaseMemoryChannel, MemoryChannel};
use warpway_core::memory::Access;
use warpway_core::{Error, ErrorCode};
use warpway_host::{BlockChannel, Ll16, Share, SharedBuffer};

/// Enough for a machine under load; no test waits for it to pass unless it says so.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs one function of the suite on both ranks.
fn on_threads(test: fn(&Rig)) {
    let [first, second] = pair(PATIENCE);
    std::thread::scope(|scope| {
        let second = scope.spawn(move || test(&second));
        test(&first);
        second.join().unwrap();
    });
}

macro_rules! behaviours {
    ($($name:ident),* $(,)?) => { $( #[test] fn $name() { on_threads(suite::$name); } )* };
}

behaviours!(
    put_and_get_move_exactly_the_bytes,
    every_small_misalignment,
    packets_bring_exactly_the_bytes,
    elements_are_read_and_written,
    signals_are_counted_and_carry_data,
    packets_ping_pong,
    misuse_is_refused,
);

#[test]
fn waits_time_out_and_say_for_whom() {
    let [rig, _peer] = pair(Duration::from_millis(100));
    let Error::Wait(wait) = rig.channel.wait().unwrap_err() else { panic!("another error") };
    assert_eq!((wait.code(), wait.site.peer, wait.site.object), (ErrorCode::Timeout, Some(1), 40));
    assert_eq!((wait.site.expected, wait.observed), (1, 0));
    let error = rig.channel.unpack_packet::<Ll16>(2, 9).unwrap_err();
    let Error::Wait(wait) = error else { panic!("another error") };
    assert_eq!((wait.id(), wait.site.sequence, wait.site.expected), ("wait.timeout", 2, 9));
}

#[test]
fn a_wait_that_timed_out_took_no_signal() {
    let [rig, peer] = pair(Duration::from_millis(50));
    rig.channel.wait().unwrap_err();
    peer.channel.signal().unwrap();
    rig.channel.wait().unwrap();
    assert!(!rig.channel.poll().unwrap());
}

#[test]
fn failure_ends_waits_and_stops_everything_else() {
    let [rig, _peer] = pair(PATIENCE);
    std::thread::scope(|scope| {
        let signal = scope.spawn(|| rig.channel.wait().unwrap_err());
        let packet = scope.spawn(|| rig.channel.unpack_packet::<Ll16>(0, 1).unwrap_err());
        std::thread::sleep(Duration::from_millis(50));
        rig.waiter.health.abort("enough");
        for error in [signal.join().unwrap(), packet.join().unwrap()] {
            assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
        }
    });
    let all = Share::ALL;
    for error in [
        rig.channel.put(0, 0, 1, all).unwrap_err(),
        rig.channel.get(0, 0, 1, all).unwrap_err(),
        rig.channel.put_packets::<Ll16>(0, 0, 8, all, 1).unwrap_err(),
        rig.channel.read::<u8>(0).unwrap_err(),
        rig.channel.signal().unwrap_err(),
        rig.channel.poll().unwrap_err(),
        rig.channel.wait().unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::Aborted, "{error}");
    }
}

#[test]
fn a_signal_that_came_before_the_failure_counts() {
    let [rig, peer] = pair(PATIENCE);
    peer.channel.signal().unwrap();
    peer.channel.signal().unwrap();
    rig.waiter.health.abort("late");
    rig.channel.wait().unwrap();
    assert!(rig.channel.poll().unwrap());
}

#[test]
fn access_rights_are_the_owners() {
    let [rig, _peer] = pair(PATIENCE);
    let buffer = SharedBuffer::allocate(64).unwrap();
    let channel = |access| {
        let base = rig.channel.channel().base().clone();
        let far = imported(1, buffer.region().unwrap(), access);
        BlockChannel::new(
            &MemoryChannel::on(base, far, rig.channel.channel().source().clone(), None).unwrap(),
        )
        .unwrap()
    };
    let read_only = channel(Access::READ);
    assert_eq!(read_only.put(0, 0, 1, Share::ALL).unwrap_err().id(), "mem.access");
    assert_eq!(read_only.write::<u8>(0, 1).unwrap_err().id(), "mem.access");
    assert_eq!(read_only.put_packets::<Ll16>(0, 0, 8, Share::ALL, 1).unwrap_err().id(), "mem.access");
    read_only.get(0, 0, 64, Share::ALL).unwrap();
    let write_only = channel(Access::WRITE);
    assert_eq!(write_only.get(0, 0, 1, Share::ALL).unwrap_err().id(), "mem.access");
    assert_eq!(write_only.read::<u8>(0).unwrap_err().id(), "mem.access");
    write_only.put(0, 0, 64, Share::ALL).unwrap();
    let error = write_only.unpack_packet::<Ll16>(0, 1).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("channel.no_packet_buffer", Some(1)));
}

#[test]
fn overlapping_copies_are_refused() {
    let [rig, _peer] = pair(PATIENCE);
    let buffer = SharedBuffer::allocate(128).unwrap();
    let (far, near) =
        (imported(1, buffer.region().unwrap(), Access::ALL), local(0, buffer.region().unwrap(), Access::ALL));
    let base = rig.channel.channel().base().clone();
    let channel = BlockChannel::new(&MemoryChannel::on(base, far, near, None).unwrap()).unwrap();
    assert_eq!(channel.put(0, 63, 64, Share::ALL).unwrap_err().id(), "channel.overlap");
    assert_eq!(channel.put(63, 0, 64, Share::ALL).unwrap_err().id(), "channel.overlap");
    assert_eq!(channel.put(5, 5, 1, Share::ALL).unwrap_err().id(), "channel.overlap");
    channel.put(0, 64, 64, Share::ALL).unwrap();
    channel.put(5, 5, 0, Share::ALL).unwrap();
}

#[test]
fn a_channel_needs_local_source_and_mapped_destination() {
    let [rig, _peer] = pair(PATIENCE);
    let channel = rig.channel.channel();
    let (base, far, near) = (channel.base(), channel.destination(), channel.source());
    let error = MemoryChannel::on(base.clone(), far.clone(), far.clone(), None).unwrap_err();
    assert_eq!(error.id(), "mem.side");
    let error = MemoryChannel::on(base.clone(), far.clone(), near.clone(), Some(far.clone())).unwrap_err();
    assert_eq!(error.id(), "mem.side");
    let unmapped = warpway_core::memory::RegisteredMemory::imported(
        far.record().clone(),
        None,
        warpway_core::transport::Transport::SharedMemory.into(),
        Default::default(),
    );
    let error = MemoryChannel::on(base.clone(), unmapped, near.clone(), None).unwrap_err();
    assert_eq!(error.id(), "mem.transport");
}

/// N25: a handle keeps what it points to; a leaked one can be recognised as stale.
#[test]
fn n25_handles_keep_their_channel_and_leaked_ones_go_stale() {
    let [rig, peer] = pair(PATIENCE);
    let Rig { channel, inbox, source, .. } = rig;
    let host = channel.channel().clone();
    drop(channel);
    drop((inbox, source));
    let guard = host.device_handle().unwrap();
    let leaked = host.leak_device_handle().unwrap();
    assert_eq!(leaked, *guard);
    assert_eq!(leaked.destination_size, BUFFER);
    assert_eq!(leaked.to_bytes()[24..32], leaked.destination.to_ne_bytes());
    let liveness = host.liveness().clone();
    let blocks = BlockChannel::new(&host).unwrap();
    drop((host, guard));
    assert!(liveness.is_current(leaked.generation), "the block channel still holds the channel");
    blocks.put(0, 0, BUFFER, Share::ALL).unwrap();
    blocks.signal().unwrap();
    peer.channel.wait().unwrap();
    drop(blocks);
    assert!(!liveness.is_current(leaked.generation));
}

#[test]
fn base_channels_signal_without_memory() {
    let [rig, peer] = pair(PATIENCE);
    let base: &BaseMemoryChannel = rig.channel.channel().base();
    let blocks = warpway_host::BlockSemaphore::new(base).unwrap();
    blocks.signal().unwrap();
    peer.channel.wait().unwrap();
    peer.channel.signal().unwrap();
    blocks.wait().unwrap();
    assert_eq!(blocks.handle().inbound, peer.channel.handle().remote_inbound);
}
