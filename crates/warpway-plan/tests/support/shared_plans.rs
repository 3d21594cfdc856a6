//! The plans of MSCCL++ that lie beside the checkout, or where `WARPWAY_PLANS` says.

use std::path::PathBuf;

/// Their texts, by name. Nothing, with a message, where the folder is missing; a failure where tests must not skip.
pub(crate) fn by_name() -> Vec<(String, String)> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/plans");
    let folder = std::env::var_os("WARPWAY_PLANS").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", folder.display());
        eprintln!("skipped: {} is missing; set WARPWAY_PLANS", folder.display());
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut plans: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    plans.sort();
    assert_eq!(plans.len(), 5, "{}", folder.display());
    plans
}
