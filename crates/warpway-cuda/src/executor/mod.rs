//! Plans on GPUs: set up once by all ranks, launched any number of times, eagerly or from graphs.
//!
//! | file | question it answers |
//! |---|---|
//! | `setting.rs` | what a plan is set up for, and what a launch brings |
//! | `plans.rs` | how all ranks set a plan up together |
//! | `agreement.rs` | do they set up the same one, and has each of them managed to |
//! | `check.rs` | which plans run here |
//! | `areas.rs` | scratch: memory of every rank, and the epochs that tell launches apart |
//! | `channels.rs` | signals between ranks, barriers and semaphores of one rank's blocks |
//! | `meeting.rs` | how all ranks wait for each other in front of a launch |
//! | `kernels.rs` | the plan's two kernels, loaded |
//! | `ready.rs` | what one size of message needs |
//! | `plan.rs` | a launch |
//!
//! Nothing on the host changes from launch to launch: epochs are counters in device memory, which the kernels advance
//! themselves. So graphs may be replayed any number of times, mixed with eager launches of this and other plans.
//!
//! A set-up ends on all ranks together: a rank that went ahead and launched could have a kernel waiting for a rank whose driver
//! waits, before it loads a kernel, for the device.

mod agreement;
mod areas;
mod channels;
mod check;
mod kernels;
mod meeting;
mod plan;
mod plans;
mod ready;
mod setting;
#[cfg(test)]
mod tests;

pub use plan::GpuPlan;
pub use plans::GpuPlans;
pub(crate) use plans::PlansState;
pub use setting::{DeviceRange, GpuLaunch, GpuPlanSetting, MessageBytes};

/// Of all exchanges for plans on GPUs. Others are free for direct use of the communicator.
const TAG: i32 = 0x6770_6c61;
