//! Times of small plans, worked out by hand on the plain machine: a launch takes 500 ns, a handshake 100, a step 10, a
//! signal 20 more and 100 to fly, a wait 20 more, 10 bytes are copied in a nanosecond, 20 folded, 5 written or read as
//! packets, which fly 100 ns; a barrier takes 100, a request 100 for the block and 200 for the proxy.

use warpway_plan::simulate::{Lane, Machine, Nic, Request, SimulateError, SpanKind, Straggler, simulate};
use warpway_plan::{CollectiveShape, DataSync, Plan, Program, Reduction, testing};

fn once(bytes: u64) -> Request<'static> {
    Request { rounds: 1, ..Request::message(bytes) }
}

fn total(plan: &Plan, machine: &Machine, bytes: u64) -> f64 {
    let simulation = simulate(plan, machine, &once(bytes)).unwrap();
    assert!(simulation.bound.ns() <= simulation.total_ns + 1e-6, "{:?}", simulation.bound);
    simulation.total_ns
}

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6 * expected, "{found} instead of {expected}");
}

/// Rank 0 puts its input into rank 1's output.
fn send() -> Plan {
    let mut p = Program::new(crate::options("send", CollectiveShape::test(2, 1, 1))).unwrap();
    let (to, from) = (p.memory_channel(0, 1).unwrap(), p.memory_channel(1, 0).unwrap());
    p.put(to, p.output(1).unwrap().whole(), p.input(0).unwrap().whole(), 0).unwrap();
    p.signal(to, 0, DataSync::Before).unwrap();
    p.wait(from, 0, DataSync::After).unwrap();
    p.finish().unwrap()
}

#[test]
fn a_put_and_its_signal() {
    // Launch 500; rank 1 announces its output, heard at 600; handshake until 700; put 10 + n/10; signal 30; flight 100;
    // wait 30.
    let simulation = simulate(&send(), &Machine::plain(2), &once(1000)).unwrap();
    close(simulation.total_ns, 700.0 + 110.0 + 30.0 + 100.0 + 30.0);
    close(simulation.ranks[0].end_ns, 840.0);
    assert_eq!(simulation.bound.hops, 2, "the announcement and the signal");
    close(simulation.bound.latency_ns, 200.0);
    close(simulation.bound.busiest_ns, 100.0);
    assert_eq!(simulation.bound.busiest, "block 0 of rank 0");
    // The end of rank 1's wait, the signal, the put, and back to the announcement.
    let path: Vec<(u32, &str)> = simulation
        .critical_path
        .iter()
        .map(|id| (simulation.spans[*id].rank, simulation.spans[*id].name))
        .collect();
    assert_eq!(path.last_chunk::<3>().unwrap(), &[(0, "put"), (0, "signal"), (1, "wait")]);
    let wait = simulation.spans.iter().find(|span| span.name == "wait").unwrap();
    assert_eq!((wait.lane, wait.kind), (Lane::Block(0), SpanKind::Wait));
    // Rank 1 hears nobody, so it begins at 600.
    close(wait.waited(), 940.0 - 600.0);
}

#[test]
fn launches_that_follow_each_other() {
    // Rank 0's next launch begins at 840; rank 1 announces its next at 970 + 500. Both take as long as the first from
    // rank 1's end to its next end: 500, 100, 100, 110, 30, 100, 30.
    let simulation = simulate(&send(), &Machine::plain(2), &Request::message(1000)).unwrap();
    close(simulation.total_ns, 970.0);
}

#[test]
fn packets_are_taken_as_they_come() {
    let shape = CollectiveShape::test(2, 1, 1);
    let mut p = Program::new(crate::options("packets", shape)).unwrap();
    let slot = p.scratch(1, 1).unwrap().whole();
    let to = p.memory_channel(0, 1).unwrap();
    p.memory_channel(1, 0).unwrap();
    p.put_packets(to, slot, p.input(0).unwrap().whole(), 0).unwrap();
    p.unpack_packets(p.output(1).unwrap().whole(), slot, 0).unwrap();
    let plan = p.finish().unwrap();
    // No handshake: nobody touches an input or output of a peer. Written from 510 on in 1000/10/2 (it is read, too) +
    // 1000/5 ns; seen 100 later. The reader needs as long and begins at 610, so both end together.
    let writes = 50.0 + 200.0;
    close(total(&plan, &Machine::plain(2), 1000), 510.0 + writes + 100.0);
    // A reader that is slower decides when it ends.
    let mut machine = Machine::plain(2);
    let level = |machine: &mut Machine, read: f64, stream: f64| {
        let level = &mut machine.hosts[0].memory[0];
        (level.packet_read, level.packet_stream) = (read, stream);
    };
    level(&mut machine, 1.0, 1e9);
    close(total(&plan, &machine, 1000), 610.0 + 50.0 + 1000.0);
    // Right behind the writer it gets what leaves the other's cache.
    level(&mut machine, 5.0, 2.5);
    close(total(&plan, &machine, 1000), 610.0 + 400.0);
    // The writer waits with it: it ends when the last line has been fetched, a flight before the reader.
    let simulation = simulate(&plan, &machine, &once(1000)).unwrap();
    close(simulation.ranks[0].end_ns, 610.0 + 400.0 - 100.0);
    // A reader that is slower falls behind, and both go on as if they were alone.
    level(&mut machine, 2.0, 1.0);
    close(total(&plan, &machine, 1000), 610.0 + 50.0 + 500.0);
    level(&mut machine, 1.0, 1e9);
    // One that comes late finds all of them.
    machine.stragglers.push(Straggler { rank: 1, slow_down: 1.0, start_ns: 5000.0 });
    close(total(&plan, &machine, 1000), 5510.0 + 50.0 + 1000.0);
}

#[test]
fn folds_cost_reading_and_arithmetic() {
    let shape = CollectiveShape::test(1, 4, 1);
    let mut p = Program::new(crate::options("fold", shape)).unwrap();
    let chunk = |p: &Program, at: u64| p.input(0).unwrap().chunk(at..=at).unwrap();
    let others = [chunk(&p, 1), chunk(&p, 2), chunk(&p, 3)];
    p.reduce(Reduction::of(chunk(&p, 0), &others).into(p.output(0).unwrap().whole()), 0).unwrap();
    let plan = p.finish().unwrap();
    let mut machine = Machine::plain(1);
    // 1000 bytes of each: four read, one written, half a nanosecond per 10 of each; three folds of 1000/20 are hidden.
    close(total(&plan, &machine, 4000), 510.0 + 250.0);
    machine.costs.fold.values_mut().for_each(|rate| *rate = 4.0);
    close(total(&plan, &machine, 4000), 510.0 + 750.0);
}

#[test]
fn barriers_and_semaphores_wait_for_the_last() {
    let shape = CollectiveShape::test(1, 2, 2);
    let mut p = Program::new(crate::options("barrier", shape)).unwrap();
    let (input, output) = (p.input(0).unwrap(), p.output(0).unwrap());
    p.copy(output.whole(), input.whole(), 0).unwrap();
    p.barrier(0, &[0, 1]).unwrap();
    let plan = p.finish().unwrap();
    // 1000 more for two blocks.
    close(total(&plan, &Machine::plain(1), 1600), 1500.0 + 170.0 + 100.0);

    let plan = testing::send_recv_semaphore(2).unwrap();
    let simulation = simulate(&plan, &Machine::plain(2), &once(1000)).unwrap();
    // Launch 1500, heard at 1600, handshake 1700. Block 0: copy 110, release 10. Block 1 meanwhile: signal 30, wait 30
    // after the flight; acquires at 1860; put 110, signal 30, flight 100, wait 30.
    close(simulation.total_ns, 1700.0 + 30.0 + 100.0 + 30.0 + 10.0 + 110.0 + 30.0 + 100.0 + 30.0);
}

#[test]
fn pipelines_run_slice_by_slice() {
    // 1600 bytes in slices of 160: 10 rounds of put 10 + 16, signal 30, flight 100, wait 30.
    let plan = testing::send_recv_pipeline(2, 1, 160).unwrap();
    let opening = 700.0 + 30.0 + 100.0 + 30.0;
    let mut machine = Machine::plain(2);
    close(total(&plan, &machine, 1600), opening + 10.0 * (26.0 + 30.0 + 100.0 + 30.0));
    // The last slice of 1520 bytes has half.
    close(total(&plan, &machine, 1520), opening + 9.0 * 186.0 + 178.0);
    machine.costs.signal_flight_ns = 0.0;
    close(total(&plan, &machine, 1600), 600.0 + 60.0 + 10.0 * 86.0);
}

#[test]
fn proxies_copy_within_a_host() {
    let plan = testing::send_recv_port(2).unwrap();
    // Launch 500, heard 600, handshake 700. Signal: request 110, proxy 200, flight 100; wait 30. Then the put: request
    // 110, proxy 200, copy 100: the flush is over, and 100 later the peer sees the signal; wait 30.
    let opening = 700.0 + 110.0 + 200.0 + 100.0 + 30.0;
    close(total(&plan, &Machine::plain(2), 1000), opening + 110.0 + 200.0 + 100.0 + 100.0 + 30.0);
}

/// Two hosts of one rank, an interface each.
fn two_hosts(rate: f64, message_ns: f64) -> Machine {
    let mut machine = Machine::plain(1);
    machine.hosts[0].count = 2;
    machine.hosts[0].nics = vec![Nic { rate, message_ns, in_turn: false }];
    machine.wire_latency_ns = 3000.0;
    machine
}

#[test]
fn messages_between_hosts_take_the_wire() {
    let plan = testing::send_recv_port(2).unwrap();
    // As within a host, but a message of one byte or of 1000 at 2 bytes a nanosecond, and 3000 on the wire; announcements
    // are not modelled as messages. The flush ends with the answer, 3000 later, and covers the wait.
    let opening = 700.0 + 110.0 + 200.0 + 0.5 + 3000.0 + 30.0;
    let put = 110.0 + 200.0 + 500.0 + 3000.0;
    let simulation = simulate(&plan, &two_hosts(2.0, 0.0), &once(1000)).unwrap();
    close(simulation.total_ns, opening + put + 3000.0 + 30.0);
    let out = simulation.loads.iter().find(|load| load.name == "nic 0 of host 0, out").unwrap();
    close(out.bytes.unwrap(), 1001.0);
    close(out.busy, 500.5 / simulation.total_ns);
    assert_eq!(simulation.host_of, [0, 1]);
}

#[test]
fn loads_and_stores_do_not_leave_a_host() {
    let found = simulate(&send(), &two_hosts(1.0, 0.0), &once(1000)).unwrap_err();
    assert_eq!(
        found.to_string(),
        "rank 0, block 0, operation 0: `put` reaches the memory of rank 1, which is on another host; use port \
         channels there"
    );
}

#[test]
fn what_does_not_fit_or_end_is_an_error() {
    let plan = testing::all_gather_put(3).unwrap();
    let found = simulate(&plan, &Machine::plain(2), &once(1000)).unwrap_err();
    assert_eq!(found, SimulateError::Room { n_ranks: 3, room: 2 });
    let mut plan = send();
    plan.ranks[0].blocks[0].operations.truncate(1);
    let found = simulate(&plan, &Machine::plain(2), &once(1000)).unwrap_err();
    assert_eq!(found, SimulateError::Stuck { rank: 1, lane: Lane::Block(0), what: "wait" });
    close(total(&send(), &Machine::plain(2), 3), 870.0 + 0.8);
}

#[test]
fn stragglers_are_slower_and_later() {
    let mut machine = Machine::plain(2);
    machine.stragglers.push(Straggler { rank: 0, slow_down: 2.0, start_ns: 0.0 });
    // Rank 0: launch 1000, handshake 200, put 20 + 200, signal 60; flight 100 and wait 30 as they were.
    close(total(&send(), &machine, 1000), 1000.0 + 200.0 + 220.0 + 60.0 + 100.0 + 30.0);
    machine.stragglers[0] = Straggler { rank: 0, slow_down: 1.0, start_ns: 1000.0 };
    close(total(&send(), &machine, 1000), 1500.0 + 100.0 + 110.0 + 30.0 + 100.0 + 30.0);
}

/// Every plan of the collection ends, not below its bound, and the same each time.
#[test]
fn every_operation_is_simulated_and_repeats_bit_by_bit() {
    for n in [2, 3, 5] {
        for plan in testing::all(n).unwrap() {
            let machine = Machine::example();
            let request = Request { ranks_per_host: Some(vec![n]), ..Request::message(7 * 4096) };
            let first =
                simulate(&plan, &machine, &request).unwrap_or_else(|error| panic!("{}: {error}", plan.name));
            assert!(
                first.total_ns >= first.bound.ns(),
                "{}: {} {:?}",
                plan.name,
                first.total_ns,
                first.bound
            );
            assert!(!first.critical_path.is_empty() && first.total_ns.is_finite());
            assert_eq!(first, simulate(&plan, &machine, &request).unwrap());
        }
    }
}
