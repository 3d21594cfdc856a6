//! Images made ahead of time, on a machine that need not have a GPU.

use std::sync::Arc;

use warpway_core::Result;

use super::compiler::Compiler;
use super::image::Image;
use super::journal::Record;
use super::program::Program;
use crate::device::Architecture;

/// What became of a program and an architecture.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Warmed {
    /// Name of the program.
    pub program: String,
    /// As it was asked for.
    pub architecture: Architecture,
    /// The image and how it came about, or why there is none.
    pub result: Result<(Arc<Image>, Record)>,
}

impl Compiler {
    /// Compiles each program for each architecture, so that later processes of this user find the images on disk.
    /// Goes on after a failure. `done` hears of each result as it comes, in the order of the programs.
    pub fn warm(
        &self,
        programs: &[Program],
        architectures: &[Architecture],
        mut done: impl FnMut(&Warmed),
    ) -> Vec<Warmed> {
        let mut all = Vec::with_capacity(programs.len().saturating_mul(architectures.len()));
        for program in programs {
            for &architecture in architectures {
                let result = self.image(program, architecture);
                let warmed = Warmed { program: program.name().to_owned(), architecture, result };
                done(&warmed);
                all.push(warmed);
            }
        }
        all
    }
}
