//! Which algorithm is taken, by whose advice, and for which sizes; explanations, tables and what is wrong with them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use warpway_collectives::{
    Function, Library, Machine, NoChoice, Origin, Override, Reason, Registered, Registration, Request, Row,
    Selector, Sizes, Table, Task, Timing, Verdict, World, catalogue, find,
};
use warpway_plan::{DataType, ReduceOp};

fn task(n: u32) -> Task {
    Task::new(Function::AllReduce, World::one_host(n))
}

fn origin() -> Origin {
    let machine = Machine { cpu: "Test CPU".into(), cores: 2, kernel: "6.1".into() };
    let (date, command) = ("2026-11-30T00:00:00Z".into(), "warpway tune".into());
    Origin { machine, library: Library { version: "0.1.0".into(), catalogue: "00".into() }, date, command }
}

fn timing(algorithm: &str, blocks: u32, microseconds: f64) -> Timing {
    Timing { algorithm: algorithm.into(), blocks, microseconds }
}

/// Against every rule: packets for large messages.
fn table() -> Table {
    let row = |bytes, timings| Row { bytes, timings };
    let mut table = Table::new(origin());
    table.put(Sizes {
        function: Function::AllReduce,
        ranks_per_host: vec![4],
        data_type: DataType::Float32,
        in_place: false,
        rows: vec![
            row(1024, vec![timing("two_shot", 1, 1.5), timing("one_shot_packets", 1, 1.75)]),
            row(65536, vec![timing("two_shot_packets", 2, 20.0), timing("two_shot", 1, 30.0)]),
        ],
    });
    table
}

fn taken(selector: &Selector, request: &Request<'_>) -> (String, u32, (u64, u64)) {
    let choice = selector.choose(request).unwrap();
    (choice.taken.name().to_owned(), choice.blocks, (choice.min_bytes, choice.max_bytes))
}

#[test]
fn every_function_has_a_choice_for_every_size_on_one_host_and_on_several() {
    let selector = Selector::new();
    for (function, _) in Function::NAMED {
        for world in
            [World::one_host(1), World::one_host(3), World::of_hosts(&[2, 2]), World::of_hosts(&[1, 2, 1])]
        {
            for bytes in [0, 8, 4096, 1 << 20, 1 << 40, u64::MAX] {
                let task = Task::new(*function, world.clone());
                let request = Request::new(task.clone(), bytes);
                let choice = selector.choose(&request).unwrap_or_else(|why| panic!("{world:?}: {why}"));
                assert!((choice.min_bytes..=choice.max_bytes).contains(&bytes));
                assert!(find(*function, choice.taken.name()).is_some_and(|a| (a.fits)(&task).is_ok()));
                let unknown = Request { bytes: None, ..request };
                selector.choose(&unknown).unwrap_or_else(|why| panic!("{world:?}: {why}"));
            }
        }
    }
}

/// A choice says for which sizes it holds, and it does at both ends and not beyond them.
#[test]
fn ranges_of_choices_are_exact() {
    let selector = Selector::new().with_table("t.json", table());
    let at = |bytes| taken(&selector, &Request::new(task(4), bytes));
    for bytes in [0, 255, 256, 1024, 8191, 8192, 65536, 262_144, 262_145, 1 << 20, u64::MAX] {
        let (name, blocks, (min, max)) = at(bytes);
        assert!(min <= bytes && bytes <= max);
        for same in [min, max] {
            assert_eq!(at(same), (name.clone(), blocks, (min, max)));
        }
    }
    // Half-way between the measured sizes, as ratios go, and by a factor of four beyond them.
    assert_eq!(at(1024), ("two_shot".into(), 1, (256, 1024)));
    assert_eq!(at(8193).0, "two_shot_packets");
    assert_eq!(at(255).0, "one_shot_packets");
    assert_eq!(at(262_145).0, "two_shot");
}

#[test]
fn the_stronger_advice_wins() {
    let bytes = 1024;
    let mut selector = Selector::new();
    assert_eq!(taken(&selector, &Request::new(task(4), bytes)).0, "one_shot_packets");
    selector = selector.with_table("t.json", table());
    assert_eq!(taken(&selector, &Request::new(task(4), bytes)).0, "two_shot");
    // Of another world the table says nothing.
    assert_eq!(taken(&selector, &Request::new(task(3), bytes)).0, "one_shot_packets");
    let plan = find(Function::AllReduce, "two_shot").unwrap().prove(&task(4)).unwrap();
    let registration = Registration { max_bytes: 2000, name: Some("mine".into()), ..Registration::default() };
    selector.register(Arc::new(Registered::new(plan, registration).unwrap()));
    assert_eq!(taken(&selector, &Request::new(task(4), bytes)), ("mine".into(), 1, (256, 1024)));
    assert_eq!(taken(&selector, &Request::new(task(4), 2001)).0, "two_shot");
    for other in [task(4).in_place(), task(4).with_op(ReduceOp::Max), task(3)] {
        assert_ne!(taken(&selector, &Request::new(other, bytes)).0, "mine");
    }
    let list = Override::parse_list("all_reduce:1000-=two_shot_packets").unwrap();
    let selector = selector.with_overrides("the environment", list);
    assert_eq!(taken(&selector, &Request::new(task(4), bytes)).0, "two_shot_packets");
    assert_eq!(taken(&selector, &Request::new(task(4), 999)).0, "mine");
    let named = Request::new(task(4), bytes).with_algorithm("mine");
    assert_eq!(taken(&selector, &named), ("mine".into(), 1, (0, 2000)));
    let error = selector.choose(&Request::new(task(4), 2001).with_algorithm("mine")).unwrap_err();
    assert_eq!(error.to_string(), "all_reduce by mine: it is for messages of 0 to 2000 bytes");
    let error = selector.choose(&Request::new(task(3), 8).with_algorithm("mine")).unwrap_err();
    assert_eq!(error.to_string(), "all_reduce by mine: it is made for 4 ranks");
}

#[test]
fn wishes_for_blocks_and_processors_count() {
    let selector = Selector::new();
    let request = Request { room: 3, ..Request::new(task(4), 1 << 20) };
    assert_eq!(selector.choose(&request).unwrap().blocks, 3);
    let small = Request { bytes: Some((1 << 20) - 1), ..request.clone() };
    assert_eq!(selector.choose(&small).unwrap().blocks, 1);
    assert_eq!(selector.choose(&Request { blocks: Some(7), ..request }).unwrap().blocks, 7);
}

#[test]
fn names_that_nothing_has_are_told_with_those_that_there_are() {
    let list = Override::parse_list("all_reduce=magic").unwrap();
    let selector = Selector::new().with_overrides("WARPWAY_ALGORITHM", list);
    let error = selector.choose(&Request::new(task(2), 8)).unwrap_err();
    assert!(matches!(&error, NoChoice::Unknown { name, .. } if name == "magic"));
    let text = error.to_string();
    assert!(text.starts_with(
        "WARPWAY_ALGORITHM (all_reduce=magic): there is no algorithm \"magic\" for all_reduce; there is "
    ));
    for algorithm in catalogue().filter(|algorithm| algorithm.function == Function::AllReduce) {
        assert!(text.contains(algorithm.name), "{text}");
    }
    // Other functions go on.
    assert!(selector.choose(&Request::new(Task::new(Function::Gather, World::one_host(2)), 8)).is_ok());
}

#[test]
fn an_override_that_does_not_fit_makes_way() {
    let list = Override::parse_list("broadcast=packets").unwrap();
    let selector = Selector::new().with_overrides("env", list);
    let between = Task::new(Function::Broadcast, World::of_hosts(&[2, 2]));
    let request = Request::new(between, 8);
    let passed_over = selector.choose(&request).unwrap().passed_over;
    assert!(passed_over[0].starts_with("env (broadcast=packets) is passed over: "), "{passed_over:?}");
    let explanation = selector.explain(&request).unwrap();
    assert_ne!(explanation.taken(), "packets");
    let other = explanation.candidates.iter().find(|candidate| candidate.name == "packets").unwrap();
    assert!(matches!(other.verdict, Verdict::Unfit(_)), "{explanation}");
}

#[test]
fn plans_that_no_call_could_take_are_refused() {
    let plan = || find(Function::AllReduce, "two_shot").unwrap().prove(&task(2)).unwrap();
    let refused = |registration| Registered::new(plan(), registration).unwrap_err().why;
    let taken = Registration { name: Some("two_shot".into()), ..Registration::default() };
    assert!(refused(taken).contains("the catalogue has an algorithm \"two_shot\""));
    let empty = Registration { min_bytes: 2, max_bytes: 1, ..Registration::default() };
    assert!(refused(empty).contains("ends before it begins"));
    let barrier = find(Function::Barrier, "signals").unwrap();
    let plan = barrier.prove(&Task::new(Function::Barrier, World::one_host(2))).unwrap();
    let why = Registered::new(plan, Registration::default()).unwrap_err().why;
    assert!(why.contains("no function of the catalogue"), "{why}");
}

/// Every candidate is there once, with a verdict that is true.
#[test]
fn explanations_name_every_algorithm() {
    let selector = Selector::new().with_table("t.json", table());
    for bytes in [8, 1024, 65536, 1 << 30] {
        let request = Request::new(task(4), bytes);
        let explanation = selector.explain(&request).unwrap();
        let mut names: Vec<&str> = explanation.candidates.iter().map(|c| c.name.as_str()).collect();
        names.sort_unstable();
        let mut all: Vec<&str> =
            catalogue().filter(|a| a.function == Function::AllReduce).map(|a| a.name).collect();
        all.sort_unstable();
        assert_eq!(names, all);
        for candidate in &explanation.candidates {
            let fits = (find(Function::AllReduce, &candidate.name).unwrap().fits)(&request.task);
            assert_eq!(matches!(candidate.verdict, Verdict::Unfit(_)), fits.is_err());
        }
        assert!(matches!(explanation.candidates[0].verdict, Verdict::Taken(_)));
    }
    let explanation = selector.explain(&Request::new(task(4), 1024)).unwrap();
    let text = explanation.to_string();
    let expected = "\
all_reduce of 1024 bytes, sum of float32, out of place, 4 ranks on 1 host: two_shot with 1 block
  the same for 256 to 1024 bytes
";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("taken: measured 1.50 µs at 1024 bytes, the fastest there"), "{text}");
    let weaker = "possible, but something stronger comes first: measured 1.75 µs at 1024 bytes";
    assert!(text.contains(weaker), "{text}");
    let other = "for 8193 to 262144 bytes: measured 20.00 µs at 65536 bytes, the fastest there";
    let has_rule = text.contains("possible, but something stronger comes first: built-in rule");
    assert!(text.contains(other) || has_rule, "{text}");
}

#[test]
fn tables_survive_their_files() {
    let mut table = table();
    table.overrides = vec![Override {
        function: Function::Gather,
        min_bytes: 5,
        max_bytes: u64::MAX,
        algorithm: "push".into(),
        blocks: Some(2),
    }];
    let text = table.to_json();
    assert_eq!(Table::from_json(&text).unwrap(), table, "{text}");
    // Measured anew: in the same place.
    let mut again = table.measured[0].clone();
    again.rows.pop();
    table.put(again.clone());
    assert_eq!(table.measured, [again]);
}

/// Or, of numbers, the line of the size that they belong to.
#[test]
fn what_is_wrong_with_a_file_is_told_with_its_line() {
    let good = table().to_json();
    let line_of = |text: &str, part: &str| text.lines().position(|line| line.contains(part)).unwrap() + 1;
    let wrong = |from: &str, to: &str, line: usize, why: &str| {
        assert!(good.contains(from), "{from} in {good}");
        let error = Table::from_json(&good.replacen(from, to, 1)).unwrap_err();
        assert!(error.why.contains(why), "{error}");
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().starts_with(&format!("line {line}: ")));
    };
    wrong("\"warpway_tuning\": 1", "\"warpway_tuning\": 2", 2, "version 2 of the form");
    let at = line_of(&good, "\"function\"");
    wrong("\"all_reduce\"", "\"allreduce\"", at, "there is no function \"allreduce\"");
    wrong("\"float32\"", "\"f99\"", line_of(&good, "float32"), "no data type");
    wrong("\"kernel\"", "\"colonel\"", line_of(&good, "\"kernel\""), "unknown field `colonel`");
    wrong(
        "\"two_shot\"",
        "\"three_shot\"",
        line_of(&good, "\"two_shot\""),
        "all_reduce at 1024 bytes: there is no algorithm \"three_shot\"",
    );
    wrong(
        "\"bytes\": 65536",
        "\"bytes\": 512",
        line_of(&good, "65536"),
        "sizes ascend, and 512 bytes come behind 1024",
    );
    wrong("\"blocks\": 2", "\"blocks\": 0", line_of(&good, "65536"), "0 blocks");
    wrong("\"blocks\": 2", "\"blocks\": 1025", line_of(&good, "65536"), "1025 blocks");
    wrong("1.5", "\"fast\"", line_of(&good, "1.5"), "invalid type");
    // Negative numbers, and numbers of another unit.
    wrong(
        "\"microseconds\": 1.5",
        "\"microseconds\": -1.5",
        line_of(&good, "\"bytes\": 1024"),
        "never measured",
    );
    wrong("\"bytes\": 65536", "\"bytes\": -1", line_of(&good, "65536"), "invalid value: integer `-1`");
    wrong("\"bytes\": 65536", "\"bytes\": \"64K\"", line_of(&good, "65536"), "invalid type: string \"64K\"");
    wrong(
        "\"microseconds\": 1.5",
        "\"nanoseconds\": 1.5",
        line_of(&good, "1.5"),
        "unknown field `nanoseconds`",
    );
    // What is there twice, and what is not there: up to the end of the object.
    let twice = "\"in_place\": false,\n      \"in_place\": true";
    wrong("\"in_place\": false", twice, line_of(&good, "\"in_place\"") + 1, "duplicate field `in_place`");
    wrong("\"warpway_tuning\": 1,", "", good.lines().count(), "missing field `warpway_tuning`");
    let measured_twice = {
        let mut table = table();
        table.measured.push(table.measured[0].clone());
        table.to_json()
    };
    let error = Table::from_json(&measured_twice).unwrap_err();
    let second = 1 + measured_twice
        .rmatch_indices("\"function\"")
        .next()
        .map_or(0, |(at, _)| measured_twice[..at].matches('\n').count());
    assert_eq!(
        (error.line, error.why.as_str()),
        (second, "all_reduce: the same ranks, type and place are measured twice")
    );
    // Overrides.
    let overridden = |entry: &str| {
        let text = good.replacen("\"overrides\": []", &format!("\"overrides\": [\n    {entry}\n  ]"), 1);
        let error = Table::from_json(&text).unwrap_err();
        assert_eq!(error.line, line_of(&text, entry), "{error}");
        error.why
    };
    let why = overridden(r#"{"function": "gather", "min_bytes": 9, "max_bytes": 8, "algorithm": "push"}"#);
    assert_eq!(why, "gather: an override from 9 to 8 bytes holds for none");
    let why = overridden(r#"{"function": "gather", "algorithm": "push", "blocks": 0}"#);
    assert_eq!(why, "gather: an override to 0 blocks: a rank has 1 to 1024");
    let why = overridden(r#"{"function": "gather", "algorithm": "push", "blocks": 1025}"#);
    assert_eq!(why, "gather: an override to 1025 blocks: a rank has 1 to 1024");
    assert!(
        overridden(r#"{"function": "gather", "algorithm": "push", "min_kilobytes": 1}"#)
            .contains("unknown field")
    );
    let error = Table::from_json("{\n  \"warpway_tuning\": 1,\n  oops").unwrap_err();
    assert_eq!(error.line, 3);
    assert!(Table::from_json("").is_err());
}

#[test]
fn the_nearest_measurements_are_taken() {
    let mut table = table();
    let row = |name| Row { bytes: 1024, timings: vec![timing(name, 1, 1.0)] };
    let other = |data_type, in_place, name| Sizes {
        data_type,
        in_place,
        rows: vec![row(name)],
        ..table.measured[0].clone()
    };
    let (bf16, i32_in_place) = (
        other(DataType::Bfloat16, false, "two_shot_packets"),
        other(DataType::Int32, true, "one_shot_packets"),
    );
    table.put(bf16);
    table.put(i32_in_place);
    let closest = |task: &Task, data_type| {
        let sizes = table.closest(task, data_type).unwrap();
        (sizes.data_type, sizes.in_place)
    };
    assert_eq!(closest(&task(4), DataType::Bfloat16), (DataType::Bfloat16, false));
    assert_eq!(closest(&task(4), DataType::Float16), (DataType::Bfloat16, false));
    assert_eq!(closest(&task(4), DataType::Uint32), (DataType::Float32, false));
    assert_eq!(closest(&task(4).in_place(), DataType::Bfloat16), (DataType::Int32, true));
    assert_eq!(table.closest(&task(5), DataType::Float32), None);
    let reason = Selector::new().with_table("t", table).choose(&Request::new(task(4), 1024)).unwrap().reason;
    assert_eq!(reason, Reason::Measured { bytes: 1024, microseconds: 1.5, is_fastest: true });
}
