//! Plans as short lines, so that expectations can be read.

use warpway_plan::{Action, DataOperation, Operation, Plan, Reference, Via};

/// One line per operation; a pipeline's body in braces.
pub(crate) fn block(plan: &Plan, rank: usize, block: usize) -> Vec<String> {
    plan.ranks[rank].blocks[block].operations.iter().map(operation).collect()
}

fn operation(operation: &Operation) -> String {
    let relaxed = |relaxed: &bool| if *relaxed { "rlx" } else { "" };
    let via = |via: &Via| if *via == Via::Port { " port" } else { "" };
    match &operation.action {
        Action::Nop => "nop".to_owned(),
        Action::Barrier { id, blocks } => format!("barrier {id} of {blocks}"),
        Action::Signal { via: v, relaxed: r, channels } => {
            format!("{}signal{} {channels:?}", relaxed(r), via(v))
        }
        Action::Wait { via: v, relaxed: r, channels } => format!("{}wait{} {channels:?}", relaxed(r), via(v)),
        Action::Flush { channels } => format!("flush {channels:?}"),
        Action::Acquire { semaphores } => format!("acquire {semaphores:?}"),
        Action::Release { semaphores } => format!("release {semaphores:?}"),
        Action::Data(data) => data_operation(data),
        Action::Pipeline(pipeline) => {
            let body: Vec<String> = pipeline.body.iter().map(self::operation).collect();
            format!("{}x{} {{ {} }}", pipeline.unit_size, pipeline.num_chunks, body.join("; "))
        }
    }
}

fn data_operation(data: &DataOperation) -> String {
    let mut text =
        format!("{} {} -> {}", data.kind, references(&data.sources), references(&data.destinations));
    if !data.channels.is_empty() {
        text += &format!(" on {:?}", data.channels);
    }
    if let Some(fold) = &data.fold {
        text += &format!(" {}", fold.op);
        if let Some(order) = &fold.order {
            text += &format!(" {order:?}");
        }
    }
    if let Some(group) = &data.group {
        text += &format!(" share {}/{}", group.member, group.size);
    }
    text
}

fn references(references: &[Reference]) -> String {
    let one = |reference: &Reference| {
        let size = match reference.size() {
            1 => String::new(),
            size => format!("+{size}"),
        };
        match reference {
            Reference::Local { buffer, index, .. } => format!("{buffer}{index}{size}"),
            Reference::Remote { position, index, .. } => format!("remote{position}:{index}{size}"),
            Reference::Switch { position, index, .. } => format!("switch{position}:{index}{size}"),
        }
    };
    references.iter().map(one).collect::<Vec<_>>().join(" ")
}
