//! One small plan per operation of the format, two ranks each, written in the format itself: what the builder's passes
//! would join stays apart.

use std::slice::from_ref;

use serde_json::{Value, json};
use warpway::plan::Plan;

/// All of them. Each passes the verifier's strict profile.
pub fn operations() -> Vec<Plan> {
    let mut plans = raw();
    plans.extend(by_proxy());
    plans.extend(packets());
    plans.extend(multicast());
    plans
}

/// An all-reduce of `chunks` chunks: the operations of each block of a rank, by rank.
struct Sketch {
    name: &'static str,
    chunks: u32,
    in_place: bool,
    /// Packets need their scratch twice: what is read in one launch may be written in the next.
    double: bool,
}

impl Sketch {
    fn new(name: &'static str, chunks: u32) -> Self {
        Self { name, chunks, in_place: false, double: false }
    }

    /// Every block reaches channels 0 and 1 to the peer, memory and port; as remote buffers 0, 1 and 2 the peer's
    /// input, output and scratch; as multicast channels 0, 1 and 2 the inputs, outputs and scratch of both.
    fn plan(&self, blocks: impl Fn(u32) -> Vec<Vec<Value>>) -> Plan {
        let buffers = ["i", "o", "s"];
        let gpus: Vec<Value> = (0..2)
            .map(|rank| {
                let peer = 1 - rank;
                let block = |(id, ops): (usize, Vec<Value>)| {
                    json!({"id": id, "ops": ops,
                        "channels": [{"channel_type": "memory", "channel_ids": [0, 1]},
                                     {"channel_type": "port", "channel_ids": [0, 1]},
                                     {"channel_type": "switch", "channel_ids": [0, 1, 2]}],
                        "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0, 1, 2]},
                                               {"access_channel_type": "port", "remote_buffer_ids": [0, 1, 2]}]})
                };
                let blocks: Vec<Value> = blocks(rank).into_iter().enumerate().map(block).collect();
                let mut channels = vec![
                    json!({"channel_type": "memory", "connected_to": [peer, peer]}),
                    json!({"channel_type": "port", "connected_to": [peer, peer]}),
                ];
                channels.extend(buffers.map(|buffer| {
                    json!({"channel_type": "switch", "buffer_type": buffer,
                        "rank_groups": [{"size": 2, "ranks": [0, 1]}]})
                }));
                let remote = buffers.map(|buffer| {
                    json!({"rank": peer, "type": buffer, "access_channel_types": ["memory", "port"]})
                });
                json!({"id": rank, "input_chunks": self.chunks, "output_chunks": self.chunks,
                    "scratch_chunks": 4, "threadblocks": blocks, "channels": channels,
                    "remote_buffers": remote, "semaphores": []})
            })
            .collect();
        let plan = json!({"name": self.name, "collective": "allreduce", "protocol": "LL", "gpus": gpus,
            "inplace": self.in_place, "use_double_scratch_buffer": self.double, "extensions": ["glre"]});
        Plan::from_json(plan.to_string().as_bytes()).unwrap().plan
    }
}

fn local(buffer: &str, chunk: u32) -> Value {
    json!({"type": buffer, "index": chunk, "size": 1})
}

fn far(buffer: &str, chunk: u32) -> Value {
    json!({"buffer_id": number(buffer), "index": chunk, "size": 1})
}

fn region(buffer: &str, chunk: u32) -> Value {
    json!({"switch_channel_id": number(buffer), "index": chunk, "size": 1})
}

fn number(buffer: &str) -> u32 {
    match buffer {
        "i" => 0,
        "o" => 1,
        _ => 2,
    }
}

fn data(name: &str, via: &str, from: &[Value], to: &[Value]) -> Value {
    let mut operation = json!({"name": name, "channel_type": via, "src_buff": from, "dst_buff": to});
    if ["re", "rre", "glre"].iter().any(|fold| name.starts_with(fold)) {
        operation["reduce_op"] = json!("sum");
    }
    operation
}

/// With its channel.
fn on(channel: u32, mut operation: Value) -> Value {
    operation["channel_ids"] = json!([channel]);
    operation
}

fn sync(name: &str, via: &str, channel: u32) -> Value {
    json!({"name": name, "channel_type": via, "channel_ids": [channel]})
}

fn nop() -> Value {
    json!({"name": "nop"})
}

/// What both ranks did before is seen by what either does after.
fn meet() -> Vec<Value> {
    vec![nop(), sync("signal", "memory", 1), sync("wait", "memory", 1), nop()]
}

/// Between an opening and a closing.
fn between(body: &[Value]) -> Vec<Value> {
    [&meet()[..], body, &meet()].concat()
}

fn both_inputs(name: &str, second: Value, to: &[Value], via: &str) -> Value {
    data(name, via, &[local("i", 0), second], to)
}

fn raw() -> Vec<Plan> {
    let (i, o, s) = (local("i", 0), local("o", 0), local("s", 0));
    let add = || both_inputs("re", local("s", 0), &[local("o", 0)], "none");
    let one = |name, body: Vec<Value>| Sketch::new(name, 1).plan(|_| vec![between(&body)]);
    let put = data("put", "memory", from_ref(&i), &[far("s", 0)]);
    let copy = data("copy", "none", from_ref(&i), from_ref(&s));
    let staged = [from_ref(&copy), &meet()[..], &[both_inputs("rre", far("s", 0), from_ref(&o), "memory")]];
    let blocks = |_| {
        let pass = json!({"name": "barrier", "barrier_id": 0, "num_threadblocks": 2});
        // The second block sends what the first has staged.
        let second = [
            from_ref(&pass),
            &meet()[..],
            &[data("put", "memory", &[local("s", 0)], &[far("s", 1)])],
            &meet(),
            &[both_inputs("re", local("s", 1), &[local("o", 0)], "none")],
            &meet(),
        ];
        vec![vec![copy.clone(), pass.clone()], second.concat()]
    };
    vec![
        one("put_re", [&[put], &meet()[..], &[add()]].concat()),
        one("copy_rre", staged.concat()),
        one("get_re", vec![on(0, data("get", "memory", &[far("i", 0)], &[s])), nop(), add()]),
        one(
            "pws_re",
            vec![on(0, data("pws", "memory", &[i], &[far("s", 0)])), sync("wait", "memory", 0), nop(), add()],
        ),
        Sketch::new("rres", 2).plan(|me| {
            let (sources, to) = ([local("i", me), far("i", me)], [local("o", me), far("o", me)]);
            vec![between(&[data("rres", "memory", &sources, &to)])]
        }),
        Sketch::new("put_res", 2).plan(|me| {
            let (sources, to) = ([local("i", me), local("s", 0)], [local("o", me), far("o", me)]);
            let put = data("put", "memory", &[local("i", 1 - me)], &[far("s", 0)]);
            vec![between(&[&[put], &meet()[..], &[data("res", "memory", &sources, &to)]].concat())]
        }),
        Sketch::new("barrier", 1).plan(blocks),
    ]
}

/// Put, with the signal in an operation of its own, in the same one, and complete on return.
fn by_proxy() -> Vec<Plan> {
    let send = |name| on(0, data(name, "port", &[local("i", 0)], &[far("s", 0)]));
    let add = both_inputs("re", local("s", 0), &[local("o", 0)], "none");
    let (signal, wait) = (sync("signal", "port", 0), sync("wait", "port", 0));
    let flush = sync("flush", "port", 0);
    let one = |name, body: &[Value]| Sketch::new(name, 1).plan(|_| vec![between(body)]);
    vec![
        one("port_put", &[send("put"), signal, flush.clone(), wait.clone(), nop(), add.clone()]),
        one("port_pws", &[send("pws"), wait.clone(), flush, nop(), add.clone()]),
        one("port_pwsf", &[send("pwsf"), wait, nop(), add]),
    ]
}

fn packets() -> Vec<Plan> {
    let (i, o) = (local("i", 0), local("o", 0));
    let sketch = |name, chunks| Sketch { double: true, ..Sketch::new(name, chunks) };
    let pack = data("ppkt", "memory", from_ref(&i), &[far("s", 0)]);
    let add = |slot| both_inputs("repkt", local("s", slot), &[local("o", 0)], "none");
    let own = data("cpkt", "none", from_ref(&i), &[local("s", 0)]);
    let forward = |name, via| data(name, via, &[local("s", 0)], &[far("s", 1)]);
    let unpack = |slot, to| data("upkt", "none", &[local("s", slot)], &[local("o", to)]);
    let one = |name, body: &[Value]| sketch(name, 1).plan(|_| vec![body.to_vec()]);
    // The proxy reads the packets after the operation: the launch ends when it has.
    let flush = sync("flush", "port", 0);
    let pipelined = json!({"name": "pipeline", "iter_context": {"unit_size": 64, "num_chunks": 1},
        "ops": [pack.clone(), add(0)]});
    vec![
        one("ppkt_repkt", &[pack.clone(), add(0)]),
        one("pipeline_packets", &[pipelined]),
        one("cpkt_rppkt", &[own.clone(), forward("rppkt", "memory"), add(1)]),
        one("cpkt_port_ppkt", &[own.clone(), nop(), on(0, forward("ppkt", "port")), flush.clone(), add(1)]),
        one("cpkt_port_rppkt", &[own, on(0, forward("rppkt", "port")), flush, add(1)]),
        one(
            "recpkt",
            &[pack, both_inputs("recpkt", local("s", 0), &[o, local("s", 1)], "none"), nop(), unpack(1, 0)],
        ),
        sketch("respkt", 2).plan(|me| {
            let (sources, to) = ([local("i", me), local("s", 0)], [local("o", me), far("s", 1)]);
            let pack = data("ppkt", "memory", &[local("i", 1 - me)], &[far("s", 0)]);
            vec![vec![pack, data("respkt", "memory", &sources, &to), unpack(1, 1 - me)]]
        }),
        sketch("recspkt", 2).plan(|me| {
            let sources = [local("i", me), local("s", 0)];
            let to = [local("o", me), local("s", 1), far("s", 2)];
            let pack = data("ppkt", "memory", &[local("i", 1 - me)], &[far("s", 0)]);
            let fold = data("recspkt", "memory", &sources, &to);
            vec![vec![pack, fold, nop(), unpack(1, me), unpack(2, 1 - me)]]
        }),
    ]
}

fn multicast() -> Vec<Plan> {
    let fold = |name, me, to: Value| data(name, "switch", &[region("i", me)], &[to]);
    let in_place = |name| Sketch { in_place: true, ..Sketch::new(name, 2) };
    vec![
        in_place("glres").plan(|me| vec![between(&[fold("glres", me, region("i", me))])]),
        Sketch::new("glre_gstore", 2).plan(|me| {
            let store = data("gstore", "switch", &[local("o", me)], &[region("o", me)]);
            vec![between(&[fold("glre", me, local("o", me)), nop(), store])]
        }),
        Sketch { double: true, ..Sketch::new("gstorepkt", 1) }.plan(|me| {
            let own = data("cpkt", "none", &[local("i", 0)], &[local("s", 0)]);
            let store = data("gstorepkt", "switch", &[local("s", 0)], &[region("s", 1 + me)]);
            let add = both_inputs("repkt", local("s", 2 - me), &[local("o", 0)], "none");
            vec![vec![own, store, add]]
        }),
    ]
}
