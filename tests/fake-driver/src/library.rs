//! Where the shared object is, and whether it is the one that belongs to this build.

use std::path::{Path, PathBuf};

/// A number made from the sources (build.rs). The shared object carries it too.
pub(crate) const BUILD: &str = env!("FAKE_CUDA_BUILD");

/// The shared object that was built together with the calling test.
///
/// # Panics
/// If it is not beside the running program, or comes from other sources.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    // Tests run from `deps`, binaries and examples from beside it, documentation tests from the compiler's folder.
    let folders =
        program.ancestors().skip(1).take(3).flat_map(|folder| [folder.to_owned(), folder.join("deps")]);
    let built = option_env!("OUT_DIR")
        .map(|out| PathBuf::from(out).ancestors().nth(3).expect("a profile").join("deps"));
    let tried: Vec<PathBuf> = folders.chain(built).map(|folder| folder.join("libfake_cuda.so")).collect();
    let Some(path) = tried.iter().find(|path| is_ours(path)) else {
        panic!(
            "no libfake_cuda.so of build {BUILD}; cargo builds it for crates that depend on warpway-fake-driver; tried {tried:?}"
        );
    };
    path.clone()
}

/// An older driver: a copy of the shared object without one of its functions, while `work` runs. It is a driver of its own,
/// apart from [`Fake`](crate::Fake).
///
/// # Panics
/// If there is no such function.
pub fn with_library_without<R>(function: &str, work: impl FnOnce(&Path) -> R) -> R {
    let mut bytes = std::fs::read(library()).expect("the shared object");
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&name)).collect();
    assert!(!places.is_empty(), "no function {function}");
    for at in places {
        // Under another name nobody finds it.
        bytes[at + function.len()] ^= 1;
    }
    let path = std::env::temp_dir().join(format!("no-{function}-{}.so", std::process::id()));
    std::fs::write(&path, bytes).expect("a file for the older driver");
    let result = work(&path);
    std::fs::remove_file(&path).expect("the older driver's file");
    result
}

/// Whether the file carries our number. It is searched for as bytes: loading a stranger would run its initialisers.
fn is_ours(path: &PathBuf) -> bool {
    let marker = format!("fake-cuda-build={BUILD};");
    std::fs::read(path)
        .is_ok_and(|bytes| bytes.windows(marker.len()).any(|window| window == marker.as_bytes()))
}

/// What [`is_ours`] looks for; `fake_cuda_build` returns it, so that it is in the file.
pub(crate) const MARKER: &std::ffi::CStr = {
    match std::ffi::CStr::from_bytes_with_nul(
        concat!("fake-cuda-build=", env!("FAKE_CUDA_BUILD"), ";\0").as_bytes(),
    ) {
        Ok(marker) => marker,
        Err(_) => c"",
    }
};

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{MARKER, is_ours, library};

    #[test]
    fn only_the_shared_object_of_this_build_is_ours() {
        let (ours, stale) =
            (library(), std::env::temp_dir().join(format!("stale-{}.so", std::process::id())));
        assert!(is_ours(&ours));
        assert!(!is_ours(&PathBuf::from("/nowhere/libfake_cuda.so")));
        // As if one source had been different.
        let mut bytes = std::fs::read(&ours).unwrap();
        let marker = MARKER.to_bytes();
        let places: Vec<usize> =
            (0..bytes.len() - marker.len()).filter(|at| bytes[*at..].starts_with(marker)).collect();
        for at in places {
            bytes[at + marker.len() - 2] ^= 1;
        }
        std::fs::write(&stale, bytes).unwrap();
        let answer = is_ours(&stale);
        std::fs::remove_file(&stale).unwrap();
        assert!(!answer);
    }
}
