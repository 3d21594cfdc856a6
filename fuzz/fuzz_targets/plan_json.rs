//! Plans as JSON: whole files, lists of operations in a plan that is right otherwise, and edits of a plan. What can be read
//! is verified as well.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpway_plan::verify::{Options, verify};
use warpway_plan::{Plan, ReadError, Style};

/// A plan with each kind of table; the operations stand between its two parts.
const BEFORE: &str = r#"{"name":"f","collective":"allreduce","protocol":"LL","inplace":false,"extensions":["glre",
"order","reduce_op","sized_chunks"],"gpus":[{"id":0,"input_chunks":4,"output_chunks":4,"scratch_chunks":4,
"channels":[{"channel_type":"memory","connected_to":[0]},{"channel_type":"port","connected_to":[0]},
{"channel_type":"switch","buffer_type":"s","rank_groups":[{"size":1,"ranks":[0]}]}],
"remote_buffers":[{"rank":0,"type":"s","access_channel_types":["memory","port"]}],"semaphores":[{"init_value":1}],
"threadblocks":[{"id":0,"channels":[{"channel_type":"memory","channel_ids":[0]},{"channel_type":"port","channel_ids":
[0]},{"channel_type":"switch","channel_ids":[0]}],"remote_buffer_refs":[{"access_channel_type":"memory",
"remote_buffer_ids":[0]},{"access_channel_type":"port","remote_buffer_ids":[0]}],"ops":["#;
const AFTER: &str = "]}]}]}";

/// One of each shape of operation, for edits.
const OPERATIONS: &str = r#"{"name":"nop"},{"name":"barrier","barrier_id":0,"num_threadblocks":1},
{"name":"signal","channel_ids":[0],"channel_type":"memory"},{"name":"sem_acquire","semaphore_ids":[0]},
{"name":"pipeline","iter_context":{"unit_size":64,"num_chunks":1,"size_id":0},"ops":[{"name":"ppkt",
"src_buff":[{"type":"i","index":0,"size":1}],"dst_buff":[{"buffer_id":0,"index":0,"size":1}],"channel_type":"memory"}]},
{"name":"re","src_buff":[{"type":"i","index":0,"size":1},{"type":"s","index":0,"size":1}],
"dst_buff":[{"type":"i","index":0,"size":1}],"reduce_op":"avg","order":[1,0],"tbg_info":{"tb_id":0,"tbg_size":1}},
{"name":"glre","buffer_type":"s","buffer_offset":0,"size":1,"dst_chunk":{"rank":0,"type":"o","index":0,"size":1},
"channel_ids":[0]},{"name":"glres","src_buff":[{"switch_channel_id":0,"index":0,"size":1}],"dst_buff":
[{"switch_channel_id":0,"index":0,"size":1}],"channel_type":"switch","reduce_op":"sum","loc":"a.py:1"}"#;

fuzz_target!(|input: &[u8]| {
    check(input);
    check(&[BEFORE.as_bytes(), input, AFTER.as_bytes()].concat());

    // Two bytes say where, one how many bytes of the plan go; the rest takes their place.
    if let [high, low, length, insert @ ..] = input {
        let whole = [BEFORE, OPERATIONS, AFTER].concat().into_bytes();
        let begin = usize::from(u16::from_be_bytes([*high, *low])) % whole.len();
        let end = (begin + usize::from(*length)).min(whole.len());
        check(&[&whole[..begin], insert, &whole[end..]].concat());
    }
});

/// Files are refused with their reasons or understood; what is understood is right in its form and survives being
/// written and read again.
fn check(file: &[u8]) {
    match Plan::from_json(file) {
        Ok(read) => {
            assert!(read.plan.check().iter().all(|finding| !finding.is_error()));
            for style in [Style::Pretty, Style::Canonical] {
                let text = read.plan.to_json_with_locations(style);
                let again = Plan::from_json(text.as_bytes()).expect("what was written can be read");
                assert_eq!(again.plan, read.plan);
            }
            // Any plan may be given; few steps, so that many are.
            verify(&read.plan, &Options { max_steps: 1 << 10, ..Options::default() });
        }
        Err(ReadError::NoPlan { errors, .. }) => {
            assert!((1..=100).contains(&errors.len()));
            assert!(errors.iter().all(|finding| finding.is_error() && (101..=111).contains(&finding.rule)));
        }
        Err(_) => {}
    }
}
