//! GPUs as the doctor sees them, on a driver in host memory.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use warpway_cuda_sys::Driver;

use super::{finding, json as parsed};

/// A doctor on a machine of the fake's, without a compiler of kernels and without a cache.
struct Machine {
    command: Command,
}

impl Machine {
    fn new(settings: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpway"));
        command.args(["doctor", "--json"]).env_remove(super::FOREIGN);
        command.env("WARPWAY_CUDA_DRIVER", fake_cuda::library()).env("FAKE_CUDA", settings);
        command.env("WARPWAY_NVRTC", "/nowhere/libnvrtc.so").env("WARPWAY_CACHE_DIR", "off");
        Self { command }
    }

    fn with(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Exit code, report, and what was said besides.
    fn run(mut self) -> (i32, Value, String) {
        let output = self.command.output().unwrap();
        let said = String::from_utf8(output.stderr.clone()).unwrap();
        (output.status.code().unwrap_or_else(|| panic!("{output:?}")), parsed(&output), said)
    }
}

fn value<'a>(report: &'a Value, name: &str) -> &'a str {
    finding(report, name)["value"].as_str().unwrap()
}

fn status<'a>(report: &'a Value, name: &str) -> &'a str {
    finding(report, name)["status"].as_str().unwrap()
}

#[test]
fn devices_links_and_exports_are_shown() {
    let (code, report, said) = Machine::new("devices=2,sms=78,memory=3221225472").run();
    assert_eq!((code, said.as_str()), (0, ""));
    let gpu = &report["gpu"];
    assert_eq!(
        (&gpu["driver"]["cuda"], &gpu["driver"]["file"]),
        (&"13.0".into(), &json!(fake_cuda::library()))
    );
    assert_eq!(
        gpu["devices"][1],
        json!({
            "ordinal": 1,
            "name": "Fake H200",
            "uuid": "GPU-66616b65-2d63-7564-612d-677075000001",
            "pci": "0000:11:00.0",
            "compute_capability": "9.0",
            "multiprocessors": 78,
            "copy_engines": 3,
            "memory_bytes": 3_221_225_472_u64,
            "free_bytes": 3_221_225_472_u64,
            "shared_memory_per_block_bytes": 232_448,
            "multicast_hardware": false,
            "exports": {
                "descriptor": {"works": true},
                "ipc": {"works": true},
                "fabric": {"works": false, "why_not": "the device does not have it"},
            },
        })
    );
    let link = |from, to| json!({"from": from, "to": to, "access": true, "native_atomics": true, "performance_rank": 0});
    assert_eq!(gpu["links"], json!([link(0, 1), link(1, 0)]));
    assert_eq!(
        value(&report, "GPU 0"),
        "Fake H200, compute capability 9.0, 78 SMs, 3 copy engines, 3 GiB (3 GiB free), at 0000:10:00.0, \
         GPU-66616b65-2d63-7564-612d-677075000000"
    );
    assert_eq!(
        value(&report, "GPU 0 exports"),
        "file descriptor, CUDA IPC; no fabric handle (the device does not have it)"
    );
    assert_eq!(value(&report, "GPU 1 reaches"), "0 with native atomics (performance rank 0)");
    for name in ["driver", "GPU 0", "GPU 1", "GPU 0 exports", "GPU 1 reaches"] {
        assert_eq!(status(&report, name), "ok", "{name}");
    }
    assert_eq!(
        value(&report, "CudaIpc"),
        "available between ranks of this host: memory of 2 of 2 GPUs can be shared"
    );
}

#[test]
fn what_devices_lack_is_shown() {
    let (code, report, _) = Machine::new("devices=3,peers=0-1,descriptors=no,fabric=claimed").run();
    assert_eq!(code, 0);
    assert_eq!(value(&report, "GPU 0 reaches"), "1 with native atomics (performance rank 0); 2 not at all");
    assert_eq!(value(&report, "GPU 2 reaches"), "0 and 1 not at all");
    assert_eq!((status(&report, "GPU 0 reaches"), status(&report, "GPU 2 reaches")), ("warn", "warn"));
    let exports = &report["gpu"]["devices"][2]["exports"];
    assert_eq!(exports["descriptor"], json!({"works": false, "why_not": "the device does not have it"}));
    // Claimed, but not allowed: so it is on hosts without a fabric domain, which need none.
    assert_eq!(exports["fabric"]["works"], false);
    assert!(exports["fabric"]["why_not"].as_str().unwrap().contains("CUDA_ERROR_NOT_PERMITTED"), "{exports}");
    assert_eq!(status(&report, "GPU 2 exports"), "ok", "CUDA IPC is left");
    let (_, report, _) = Machine::new("devices=1,fabric=works").run();
    assert_eq!(value(&report, "GPU 0 exports"), "file descriptor, CUDA IPC, fabric handle");
}

/// Nothing of Warpway can call a function that makes multicast objects.
#[test]
fn multicast_is_shown_and_not_tried() {
    let symbols = Driver::REQUIRED.iter().chain(Driver::OPTIONAL);
    assert_eq!(symbols.filter(|symbol| symbol.contains("Multicast")).count(), 0);

    let (_, report, _) = Machine::new("devices=2").run();
    assert_eq!(status(&report, "switch channels"), "ok");
    assert!(value(&report, "switch channels").ends_with("; GPUs with multicast: none"));

    let machine = || Machine::new("devices=2,multicast=yes");
    let (code, report, said) = machine().run();
    assert_eq!((code, said.as_str(), status(&report, "switch channels")), (0, "", "ok"));
    assert_eq!(
        value(&report, "switch channels"),
        "not available: it is off (WARPWAY_ENABLE_MULTICAST=0), and no engine of this version has it; \
         GPUs with multicast: 0 and 1"
    );
    assert_eq!(report["gpu"]["devices"][0]["multicast_hardware"], true);

    let (code, report, said) = machine().with("WARPWAY_ENABLE_MULTICAST", "1").run();
    assert_eq!((code, said.as_str(), status(&report, "switch channels")), (0, "", "warn"));
    assert!(
        value(&report, "switch channels").contains("WARPWAY_ENABLE_MULTICAST=1 allows it, but no engine")
    );
    assert!(value(&report, "variables").contains("WARPWAY_ENABLE_MULTICAST has no effect"));

    let forbidden = machine().with("WARPWAY_ENABLE_MULTICAST", "1").with("WARPWAY_FORCE_DISABLE_NVLS", "1");
    let (_, report, _) = forbidden.run();
    assert_eq!(status(&report, "switch channels"), "ok");
    assert!(value(&report, "switch channels").contains("WARPWAY_FORCE_DISABLE_NVLS forbids it"));
}

#[test]
fn drivers_that_cannot_be_used_are_warnings_unless_they_are_wanted() {
    let cases = [
        ("version=11080", "it supports CUDA 11.8, 12.0 is needed", "install a newer driver"),
        ("devices=0", "CUDA_ERROR_NO_DEVICE", "nvidia-smi"),
    ];
    for (settings, why, hint) in cases {
        let (code, report, _) = Machine::new(settings).run();
        let driver = finding(&report, "driver");
        assert_eq!((code, &driver["status"]), (0, &"warn".into()), "{settings}");
        assert!(driver["value"].as_str().unwrap().contains(why), "{driver}");
        assert!(driver["hint"].as_str().unwrap().contains(hint), "{driver}");
        assert_eq!(report["gpu"]["driver"], Value::Null);
        assert_eq!(value(&report, "CudaIpc"), "not available: no GPU can be used");
    }
    let absent = || Machine::new("").with("WARPWAY_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    let (code, report, _) = absent().run();
    assert_eq!((code, status(&report, "driver")), (0, "warn"));
    assert!(value(&report, "driver").contains("/nowhere/libcuda.so.1"));
    let (code, report, _) = absent().with("WARPWAY_ENGINE", "cuda").run();
    assert_eq!((code, status(&report, "driver")), (1, "fail"));
}

/// Each function of the driver fails at its first call: either the doctor says so, or it does not need it.
#[test]
fn no_failed_call_goes_unmentioned() {
    let look = |failures: &str| {
        let (code, mut report, said) = Machine::new("devices=2").with("FAKE_CUDA_FAIL", failures).run();
        // What changes from run to run by itself.
        let own = report["findings"].as_array_mut().unwrap();
        own.retain(|finding| ["gpu", "jit", "transports"].map(Value::from).contains(&finding["area"]));
        (code, json!([report["findings"], report["gpu"]]), said)
    };
    let (_, healthy, _) = look("");
    let mut mentioned = Vec::new();
    for symbol in Driver::REQUIRED.iter().chain(Driver::OPTIONAL) {
        let function = symbol.trim_end_matches("_v2");
        let (code, report, said) = look(&format!("{function}:1=999"));
        assert_eq!(code, 0, "{function}: {report:#}");
        // Lines of the log: what could not be given back.
        if report.to_string().contains(&format!("{function} failed")) || said.contains(function) {
            mentioned.push(function);
        } else {
            // An attribute that an old driver does not know counts as "no", which shows.
            assert!(report == healthy || function == "cuDeviceGetAttribute", "{function}: {report:#}");
        }
    }
    let needed = [
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGetP2PAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease",
        "cuCtxEnablePeerAccess",
        "cuMemGetInfo",
        "cuMemCreate",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemFree",
        "cuIpcGetMemHandle",
    ];
    for function in needed {
        assert!(
            mentioned.contains(&function),
            "{function} is not tried, or its failure is not shown: {mentioned:?}"
        );
    }
}

#[test]
fn without_nvrtc_it_says_where_it_looked() {
    let (code, report, _) = Machine::new("devices=1").run();
    let nvrtc = finding(&report, "NVRTC");
    assert_eq!((code, &nvrtc["status"]), (0, &"warn".into()));
    assert!(nvrtc["value"].as_str().unwrap().contains("WARPWAY_NVRTC: /nowhere/libnvrtc.so"), "{nvrtc}");
    assert!(nvrtc["hint"].as_str().unwrap().contains("pip install nvidia-cuda-nvrtc"), "{nvrtc}");
    assert_eq!(report["gpu"]["nvrtc"], Value::Null);
}

/// The fake takes texts for modules, as an old driver takes nothing of a new compiler.
#[test]
fn kernels_that_the_driver_refuses_are_noticed() {
    let mut machine = Machine::new("devices=2");
    // The one of this run, if it names one; else what is found.
    match std::env::var_os("WARPWAY_NVRTC") {
        Some(library) => machine.command.env("WARPWAY_NVRTC", library),
        None => machine.command.env_remove("WARPWAY_NVRTC"),
    };
    let (code, report, _) = machine.run();
    assert_eq!(code, 0);
    if report["gpu"]["nvrtc"].is_null() {
        assert!(std::env::var_os("CI").is_none(), "CI has NVRTC: {report:#}");
        return;
    }
    let file = PathBuf::from(report["gpu"]["nvrtc"]["file"].as_str().unwrap());
    assert!(file.exists(), "{file:?}");
    let kernel = finding(&report, "kernel for sm_90");
    assert_eq!(kernel["status"], "warn");
    assert!(kernel["value"].as_str().unwrap().contains("cuModuleLoadDataEx failed"), "{kernel}");
    assert!(kernel["hint"].as_str().unwrap().contains("as new as NVRTC"), "{kernel}");
}

#[test]
fn the_cache_folder_is_looked_at_but_not_made() {
    use std::os::unix::fs::PermissionsExt as _;

    let root = std::env::temp_dir().join(format!("warpway-cli-doctor-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let look = |folder: &str| {
        let (code, report, _) = Machine::new("devices=1").with("WARPWAY_CACHE_DIR", root.join(folder)).run();
        assert_eq!(code, 0);
        (status(&report, "kernel cache").to_owned(), report["gpu"]["cache"].clone())
    };
    let (fine, cache) = look("fresh");
    assert_eq!((fine.as_str(), &cache["images"], cache.get("obstacle")), ("ok", &0.into(), None));
    assert_eq!(cache["folder"], json!(root.join("fresh/jit")));
    assert!(!root.join("fresh").exists(), "a look leaves nothing behind");

    std::fs::create_dir_all(root.join("damaged/jit")).unwrap();
    std::fs::write(root.join("damaged/jit/0-0.image"), "nonsense").unwrap();
    let (damaged, cache) = look("damaged");
    assert_eq!((damaged.as_str(), &cache["images"], &cache["damaged"]), ("warn", &0.into(), &1.into()));

    std::fs::write(root.join("file"), "").unwrap();
    let (file, cache) = look("file");
    assert_eq!(file, "warn");
    assert_eq!(cache["obstacle"], format!("{} is no folder", root.join("file").display()));

    std::fs::create_dir(root.join("open")).unwrap();
    std::fs::set_permissions(root.join("open"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let (open, cache) = look("open");
    assert_eq!(open, "warn");
    assert!(cache["obstacle"].as_str().unwrap().starts_with("others may write to"), "{cache}");

    let (code, report, _) = Machine::new("devices=1").run();
    assert_eq!((code, status(&report, "kernel cache"), &report["gpu"]["cache"]), (0, "ok", &Value::Null));
    std::fs::remove_dir_all(&root).unwrap();
}
