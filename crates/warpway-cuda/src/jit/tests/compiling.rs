//! Where images come from, and what is said of failures.

use std::sync::atomic::Ordering;
use std::time::Duration;

use warpway_core::Error;
use warpway_core::gpu::GpuError;

use super::*;
use crate::jit::{CodeKind, Resources};

#[test]
fn memory_then_disk_then_the_compiler() {
    let folder = Folder::new("origins");
    let (first, compiled) = compiler("fake 1", Some(folder.store()));
    assert_eq!(origin(&first, &program(1)), Origin::Compiled);
    assert_eq!(origin(&first, &program(1)), Origin::Memory);
    assert_eq!(origin(&first.clone(), &program(1)), Origin::Memory);
    assert_eq!(origin(&first, &program(2)), Origin::Compiled);
    // As another process.
    let (second, compiled_there) = compiler("fake 1", Some(folder.store()));
    assert_eq!(origin(&second, &program(1)), Origin::Disk);
    assert_eq!(origin(&second, &program(1)), Origin::Memory);
    assert_eq!((compiled.load(Ordering::Relaxed), compiled_there.load(Ordering::Relaxed)), (2, 0));

    let image = second.compile(&program(1), SM_90).unwrap();
    assert_eq!(*image, *first.compile(&program(1), SM_90).unwrap(), "the disk keeps all of it");
    assert_eq!((image.kind(), image.architecture(), image.compiler()), (CodeKind::Cubin, "sm_90", "fake 1"));
    assert_eq!((image.symbol("k"), image.symbol("_Zk")), (Some("_Zk"), None));
    let needs = Resources { registers: 7, ..Resources::default() };
    assert_eq!(image.kernel("k").unwrap().resources, Some(needs));

    let journal = second.journal();
    assert_eq!((journal.compiled, journal.from_disk, journal.from_memory, journal.failed), (0, 1, 2, 0));
    let record = &journal.records[0];
    assert_eq!((record.program.as_str(), record.origin, record.code_bytes), ("k.cu", Origin::Disk, 8));
}

#[test]
fn without_a_folder_memory_is_all() {
    let (one, compiled) = compiler("fake 1", None);
    assert_eq!(origin(&one, &program(1)), Origin::Compiled);
    assert_eq!(origin(&one, &program(1)), Origin::Memory);
    assert_eq!(compiled.load(Ordering::Relaxed), 1);
    assert_eq!((one.cache(), one.clear_cache().unwrap()), (None, (0, 0)));
}

#[test]
fn each_version_of_the_compiler_has_its_images() {
    let folder = Folder::new("versions");
    for (identity, expected) in [
        ("fake 1", Origin::Compiled),
        ("fake 2", Origin::Compiled),
        ("fake 1", Origin::Disk),
        ("fake 2", Origin::Disk),
    ] {
        let (compiler, _) = compiler(identity, Some(folder.store()));
        assert_eq!(origin(&compiler, &program(1)), expected, "{identity}");
        assert_eq!(compiler.compile(&program(1), SM_90).unwrap().compiler(), identity);
    }
    // Without a compiler, the image that was used last.
    let absent = without_nvrtc(Some(folder.store()));
    assert_eq!(origin(&absent, &program(1)), Origin::Disk);
    assert_eq!(absent.compile(&program(1), SM_90).unwrap().compiler(), "fake 2");
    let error = absent.compile(&program(2), SM_90).unwrap_err();
    assert!(matches!(&error, Error::Unavailable(absent) if absent.why == "this is a test"), "{error}");
    assert_eq!(absent.journal().failed, 1);
    assert_eq!(absent.identity().unwrap_err().id(), "unavailable");
}

#[test]
fn a_wrong_program_is_an_error_with_its_lines_each_time() {
    let folder = Folder::new("wrong");
    let (one, compiled) = compiler("fake 1", Some(folder.store()));
    for _ in 0..2 {
        let error = one.compile(&Program::new("bad.cu", "this is wrong"), SM_90).unwrap_err();
        let expected = GpuError::Compile {
            name: "bad.cu".into(),
            architecture: "sm_90".into(),
            log: "bad.cu(1): error: wrong\n> 1 | this is wrong".into(),
        };
        assert!(matches!(&error, Error::Gpu(found) if *found == expected), "{error}");
    }
    assert_eq!((compiled.load(Ordering::Relaxed), one.journal().failed), (2, 2));
    assert_eq!(folder.files(), Vec::<PathBuf>::new());
}

#[test]
fn architectures_that_the_compiler_does_not_know() {
    let (one, _) = compiler("fake 1", None);
    let newer = Architecture { major: 10, minor: 3 };
    let mut image = None;
    let said = warnings(|| image = Some(one.compile(&program(1), newer).unwrap()));
    let image = image.unwrap();
    assert_eq!((image.kind(), image.architecture()), (CodeKind::Ptx, "compute_90"));
    assert_eq!(said.len(), 1);
    assert!(said[0].contains("too old for sm_103"), "{said:?}");

    let error = one.compile(&program(1), Architecture { major: 7, minor: 5 }).unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("sm_75") && error.to_string().contains("fake 1"), "{error}");
}

#[test]
fn threads_that_want_the_same_wait_for_one_compilation() {
    let (one, compiled) = compiler("fake 1", None);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| one.compile(&program(1), SM_90).unwrap());
        }
    });
    let journal = one.journal();
    assert_eq!((compiled.load(Ordering::Relaxed), journal.compiled, journal.from_memory), (1, 1, 7));
}

#[test]
fn warming_goes_on_after_a_failure() {
    let folder = Folder::new("warm");
    let (one, _) = compiler("fake 1", Some(folder.store()));
    let programs = [program(1), Program::new("bad.cu", "wrong"), program(2)];
    let mut heard = Vec::new();
    let all = one.warm(&programs, &[Architecture { major: 8, minor: 0 }, SM_90], |warmed| {
        heard.push((warmed.program.clone(), warmed.architecture.to_string(), warmed.result.is_ok()));
    });
    let expected = [
        ("k.cu", "sm_80", true),
        ("k.cu", "sm_90", true),
        ("bad.cu", "sm_80", false),
        ("bad.cu", "sm_90", false),
        ("k.cu", "sm_80", true),
        ("k.cu", "sm_90", true),
    ];
    assert_eq!(heard, expected.map(|(name, sm, good)| (name.to_owned(), sm.to_owned(), good)));
    assert_eq!((all.len(), folder.files().len()), (6, 4));
    let cache = one.cache().unwrap();
    assert_eq!(cache.entries.len(), 4);
    let described = cache.entries[0].image.clone().unwrap();
    assert_eq!((described.program.as_str(), described.compiler.as_str()), ("k.cu", "fake 1"));
    assert!(described.compile_time < Duration::from_secs(3600) && described.kernels.len() == 1);
}
