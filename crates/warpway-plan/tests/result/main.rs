//! The rules about what a plan computes (V7).

mod algorithms;
