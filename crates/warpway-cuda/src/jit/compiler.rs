//! From a program to an image: from memory, from disk, or from the compiler.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use warpway_core::config::{Config, Environment};
use warpway_core::gpu::GpuError;
use warpway_core::{Result, SystemError, Unavailable};

use super::backend::{Backend, Rejected, Target};
use super::diagnostics;
use super::image::{CodeKind, Description, Image, Kernel};
use super::journal::{Journal, Origin, Record};
use super::nvrtc::Nvrtc;
use super::program::{Program, ProgramDigest};
use super::resources;
use super::store::{CacheContents, Store};
use crate::context::lock;
use crate::device::Architecture;

/// The library that compiles.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Library {
    /// Its file, or the name under which the loader found it.
    pub file: PathBuf,
    /// The place of the search that it was found in: `WARPWAY_NVRTC`, `packages of VIRTUAL_ENV (…)`.
    pub place: String,
}

/// Makes images of programs, and keeps them. Cheap to clone: clones share all.
///
/// Threads that want the same image at once wait for one compilation; different images are compiled at the same time.
#[derive(Clone)]
pub struct Compiler(Arc<Shared>);

struct Shared {
    open: Box<dyn Fn() -> Result<Arc<dyn Backend>, Unavailable> + Send + Sync>,
    /// Once it is open. A failed search is made anew: a library may come with a later import.
    backend: Mutex<Option<Arc<dyn Backend>>>,
    store: Option<Store>,
    images: Mutex<HashMap<ProgramDigest, Slot>>,
    journal: Mutex<Journal>,
}

/// Locked while its image is made.
type Slot = Arc<Mutex<Option<Made>>>;

/// An image, and whether it is on disk.
#[derive(Clone)]
struct Made {
    image: Arc<Image>,
    kept: bool,
}

impl Compiler {
    /// With NVRTC, which is looked for when it is first needed, and the cache folder of the settings.
    pub fn new(config: &Config, environment: &Environment) -> Self {
        let store = config.cache_folder(environment).map(|folder| Store::new(folder, config.cache_bytes));
        let (config, environment) = (config.clone(), environment.clone());
        let open =
            move || Nvrtc::find(&config, &environment).map(|nvrtc| Arc::new(nvrtc) as Arc<dyn Backend>);
        Self::with(Box::new(open), store)
    }

    pub(super) fn with(
        open: Box<dyn Fn() -> Result<Arc<dyn Backend>, Unavailable> + Send + Sync>,
        store: Option<Store>,
    ) -> Self {
        Self(Arc::new(Shared {
            open,
            backend: Mutex::new(None),
            store,
            images: Mutex::default(),
            journal: Mutex::default(),
        }))
    }

    /// Name and version of the compiler: `nvrtc 13.0, …`. Opens it.
    ///
    /// # Errors
    /// `unavailable` names the places where NVRTC was looked for.
    pub fn identity(&self) -> Result<String> {
        Ok(self.backend()?.identity().to_owned())
    }

    /// The library that compiles, and where it was found. Opens it.
    ///
    /// # Errors
    /// As [`identity`](Self::identity).
    pub fn library(&self) -> Result<Library> {
        Ok(self.backend()?.library())
    }

    /// The architectures that machine code can be made for, in the compiler's order. Opens it.
    ///
    /// # Errors
    /// As [`identity`](Self::identity).
    pub fn architectures(&self) -> Result<Vec<Architecture>> {
        let backend = self.backend()?;
        Ok(backend.architectures().iter().map(|n| Architecture { major: n / 10, minor: n % 10 }).collect())
    }

    /// The image of a program for an architecture: machine code, or PTX if the compiler is too old to know the
    /// architecture. Without a compiler, an image that is in the cache will do, whichever version made it.
    ///
    /// # Errors
    /// `gpu.compile` with the lines that are wrong; `unavailable` without a compiler, or with one that is too new to
    /// know the architecture.
    pub fn compile(&self, program: &Program, architecture: Architecture) -> Result<Arc<Image>> {
        self.image(program, architecture).map(|(image, _)| image)
    }

    /// What was compiled so far, and what was found instead.
    pub fn journal(&self) -> Journal {
        lock(&self.0.journal).clone()
    }

    /// What the cache folder holds; `None` if it is switched off.
    pub fn cache(&self) -> Option<CacheContents> {
        self.0.store.as_ref().map(Store::contents)
    }

    /// Removes all images from the cache folder, also those that other processes have put there; what is loaded
    /// stays so. Gives their number and bytes.
    ///
    /// # Errors
    /// `system` if one cannot be removed.
    pub fn clear_cache(&self) -> Result<(u64, u64)> {
        let Some(store) = &self.0.store else { return Ok((0, 0)) };
        Ok(store.clear().map_err(|error| SystemError::from_io("removing a file of the cache", &error))?)
    }

    /// As [`compile`](Self::compile), and how it came about.
    pub(super) fn image(
        &self,
        program: &Program,
        architecture: Architecture,
    ) -> Result<(Arc<Image>, Record)> {
        let digest = program.digest(architecture);
        let slot = Arc::clone(lock(&self.0.images).entry(digest).or_default());
        // Ends when the compiler ends, which waits for nobody.
        let mut slot = lock(&slot);
        let start = Instant::now();
        let found = match &*slot {
            Some(made) => Ok((made.clone(), Origin::Memory)),
            None => self.load_or_compile(program, architecture, digest),
        };
        let (made, origin) = found.inspect_err(|_| lock(&self.0.journal).failed += 1)?;
        let Made { image, kept } = slot.insert(made).clone();
        let record = Record {
            program: program.name().to_owned(),
            architecture: image.architecture().to_owned(),
            kind: image.kind(),
            code_bytes: image.code().len() as u64,
            origin,
            kept,
            duration: start.elapsed(),
        };
        lock(&self.0.journal).add(record.clone());
        Ok((image, record))
    }

    fn load_or_compile(
        &self,
        program: &Program,
        architecture: Architecture,
        digest: ProgramDigest,
    ) -> Result<(Made, Origin)> {
        let store = self.0.store.as_ref();
        let of_disk = |image| (Made { image: Arc::new(image), kept: true }, Origin::Disk);
        let backend = match self.backend() {
            Ok(backend) => backend,
            Err(absent) => {
                let image = store.and_then(|store| store.load_any(digest));
                return Ok(image.map(of_disk).ok_or(absent)?);
            }
        };
        if let Some(image) = store.and_then(|store| store.load(digest, backend.identity())) {
            return Ok(of_disk(image));
        }
        let start = Instant::now();
        let image = compile(&*backend, program, architecture)?;
        let kept = store.is_some_and(|store| store.save(digest, start.elapsed(), &image));
        Ok((Made { image: Arc::new(image), kept }, Origin::Compiled))
    }

    fn backend(&self) -> Result<Arc<dyn Backend>, Unavailable> {
        let mut backend = lock(&self.0.backend);
        match &*backend {
            Some(open) => Ok(Arc::clone(open)),
            None => Ok(Arc::clone(backend.insert((self.0.open)()?))),
        }
    }
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = lock(&self.0.backend).as_ref().map(|backend| backend.identity().to_owned());
        f.debug_struct("Compiler").field("backend", &backend).finish_non_exhaustive()
    }
}

fn compile(backend: &dyn Backend, program: &Program, architecture: Architecture) -> Result<Image> {
    let target = Target::choose(architecture, backend.architectures()).ok_or_else(|| Unavailable {
        what: format!("code for {architecture}"),
        why: format!("{} does not know it", backend.identity()),
        hint: "set WARPWAY_NVRTC to the libnvrtc.so of an older CUDA version",
    })?;
    let with_lines = |log: &str| diagnostics::with_lines(log, |name| program.file(name));
    let output = backend.compile(program, target).map_err(|Rejected(log)| GpuError::Compile {
        name: program.name().to_owned(),
        architecture: target.to_string(),
        log: with_lines(&resources::split(&log).0),
    })?;
    let (words, mut needs) = resources::split(&output.log);
    if !words.trim().is_empty() {
        tracing::warn!(target: "warpway::gpu::jit", "{} for {target}:\n{}", program.name(), with_lines(&words));
    }
    if target.kind == CodeKind::Ptx {
        tracing::warn!(
            target: "warpway::gpu::jit",
            "{} is too old for {architecture}: the driver compiles {} of {target} (a newer NVRTC makes better code)",
            backend.identity(),
            program.name()
        );
    }
    let exported = program.kernels().iter().zip(output.symbols).map(|(expression, symbol)| Kernel {
        expression: expression.clone(),
        resources: needs.remove(&symbol),
        symbol,
    });
    let mut kernels: Vec<Kernel> = exported.collect();
    kernels.extend(needs.into_iter().map(|(symbol, resources)| Kernel {
        expression: symbol.clone(),
        symbol,
        resources: Some(resources),
    }));
    let description = Description {
        program: program.name().to_owned(),
        kind: target.kind,
        architecture: target.to_string(),
        compiler: backend.identity().to_owned(),
        kernels,
    };
    Ok(Image { description, code: output.code })
}
