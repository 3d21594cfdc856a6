//! Images on disk: a folder of files that several processes use at once.
//!
//! A file is written under another name and renamed, so nobody sees a part of it; what is read is checked; when the
//! folder grows too large, the files not used for longest go. Nothing here is an error for who wants an image: what
//! does not work costs a compilation and is logged, the first time as a warning.
//!
//! Images run with the rights of whoever loads them. So neither the folder nor a file counts if somebody else
//! owns it (but root), or may write to it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::entry::{self, Label};
use super::image::Image;
use super::program::ProgramDigest;
use super::{CodeKind, Kernel};

const SUFFIX: &str = ".image";
const PARTIAL: &str = ".partial";
/// A file that is being written is not as old as this; what is was left by a process that ended meanwhile.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);
/// A disk with less free counts as full; images are smaller.
const ROOM_FOR_AN_IMAGE: u64 = 1 << 20;

/// What the cache holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheContents {
    /// Where.
    pub folder: PathBuf,
    /// Bytes that it may take.
    pub bytes_max: u64,
    /// Its files, last used first.
    pub entries: Vec<CacheEntry>,
    /// Why images are not kept there, as far as that can be seen without writing; `None` if nothing is in the way.
    pub obstacle: Option<String>,
}

/// A file of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheEntry {
    /// Its name in the folder.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
    /// What it is, or what is wrong with it. A wrong one is replaced when its program is next compiled.
    pub image: Result<CachedImage, String>,
}

/// What a file of the cache says of its image.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedImage {
    /// Name of the program.
    pub program: String,
    /// `sm_90`, or `compute_90` for PTX.
    pub architecture: String,
    /// What the code is.
    pub kind: CodeKind,
    /// What made it.
    pub compiler: String,
    /// How long that took.
    pub compile_time: Duration,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
}

/// A folder of images.
pub(super) struct Store {
    /// The user's cache folder, where others may keep other things.
    parent: PathBuf,
    folder: PathBuf,
    bytes_max: u64,
    warned: AtomicBool,
    partials: AtomicU64,
    /// `write_all`; tests put a disk that is full here.
    pub(super) write: fn(&mut File, &[u8]) -> io::Result<()>,
}

impl Store {
    /// In the folder `jit` of a cache folder. Makes nothing yet.
    pub(super) fn new(parent: PathBuf, bytes_max: u64) -> Self {
        let folder = parent.join("jit");
        let write = |file: &mut File, bytes: &[u8]| file.write_all(bytes);
        Self { parent, folder, bytes_max, warned: AtomicBool::new(false), partials: AtomicU64::new(0), write }
    }

    /// The image that this compiler has made of the program.
    pub(super) fn load(&self, digest: ProgramDigest, compiler: &str) -> Option<Image> {
        self.is_trusted().then(|| self.read_image(&self.path(digest, compiler), digest, Some(compiler)))?
    }

    /// The latest image that any compiler has made of the program.
    pub(super) fn load_any(&self, digest: ProgramDigest) -> Option<Image> {
        if !self.is_trusted() {
            return None;
        }
        let mut files = self.files(SUFFIX);
        files.retain(|file| file.name.starts_with(&digest.to_string()));
        files.sort_by_key(|file| file.used);
        files.iter().rev().find_map(|file| self.read_image(&self.folder.join(&file.name), digest, None))
    }

    /// Keeps an image, in place of one that may be there. True if it is kept.
    pub(super) fn save(&self, digest: ProgramDigest, compile_time: Duration, image: &Image) -> bool {
        let compile_us = u64::try_from(compile_time.as_micros()).unwrap_or(u64::MAX);
        let Ok(bytes) = entry::encode(digest.to_string(), compile_us, image) else { return false };
        if bytes.len() as u64 > self.bytes_max.min(entry::BYTES_MAX) {
            self.warn(&format!("an image of {} bytes is larger than the cache may be", bytes.len()));
            return false;
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        if let Err(error) = made {
            self.warn(&format!("cannot make it: {error}"));
            return false;
        }
        if !self.is_trusted() {
            return false;
        }
        let path = self.path(digest, image.compiler());
        let replaced = self.replace(&path, &bytes);
        match &replaced {
            Ok(()) => self.evict(&path),
            Err(error) => self.warn(&format!("cannot write: {error}")),
        }
        replaced.is_ok()
    }

    /// All files.
    pub(super) fn contents(&self) -> CacheContents {
        let mut files = self.files(SUFFIX);
        files.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.name.cmp(&b.name)));
        let entries = files.into_iter().map(|Found { name, bytes, used }| {
            let image = read(&self.folder.join(&name)).and_then(|found| {
                let (bytes, _) = found.ok_or("it was removed meanwhile")?;
                let (label, _) = entry::decode(&bytes).map_err(str::to_owned)?;
                let described = label.description;
                Ok(CachedImage {
                    program: described.program,
                    architecture: described.architecture,
                    kind: described.kind,
                    compiler: described.compiler,
                    compile_time: Duration::from_micros(label.compile_us),
                    kernels: described.kernels,
                })
            });
            CacheEntry { file: name, bytes, used, image }
        });
        CacheContents {
            folder: self.folder.clone(),
            bytes_max: self.bytes_max,
            entries: entries.collect(),
            obstacle: self.distrust().or_else(|| self.unwritable()),
        }
    }

    /// Removes all images; their number and bytes.
    pub(super) fn clear(&self) -> io::Result<(u64, u64)> {
        let (mut count, mut bytes) = (0, 0);
        self.remove_abandoned();
        for file in self.files(SUFFIX) {
            match fs::remove_file(self.folder.join(&file.name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => (count, bytes) = (count + 1, bytes + file.bytes),
            }
        }
        Ok((count, bytes))
    }

    fn path(&self, digest: ProgramDigest, compiler: &str) -> PathBuf {
        let compiler: [u8; 32] = Sha256::digest(compiler).into();
        let compiler: String = compiler[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(format!("{digest}-{compiler}{SUFFIX}"))
    }

    fn read_image(&self, path: &Path, digest: ProgramDigest, compiler: Option<&str>) -> Option<Image> {
        let read = || {
            let Some((bytes, file)) = read(path)? else { return Ok(None) };
            let (Label { digest: found, description, .. }, code) =
                entry::decode(&bytes).map_err(str::to_owned)?;
            if found != digest.to_string()
                || compiler.is_some_and(|compiler| compiler != description.compiler)
            {
                return Err("it holds another program or is of another compiler".to_owned());
            }
            // For the order of eviction; a folder that cannot be written needs none.
            let _ = file.set_modified(SystemTime::now());
            Ok(Some(Image { description, code: code.to_vec() }))
        };
        match read() {
            Ok(image) => image,
            Err(why) => {
                tracing::warn!(target: "warpway::gpu::jit", "{}: {why}; the program is compiled anew", path.display());
                None
            }
        }
    }

    /// Writes a file in one step.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (partial, mut file) = loop {
            let number = self.partials.fetch_add(1, Ordering::Relaxed);
            let partial = self.folder.join(format!("{}-{number}{PARTIAL}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial) {
                Ok(file) => break (partial, file),
                // Left by a process of this number, or of one in another container.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        // Not synchronised with the disk: after a crash, the digest tells. The time is set because the one that
        // writing sets is of a coarser clock than the one that reading sets.
        let written = (self.write)(&mut file, bytes).and_then(|()| {
            let _ = file.set_modified(SystemTime::now());
            fs::rename(&partial, path)
        });
        written.inspect_err(|_| {
            let _ = fs::remove_file(&partial);
        })
    }

    /// Removes what was not used for longest until the rest fits; never the file that was just written.
    fn evict(&self, newest: &Path) {
        self.remove_abandoned();
        let mut files = self.files(SUFFIX);
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        files.retain(|file| Some(file.name.as_ref()) != newest.file_name());
        files.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| a.name.cmp(&b.name)));
        for file in files {
            if total <= self.bytes_max {
                break;
            }
            // Another process may have been faster.
            let _ = fs::remove_file(self.folder.join(&file.name));
            total -= file.bytes;
            tracing::debug!(target: "warpway::gpu::jit", "{} was not used for longest: removed", file.name);
        }
    }

    /// Removes what processes have left that ended while they wrote; others may be writing.
    fn remove_abandoned(&self) {
        let now = SystemTime::now();
        for file in self.files(PARTIAL) {
            if now.duration_since(file.used).is_ok_and(|age| age > ABANDONED_AFTER) {
                let _ = fs::remove_file(self.folder.join(&file.name));
            }
        }
    }

    /// The plain files whose names end so.
    fn files(&self, suffix: &str) -> Vec<Found> {
        let Ok(folder) = fs::read_dir(&self.folder) else { return Vec::new() };
        let files = folder.flatten().filter_map(|file| {
            let name = file.file_name().into_string().ok().filter(|name| name.ends_with(suffix))?;
            let metadata = file.metadata().ok().filter(Metadata::is_file)?;
            Some(Found { name, bytes: metadata.len(), used: metadata.modified().ok()? })
        });
        files.collect()
    }

    /// True unless somebody else could have put files there.
    fn is_trusted(&self) -> bool {
        let distrust = self.distrust();
        if let Some(why) = &distrust {
            self.warn(why);
        }
        distrust.is_none()
    }

    /// Why files there do not count. A folder that does not exist is fine.
    fn distrust(&self) -> Option<String> {
        [&self.parent, &self.folder].into_iter().find_map(|folder| {
            let metadata = fs::metadata(folder).ok()?;
            // In a sticky folder, others can add files but not replace ours; a file's owner is checked as well.
            let others_may_write = metadata.mode() & 0o022 != 0 && metadata.mode() & 0o1000 == 0;
            let folder = folder.display();
            if !is_ours(&metadata) {
                Some(format!("{folder} belongs to another user"))
            } else if others_may_write {
                Some(format!("others may write to {folder}; chmod go-w would do"))
            } else {
                None
            }
        })
    }

    /// Why nothing can be written: what there is of the path is no folder, is not ours to write to, or is full.
    fn unwritable(&self) -> Option<String> {
        let existing = self.folder.ancestors().find(|path| path.symlink_metadata().is_ok())?;
        let path = existing.display();
        if !existing.is_dir() {
            return Some(format!("{path} is no folder"));
        }
        if let Err(errno) = rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK) {
            return Some(format!("{path} cannot be written to: {}", io::Error::from(errno)));
        }
        let disk = rustix::fs::statvfs(existing).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        (free < ROOM_FOR_AN_IMAGE).then(|| format!("{free} bytes are free on the disk of {path}"))
    }

    fn warn(&self, why: &str) {
        let folder = self.folder.display();
        if self.warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(target: "warpway::gpu::jit", "images are not kept in {folder}: {why}");
        } else {
            tracing::warn!(
                target: "warpway::gpu::jit",
                "images are not kept in {folder}: {why}; kernels are compiled anew in each process \
                 (set WARPWAY_CACHE_DIR to a folder of yours, or to off)"
            );
        }
    }
}

struct Found {
    name: String,
    bytes: u64,
    used: SystemTime,
}

/// The content of a plain file of ours, `None` if there is no such file.
fn read(path: &Path) -> Result<Option<(Vec<u8>, File)>, String> {
    // Neither through a link, nor waiting for the writer of a pipe.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        opened => File::from(opened.map_err(|error| io::Error::from(error).to_string())?),
    };
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no plain file".into());
    }
    if !is_ours(&metadata) || metadata.mode() & 0o022 != 0 {
        return Err("it belongs to another user, or others may write to it".into());
    }
    if metadata.len() > entry::BYTES_MAX {
        return Err("it is too large".into());
    }
    let mut bytes = Vec::new();
    (&file).take(entry::BYTES_MAX).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(Some((bytes, file)))
}

/// Ours, or the administrator's.
fn is_ours(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() || metadata.uid() == 0
}
