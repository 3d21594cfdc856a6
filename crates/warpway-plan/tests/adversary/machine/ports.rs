//! Port channels: requests that are done late, data in any order, flags after all data before them.

use std::collections::VecDeque;

use super::clock::{Clock, join};
use super::failure::{Fault, Kind};
use super::memory::Stamp;
use super::program::{Movement, Region, Step};
use super::run::Machine;

#[derive(Debug)]
pub(super) enum Request {
    /// Lanes still to be moved, of a movement that an instruction of a block pushed.
    Data {
        source: (u32, u32, u32),
        lanes: Vec<u32>,
    },
    Flag,
    Sync,
}

#[derive(Debug)]
struct Entry {
    request: Request,
    number: u32,
    launch: u32,
    /// What the pushing thread knew.
    clock: Clock,
}

#[derive(Debug, Default)]
pub(super) struct Port {
    queue: VecDeque<Entry>,
    pub(super) pushed: u32,
    /// Requests that are complete; they complete in order.
    pub(super) done: u32,
    /// What is known once the first `done` requests are.
    pub(super) clock: Clock,
}

impl Port {
    pub(super) fn reset(&mut self) {
        self.queue.clear();
        (self.pushed, self.done) = (0, 0);
    }
}

impl Machine<'_> {
    /// Appends a request; answers its number.
    pub(super) fn push(&mut self, port: u32, request: Request, launch: u32, clock: Clock) -> u32 {
        let port = &mut self.ports[port as usize];
        let number = port.pushed;
        port.queue.push_back(Entry { request, number, launch, clock });
        port.pushed += 1;
        number
    }

    /// Moves one lane, or does the flag or the sync at the head.
    pub(super) fn step_port(&mut self, number: usize) -> Result<bool, Fault> {
        let queue = &self.ports[number].queue;
        let Some(head) = queue.front() else { return Ok(false) };
        match &head.request {
            Request::Data { lanes, .. } if lanes.is_empty() => {}
            Request::Data { .. } => {
                // Any of the data requests before the next flag.
                let open = queue.iter().take_while(|e| matches!(e.request, Request::Data { .. })).count();
                let mut at = self.random.below(open);
                let left = |e: &Entry| matches!(&e.request, Request::Data { lanes, .. } if !lanes.is_empty());
                if !left(&queue[at]) {
                    at = 0;
                }
                self.move_lane(number, at)?;
                return Ok(true);
            }
            Request::Flag => {
                self.complete(number);
                let known = self.pool.copy(&self.ports[number].clock);
                match self.program.ports[number] {
                    Some(channel) => self.channels[channel as usize].signals.push(Some(known)),
                    None => self.lost = true,
                }
                self.note(|| format!("port {number} raises a flag"));
                return Ok(true);
            }
            Request::Sync => {}
        }
        self.complete(number);
        Ok(true)
    }

    /// Takes the head away; what it knew and did is now known of the port.
    fn complete(&mut self, number: usize) {
        let component = self.program.blocks.len() + number;
        let port = &mut self.ports[number];
        if let Some(entry) = port.queue.pop_front() {
            join(&mut port.clock, &entry.clock);
            port.done = entry.number + 1;
            port.clock[component] = port.done;
            self.pool.give_back(entry.clock);
        }
    }

    fn move_lane(&mut self, number: usize, at: usize) -> Result<(), Fault> {
        let component = (self.program.blocks.len() + number) as u32;
        let entry = &mut self.ports[number].queue[at];
        let Request::Data { source: (block, instruction, movement), lanes } = &mut entry.request else {
            return Ok(());
        };
        let lane = lanes.swap_remove(self.random.below(lanes.len()));
        let step = &self.program.blocks[*block as usize].instructions[*instruction as usize].step;
        let Step::Calls { pushed, .. } = step else { return Ok(()) };
        let movement = &pushed[*movement as usize];
        let (launch, request) = (entry.launch, entry.number);
        let by = Stamp { component, time: request, task: (request, lane) };
        let clock = self.pool.copy(&entry.clock);
        let moved = self.transfer(movement, lane, launch, (by, &clock));
        self.pool.give_back(clock);
        self.note(|| format!("port {number} moves lane {lane} of request {request}"));
        moved
    }

    fn transfer(
        &mut self,
        movement: &Movement,
        lane: u32,
        launch: u32,
        (by, clock): (Stamp, &Clock),
    ) -> Result<(), Fault> {
        let turn = self.turns[launch as usize];
        let flag = turn.flag();
        let mut origin = 0;
        let source = &movement.reads[0];
        let at = source.at(lane, &turn);
        self.admit(source, at, launch, by)?;
        let value = match source.packets {
            true => self.memory.forward(at, flag, by, clock, &mut origin)?,
            false => self.memory.read(at, by, clock, &mut origin)?,
        };
        for destination in &movement.writes {
            let at = destination.at(lane, &turn);
            self.admit(destination, at, launch, by)?;
            match destination.packets {
                true => self.memory.pack(at, flag, by, (value, origin))?,
                false => self.memory.write(at, by, clock, (value, origin))?,
            }
        }
        Ok(())
    }

    /// Refuses to touch a caller's buffers but during the launch of that number.
    pub(super) fn admit(&self, region: &Region, at: u32, launch: u32, by: Stamp) -> Result<(), Fault> {
        match region.callers.map(|owner| &self.ranks[owner as usize]) {
            Some(owner) if !owner.running || owner.launch != launch => {
                Err(Fault::at(Kind::PeerNotRunning, at, by))
            }
            _ => Ok(()),
        }
    }
}
