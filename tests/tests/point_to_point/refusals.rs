//! Calls that are refused, and messages that do not fit.

use std::time::Duration;

use warpway::{Communicator, Error, Result, in_process_with};
use warpway_tests::on_hosts;

/// What each rank's main function ended with.
fn ends(hosts: &[u32], seconds: u64, main: impl Fn(&Communicator) -> Result<()> + Sync) -> Vec<Result<()>> {
    let contexts = on_hosts(hosts, Duration::from_secs(seconds));
    in_process_with(&contexts, |comm| Ok(main(comm))).unwrap()
}

fn error(result: &Result<()>) -> &Error {
    result.as_ref().unwrap_err()
}

/// Calls of rank 0 that end with an error, and leave the communicator as it is.
#[test]
fn nothing_has_happened_after_a_call_that_is_wrong_in_itself() {
    let results = ends(&[0, 0], 60, |comm| {
        if comm.rank() == 0 {
            let data = comm.alloc::<u32>(10)?;
            let mut come = [0u32; 4];
            let id = |result: Result<()>| result.unwrap_err().id();
            assert_eq!(id(comm.send(&[1u8], 2)), "bootstrap.peer");
            assert_eq!(id(comm.recv(&mut come, u32::MAX)), "bootstrap.peer");
            assert_eq!(id(comm.send(&[1u8], 0)), "p2p.alone");
            assert_eq!(id(comm.recv(&mut come, 0)), "p2p.alone");
            assert_eq!(id(comm.send(data.part(8, 3), 1)), "mem.bounds");
            assert_eq!(id(comm.send(data.part(u64::MAX, 3), 1)), "mem.bounds");
            let overlap = comm.group(|group| {
                group.send(data.part(0, 3), 1)?;
                group.recv(data.part(3, 4), 1)?;
                group.recv(data.part(6, 2), 1)
            });
            let text = overlap.unwrap_err().to_string();
            let expected = "rank 0: members 1 and 2 of the group share 4 bytes, which the group receives into; give \
                            each receive memory of its own";
            assert_eq!(text, expected);
            let in_place = comm.send_recv(data.part(0, 3), 1, data.part(2, 3), 1);
            assert_eq!(id(in_place), "p2p.overlap");
            // Two sends of the same bytes are fine, but the group has a send too many to this rank.
            let alone = comm.group(|group| {
                group.send(data.part(0, 3), 0)?;
                group.send(data.part(0, 3), 0)?;
                group.recv(&mut come[..3], 0)
            });
            assert_eq!(id(alone), "p2p.alone");
            let own = comm.group(|group| {
                group.send(data.part(0, 3), 0)?;
                group.recv(&mut come, 0)
            });
            assert_eq!(id(own), "p2p.mismatch");
            let refused = comm.group(|group| {
                group.send(&[1u8], 1)?;
                group.then(|_| panic!("nothing runs"))?;
                Err::<(), Error>(comm.send(&[1u8], 9).unwrap_err())
            });
            assert_eq!(id(refused), "bootstrap.peer");
            assert!(comm.async_error().is_none());
            comm.send(&[77u8], 1)
        } else {
            let mut come = [0u8];
            comm.recv(&mut come, 0)?;
            assert_eq!(come, [77]);
            Ok(())
        }
    });
    results.iter().for_each(|result| result.clone().unwrap());
}

/// Sizes of the send and of the receive that do not fit; small, in chunks, offered.
fn sizes_differ(hosts: &[u32], sent: u64, received: u64, registered: bool) {
    let what = format!("{hosts:?}: {sent} and {received} bytes, registered: {registered}");
    let results = ends(hosts, 60, |comm| {
        let fill = comm.alloc::<u8>(sent.max(received).max(1))?;
        if comm.rank() == 0 {
            comm.send(&[5u8], 1)?;
            match registered {
                true => comm.send(fill.part(0, sent), 1)?,
                false => comm.send(&vec![1u8; sent as usize], 1)?,
            }
            // Small messages have left by then: the next call tells.
            comm.recv(&mut [0u8], 1)
        } else {
            comm.recv(&mut [0u8], 0)?;
            let mut come = vec![9u8; received as usize];
            let result = comm.recv(&mut come, 0);
            assert!(come.iter().all(|byte| *byte == 9), "{what}: written");
            result
        }
    });
    let described = |bytes: u64| format!("{bytes} bytes of uint8");
    for (rank, result) in results.iter().enumerate() {
        let error = error(result);
        assert_eq!((error.id(), error.peer()), ("p2p.mismatch", Some(1 - rank as u32)), "{what}: {error}");
        let text = error.to_string();
        let begin = match rank {
            0 => {
                format!("rank 0 sends {} to rank 1, which receives {}", described(sent), described(received))
            }
            _ => format!(
                "rank 1 receives {} from rank 0, which sends {}",
                described(received),
                described(sent)
            ),
        };
        assert!(
            text.starts_with(&begin) && text.contains("message 2 from rank 0 to rank 1"),
            "{what}: {text}"
        );
    }
}

#[test]
fn sizes_that_differ_are_named_on_both_sides() {
    for (sent, received) in
        [(8, 4), (0, 1), (1, 0), (40, 41), (100_000, 8), (8, 100_000), (3 << 20, (3 << 20) + 1)]
    {
        sizes_differ(&[0, 0], sent, received, false);
        sizes_differ(&[0, 0], sent, received, true);
    }
    sizes_differ(&[0, 1], 1 << 20, 1, true);
    sizes_differ(&[0, 1], 100_000, 100_001, false);
}

#[test]
fn types_that_differ_are_named_on_both_sides() {
    let results = ends(&[0, 0], 60, |comm| match comm.rank() {
        0 => {
            comm.send(&[1.0f32, 2.0], 1)?;
            comm.recv(&mut [0u8], 1)
        }
        _ => comm.recv(&mut [0u32; 2], 0),
    });
    for (rank, result) in results.iter().enumerate() {
        let text = error(result).to_string();
        let begin = match rank {
            0 => "rank 0 sends 8 bytes of float32 to rank 1, which receives 8 bytes of uint32",
            _ => "rank 1 receives 8 bytes of uint32 from rank 0, which sends 8 bytes of float32",
        };
        assert!(text.starts_with(begin), "{text}");
    }
}

/// A receive that nobody sends anything for, in a group with one that is served.
#[test]
fn a_wait_that_gives_up_names_its_peer_and_breaks_the_communicator() {
    for hosts in [[0, 0, 0], [0, 1, 2]] {
        let results = ends(&hosts, 1, |comm| match comm.rank() {
            0 => {
                let (mut first, mut second) = ([0u8; 3], [0u8; 5]);
                comm.group(|group| {
                    group.recv(&mut first, 2)?;
                    group.recv(&mut second, 1)
                })
            }
            // Talks with rank 0, but sends nothing.
            1 => {
                let mut come = [0u8];
                std::thread::sleep(Duration::from_millis(300));
                comm.recv(&mut come, 0)
            }
            _ => comm.send(&[1u8, 2, 3], 0),
        });
        let waited = error(&results[0]);
        assert_eq!((waited.id(), waited.culprit()), ("wait.timeout", Some(1)), "{waited}");
        assert!(waited.to_string().contains("rank 0: recv for rank 1 (message 1, in bytes)"), "{waited}");
        assert!(waited.to_string().contains("expected 5, observed 0"), "{waited}");
        assert!(error(&results[1]).id() == "wait.timeout" || error(&results[1]).id() == "peer.failed");
        results[2].clone().unwrap();
    }
}

/// The peer waits for something else.
#[test]
fn a_peer_in_another_call_is_named_within_the_deadline() {
    let results = ends(&[0, 0], 1, |comm| match comm.rank() {
        0 => comm.recv(&mut [0u8; 3], 1),
        _ => comm.barrier(),
    });
    let waited = error(&results[0]);
    assert_eq!((waited.id(), waited.culprit()), ("wait.timeout", Some(1)), "{waited}");
    assert!(results[1].is_err());
}

/// What has been sent before a rank leaves is received; after that it is said who is not there.
#[test]
fn a_peer_that_leaves_is_named() {
    for hosts in [[0, 0], [0, 1]] {
        let contexts = on_hosts(&hosts, Duration::from_secs(60));
        let results = in_process_with(&contexts, |comm| {
            // The last clone of a communicator of its own: dropping it is leaving.
            let part = comm.split(0, 0)?.unwrap();
            if comm.rank() == 1 {
                part.send(&[1u8, 2, 3], 0)?;
                drop(part);
                comm.barrier()?;
                return Ok(None);
            }
            let mut come = [0u8; 3];
            part.recv(&mut come, 1)?;
            assert_eq!(come, [1, 2, 3]);
            let error = part.recv(&mut come, 1).unwrap_err();
            comm.barrier()?;
            Ok(Some((error.id(), error.culprit())))
        });
        assert_eq!(results.unwrap(), [Some(("peer.left", Some(1))), None]);
    }
}
