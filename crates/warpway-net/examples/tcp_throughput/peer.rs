//! The two processes: the client (rank 0) starts the server (rank 1); they exchange handles as lines of text.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use warpway_core::connection::Connection;
use warpway_core::endpoint::{Endpoint, EndpointConfig};
use warpway_core::engine::{Engine, EngineContext, Members};
use warpway_core::memory::{Access, EthernetExport, ImportReport, MemoryRecord, Region, RegisteredMemory};
use warpway_core::testing::{LocalJob, allocate};
use warpway_core::token::TOKEN_BYTES;
use warpway_core::trace::{FlightRecorder, Operation};
use warpway_core::transport::{Device, Transport, TransportFlags};
use warpway_core::wait::{WaitPolicy, WaitSite, Waiter};
use warpway_core::{Deadline, Health, Timeout};
use warpway_net::TcpEngine;

const LIMIT: Duration = Duration::from_secs(60);

/// One rank with its engine.
struct Rank {
    engine: TcpEngine,
    context: EngineContext,
    _job: LocalJob,
    number: u32,
}

impl Rank {
    fn new(number: u32) -> Self {
        let job = LocalJob::of_processes(2);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Two ranks with two threads each want a core.
        let policy = WaitPolicy::for_load(6, cores);
        let waiter = Waiter::new(Arc::new(Health::new(number)), Arc::new(FlightRecorder::new(64)), policy);
        let context = EngineContext { control: job.control(number), waiter, members: Members::new(&[0, 1]) };
        Self { engine: TcpEngine::new(), context, _job: job, number }
    }

    fn register(&self, size: u64, access: Access) -> Result<RegisteredMemory> {
        let region = allocate(size)?;
        let export = self.engine.export(&self.context, &region, access)?;
        let record = record(self.number, size, access, export.ethernet.clone());
        Ok(RegisteredMemory::local(record, region, vec![export]))
    }

    fn connect(&self, local: Endpoint, remote: Endpoint) -> Result<Connection> {
        let raw = self.engine.connect(&self.context, &local, &remote, Deadline::after(LIMIT))?;
        Ok(Connection::new(raw, local, remote, 1 - self.number, self.context.waiter.clone()))
    }

    /// Waits until the token's counter reaches `value`.
    fn wait(&self, tokens: &RegisteredMemory, value: u64) -> Result<()> {
        let token = tokens.token("wait", 0)?;
        let site = || WaitSite {
            operation: Operation::Wait,
            peer: Some(1 - self.number),
            object: 0,
            sequence: value,
            expected: value,
        };
        let poll = || if token.load() >= value { Ok(()) } else { Err(token.load()) };
        Ok(self.context.waiter.wait(site, Timeout::after(LIMIT), Some(token.event()), poll)?)
    }
}

fn record(owner: u32, size: u64, access: Access, ethernet: Option<EthernetExport>) -> MemoryRecord {
    MemoryRecord {
        owner,
        original_address: 0,
        size,
        host: 1,
        process: 100 + u64::from(owner),
        device: Device::CPU,
        device_uuid: [0; 16],
        offset: 0,
        allocation_size: size,
        transports: Transport::Ethernet.into(),
        access,
        shared: None,
        gpu: None,
        ethernet,
    }
}

const TOKENS: fn() -> Access = || Access::ALL | Access::TOKENS;

/// What each side tells the other.
struct Card {
    endpoint: u64,
    addresses: Vec<SocketAddr>,
    /// Ids of data and tokens in the sender's table.
    memories: [u64; 2],
}

impl Card {
    fn of(endpoint: &Endpoint, data: &RegisteredMemory, tokens: &RegisteredMemory) -> Self {
        let id = |m: &RegisteredMemory| m.record().ethernet.as_ref().map_or(0, |e| e.memory_id);
        Self {
            endpoint: endpoint.id,
            addresses: endpoint.addresses.clone(),
            memories: [id(data), id(tokens)],
        }
    }

    fn line(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(SocketAddr::to_string).collect();
        format!("{} {} {} {}\n", self.endpoint, self.memories[0], self.memories[1], addresses.join(","))
    }

    fn parse(line: &str) -> Result<Self> {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [endpoint, data, tokens, addresses] = fields[..] else { anyhow::bail!("bad card {line:?}") };
        Ok(Self {
            endpoint: endpoint.parse()?,
            addresses: addresses.split(',').map(str::parse).collect::<Result<_, _>>()?,
            memories: [data.parse()?, tokens.parse()?],
        })
    }

    fn endpoint(&self, owner: u32, like: &Endpoint) -> Endpoint {
        Endpoint { owner, id: self.endpoint, addresses: self.addresses.clone(), ..like.clone() }
    }

    fn memory(&self, owner: u32, which: usize, size: u64, access: Access) -> RegisteredMemory {
        let ethernet = Some(EthernetExport { memory_id: self.memories[which] });
        let record = record(owner, size, access, ethernet);
        let transports = TransportFlags::from(Transport::Ethernet);
        RegisteredMemory::imported(record, None, transports, ImportReport::default())
    }
}

/// The first process.
pub(crate) struct Client {
    rank: Rank,
    connection: Connection,
    source: RegisteredMemory,
    data: RegisteredMemory,
    inbound: RegisteredMemory,
    outbound: RegisteredMemory,
    child: Mutex<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Client {
    pub(crate) fn start(size: u64, verify: bool) -> Result<Self> {
        let rank = Rank::new(0);
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve", "--size", &size.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("stdin")?;
        let mut output = BufReader::new(child.stdout.take().context("stdout")?);
        let source = rank.register(size, Access::ALL)?;
        let inbound = rank.register(TOKEN_BYTES, TOKENS())?;
        let local = rank.engine.endpoint(&rank.context, &EndpointConfig::cpu(Transport::Ethernet))?;
        let own = Card::of(&local, &source, &inbound).line();
        write!(input, "{size} {} {own}", u8::from(verify))?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        let card = Card::parse(&line)?;
        let connection = rank.connect(local.clone(), card.endpoint(1, &local))?;
        let data = card.memory(1, 0, size, Access::ALL);
        let outbound = card.memory(1, 1, TOKEN_BYTES, TOKENS());
        Ok(Self {
            rank,
            connection,
            source,
            data,
            inbound,
            outbound,
            child: Mutex::new((child, input, output)),
        })
    }

    /// Gives the source a pattern that differs everywhere.
    pub(crate) fn fill(&self) -> Result<()> {
        each_word(self.source.region().context("source")?, |index, word| {
            *word = pattern(index);
            true
        });
        Ok(())
    }

    /// Writes the first `size` bytes and flushes.
    pub(crate) fn write(&self, size: u64) -> Result<()> {
        self.connection.write(&self.data, 0, &self.source, 0, size)?;
        Ok(self.connection.flush(Deadline::after(LIMIT))?)
    }

    /// Whether the peer holds the pattern.
    pub(crate) fn verify(&self) -> Result<bool> {
        let mut child = self.child.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        writeln!(child.1, "verify")?;
        let mut line = String::new();
        child.2.read_line(&mut line)?;
        Ok(line.trim() == "true")
    }

    /// Half round trips of 8-byte signals, in microseconds.
    pub(crate) fn ping(&self, count: u32) -> Result<Vec<f64>> {
        {
            let mut child = self.child.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
            writeln!(child.1, "ping {count}")?;
        }
        let mut times = Vec::new();
        for value in 1..=u64::from(count) {
            let begin = Instant::now();
            self.connection.atomic_add(&self.outbound, 0, 1)?;
            self.rank.wait(&self.inbound, value)?;
            times.push(begin.elapsed().as_secs_f64() * 5e5);
        }
        Ok(times)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            let _ = writeln!(child.1, "quit");
            let _ = child.0.wait();
        }
    }
}

/// The second process.
pub(crate) fn serve() -> Result<()> {
    let rank = Rank::new(1);
    let mut lines = std::io::stdin().lock().lines();
    let mut next = || lines.next().context("the client has gone")?.context("reading the client");
    let first = next()?;
    let (size, rest) = first.split_once(' ').context("size")?;
    let (_, card) = rest.split_once(' ').context("verify")?;
    let (size, card) = (size.parse()?, Card::parse(card)?);
    let data = rank.register(size, Access::ALL)?;
    // The first touch of the pages is not to be measured.
    each_word(data.region().context("data")?, |_, word| {
        *word = !0;
        true
    });
    let inbound = rank.register(TOKEN_BYTES, TOKENS())?;
    let local = rank.engine.endpoint(&rank.context, &EndpointConfig::cpu(Transport::Ethernet))?;
    print!("{}", Card::of(&local, &data, &inbound).line());
    std::io::stdout().flush()?;
    let connection = rank.connect(local.clone(), card.endpoint(0, &local))?;
    let outbound = card.memory(0, 1, TOKEN_BYTES, TOKENS());
    loop {
        let line = next()?;
        let mut words = line.split_whitespace();
        match words.next() {
            Some("verify") => {
                let good = each_word(data.region().context("data")?, |index, word| *word == pattern(index));
                println!("{good}");
            }
            Some("ping") => {
                for value in 1..=words.next().context("count")?.parse::<u64>()? {
                    rank.wait(&inbound, value)?;
                    connection.atomic_add(&outbound, 0, 1)?;
                }
            }
            command => {
                ensure!(command == Some("quit"), "unknown command {line:?}");
                return Ok(());
            }
        }
    }
}

fn pattern(index: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (index >> 7)
}

/// Calls `visit` for every word until it says false; true if it never did.
fn each_word(region: &Region, mut visit: impl FnMut(u64, &mut u64) -> bool) -> bool {
    let words = region.address().cast::<u64>();
    (0..region.size() / 8).all(|index| {
        // SAFETY: index < size / 8 of a live page-aligned region, and no transfer is under way.
        let word = unsafe { words.add(index as usize).as_mut() };
        visit(index, word)
    })
}
