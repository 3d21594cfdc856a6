//! Port channels between ranks, through proxy services.
#![allow(clippy::unwrap_used, reason = "test code, which the lint does not recognise outside of #[test]")]

use std::time::Duration;

use warpway::core::bootstrap::NameFilter;
use warpway::{Communicator, Config, Context, Deadline, ErrorCode, Timeout, Transport, in_process};

fn context() -> Context {
    let mut config = Config::default();
    config.socket_ifname = NameFilter::Exact(vec!["lo".into()]);
    config.device_timeout = Timeout::after(Duration::from_secs(10));
    Context::new(config)
}

fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

#[test]
fn a_semaphore_is_built_and_added_in_one_call() {
    let ring = |comm: &Communicator| {
        let (rank, n) = (comm.rank(), comm.n_ranks());
        let service = comm.proxy_service()?;
        for transport in [Transport::SharedMemory, Transport::Ethernet] {
            let peers = comm.connect_all(Some(transport))?;
            let ids: Vec<_> =
                peers.iter().map(|peer| peer.build_and_add_semaphore(&service)).collect::<Result<_, _>>()?;
            let channels: Vec<_> =
                ids.iter().map(|id| service.base_port_channel(*id)).collect::<Result<_, _>>()?;
            for (peer, channel) in (0..).zip(&channels) {
                assert_eq!(channel.semaphore().connection().peer(), peer);
                // As many signals as the sender's rank and one, so that none is taken for another's.
                for _ in 0..=rank {
                    channel.device_handle().signal()?;
                }
            }
            for (peer, channel) in (0u32..).zip(&channels) {
                for _ in 0..=peer {
                    channel.device_handle().wait()?;
                }
            }
            comm.barrier()?;
            assert!(channels.iter().all(|channel| !channel.device_handle().poll().unwrap()));
        }
        // A connection of the child is none of the parent's.
        let child = comm.split(0, 0)?.unwrap();
        let peers = child.connect_all(None)?;
        let error = service
            .build_and_add_semaphore(comm.core(), peers[((rank + 1) % n) as usize].connection(), limit())
            .unwrap_err();
        assert_eq!((error.id(), error.code()), ("exchange.argument", ErrorCode::InvalidUsage));
        comm.barrier()
    };
    in_process(3, &context(), ring).unwrap();
}
