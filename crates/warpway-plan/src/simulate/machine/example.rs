//! Machines to start from. Their numbers are round and made up; `warpway plan calibrate` measures real ones.

use std::collections::BTreeMap;

use super::{Costs, HostKind, Machine, MemoryLevel, Nic, SharedLink, Straggler};
use crate::data_type::DataType;

pub(super) fn example() -> Machine {
    let level = |up_to_bytes, copy, all_cores, from_peer, to_peer| MemoryLevel {
        up_to_bytes,
        copy,
        all_cores,
        fold: copy / 1.5,
        fold_all_cores: all_cores / 1.5,
        from_peer,
        to_peer,
        fold_from_peer: from_peer / 1.5,
        fold_to_peer: to_peer / 2.0,
        packet_write: 5.0,
        packet_read: 5.0,
        packet_stream: 4.0,
    };
    let host = HostKind {
        count: 2,
        ranks: 4,
        cores: 8,
        memory: vec![
            level(1 << 15, 60.0, 480.0, 12.0, 12.0),
            level(1 << 20, 40.0, 320.0, 12.0, 12.0),
            level(1 << 25, 16.0, 80.0, 10.0, 10.0),
            level(1 << 30, 10.0, 40.0, 10.0, 10.0),
        ],
        nics: vec![Nic { rate: 12.5, message_ns: 100.0, in_turn: false }; 2],
        rank_link: None,
    };
    Machine {
        name: "two hosts behind one switch".into(),
        hosts: vec![host],
        wire_latency_ns: 2000.0,
        links: vec![SharedLink {
            name: "uplink of host 0".into(),
            inside: vec![0],
            rate: 20.0,
            latency_ns: 300.0,
        }],
        costs: Costs {
            fold: BTreeMap::from([(DataType::Float32, 20.0), (DataType::Bfloat16, 10.0)]),
            ..plain_costs()
        },
        stragglers: vec![Straggler { rank: 3, slow_down: 1.5, start_ns: 2000.0 }],
    }
}

pub(super) fn plain(ranks: u32) -> Machine {
    let free = MemoryLevel {
        up_to_bytes: 1 << 40,
        copy: 10.0,
        all_cores: 1e9,
        fold: 10.0 / 1.5,
        fold_all_cores: 1e9,
        from_peer: 10.0,
        to_peer: 10.0,
        fold_from_peer: 10.0,
        fold_to_peer: 10.0,
        packet_write: 5.0,
        packet_read: 5.0,
        packet_stream: 1e9,
    };
    let host =
        HostKind { count: 1, ranks, cores: u32::MAX, memory: vec![free], nics: Vec::new(), rank_link: None };
    Machine {
        name: "plain".into(),
        hosts: vec![host],
        wire_latency_ns: 0.0,
        links: Vec::new(),
        costs: plain_costs(),
        stragglers: Vec::new(),
    }
}

fn plain_costs() -> Costs {
    Costs {
        launch_ns: 500.0,
        announce_ns: 0.0,
        blocks_ns: 1000.0,
        handshake_ns: 100.0,
        step_ns: 10.0,
        signal_ns: 20.0,
        signal_flight_ns: 100.0,
        switch_ns: 2000.0,
        wait_ns: 20.0,
        barrier_ns: 100.0,
        line_ns: 0.0,
        packet_flight_ns: 100.0,
        request_ns: 100.0,
        proxy_ns: 200.0,
        fold: BTreeMap::from([(DataType::Float32, 20.0)]),
    }
}
