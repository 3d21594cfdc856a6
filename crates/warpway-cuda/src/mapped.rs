//! Which files this process has mapped: where code lies, and whether a tool watches.

use std::path::PathBuf;

/// The file that is mapped at an address, as the system resolved it: a SONAME does not say which of several it was.
pub(crate) fn file_at(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    find(&String::from_utf8_lossy(&maps), address as u64)
}

/// Whether compute-sanitizer has put itself into this process. It reports each call that the driver answers with an error, and
/// ends with an error itself, also where the answer was what the caller wanted to know.
pub(crate) fn has_sanitizer() -> bool {
    std::fs::read("/proc/self/maps").is_ok_and(|maps| names_sanitizer(&String::from_utf8_lossy(&maps)))
}

/// By the folder that its libraries lie in, or the name of the one that every tool of it loads.
fn names_sanitizer(maps: &str) -> bool {
    maps.lines()
        .any(|line| line.contains("/compute-sanitizer/") || line.contains("/libsanitizer-collection.so"))
}

/// In the text of `/proc/self/maps`: `7f00-7f80 r-xp 00000000 08:01 17   /usr/lib/libcuda.so.1`.
fn find(maps: &str, address: u64) -> Option<PathBuf> {
    let covers = |line: &&str| {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        range.is_some_and(|(start, end)| {
            let bounds = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16));
            matches!(bounds, (Ok(start), Ok(end)) if (start..end).contains(&address))
        })
    };
    let line = maps.lines().find(covers)?;
    line.find('/').map(|at| PathBuf::from(&line[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lie_in_files() {
        let maps = "5500-5600 r--p 00000000 08:01 17                         /usr/bin/some program\n\
                    7f00-7f80 r-xp 00001000 08:01 18                         /usr/lib/libcuda.so.580.159.04\n\
                    7f80-7f90 rw-p 00000000 00:00 0 \n";
        let file = |address| find(maps, address).map(|path| path.display().to_string());
        assert_eq!(file(0x5500).as_deref(), Some("/usr/bin/some program"));
        assert_eq!(file(0x7f7f).as_deref(), Some("/usr/lib/libcuda.so.580.159.04"));
        assert_eq!(file(0x5600), None, "the end is not part of a range");
        assert_eq!(file(0x7f80), None, "memory of no file");
    }

    #[test]
    fn a_sanitizer_is_known_by_its_libraries() {
        let with = |file: &str| {
            names_sanitizer(&format!(
                "7f00-7f80 r-xp 00001000 08:01 18   {file}\n7f80-7f90 rw-p 00000000 00:00 0\n"
            ))
        };
        assert!(with("/usr/local/cuda-13.0/compute-sanitizer/libTreeLauncherTargetInjection.so"));
        assert!(with("/opt/tools/libsanitizer-collection.so"));
        assert!(!with("/usr/lib/libcuda.so.580.159.04") && !with("/home/me/compute-sanitizer-notes"));
        assert!(!has_sanitizer());
    }

    #[test]
    fn code_of_this_test_is_in_this_test() {
        let here = code_of_this_test_is_in_this_test as fn() as usize;
        assert_eq!(file_at(here), std::env::current_exe().ok());
    }
}
