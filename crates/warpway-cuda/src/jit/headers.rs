//! The device headers, which are part of the library: they and the host's side must be of one version.

/// Names and texts, in alphabetical order.
macro_rules! device_headers {
    ($($file:literal)*) => {
        &[$((
            concat!("warpway/", $file),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/device/include/warpway/", $file)),
        )),*]
    };
}

/// All headers of `device/include`: the name by which a kernel includes it, and its text.
pub const DEVICE_HEADERS: &[(&str, &str)] = device_headers! {
    "atomics.cuh"
    "bulk.cuh"
    "control.cuh"
    "copy.cuh"
    "device_semaphore.cuh"
    "epoch.cuh"
    "fifo.cuh"
    "fold.cuh"
    "formats.cuh"
    "grid.cuh"
    "layout.cuh"
    "lines.cuh"
    "memory_channel.cuh"
    "mscclpp_compat.cuh"
    "packets.cuh"
    "plan.cuh"
    "platform.cuh"
    "platform_bulk.cuh"
    "platform_multimem.cuh"
    "port_channel.cuh"
    "semaphores.cuh"
    "switch_channel.cuh"
    "vectors.cuh"
    "version.cuh"
    "warpway.cuh"
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Files named `…_host.cuh` are for tests that compile headers as host code; kernels do not see them.
    #[test]
    fn no_header_is_forgotten() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("device/include/warpway");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| format!("warpway/{}", file.unwrap().file_name().into_string().unwrap()))
            .collect();
        files.retain(|file| !file.ends_with("_host.cuh"));
        files.sort();
        let embedded: Vec<&str> = DEVICE_HEADERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(embedded, files);
    }

    #[test]
    fn headers_know_the_version() {
        let (_, text) = DEVICE_HEADERS.iter().find(|(name, _)| *name == "warpway/version.cuh").unwrap();
        assert!(text.contains(&format!("#define WARPWAY_VERSION \"{}\"\n", env!("CARGO_PKG_VERSION"))));
    }
}
