//! What is believed of the folder and its files.

use std::io::{self, Write as _};
use std::os::unix::fs::symlink;

use rustix::thread::CapabilitySet;
use sha2::{Digest as _, Sha256};

use super::*;

/// Compiles once, changes the file, and expects a warning, the right image, and a sound file again.
fn damaged(test: &str, damage: impl FnOnce(&Path)) {
    let folder = Folder::new(test);
    origin(&compiler("fake 1", Some(folder.store())).0, &program(1));
    let good = fs::read(folder.only_file()).unwrap();
    damage(&folder.only_file());
    let said = warnings(|| {
        let (second, _) = compiler("fake 1", Some(folder.store()));
        assert_eq!(origin(&second, &program(1)), Origin::Compiled, "{test}");
    });
    assert_eq!(said.len(), 1, "{test}: {said:?}");
    assert!(said[0].contains("compiled anew") && said[0].contains("jit/"), "{test}: {said:?}");
    // All but the time that it took, and what is computed from that.
    let length = |bytes: &[u8]| bytes.len().abs_diff(good.len());
    assert!(length(&fs::read(folder.only_file()).unwrap()) < 20);
    let said = warnings(|| {
        assert_eq!(origin(&compiler("fake 1", Some(folder.store())).0, &program(1)), Origin::Disk, "{test}");
    });
    assert_eq!(said, Vec::<String>::new());
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_changed_byte_in_each_region() {
    // The magic, the layout's number, the digest, both lengths, the description.
    for at in [0, 7, 8, 39, 40, 47, 48, 55, 56, 100] {
        damaged("byte", |path| rewrite(path, |bytes| bytes[at] ^= 0x10));
    }
    damaged("byte", |path| rewrite(path, |bytes| *bytes.last_mut().unwrap() ^= 1));
}

#[test]
fn files_of_another_length() {
    for length in [0, 1, 8, 40, 55, 56, 57, 200] {
        damaged("length", |path| rewrite(path, |bytes| bytes.truncate(length)));
    }
    damaged("length", |path| rewrite(path, |bytes| bytes.push(0)));
    damaged("length", |path| rewrite(path, |bytes| bytes.resize(1 << 16, 0)));
}

#[test]
fn a_sound_file_of_another_program_or_compiler() {
    let folder = Folder::new("another");
    let (one, _) = compiler("fake 1", Some(folder.store()));
    origin(&one, &program(2));
    let other_program = fs::read(folder.only_file()).unwrap();
    damaged("renamed", |path| fs::write(path, &other_program).unwrap());

    one.clear_cache().unwrap();
    origin(&compiler("fake 2", Some(folder.store())).0, &program(1));
    let other_compiler = fs::read(folder.only_file()).unwrap();
    damaged("renamed", |path| fs::write(path, &other_compiler).unwrap());
}

#[test]
fn a_description_that_is_none_although_the_digest_is_right() {
    damaged("description", |path| {
        rewrite(path, |bytes| {
            bytes[56] = b'[';
            let digest = Sha256::digest(&bytes[40..]);
            bytes[8..40].copy_from_slice(&digest);
        });
    });
}

#[test]
fn links_pipes_and_files_that_others_may_write() {
    damaged("link", |path| {
        let elsewhere = path.with_extension("elsewhere");
        fs::rename(path, &elsewhere).unwrap();
        symlink(fs::canonicalize(&elsewhere).unwrap(), path).unwrap();
        let far = path.parent().unwrap().parent().unwrap().join("elsewhere");
        fs::rename(&elsewhere, far).unwrap();
    });
    damaged("pipe", |path| {
        fs::remove_file(path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    });
    damaged("mode", |path| set_mode(path, 0o666).unwrap());
}

#[test]
fn a_folder_in_place_of_a_file_costs_the_cache_and_nothing_else() {
    let folder = Folder::new("folder");
    origin(&compiler("fake 1", Some(folder.store())).0, &program(1));
    let path = folder.only_file();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let said = warnings(|| {
        assert_eq!(origin(&compiler("fake 1", Some(folder.store())).0, &program(1)), Origin::Compiled);
    });
    assert!(said.len() == 2 && said[1].contains("images are not kept"), "{said:?}");
    assert_eq!(folder.only_file(), path, "nothing is left beside it");
}

/// Everything works, each program is compiled once per process, and there is one warning that says why.
fn uncached(folder: &Folder, store: impl Fn() -> Store, why: &str) {
    for _ in 0..2 {
        let said = warnings(|| {
            let (one, _) = compiler("fake 1", Some(store()));
            for number in 1..4 {
                assert_eq!(origin(&one, &program(number)), Origin::Compiled);
                assert_eq!(origin(&one, &program(number)), Origin::Memory);
            }
        });
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("images are not kept") && said[0].contains(why), "{said:?}");
    }
    assert_eq!(folder.files(), Vec::<PathBuf>::new());
}

#[test]
fn a_folder_that_cannot_be_made() {
    let folder = Folder::new("file");
    fs::write(folder.0.join("file"), "").unwrap();
    uncached(&folder, || Store::new(folder.0.join("file"), ROOM), "cannot make it");
    uncached(&folder, || Store::new("/proc/none".into(), ROOM), "cannot make it");
}

#[test]
fn folders_that_others_may_write() {
    let folder = Folder::new("public");
    set_mode(&folder.0, 0o777).unwrap();
    uncached(&folder, || folder.store(), "others may write to");
    set_mode(&folder.0, 0o700).unwrap();
    fs::create_dir_all(folder.jit()).unwrap();
    set_mode(&folder.jit(), 0o770).unwrap();
    uncached(&folder, || folder.store(), "others may write to");
    // Like /tmp: nobody can replace what is ours.
    set_mode(&folder.jit(), 0o700).unwrap();
    set_mode(&folder.0, 0o1777).unwrap();
    let said = warnings(|| {
        origin(&compiler("fake 1", Some(folder.store())).0, &program(1));
    });
    assert_eq!(said, [""; 0]);
    assert_eq!(folder.files().len(), 1);
}

#[test]
fn a_disk_that_is_full() {
    let folder = Folder::new("full");
    let full = || {
        let mut store = folder.store();
        store.write = |file, bytes| {
            file.write_all(&bytes[..bytes.len() / 2])?;
            Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()))
        };
        store
    };
    uncached(&folder, full, "No space left");
}

#[test]
fn an_image_larger_than_the_cache() {
    let folder = Folder::new("large");
    fs::create_dir_all(folder.jit()).unwrap();
    uncached(&folder, || Store::new(folder.0.clone(), 100), "larger than the cache");
}

#[test]
fn a_folder_that_may_only_be_read() {
    let folder = Folder::new("read-only");
    origin(&compiler("fake 1", Some(folder.store())).0, &program(9));
    set_mode(&folder.jit(), 0o500).unwrap();
    // In a thread that has given away the administrator's right to write anywhere.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_OVERRIDE);
            rustix::thread::set_capabilities(None, sets).unwrap();
            let said = warnings(|| {
                let (one, _) = compiler("fake 1", Some(folder.store()));
                assert_eq!(origin(&one, &program(9)), Origin::Disk, "reading still works");
                assert_eq!(origin(&one, &program(1)), Origin::Compiled);
                assert_eq!(origin(&one, &program(2)), Origin::Compiled);
            });
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("cannot write: Permission denied"), "{said:?}");
        });
    });
    assert_eq!(folder.files().len(), 1);
}

#[test]
fn listing_and_clearing() {
    let folder = Folder::new("clear");
    let (one, _) = compiler("fake 1", Some(folder.store()));
    assert_eq!(one.cache().unwrap().entries, []);
    for number in 0..3 {
        origin(&one, &program(number));
    }
    rewrite(&folder.files()[0], |bytes| bytes.truncate(10));
    fs::write(folder.jit().join("notes.txt"), "not ours").unwrap();
    let cache = one.cache().unwrap();
    assert_eq!((cache.folder, cache.bytes_max, cache.entries.len()), (folder.jit(), ROOM, 3));
    let bad: Vec<_> = cache.entries.iter().filter(|entry| entry.image.is_err()).collect();
    assert_eq!(bad.len(), 1);
    assert_eq!((bad[0].bytes, bad[0].image.clone()), (10, Err("it is too short".into())));
    let bytes: u64 = cache.entries.iter().map(|entry| entry.bytes).sum();
    assert_eq!(one.clear_cache().unwrap(), (3, bytes));
    assert_eq!(folder.only_file(), folder.jit().join("notes.txt"));
    assert_eq!(origin(&one, &program(0)), Origin::Memory, "what is loaded stays");
}
