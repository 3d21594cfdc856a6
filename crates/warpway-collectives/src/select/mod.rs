//! Which algorithm a call takes.
//!
//! Every source of advice makes *proposals*: an algorithm for a range of sizes. The first one that covers the size and
//! fits the task is taken. Sources, the strongest first:
//!
//! 1. the call names an algorithm;
//! 2. overrides of the environment, then of the table's file;
//! 3. plans that the user has registered;
//! 4. the table of measurements;
//! 5. the built-in rules;
//! 6. the first algorithm of the catalogue that fits.
//!
//! All ranks must choose alike, so a choice depends only on what they have in common: not on whether a buffer is
//! registered, for one, which each rank may do as it likes.
//!
//! | file | question it answers |
//! |---|---|
//! | `request.rs` | what a choice depends on |
//! | `selector.rs` | who is asked, in which order |
//! | `rules.rs` | what is taken without measurements |
//! | `overrides.rs` | what the environment may say |
//! | `registered.rs` | plans of the user |
//! | `choice.rs` | what was chosen, and why nothing was |
//! | `explain.rs` | what else was possible, and why it was not taken |

mod choice;
mod explain;
mod overrides;
mod registered;
mod request;
mod rules;
mod selector;

pub use choice::{Choice, NoChoice, Reason, Taken};
pub use explain::{Candidate, Explanation, Verdict};
pub use overrides::{BadOverride, Override};
pub use registered::{BadRegistration, Registered, Registration};
pub use request::Request;
pub use selector::Selector;
