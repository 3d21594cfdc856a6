//! Where NVRTC is. Pure but for [`Files`], which tests replace.

use std::path::{Path, PathBuf};

use warpway_core::config::Environment;

/// Folders of a toolkit that hold libraries.
const TOOLKIT_FOLDERS: [&str; 4] = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
/// What the loader is asked for, newest first.
const LOADER_NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// What the search asks the system.
pub(super) trait Files {
    /// Names in a folder, in any order; none if it cannot be read.
    fn names(&self, folder: &Path) -> Vec<String>;

    /// Whether there is something of that name.
    fn exists(&self, path: &Path) -> bool;

    /// Files that this process has mapped.
    fn mapped(&self) -> Vec<PathBuf>;
}

/// The files of this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThisSystem;

/// A place that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// For messages.
    pub(super) what: String,
    /// What is there, best first: paths, or names for the loader.
    pub(super) libraries: Vec<PathBuf>,
}

/// The places, best first. A library that the user names is the only place.
pub(super) fn places(explicit: Option<&Path>, environment: &Environment, files: &dyn Files) -> Vec<Place> {
    if let Some(library) = explicit {
        return vec![Place { what: "WARPWAY_NVRTC".into(), libraries: vec![library.into()] }];
    }
    let mapped = mapped(files);
    let mut places = vec![Place { what: "mapped libraries".into(), libraries: mapped }];
    for (what, prefix) in python_prefixes(environment, files) {
        let mut libraries: Vec<PathBuf> = site_packages(&prefix, files)
            .iter()
            .flat_map(|site| wheel_folders(site, files))
            .flat_map(|folder| in_folder(&folder, files))
            .collect();
        if what == "CONDA_PREFIX" {
            libraries.extend(in_folder(&prefix.join("lib"), files));
        }
        places.push(Place { what: format!("packages of {what} ({})", prefix.display()), libraries });
    }
    let toolkits =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(|name| Some((name, environment.get(name)?)));
    for (what, folder) in toolkits.chain([("the usual toolkit", "/usr/local/cuda")]) {
        let libraries = TOOLKIT_FOLDERS.iter().flat_map(|lib| in_folder(&Path::new(folder).join(lib), files));
        places.push(Place { what: format!("{what} ({folder})"), libraries: libraries.collect() });
    }
    places.push(Place { what: "the loader".into(), libraries: LOADER_NAMES.map(PathBuf::from).into() });
    places
}

/// The NVRTC that this process has mapped: that of PyTorch, for one. Some bundle it under a name of their own.
pub(super) fn mapped(files: &dyn Files) -> Vec<PathBuf> {
    let is_nvrtc = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("libnvrtc")
            && !name.starts_with("libnvrtc-builtins")
            && name.contains(".so")
            && !name.contains(".alt.")
    };
    let mut found: Vec<PathBuf> = files.mapped().into_iter().filter(is_nvrtc).collect();
    found.sort();
    found.dedup();
    found
}

/// Where Pythons are installed, and what says so.
fn python_prefixes(environment: &Environment, files: &dyn Files) -> Vec<(&'static str, PathBuf)> {
    let mut prefixes: Vec<(&str, PathBuf)> = Vec::new();
    let mut add = |what, prefix: PathBuf| {
        if !prefixes.iter().any(|(_, known)| *known == prefix) {
            prefixes.push((what, prefix));
        }
    };
    for what in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = environment.get(what) {
            add(what, prefix.into());
        }
    }
    let on_path = std::env::split_paths(environment.get("PATH").unwrap_or_default())
        .filter(|folder| folder.is_absolute())
        .find(|folder| ["python3", "python"].iter().any(|python| files.exists(&folder.join(python))));
    if let Some(prefix) = on_path.as_deref().and_then(Path::parent) {
        add("the Python on PATH", prefix.into());
        // Where Debian's pip installs.
        if prefix == Path::new("/usr") {
            add("the Python on PATH", "/usr/local".into());
        }
    }
    if let Some(home) = environment.get("HOME") {
        add("the user's Python", Path::new(home).join(".local"));
    }
    prefixes
}

fn site_packages(prefix: &Path, files: &dyn Files) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        let lib = prefix.join(lib);
        let mut pythons: Vec<String> = files.names(&lib);
        pythons.retain(|name| name.starts_with("python3"));
        pythons.sort_by_key(|name| std::cmp::Reverse(numbers(name)));
        for python in pythons {
            found.extend(["site-packages", "dist-packages"].map(|packages| lib.join(&python).join(packages)));
        }
    }
    found
}

/// Folders of NVIDIA's packages: one per CUDA version since 13, one per library before.
fn wheel_folders(site: &Path, files: &dyn Files) -> Vec<PathBuf> {
    let nvidia = site.join("nvidia");
    let mut toolkits = files.names(&nvidia);
    toolkits.retain(|name| name.strip_prefix("cu").is_some_and(|rest| rest.parse::<u32>().is_ok()));
    toolkits.sort_by_key(|name| std::cmp::Reverse(numbers(name)));
    toolkits.push("cuda_nvrtc".into());
    toolkits.into_iter().map(|toolkit| nvidia.join(toolkit).join("lib")).collect()
}

/// The libraries in a folder by the name that stands for a major version, newest first.
fn in_folder(folder: &Path, files: &dyn Files) -> Vec<PathBuf> {
    let mut names = files.names(folder);
    names.retain(|name| name.strip_prefix("libnvrtc.so.").is_some_and(|rest| rest.parse::<u32>().is_ok()));
    names.sort_by_key(|name| std::cmp::Reverse(numbers(name)));
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// The numbers in a name, for sorting: `python3.11` is after `python3.9`.
fn numbers(name: &str) -> Vec<u32> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

impl Files for ThisSystem {
    fn names(&self, folder: &Path) -> Vec<String> {
        let Ok(folder) = std::fs::read_dir(folder) else { return Vec::new() };
        folder.flatten().filter_map(|file| file.file_name().into_string().ok()).collect()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn mapped(&self) -> Vec<PathBuf> {
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        paths_of_maps(&String::from_utf8_lossy(&maps))
    }
}

/// The paths in the text of `/proc/self/maps`. A file that was removed cannot be opened any more.
fn paths_of_maps(maps: &str) -> Vec<PathBuf> {
    let path = |line: &str| line.find('/').map(|at| line[at..].to_owned());
    maps.lines().filter_map(path).filter(|path| !path.ends_with(" (deleted)")).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[derive(Default)]
    struct Imagined {
        files: BTreeSet<PathBuf>,
        mapped: Vec<PathBuf>,
    }

    impl Imagined {
        fn with(files: &[&str]) -> Self {
            Self { files: files.iter().map(PathBuf::from).collect(), mapped: Vec::new() }
        }
    }

    impl Files for Imagined {
        fn names(&self, folder: &Path) -> Vec<String> {
            let first = |path: &PathBuf| {
                let rest = path.strip_prefix(folder).ok()?;
                Some(rest.iter().next()?.to_str()?.to_owned())
            };
            self.files.iter().filter_map(first).collect::<BTreeSet<_>>().into_iter().collect()
        }

        fn exists(&self, path: &Path) -> bool {
            self.files.iter().any(|file| file.starts_with(path))
        }

        fn mapped(&self) -> Vec<PathBuf> {
            self.mapped.clone()
        }
    }

    fn libraries(variables: &[(&str, &str)], files: &Imagined) -> Vec<String> {
        let environment: Environment = variables.iter().copied().collect();
        let places = places(None, &environment, files);
        assert_eq!(places.last().unwrap().libraries, LOADER_NAMES.map(PathBuf::from));
        let found = places[..places.len() - 1].iter().flat_map(|place| &place.libraries);
        found.map(|library| library.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn what_the_user_names_is_all_that_counts() {
        let files = Imagined { mapped: vec!["/torch/libnvrtc.so.12".into()], ..Imagined::default() };
        let places = places(Some("/mine/libnvrtc.so".as_ref()), &Environment::default(), &files);
        let expected = Place { what: "WARPWAY_NVRTC".into(), libraries: vec!["/mine/libnvrtc.so".into()] };
        assert_eq!(places, [expected]);
    }

    #[test]
    fn the_order_of_places() {
        let mut files = Imagined::with(&[
            "/opt/cuda/lib64/libnvrtc.so.12",
            "/usr/local/cuda/targets/x86_64-linux/lib/libnvrtc.so.13",
            "/home/ada/.local/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "/usr/bin/python3",
            "/usr/local/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "/usr/lib/python3/dist-packages/nvidia/cu12/lib/libnvrtc.so.12",
            "/conda/lib/libnvrtc.so.13",
            "/venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        ]);
        files.mapped = vec!["/usr/lib/libc.so.6".into(), "/torch/lib/libnvrtc-672ee683.so.12".into()];
        let variables = [
            ("VIRTUAL_ENV", "/venv"),
            ("CONDA_PREFIX", "/conda"),
            ("PATH", "bin:/nothing:/usr/bin"),
            ("HOME", "/home/ada"),
            ("CUDA_HOME", "/opt/cuda"),
        ];
        let expected = [
            "/torch/lib/libnvrtc-672ee683.so.12",
            "/venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "/conda/lib/libnvrtc.so.13",
            "/usr/lib/python3/dist-packages/nvidia/cu12/lib/libnvrtc.so.12",
            "/usr/local/lib/python3.11/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "/home/ada/.local/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
            "/opt/cuda/lib64/libnvrtc.so.12",
            "/usr/local/cuda/targets/x86_64-linux/lib/libnvrtc.so.13",
        ];
        assert_eq!(libraries(&variables, &files), expected);
        assert_eq!(libraries(&[], &files), [expected[0], expected[7]]);
    }

    #[test]
    fn newest_first_and_nothing_else_that_has_the_name() {
        let site = "/venv/lib/python3.11/site-packages/nvidia";
        let files = Imagined::with(&[
            &format!("{site}/cuda_nvrtc/lib/libnvrtc.so.12"),
            &format!("{site}/cu9/lib/libnvrtc.so.9"),
            &format!("{site}/cu13/lib/libnvrtc.so.9"),
            &format!("{site}/cu13/lib/libnvrtc.so.13"),
            &format!("{site}/cu13/lib/libnvrtc.so.13.0.88"),
            &format!("{site}/cu13/lib/libnvrtc.alt.so.13"),
            &format!("{site}/cu13/lib/libnvrtc-builtins.so.13.0"),
            &format!("{site}/cublas/lib/libnvrtc.so.14"),
        ]);
        let expected = [
            "cu13/lib/libnvrtc.so.13",
            "cu13/lib/libnvrtc.so.9",
            "cu9/lib/libnvrtc.so.9",
            "cuda_nvrtc/lib/libnvrtc.so.12",
        ];
        assert_eq!(
            libraries(&[("VIRTUAL_ENV", "/venv")], &files),
            expected.map(|file| format!("{site}/{file}"))
        );
        assert!(numbers("python3.11") > numbers("python3.9"));
    }

    #[test]
    fn a_virtual_environment_that_is_on_the_path_too_is_one_place() {
        let files = Imagined::with(&[
            "/venv/bin/python",
            "/venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        ]);
        let expected = ["/venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13"];
        assert_eq!(libraries(&[("VIRTUAL_ENV", "/venv"), ("PATH", "/venv/bin")], &files), expected);
        assert_eq!(libraries(&[("PATH", "/venv/bin")], &files), expected);
    }

    #[test]
    fn mapped_files() {
        let maps = "7f0000000000-7f0000001000 r--p 00000000 fd:01 42   /a b/libnvrtc.so.13\n\
            7f0000001000-7f0000002000 r-xp 00001000 fd:01 42   /a b/libnvrtc.so.13\n\
            7f0000002000-7f0000003000 r-xp 00001000 fd:01 43   /gone/libnvrtc.so.12 (deleted)\n\
            7f0000002000-7f0000003000 r-xp 00001000 fd:01 43   /a/libnvrtc-builtins.so.13.0\n\
            7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0    [stack]\n";
        let files = Imagined { mapped: paths_of_maps(maps), ..Imagined::default() };
        assert_eq!(mapped(&files), [PathBuf::from("/a b/libnvrtc.so.13")]);
        assert!(ThisSystem.mapped().contains(&std::env::current_exe().unwrap()));
    }
}
