//! Files that are broken, or made to be expensive.

use warpway_plan::{Plan, ReadError};

use crate::shared_plans;

/// A plan of one rank whose block has these operations.
fn with_operations(operations: &str) -> String {
    format!(
        r#"{{"name":"n","collective":"custom","protocol":"Simple","inplace":false,"gpus":[{{"id":0,
        "input_chunks":1000000000000,"output_chunks":18446744073709551615,"scratch_chunks":1000000000,
        "channels":[],"remote_buffers":[],"threadblocks":[{{"id":0,"channels":[],"ops":[{operations}]}}]}}]}}"#
    )
}

#[test]
fn truncations_are_syntax_errors() {
    for (name, text) in shared_plans::by_name() {
        let text = text.trim_end();
        for length in 0..text.len() {
            match Plan::from_json(&text.as_bytes()[..length]) {
                Err(ReadError::Syntax { line, .. }) => {
                    assert_eq!(line, text[..length].matches('\n').count() + 1, "{name} cut at {length}");
                }
                other => panic!("{name} cut at {length}: {other:?}"),
            }
        }
    }
}

/// A flipped bit may give another plan, but then one that is right in its form and survives writing.
#[test]
fn flipped_bits_are_refused_or_understood() {
    for (name, text) in shared_plans::by_name() {
        let mut bytes = text.into_bytes();
        let (mut refused, mut read) = (0, 0);
        for at in 0..bytes.len() {
            let bit = 1 << (at % 8);
            bytes[at] ^= bit;
            match Plan::from_json(&bytes) {
                Ok(plan) => {
                    read += 1;
                    assert!(plan.plan.check().iter().all(|finding| !finding.is_error()), "{name} at {at}");
                    let again = Plan::from_json(plan.plan.to_json(Default::default()).as_bytes()).unwrap();
                    assert_eq!(again.plan, plan.plan, "{name} at {at}");
                }
                Err(ReadError::NoPlan { errors, .. }) => {
                    refused += 1;
                    assert!(
                        !errors.is_empty()
                            && errors.iter().all(|f| f.is_error() && (101..=111).contains(&f.rule))
                    );
                }
                Err(_) => refused += 1,
            }
            bytes[at] ^= bit;
        }
        assert!(refused > bytes.len() / 4 && read > 10, "{name}: {refused} refused, {read} read");
    }
}

#[test]
fn numbers_of_a_file_allocate_nothing() {
    // Three chunk counts beyond any memory.
    let plan = Plan::from_json(with_operations(r#"{"name":"nop"}"#).as_bytes()).unwrap().plan;
    assert_eq!(plan.ranks[0].output_chunks, u64::MAX);
    let text = with_operations(
        r#"{"name":"barrier","barrier_id":4294967295,"num_threadblocks":4294967295},
        {"name":"pipeline","iter_context":{"unit_size":1,"num_chunks":18446744073709551615},"ops":[]},
        {"name":"copy","src_buff":[{"type":"i","index":18446744073709551615,"size":18446744073709551615}],
         "dst_buff":[{"type":"o","index":18446744073709551615,"size":18446744073709551615}],
         "tbg_info":{"tb_id":4294967295,"tbg_size":0}}"#,
    );
    let read = Plan::from_json(text.as_bytes()).unwrap();
    assert_eq!(read.plan.operations().count(), 3);
    assert_eq!(Plan::from_json(read.plan.to_json(Default::default()).as_bytes()).unwrap().plan, read.plan);
}

/// A million open brackets must not take a million stack frames.
#[test]
fn deep_nesting_is_bounded() {
    const DEEP: usize = 1_000_000;
    let lists = "[".repeat(DEEP);
    let closed = format!("{lists}{}", "]".repeat(DEEP));
    let objects = r#"{"ops":["#.repeat(DEEP);
    let pipelines =
        r#"{"name":"pipeline","iter_context":{"unit_size":1,"num_chunks":1},"ops":["#.repeat(DEEP / 10);
    let closed_pipelines = format!("{pipelines}{}", "]}".repeat(DEEP / 10));
    for text in [
        lists.clone(),
        closed.clone(),
        objects,
        with_operations(&closed),
        with_operations(&pipelines),
        with_operations(&closed_pipelines),
        with_operations(&format!(r#"{{"name":"nop","key":{closed}}}"#)),
    ] {
        match Plan::from_json(text.as_bytes()) {
            Ok(read) => assert_eq!(read.warnings.len(), 1),
            Err(ReadError::Syntax { .. } | ReadError::NoPlan { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let ReadError::NoPlan { errors, .. } =
        Plan::from_json(with_operations(&closed_pipelines).as_bytes()).unwrap_err()
    else {
        panic!()
    };
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].rule, errors[0].path.as_str()), (107, "$.gpus[0].threadblocks[0].ops[0].ops[0]"));
}

/// Findings of a file that is nothing else stay few, long texts are cut.
#[test]
fn reports_are_bounded() {
    let key = "k".repeat(1_000_000);
    let text =
        with_operations(&format!(r#"{{"name":"{key}","{key}":1,"loc":"{}"}}"#, "\\u0000".repeat(100_000)));
    let ReadError::NoPlan { errors, warnings, .. } = Plan::from_json(text.as_bytes()).unwrap_err() else {
        panic!()
    };
    for finding in errors.iter().chain(&warnings) {
        assert!(finding.to_string().len() < 2_000, "{}", finding.to_string().len());
    }
    let many = r#"{"name":1},"#.repeat(200_000) + r#"{"name":1}"#;
    let ReadError::NoPlan { errors, more_errors, .. } =
        Plan::from_json(with_operations(&many).as_bytes()).unwrap_err()
    else {
        panic!()
    };
    assert_eq!((errors.len(), more_errors), (100, 200_001 - 100));
}

#[test]
fn long_numbers_are_no_numbers() {
    let digits = "9".repeat(1_000_000);
    for number in [digits.clone(), format!("1e{digits}"), format!("0.{digits}"), format!("-{digits}")] {
        let text =
            with_operations(&format!(r#"{{"name":"barrier","barrier_id":{number},"num_threadblocks":1}}"#));
        match Plan::from_json(text.as_bytes()) {
            Err(ReadError::NoPlan { errors, .. }) => assert_eq!(errors[0].rule, 101),
            Err(ReadError::Syntax { message, .. }) => assert_eq!(message, "number out of range"),
            other => panic!("{other:?}"),
        }
    }
}
