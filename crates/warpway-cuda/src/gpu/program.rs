//! Compiled programs, loaded on the device.

use std::fmt;
use std::sync::Arc;

use warpway_core::Result;

use crate::context::Context;
use crate::jit::{Compiler, Image, Program};
use crate::module::{Kernel, Module};

/// A program of which kernels can be launched. Cheap to clone.
#[derive(Clone)]
pub struct LoadedProgram {
    module: Module,
    image: Arc<Image>,
}

impl LoadedProgram {
    pub(super) fn load(context: &Context, compiler: &Compiler, program: &Program) -> Result<Self> {
        let image = compiler.compile(program, context.info().architecture)?;
        let name = format!("{} for {}", program.name(), image.architecture());
        Ok(Self { module: Module::load_as(context, &name, image.code())?, image })
    }

    /// A kernel, by the expression that the program exports it with, or by its name if it is `extern "C"`.
    ///
    /// # Errors
    /// `gpu.driver` if there is none of that name.
    pub fn kernel(&self, expression: &str) -> Result<Kernel> {
        Ok(self.module.kernel(self.image.symbol(expression).unwrap_or(expression))?)
    }

    /// The loaded image.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// What was compiled.
    pub fn image(&self) -> &Image {
        &self.image
    }
}

impl fmt::Debug for LoadedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.module.fmt(f)
    }
}
