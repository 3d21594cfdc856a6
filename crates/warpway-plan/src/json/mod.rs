//! Plans as JSON, the format of MSCCL++ 0.9 with Warpway's extensions.
//!
//! Reading streams through `serde_json` without a tree, keeps what the file says even where it makes no sense
//! for the operation, and lists all findings (V101 to V111) instead of the first. Writing streams as well.

mod identity;
mod read;
mod schema;
mod write;

pub use identity::PlanIdentity;
pub use read::{ReadError, ReadPlan};
pub use schema::plan_schema;
pub use write::Style;
