//! Programs whose counts come at launch.

use warpway_plan::{
    BufferSizeIds, BuildProblem, CollectiveShape, Compat, Extension, Program, ProgramOptions, SizeIds,
    testing,
};

use crate::show;

fn size_ids(shape: CollectiveShape, rank: usize) -> SizeIds {
    let plan = Program::new(ProgramOptions::new("ids", shape)).unwrap().finish().unwrap();
    assert_eq!(plan.extensions, [Extension::SizedChunks].into());
    plan.ranks[rank].size_ids.clone().unwrap()
}

fn ids(input: &[u64], output: &[u64]) -> SizeIds {
    SizeIds { input: input.to_vec(), output: output.to_vec(), scratch: Vec::new() }
}

#[test]
fn chunks_have_the_ids_of_their_collective() {
    assert_eq!(size_ids(CollectiveShape::all_gather_v(2, 2), 1), ids(&[2, 3], &[0, 1, 2, 3]));
    assert_eq!(size_ids(CollectiveShape::reduce_scatter_v(2, 2), 1), ids(&[0, 1, 2, 3], &[2, 3]));
    // Block j, part p of rank 1 of 3: ids (1*3 + j)*2 + p in, (j*3 + 1)*2 + p out.
    let expected = ids(&[6, 7, 8, 9, 10, 11], &[2, 3, 8, 9, 14, 15]);
    assert_eq!(size_ids(CollectiveShape::all_to_all_v(3, 2), 1), expected);
    let own = BufferSizeIds { input: vec![7], output: vec![9, 7] };
    assert_eq!(size_ids(CollectiveShape::custom_v(vec![own]), 0), ids(&[7], &[9, 7]));
}

#[test]
fn an_all_gather_is_the_fixed_one_with_ids() {
    let (fixed, sized) = (testing::all_gather_put(2).unwrap(), testing::all_gather_v(2).unwrap());
    for rank in 0..2 {
        assert_eq!(show::block(&fixed, rank, 0), show::block(&sized, rank, 0));
        assert_eq!(sized.ranks[rank].size_ids, Some(ids(&[rank as u64], &[0, 1])));
    }
    assert_eq!(sized.collective, fixed.collective);
}

fn program() -> Program {
    Program::new(ProgramOptions::new("sized", CollectiveShape::all_gather_v(2, 1))).unwrap()
}

#[test]
fn chunks_of_different_ids_do_not_meet() {
    let mut p = program();
    let (input, output) = (p.input(1).unwrap().whole(), p.output(1).unwrap());
    p.copy(output.chunk(1..2).unwrap(), input, 0).unwrap();
    let error = p.copy(output.chunk(0..1).unwrap(), input, 0).unwrap_err();
    let different =
        BuildProblem::DifferentSizeIds { role: "destination", chunk: 0, expected: Some(1), found: Some(0) };
    assert_eq!(*error.problem(), different);
}

#[test]
fn scratch_has_an_id_per_chunk() {
    let mut p = program();
    let error = p.scratch(0, 2).unwrap_err();
    assert_eq!(*error.problem(), BuildProblem::SizeIdCount { size: 2, expected: 2, found: 0 });
    let scratch = p.sized_scratch(0, &[1, 0]).unwrap();
    p.copy(scratch.chunk(1..2).unwrap(), p.input(0).unwrap().whole(), 0).unwrap();
    let plan = p.finish().unwrap();
    assert_eq!(plan.ranks[0].size_ids.as_ref().unwrap().scratch, [1, 0]);
    let mut fixed = Program::new(ProgramOptions::new("fixed", CollectiveShape::all_gather(2, 1))).unwrap();
    let error = fixed.sized_scratch(0, &[1, 0]).unwrap_err();
    assert_eq!(*error.problem(), BuildProblem::SizeIdCount { size: 2, expected: 0, found: 2 });
}

#[test]
fn a_pipeline_names_its_id() {
    let mut p = program();
    let (input, output) = (p.input(1).unwrap().whole(), p.output(1).unwrap().chunk(1..2).unwrap());
    p.sized_pipeline(64, 1, |p| p.copy(output, input, 0)).unwrap();
    let error = p.sized_pipeline(64, 0, |p| p.copy(output, input, 0)).unwrap_err();
    let different =
        BuildProblem::DifferentSizeIds { role: "destination", chunk: 0, expected: Some(0), found: Some(1) };
    assert_eq!(*error.problem(), different);
    assert_eq!(*p.pipeline(64, 1, |_| Ok(())).unwrap_err().problem(), BuildProblem::PipelineSizeId);
    let error = p.begin_pipeline(64, 2, Some(1)).unwrap_err();
    assert_eq!(*error.problem(), BuildProblem::PipelineSizeId);
    assert!(p.finish().unwrap().check().is_empty());
}

#[test]
fn there_are_no_instances_and_no_compatibility() {
    let options = ProgramOptions::new("sized", CollectiveShape::all_gather_v(2, 1));
    let error = Program::new(ProgramOptions { instances: 2, ..options }).unwrap_err();
    assert_eq!(*error.problem(), BuildProblem::SizedInstances { instances: 2 });
    let error = program().emit(Compat::Mscclpp).unwrap_err();
    assert_eq!(*error.problem(), BuildProblem::NeedsExtension(Extension::SizedChunks));
}
