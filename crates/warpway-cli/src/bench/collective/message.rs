//! The buffers of one rank for one case: filled anew before each checked call, compared after it.

use warpway::{BufferView, Communicator, Result};

use super::case::{Case, Shape, Subject};
use super::oracle::{Round, Segment};

/// Bytes behind each buffer that nobody may touch.
const GUARD: u64 = 64;
const GUARD_BYTE: u8 = 0xc3;
/// Bytes compared at a time.
const PIECE: u64 = 1 << 20;

/// See the module's page.
pub(super) struct Message {
    case: Case,
    element: u64,
    shape: Shape,
    /// The input; in place, everything.
    input: Memory,
    /// The output; unused in place.
    output: Memory,
}

enum Memory {
    Empty,
    /// Peers map it.
    Registered(warpway::Buffer<u8>),
    /// Private: calls stage it.
    Plain(Vec<u8>),
}

/// Where a call finds its buffers.
pub(super) enum Views<'a> {
    Apart { input: BufferView<'a>, output: BufferView<'a> },
    InPlace(BufferView<'a>),
}

impl Message {
    /// `plain`: slices in place of registered memory.
    pub(super) fn new(comm: &Communicator, subject: &Subject, case: Case, plain: bool) -> Result<Self> {
        let (shape, element) = (subject.shape(case, comm.rank()), subject.element());
        let memory = |elements: u64| -> Result<Memory> {
            let bytes = elements * element;
            Ok(match bytes {
                0 => Memory::Empty,
                _ if plain => Memory::Plain(vec![GUARD_BYTE; (bytes + GUARD) as usize]),
                _ => Memory::Registered(comm.alloc(bytes + GUARD)?),
            })
        };
        let (input, output) = match case.in_place {
            true => (memory(shape.whole)?, Memory::Empty),
            false => (memory(shape.input.len)?, memory(shape.output.len)?),
        };
        Ok(Self { case, element, shape, input, output })
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(super) fn views(&mut self) -> Views<'_> {
        match self.case.in_place {
            true => Views::InPlace(self.input.view()),
            false => Views::Apart { input: self.input.view(), output: self.output.view() },
        }
    }

    /// A round's input, and bytes that are right nowhere in the rest.
    pub(super) fn fill(&mut self, subject: &Subject, round: &Round, rank: u32) -> Result<()> {
        let (element, shape) = (self.element, &self.shape);
        let output = if self.case.in_place { &mut self.input } else { &mut self.output };
        for segment in round.output(subject, self.case, rank) {
            output.write_segment(&segment, shape.output.start, element, |byte| !byte)?;
        }
        self.input.write_segment(
            &round.input(rank, shape.input.len),
            shape.input.start,
            element,
            |byte| byte,
        )?;
        self.input.guard()?;
        self.output.guard()
    }

    /// Elements of the result that are not what they must be, and bytes of guards that have changed.
    pub(super) fn wrong(&mut self, subject: &Subject, round: &Round, rank: u32) -> Result<u64> {
        let output = if self.case.in_place { &self.input } else { &self.output };
        let mut wrong = self.input.broken_guards()? + self.output.broken_guards()?;
        let (piece, element) = (PIECE / self.element, self.element);
        let mut found = Vec::new();
        for segment in round.output(subject, self.case, rank) {
            let base = self.shape.output.start + segment.start();
            for from in (0..segment.len()).step_by(piece as usize) {
                let len = piece.min(segment.len() - from);
                found.resize((len * element) as usize, 0);
                output.read((base + from) * element, &mut found)?;
                wrong += segment.differing(&found, from, element);
            }
        }
        Ok(wrong)
    }
}

impl Memory {
    /// Bytes without the guard.
    fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Registered(buffer) => buffer.bytes() - GUARD,
            Self::Plain(bytes) => bytes.len() as u64 - GUARD,
        }
    }

    fn view(&mut self) -> BufferView<'_> {
        let len = self.len();
        match self {
            Self::Empty => BufferView::EMPTY,
            Self::Registered(buffer) => buffer.view_of(0, len),
            Self::Plain(bytes) => BufferView::from(&mut bytes[..len as usize]),
        }
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        match self {
            Self::Empty => {}
            Self::Registered(buffer) => buffer.read(at, bytes)?,
            Self::Plain(own) => bytes.copy_from_slice(&own[at as usize..][..bytes.len()]),
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Empty => {}
            Self::Registered(buffer) => buffer.write(at, bytes)?,
            Self::Plain(own) => own[at as usize..][..bytes.len()].copy_from_slice(bytes),
        }
        Ok(())
    }

    /// Writes a segment, changed by `change`, into elements from `base` on.
    fn write_segment(
        &mut self,
        segment: &Segment<'_>,
        base: u64,
        element: u64,
        change: impl Fn(u8) -> u8,
    ) -> Result<()> {
        let mut at = (base + segment.start()) * element;
        let mut changed = Vec::new();
        for slice in segment.slices(0, segment.len(), element) {
            changed.clear();
            changed.extend(slice.iter().map(|byte| change(*byte)));
            self.write(at, &changed)?;
            at += slice.len() as u64;
        }
        Ok(())
    }

    fn guard(&mut self) -> Result<()> {
        self.write(self.len(), &[GUARD_BYTE; GUARD as usize])
    }

    fn broken_guards(&self) -> Result<u64> {
        let mut found = [GUARD_BYTE; GUARD as usize];
        self.read(self.len(), &mut found)?;
        Ok(found.iter().filter(|byte| **byte != GUARD_BYTE).count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use warpway::plan::ReduceOp;
    use warpway::{Config, Context, DataType, in_process};
    use warpway_collectives::Function;

    use super::super::case::Operation;
    use super::*;

    /// Nothing is right before a call, the input's own part in place apart; a changed guard counts.
    #[test]
    fn what_no_call_has_written_is_wrong() {
        let subject = |function| Subject {
            operation: Operation::from(function),
            data_type: DataType::Float16,
            op: ReduceOp::Max,
            root: 0,
            n_ranks: 2,
        };
        in_process(2, &Context::new(Config::default()), |comm| {
            for plain in [false, true] {
                for (function, in_place, wrong) in [
                    (Function::AllReduce, false, 2_000_000),
                    (Function::AllGather, false, 2_000_000),
                    (Function::AllGather, true, 1_000_000),
                    (Function::ReduceScatter, false, 1_000_000),
                ] {
                    let subject = subject(function);
                    let round = Round::new(&subject, 3).unwrap();
                    let case = Case { bytes: 4_000_000, in_place };
                    let mut message = Message::new(comm, &subject, case, plain)?;
                    message.fill(&subject, &round, comm.rank())?;
                    assert_eq!(message.wrong(&subject, &round, comm.rank())?, wrong, "{function} {in_place}");
                    message.input.write(message.input.len() + 5, &[7])?;
                    assert_eq!(message.wrong(&subject, &round, comm.rank())?, wrong + 1);
                }
            }
            Ok(())
        })
        .unwrap();
    }
}
