//! Two ranks of a communicator as threads of this process, each on its GPU, which measure when they are told to.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use warpway::core::channel::PortChannelHandle;
use warpway::core::gpu::GpuError;
use warpway::{Buffer, Communicator, Context, EndpointConfig, Gpu, Result, Transport, in_process};
use warpway_cuda::PortConfig;
use warpway_cuda::bench::{Messages, PortEnd};

use super::turns::Run;

/// The longest job: everything in it ends by deadlines of its own, which come first.
const PATIENCE: Duration = Duration::from_secs(120);

/// What both ranks do at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Job {
    /// 8 bytes back and forth; samples are µs, one way.
    Flight { rounds: u64 },
    /// Messages from rank 0, and from rank 1 as many as are awaited; the sample is GB/s of the slower direction.
    Stream { carrier: Carrier, messages: Messages },
}

/// By what a port channel carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    CopyEngine,
    /// Memory of the GPUs by TCP.
    DeviceTcp,
    /// Memory of the host by TCP; host threads ask instead of kernels.
    HostTcp,
}

/// The ranks, seen from the thread that takes the turns.
pub(super) struct Ranks {
    jobs: [Sender<Job>; 2],
    results: Receiver<Result<Run>>,
}

impl Ranks {
    /// Starts the ranks, lets `work` use them, and ends them. Messages are at most as long as said, by TCP as `tcp_bytes`.
    pub(super) fn with(
        context: &Context,
        devices: [i32; 2],
        most_bytes: u64,
        tcp_bytes: u64,
        work: impl FnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (sender, results) = channel();
        let [(first, for_first), (second, for_second)] = [channel(), channel()];
        let (sender, inboxes) = (Mutex::new(sender), [for_first, for_second].map(Mutex::new));
        let ranks = Self { jobs: [first, second], results };
        std::thread::scope(|scope| {
            // Owns its ends of the channels: they close when the ranks have ended, however they have.
            let main = move |comm: &Communicator| {
                let at = comm.rank() as usize;
                let inbox = inboxes[at].lock().unwrap_or_else(PoisonError::into_inner);
                let sender = sender.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // The rank's device is the one that is current.
                let device = comm.context().devices().context(devices[at])?;
                let _entered = device.enter()?;
                let ends = Ends::new(comm, most_bytes, tcp_bytes)?;
                ends.serve(&inbox, &sender)
            };
            let running = scope.spawn(move || in_process(2, context, main));
            let worked = ranks
                .both_ready()
                .map_or_else(|_| Err(anyhow!("the ranks have not come up")), |()| work(&ranks));
            drop(ranks);
            let ended = running.join().map_err(|_| anyhow!("a rank's thread panicked"))?;
            // What has ended the ranks is the reason for everything that came of it.
            ended.map(drop).map_err(anyhow::Error::from).and(worked)
        })
    }

    fn both_ready(&self) -> Result<(), RecvTimeoutError> {
        (0..2).try_for_each(|_| self.results.recv_timeout(PATIENCE).map(drop))
    }

    /// Lets both do a job; samples of both.
    pub(super) fn both(&self, job: Job) -> Result<Run> {
        let gone = || GpuError::Device {
            what: "measuring between two ranks".into(),
            device: 0,
            why: "they have ended, for the reason given at set-up".into(),
            hint: None,
        };
        for rank in &self.jobs {
            rank.send(job).map_err(|_| gone())?;
        }
        let results: Vec<Result<Run>> = (0..2)
            .map(|_| self.results.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(gone().into())))
            .collect();
        let mut both = Run { samples: Vec::new(), wrong: 0 };
        for result in results {
            let run = result?;
            both.samples.extend(run.samples);
            both.wrong += run.wrong;
        }
        if let Job::Stream { .. } = job {
            both.samples = both.samples.into_iter().reduce(f64::min).into_iter().collect();
        }
        Ok(both)
    }
}

/// One rank's ends of all channels.
struct Ends<'c> {
    comm: &'c Communicator,
    copy_engine: PortEnd,
    device_tcp: PortEnd,
    host_tcp: HostEnd,
}

impl<'c> Ends<'c> {
    fn new(comm: &'c Communicator, most_bytes: u64, tcp_bytes: u64) -> Result<Self> {
        let gpu = comm.gpu()?;
        let copy_engine = port_end(comm, &gpu, most_bytes, Transport::CudaIpc)?;
        let device_tcp = port_end(comm, &gpu, tcp_bytes, Transport::Ethernet)?;
        Ok(Self { comm, copy_engine, device_tcp, host_tcp: HostEnd::new(comm, tcp_bytes)? })
    }

    /// Until nobody sends jobs any more.
    fn serve(&self, jobs: &Receiver<Job>, results: &Sender<Result<Run>>) -> Result<()> {
        // Nobody listens if the other rank has failed; then the barrier does.
        let tell = |result| drop(results.send(result));
        self.comm.barrier()?;
        tell(Ok(Run { samples: Vec::new(), wrong: 0 }));
        for (seed, job) in (1..).zip(jobs) {
            let done = match job {
                Job::Flight { rounds } => {
                    self.copy_engine.flight(rounds, self.comm.rank() == 0).map(Run::from)
                }
                Job::Stream { carrier, messages } => stream(self.comm, self.end(carrier), messages, seed),
            };
            let failure = done.as_ref().err().cloned();
            tell(done);
            // Ends the other rank's waits, too.
            failure.map_or(Ok(()), Err)?;
        }
        self.comm.barrier()
    }

    fn end(&self, carrier: Carrier) -> &dyn End {
        match carrier {
            Carrier::CopyEngine => &self.copy_engine,
            Carrier::DeviceTcp => &self.device_tcp,
            Carrier::HostTcp => &self.host_tcp,
        }
    }
}

/// New data, messages as rank 0 sends them, and a look at what has come. The sample is the rate of what this rank has sent.
fn stream(comm: &Communicator, end: &dyn End, messages: Messages, seed: u64) -> Result<Run> {
    let Messages { bytes, sent, awaited, .. } = messages;
    let rank = comm.rank();
    let messages = if rank == 0 { messages } else { Messages { sent: awaited, awaited: sent, ..messages } };
    let [own, others] = [rank, 1 - rank].map(|rank| 2 * seed + u64::from(rank));
    // What is first used is slower, so a few go ahead; then nothing of them is left.
    let few = |count: u64| count.min(2);
    let first = Messages { sent: few(messages.sent), awaited: few(messages.awaited), ..messages };
    end.refill(bytes, own)?;
    comm.barrier()?;
    end.send(first)?;
    comm.barrier()?;
    end.refill(bytes, own)?;
    comm.barrier()?;
    let us = end.send(messages)?;
    comm.barrier()?;
    let wrong = if messages.awaited == 0 { 0 } else { end.wrong(bytes, others)? };
    let samples = if messages.sent == 0 { vec![] } else { vec![bytes as f64 / us / 1e3] };
    Ok(Run { samples, wrong })
}

fn port_end(comm: &Communicator, gpu: &Gpu, bytes: u64, by: Transport) -> Result<PortEnd> {
    let ports = gpu.port_service(&PortConfig::default())?;
    let endpoint = EndpointConfig { transport: by, device: gpu.device(), ..EndpointConfig::default() };
    let peer = comm.connect_endpoint(1 - comm.rank(), endpoint)?;
    let words = bytes.div_ceil(8) + PortEnd::CANARIES;
    let (source, received) = (gpu.alloc_for(words, by.into())?, gpu.alloc_for(words, by.into())?);
    let remote = peer.exchange_memory(&received)?;
    let channel = peer.port_channel(ports.service(), &source, &remote)?;
    PortEnd::new(gpu, ports.port_channel(&channel)?, source, received)
}

/// What the ends of all carriers do.
trait End {
    fn refill(&self, bytes: u64, seed: u64) -> Result<()>;
    /// Microseconds per message.
    fn send(&self, messages: Messages) -> Result<f64>;
    fn wrong(&self, bytes: u64, seed: u64) -> Result<u64>;
}

impl End for PortEnd {
    fn refill(&self, bytes: u64, seed: u64) -> Result<()> {
        self.refill(bytes, seed)
    }

    fn send(&self, messages: Messages) -> Result<f64> {
        self.send(messages)
    }

    fn wrong(&self, bytes: u64, seed: u64) -> Result<u64> {
        self.wrong(bytes, seed)
    }
}

/// The host engine's end.
struct HostEnd {
    source: Buffer<u64>,
    received: Buffer<u64>,
    channel: PortChannelHandle,
}

impl HostEnd {
    fn new(comm: &Communicator, bytes: u64) -> Result<Self> {
        let peer = comm.connect_by(1 - comm.rank(), Transport::Ethernet)?;
        let words = bytes.div_ceil(8) + PortEnd::CANARIES;
        let (source, received) = (comm.alloc(words)?, comm.alloc(words)?);
        let remote = peer.exchange_memory(&received)?;
        let channel = peer.port_channel(&comm.proxy_service()?, &source, &remote)?.device_handle();
        Ok(Self { source, received, channel })
    }
}

impl End for HostEnd {
    fn refill(&self, bytes: u64, seed: u64) -> Result<()> {
        let words: Vec<u64> = (0..bytes / 8).map(|at| word(seed, at)).collect();
        self.source.write(0, &words)?;
        Ok(self.received.fill(u64::MAX)?)
    }

    fn send(&self, messages: Messages) -> Result<f64> {
        let Messages { bytes, sent, awaited, flush_each } = messages;
        // As kernels do: both start when both are there.
        self.channel.signal()?;
        self.channel.wait()?;
        let begin = Instant::now();
        for _ in 0..sent {
            self.channel.put_with_signal(0, 0, bytes)?;
            if flush_each {
                self.channel.flush()?;
            }
        }
        self.channel.flush()?;
        let elapsed = begin.elapsed().as_secs_f64() * 1e6;
        (0..awaited).try_for_each(|_| self.channel.wait())?;
        Ok(elapsed / sent.max(1) as f64)
    }

    fn wrong(&self, bytes: u64, seed: u64) -> Result<u64> {
        let found = self.received.to_vec()?;
        let last = bytes / 8;
        let right = |at: u64| if at < last { word(seed, at) } else { u64::MAX };
        Ok((0..).zip(found).filter(|(at, found)| *found != right(*at)).count() as u64)
    }
}

/// No two words of a buffer, and no two seeds, have the same.
fn word(seed: u64, at: u64) -> u64 {
    (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (seed << 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 100_008;

    fn host(messages: Messages) -> Vec<(usize, u64, bool)> {
        let context = Context::new(warpway::Config::default());
        in_process(2, &context, |comm| {
            let end = HostEnd::new(comm, BYTES)?;
            let mut all = Run { samples: vec![], wrong: 0 };
            for seed in 1..4 {
                let run = stream(comm, &end, messages, seed)?;
                all.samples.extend(run.samples);
                all.wrong += run.wrong;
            }
            // Older data is not taken for newer.
            let stale = end.wrong(messages.bytes, 2 + u64::from(1 - comm.rank()))?;
            Ok((all.samples.len(), all.wrong, stale == messages.bytes / 8))
        })
        .unwrap()
    }

    #[test]
    fn what_arrives_is_checked_word_by_word() {
        for (bytes, flush_each) in [(BYTES, false), (4096, true), (8, false)] {
            let both = host(Messages { bytes, sent: 3, awaited: 3, flush_each });
            assert_eq!(both, [(3, 0, true), (3, 0, true)], "{bytes}");
        }
    }

    #[test]
    fn one_way_only_rank_0_has_samples() {
        let one = host(Messages { bytes: 4096, sent: 2, awaited: 0, flush_each: false });
        // Nothing came to rank 0: its memory still holds nothing of the peer's.
        assert_eq!(one, [(3, 0, true), (0, 0, true)]);
    }

    #[test]
    fn words_behind_a_message_are_looked_at() {
        let context = Context::new(warpway::Config::default());
        let wrong = in_process(1, &context, |comm| {
            let received = comm.alloc(40)?;
            let channel = {
                let peer = comm.connect(0)?;
                peer.port_channel(&comm.proxy_service()?, &received, received.memory())?.device_handle()
            };
            let end = HostEnd { source: comm.alloc(40)?, received, channel };
            end.refill(64, 1)?;
            let mut all = vec![end.wrong(64, 1)?];
            end.received.write(0, &(0..8).map(|at| word(1, at)).collect::<Vec<_>>())?;
            all.push(end.wrong(64, 1)?);
            end.received.write(8, &[0])?;
            all.push(end.wrong(64, 1)?);
            end.received.write(3, &[word(2, 3)])?;
            all.push(end.wrong(64, 1)?);
            Ok(all)
        });
        assert_eq!(wrong.unwrap(), [[8, 0, 1, 2]]);
    }
}
