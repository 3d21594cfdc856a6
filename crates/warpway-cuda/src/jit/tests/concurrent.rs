//! Several processes and one folder; threads with compilers of their own stand for them.

use super::*;

#[test]
fn all_get_the_right_image_while_files_come_and_go() {
    let folder = Folder::new("concurrent");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let folder = &folder;
            scope.spawn(move || {
                for round in 0..20 {
                    // Room for a few of the twelve files: each writer removes what others are reading.
                    let store = Store::new(folder.0.clone(), 2500);
                    let (one, _) = compiler("fake 1", Some(store));
                    if thread == 7 {
                        one.clear_cache().unwrap();
                    }
                    let said = warnings(|| {
                        for number in 0..12 {
                            origin(&one, &program((number * (thread + 1) + round) % 13));
                        }
                    });
                    assert_eq!(said, [""; 0], "no file was seen half written");
                }
            });
        }
    });
    let (last, _) = compiler("fake 1", Some(Store::new(folder.0.clone(), 2500)));
    origin(&last, &program(20));
    let cache = last.cache().unwrap();
    assert!(cache.entries.iter().all(|entry| entry.image.is_ok()), "{cache:?}");
    assert!(cache.entries.iter().map(|entry| entry.bytes).sum::<u64>() <= 2500);
    assert!(folder.files().iter().all(|file| file.extension().is_some_and(|extension| extension == "image")));
}
