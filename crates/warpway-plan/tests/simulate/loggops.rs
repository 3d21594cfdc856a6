//! Ring, tree and all-to-all on a machine of LogGOPS parameters, against LogGOPSim's rules on the exported schedule.
//!
//! The rules (T. Hoefler, T. Schneider, A. Lumsdaine, *LogGOPSim: Simulating Large-Scale Applications in the LogGOPS
//! Model*, HPDC 2010, pages 597 to 604, and its manual): a send begins when CPU (o) and interface (g, G) of its rank
//! are free; it occupies the CPU for o and the interface for g + (s-1) G. The first byte arrives o + L later. A message
//! is taken when CPU and incoming interface are free: the CPU is then busy for o + (s-1) G, the interface for
//! g + (s-1) G. O is 0 and every message is eager (s <= S). Expected numbers are LogGOPSim's defaults: L = 2500, o = 1500,
//! g = 1000, G = 6 ns per byte.

use std::collections::BTreeMap;

use warpway_plan::simulate::{Costs, Machine, MemoryLevel, Nic, Request, goal, simulate};
use warpway_plan::{CollectiveShape, DataSync, Plan, PortChannel, Program, ProgramOptions};

const L: f64 = 2500.0;
const O: f64 = 1500.0;
const GAP: f64 = 1000.0;
const G: f64 = 6.0;

/// The machine of these parameters, one rank per host.
fn machine(ranks: u32) -> Machine {
    let mut machine = Machine::plain(1);
    machine.hosts[0].count = ranks;
    machine.hosts[0].nics = vec![Nic { rate: 1.0 / G, message_ns: GAP, in_turn: true }];
    let free = f64::MAX;
    machine.hosts[0].memory = vec![MemoryLevel {
        copy: free,
        fold: free,
        from_peer: free,
        to_peer: free,
        ..machine.hosts[0].memory[0]
    }];
    machine.wire_latency_ns = L;
    machine.costs = Costs {
        launch_ns: 0.0,
        handshake_ns: 0.0,
        step_ns: 0.0,
        signal_flight_ns: 0.0,
        proxy_ns: 0.0,
        request_ns: O,
        wait_ns: O,
        ..machine.costs
    };
    machine
}

#[derive(Debug, Clone)]
enum What {
    Send { bytes: f64, to: usize, tag: u64 },
    Receive { from: usize, tag: u64 },
    Calculate(f64),
}

/// A rank's part of a schedule: operations, what each needs, its CPU.
#[derive(Debug, Default, Clone)]
struct Schedule {
    operations: Vec<(What, usize)>,
    needs: Vec<Vec<usize>>,
}

/// Reads the lines that the export writes.
fn parse(text: &str) -> Vec<Schedule> {
    let mut lines = text.lines();
    let ranks: usize = lines.next().unwrap().strip_prefix("num_ranks ").unwrap().parse().unwrap();
    let mut schedules = vec![Schedule::default(); ranks];
    let mut rank = 0;
    let label =
        |word: &str| word.trim_end_matches(':').strip_prefix('l').unwrap().parse::<usize>().unwrap() - 1;
    for line in lines.filter(|line| !line.is_empty() && *line != "}") {
        let words: Vec<&str> = line.split_whitespace().collect();
        let schedule = &mut schedules[rank];
        match words[..] {
            ["rank", number, "{"] => rank = number.parse().unwrap(),
            [later, "requires", earlier] => schedule.needs[label(later)].push(label(earlier)),
            [at, ref what @ .., "cpu", cpu] => {
                assert_eq!(label(at), schedule.operations.len());
                let bytes = |word: &str| word.strip_suffix('b').unwrap().parse::<f64>().unwrap();
                let what = match *what {
                    ["send", size, "to", to, "tag", tag] => {
                        What::Send { bytes: bytes(size), to: to.parse().unwrap(), tag: tag.parse().unwrap() }
                    }
                    ["recv", _, "from", from, "tag", tag] => {
                        What::Receive { from: from.parse().unwrap(), tag: tag.parse().unwrap() }
                    }
                    ["calc", time] => What::Calculate(time.parse().unwrap()),
                    _ => panic!("{line}"),
                };
                schedule.operations.push((what, cpu.parse().unwrap()));
                schedule.needs.push(Vec::new());
            }
            _ => panic!("{line}"),
        }
    }
    schedules
}

/// When each rank's CPUs are last busy, by the rules above: events in order of time, those that cannot happen yet are
/// put off until they can.
fn run(schedules: &[Schedule]) -> Vec<f64> {
    #[derive(Debug, Clone)]
    enum Event {
        Operation(usize, usize),
        Message { to: usize, from: usize, tag: u64, bytes: f64, cpu: usize },
    }
    let n = schedules.len();
    let mut cpu: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let (mut out, mut into) = (vec![0.0f64; n], vec![0.0f64; n]);
    let mut open: Vec<Vec<usize>> =
        schedules.iter().map(|s| s.needs.iter().map(Vec::len).collect()).collect();
    let mut expected: BTreeMap<(usize, usize, u64), Vec<usize>> = BTreeMap::new();
    let mut arrived: BTreeMap<(usize, usize, u64), u32> = BTreeMap::new();
    let mut events: Vec<(f64, u64, Event)> = Vec::new();
    let mut count = 0;
    let mut plan = |events: &mut Vec<(f64, u64, Event)>, at: f64, event: Event| {
        count += 1;
        events.push((at, count, event));
    };
    for (rank, schedule) in schedules.iter().enumerate() {
        for (operation, needs) in schedule.needs.iter().enumerate() {
            if needs.is_empty() {
                plan(&mut events, 0.0, Event::Operation(rank, operation));
            }
        }
    }
    loop {
        let next = events.iter().enumerate().min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let Some((at, _)) = next else { break };
        let (now, _, event) = events.swap_remove(at);
        let mut done: Vec<(usize, usize)> = Vec::new();
        match event.clone() {
            Event::Operation(rank, operation) => {
                let (what, core) = &schedules[rank].operations[operation];
                let free = cpu.entry((rank, *core)).or_default();
                match what {
                    What::Calculate(_) if *free > now => plan(&mut events, *free, event),
                    What::Calculate(time) => {
                        *free = now + time;
                        done.push((rank, operation));
                    }
                    What::Send { .. } if free.max(out[rank]) > now => {
                        plan(&mut events, free.max(out[rank]), event)
                    }
                    What::Send { bytes, to, tag } => {
                        *free = now + O;
                        out[rank] = now + GAP + (bytes - 1.0) * G;
                        let (to, tag, bytes) = (*to, *tag, *bytes);
                        let message = Event::Message { to, from: rank, tag, bytes, cpu: *core };
                        plan(&mut events, now + O + L, message);
                        done.push((rank, operation));
                    }
                    What::Receive { from, tag } => match arrived.get_mut(&(rank, *from, *tag)) {
                        Some(messages) if *messages > 0 => {
                            *messages -= 1;
                            done.push((rank, operation));
                        }
                        _ => expected.entry((rank, *from, *tag)).or_default().push(operation),
                    },
                }
            }
            Event::Message { to, from, tag, bytes, cpu: core } => {
                let free = cpu.entry((to, core)).or_default();
                if free.max(into[to]) > now {
                    plan(&mut events, free.max(into[to]), event);
                } else {
                    *free = now + O + (bytes - 1.0) * G;
                    into[to] = now + GAP + (bytes - 1.0) * G;
                    match expected.get_mut(&(to, from, tag)).filter(|waiting| !waiting.is_empty()) {
                        Some(waiting) => done.push((to, waiting.remove(0))),
                        None => *arrived.entry((to, from, tag)).or_default() += 1,
                    }
                }
            }
        }
        for (rank, operation) in done {
            for (later, needs) in schedules[rank].needs.iter().enumerate() {
                for _ in needs.iter().filter(|need| **need == operation) {
                    open[rank][later] -= 1;
                    if open[rank][later] == 0 {
                        let core = schedules[rank].operations[later].1;
                        let at = cpu.get(&(rank, core)).copied().unwrap_or(0.0).max(now);
                        plan(&mut events, at, Event::Operation(rank, later));
                    }
                }
            }
        }
    }
    assert!(open.iter().flatten().all(|needs| *needs == 0), "the schedule does not end");
    (0..n)
        .map(|rank| cpu.range((rank, 0)..(rank + 1, 0)).map(|(_, free)| *free).fold(0.0, f64::max))
        .collect()
}

struct Edges {
    p: Program,
    channels: BTreeMap<(u32, u32), PortChannel>,
}

impl Edges {
    fn new(name: &str, ranks: u32, chunks: u64) -> Self {
        // Operations as they are written, in this order.
        let options = crate::options(name, CollectiveShape::test(ranks, chunks, chunks));
        let p = Program::new(ProgramOptions { fusion: false, ..options }).unwrap();
        Self { p, channels: BTreeMap::new() }
    }

    /// Both ends of an edge are made together.
    fn channel(&mut self, from: u32, to: u32) -> PortChannel {
        if !self.channels.contains_key(&(from, to)) {
            let there = self.p.port_channel(from, to).unwrap();
            let back = self.p.port_channel(to, from).unwrap();
            self.channels.insert((from, to), there);
            self.channels.insert((to, from), back);
        }
        self.channels[&(from, to)]
    }

    /// Sends a chunk of the sender's output to the same chunk of the receiver's.
    fn send(&mut self, from: u32, to: u32, chunk: u64) {
        let channel = self.channel(from, to);
        let place = |p: &Program, rank| p.output(rank).unwrap().chunk(chunk..=chunk).unwrap();
        self.p.put_with_signal(channel, place(&self.p, to), place(&self.p, from), 0).unwrap();
    }

    fn receive(&mut self, at: u32, from: u32) {
        let channel = self.channel(at, from);
        self.p.wait(channel, 0, DataSync::None).unwrap();
    }
}

/// All-gather: each rank sends on what it got last.
fn ring(n: u32) -> Plan {
    let mut edges = Edges::new("ring", n, u64::from(n));
    for step in 0..n - 1 {
        for rank in 0..n {
            edges.send(rank, (rank + 1) % n, u64::from((rank + n - step) % n));
        }
        for rank in 0..n {
            edges.receive(rank, (rank + n - 1) % n);
        }
    }
    edges.p.finish().unwrap()
}

/// Broadcast by a binomial tree, farthest first.
fn tree(n: u32) -> Plan {
    let mut edges = Edges::new("tree", n, 1);
    let mut distance = n / 2;
    while distance > 0 {
        for rank in (0..n).step_by(2 * distance as usize) {
            edges.send(rank, rank + distance, 0);
            edges.receive(rank + distance, rank);
        }
        distance /= 2;
    }
    edges.p.finish().unwrap()
}

/// Every rank sends a chunk to each other one, the next one first.
fn all_to_all(n: u32) -> Plan {
    let mut edges = Edges::new("all_to_all", n, u64::from(n));
    for by in 1..n {
        for rank in 0..n {
            edges.send(rank, (rank + by) % n, u64::from(rank));
        }
    }
    for by in 1..n {
        for rank in 0..n {
            edges.receive(rank, (rank + n - by) % n);
        }
    }
    edges.p.finish().unwrap()
}

/// The simulator, LogGOPSim's rules on the exported schedule, and the number that a pencil gives.
fn agree(plan: &Plan, bytes: u64, expected: f64) {
    let machine = machine(plan.n_ranks());
    let request = Request { rounds: 1, ..Request::message(bytes) };
    let ours = simulate(plan, &machine, &request).unwrap().total_ns;
    let theirs = run(&parse(&goal(plan, &machine, &request).unwrap())).into_iter().fold(0.0, f64::max);
    let error = |found: f64| (found / expected - 1.0).abs();
    assert!(error(theirs) < 1e-9, "{}: the rules give {theirs}, expected {expected}", plan.name);
    assert!(error(ours) < 0.01, "{}: {ours}, expected {expected}", plan.name);
}

/// n - 1 steps of o + L + o + (s-1) G: 7 x (5500 + 65519 x 6) and 7 x (5500 + 15 x 6).
#[test]
fn a_ring_takes_the_time_of_loggops() {
    agree(&ring(8), 8 * 65520, 2_790_298.0);
    agree(&ring(8), 8 * 16, 39_130.0);
}

/// Farthest first, so the longest chain is that of three messages, each sent as soon as it is there: 3 x (2 o + L +
/// (s-1) G). What a rank sends second leaves g + (s-1) G after the first, which is less than a message takes.
#[test]
fn a_tree_takes_the_time_of_loggops() {
    agree(&tree(8), 65520, 1_195_842.0);
    agree(&tree(8), 16, 16_770.0);
}

/// The CPU that receives cannot send, so each of the three takes 2 o + L + (s-1) G. (Here a block can: proxies and
/// interfaces work on their own. With large messages, of which s G is nearly all, that is less than a hundredth.)
#[test]
fn an_all_to_all_takes_the_time_of_loggops() {
    agree(&all_to_all(4), 4 * 65520, 1_195_842.0);
}

/// Every kind of operation has a form in the schedule, and the schedule ends.
#[test]
fn every_plan_becomes_a_schedule_that_ends() {
    for n in [2, 3] {
        for plan in warpway_plan::testing::all(n).unwrap() {
            let request = Request { ranks_per_host: Some(vec![n]), ..Request::message(6 * 4096) };
            let text = goal(&plan, &Machine::example(), &request).unwrap();
            assert!(run(&parse(&text)).into_iter().all(|end| end > 0.0), "{}", plan.name);
        }
    }
}

/// The export of a put with its signal, letter by letter.
#[test]
fn a_schedule_as_text() {
    let mut edges = Edges::new("one", 2, 1);
    edges.send(0, 1, 0);
    edges.receive(1, 0);
    let plan = edges.p.finish().unwrap();
    let text = goal(&plan, &machine(2), &Request::message(1000)).unwrap();
    assert_eq!(
        text,
        "num_ranks 2\n\nrank 0 {\nl1: send 1000b to 1 tag 1 cpu 0\n}\n\nrank 1 {\nl1: recv 1000b from 0 tag 1 cpu 0\n}\n"
    );
}
