//! A connection by TCP between two ranks of this host: what an interface and a wire are taken for.

use warpway::Transport;

use super::rank::Rank;

/// Latency and rate of a message.
pub(super) struct Wire {
    /// From the request of one rank to the end of the other's wait.
    pub(super) one_way_ns: f64,
    /// GB/s of large messages.
    pub(super) rate: f64,
}

const SHORT: u64 = 1 << 20;
const LONG: u64 = 1 << 24;

pub(super) fn measure(rank: &Rank) -> anyhow::Result<Wire> {
    let peer = rank.comm().connect_by(1 - rank.comm().rank(), Transport::Ethernet)?;
    let [near, far] = [rank.touched(LONG)?, rank.touched(LONG)?];
    peer.send_memory(&far)?;
    let remote = peer.recv_memory()?;
    let channel = peer.port_channel(&rank.comm().proxy_service()?, &near, &remote)?.device_handle();
    let time = |bytes: u64| -> anyhow::Result<f64> {
        let timing = rank.time(None, || {
            // There and back.
            let send = || match bytes {
                0 => channel.signal().map(drop),
                _ => channel.put_with_signal(0, 0, bytes).map(drop),
            };
            if rank.is_first() {
                send()?;
                channel.wait()
            } else {
                channel.wait()?;
                send()
            }
        })?;
        Ok(timing.median)
    };
    let latency = time(0)? / 2.0;
    let (short, long) = (time(SHORT)? / 2.0, time(LONG)? / 2.0);
    Ok(Wire { one_way_ns: latency, rate: (LONG - SHORT) as f64 / (long - short).max(1.0) })
}
