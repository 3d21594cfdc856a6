//! The rules about order: races (V5) and packets (V6).

mod algorithms;
