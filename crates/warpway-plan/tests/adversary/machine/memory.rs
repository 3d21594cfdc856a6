//! What lies in memory, who touched it last, and what is ordered before whom.

use super::failure::{Fault, Kind};

/// What one lane holds: which inputs, joined how. Equal contents have equal hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) hash: u64,
    /// 0: an input as it came; otherwise the operator that joined several.
    pub(crate) op: u8,
}

impl Value {
    pub(crate) const UNDEFINED: Self = Self { hash: 0, op: 255 };
    const MIXED: Self = Self { hash: 1, op: 254 };

    pub(crate) fn input(hash: u64) -> Self {
        Self { hash, op: 0 }
    }

    /// Joins two values. The sum of hashes stands for the multiset: order and grouping are forgotten, duplicates
    /// are not.
    pub(crate) fn join(self, other: Self, op: u8) -> Self {
        if self == Self::UNDEFINED || other == Self::UNDEFINED {
            return Self::UNDEFINED;
        }
        if [self.op, other.op].iter().any(|o| *o != 0 && *o != op) {
            return Self::MIXED;
        }
        Self { hash: self.hash.wrapping_add(other.hash), op }
    }
}

/// Names an access: who (a block or a port channel), when on its own clock, and which of its unordered parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) component: u32,
    pub(crate) time: u32,
    /// Instruction (or request) and lane: accesses of one lane of one instruction are ordered, all others of
    /// the same segment are not.
    pub(crate) task: (u32, u32),
}

impl Stamp {
    const NEVER: Self = Self { component: u32::MAX, time: 0, task: (0, 0) };

    /// `clock[c]` counts what is known complete of component `c`.
    fn before(&self, now: &Self, clock: &[u32]) -> bool {
        self.component == u32::MAX || clock[self.component as usize] > self.time || self == now
    }
}

/// Which reads a value was made from, through packets and memory: the elements by which a packet orders.
pub(crate) type Origin = u32;

/// One raw lane.
#[derive(Debug, Clone)]
struct Cell {
    value: Value,
    origin: Origin,
    written: Stamp,
    /// Since it was written.
    read: Vec<Stamp>,
    /// Origins from here on were made since it was written.
    since: Origin,
}

/// One packet.
#[derive(Debug, Clone)]
struct Slot {
    /// 0: never written.
    flag: u32,
    value: Value,
    origin: Origin,
    written: Stamp,
    /// Who has seen this flag.
    seen: Vec<Stamp>,
}

#[derive(Debug, Clone, Copy)]
struct OriginNode {
    cell: u32,
    stamp: Stamp,
    parents: [Origin; 2],
    visited: u32,
}

/// All memory of all ranks.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    cells: Vec<Cell>,
    slots: Vec<Slot>,
    origins: Vec<OriginNode>,
    visits: u32,
    stack: Vec<Origin>,
    found: Vec<Stamp>,
}

impl Memory {
    pub(crate) fn reset(&mut self, cells: usize, slots: usize) {
        let cell =
            Cell { value: Value::UNDEFINED, origin: 0, written: Stamp::NEVER, read: Vec::new(), since: 0 };
        self.cells.resize(cells, cell);
        for at in 0..cells {
            self.fill(at as u32, Value::UNDEFINED);
        }
        let slot =
            Slot { flag: 0, value: Value::UNDEFINED, origin: 0, written: Stamp::NEVER, seen: Vec::new() };
        self.slots.resize(slots, slot);
        for slot in &mut self.slots {
            slot.flag = 0;
            slot.written = Stamp::NEVER;
            slot.seen.clear();
        }
        self.visits = 0;
        self.origins.clear();
        self.origins.push(OriginNode { cell: u32::MAX, stamp: Stamp::NEVER, parents: [0; 2], visited: 0 });
    }

    /// The host puts a value there while nobody else may look.
    pub(crate) fn fill(&mut self, cell: u32, value: Value) {
        let cell = &mut self.cells[cell as usize];
        (cell.value, cell.origin, cell.written) = (value, 0, Stamp::NEVER);
        cell.since = self.origins.len() as Origin;
        cell.read.clear();
    }

    /// What the host finds after the launch whose end has that clock; all accesses must be over by then.
    pub(crate) fn inspect(&self, at: u32, clock: &[u32]) -> Result<Value, Fault> {
        let cell = &self.cells[at as usize];
        let end = Stamp::NEVER;
        let open = std::iter::once(&cell.written).chain(&cell.read).find(|s| !s.before(&end, clock));
        match open {
            Some(stamp) => Err(Fault::at(Kind::OpenAtEnd, at, *stamp)),
            None => Ok(cell.value),
        }
    }

    /// Reads a lane; adds it to the origin of what the reader makes.
    pub(crate) fn read(
        &mut self,
        at: u32,
        by: Stamp,
        clock: &[u32],
        origin: &mut Origin,
    ) -> Result<Value, Fault> {
        let cell = &mut self.cells[at as usize];
        if !cell.written.before(&by, clock) {
            return Err(Fault::between(Kind::RaceOnRead, at, cell.written, by));
        }
        if cell.read.last() != Some(&by) {
            cell.read.push(by);
        }
        self.origins.push(OriginNode { cell: at, stamp: by, parents: [cell.origin, *origin], visited: 0 });
        *origin = (self.origins.len() - 1) as u32;
        Ok(cell.value)
    }

    /// Writes a lane with a value made from `origin`.
    pub(crate) fn write(
        &mut self,
        at: u32,
        by: Stamp,
        clock: &[u32],
        (value, origin): (Value, Origin),
    ) -> Result<(), Fault> {
        let open = |s: &Stamp| !s.before(&by, clock);
        let cell = &self.cells[at as usize];
        if open(&cell.written) || cell.read.iter().any(open) {
            // The clocks do not order them; the data may: the value was made from what those reads saw.
            let since = cell.since;
            self.find_reads(origin, at, since);
            let cell = &self.cells[at as usize];
            if let Some(read) = cell.read.iter().find(|s| open(s) && !self.came_before(s)) {
                return Err(Fault::between(Kind::RaceOnWrite, at, *read, by));
            }
            if open(&cell.written) && self.found.is_empty() {
                return Err(Fault::between(Kind::RaceOnWrite, at, cell.written, by));
            }
        }
        let cell = &mut self.cells[at as usize];
        (cell.value, cell.origin, cell.written) = (value, origin, by);
        cell.since = self.origins.len() as Origin;
        cell.read.clear();
        Ok(())
    }

    /// True if the slot carries that flag.
    pub(crate) fn valid(&self, slot: u32, flag: u32) -> bool {
        self.slots[slot as usize].flag == flag
    }

    /// Takes the payload of a valid slot.
    pub(crate) fn take(&mut self, slot: u32, by: Stamp, origin: &mut Origin) -> Value {
        let slot = &mut self.slots[slot as usize];
        if slot.seen.last() != Some(&by) {
            slot.seen.push(by);
        }
        self.origins.push(OriginNode {
            cell: u32::MAX,
            stamp: Stamp::NEVER,
            parents: [slot.origin, *origin],
            visited: 0,
        });
        *origin = (self.origins.len() - 1) as u32;
        slot.value
    }

    /// Reads a slot as plain bytes: its writer, or somebody who saw the flag, must be known to be done.
    pub(crate) fn forward(
        &mut self,
        at: u32,
        flag: u32,
        by: Stamp,
        clock: &[u32],
        origin: &mut Origin,
    ) -> Result<Value, Fault> {
        let slot = &self.slots[at as usize];
        if slot.flag != flag {
            return Err(Fault::at(Kind::InvalidPacketForwarded, at, by));
        }
        if !slot.written.before(&by, clock) && !slot.seen.iter().any(|s| s.before(&by, clock)) {
            return Err(Fault::between(Kind::RaceOnRead, at, slot.written, by));
        }
        Ok(self.take(at, by, origin))
    }

    /// Writes a packet.
    pub(crate) fn pack(
        &mut self,
        at: u32,
        flag: u32,
        by: Stamp,
        (value, origin): (Value, Origin),
    ) -> Result<(), Fault> {
        let slot = &mut self.slots[at as usize];
        if slot.flag >= flag {
            return Err(Fault::between(Kind::PacketWrittenTwice, at, slot.written, by));
        }
        (slot.flag, slot.value, slot.origin, slot.written) = (flag, value, origin, by);
        slot.seen.clear();
        Ok(())
    }

    /// True if a read is among those found, or in an earlier segment of one of them.
    fn came_before(&self, read: &Stamp) -> bool {
        let before = |f: &Stamp| f == read || (f.component == read.component && f.time > read.time);
        self.found.iter().any(before)
    }

    /// Finds the reads of `cell` since it was last written that went into `origin`.
    fn find_reads(&mut self, origin: Origin, cell: u32, since: Origin) {
        self.visits += 1;
        self.found.clear();
        self.stack.clear();
        self.stack.push(origin);
        while let Some(at) = self.stack.pop() {
            let node = &mut self.origins[at as usize];
            // Parents are older than what was made from them.
            if at == 0 || at < since || node.visited == self.visits {
                continue;
            }
            node.visited = self.visits;
            self.stack.extend(node.parents);
            if node.cell == cell {
                self.found.push(node.stamp);
            }
        }
    }
}
