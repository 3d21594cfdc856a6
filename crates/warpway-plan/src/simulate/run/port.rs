//! Proxies and the connections between hosts.
//!
//! A rank has one proxy, which takes the requests of all its blocks in turn. Within a host it copies the bytes itself;
//! to other hosts it hands them to a connection, which sends messages in order, one at a time, over interfaces and links
//! that messages of other connections share.

use std::collections::{BTreeMap, VecDeque};

use super::super::program::{Move, Program};
use super::super::result::{Lane, Span, SpanId, SpanKind};
use super::{Event, Run};
use crate::verify::OpPath;

#[derive(Debug, Default)]
pub(super) struct Ports<'a> {
    /// By rank.
    proxies: Vec<Proxy<'a>>,
    connections: Vec<Connection<'a>>,
    by_ranks: BTreeMap<(u32, u32), usize>,
    /// By channel.
    channels: Vec<Requests>,
    /// Connections that wait for their interface, by host and interface.
    queues: BTreeMap<(usize, usize), VecDeque<usize>>,
}

/// What has been asked for on a channel.
#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    owner: u32,
    peer: u32,
    partner: u32,
    posted: u64,
    completed: u64,
}

#[derive(Debug, Default)]
struct Proxy<'a> {
    queue: VecDeque<Request<'a>>,
    state: State,
    last_span: Option<SpanId>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum State {
    #[default]
    Idle,
    /// Takes a request.
    Takes,
    /// Copies, since then.
    Copies(f64),
}

#[derive(Debug, Clone)]
pub(super) struct Request<'a> {
    channel: u32,
    bytes: u64,
    signals: bool,
    /// The block's step.
    cause: Option<SpanId>,
    /// Packets that arrive with it.
    packets: Option<(&'a Move, Option<(u64, u64)>)>,
    round: u32,
}

#[derive(Debug, Default)]
struct Connection<'a> {
    from: u32,
    to: u32,
    queue: VecDeque<Request<'a>>,
    /// What is being sent, since when.
    sending: Option<f64>,
    /// Sent, not there yet, with the span of each.
    flying: VecDeque<(Request<'a>, Option<SpanId>)>,
    last_span: Option<SpanId>,
}

impl<'a> Ports<'a> {
    pub(super) fn new(program: &Program, n_ranks: usize) -> Self {
        let channel = |end: &super::super::program::ChannelEnd| Requests {
            owner: end.owner,
            peer: end.peer,
            partner: end.partner,
            ..Requests::default()
        };
        Self {
            proxies: (0..n_ranks).map(|_| Proxy::default()).collect(),
            channels: program.ends.iter().map(channel).collect(),
            ..Self::default()
        }
    }

    /// Puts a request into the proxy's queue; true if the proxy was idle.
    pub(super) fn post(&mut self, request: Request<'a>) -> bool {
        let of = &mut self.channels[request.channel as usize];
        of.posted += 1;
        let proxy = &mut self.proxies[of.owner as usize];
        proxy.queue.push_back(request);
        proxy.state == State::Idle && proxy.queue.len() == 1
    }

    /// True if all requests of a channel are complete.
    pub(super) fn is_idle(&self, channel: u32) -> bool {
        let of = self.channels[channel as usize];
        of.posted == of.completed
    }

    pub(super) fn complete(&mut self, channel: u32) {
        self.channels[channel as usize].completed += 1;
    }

    fn connection(&mut self, from: u32, to: u32) -> usize {
        *self.by_ranks.entry((from, to)).or_insert_with(|| {
            self.connections.push(Connection { from, to, ..Connection::default() });
            self.connections.len() - 1
        })
    }
}

impl<'a> Request<'a> {
    pub(super) fn new(
        channel: u32,
        work: Option<(&'a Move, Option<(u64, u64)>)>,
        signals: bool,
        (round, cause): (u32, Option<SpanId>),
    ) -> Self {
        let bytes = work.map_or(0, |(work, slice)| work.wire_bytes(slice));
        let packets = work.filter(|(work, _)| work.writes_packets());
        Self { channel, bytes, signals, cause, packets, round }
    }
}

impl<'a> Run<'a> {
    /// The proxy of a rank takes its next request, or has taken it.
    pub(super) fn proxy(&mut self, rank: u32) {
        let proxy = &mut self.ports.proxies[rank as usize];
        match proxy.state {
            State::Idle if !proxy.queue.is_empty() => {
                proxy.state = State::Takes;
                let taken = self.machine.costs.proxy_ns * self.slow(rank);
                self.calendar.at(self.now + taken, Event::Proxy(rank));
            }
            State::Takes => {
                let Some(request) = proxy.queue.front() else { return };
                let peer = self.ports.channels[request.channel as usize].peer;
                if self.hosts.same_host(rank, peer) {
                    return self.copy(rank);
                }
                let request = proxy.queue.pop_front();
                proxy.state = State::Idle;
                let connection = self.ports.connection(rank, peer);
                self.ports.connections[connection].queue.extend(request);
                self.calendar.at(self.now, Event::Connection(connection));
                self.proxy(rank);
            }
            _ => {}
        }
    }

    /// The proxy copies the bytes of its first request.
    fn copy(&mut self, rank: u32) {
        let proxy = &mut self.ports.proxies[rank as usize];
        let Some(request) = proxy.queue.front() else { return };
        proxy.state = State::Copies(self.now);
        let bytes = request.bytes as f64;
        let level = self.hosts.kind(rank).level(request.bytes.saturating_mul(2));
        let (memory, _) = self.hosts.shared(rank);
        let owner = self.threads.len() + rank as usize;
        let uses = vec![(memory, 1.0 / level.all_cores)];
        self.flows.start(self.now, bytes, level.copy / self.slow(rank), uses, owner);
    }

    /// The proxy of a rank has copied its first request.
    pub(super) fn copied(&mut self, rank: u32) {
        let proxy = &mut self.ports.proxies[rank as usize];
        let (since, request) = match (proxy.state, proxy.queue.pop_front()) {
            (State::Copies(since), Some(request)) => (since, request),
            _ => return,
        };
        proxy.state = State::Idle;
        let flight = self.hosts.flight(rank, self.machine.costs.signal_flight_ns);
        let before = self.ports.proxies[rank as usize].last_span;
        let span = self.message(rank, Lane::Proxy, &request, (since, self.now, self.now), before);
        self.ports.proxies[rank as usize].last_span = span.or(before);
        self.arrive(&request, span, self.now + flight);
        self.calendar.at(self.now, Event::Complete(request.channel));
        self.proxy(rank);
    }

    /// A connection sends its next message if it may.
    pub(super) fn connection(&mut self, number: usize) {
        let connection = &self.ports.connections[number];
        let (from, to) = (connection.from, connection.to);
        let Some(request) = connection.queue.front().filter(|_| connection.sending.is_none()) else { return };
        let bytes = request.bytes.max(1) as f64;
        match self.hosts.may_send(from, self.now) {
            None => {
                let queue = self.ports.queues.entry(self.hosts.nic_of(from)).or_default();
                if !queue.contains(&number) {
                    queue.push_back(number);
                }
            }
            Some(at) if at > self.now => self.calendar.at(at, Event::Connection(number)),
            Some(_) => {
                self.ports.connections[number].sending = Some(self.now);
                let route = self.hosts.route(from, to);
                let owner = self.threads.len() + self.launchers.len() + number;
                self.flows.start(self.now, bytes, route.rate, route.uses, owner);
            }
        }
    }

    /// A connection has sent a message: it is on its way, and the next one may begin.
    pub(super) fn sent(&mut self, number: usize) {
        let connection = &mut self.ports.connections[number];
        let (from, to) = (connection.from, connection.to);
        let (Some(since), Some(request)) = (connection.sending.take(), connection.queue.pop_front()) else {
            return;
        };
        let before = connection.last_span;
        self.hosts.has_sent(from, self.now);
        let there = self.now + self.hosts.route(from, to).latency_ns;
        let span = self.message(from, Lane::Wire(to), &request, (since, self.now, there), before);
        let connection = &mut self.ports.connections[number];
        connection.last_span = span.or(connection.last_span);
        connection.flying.push_back((request, span));
        self.calendar.at(there, Event::Delivered(number));
        let waiting = self.ports.queues.get_mut(&self.hosts.nic_of(from)).and_then(VecDeque::pop_front);
        if let Some(waiting) = waiting {
            self.calendar.at(self.now, Event::Connection(waiting));
        }
        self.calendar.at(self.now, Event::Connection(number));
    }

    /// The oldest message of a connection that is on its way has arrived.
    pub(super) fn delivered(&mut self, number: usize) {
        let connection = &mut self.ports.connections[number];
        let (from, to) = (connection.from, connection.to);
        let Some((request, span)) = connection.flying.pop_front() else { return };
        self.arrive(&request, span, self.now);
        // The answer takes as long.
        let known = self.now + self.hosts.route(from, to).latency_ns;
        self.calendar.at(known, Event::Complete(request.channel));
    }

    /// What a message brings is there at `at`.
    fn arrive(&mut self, request: &Request<'a>, span: Option<SpanId>, at: f64) {
        if request.signals {
            let partner = self.ports.channels[request.channel as usize].partner;
            self.calendar.at(at, Event::Signal(partner, span));
        }
        if let Some((work, slice)) = request.packets {
            for reader in self.packets.write(request.round, work, slice, (at, at), (None, Some(span))) {
                self.calendar.at(at, Event::Packets(reader, request.round));
            }
        }
    }

    fn message(
        &mut self,
        rank: u32,
        lane: Lane,
        request: &Request<'a>,
        (start, ready, end): (f64, f64, f64),
        before: Option<SpanId>,
    ) -> Option<SpanId> {
        // Recorded with the block's step.
        request.cause?;
        let name = if request.bytes > 0 { "message" } else { "signal" };
        let kind = SpanKind::Message;
        let (path, bytes) = (OpPath { index: 0, inner: None }, request.bytes);
        // What is late for its turn waited for the message before it; else for the block.
        let queued = before.filter(|before| self.spans[*before].ready >= start);
        let cause = if queued.is_some() { queued } else { request.cause };
        self.spans.push(Span {
            rank,
            lane,
            kind,
            name,
            path,
            iteration: 0,
            start,
            ready,
            end,
            bytes,
            cause,
            before: request.cause,
        });
        Some(self.spans.len() - 1)
    }
}
