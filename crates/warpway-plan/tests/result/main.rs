//! The rules about what a plan computes (V7).

mod algorithms;
mod averages;
mod collectives;
mod faults;
mod order;
mod pieces;
mod program;
