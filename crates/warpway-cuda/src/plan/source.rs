//! The text of a kernel.
//!
//! Each path becomes a function of the launch and of the block's number among those that do the same; numbers that differ from
//! block to block are linear in it, or stand in a table.

use std::fmt::Write as _;

use warpway_plan::lower::{Base, LoweredBlock, Operand, Step, StepAction, Transfer, TransferKind};
use warpway_plan::{BufferKind, DataType, Form, ReduceOp};

use super::kernel::{KERNEL, KernelForm, Packet, PlanKernel, PlanProblem};
use super::paths::Path;
use super::rows::{entries_of, row_words};

/// The program of a kernel.
pub(super) fn source(kernel: &PlanKernel, form: KernelForm) -> Result<String, PlanProblem> {
    let paths = kernel.paths()?;
    let mut writer = Writer {
        kernel,
        form,
        tables: String::new(),
        n_tables: 0,
        functions: String::new(),
        words: 0,
        entries: 0,
    };
    let mut calls = String::new();
    for (number, path) in paths.iter().enumerate() {
        writer.path(number, path);
        let (first, members) = (path.first_block, path.members.len());
        let call = format!("path_{number}(launch, block - {first}, packets, raw)");
        let last = number + 1 == paths.len();
        let condition =
            if last { String::new() } else { format!("if (block < {}) ", first as usize + members) };
        let otherwise = if number == 0 { "  " } else { " else " };
        let _ = write!(calls, "{otherwise}{condition}{call};");
    }
    let Writer { tables, functions, .. } = writer;
    let setting = kernel.setting();
    let uses =
        |form| kernel.bases().iter().any(|base| base.form == form && base.buffer == BufferKind::Scratch);
    let epoch = |used, counter| match used {
        true => format!("plan::read_epoch(launch.{counter})"),
        false => "Epoch{0}".to_owned(),
    };
    let finish = |used, counter| match used {
        true => format!(
            "  if (thread_in_block() == 0) plan::finish_epoch(launch.{counter}, {});\n",
            kernel.blocks()
        ),
        false => String::new(),
    };
    let (packed, raw) = (uses(Form::Packets), uses(Form::Raw));
    let mut end = finish(packed, "packet_epoch") + &finish(raw, "raw_epoch");
    if !end.is_empty() {
        end.insert_str(0, "  block_barrier();\n");
    }
    Ok(format!(
        "// Rank {rank} of plan {identity}.\n\
         #include <warpway/plan.cuh>\n\
         using namespace warpway;\n\
         namespace {{\n\
         using Format = {format};\n\
         using Packet = {packet};\n\
         using Launch = plan::Launch<{bases}, {words}>;\n\
         {tables}{functions}\
         }}  // namespace\n\
         WARPWAY_KERNEL({threads}) {KERNEL}(WARPWAY_CONSTANT Launch launch) {{\n\
         \x20 const u32 block = block_in_grid();\n\
         \x20 const Epoch packets = {packet_epoch};\n\
         \x20 const Epoch raw = {raw_epoch};\n\
         {calls}\n\
         \x20 static_cast<void>(block), static_cast<void>(packets), static_cast<void>(raw);\n\
         {end}}}\n",
        rank = kernel.rank(),
        identity = kernel.identity(),
        format = format_name(setting.data_type),
        packet = match setting.packet {
            Packet::LL8 => "LL8",
            Packet::LL16 => "LL16",
            Packet::Line => "Line",
        },
        bases = kernel.base_slots(),
        words = kernel.word_slots(),
        threads = kernel.threads(),
        packet_epoch = epoch(packed, "packet_epoch"),
        raw_epoch = epoch(raw, "raw_epoch"),
    ))
}

struct Writer<'k> {
    kernel: &'k PlanKernel,
    form: KernelForm,
    tables: String,
    n_tables: usize,
    functions: String,
    /// Words of the launch so far.
    words: usize,
    /// Steps with pieces of all blocks so far.
    entries: usize,
}

/// What the steps of a path have in common while they are written.
struct Body<'p, 'l> {
    members: &'p [&'l LoweredBlock],
    text: String,
    /// Steps with pieces so far, and those of each block.
    entry: usize,
    entries: usize,
    /// Some thread may have failed since the last barrier.
    may_have_failed: bool,
    indent: usize,
}

impl Body<'_, '_> {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "{:indent$}{text}", "", indent = self.indent);
    }
}

impl Writer<'_> {
    fn path(&mut self, number: usize, path: &Path<'_>) {
        let Some(first) = path.members.first() else { return };
        let entries = entries_of(&first.steps);
        let mut body = Body {
            members: &path.members,
            text: String::new(),
            entry: 0,
            entries,
            may_have_failed: false,
            indent: 2,
        };
        self.steps(&first.steps, &|block| block.steps.iter().collect(), None, &mut body);
        let Body { text, .. } = body;
        let _ = write!(
            self.functions,
            "WARPWAY_DEVICE void path_{number}(const Launch& launch, u32 member, Epoch packets, Epoch raw) {{\n\
             \x20 const auto flag = plan::flag_of<Packet>(packets);\n\
             \x20 bool failed = false;\n\
             {text}\
             \x20 static_cast<void>(launch), static_cast<void>(member), static_cast<void>(raw);\n\
             \x20 static_cast<void>(flag), static_cast<void>(failed);\n\
             }}\n"
        );
        self.entries += entries * path.members.len();
    }

    /// `steps` are those of the first member; `of` gives the same list of any member. `unit` is the slice of the loop around.
    fn steps<'s>(
        &mut self,
        steps: &[Step],
        of: &dyn Fn(&'s LoweredBlock) -> Vec<&'s Step>,
        unit: Option<u64>,
        body: &mut Body<'_, 's>,
    ) {
        for (at, step) in steps.iter().enumerate() {
            let same: Vec<&Step> =
                body.members.iter().filter_map(|block| of(block).get(at).copied()).collect();
            match &step.action {
                StepAction::BlockBarrier if body.may_have_failed => {
                    body.line("if (block_any(failed)) return;");
                    body.may_have_failed = false;
                }
                StepAction::BlockBarrier => body.line("block_barrier();"),
                StepAction::Barrier { .. } => {
                    let number = |which: fn(u32, u32) -> u32| {
                        same.iter()
                            .map(|step| match step.action {
                                StepAction::Barrier { id, blocks } => which(id, blocks),
                                _ => 0,
                            })
                            .collect::<Vec<u32>>()
                    };
                    let (id, blocks) =
                        (self.number(number(|id, _| id)), self.number(number(|_, blocks| blocks)));
                    body.line(&format!("if (launch.barriers[{id}].sync({blocks}) != Status::Ok) return;"));
                }
                StepAction::Signal { relaxed, .. } => {
                    let call = if *relaxed { "relaxedSignal" } else { "signal" };
                    self.each(&same, body, &|channel| {
                        format!("launch.channels[{channel}].{call}<Guard::None>();")
                    });
                }
                StepAction::Wait { relaxed, .. } => {
                    let call = if *relaxed { "relaxedWait" } else { "wait" };
                    self.each(&same, body, &|channel| {
                        format!("failed |= launch.channels[{channel}].{call}() != Status::Ok;")
                    });
                    body.may_have_failed = true;
                }
                StepAction::Acquire { .. } => {
                    self.each(&same, body, &|semaphore| {
                        format!("failed |= launch.semaphores[{semaphore}].acquire() != Status::Ok;")
                    });
                    body.may_have_failed = true;
                }
                StepAction::Release { .. } => {
                    self.each(&same, body, &|semaphore| format!("launch.semaphores[{semaphore}].release();"));
                }
                StepAction::Move(transfer) => self.transfer(transfer, &same, false, unit, body),
                StepAction::Await(transfer) => self.transfer(transfer, &same, true, unit, body),
                StepAction::Loop { pipeline, body: inner } => {
                    let iterations = self.words;
                    self.words += 1;
                    body.line(&format!("for (u64 turn = 0; turn < launch.words[{iterations}]; ++turn) {{"));
                    body.indent += 2;
                    let of = |block: &'s LoweredBlock| match of(block).get(at).map(|step| &step.action) {
                        Some(StepAction::Loop { body, .. }) => body.iter().collect(),
                        _ => Vec::new(),
                    };
                    self.steps(inner, &of, Some(pipeline.unit_size), body);
                    body.indent -= 2;
                    body.line("}");
                }
                // Refused when the paths were made.
                StepAction::Flush { .. } | StepAction::Put { .. } => {}
            }
        }
    }

    /// Thread `j` does something to number `j` of a list; of more numbers than threads each has several.
    fn each(&mut self, same: &[&Step], body: &mut Body<'_, '_>, call: &dyn Fn(&str) -> String) {
        let lists: Vec<&[u32]> = same
            .iter()
            .map(|step| match &step.action {
                StepAction::Signal { channels, .. } | StepAction::Wait { channels, .. } => &channels[..],
                StepAction::Acquire { semaphores } | StepAction::Release { semaphores } => semaphores,
                _ => &[],
            })
            .collect();
        for j in 0..lists.first().map_or(0, |list| list.len()) {
            let numbers = lists.iter().map(|list| list.get(j).copied().unwrap_or_default()).collect();
            let number = self.number(numbers);
            let thread = j as u32 % self.kernel.threads().max(1);
            body.line(&format!("if (thread_in_block() == {thread}) {}", call(&number)));
        }
    }

    fn transfer(
        &mut self,
        transfer: &Transfer,
        same: &[&Step],
        awaited: bool,
        unit: Option<u64>,
        body: &mut Body<'_, '_>,
    ) {
        let width = transfer.width();
        let others: Vec<&Transfer> = same
            .iter()
            .filter_map(|step| match &step.action {
                StepAction::Move(transfer) | StepAction::Await(transfer) => Some(transfer),
                _ => None,
            })
            .collect();
        // Addresses are worked out once per step, but for the offset of the piece.
        body.line("{");
        body.indent += 2;
        for (at, operand) in transfer.operands().enumerate() {
            let numbers = others.iter().filter_map(|t| t.operands().nth(at)).map(|o| o.base).collect();
            let number = self.number(numbers);
            let base = self.base(operand);
            let half = match (base.buffer, operand.form) {
                (BufferKind::Scratch, Form::Packets) => {
                    " + (packets.parity() != 0 ? launch.halves[base] : 0)"
                }
                (BufferKind::Scratch, Form::Raw) => " + (raw.parity() != 0 ? launch.halves[base] : 0)",
                _ => "",
            };
            body.line(&format!("u64 base_{at};"));
            body.line(&format!("{{ const u32 base = {number}; base_{at} = launch.bases[base]{half}; }}"));
        }
        let site =
            format!("Site{{launch.control, {}, {}}}", self.writer(), same.first().map_or(0, |s| s.operation));
        let work = self.work(transfer, awaited, &site);
        let may_fail = transfer.sources.iter().any(|source| source.form == Form::Packets);
        let whole = if unit.is_some() { "whole" } else { "piece" };
        match self.form {
            KernelForm::Fitted => {
                let members = body.members.len();
                body.line(&format!(
                    "const auto {whole} = plan::fitted<{width}>(launch.words + {}, member, {members});",
                    self.words
                ));
                self.sliced(&work, unit, body);
            }
            KernelForm::Listed => {
                let (first, entries, entry) = (self.entries, body.entries, body.entry);
                body.line(&format!(
                    "plan::each_listed<{width}>(launch.listed, {first} + u64{{member}} * {entries} + {entry}, \
                     [&](const plan::Piece<{width}>& {whole}) {{"
                ));
                body.indent += 2;
                self.sliced(&work, unit, body);
                body.indent -= 2;
                body.line("});");
            }
        }
        body.indent -= 2;
        body.line("}");
        body.entry += 1;
        body.may_have_failed |= may_fail;
        self.words += row_words(width);
    }

    fn sliced(&self, work: &[String], unit: Option<u64>, body: &mut Body<'_, '_>) {
        if let Some(unit) = unit {
            body.line(&format!("const auto piece = whole.slice(turn * {unit}ull, {unit}ull);"));
        }
        work.iter().for_each(|line| body.line(line));
    }

    /// What is done with a piece.
    fn work(&self, transfer: &Transfer, awaited: bool, site: &str) -> Vec<String> {
        let n = transfer.sources.len();
        let raw = |at: usize| format!("base_{at} + piece.offsets[{at}]");
        let packets = |at: usize| format!("plan::packets_at<Packet>(base_{at}, piece.offsets[{at}])");
        let is_packed = |operand: &Operand| operand.form == Form::Packets;
        match transfer.kind {
            TransferKind::Copy => {
                let from_packets = transfer.sources.first().is_some_and(is_packed);
                if awaited {
                    return vec![format!(
                        "failed |= !plan::await_all<Packet>({}, piece.bytes, flag, {site});",
                        packets(0)
                    )];
                }
                if from_packets && transfer.destinations.iter().all(is_packed) {
                    let to: Vec<String> = (n..transfer.width()).map(packets).collect();
                    return vec![
                        format!("Packet* const to[] = {{{}}};", to.join(", ")),
                        format!(
                            "failed |= !plan::forward(to, {}, piece.bytes, piece.cover, flag, {site});",
                            packets(0)
                        ),
                    ];
                }
                let one = |(at, to): (usize, &Operand)| match (from_packets, is_packed(to)) {
                    (false, false) => format!("plan::copy({}, {}, piece.bytes);", raw(at), raw(0)),
                    (false, true) => {
                        format!(
                            "plan::pack<Packet>({}, {}, piece.bytes, piece.cover, flag);",
                            packets(at),
                            raw(0)
                        )
                    }
                    (true, _) => format!(
                        "failed |= !plan::unpack<Packet>({}, {}, piece.bytes, flag, {site});",
                        raw(at),
                        packets(0)
                    ),
                };
                (n..).zip(&transfer.destinations).map(one).collect()
            }
            TransferKind::Fold { op, last } => {
                let mask = |bits: &mut dyn Iterator<Item = bool>| {
                    bits.enumerate().fold(0u32, |mask, (at, bit)| mask | u32::from(bit) << at)
                };
                let packet_sources = mask(&mut transfer.sources.iter().map(is_packed));
                let packet_results = mask(&mut transfer.destinations.iter().map(is_packed));
                let inputs = mask(&mut transfer.sources.iter().map(|source| source.input));
                let shape = format!(
                    "plan::Shape<Format, ReduceOp::{op}, {n}, {}, {packet_sources}, {packet_results}, {inputs}>",
                    transfer.destinations.len(),
                    op = op_name(op),
                );
                let address = |(at, operand): (usize, &Operand)| match operand.form {
                    Form::Raw => raw(at),
                    Form::Packets => format!("base_{at} + 2 * piece.offsets[{at}]"),
                };
                let at: Vec<String> = transfer.operands().enumerate().map(address).collect();
                let places = format!("const u64 at[] = {{{}}};", at.join(", "));
                let setting = format!("FoldSetting{{{}, {last}}}", self.kernel.n_ranks());
                let call = match packet_sources | packet_results {
                    0 => format!("plan::fold_raw<{shape}>(at, piece.bytes, {setting});"),
                    _ if self.kernel.setting().packet == Packet::Line => format!(
                        "failed |= !plan::fold_lines<{shape}>(at, piece.bytes, piece.cover, flag, {setting}, {site});"
                    ),
                    _ => format!(
                        "failed |= !plan::fold_packets<{shape}, Packet>(at, piece.bytes, piece.cover, flag, {setting}, {site});"
                    ),
                };
                vec![places, call]
            }
        }
    }

    fn base(&self, operand: &Operand) -> Base {
        let unknown = Base { rank: 0, buffer: BufferKind::Input, form: Form::Raw };
        self.kernel.bases().get(operand.base as usize).copied().unwrap_or(unknown)
    }

    /// The rank that an error names when packets do not come: the other one of two.
    fn writer(&self) -> String {
        match self.kernel.n_ranks() {
            2 => format!("{}u", 1 - self.kernel.rank().min(1)),
            _ => "no_peer".to_owned(),
        }
    }

    /// An expression of `member` for numbers by member.
    fn number(&mut self, numbers: Vec<u32>) -> String {
        let first = numbers.first().copied().unwrap_or(0);
        let step = numbers.get(1).map_or(0, |second| second.wrapping_sub(first));
        let linear =
            (0u32..).zip(&numbers).all(|(at, number)| first.wrapping_add(at.wrapping_mul(step)) == *number);
        match (linear, step) {
            (true, 0) => format!("{first}u"),
            (true, 1) if first == 0 => "member".to_owned(),
            (true, _) => format!("({first}u + member * {step}u)"),
            (false, _) => {
                let name = format!("table_{}", self.n_tables);
                self.n_tables += 1;
                let list: Vec<String> = numbers.iter().map(u32::to_string).collect();
                let _ = writeln!(self.tables, "WARPWAY_TABLE u32 {name}[] = {{{}}};", list.join(", "));
                format!("{name}[member]")
            }
        }
    }
}

/// The names of `formats.cuh`.
fn format_name(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Int32 => "I32",
        DataType::Uint32 => "U32",
        DataType::Float16 => "F16",
        DataType::Float32 => "F32",
        DataType::Bfloat16 => "BF16",
        DataType::Float8E4m3fn => "E4M3",
        DataType::Float8E4m3fnuz => "E4M3FNUZ",
        DataType::Float8E5m2 => "E5M2",
        DataType::Float8E5m2fnuz => "E5M2FNUZ",
        DataType::Uint8 => "U8",
        DataType::Float8E4m3b15 => "E4M3B15",
        DataType::Int8 => "I8",
        DataType::Int64 => "I64",
        DataType::Uint64 => "U64",
        DataType::Float64 => "F64",
    }
}

/// The names of `fold.cuh`.
fn op_name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "Sum",
        ReduceOp::Min => "Min",
        ReduceOp::Max => "Max",
        ReduceOp::Prod => "Prod",
        ReduceOp::Avg => "Avg",
    }
}
