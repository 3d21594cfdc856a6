//! The steps of a short launch with the addresses of all operands: what is left to do when it is repeated.
//!
//! A message of a few bytes takes less time on its way than the general form of its program takes to be looked at. Where
//! the one block of a plan does nothing but move little and signal, its steps are linked once and run from here.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use warpway_core::{Error, Result};
use warpway_plan::{Form, ReduceOp};

use super::program::{BlockProgram, Operand, Step, Transfer, TransferKind};
use super::transfer::{Mover, copy_any, pack};
use crate::copy::overlap;
use crate::numeric::FoldSource;
use crate::packet::Ll16;

/// Bytes of data that a linked step has at most: above, nobody notices the difference.
const MOST: u64 = 8 << 10;
/// And a linked fold of packets: they are taken to the stack.
const TILE: usize = 512;
/// Sources that a linked fold has at most.
const SOURCES: usize = 8;

/// The address of an operand in each slot of its area.
#[derive(Debug, Clone, Copy)]
pub(super) struct Linked {
    pub(super) first: NonNull<u8>,
    /// From one slot to the next; 0 for inputs and outputs.
    pub(super) step: u64,
    pub(super) form: Form,
}

/// Which slots of the areas a launch uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) raw: u64,
    pub(super) packets: u64,
}

impl Linked {
    #[inline]
    fn at(&self, turn: Turn) -> NonNull<u8> {
        let slot = if self.form == Form::Raw { turn.raw } else { turn.packets };
        // Wrapping, as the address of a buffer that is not touched is nothing.
        let address = self.first.as_ptr().wrapping_add((slot * self.step) as usize);
        NonNull::new(address).unwrap_or(self.first)
    }
}

/// By step of the program.
#[derive(Debug)]
pub(super) struct LinkedBlock(Vec<LinkedStep>);

#[derive(Debug)]
enum LinkedStep {
    /// A signal, or a wait for one: it has no operands.
    Signal,
    /// Raw to packets.
    Send { from: Linked, to: Vec<Linked>, bytes: u64, cover: u64 },
    /// Raw to raw.
    Copy { from: Linked, to: Linked, bytes: u64 },
    /// Packets to raw.
    Take { from: Linked, to: Linked, bytes: u64 },
    /// Any to raw.
    Fold { op: ReduceOp, last: bool, sources: Vec<LinkedSource>, to: Linked, bytes: u64 },
}

#[derive(Debug, Clone, Copy)]
struct LinkedSource {
    from: Linked,
    form: Form,
    input: bool,
}

impl LinkedBlock {
    /// Of a block all of whose steps can be linked; `find` gives the address of an operand so many bytes into its base.
    ///
    /// # Safety
    /// The addresses must be those of the bases of the program, mapped for their reach, whenever the block
    /// [runs](Self::run). Its packets, if it has any, are [`Ll16`].
    pub(super) unsafe fn of(
        program: &BlockProgram,
        find: impl Fn(Operand, u64) -> Option<Linked>,
    ) -> Option<Self> {
        let link = |step: &Step| match step {
            Step::Move(transfer) => LinkedStep::of(transfer, &find),
            Step::Signal(_) | Step::Wait(_) => Some(LinkedStep::Signal),
            _ => None,
        };
        program.steps.iter().map(link).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Runs the steps; `record` is called behind those that it begins with and that wait for nobody. `signal` runs a step
    /// without operands, `failed` says what the error of a step means.
    #[inline]
    pub(super) fn run(
        &self,
        (program, turn): (&BlockProgram, Turn),
        mover: &Mover<'_>,
        record: impl FnOnce(),
        signal: impl Fn(&Step) -> Result<()>,
        failed: impl Fn(usize, Error) -> Error,
    ) -> Result<()> {
        let mut record = Some(record);
        for (at, (linked, step)) in self.0.iter().zip(&program.steps).enumerate() {
            if at == program.first_sends
                && let Some(record) = record.take()
            {
                record();
            }
            let done = match step {
                // SAFETY: `of` says who vouches for the addresses; a piece lies within the reach of its base.
                Step::Move(transfer) => unsafe { linked.run(transfer, mover, turn) },
                other => signal(other),
            };
            done.map_err(|error| failed(at, error))?;
        }
        if let Some(record) = record {
            record();
        }
        Ok(())
    }
}

impl LinkedStep {
    fn of(transfer: &Transfer, find: impl Fn(Operand, u64) -> Option<Linked>) -> Option<Self> {
        let [piece] = transfer.pieces[..] else { return None };
        if piece.bytes == 0 || piece.bytes > MOST || transfer.sources.len() > SOURCES {
            return None;
        }
        let operands = transfer.sources.iter().chain(&transfer.destinations).zip(&transfer.offsets);
        let places = operands.map(|(operand, offset)| find(*operand, *offset)).collect::<Option<Vec<_>>>()?;
        let (sources, to) = places.split_at_checked(transfer.sources.len())?;
        let all = |form: Form| transfer.destinations.iter().all(|operand| operand.form == form);
        let bytes = piece.bytes;
        match (transfer.kind, &transfer.sources[..], sources) {
            (TransferKind::Copy, [source], [from]) if source.form == Form::Raw && all(Form::Packets) => {
                Some(Self::Send { from: *from, to: to.to_vec(), bytes, cover: piece.cover })
            }
            (TransferKind::Copy, [source], [from]) if all(Form::Raw) => {
                let [to] = to else { return None };
                let (from, to) = (*from, *to);
                Some(match source.form {
                    Form::Raw => Self::Copy { from, to, bytes },
                    Form::Packets => Self::Take { from, to, bytes },
                })
            }
            (TransferKind::Fold { op, last }, operands, _) if all(Form::Raw) => {
                let [to] = to else { return None };
                let linked = |(operand, from): (&Operand, &Linked)| {
                    let LinkedSource { from, form, input } =
                        LinkedSource { from: *from, form: operand.form, input: operand.input };
                    // A source that shares only a part with the result would be read after it is written.
                    let (from_first, to_first) = (from.first, to.first);
                    let apart = from_first == to_first || !overlap(from_first, to_first, bytes);
                    (form == Form::Packets || apart).then_some(LinkedSource { from, form, input })
                };
                let sources = operands.iter().zip(sources).map(linked).collect::<Option<Vec<_>>>()?;
                if bytes > TILE as u64 && sources.iter().any(|source| source.form == Form::Packets) {
                    return None;
                }
                Some(Self::Fold { op, last, sources, to: *to, bytes })
            }
            _ => None,
        }
    }

    /// # Safety
    /// The addresses must be mapped for the piece of the transfer.
    #[inline]
    unsafe fn run(&self, transfer: &Transfer, mover: &Mover<'_>, turn: Turn) -> Result<()> {
        match self {
            Self::Signal => Ok(()),
            Self::Send { from, to, bytes, cover } => {
                for to in to {
                    // SAFETY: the caller's word; packets lie at multiples of their size.
                    unsafe { pack::<Ll16>(to.at(turn), from.at(turn), *bytes, *cover, mover.flags) };
                }
                mover.wake(transfer);
                Ok(())
            }
            Self::Copy { from, to, bytes } => {
                // SAFETY: the caller's word.
                unsafe { copy_any(to.at(turn), from.at(turn), *bytes) };
                Ok(())
            }
            Self::Take { from, to, bytes } => {
                mover.take_packets::<Ll16>(transfer, from.at(turn), to.at(turn), *bytes)
            }
            Self::Fold { op, last, sources, to, bytes } => {
                let mut tiles = [const { MaybeUninit::<[u8; TILE]>::uninit() }; SOURCES];
                let mut entering = [FoldSource { address: NonNull::dangling(), input: false }; SOURCES];
                for ((source, tile), entering) in sources.iter().zip(&mut tiles).zip(&mut entering) {
                    let mut address = source.from.at(turn);
                    if source.form == Form::Packets {
                        let tile = NonNull::from(tile).cast();
                        mover.take_packets::<Ll16>(transfer, address, tile, *bytes)?;
                        address = tile;
                    }
                    *entering = FoldSource { address, input: source.input };
                }
                let kernel = mover.kernels.of(*op);
                // SAFETY: sources are mapped by the caller's word, or tiles that were just filled; the result lies exactly
                // where a source lies or apart from all (`of`).
                unsafe { kernel.fold_into(&entering[..sources.len()], *bytes, *last, &[to.at(turn)]) };
                mover.wake(transfer);
                Ok(())
            }
        }
    }
}

// SAFETY: addresses, as in the launches that are repeated.
unsafe impl Send for Linked {}
