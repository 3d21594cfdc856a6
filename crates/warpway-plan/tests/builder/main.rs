//! Programs and their plans.

mod algorithms;
