//! Modules: texts that say which functions and variables there are. The crate's page describes them.

use std::collections::BTreeMap;

use warpway_cuda_sys::driver_types::{CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU};

use super::call::Answer;

/// A loaded module.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) device: usize,
    /// Handles by name.
    pub(super) functions: BTreeMap<String, u64>,
    /// First address and size by name.
    pub(super) globals: BTreeMap<String, (u64, u64)>,
}

/// A function of a module.
#[derive(Debug, Clone)]
pub(super) struct Function {
    pub(super) device: usize,
    pub(super) description: Description,
    /// The limit of dynamic shared memory that the program has asked for.
    pub(super) dynamic_shared: i32,
}

/// What the image says of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) name: String,
    /// Size and alignment of each parameter.
    pub(super) parameters: Vec<(usize, usize)>,
    pub(super) registers: i32,
    /// Most threads of a block.
    pub(super) threads: i32,
    /// Static shared memory.
    pub(super) shared: i32,
}

/// What a text says.
#[derive(Debug, Default)]
pub(super) struct Image {
    pub(super) functions: Vec<Description>,
    pub(super) globals: Vec<(String, u64)>,
}

impl Image {
    /// Reads a text, for a device of this architecture.
    pub(super) fn parse(text: &str, architecture: (i32, i32)) -> Answer<Self> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        if lines.next() != Some("fake module") {
            return Err(CUDA_ERROR_INVALID_IMAGE);
        }
        let mut image = Self::default();
        for line in lines {
            let mut words = line.split_whitespace();
            let (kind, name) = (words.next(), words.next().ok_or(CUDA_ERROR_INVALID_IMAGE)?);
            match kind {
                Some("arch") if name.parse() == Ok(architecture.0 * 10 + architecture.1) => {}
                Some("arch") => return Err(CUDA_ERROR_NO_BINARY_FOR_GPU),
                Some("function") => {
                    image.functions.push(describe(name, words).ok_or(CUDA_ERROR_INVALID_IMAGE)?)
                }
                Some("global") => {
                    let size =
                        words.next().and_then(|size| size.parse().ok()).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
                    image.globals.push((name.to_owned(), size));
                }
                _ => return Err(CUDA_ERROR_INVALID_IMAGE),
            }
        }
        Ok(image)
    }
}

fn describe<'text>(name: &str, settings: impl Iterator<Item = &'text str>) -> Option<Description> {
    let mut described = Description {
        name: name.to_owned(),
        parameters: Vec::new(),
        registers: 32,
        threads: 1024,
        shared: 0,
    };
    for setting in settings {
        let (key, value) = setting.split_once('=')?;
        match key {
            "parameters" => described.parameters = value.split(',').map(parameter).collect::<Option<_>>()?,
            "registers" => described.registers = value.parse().ok()?,
            "threads" => described.threads = value.parse().ok()?,
            "shared" => described.shared = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(described)
}

fn parameter(text: &str) -> Option<(usize, usize)> {
    if let Some((size, alignment)) = text.split_once('@') {
        return Some((size.parse().ok()?, alignment.parse().ok()?));
    }
    let size: usize = text.parse().ok()?;
    (size > 0).then(|| (size, (1 << size.trailing_zeros()).min(8)))
}
