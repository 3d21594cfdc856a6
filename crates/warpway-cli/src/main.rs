//! The `warpway` command.
fn main() {}
