//! What transfers share: memory, cores, links, interfaces, caches.

use warpway_plan::simulate::{Machine, MemoryLevel, Nic, Request, SharedLink, simulate};
use warpway_plan::{CollectiveShape, DataSync, Plan, Program, Reduction, testing};

fn once(bytes: u64) -> Request<'static> {
    Request { rounds: 1, ..Request::message(bytes) }
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6 * expected, "{found} instead of {expected}");
}

/// Every rank copies its input.
fn copies(n_ranks: u32) -> Plan {
    let mut p = Program::new(crate::options("copies", CollectiveShape::test(n_ranks, 1, 1))).unwrap();
    for rank in 0..n_ranks {
        p.copy(p.output(rank).unwrap().whole(), p.input(rank).unwrap().whole(), 0).unwrap();
    }
    p.finish().unwrap()
}

#[test]
fn blocks_of_a_host_share_its_memory_and_cores() {
    let time = |ranks: u32, all_cores: f64, cores: u32| {
        let mut machine = Machine::plain(ranks);
        machine.hosts[0].memory[0].all_cores = all_cores;
        machine.hosts[0].cores = cores;
        machine.costs.switch_ns = 0.0;
        simulate(&copies(ranks), &machine, &once(1 << 20)).unwrap().total_ns - 510.0
    };
    let alone = f64::from(1 << 20) / 10.0;
    close(time(1, 15.0, 8), alone);
    // Two want 20 bytes a nanosecond and get 15.
    close(time(2, 15.0, 8), alone * 20.0 / 15.0);
    close(time(3, 1e9, 8), alone);
    close(time(3, 1e9, 2), alone * 1.5);
}

#[test]
fn bytes_in_other_blocks_caches_cost_more() {
    // Rank 0 writes what rank 1 then reads, again and again: each launch moves the lines there and back.
    let mut p = Program::new(crate::options("migrate", CollectiveShape::test(2, 1, 1))).unwrap();
    let (to, from) = (p.memory_channel(0, 1).unwrap(), p.memory_channel(1, 0).unwrap());
    let shared = p.scratch(1, 1).unwrap().whole();
    p.put(to, shared, p.input(0).unwrap().whole(), 0).unwrap();
    p.signal(to, 0, DataSync::Before).unwrap();
    p.wait(from, 0, DataSync::After).unwrap();
    p.copy(p.output(1).unwrap().whole(), shared, 0).unwrap();
    p.signal(from, 0, DataSync::Before).unwrap();
    p.wait(to, 0, DataSync::After).unwrap();
    let plan = p.finish().unwrap();
    let mut machine = Machine::plain(2);
    let plain = machine.hosts[0].memory[0];
    machine.hosts[0].memory = vec![MemoryLevel { from_peer: 5.0, to_peer: 2.5, ..plain }];
    let around = 500.0 + 2.0 * (10.0 + 30.0 + 100.0 + 30.0);
    let first = simulate(&plan, &machine, &once(1000)).unwrap().total_ns;
    close(first, around + 100.0 + 200.0);
    let next = simulate(&plan, &machine, &Request::message(1000)).unwrap().total_ns;
    close(next, around + 400.0 + 200.0);
    // The reader waits for the first line besides.
    machine.costs.line_ns = 70.0;
    let with_first = simulate(&plan, &machine, &Request::message(1000)).unwrap().total_ns;
    close(with_first, next + 70.0);
    // Rates are those of a move of 1000 bytes, which touches twice as many, and not those of the launch, which touches 3000.
    machine.costs.line_ns = 0.0;
    let level = |up_to_bytes, from_peer| MemoryLevel { up_to_bytes, from_peer, to_peer: 2.5, ..plain };
    machine.hosts[0].memory = vec![level(2000, 5.0), level(2001, 1.0), level(1 << 40, 1.0)];
    close(simulate(&plan, &machine, &Request::message(1000)).unwrap().total_ns, next);
}

#[test]
fn folds_wait_longer_for_other_blocks_caches_than_copies_do() {
    // Rank 0 folds into its output, rank 1 folds that with its own; and again.
    let mut p = Program::new(crate::options("fold", CollectiveShape::test(2, 2, 1))).unwrap();
    let (to, from) = (p.memory_channel(0, 1).unwrap(), p.memory_channel(1, 0).unwrap());
    let half = |p: &Program, rank, at: u64| p.input(rank).unwrap().chunk(at..=at).unwrap();
    let result = p.output(0).unwrap().whole();
    p.reduce(Reduction::of(half(&p, 0, 0), &[half(&p, 0, 1)]).into(result), 0).unwrap();
    p.signal(to, 0, DataSync::Before).unwrap();
    p.wait(from, 0, DataSync::After).unwrap();
    let theirs = [result];
    let fold = Reduction::of(half(&p, 1, 0), &theirs).into(p.output(1).unwrap().whole());
    p.read_reduce(from, fold, 0).unwrap();
    p.signal(from, 0, DataSync::Before).unwrap();
    p.wait(to, 0, DataSync::After).unwrap();
    let plan = p.finish().unwrap();
    let mut machine = Machine::plain(2);
    let plain = machine.hosts[0].memory[0];
    let time = |machine: &Machine| simulate(&plan, machine, &Request::message(2000)).unwrap().total_ns;
    let before = time(&machine);
    machine.hosts[0].memory = vec![MemoryLevel { from_peer: 1.0, to_peer: 1.0, ..plain }];
    close(time(&machine), before);
    machine.hosts[0].memory = vec![MemoryLevel { fold_from_peer: 5.0, fold_to_peer: 2.5, ..plain }];
    close(time(&machine), before + 100.0 + 300.0);
}

/// Every rank sends its input to another one on the next host, at once.
fn shift(ranks_per_host: u32, hosts: u32) -> Plan {
    let n = ranks_per_host * hosts;
    let mut p = Program::new(crate::options("shift", CollectiveShape::test(n, 1, 1))).unwrap();
    let edges: Vec<_> = (0..n).map(|rank| (rank, (rank + ranks_per_host) % n)).collect();
    let channels: Vec<_> = edges
        .iter()
        .map(|(from, to)| (p.port_channel(*from, *to).unwrap(), p.port_channel(*to, *from).unwrap()))
        .collect();
    for ((from, to), (out, _)) in edges.iter().zip(&channels) {
        p.put_with_signal(*out, p.output(*to).unwrap().whole(), p.input(*from).unwrap().whole(), 0).unwrap();
    }
    for (_, back) in &channels {
        p.wait(*back, 0, DataSync::After).unwrap();
    }
    p.finish().unwrap()
}

fn cluster(hosts: u32, ranks: u32, nics: usize, rate: f64) -> Machine {
    let mut machine = Machine::plain(ranks);
    machine.hosts[0].count = hosts;
    machine.hosts[0].nics = vec![Nic { rate, message_ns: 0.0, in_turn: false }; nics];
    machine.wire_latency_ns = 1000.0;
    machine
}

/// Launch, announcement, handshake, request, proxy; wire; wait.
const AROUND: f64 = 500.0 + 100.0 + 100.0 + 110.0 + 200.0 + 1000.0 + 30.0;

#[test]
fn ranks_of_a_host_share_its_interfaces() {
    let time = |nics| simulate(&shift(4, 2), &cluster(2, 4, nics, 10.0), &once(10_000)).unwrap().total_ns;
    close(time(1), AROUND + 4000.0);
    close(time(2), AROUND + 2000.0);
    close(time(4), AROUND + 1000.0);
}

#[test]
fn links_between_groups_of_hosts_are_shared_fairly() {
    // Hosts 0 and 1 are behind one link of 15; of the four messages 0->1, 1->2, 2->3, 3->0 one leaves it and one enters.
    let mut machine = cluster(4, 2, 2, 10.0);
    let link = |rate| SharedLink { name: "rack".into(), inside: vec![0, 1], rate, latency_ns: 500.0 };
    machine.links = vec![link(40.0)];
    let simulation = simulate(&shift(2, 4), &machine, &once(10_000)).unwrap();
    close(simulation.total_ns, AROUND + 500.0 + 1000.0);
    // Two ranks of host 1 leave at once: 10 each if there were no link, 5 each now.
    machine.links = vec![link(10.0)];
    let simulation = simulate(&shift(2, 4), &machine, &once(10_000)).unwrap();
    close(simulation.total_ns, AROUND + 500.0 + 2000.0);
    let load = |name: &str| simulation.loads.iter().find(|load| load.name == name).unwrap();
    close(load("rack, out").bytes.unwrap(), 20_000.0);
    close(load("rack, in").bytes.unwrap(), 20_000.0);
    close(load("rack, out").busy, 2000.0 / simulation.total_ns);
    close(load("nic 1 of host 2, in").bytes.unwrap(), 10_000.0);
}

#[test]
fn messages_in_turn_leave_one_after_the_other() {
    // Rank 0 sends to ranks 1 and 2. Sharing, both come when all has been sent; in turn, the first comes earlier.
    let mut p = Program::new(crate::options("two", CollectiveShape::test(3, 1, 1))).unwrap();
    for to in [1, 2] {
        let (out, back) = (p.port_channel(0, to).unwrap(), p.port_channel(to, 0).unwrap());
        p.put_with_signal(out, p.output(to).unwrap().whole(), p.input(0).unwrap().whole(), 0).unwrap();
        p.wait(back, 0, DataSync::After).unwrap();
    }
    let plan = p.finish().unwrap();
    let ends = |in_turn: bool, message_ns: f64| {
        let mut machine = cluster(3, 1, 1, 1.0);
        machine.hosts[0].nics[0] = Nic { rate: 1.0, message_ns, in_turn };
        let simulation = simulate(&plan, &machine, &once(100_000)).unwrap();
        [simulation.ranks[1].end_ns, simulation.ranks[2].end_ns]
    };
    // The second request comes 200 after the first: until then the first has the interface to itself, and it leaves
    // the last 200 to the second.
    let [first, second] = ends(false, 0.0);
    close(first, AROUND + 200_000.0 - 200.0);
    close(second, AROUND + 200_000.0);
    assert_eq!(ends(true, 0.0).map(f64::round), [AROUND + 100_000.0, AROUND + 200_000.0].map(f64::round));
    close(ends(true, 5000.0)[1], AROUND + 205_000.0);
    let [first, second] = ends(false, 5000.0);
    close(first, AROUND + 195_000.0);
    close(second, AROUND + 200_000.0);
}

#[test]
fn ranks_have_links_of_their_own_where_the_machine_says_so() {
    // All-gather by puts between two ranks: each sends a half and gets one.
    let plan = testing::all_gather_put(2).unwrap();
    let mut machine = Machine::plain(2);
    let before = simulate(&plan, &machine, &once(20_000)).unwrap().total_ns;
    machine.hosts[0].rank_link = Some(2.0);
    let after = simulate(&plan, &machine, &once(20_000)).unwrap();
    // The copy of 10000 bytes to the peer takes 5 times as long; that to itself does not.
    close(after.total_ns - before, 4000.0);
    let load = after.loads.iter().find(|load| load.name == "link of rank 1, in").unwrap();
    close(load.bytes.unwrap(), 10_000.0);
}

#[test]
fn more_blocks_than_cores_wait_longer_for_news() {
    let plan = testing::all_gather_put(4).unwrap();
    let mut machine = Machine::plain(4);
    let before = simulate(&plan, &machine, &once(64)).unwrap();
    machine.hosts[0].cores = 2;
    let after = simulate(&plan, &machine, &once(64)).unwrap();
    // Announcement, opening signal, closing signal.
    let more = after.total_ns - before.total_ns;
    assert!((6000.0..6010.0).contains(&more), "{more}");
}
