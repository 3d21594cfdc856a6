//! The matrix of collectives: every function, algorithm, type, operator, size, kind of buffer, root and world, each call
//! against an oracle that is written from the definition alone.
//!
//! | file | question it answers |
//! |---|---|
//! | `case.rs` | one call: what is called, and on what |
//! | `number.rs` | numbers whose folds are exact in any order, and their codes |
//! | `shape.rs` | what lies where before and after the call |
//! | `window.rs` | buffers between canaries, before and after a call |
//! | `play.rs` | one rank's part: the call, the comparison |
//! | `space.rs` | all cases, and a sample in which every pair of values occurs |
//! | `sequence.rs` | long random sequences on one communicator |

mod case;
mod number;
mod play;
mod sequence;
mod shape;
mod space;
mod window;

pub use case::{Case, Memory};
pub use number::layout;
pub use play::{Verdict, play_all, repeat};
pub use sequence::{Counted, sequence};
pub use space::{Ranks, SIZES, Setting, product, sample, settings};
pub use window::{Place, Window, Windows};

/// Numbers without pattern, the same on all ranks.
pub fn mix(seed: u64, at: u64) -> u64 {
    let mut x = seed.rotate_left(17) ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ x >> 32).wrapping_mul(0xa076_1d64_78bd_642f);
    x ^ x >> 29
}
