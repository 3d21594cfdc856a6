//! The GPUs of a process: the driver opened when it is first needed, and one context per device.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use warpway_core::Result;

use super::exports::Exports;
use super::imports::Imports;
use super::word_adder::WordAdder;
use crate::context::{Context, lock};
use crate::driver::Driver;
use crate::jit::Compiler;

/// What the communicators of a process share: driver, compiler, and per device its context and what of peers is mapped
/// there. Nothing is opened before it is needed. Cheap to clone; the last clone gives everything back.
#[derive(Clone)]
pub struct Devices(Arc<Inner>);

struct Inner {
    library: PathBuf,
    compiler: Compiler,
    opened: Mutex<Opened>,
    /// Held while permissions of mappings change: ranks on one device may adopt the same memory at once.
    adopting: Mutex<()>,
}

#[derive(Default)]
struct Opened {
    driver: Option<Driver>,
    devices: BTreeMap<i32, Arc<Shared>>,
    /// UUIDs by ordinal, once they have been asked for.
    uuids: Option<Arc<[[u8; 16]]>>,
}

/// One device, as all engines on it share it.
pub(crate) struct Shared {
    pub(super) context: Context,
    pub(super) imports: Imports,
    pub(super) exports: Exports,
    pub(super) adder: WordAdder,
}

impl Devices {
    /// The driver is `library`, a path or a name for the loader; kernels are made by `compiler`.
    pub fn new(library: impl Into<PathBuf>, compiler: Compiler) -> Self {
        let (library, opened) = (library.into(), Mutex::default());
        Self(Arc::new(Inner { library, compiler, opened, adopting: Mutex::default() }))
    }

    pub(super) fn adopting(&self) -> MutexGuard<'_, ()> {
        lock(&self.0.adopting)
    }

    /// What makes kernels.
    pub fn compiler(&self) -> &Compiler {
        &self.0.compiler
    }

    /// The driver; opens it. A failure is not remembered.
    ///
    /// # Errors
    /// `unavailable`: no driver, no device, or too old a driver.
    pub fn driver(&self) -> Result<Driver> {
        self.0.driver(&mut lock(&self.0.opened))
    }

    /// The context of a device, the same for every call.
    ///
    /// # Errors
    /// As [`driver`](Self::driver); `gpu.driver` for a device that does not exist or cannot be used.
    pub fn context(&self, ordinal: i32) -> Result<Context> {
        self.shared(ordinal).map(|shared| shared.context.clone())
    }

    pub(super) fn shared(&self, ordinal: i32) -> Result<Arc<Shared>> {
        let mut opened = lock(&self.0.opened);
        if let Some(shared) = opened.devices.get(&ordinal) {
            return Ok(Arc::clone(shared));
        }
        let context = Context::primary(&self.0.driver(&mut opened)?, ordinal)?;
        let (imports, exports) = (Imports::default(), Exports::default());
        let adder = WordAdder::new(self.0.compiler.clone());
        let shared = Arc::new(Shared { context, imports, exports, adder });
        opened.devices.insert(ordinal, Arc::clone(&shared));
        Ok(shared)
    }

    /// The ordinal here of a device; `None` if this process does not see it.
    pub(super) fn ordinal_of(&self, uuid: &[u8; 16]) -> Result<Option<i32>> {
        let mut opened = lock(&self.0.opened);
        let uuids = match &opened.uuids {
            Some(uuids) => Arc::clone(uuids),
            None => {
                let devices = self.0.driver(&mut opened)?.devices()?;
                let uuids: Arc<[[u8; 16]]> = devices.iter().map(|device| device.uuid).collect();
                Arc::clone(opened.uuids.insert(uuids))
            }
        };
        let found = uuids.iter().position(|candidate| candidate == uuid);
        Ok(found.and_then(|ordinal| i32::try_from(ordinal).ok()))
    }
}

impl Inner {
    fn driver(&self, opened: &mut Opened) -> Result<Driver> {
        match &opened.driver {
            Some(driver) => Ok(driver.clone()),
            None => Ok(opened.driver.insert(Driver::open(&self.library)?).clone()),
        }
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("library", &self.0.library).finish_non_exhaustive()
    }
}
