//! The buffers of a call, checked against the shape of its function.

use warpway_collectives::Function;
use warpway_core::Result;
use warpway_core::collective::CollectiveError;
use warpway_host::BufferView;

use super::call::{Call, Operands, Sizes};

/// A rank among the others, as far as shapes depend on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
}

/// What a launch takes, and what the choice depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) input: BufferView<'a>,
    pub(super) output: BufferView<'a>,
    pub(super) in_place: bool,
    /// Bytes of the larger buffer; `None` where ranks do not know it alike.
    pub(super) bytes: Option<u64>,
}

impl Place {
    fn is_root(self, call: &Call<'_>) -> bool {
        self.rank == call.root
    }

    fn length(
        self,
        call: &Call<'_>,
        buffer: &'static str,
        found: u64,
        (expected, why): (u64, &'static str),
    ) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let (rank, function) = (self.rank, call.function.name());
        Err(CollectiveError::Length { rank, function, buffer, found, expected, why }.into())
    }

    fn counts(self, call: &Call<'_>, why: impl Into<String>) -> warpway_core::Error {
        CollectiveError::Counts { rank: self.rank, function: call.function.name(), why: why.into() }.into()
    }
}

impl<'a> Message<'a> {
    /// # Errors
    /// A root that does not exist; buffers whose lengths the function does not give.
    pub(super) fn of(call: &Call<'a>, place: Place) -> Result<Self> {
        let (n, function) = (u64::from(place.n_ranks), call.function);
        if function.is_rooted() && call.root >= place.n_ranks {
            let (rank, function, root) = (place.rank, function.name(), call.root);
            return Err(CollectiveError::Root { rank, function, root, n_ranks: place.n_ranks }.into());
        }
        if function.is_sized() != !matches!(call.sizes, Sizes::Equal) {
            let why = match function.is_sized() {
                true => "it takes counts of each rank, and none were given",
                false => "it takes no counts of each rank",
            };
            return Err(place.counts(call, why));
        }
        let element = call.data_type.bytes();
        let shares = |bytes: u64| match bytes.checked_div(n * element).filter(|s| s * n * element == bytes) {
            Some(share) => Ok(share * element),
            None => {
                let data_type = call.data_type;
                Err(place.counts(
                    call,
                    format!("a buffer of {bytes} bytes does not divide into {n} equal parts of {data_type}"),
                ))
            }
        };
        let whole = |buffer: &'static str, bytes: u64| match bytes.is_multiple_of(element) {
            true => Ok(()),
            false => {
                let data_type = call.data_type;
                Err(place
                    .counts(call, format!("{bytes} bytes of {buffer} are no whole number of {data_type}")))
            }
        };
        match call.operands {
            Operands::Apart { input, output } => {
                let (given, wanted) = (input.bytes(), output.bytes());
                whole("input", given)?;
                whole("output", wanted)?;
                let root = place.is_root(call);
                let all = |share: u64| share.saturating_mul(n);
                let none = BufferView::EMPTY;
                let apart =
                    |input, output, bytes| Ok(Self { input, output, in_place: false, bytes: Some(bytes) });
                match function {
                    Function::AllReduce => {
                        place.length(call, "output", wanted, (given, "as many as the input"))?;
                        apart(input, output, given)
                    }
                    Function::AllGather => {
                        place.length(call, "output", wanted, (all(given), "the inputs of all ranks"))?;
                        apart(input, output, wanted)
                    }
                    Function::ReduceScatter => {
                        place.length(call, "input", given, (all(wanted), "a part for each rank"))?;
                        apart(input, output, given)
                    }
                    Function::AllToAll => {
                        place.length(call, "output", wanted, (given, "as many as the input"))?;
                        shares(given)?;
                        apart(input, output, given)
                    }
                    Function::Broadcast if root => {
                        place.length(call, "output", wanted, (given, "as many as the input of the root"))?;
                        apart(input, output, wanted)
                    }
                    Function::Broadcast => apart(none, output, wanted),
                    Function::Reduce if root => {
                        place.length(call, "output", wanted, (given, "as many as the input"))?;
                        apart(input, output, given)
                    }
                    Function::Reduce => apart(input, none, given),
                    Function::Gather if root => {
                        place.length(call, "output", wanted, (all(given), "the inputs of all ranks"))?;
                        apart(input, output, wanted)
                    }
                    Function::Gather => apart(input, none, all(given)),
                    Function::Scatter if root => {
                        place.length(call, "input", given, (all(wanted), "a part for each rank"))?;
                        apart(input, output, given)
                    }
                    Function::Scatter => apart(none, output, all(wanted)),
                    Function::Barrier => apart(none, none, 0),
                    Function::AllGatherV | Function::ReduceScatterV | Function::AllToAllV => {
                        super::sizes::apart(call, place, input, output)
                    }
                }
            }
            Operands::InPlace(data) => {
                let bytes = data.bytes();
                whole("data", bytes)?;
                let in_place =
                    |input, output, bytes| Ok(Self { input, output, in_place: true, bytes: Some(bytes) });
                let own = |share: u64| data.part(u64::from(place.rank) * share, share);
                let root = place.is_root(call);
                match function {
                    Function::AllReduce => in_place(data, data, bytes),
                    Function::AllToAll => {
                        shares(bytes)?;
                        in_place(data, data, bytes)
                    }
                    Function::Broadcast if root => in_place(data, data, bytes),
                    Function::Broadcast => in_place(BufferView::EMPTY, data, bytes),
                    Function::Reduce if root => in_place(data, data, bytes),
                    Function::Reduce => in_place(data, BufferView::EMPTY, bytes),
                    Function::AllGather => in_place(own(shares(bytes)?), data, bytes),
                    Function::ReduceScatter => in_place(data, own(shares(bytes)?), bytes),
                    Function::Gather if root => in_place(own(shares(bytes)?), data, bytes),
                    Function::Gather => in_place(data, BufferView::EMPTY, bytes.saturating_mul(n)),
                    Function::Scatter if root => in_place(data, own(shares(bytes)?), bytes),
                    Function::Scatter => in_place(BufferView::EMPTY, data, bytes.saturating_mul(n)),
                    Function::Barrier => in_place(BufferView::EMPTY, BufferView::EMPTY, 0),
                    Function::AllGatherV | Function::ReduceScatterV | Function::AllToAllV => {
                        super::sizes::in_place(call, place, data)
                    }
                }
            }
        }
    }
}
