//! Thread blocks: which tasks of the current segment may run, and what each does.

use super::clock::{Clock, join};
use super::failure::Fault;
use super::memory::{Stamp, Value};
use super::ports::Request;
use super::program::{Call, Movement, Region, Step, Turn};
use super::run::Machine;

/// A thread that makes calls in the current segment.
#[derive(Debug, Default)]
struct Thread {
    number: u32,
    /// Instruction and position in its list of calls, in program order.
    calls: Vec<(u32, u32)>,
    next: usize,
    /// What it knows beyond its block, if it acquired something in this segment.
    clock: Option<Clock>,
    /// The request that it awaits.
    awaited: u32,
}

#[derive(Debug, Clone, Copy)]
enum Task {
    /// Lane of an instruction, from that movement on.
    Lane { instruction: u32, lane: u32, movement: u32 },
    /// Position in the list of threads.
    Thread(usize),
}

#[derive(Debug, Default)]
pub(super) struct BlockState {
    pub(super) running: bool,
    /// What its segments before the current one know.
    pub(super) clock: Clock,
    /// The next instruction to be taken up.
    next: usize,
    pending: Vec<Task>,
    threads: Vec<Thread>,
    in_barrier: bool,
}

impl BlockState {
    pub(super) fn reset(&mut self) {
        (self.running, self.next, self.in_barrier) = (false, 0, false);
        self.pending.clear();
        self.threads.clear();
    }

    pub(super) fn start(&mut self, clock: &Clock) {
        (self.running, self.next) = (true, 0);
        self.clock.clone_from(clock);
    }

    /// The first instruction that is not done.
    pub(super) fn waiting_at(&self) -> usize {
        let of = |task: &Task| match task {
            Task::Lane { instruction, .. } => *instruction as usize,
            Task::Thread(t) => {
                let thread = &self.threads[*t];
                thread.calls.get(thread.next).map_or(self.next, |c| c.0 as usize)
            }
        };
        self.pending.iter().map(of).min().unwrap_or(self.next)
    }
}

impl Region {
    pub(super) fn at(&self, lane: u32, turn: &Turn) -> u32 {
        let epoch = if self.packets { turn.packets } else { turn.raw };
        self.start + lane + if epoch % 2 == 1 { self.odd } else { 0 }
    }
}

impl Machine<'_> {
    pub(super) fn step_block(&mut self, b: usize) -> Result<bool, Fault> {
        let state = &self.blocks[b];
        if !state.running || state.in_barrier {
            return Ok(false);
        }
        let count = state.pending.len();
        if count == 0 {
            self.advance(b);
            return Ok(true);
        }
        let first = self.random.below(count);
        for k in 0..count {
            let at = (first + k) % count;
            let done = match self.blocks[b].pending[at] {
                Task::Lane { instruction, lane, movement } => {
                    self.lane(b, at, (instruction, lane, movement))?
                }
                Task::Thread(thread) => self.call(b, at, thread),
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes up what comes next, now that nothing is pending.
    fn advance(&mut self, b: usize) {
        let program = &self.program.blocks[b];
        match program.instructions.get(self.blocks[b].next).map(|i| &i.step) {
            None => {
                self.end_segment(b);
                self.blocks[b].running = false;
                self.ranks[program.rank as usize].left -= 1;
                self.note(|| format!("rank {} block {} ends", program.rank, program.block));
            }
            Some(Step::Nop) => {
                self.end_segment(b);
                self.blocks[b].next += 1;
            }
            Some(Step::Barrier { barrier, blocks }) => {
                self.end_segment(b);
                self.blocks[b].in_barrier = true;
                let (barrier, blocks) = (*barrier as usize, *blocks as usize);
                self.barriers[barrier].arrived.push(b);
                if self.barriers[barrier].arrived.len() >= blocks {
                    self.open(barrier);
                }
            }
            Some(_) => self.load(b),
        }
    }

    /// Everybody who arrived goes on, knowing what all knew.
    fn open(&mut self, barrier: usize) {
        let arrived = std::mem::take(&mut self.barriers[barrier].arrived);
        let mut all = self.pool.copy(&self.blocks[arrived[0]].clock);
        for b in &arrived {
            join(&mut all, &self.blocks[*b].clock);
        }
        for b in arrived {
            let state = &mut self.blocks[b];
            state.clock.copy_from_slice(&all);
            state.in_barrier = false;
            state.next += 1;
        }
        self.pool.give_back(all);
    }

    /// A block barrier: what any thread knows, all know, and the segment is complete.
    fn end_segment(&mut self, b: usize) {
        let state = &mut self.blocks[b];
        for thread in &mut state.threads {
            if let Some(clock) = thread.clock.take() {
                join(&mut state.clock, &clock);
                self.pool.give_back(clock);
            }
        }
        state.threads.clear();
        state.clock[b] += 1;
    }

    /// Makes the instructions up to the next barrier pending, or just the next one.
    fn load(&mut self, b: usize) {
        let instructions = &self.program.blocks[b].instructions;
        let state = &mut self.blocks[b];
        while let Some(instruction) = instructions.get(state.next) {
            let at = state.next as u32;
            match &instruction.step {
                Step::Nop | Step::Barrier { .. } => return,
                Step::Lanes(movements) => {
                    let lanes = movements.iter().map(|m| m.lanes + m.padding).max().unwrap_or(0);
                    let task = |lane| Task::Lane { instruction: at, lane, movement: 0 };
                    state.pending.extend((0..lanes).map(task));
                }
                Step::Calls { calls, .. } => {
                    for (k, (number, _)) in (0u32..).zip(calls) {
                        let found = state.threads.iter().position(|t| t.number == *number);
                        let t = found.unwrap_or_else(|| {
                            state.threads.push(Thread { number: *number, ..Thread::default() });
                            state.threads.len() - 1
                        });
                        let thread = &mut state.threads[t];
                        if thread.next == thread.calls.len() {
                            state.pending.push(Task::Thread(t));
                        }
                        thread.calls.push((at, k));
                    }
                }
            }
            state.next += 1;
            if self.in_order {
                return;
            }
        }
    }

    /// Does one movement of a lane, unless a packet is missing.
    fn lane(
        &mut self,
        b: usize,
        at: usize,
        (instruction, lane, movement): (u32, u32, u32),
    ) -> Result<bool, Fault> {
        let program = &self.program.blocks[b];
        let launch = self.ranks[program.rank as usize].launch;
        let turn = self.turns[launch as usize];
        let Step::Lanes(movements) = &program.instructions[instruction as usize].step else {
            return Ok(false);
        };
        let now = &movements[movement as usize];
        if lane < now.lanes {
            let missing = |r: &&Region| r.packets && !self.memory.valid(r.at(lane, &turn), turn.flag());
            if now.reads.iter().find(missing).is_some() {
                return Ok(false);
            }
            let by = Stamp { component: b as u32, time: self.blocks[b].clock[b], task: (instruction, lane) };
            self.note(|| {
                let (what, path) = (program.instructions[instruction as usize].name, instruction);
                format!("rank {} block {} {what} at {path}: lane {lane}", program.rank, program.block)
            });
            self.perform(b, now, (lane, launch), by)?;
        } else if lane < now.lanes + now.padding {
            let by = Stamp { component: b as u32, time: self.blocks[b].clock[b], task: (instruction, lane) };
            for region in now.writes.iter().filter(|r| r.packets) {
                let padding = (Value::UNDEFINED, 0);
                self.memory.pack(region.at(lane, &turn), turn.flag(), by, padding)?;
            }
        }
        let next = movement + 1;
        let pending = &mut self.blocks[b].pending;
        if next as usize == movements.len() {
            pending.swap_remove(at);
        } else {
            pending[at] = Task::Lane { instruction, lane, movement: next };
        }
        Ok(true)
    }

    fn perform(
        &mut self,
        b: usize,
        movement: &Movement,
        (lane, launch): (u32, u32),
        by: Stamp,
    ) -> Result<(), Fault> {
        let turn = self.turns[launch as usize];
        let mut origin = 0;
        let mut sum: Option<Value> = None;
        for region in &movement.reads {
            let at = region.at(lane, &turn);
            self.admit(region, at, launch, by)?;
            let value = match region.packets {
                true => self.memory.take(at, by, &mut origin),
                false => self.memory.read(at, by, &self.blocks[b].clock, &mut origin)?,
            };
            sum = Some(sum.map_or(value, |sum| sum.join(value, movement.op)));
        }
        let value = sum.unwrap_or(Value::UNDEFINED);
        for region in &movement.writes {
            let at = region.at(lane, &turn);
            self.admit(region, at, launch, by)?;
            match region.packets {
                true => self.memory.pack(at, turn.flag(), by, (value, origin))?,
                false => self.memory.write(at, by, &self.blocks[b].clock, (value, origin))?,
            }
        }
        Ok(())
    }

    /// Makes a thread's next call, if nothing holds it up.
    fn call(&mut self, b: usize, at: usize, t: usize) -> bool {
        let program = &self.program.blocks[b];
        let launch = self.ranks[program.rank as usize].launch;
        let thread = &self.blocks[b].threads[t];
        let (instruction, k) = thread.calls[thread.next];
        let Step::Calls { calls, pushed } = &program.instructions[instruction as usize].step else {
            return false;
        };
        match calls[k as usize].1 {
            Call::Signal { to, relaxed } => {
                let clock = (!relaxed).then(|| self.known(b, t));
                match to {
                    Some(channel) => self.channels[channel as usize].signals.push(clock),
                    None => self.lost = true,
                }
            }
            Call::Wait { on, relaxed } => {
                let channel = &mut self.channels[on as usize];
                let Some(signal) = channel.signals.get_mut(channel.waits) else { return false };
                channel.waits += 1;
                if let (Some(clock), false) = (signal.take(), relaxed) {
                    self.learn(b, t, clock);
                }
            }
            Call::Push { port, movement } => {
                let lanes = (0..pushed[movement as usize].lanes).collect();
                let request = Request::Data { source: (b as u32, instruction, movement), lanes };
                let clock = self.known(b, t);
                self.push(port, request, launch, clock);
            }
            Call::PushFlag { port } => {
                let clock = self.known(b, t);
                self.push(port, Request::Flag, launch, clock);
            }
            Call::PushSync { port } => {
                let clock = self.known(b, t);
                let number = self.push(port, Request::Sync, launch, clock);
                self.blocks[b].threads[t].awaited = number;
            }
            Call::AwaitSync { port } => {
                let port = &self.ports[port as usize];
                if port.done <= self.blocks[b].threads[t].awaited {
                    return false;
                }
                let clock = self.pool.copy(&port.clock);
                self.learn(b, t, clock);
            }
            Call::Acquire { semaphore } => {
                let tokens = &mut self.semaphores[semaphore as usize];
                if tokens.is_empty() {
                    return false;
                }
                // Which release an acquire follows is open.
                let token = tokens.swap_remove(self.random.below(tokens.len()));
                if let Some(clock) = token {
                    self.learn(b, t, clock);
                }
            }
            Call::Release { semaphore } => {
                let clock = self.known(b, t);
                self.semaphores[semaphore as usize].push(Some(clock));
            }
        }
        self.note(|| {
            let what = program.instructions[instruction as usize].name;
            format!("rank {} block {} {what} at {instruction}: thread {t}", program.rank, program.block)
        });
        let state = &mut self.blocks[b];
        state.threads[t].next += 1;
        if state.threads[t].next == state.threads[t].calls.len() {
            state.pending.swap_remove(at);
        }
        true
    }

    /// What a thread knows.
    fn known(&mut self, b: usize, t: usize) -> Clock {
        let state = &self.blocks[b];
        self.pool.copy(state.threads[t].clock.as_ref().unwrap_or(&state.clock))
    }

    fn learn(&mut self, b: usize, t: usize, clock: Clock) {
        let state = &mut self.blocks[b];
        match &mut state.threads[t].clock {
            Some(own) => {
                join(own, &clock);
                self.pool.give_back(clock);
            }
            own @ None => {
                let mut clock = clock;
                join(&mut clock, &state.clock);
                *own = Some(clock);
            }
        }
    }
}
