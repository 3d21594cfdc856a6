//! What a collective gives, computed from its definition alone. Inputs are small whole numbers, so that folds are
//! exact in any order; every element differs from its neighbours, from other ranks' and from other launches'.

use warpway::DataType;
use warpway::plan::{Action, Collective, Plan, ReduceOp};

use super::Message;

/// One launch of one plan.
pub(super) struct Case {
    collective: Collective,
    n: u64,
    op: ReduceOp,
    message: Message,
}

impl Case {
    pub(super) fn new(plan: &Plan, message: &Message) -> Self {
        let op = plan.operations().find_map(|(_, _, operation)| match &operation.action {
            Action::Data(data) => data.fold.as_ref().map(|fold| fold.op),
            _ => None,
        });
        Self {
            collective: plan.collective,
            n: u64::from(plan.n_ranks()),
            op: op.unwrap_or(ReduceOp::Sum),
            message: *message,
        }
    }

    /// Elements of one rank's input.
    fn input_elements(&self) -> u64 {
        match self.collective {
            Collective::ReduceScatter | Collective::AllToAll => self.n * self.message.elements,
            _ => self.message.elements,
        }
    }

    /// The value of an element of a rank's input: 0 to 2, of products 1 or 2.
    fn value(&self, rank: u64, element: u64) -> u64 {
        let mixed = (element ^ self.message.seed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(rank * 0x1234_5677);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
        match self.op {
            // At most 2^7, of the range of the narrow floats (240), for up to 8 ranks.
            ReduceOp::Prod if rank == 7 => 1,
            ReduceOp::Prod => 1 + mixed % 2,
            // Sums of eight ranks stay whole numbers that these types hold: to 8, to 15 eighths.
            _ if matches!(
                self.message.data_type,
                DataType::Float8E4m3b15 | DataType::Float8E5m2 | DataType::Float8E5m2fnuz
            ) =>
            {
                mixed % 2
            }
            _ => mixed % 2 + u64::from(mixed.is_multiple_of(7)),
        }
    }

    pub(super) fn input(&self, rank: u32) -> Vec<u8> {
        let rank = u64::from(rank);
        (0..self.input_elements()).flat_map(|element| self.encode(self.value(rank, element))).collect()
    }

    fn folded(&self, element: u64) -> u64 {
        let values = (0..self.n).map(|rank| self.value(rank, element));
        let folded = match self.op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Min => values.min().unwrap(),
            ReduceOp::Max => values.max().unwrap(),
            ReduceOp::Prod => values.product(),
            ReduceOp::Avg => values.sum::<u64>() / self.n,
        };
        match self.message.data_type {
            DataType::Float8E4m3b15 => folded.min(15),
            _ => folded,
        }
    }

    pub(super) fn expected(&self, rank: u32) -> Vec<u8> {
        let (rank, count, n) = (u64::from(rank), self.message.elements, self.n);
        let element = |at: u64| match self.collective {
            Collective::AllReduce => self.folded(at),
            Collective::ReduceScatter => self.folded(rank * count + at),
            Collective::AllGather => self.value(at / count, at % count),
            Collective::AllToAll => self.value(at / count, rank * count + at % count),
            Collective::SendRecv => self.value((rank + n - 1) % n, at),
            Collective::Broadcast => self.value(0, at),
            other => panic!("no oracle for {other}"),
        };
        let elements = match self.collective {
            Collective::AllGather | Collective::AllToAll => n * count,
            _ => count,
        };
        // A half of a float is exact; the encoding of whole numbers does not reach it.
        if self.op == ReduceOp::Avg && self.message.data_type == DataType::Float32 {
            let sum = |at: u64| (0..n).map(|rank| self.value(rank, at)).sum::<u64>();
            let first = if self.collective == Collective::ReduceScatter { rank * count } else { 0 };
            return (0..elements).flat_map(|at| (sum(first + at) as f32 / n as f32).to_le_bytes()).collect();
        }
        (0..elements).flat_map(|at| self.encode(element(at))).collect()
    }

    /// A small whole number in the launch's type.
    fn encode(&self, value: u64) -> Vec<u8> {
        let single = value as f32;
        let bits = u64::from(single.to_bits());
        let exponent = || (bits >> 23) as i64 - 127;
        // A normal float with `mantissa` bits, from a whole number that it holds exactly.
        let narrow = |bias: i64, mantissa: u32| match value {
            0 => 0,
            _ => {
                assert_eq!(bits & ((1 << (23 - mantissa)) - 1), 0, "{value} has no exact code");
                ((exponent() + bias) as u64) << mantissa | (bits & 0x7f_ffff) >> (23 - mantissa)
            }
        };
        let code = match self.message.data_type {
            DataType::Float32 => bits,
            DataType::Float64 => (value as f64).to_bits(),
            DataType::Float16 => narrow(15, 10),
            DataType::Bfloat16 => bits >> 16,
            DataType::Float8E4m3fn => narrow(7, 3),
            DataType::Float8E4m3fnuz => narrow(8, 3),
            DataType::Float8E5m2 => narrow(15, 2),
            DataType::Float8E5m2fnuz => narrow(16, 2),
            // Eighths, so that sums of eight ones stay below its greatest value, 1.875.
            DataType::Float8E4m3b15 => narrow(15 - 3, 3),
            _ => value,
        };
        code.to_le_bytes()[..self.message.data_type.bytes() as usize].to_vec()
    }
}
