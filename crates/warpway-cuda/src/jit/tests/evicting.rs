//! What goes when the folder is full.

use std::fs::File;
use std::time::{Duration, SystemTime};

use super::*;
use crate::jit::CacheEntry;

fn limited(folder: &Folder, bytes_max: u64) -> Compiler {
    compiler("fake 1", Some(Store::new(folder.0.clone(), bytes_max))).0
}

/// A little more than 10,000 bytes as a file.
fn large(number: usize) -> Program {
    Program::new(format!("{number}.cu"), "x".repeat(10_000))
}

fn names(compiler: &Compiler) -> Vec<String> {
    let entries = compiler.cache().unwrap().entries;
    entries.into_iter().map(|entry: CacheEntry| entry.image.unwrap().program).collect()
}

/// As if each had been used an hour after the one before, long ago.
fn age(folder: &Folder, order: &[usize]) {
    let all = limited(folder, ROOM).cache().unwrap().entries;
    for (hours, number) in order.iter().enumerate() {
        let named = |entry: &&CacheEntry| entry.image.as_ref().unwrap().program == format!("{number}.cu");
        let file = File::open(folder.jit().join(&all.iter().find(named).unwrap().file)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(3600 * (hours as u64 + 1))).unwrap();
    }
}

#[test]
fn what_was_not_used_for_longest() {
    let folder = Folder::new("evict");
    let plenty = limited(&folder, ROOM);
    for number in 0..4 {
        origin(&plenty, &large(number));
    }
    age(&folder, &[2, 0, 3, 1]);
    assert_eq!(names(&plenty), ["1.cu", "3.cu", "0.cu", "2.cu"]);
    // Reading is using: 2 is the newest from now on.
    assert_eq!(origin(&limited(&folder, ROOM), &large(2)), Origin::Disk);
    assert_eq!(names(&plenty), ["2.cu", "1.cu", "3.cu", "0.cu"]);
    // Room for three: with a new one, the two oldest of five go.
    let three = limited(&folder, 35_000);
    assert_eq!(origin(&three, &large(4)), Origin::Compiled);
    assert_eq!(names(&plenty), ["4.cu", "2.cu", "1.cu"]);
    let total: u64 = plenty.cache().unwrap().entries.iter().map(|entry| entry.bytes).sum();
    assert!((30_000..=35_000).contains(&total), "{total}");
    assert_eq!(origin(&three, &large(4)), Origin::Memory);
    assert_eq!(origin(&limited(&folder, 35_000), &large(0)), Origin::Compiled, "evicted is not lost");
}

#[test]
fn the_newest_stays_even_if_its_clock_is_wrong() {
    let folder = Folder::new("clock");
    origin(&limited(&folder, ROOM), &large(0));
    let future = SystemTime::now() + Duration::from_secs(1 << 20);
    File::open(folder.only_file()).unwrap().set_modified(future).unwrap();
    let one = limited(&folder, 15_000);
    origin(&one, &large(1));
    assert_eq!(names(&one), ["1.cu"]);
}

#[test]
fn what_a_process_that_ended_has_left() {
    let folder = Folder::new("partial");
    let one = limited(&folder, ROOM);
    origin(&one, &large(0));
    let [old, new] = ["1-0.partial", "1-1.partial"].map(|name| folder.jit().join(name));
    fs::write(&old, "part").unwrap();
    fs::write(&new, "part").unwrap();
    let hours_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    File::open(&old).unwrap().set_modified(hours_ago).unwrap();
    origin(&one, &large(1));
    assert!(!old.exists() && new.exists(), "one that is being written may be of another process");
}
