//! Programs and their plans.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod algorithms;
mod defects;
mod fusion;
mod golden;
mod growth;
mod numbering;
mod property;
mod refusals;
mod shapes;
mod shared;
#[path = "../support/shared_plans.rs"]
mod shared_plans;
mod show;
mod sized;
mod synchronisation;

use warpway_plan::{
    Buffer, Chunk, CollectiveShape, Compat, DataSync, MemoryChannel, Plan, PortChannel, Program,
    ProgramOptions,
};

/// Two ranks with eight chunks in every buffer and two channels of each type in both directions.
struct Pair {
    p: Program,
    scratch: [Buffer; 2],
    /// From rank 0 to rank 1.
    memory: [MemoryChannel; 2],
    port: [PortChannel; 2],
    /// From rank 1 to rank 0.
    memory_back: [MemoryChannel; 2],
    port_back: [PortChannel; 2],
}

impl Pair {
    fn new() -> Self {
        Self::with(ProgramOptions::new("pair", CollectiveShape::test(2, 8, 8)))
    }

    fn with(options: ProgramOptions) -> Self {
        let mut p = Program::new(options).unwrap();
        let scratch = [p.scratch(0, 8).unwrap(), p.scratch(1, 8).unwrap()];
        let memory = [p.memory_channel(0, 1).unwrap(), p.memory_channel(0, 1).unwrap()];
        let port = [p.port_channel(0, 1).unwrap(), p.port_channel(0, 1).unwrap()];
        let memory_back = [p.memory_channel(1, 0).unwrap(), p.memory_channel(1, 0).unwrap()];
        let port_back = [p.port_channel(1, 0).unwrap(), p.port_channel(1, 0).unwrap()];
        Self { p, scratch, memory, port, memory_back, port_back }
    }

    /// A chunk by a name such as `s3+2`: buffer, index, size; `+1` may be left out. A `'` behind means rank 1.
    fn at(&self, name: &str) -> Chunk {
        let rank = u32::from(name.ends_with('\''));
        let (buffer, range) = name.trim_end_matches('\'').split_at(1);
        let (index, size) = range.split_once('+').unwrap_or((range, "1"));
        let (index, size): (u64, u64) = (index.parse().unwrap(), size.parse().unwrap());
        let buffer = match buffer {
            "i" => self.p.input(rank).unwrap(),
            "o" => self.p.output(rank).unwrap(),
            _ => self.scratch[rank as usize],
        };
        buffer.chunk(index..index + size).unwrap()
    }

    fn copy(&mut self, destination: &str, source: &str) {
        let (destination, source) = (self.at(destination), self.at(source));
        self.p.copy(destination, source, 0).unwrap();
    }

    fn put(&mut self, destination: &str, source: &str) {
        let (destination, source) = (self.at(destination), self.at(source));
        self.p.put(self.memory[0], destination, source, 0).unwrap();
    }

    fn signal(&mut self, channel: usize, sync: DataSync) {
        self.p.signal(self.memory[channel], 0, sync).unwrap();
        self.p.wait(self.memory_back[channel], 0, DataSync::None).unwrap();
    }

    fn wait(&mut self, channel: usize, sync: DataSync) {
        self.p.wait(self.memory[channel], 0, sync).unwrap();
        self.p.signal(self.memory_back[channel], 0, DataSync::None).unwrap();
    }

    /// Block 0 of rank 0.
    fn shown(&self) -> Vec<String> {
        show::block(&self.plan(), 0, 0)
    }

    fn shown_compat(&self) -> Vec<String> {
        show::block(&self.p.emit(Compat::Mscclpp).unwrap().plan, 0, 0)
    }

    fn plan(&self) -> Plan {
        self.p.emit(Compat::None).unwrap().plan
    }

    fn warnings(&self) -> Vec<String> {
        self.p.emit(Compat::None).unwrap().warnings.iter().map(|warning| warning.to_string()).collect()
    }
}
