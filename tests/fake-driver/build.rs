//! Gives the library a number made from its sources, by which a test sees that the shared object it found is its own.
#![allow(clippy::expect_used, reason = "a build that cannot read its sources must stop")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=src");
    let mut sources = Vec::new();
    collect(Path::new("src"), &mut sources);
    sources.sort();
    let mut hasher = DefaultHasher::new();
    // Two checkouts that share a target folder overwrite each other's shared object.
    std::env::current_dir().expect("a folder").hash(&mut hasher);
    for source in sources {
        source.hash(&mut hasher);
        std::fs::read(source).expect("a readable source").hash(&mut hasher);
    }
    println!("cargo::rustc-env=FAKE_CUDA_BUILD={}", hasher.finish());
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { collect(&path, into) } else { into.push(path) }
    }
}
