//! The program `device/tests/host/switch_folds.cpp`, which runs kernels on an emulated group.

use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::host_compiler;

/// How many ranks and threads, and where folds begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) members: u32,
    pub(crate) threads: u32,
    pub(crate) first: u32,
    /// Of each member.
    pub(crate) vectors: u64,
}

/// Kernels that the program knows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Fold = 0,
    AddAtOnce = 1,
    AddInTurn = 2,
    Store = 3,
}

/// What came back.
pub(crate) struct Answer {
    /// Of each member, for folds.
    pub(crate) read: Vec<Vec<u8>>,
    /// Each member's memory.
    pub(crate) memories: Vec<Vec<u8>>,
}

pub(crate) struct Emulator {
    path: PathBuf,
    child: Child,
    calls: Option<BufWriter<ChildStdin>>,
    answers: ChildStdout,
}

impl Emulator {
    /// `None` without a compiler.
    pub(crate) fn start() -> Option<Self> {
        let path = host_compiler::compile("switch_folds", &["-O1", "-pthread"])?;
        let mut child = Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (calls, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Some(Self { path, child, calls: Some(BufWriter::new(calls)), answers })
    }

    /// Runs a kernel. `vector_bytes` is the size of the vectors that `name` stands for; `parts` is how many parts of `vectors`
    /// vectors each memory has.
    pub(crate) fn run(
        &mut self,
        what: What,
        name: &str,
        vector_bytes: usize,
        shape: Shape,
        data: &[&[Vec<u8>]],
    ) -> Answer {
        let calls = self.calls.as_mut().unwrap();
        for word in [what as u32, shape.members, shape.threads, shape.first] {
            calls.write_all(&word.to_ne_bytes()).unwrap();
        }
        for word in [shape.vectors, name.len() as u64] {
            calls.write_all(&word.to_ne_bytes()).unwrap();
        }
        calls.write_all(name.as_bytes()).unwrap();
        for memory in data.iter().copied().flatten() {
            calls.write_all(memory).unwrap();
        }
        calls.flush().unwrap();

        let mut head = [0; 8];
        self.answers.read_exact(&mut head).unwrap_or_else(|error| panic!("{name} {shape:?}: {error}"));
        assert_eq!(head[..4], (vector_bytes as u32).to_ne_bytes(), "{name}");
        let part = vector_bytes * shape.vectors as usize;
        let parts =
            if matches!(what, What::AddAtOnce | What::AddInTurn) { 1 } else { shape.members as usize };
        let mut take = |bytes: usize| -> Vec<Vec<u8>> {
            let mut all = vec![vec![0; bytes]; shape.members as usize];
            all.iter_mut().for_each(|one| self.answers.read_exact(one).unwrap());
            all
        };
        let read = if matches!(what, What::Fold) { take(part) } else { Vec::new() };
        Answer { read, memories: take(part * parts) }
    }

    /// After the last call.
    pub(crate) fn finish(mut self) {
        drop(self.calls.take());
        assert!(self.child.wait().unwrap().success());
        std::fs::remove_file(self.path).unwrap();
    }
}
