//! From a topology file to a machine; the first thing wrong is named with line and key.

use std::collections::BTreeMap;

use super::text::{Node, Value, parse};
use super::{Costs, HostKind, Machine, MemoryLevel, Nic, SharedLink, Straggler};
use crate::data_type::DataType;

/// What is wrong with a topology file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {what}", if field.is_empty() { String::new() } else { format!(", {field}") })]
pub struct MachineError {
    /// From 1.
    pub line: u32,
    /// As a path: `hosts[0].nics[1].gigabytes_per_second`; empty if the file is no JSON there.
    pub field: String,
    /// What, and what would do.
    pub what: String,
}

type Result<T> = std::result::Result<T, MachineError>;

pub(super) fn machine(text: &str) -> Result<Machine> {
    let root = parse(text)?;
    let mut top = Object::of(&root, "")?;
    let format = top.text("format")?;
    if format.value != FORMAT {
        return Err(format.error(format!("this reads \"{FORMAT}\"")));
    }
    let name = top.optional("name").map(|at| at.text()).transpose()?.unwrap_or_default();
    let hosts: Vec<HostKind> = top.list("hosts")?.iter().map(host).collect::<Result<_>>()?;
    let n_hosts: u64 = hosts.iter().map(|kind| u64::from(kind.count)).sum();
    let machine = Machine {
        name,
        hosts,
        wire_latency_ns: top.optional("wire_latency_ns").map_or(Ok(0.0), |at| at.duration())?,
        links: top.optional_list("links")?.iter().map(|at| link(at, n_hosts)).collect::<Result<_>>()?,
        costs: costs(&top.required("costs")?)?,
        stragglers: stragglers(&top.optional_list("stragglers")?)?,
    };
    top.end()?;
    if machine.hosts.is_empty() {
        return Err(At { node: &root, path: "hosts".into() }.error("at least one kind of host"));
    }
    if machine.hosts.iter().any(|kind| kind.nics.is_empty()) && n_hosts > 1 {
        return Err(
            At { node: &root, path: "hosts".into() }.error("several hosts need `nics` to reach each other")
        );
    }
    Ok(machine)
}

/// The value of `format`.
pub(super) const FORMAT: &str = "warpway topology 1";

fn host(at: &At<'_>) -> Result<HostKind> {
    let mut object = at.object()?;
    let host = HostKind {
        count: object.optional("count").map_or(Ok(1), |at| at.count())?,
        ranks: object.required("ranks")?.count()?,
        cores: object.required("cores")?.count()?,
        memory: object.list("memory")?.iter().map(level).collect::<Result<_>>()?,
        nics: object.optional_list("nics")?.iter().map(nic).collect::<Result<_>>()?,
        rank_link: object.optional("rank_link_gigabytes_per_second").map(|at| at.rate()).transpose()?,
    };
    let ascending = host.memory.is_sorted_by(|a, b| a.up_to_bytes < b.up_to_bytes);
    if host.memory.is_empty() || !ascending {
        return Err(object.at.member("memory").error("at least one level, ascending by `up_to_bytes`"));
    }
    object.end()?;
    Ok(host)
}

fn level(at: &At<'_>) -> Result<MemoryLevel> {
    let mut object = at.object()?;
    let copy = object.required("copy")?.rate()?;
    let all_cores = object.required("all_cores")?.rate()?;
    let or = |at: Option<At<'_>>, rate: f64| at.map_or(Ok(rate), |at| at.rate());
    let from_peer = or(object.optional("from_peer"), copy)?;
    let to_peer = or(object.optional("to_peer"), copy)?;
    // Packets take twice the bytes of their data.
    let packet_read = or(object.optional("packet_read"), copy / 2.0)?;
    let level = MemoryLevel {
        up_to_bytes: object.required("up_to_bytes")?.whole(1)?,
        copy,
        all_cores,
        // Three bytes read or written instead of two.
        fold: or(object.optional("fold"), copy / 1.5)?,
        fold_all_cores: or(object.optional("fold_all_cores"), all_cores / 1.5)?,
        from_peer,
        to_peer,
        fold_from_peer: or(object.optional("fold_from_peer"), from_peer)?,
        fold_to_peer: or(object.optional("fold_to_peer"), to_peer)?,
        packet_write: or(object.optional("packet_write"), copy / 2.0)?,
        packet_read,
        packet_stream: or(object.optional("packet_stream"), packet_read)?,
    };
    object.end()?;
    Ok(level)
}

fn nic(at: &At<'_>) -> Result<Nic> {
    let mut object = at.object()?;
    let nic = Nic {
        rate: object.required("gigabytes_per_second")?.rate()?,
        message_ns: object.optional("message_ns").map_or(Ok(0.0), |at| at.duration())?,
        in_turn: object.optional("in_turn").map_or(Ok(false), |at| at.bool())?,
    };
    object.end()?;
    Ok(nic)
}

fn link(at: &At<'_>, n_hosts: u64) -> Result<SharedLink> {
    let mut object = at.object()?;
    let mut inside = Vec::new();
    for at in object.list("inside")? {
        let host = at.index()?;
        if u64::from(host) >= n_hosts {
            return Err(at.error(format!("there is no host {host}: `hosts` has {n_hosts}")));
        }
        if inside.contains(&host) {
            return Err(at.error(format!("host {host} is there twice")));
        }
        inside.push(host);
    }
    let link = SharedLink {
        name: object.required("name")?.text()?,
        inside,
        rate: object.required("gigabytes_per_second")?.rate()?,
        latency_ns: object.optional("latency_ns").map_or(Ok(0.0), |at| at.duration())?,
    };
    object.end()?;
    Ok(link)
}

fn stragglers(list: &[At<'_>]) -> Result<Vec<Straggler>> {
    let mut found: Vec<Straggler> = Vec::with_capacity(list.len());
    for at in list {
        let late = straggler(at)?;
        if found.iter().any(|other| other.rank == late.rank) {
            return Err(at.error(format!("rank {} is there twice", late.rank)));
        }
        found.push(late);
    }
    Ok(found)
}

fn straggler(at: &At<'_>) -> Result<Straggler> {
    let mut object = at.object()?;
    let straggler = Straggler {
        rank: object.required("rank")?.index()?,
        slow_down: object.optional("slow_down").map_or(Ok(1.0), |at| at.rate())?,
        start_ns: object.optional("start_ns").map_or(Ok(0.0), |at| at.duration())?,
    };
    object.end()?;
    Ok(straggler)
}

fn costs(at: &At<'_>) -> Result<Costs> {
    let mut object = at.object()?;
    let mut duration = |key| object.required(key)?.duration();
    let costs = Costs {
        launch_ns: duration("launch_ns")?,
        announce_ns: duration("announce_ns")?,
        blocks_ns: duration("blocks_ns")?,
        handshake_ns: duration("handshake_ns")?,
        step_ns: duration("step_ns")?,
        signal_ns: duration("signal_ns")?,
        signal_flight_ns: duration("signal_flight_ns")?,
        switch_ns: duration("switch_ns")?,
        wait_ns: duration("wait_ns")?,
        barrier_ns: duration("barrier_ns")?,
        line_ns: duration("line_ns")?,
        packet_flight_ns: duration("packet_flight_ns")?,
        request_ns: duration("request_ns")?,
        proxy_ns: duration("proxy_ns")?,
        fold: fold(&object.required("fold")?)?,
    };
    object.end()?;
    Ok(costs)
}

fn fold(at: &At<'_>) -> Result<BTreeMap<DataType, f64>> {
    let object = at.object()?;
    let rate = |(name, node): &(String, Node)| {
        let at = At { node, path: format!("{}.{name}", object.at.path) };
        let data_type =
            name.parse().map_err(|error: crate::data_type::UnknownDataType| at.error(error.to_string()))?;
        Ok((data_type, at.rate()?))
    };
    object.members.iter().map(rate).collect()
}

/// A value with its path.
struct At<'n> {
    node: &'n Node,
    path: String,
}

/// An object of which keys are taken; what nobody takes is wrong.
struct Object<'n> {
    at: At<'n>,
    members: &'n [(String, Node)],
    taken: Vec<&'static str>,
}

/// A text with where it stands.
struct Text<'n> {
    value: String,
    at: At<'n>,
}

impl Text<'_> {
    fn error(&self, what: String) -> MachineError {
        self.at.error(what)
    }
}

impl<'n> At<'n> {
    fn error(&self, what: impl Into<String>) -> MachineError {
        MachineError { line: self.node.line, field: self.path.clone(), what: what.into() }
    }

    fn object(&self) -> Result<Object<'n>> {
        Object::of(self.node, &self.path)
    }

    fn member(&self, key: &str) -> At<'n> {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        let node = match &self.node.value {
            Value::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, node)| node),
            _ => None,
        };
        At { node: node.unwrap_or(self.node), path }
    }

    fn number(&self) -> Result<f64> {
        match self.node.value {
            Value::Number(number) => Ok(number),
            _ => Err(self.error("a number")),
        }
    }

    /// Above zero.
    fn rate(&self) -> Result<f64> {
        let number = self.number()?;
        if number > 0.0 { Ok(number) } else { Err(self.error("a number above 0")) }
    }

    /// Not negative.
    fn duration(&self) -> Result<f64> {
        let number = self.number()?;
        if number >= 0.0 { Ok(number) } else { Err(self.error("0 or more nanoseconds")) }
    }

    fn whole(&self, least: u64) -> Result<u64> {
        let number = self.number()?;
        // Up to 2^53 numbers of the file are exact.
        let fits = number.fract() == 0.0 && number >= least as f64 && number <= (1u64 << 53) as f64;
        if fits { Ok(number as u64) } else { Err(self.error(format!("a whole number, {least} or more"))) }
    }

    fn count(&self) -> Result<u32> {
        let number = self.whole(1)?;
        u32::try_from(number).map_err(|_| self.error("less than 2^32"))
    }

    fn index(&self) -> Result<u32> {
        let number = self.whole(0)?;
        u32::try_from(number).map_err(|_| self.error("less than 2^32"))
    }

    fn bool(&self) -> Result<bool> {
        match self.node.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.error("true or false")),
        }
    }

    fn text(&self) -> Result<String> {
        match &self.node.value {
            Value::Text(text) => Ok(text.clone()),
            _ => Err(self.error("a text")),
        }
    }

    fn list(&self) -> Result<Vec<At<'n>>> {
        let Value::List(list) = &self.node.value else { return Err(self.error("a list")) };
        let element = |(at, node)| At { node, path: format!("{}[{at}]", self.path) };
        Ok(list.iter().enumerate().map(element).collect())
    }
}

impl<'n> Object<'n> {
    fn of(node: &'n Node, path: &str) -> Result<Self> {
        let at = At { node, path: path.to_owned() };
        match &node.value {
            Value::Object(members) => Ok(Self { at, members, taken: Vec::new() }),
            _ => Err(at.error("an object")),
        }
    }

    fn optional(&mut self, key: &'static str) -> Option<At<'n>> {
        self.taken.push(key);
        let found = self.members.iter().any(|(name, node)| name == key && !matches!(node.value, Value::Null));
        found.then(|| self.at.member(key))
    }

    fn required(&mut self, key: &'static str) -> Result<At<'n>> {
        self.optional(key).ok_or_else(|| self.at.member(key).error("the key is missing"))
    }

    fn text(&mut self, key: &'static str) -> Result<Text<'n>> {
        let at = self.required(key)?;
        Ok(Text { value: at.text()?, at })
    }

    fn list(&mut self, key: &'static str) -> Result<Vec<At<'n>>> {
        self.required(key)?.list()
    }

    fn optional_list(&mut self, key: &'static str) -> Result<Vec<At<'n>>> {
        self.optional(key).map_or_else(|| Ok(Vec::new()), |at| at.list())
    }

    /// Nothing may be left.
    fn end(&self) -> Result<()> {
        match self.members.iter().find(|(name, _)| !self.taken.contains(&name.as_str())) {
            Some((name, _)) => {
                let known = self.taken.join(", ");
                Err(self.at.member(name).error(format!("no such key; there are: {known}")))
            }
            None => Ok(()),
        }
    }
}
