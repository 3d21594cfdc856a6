//! A call of a collective as a value: what to compute, on which buffers, and how if the caller cares.

use warpway_collectives::Function;
use warpway_host::{BufferView, PacketFormat};
use warpway_plan::{DataType, ReduceOp};

use super::number::Number;
use super::operand::{ReceiveBuffer, SendBuffer};

/// One call of a collective. [`Communicator::collective`](crate::Communicator::collective) carries it out,
/// [`Communicator::explain`](crate::Communicator::explain) tells which algorithm it would take.
///
/// ```
/// use warpway::{Call, Config, Context, ReduceOp, in_process};
///
/// # fn main() -> warpway::Result<()> {
/// in_process(2, &Context::new(Config::default()), |comm| {
///     let mut x = vec![comm.rank() as f32 + 1.0; 5];
///     comm.collective(&Call::all_reduce(&mut x, ReduceOp::Prod).with_algorithm("two_shot"))?;
///     assert_eq!(x, [2.0; 5]);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub(super) function: Function,
    pub(super) operands: Operands<'a>,
    pub(super) data_type: DataType,
    pub(super) reduce_op: ReduceOp,
    pub(super) root: u32,
    pub(super) sizes: Sizes<'a>,
    pub(super) algorithm: Option<&'a str>,
    pub(super) blocks: Option<u32>,
    pub(super) packets: PacketFormat,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Operands<'a> {
    Apart { input: BufferView<'a>, output: BufferView<'a> },
    InPlace(BufferView<'a>),
}

/// Numbers of elements by rank, and where they lie. Counts alone: one rank's elements behind those of the one before.
#[derive(Debug, Clone, Copy)]
pub struct Counts<'a> {
    pub(super) counts: &'a [u64],
    pub(super) displacements: Option<&'a [u64]>,
}

/// Sizes that differ between ranks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sizes<'a> {
    Equal,
    /// Of each rank.
    ByRank(Counts<'a>),
    /// To each rank, from each rank.
    ByPair(Counts<'a>, Counts<'a>),
}

impl<'a> Counts<'a> {
    /// With the first element of each rank's, counted from the start of the buffer.
    pub fn at(counts: &'a [u64], displacements: &'a [u64]) -> Self {
        Self { counts, displacements: Some(displacements) }
    }
}

impl<'a> From<&'a [u64]> for Counts<'a> {
    fn from(counts: &'a [u64]) -> Self {
        Self { counts, displacements: None }
    }
}

impl<'a> From<&'a Vec<u64>> for Counts<'a> {
    fn from(counts: &'a Vec<u64>) -> Self {
        counts.as_slice().into()
    }
}

impl<'a, const N: usize> From<&'a [u64; N]> for Counts<'a> {
    fn from(counts: &'a [u64; N]) -> Self {
        counts.as_slice().into()
    }
}

impl<'a> Call<'a> {
    /// Any function, on bytes: two buffers that are apart, elements of `data_type`. The shapes are those of the methods of
    /// [`Communicator`](crate::Communicator); buffers that a function does not look at on this rank may be empty.
    pub fn new(
        function: Function,
        input: BufferView<'a>,
        output: BufferView<'a>,
        data_type: DataType,
    ) -> Self {
        Self {
            function,
            operands: Operands::Apart { input, output },
            data_type,
            reduce_op: ReduceOp::Sum,
            root: 0,
            sizes: Sizes::Equal,
            algorithm: None,
            blocks: None,
            packets: PacketFormat::default(),
        }
    }

    /// The same in one buffer: the larger one, of which the other is a part by the convention of the function.
    pub fn new_in_place(function: Function, data: BufferView<'a>, data_type: DataType) -> Self {
        let call = Self::new(function, BufferView::EMPTY, BufferView::EMPTY, data_type);
        Self { operands: Operands::InPlace(data), ..call }
    }

    fn apart<I: SendBuffer<'a>>(
        function: Function,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
    ) -> Self {
        Self::new(function, input.input(), output.output(), I::Number::DATA_TYPE)
    }

    fn in_place<X: ReceiveBuffer<'a>>(function: Function, data: X) -> Self {
        Self::new_in_place(function, data.output(), X::Number::DATA_TYPE)
    }

    /// See [`Communicator::all_reduce`](crate::Communicator::all_reduce).
    pub fn all_reduce(data: impl ReceiveBuffer<'a>, op: ReduceOp) -> Self {
        Self::in_place(Function::AllReduce, data).with_op(op)
    }

    /// See [`Communicator::all_reduce_into`](crate::Communicator::all_reduce_into).
    pub fn all_reduce_into<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        op: ReduceOp,
    ) -> Self {
        Self::apart(Function::AllReduce, input, output).with_op(op)
    }

    /// See [`Communicator::all_gather`](crate::Communicator::all_gather).
    pub fn all_gather<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
    ) -> Self {
        Self::apart(Function::AllGather, input, output)
    }

    /// See [`Communicator::all_gather_in_place`](crate::Communicator::all_gather_in_place).
    pub fn all_gather_in_place(data: impl ReceiveBuffer<'a>) -> Self {
        Self::in_place(Function::AllGather, data)
    }

    /// See [`Communicator::reduce_scatter`](crate::Communicator::reduce_scatter).
    pub fn reduce_scatter<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        op: ReduceOp,
    ) -> Self {
        Self::apart(Function::ReduceScatter, input, output).with_op(op)
    }

    /// See [`Communicator::reduce_scatter_in_place`](crate::Communicator::reduce_scatter_in_place).
    pub fn reduce_scatter_in_place(data: impl ReceiveBuffer<'a>, op: ReduceOp) -> Self {
        Self::in_place(Function::ReduceScatter, data).with_op(op)
    }

    /// See [`Communicator::broadcast`](crate::Communicator::broadcast).
    pub fn broadcast(data: impl ReceiveBuffer<'a>, root: u32) -> Self {
        Self::in_place(Function::Broadcast, data).with_root(root)
    }

    /// See [`Communicator::broadcast_into`](crate::Communicator::broadcast_into).
    pub fn broadcast_into<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        root: u32,
    ) -> Self {
        Self::apart(Function::Broadcast, input, output).with_root(root)
    }

    /// See [`Communicator::reduce`](crate::Communicator::reduce).
    pub fn reduce(data: impl ReceiveBuffer<'a>, op: ReduceOp, root: u32) -> Self {
        Self::in_place(Function::Reduce, data).with_op(op).with_root(root)
    }

    /// See [`Communicator::reduce_into`](crate::Communicator::reduce_into).
    pub fn reduce_into<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        op: ReduceOp,
        root: u32,
    ) -> Self {
        Self::apart(Function::Reduce, input, output).with_op(op).with_root(root)
    }

    /// See [`Communicator::gather`](crate::Communicator::gather).
    pub fn gather<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        root: u32,
    ) -> Self {
        Self::apart(Function::Gather, input, output).with_root(root)
    }

    /// See [`Communicator::gather_in_place`](crate::Communicator::gather_in_place).
    pub fn gather_in_place(data: impl ReceiveBuffer<'a>, root: u32) -> Self {
        Self::in_place(Function::Gather, data).with_root(root)
    }

    /// See [`Communicator::scatter`](crate::Communicator::scatter).
    pub fn scatter<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        root: u32,
    ) -> Self {
        Self::apart(Function::Scatter, input, output).with_root(root)
    }

    /// See [`Communicator::scatter_in_place`](crate::Communicator::scatter_in_place).
    pub fn scatter_in_place(data: impl ReceiveBuffer<'a>, root: u32) -> Self {
        Self::in_place(Function::Scatter, data).with_root(root)
    }

    /// See [`Communicator::all_to_all`](crate::Communicator::all_to_all).
    pub fn all_to_all<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
    ) -> Self {
        Self::apart(Function::AllToAll, input, output)
    }

    /// See [`Communicator::all_to_all_in_place`](crate::Communicator::all_to_all_in_place).
    pub fn all_to_all_in_place(data: impl ReceiveBuffer<'a>) -> Self {
        Self::in_place(Function::AllToAll, data)
    }

    /// See [`Communicator::all_gather_v`](crate::Communicator::all_gather_v).
    pub fn all_gather_v<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        counts: impl Into<Counts<'a>>,
    ) -> Self {
        Self::apart(Function::AllGatherV, input, output).with_counts(counts)
    }

    /// See [`Communicator::reduce_scatter_v`](crate::Communicator::reduce_scatter_v).
    pub fn reduce_scatter_v<I: SendBuffer<'a>>(
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        counts: impl Into<Counts<'a>>,
        op: ReduceOp,
    ) -> Self {
        Self::apart(Function::ReduceScatterV, input, output).with_counts(counts).with_op(op)
    }

    /// See [`Communicator::all_to_all_v`](crate::Communicator::all_to_all_v).
    pub fn all_to_all_v<I: SendBuffer<'a>>(
        input: I,
        send: impl Into<Counts<'a>>,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        receive: impl Into<Counts<'a>>,
    ) -> Self {
        Self::apart(Function::AllToAllV, input, output).with_pair_counts(send, receive)
    }

    /// No rank returns before all have called it.
    pub fn barrier() -> Self {
        Self::new(Function::Barrier, BufferView::EMPTY, BufferView::EMPTY, DataType::Uint8)
    }

    /// The same with another operator.
    pub fn with_op(self, reduce_op: ReduceOp) -> Self {
        Self { reduce_op, ..self }
    }

    /// The same with another root.
    pub fn with_root(self, root: u32) -> Self {
        Self { root, ..self }
    }

    /// Takes the bytes for elements of that type: for 8-bit floats in `u8`, for one.
    pub fn with_data_type(self, data_type: DataType) -> Self {
        Self { data_type, ..self }
    }

    /// Elements of each rank, of functions whose name ends in `_v`.
    pub fn with_counts(self, counts: impl Into<Counts<'a>>) -> Self {
        Self { sizes: Sizes::ByRank(counts.into()), ..self }
    }

    /// Elements for each rank and from each rank, of all_to_all_v.
    pub fn with_pair_counts(self, send: impl Into<Counts<'a>>, receive: impl Into<Counts<'a>>) -> Self {
        Self { sizes: Sizes::ByPair(send.into(), receive.into()), ..self }
    }

    /// By the algorithm, or registered plan, of that name. All ranks say the same.
    pub fn with_algorithm(self, name: &'a str) -> Self {
        Self { algorithm: Some(name), ..self }
    }

    /// With so many blocks per rank, 1 to [`MOST_BLOCKS`](warpway_collectives::MOST_BLOCKS). All ranks say the same.
    pub fn with_blocks(self, blocks: u32) -> Self {
        Self { blocks: Some(blocks), ..self }
    }

    /// With other packets, where the algorithm has packets. All ranks say the same.
    pub fn with_packets(self, packets: PacketFormat) -> Self {
        Self { packets, ..self }
    }
}
