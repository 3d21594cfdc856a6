use super::*;
use crate::error::{Error, ErrorCode};
use crate::memory::Region;
use crate::wire::SlotId;

fn with_capacity(job: &LocalJob, rank: u32, publication_capacity: usize) -> Communicator {
    let engine = Arc::new(LocalEngine::new(Transport::SharedMemory));
    let parts = job.parts(rank, vec![engine]);
    let config = CommunicatorConfig { publication_capacity, ..parts.config };
    Communicator::new(CommunicatorParts { config, ..parts }).unwrap()
}

/// A region that does not keep its mapping, as for memory of somebody else; the mapping comes along.
fn borrowed(size: u64) -> (Region, Region) {
    let owner = allocate(size).unwrap();
    let (address, device, backing) = (owner.address(), owner.device(), owner.backing().cloned());
    // SAFETY: the caller keeps `owner` as long as the region.
    (unsafe { Region::new(address, size, device, backing, None) }.unwrap(), owner)
}

#[test]
fn peers_find_what_an_owner_publishes_without_being_asked() {
    let job = LocalJob::of_processes(3);
    let ranks: Vec<_> = (0..3).map(|rank| communicator(&job, rank)).collect();
    let buffer = memory(&ranks[0], 4095);
    write(&buffer, 0, &[0x5A; 4095]);
    let publication = ranks[0].publish(&buffer).unwrap();
    publication.wait_acknowledged(patience()).unwrap();
    for peer in &ranks[1..] {
        let found = peer.published(0, publication.slot(), Deadline::after(Duration::ZERO)).unwrap();
        assert_eq!((found.owner(), found.size()), (0, 4095));
        // Apart from what the peers before this one have written.
        let marks = u64::from(peer.rank());
        assert!(read(&found, marks, 4095 - marks) == vec![0x5A; 4095 - marks as usize]);
        write(&found, u64::from(peer.rank()), &[peer.rank() as u8]);
    }
    assert_eq!(read(&buffer, 0, 4), [0x5A, 1, 2, 0x5A], "it is the same memory");
    let own = ranks[0].published(0, publication.slot(), briefly()).unwrap();
    assert_eq!(own.data(), buffer.data());

    // Nothing there: a bounded wait that says for what.
    let nothing = SlotId { slot: 77, generation: 1 };
    let error = ranks[1].published(0, nothing, briefly()).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("wait.timeout", Some(0)));
    assert!(error.to_string().contains("of memory 77 (generation 1)"), "{error}");
}

#[test]
fn one_range_is_one_slot_however_often_it_is_published() {
    let job = LocalJob::of_processes(3);
    let engines: Vec<_> = (0..3).map(|_| Arc::new(LocalEngine::new(Transport::SharedMemory))).collect();
    let ranks: Vec<_> = (0..3)
        .map(|rank| Communicator::new(job.parts(rank, vec![engines[rank as usize].clone()])).unwrap())
        .collect();
    let buffer = memory(&ranks[0], 1000);
    let first = ranks[0].publish_to(&buffer, &[1]).unwrap();
    first.wait_acknowledged(patience()).unwrap();
    let second = ranks[0].publish(&buffer).unwrap();
    second.wait_acknowledged(patience()).unwrap();
    assert_eq!(first.slot(), second.slot());
    // Given up by all, kept, taken back: nobody maps again.
    drop((first, second));
    let third = ranks[0].publish(&buffer).unwrap();
    third.wait_acknowledged(patience()).unwrap();
    assert_eq!((engines[1].imports(), engines[2].imports()), (1, 1));
    assert!(ranks[2].published(0, third.slot(), briefly()).is_ok());
    // Another part of the same buffer is another range.
    let part = buffer.region().unwrap().slice(8, 100).unwrap();
    let part = ranks[0].register_memory(part, Transport::SharedMemory.into(), Access::ALL).unwrap();
    assert_ne!(ranks[0].publish(&part).unwrap().slot(), third.slot());
}

/// The owner's memory goes only after every user has let go.
#[test]
fn a_withdrawn_buffer_waits_for_those_who_use_it() {
    let job = LocalJob::of_processes(3);
    let ranks: Vec<_> = (0..3).map(|rank| communicator(&job, rank)).collect();
    let buffer = memory(&ranks[0], 17);
    let weak = buffer.downgrade();
    let publication = ranks[0].publish(&buffer).unwrap();
    let slot = publication.slot();
    let user = ranks[1].published(0, slot, patience()).unwrap();
    publication.wait_acknowledged(patience()).unwrap();
    drop(buffer);

    let another = publication.clone();
    publication.withdraw(patience()).unwrap();
    assert!(ranks[1].published(0, slot, briefly()).is_ok(), "another handle still holds it");

    let error = another.withdraw(briefly()).unwrap_err();
    match &error {
        Error::Exchange(ExchangeError::Unacknowledged { rank: 0, waiting, .. }) => {
            assert!(waiting.contains(&1), "{waiting:?}");
        }
        other => panic!("{other}"),
    }
    assert_eq!(error.code(), ErrorCode::Timeout);
    eventually("withdrawal at rank 1", || ranks[1].published(0, slot, briefly()).is_err());
    assert_eq!(ranks[1].published(0, slot, briefly()).unwrap_err().id(), "exchange.withdrawn");
    assert!(weak.upgrade().is_some(), "rank 1 uses it");
    assert_eq!(read(&user, 0, 17), [0; 17]);
    drop(user);
    eventually("end of the registration", || weak.upgrade().is_none());

    // The slot is used again, under another generation.
    let next = ranks[0].publish(&memory(&ranks[0], 18)).unwrap();
    assert_eq!(next.slot(), SlotId { generation: slot.generation + 1, ..slot });
    assert_eq!(ranks[2].published(0, next.slot(), patience()).unwrap().size(), 18);
    assert_eq!(ranks[2].published(0, slot, briefly()).unwrap_err().id(), "exchange.withdrawn");
}

#[test]
fn the_least_recently_used_buffer_makes_room() {
    let job = LocalJob::of_processes(2);
    let owner = with_capacity(&job, 0, 3);
    let peer = communicator(&job, 1);
    let buffers: Vec<_> = (1..=3).map(|size| memory(&owner, size)).collect();
    let slots: Vec<_> = buffers.iter().map(|buffer| owner.publish(buffer).unwrap().slot()).collect();
    // Use the first again; the second is now the oldest.
    let held = owner.publish(&buffers[0]).unwrap();
    let fourth = owner.publish(&memory(&owner, 4)).unwrap();
    assert_eq!(peer.published(0, fourth.slot(), patience()).unwrap().size(), 4);
    eventually("eviction", || {
        peer.published(0, slots[1], briefly()).is_err_and(|error| error.id() == "exchange.withdrawn")
    });
    assert_eq!(peer.published(0, held.slot(), briefly()).unwrap().size(), 1);
    assert_eq!(peer.published(0, slots[2], briefly()).unwrap().size(), 3);

    let third = owner.publish(&buffers[2]).unwrap();
    let error = owner.publish(&memory(&owner, 5)).unwrap_err();
    assert_eq!(error.id(), "exchange.slots_in_use");
    drop(third);
    // Many more buffers than slots, each found by the peer.
    for size in 10..110 {
        let publication = owner.publish(&memory(&owner, size)).unwrap();
        assert_eq!(peer.published(0, publication.slot(), patience()).unwrap().size(), size);
    }
    assert!(owner.async_error().is_none() && peer.async_error().is_none());
}

#[test]
fn borrowed_memory_is_withdrawn_at_once() {
    let job = LocalJob::of_processes(2);
    let (owner, peer) = (communicator(&job, 0), communicator(&job, 1));
    let (region, mapping) = borrowed(64);
    let buffer = owner.register_memory(region, Transport::SharedMemory.into(), Access::ALL).unwrap();
    let publication = owner.publish(&buffer).unwrap();
    let slot = publication.slot();
    publication.wait_acknowledged(patience()).unwrap();
    let weak = buffer.downgrade();
    drop(buffer);
    drop(publication);
    eventually("withdrawal", || peer.published(0, slot, briefly()).is_err());
    eventually("end of the registration", || weak.upgrade().is_none());
    drop(mapping);
}

#[test]
fn a_peer_that_cannot_map_says_so() {
    let job = LocalJob::with_peers(|rank| (u64::from(rank), u64::from(rank)), 2);
    let (owner, peer) = (communicator(&job, 0), communicator(&job, 1));
    let publication = owner.publish(&memory(&owner, 8)).unwrap();
    let error = publication.wait_acknowledged(patience()).unwrap_err();
    assert_eq!((error.id(), error.peer()), ("exchange.import_refused", Some(1)));
    assert!(error.to_string().contains("another host"), "{error}");
    let found = peer.published(0, publication.slot(), patience()).unwrap_err();
    assert_eq!(found.id(), "mem.import");
    publication.withdraw(patience()).unwrap();
}

#[test]
fn an_owner_is_not_held_up_by_ranks_that_are_silent_leave_or_die() {
    // Rank 1 exists but has no communicator yet.
    let job = LocalJob::of_processes(3);
    let (owner, third) = (communicator(&job, 0), communicator(&job, 2));
    let publication = owner.publish(&memory(&owner, 8)).unwrap();
    third.published(0, publication.slot(), patience()).unwrap();
    match publication.wait_acknowledged(briefly()).unwrap_err() {
        Error::Exchange(ExchangeError::Unacknowledged { waiting, .. }) => assert!(waiting.contains(&1)),
        other => panic!("{other}"),
    }
    // It comes late and finds what was published before.
    let late = communicator(&job, 1);
    publication.wait_acknowledged(patience()).unwrap();
    late.published(0, publication.slot(), briefly()).unwrap();
    // It leaves with the buffer in use: no need to wait for it.
    let used = late.published(0, publication.slot(), briefly()).unwrap();
    drop(late);
    publication.withdraw(patience()).unwrap();
    drop(used);
    // A death ends waits with the culprit's name.
    let publication = owner.publish_to(&memory(&owner, 9), &[2]).unwrap();
    job.kill(2);
    eventually("the news", || owner.async_error().is_some());
    let error = publication.withdraw(patience()).err();
    assert!(error.is_none_or(|error| error.peer() == Some(2)));
}

#[test]
fn owners_and_users_come_and_go_at_the_same_time() {
    let job = LocalJob::of_processes(4);
    on_ranks(&job, |comm| {
        let me = u64::from(comm.rank());
        // Three threads publish and withdraw the same four buffers while the peers look for them.
        let buffers: Vec<_> = (0..4).map(|k| memory(&comm, 1 + 4 * me + k)).collect();
        std::thread::scope(|scope| {
            for thread in 0..3usize {
                let (comm, buffers) = (&comm, &buffers);
                scope.spawn(move || {
                    for round in 0..25usize {
                        let buffer = &buffers[(thread + round) % 4];
                        let publication = comm.publish(buffer).unwrap();
                        publication.wait_acknowledged(patience()).unwrap();
                        if round % 3 == 0 {
                            publication.withdraw(patience()).unwrap();
                        }
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..200u64 {
                    let owner = (comm.rank() + 1 + (round % 3) as u32) % comm.n_ranks();
                    let slot = SlotId { slot: round % 5, generation: round / 40 };
                    let now = Deadline::after(Duration::from_millis(1));
                    if let Ok(found) = comm.published(owner, slot, now) {
                        assert_eq!((found.size() - 1) / 4, u64::from(owner));
                    }
                }
            });
        });
        comm.barrier(patience()).unwrap();
        assert!(comm.async_error().is_none(), "{:?}", comm.async_error());
    });
}
