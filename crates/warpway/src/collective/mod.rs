//! Collectives: what a call computes, checked, chosen, proven, set up once and launched.
//!
//! | file | question it answers |
//! |---|---|
//! | `mod.rs` | what there is to call |
//! | `call.rs` | a call as a value, with wishes |
//! | `operand.rs`, `number.rs` | what may be given as a buffer |
//! | `message.rs`, `sizes.rs` | whether the buffers fit the function |
//! | `choose.rs` | which plan the call takes, and what is kept of it |
//! | `settings.rs`, `machine.rs` | what the user has set about choices, and whether a table of measurements holds here |

mod call;
mod choose;
mod machine;
mod message;
mod number;
mod operand;
mod settings;
mod sizes;

pub use call::{Call, Counts};
pub(crate) use choose::{Collectives, Proofs};
pub use number::Number;
pub use operand::{ReceiveBuffer, SendBuffer};

use warpway_collectives::{Explanation, Machine, Registration, World};
use warpway_core::Result;
use warpway_plan::ReduceOp;
use warpway_plan::verify::VerifiedPlan;

use crate::communicator::Communicator;

/// Collectives. All ranks call the same ones in the same order, with equal counts (unless there are counts by rank),
/// types, operators and roots. A call returns when this rank's part is done: its results are there, and what it gave
/// may be written again.
///
/// Buffers are slices, or memory of [`alloc`](Communicator::alloc), which saves a copy of large messages; ranks may do
/// either. The first call of a kind sets its plan up together with the other ranks.
///
/// Several threads of a rank may call at the same time if their calls are alike: same function, count, type, operator,
/// root and wishes, on buffers of their own, equally many on every rank. They are carried out one after another, and
/// which thread of one rank meets which of another is open: give data for which it does not matter, or call from one
/// thread. Calls that differ must not be under way at the same time, since the ranks would see them in different orders:
/// let one thread make them, or give each thread a communicator of its own.
///
/// ```
/// use warpway::{Config, Context, ReduceOp, in_process};
///
/// # fn main() -> warpway::Result<()> {
/// in_process(3, &Context::new(Config::default()), |comm| {
///     let mut x = comm.alloc::<f32>(5)?;
///     x.fill(comm.rank() as f32)?;
///     comm.all_reduce(&mut x, ReduceOp::Sum)?;
///     assert_eq!(x.to_vec()?, [3.0; 5]);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `collective.*` for a call that cannot be carried out: nothing has been launched then. `plan.difference` and
/// `plan.disagreement` name a rank that called something else; then and after failures of waits the communicator is
/// broken. Those of [`PreparedPlan::run`](crate::PreparedPlan::run).
impl Communicator {
    /// Replaces the numbers of every rank by their fold over all ranks.
    ///
    /// # Errors
    /// As above.
    pub fn all_reduce<'a>(&self, data: impl ReceiveBuffer<'a>, op: ReduceOp) -> Result<()> {
        self.collective(&Call::all_reduce(data, op))
    }

    /// The same into another buffer of the same length.
    ///
    /// # Errors
    /// As above.
    pub fn all_reduce_into<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        op: ReduceOp,
    ) -> Result<()> {
        self.collective(&Call::all_reduce_into(input, output, op))
    }

    /// Every rank gets the inputs of all, in rank order: `output` is n times as long as `input`.
    ///
    /// # Errors
    /// As above.
    pub fn all_gather<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
    ) -> Result<()> {
        self.collective(&Call::all_gather(input, output))
    }

    /// The same where the input lies in the result already: part r of n equal parts on rank r.
    ///
    /// # Errors
    /// As above.
    pub fn all_gather_in_place<'a>(&self, data: impl ReceiveBuffer<'a>) -> Result<()> {
        self.collective(&Call::all_gather_in_place(data))
    }

    /// Rank r gets part r of the fold of all inputs: `input` is n times as long as `output`.
    ///
    /// # Errors
    /// As above.
    pub fn reduce_scatter<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        op: ReduceOp,
    ) -> Result<()> {
        self.collective(&Call::reduce_scatter(input, output, op))
    }

    /// The same into part r of the input itself.
    ///
    /// # Errors
    /// As above.
    pub fn reduce_scatter_in_place<'a>(&self, data: impl ReceiveBuffer<'a>, op: ReduceOp) -> Result<()> {
        self.collective(&Call::reduce_scatter_in_place(data, op))
    }

    /// Every rank gets what the root has.
    ///
    /// # Errors
    /// As above.
    pub fn broadcast<'a>(&self, data: impl ReceiveBuffer<'a>, root: u32) -> Result<()> {
        self.collective(&Call::broadcast(data, root))
    }

    /// The same from a buffer of the root, which may be empty on other ranks.
    ///
    /// # Errors
    /// As above.
    pub fn broadcast_into<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        root: u32,
    ) -> Result<()> {
        self.collective(&Call::broadcast_into(input, output, root))
    }

    /// Replaces the numbers of the root by their fold over all ranks, whose own stay as they are.
    ///
    /// # Errors
    /// As above.
    pub fn reduce<'a>(&self, data: impl ReceiveBuffer<'a>, op: ReduceOp, root: u32) -> Result<()> {
        self.collective(&Call::reduce(data, op, root))
    }

    /// The same into another buffer of the root, which may be empty on other ranks.
    ///
    /// # Errors
    /// As above.
    pub fn reduce_into<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        op: ReduceOp,
        root: u32,
    ) -> Result<()> {
        self.collective(&Call::reduce_into(input, output, op, root))
    }

    /// The root gets the inputs of all, in rank order: `output` is n times as long as `input` there, and may be empty on
    /// other ranks.
    ///
    /// # Errors
    /// As above.
    pub fn gather<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        root: u32,
    ) -> Result<()> {
        self.collective(&Call::gather(input, output, root))
    }

    /// The same where `data` is the whole result on the root, with its own part in place, and the input on other ranks.
    ///
    /// # Errors
    /// As above.
    pub fn gather_in_place<'a>(&self, data: impl ReceiveBuffer<'a>, root: u32) -> Result<()> {
        self.collective(&Call::gather_in_place(data, root))
    }

    /// Rank r gets part r of the root's input, which is n times as long as `output` there, and may be empty on other
    /// ranks.
    ///
    /// # Errors
    /// As above.
    pub fn scatter<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        root: u32,
    ) -> Result<()> {
        self.collective(&Call::scatter(input, output, root))
    }

    /// The same where `data` is the whole input on the root, whose own part stays in place, and the output on other
    /// ranks.
    ///
    /// # Errors
    /// As above.
    pub fn scatter_in_place<'a>(&self, data: impl ReceiveBuffer<'a>, root: u32) -> Result<()> {
        self.collective(&Call::scatter_in_place(data, root))
    }

    /// Part r of rank q's input becomes part q of rank r's output. Both are n equal parts long.
    ///
    /// # Errors
    /// As above.
    pub fn all_to_all<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
    ) -> Result<()> {
        self.collective(&Call::all_to_all(input, output))
    }

    /// The same in one buffer.
    ///
    /// # Errors
    /// As above.
    pub fn all_to_all_in_place<'a>(&self, data: impl ReceiveBuffer<'a>) -> Result<()> {
        self.collective(&Call::all_to_all_in_place(data))
    }

    /// [`all_gather`](Self::all_gather) of `counts[r]` elements of rank r, zeros included, which all ranks know.
    ///
    /// ```
    /// use warpway::{Config, Context, Counts, in_process};
    ///
    /// # fn main() -> warpway::Result<()> {
    /// in_process(2, &Context::new(Config::default()), |comm| {
    ///     let own = [&[7u32][..], &[8, 9]][comm.rank() as usize];
    ///     let mut all = [0; 3];
    ///     comm.all_gather_v(own, &mut all, &[1, 2])?;
    ///     assert_eq!(all, [7, 8, 9]);
    ///     // Rank 1 first, with a gap that stays as it is.
    ///     let mut all = [0; 4];
    ///     comm.all_gather_v(own, &mut all, Counts::at(&[1, 2], &[3, 0]))?;
    ///     assert_eq!(all, [8, 9, 0, 7]);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As above.
    pub fn all_gather_v<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        counts: impl Into<Counts<'a>>,
    ) -> Result<()> {
        self.collective(&Call::all_gather_v(input, output, counts))
    }

    /// [`reduce_scatter`](Self::reduce_scatter) with `counts[r]` elements for rank r, zeros included, which all ranks
    /// know.
    ///
    /// # Errors
    /// As above.
    pub fn reduce_scatter_v<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        counts: impl Into<Counts<'a>>,
        op: ReduceOp,
    ) -> Result<()> {
        self.collective(&Call::reduce_scatter_v(input, output, counts, op))
    }

    /// [`all_to_all`](Self::all_to_all) with `send[r]` elements for rank r and `receive[q]` from rank q, zeros included.
    ///
    /// # Errors
    /// As above.
    pub fn all_to_all_v<'a, I: SendBuffer<'a>>(
        &self,
        input: I,
        send: impl Into<Counts<'a>>,
        output: impl ReceiveBuffer<'a, Number = I::Number>,
        receive: impl Into<Counts<'a>>,
    ) -> Result<()> {
        self.collective(&Call::all_to_all_v(input, send, output, receive))
    }

    /// Any of them, with wishes.
    ///
    /// # Errors
    /// As above.
    pub fn collective(&self, call: &Call<'_>) -> Result<()> {
        self.collectives()?.run(self, call)
    }

    /// Which algorithm a call would take, why, and why no other. Nothing is set up; other ranks take no part.
    ///
    /// # Errors
    /// As the call itself.
    pub fn explain(&self, call: &Call<'_>) -> Result<Explanation> {
        self.collectives()?.explain(call)
    }

    /// Which rank runs on which host.
    pub fn world(&self) -> World {
        choose::surroundings(self).world
    }

    /// The machine, as tables of measurements name it.
    pub fn machine(&self) -> Machine {
        machine::this_machine(choose::surroundings(self).cores)
    }

    /// Lets calls take a plan of the user's, whose sizes, operator and root it fits, in place of the catalogue's. All ranks
    /// register the same plans in the same order.
    ///
    /// # Errors
    /// `plan.refused` for a plan that no call could take.
    pub fn register_plan(&self, plan: VerifiedPlan, registration: Registration) -> Result<()> {
        self.collectives()?.register(plan, registration)
    }
}
