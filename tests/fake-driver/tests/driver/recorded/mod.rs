//! The fake against a real driver: the calls whose answers `benchmarks/results/driver_codes_h200.json` holds are made
//! again, in their order, and each answer is compared.

mod memory;
mod replay;
mod start;
mod work;

use std::collections::BTreeMap;
use std::path::Path;

use fake_cuda::Fake;

use replay::Replay;

/// Answers that are not compared, and why.
const EXCEPTIONS: [(&str, &str); 1] =
    [("ptxbad", "not made: the fake's modules are texts of its own, which know no assembler")];

/// What both say, in the form in which it can be compared: addresses by what they have in common.
fn comparable(answers: &[String]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    // First address of the range that each pointer lies in, which all other addresses are told from.
    let mut starts = BTreeMap::new();
    for (name, answer) in answers.iter().filter_map(|line| line.split_once('=')) {
        if let Some(pointer) = name.strip_suffix(".11") {
            starts.insert(pointer, number(answer));
        }
    }
    for line in answers {
        // A value without a name belongs to the call before it, and is nothing if that call failed.
        let Some((name, answer)) = line.split_once('=').filter(|_| !line.starts_with("st=")) else {
            let failed = found.last().is_some_and(|(_, answer)| answer != "0");
            let name = format!("after {}", found.last().map_or("", |(name, _)| name));
            found.push((
                name,
                if failed && !line.starts_with("st=") { "nothing".into() } else { line.clone() },
            ));
            continue;
        };
        let attribute =
            name.split_once('.').and_then(|(pointer, attribute)| Some((pointer, attribute.parse().ok()?)));
        let answer = match (attribute, answer.split_once(':')) {
            (Some((pointer, attribute)), Some(("0", value))) => match attribute {
                // Context: one or none. Number of the allocation: any but 0.
                1 | 7 => format!("0:{}", if value == "0" { "none" } else { "some" }),
                // The pointer for devices, for the host, the start of its range, of its mapping.
                3 | 4 | 11 | 19 => {
                    let start = starts.get(pointer).copied().flatten();
                    format!("0:start{:+}", i128::from(number(answer).unwrap()) - i128::from(start.unwrap()))
                }
                _ => answer.to_owned(),
            },
            _ => answer.to_owned(),
        };
        found.push((name.to_owned(), answer));
    }
    found
}

/// The value of `0:302000040`.
fn number(answer: &str) -> Option<u64> {
    u64::from_str_radix(answer.strip_prefix("0:")?, 16).ok()
}

#[test]
fn the_fake_answers_as_a_real_driver_did() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results/driver_codes_h200.json");
    let recorded: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let recorded =
        recorded["answers"].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    let recorded: Vec<String> = recorded.collect();

    let fake = Fake::open();
    fake.set("devices=1,arch=90,memory=4294967296");
    let mut replay = Replay::new(fake.driver());
    start::all(&mut replay);
    memory::all(&mut replay);
    work::all(&mut replay);
    let mut replayed = replay.answers;
    replayed.push("done".into());

    let excepted = |name: &str| EXCEPTIONS.iter().any(|(exception, _)| *exception == name);
    let keep = |answers: &[String]| -> Vec<(String, String)> {
        comparable(answers).into_iter().filter(|(name, _)| !excepted(name)).collect()
    };
    let (real, fake) = (keep(&recorded), keep(&replayed));
    assert!(real.len() > 500, "{}", real.len());
    let mut differences = String::new();
    for at in 0..real.len().max(fake.len()) {
        match (real.get(at), fake.get(at)) {
            (Some((name, _)), Some((other, _))) if name != other => {
                panic!(
                    "the calls are others from the {at}th on: {name} was recorded, {other} was made\n{differences}"
                )
            }
            (Some(real), Some(fake)) if real == fake => {}
            (real, fake) => differences += &format!("{real:?} was recorded, the fake says {fake:?}\n"),
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn addresses_are_compared_by_where_they_lie() {
    let lines = |text: &str| -> Vec<(String, String)> {
        comparable(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    };
    let [real, same, moved, failed] = [
        "p.1=0:12957270 p.3=0:302000040 p.7=0:9 p.11=0:302000000 p.12=0:40 range=0 40+8",
        "p.1=0:1 p.3=0:140 p.7=0:1 p.11=0:100 p.12=0:40 range=0 40+8",
        "p.1=0:1 p.3=0:141 p.7=0:1 p.11=0:100 p.12=0:40 range=0 40+8",
        "p.1=0:0 p.3=0:140 p.7=0:1 p.11=0:100 p.12=0:40 range=500 40+8",
    ]
    .map(lines);
    assert_eq!(real, same);
    assert_eq!(real.iter().zip(&moved).filter(|(one, other)| one != other).count(), 1);
    assert_eq!(real.iter().zip(&failed).filter(|(one, other)| one != other).count(), 3);
}
